"""Files as people have them: which lines, cells and sheets `init` takes for rows."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from callsheet.errors import InputError
from tests.batches.test_workbooks import text, workbook
from tests.cli.proposed import Make, config, given, quote
from tests.cli.test_rows import printed, refusal


def test_a_western_text_in_another_encoding_is_read_and_the_encoding_is_a_guess(project: Make) -> None:
    text = "Nr;Prompt;Bild\n1;Ein Reiher, früh am Morgen;x\n2;Müder Fuchs überquert die Straße;x\n"
    wrote = given(project(), "x.csv", text.encode("cp1252"), "--model", "sketch-1")
    assert wrote["guessed"]["encoding"]["taken"] == wrote["encoding"]
    assert quote()["first_request"]["prompt"] == "Ein Reiher, früh am Morgen"


def test_a_large_file_is_looked_at_in_parts_and_init_says_so(project: Make) -> None:
    made = project()
    pl.DataFrame({"prompt": [f"a heron {n}" for n in range(6_000)]}).write_csv(made.folder / "x.csv")
    said = printed("init", "x.csv")
    assert "6,000 images of 6,000 rows on sketch-1, the cheapest; 2,000 rows were tried" in said
    assert "on each model; 9.0000 USD" in said
    config = yaml.safe_load((made.folder / "x.yaml").read_text())
    assert Decimal(config["budget"]["limit"]) == 9


def test_a_file_that_cannot_be_read_is_an_error_and_no_config(project: Make) -> None:
    made = project()
    (made.folder / "x.csv").write_text('prompt\n"never closed\n')
    assert isinstance(refusal("init", "x.csv"), InputError)
    assert not Path("x.yaml").exists()


FORMS = {
    "a list in an object": (
        "x.json",
        {"generatedAt": "2026-01-01", "count": 2, "shots": [{"prompt": "A heron"}, {"prompt": "A fox"}]},
        {"rows": "shots"},
        ["A heron", "A fox"],
    ),
    "lists in lists": (
        "x.json",
        [{"scene": 1, "shots": [{"shot": "1a", "prompt": "A heron"}, {"shot": "1b", "prompt": "A fox"}]}],
        {"rows": "shots", "columns": {"id": "shot"}},
        ["A heron", "A fox"],
    ),
    "lines named .json": ("x.json", '{"prompt": "A heron"}\n{"prompt": "A fox"}\n', {}, ["A heron", "A fox"]),
    "paragraphs": (
        "x.txt",
        "A heron lands,\nat dawn.\n\nA fox crosses a road,\nseen from above.\n",
        {"split": "paragraphs"},
        ["A heron lands,\nat dawn.", "A fox crosses a road,\nseen from above."],
    ),
    "a name and a text": (
        "x.txt",
        "clip_01.mov|A heron lands\nclip_02.mov|A fox crosses\n",
        {"split": "named_lines"},
        ["A heron lands", "A fox crosses"],
    ),
    "no header, one column": (
        "x.csv",
        "Catching salmon\nCrossing a village\nExploring a cave\n",
        {"header": "none", "columns": {"prompt": 1}},
        ["Catching salmon", "Crossing a village", "Exploring a cave"],
    ),
    "no header, three columns": (
        "x.csv",
        "Koala,Riding a bicycle,Rainforest\nHedgehog,Cooking a meal,Forest\n",
        {"header": "none", "columns": {"prompt": 2}},
        ["Riding a bicycle", "Cooking a meal"],
    ),
    "groups above the header": (
        "x.csv",
        "Shot,,Generation,\nid,prompt,aspect_ratio,notes\na,A heron,16:9,ok\nb,A fox,9:16,ok\n",
        {},
        ["A heron", "A fox"],
    ),
    "a total below": ("x.csv", "prompt,shelf\nA heron,1\nA fox,2\nTotal: 2,\n", {}, ["A heron", "A fox"]),
    "quotes that are none": (
        "x.csv",
        'id|prompt\n1|A heron\n2|"LOVE" on a wall\n',
        {},
        ["A heron", '"LOVE" on a wall'],
    ),
    "width and height": (
        "x.csv",
        "prompt,width,height\nA heron,1024,576\nA fox,576,1024\n",
        {"columns": {"aspect_ratio": ["width", "height"]}},
        ["A heron", "A fox"],
    ),
}


FORMS |= {
    "labels in brackets": (
        "x.txt",
        "[scene_01_intro]\nA dark stage, blue light\n\n[scene_02_desk]\nA desk with papers\n",
        {"split": "sections"},
        ["A dark stage, blue light", "A desk with papers"],
    ),
    "rules between prompts": (
        "x.txt",
        "A heron lands\n\n---\n\nA fox crosses\nin the snow\n\n---\n",
        {"split": "sections"},
        ["A heron lands", "A fox crosses\nin the snow"],
    ),
    "headings above several prompts": (
        "x.txt",
        "# Birds\nA heron lands\nAn owl sits\nA swan swims\n# Others\nA fox crosses\nA cat sleeps\n",
        {"comments": "#"},
        ["A heron lands", "An owl sits", "A swan swims", "A fox crosses", "A cat sleeps"],
    ),
    "tabs and no header": (
        "x.tsv",
        "/out/0.png\ta church, vintage, by a painter\n/out/1.png\ta tower, oil, muted, at night\n",
        {"header": "none", "columns": {"prompt": 2}},
        ["a church, vintage, by a painter", "a tower, oil, muted, at night"],
    ),
    "an object of rows beside a text": (
        "x.json",
        {
            "_doc": "For a book. {palette} comes later.",
            "images": {"k": {"prompt": "A cover"}, "l": {"prompt": "A hero"}},
        },
        {"rows": "images"},
        ["A cover", "A hero"],
    ),
}


@pytest.mark.parametrize(("name", "content", "wanted", "prompts"), FORMS.values(), ids=FORMS)
def test_a_file_is_read_as_its_author_meant_it(
    project: Make, name: str, content: Any, wanted: dict[str, Any], prompts: list[str]
) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    wrote = given(project(), name, text, "--model", "sketch-1")
    for setting in ("guessed", "path", "defaults"):
        wrote.pop(setting, None)
    assert wrote == wanted
    shown = json.loads(printed("quote", "new.yaml", "--show", "9", "--json"))
    assert [request["prompt"] for request in shown["requests"]] == prompts
    assert (shown["rejected_rows"], shown["rows"]) == (0, len(prompts))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1. A heron\n2. A fox\n", "2 of 2 prompts have a number first, which is sent"),
        ("Scene 1: A heron\nScene 2: A fox\n", "2 of 2 prompts have a label first, which is sent"),
        ('"A heron"\n"A fox"\n', "2 of 2 prompts have quotes around it, which is sent"),
        (
            "a | A heron\nb | A fox\nA lamp\n",
            "2 of 3 prompts have a name before |, which is sent; with input.split: named_lines it is the id",
        ),
    ],
)
def test_a_part_of_a_line_that_may_not_be_meant_is_counted_and_never_cut(
    project: Make, text: str, said: str
) -> None:
    wrote = given(project(), "x.txt", text, "--model", "sketch-1")
    assert "split" not in wrote
    assert quote()["notes"] == [said]
    shown = json.loads(printed("quote", "new.yaml", "--show", "9", "--json"))
    assert [request["prompt"] for request in shown["requests"]] == text.splitlines()


@pytest.mark.parametrize(
    ("cell", "seconds"), [("5,0", 5), ("10.0", 10), ("0:05", 5), ("5 s", 5), ("10sec", 10)]
)
def test_a_duration_is_read_as_people_write_it(project: Make, cell: str, seconds: int) -> None:
    given(project(), "x.csv", f'prompt;Dauer\nEin Reiher;"{cell}"\n')
    assert quote()["first_request"]["duration"] == seconds


def test_a_workbook_of_several_sheets_says_which_is_read(project: Make) -> None:
    made = project()
    sheets = {"Ideas": [[text("prompt")], [text("A heron")]], "Shots": [[text("prompt")], [text("A fox")]]}
    workbook(made.folder / "x.xlsx", **sheets)
    printed("init", "x.xlsx", "new.yaml")
    wrote = yaml.safe_load(Path("new.yaml").read_text())["input"]
    assert wrote["guessed"]["sheet"] == {"taken": "Ideas", "others": ["*", "Shots"]}
    printed("init", "x.xlsx", "other.yaml", "--sheet", "Shots")
    assert "guessed" not in yaml.safe_load(Path("other.yaml").read_text())["input"]
    assert json.loads(printed("quote", "other.yaml", "--json"))["first_request"]["prompt"] == "A fox"


def test_all_sheets_of_the_same_columns_are_one_answer_and_none_is_left_unsaid(project: Make) -> None:
    made = project()
    head = [text("id"), text("prompt")]
    sheets = {f"Day{day}": [head, [text(f"{day}a"), text(f"A heron on day {day}")]] for day in range(1, 13)}
    workbook(made.folder / "x.xlsx", Readme=[[text("How to")], [text("use this")]], **sheets)
    printed("init", "x.xlsx", "new.yaml")
    guessed = config(made, "new.yaml")["guessed"]["sheet"]
    assert (guessed["taken"], guessed["others"]) == ("Day1", ["*", *(f"Day{day}" for day in range(2, 13))])
    printed("init", "x.xlsx", "all.yaml", "--sheet", "*")
    told = json.loads(printed("quote", "all.yaml", "--json", "--show", "9a"))
    assert (told["rows"], told["rejected_rows"]) == (12, 0)
    assert told["requests"][0]["prompt"] == "A heron on day 9"
    assert "Readme (sheets) hold nothing like these prompts" in printed("init", "x.xlsx", "one.yaml")
    assert told["notes"] == ["x.xlsx: sheets without prompts are left out: Readme"]


def test_labels_that_come_again_are_a_doubt_and_no_ids(project: Make) -> None:
    scenes = "".join(
        f"[scene {n}]\n---\nprompt:\nA heron lands {n}\n\nsound:\nWind, rain\n\n" for n in (1, 2)
    )
    wrote = given(project(), "x.txt", scenes)
    assert wrote["split"] == "sections"
    assert wrote["guessed"]["split"] == {"taken": "sections", "others": ["lines"]}


def test_records_between_rules_and_a_first_line_that_may_be_a_row_are_doubts(project: Make) -> None:
    made = project()
    records = "".join(f"Word {n}: heron\nPrompt: A heron lands {n}\n-----\n" for n in (1, 2, 3))
    wrote = given(made, "x.txt", f"# Three of them\n=====\n{records}")
    assert wrote["guessed"]["split"] == {"taken": "sections", "others": ["lines"]}
    assert (quote()["jobs"], quote()["rejected_rows"]) == (3, 0)
    (made.folder / "new.yaml").unlink()
    wrote = given(made, "x.csv", "Brown bear\nTeddy bear\nPolar bear\n")
    assert wrote["guessed"] == {"header": {"taken": "names", "others": ["none"]}}


def test_a_file_of_which_no_row_can_be_read_says_why(project: Make) -> None:
    made = project()
    (made.folder / "x.csv").write_text("id,prompt1,prompt2\n1,A heron lands on a pond\n")
    assert "no row can be read; line 2: the line has 2 cells" in refusal("init", "x.csv").message


def test_one_broken_row_is_rejected_with_its_line_and_the_others_are_read(project: Make) -> None:
    rows = '"Keep the light, and the pose"\nb,"Like a girl named "KIM". Keep the light, please"\nc,A fox\n'
    given(project(), "x.csv", f"id,prompt\na,{rows}")
    assert "line 3: broken quoting" in printed("init", "x.csv", "again.yaml")
    told = quote()
    assert (told["jobs"], told["rejected_rows"]) == (2, 1)
