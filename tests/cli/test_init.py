"""A file of prompts as people have them -> a config by `init`, and what its quote then says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.proposed import Make, asked, config, given, quote, ran
from tests.cli.test_rows import printed, refusal
from tests.conftest import Project


def test_a_guess_stands_in_the_config_with_what_else_it_may_be_and_a_quote_says_it_first(
    project: Make,
) -> None:
    made = project()
    wrote = given(made, "x.csv", "id,prompt_de,prompt_en\na,Ein Reiher,A heron\nb,Ein Fuchs,A fox\n")
    assert wrote["columns"] == {"prompt": "prompt_de"}
    assert wrote["guessed"] == {"prompt": {"taken": "prompt_de", "others": ["prompt_en"]}}
    assert wrote["defaults"] == {"model": "sketch-1"}, "the cheapest model is a choice, and no doubt"
    told = quote()
    assert told["guessed"] == wrote["guessed"]
    assert told["media"] == {"images": 2, "videos": 0}
    said = printed("quote", "new.yaml").splitlines()
    assert "Buys       2 images (sketch-1, 16:9) of 2 rows" in said[1]
    assert "Guessed    prompt from 'prompt_de' (also: 'prompt_en')" in said[2]


def test_a_run_asks_once_for_what_was_guessed_and_not_where_the_line_is_removed(project: Make) -> None:
    made = project()
    given(made, "x.csv", "id,prompt_de,prompt_en\na,Ein Reiher,A heron\nb,Ein Fuchs,A fox\n")
    stopped = ran("new.yaml", code=4)
    assert (stopped["stop_reason"], stopped["stored"]) == ("approval", 0)
    assert ran("new.yaml", "--yes")["stored"] == 2
    with (made.folder / "x.csv").open("a") as file:
        file.write("c,Eine Eule,An owl\n")
    assert ran("new.yaml")["stored"] == 3, "it is asked once"

    text = Path("new.yaml").read_text().replace("batch: new", "batch: another")
    Path("another.yaml").write_text(text[: text.index("  guessed:")] + text[text.index("budget:") :])
    assert ran("another.yaml")["stored"] == 3


def test_what_an_option_says_is_no_guess(project: Make) -> None:
    made = project()
    text = "id,prompt_de,prompt_en\na,Ein Reiher,A heron\n"
    wrote = given(made, "x.csv", text, "--prompt", "prompt_en", "--model", "dailies-1")
    assert (wrote["columns"], wrote["defaults"]) == ({"prompt": "prompt_en"}, {"model": "dailies-1"})
    assert "guessed" not in wrote
    assert quote()["media"] == {"images": 0, "videos": 1}
    made.folder.joinpath("new.yaml").unlink()
    wrote = given(made, "x.csv", text, "--prompt", "A film of {prompt_en}", "--media", "videos")
    assert wrote["template"] == "A film of {prompt_en}"
    assert "guessed" not in wrote
    assert quote()["first_request"]["prompt"] == "A film of A heron"
    for options, wrong in (
        (("--prompt", "promt"), "there is no column 'promt'; the columns are id, prompt_de, prompt_en"),
        (("--model", "sketch-9"), "the catalogue has no model 'sketch-9'"),
        (("--images", "picture"), "there is no column 'picture'"),
    ):
        assert wrong in refusal("init", "x.csv", "other.yaml", *options).message
    for options in (("--prompt", "x"), ("--production",)):
        assert f"{options[0]} is about a batch file" in refusal("init", "folder", *options).message


def test_stills_and_films_of_them_are_two_configs(project: Make) -> None:
    made = project()
    assert "x-films.yaml, on reel-1: at most 0.2500 USD" in asked(made, "both\n")
    stills, films = config(made, "x.yaml"), config(made, "x-films.yaml")
    assert stills["columns"] == {"prompt": "image_prompt"}
    columns = {"prompt": "motion_prompt", "duration": "seconds"}
    assert films == {"kept": "x.yaml", "columns": columns, "defaults": {"model": "reel-1"}}
    assert ran("x.yaml")["stored"] == 3
    printed("review", "x.yaml", "--keep", "a")
    first = json.loads(printed("quote", "x-films.yaml", "--json"))["first_request"]
    assert (first["prompt"], first["duration"]) == ("The heron lifts its head", 5)
    assert [image["role"] for image in first["images"]] == ["first_frame"]
    (made.folder / "y.csv").write_text("id,prompt\na,A heron\n")
    assert "no two columns are prompts" in refusal("init", "y.csv", "--production").message
    (made.folder / "y.csv").write_text("shot,prompt,motion\na,A heron on a pond,slow pan\nb,A fox,static\n")
    printed("init", "y.csv", "--production")
    assert config(made, "y-films.yaml")["columns"] == {"prompt": "motion"}


def test_explain_says_what_each_column_holds_and_is_taken_for_and_writes_nothing(project: Make) -> None:
    made = project()
    (made.folder / "x.csv").write_text("Nr,prompt_id,prompt_text,Dauer\n1,P001,A heron on a pond,5 s\n")
    columns = json.loads(printed("init", "x.csv", "--explain", "--json"))["columns"]
    assert [[*column.values()] for column in columns] == [
        ["Nr", "numbers", "1", "id", "holds numbers; named like an id"],
        ["prompt_id", "codes", "P001", "", ""],
        ["prompt_text", "sentences", "A heron on a pond", "prompt", "holds sentences; named like a prompt"],
        ["Dauer", "seconds", "5 s", "duration", "holds seconds; named like duration"],
    ]
    assert "sentences" in printed("init", "x.csv", "--explain")
    assert not (made.folder / "x.yaml").exists()


PROMPTS = {
    "no negative prompt": (
        'negative_prompt,positive_prompt\n"blurry, low quality, extra limbs",A heron\n',
        "positive_prompt",
    ),
    "no JSON": (
        'n,scene_en,dims\n0,A heron lands,"{""category"": ""animal"", ""points"": [""style""]}"\n',
        "scene_en",
    ),
    "no hidden column": ("__text,caption\nsomething long that a program has written,A heron\n", "caption"),
    "not the longer language": (
        "text_en,text_de\nA heron on a pond,Ein Reiher auf einem sehr großen Teich\n",
        "text_en",
    ),
    "no paths": ("path,scene\nimages/with/a/long/name/0001.png,A heron lands\n", "scene"),
    "no addresses": ("link,scene\nhttps://example.com/a/long/address/of/a/page,A heron lands\n", "scene"),
    "repeats are no reason": ("seed,text\n1,A heron\n2,A heron\n3,A heron\n", "text"),
    "another language": ("Nr;提示词\n1;一只苍鹭\n", "提示词"),
}


@pytest.mark.parametrize(("text", "column"), PROMPTS.values(), ids=PROMPTS)
def test_the_column_of_the_prompts_is_not_one_that_is_worse_than_its_neighbour(
    project: Make, text: str, column: str
) -> None:
    assert given(project(), "x.csv", text)["columns"]["prompt"] == column


def test_a_file_without_prompts_says_so_and_offers_a_template(project: Make) -> None:
    made = project()
    (made.folder / "x.csv").write_text("Code,Article,Image\n101,Jambon,images/101.jpg\n")
    error = refusal("init", "x.csv")
    assert error.message == "x.csv: no column looks like prompts; the columns are Code, Article, Image"
    assert '--prompt "A photo of a {COLUMN}"' in error.hint
    assert not (made.folder / "x.yaml").exists()


def test_a_column_of_numbers_is_not_said_to_be_longer_prompts(project: Make) -> None:
    rows = "".join(f"A heron in oil paint,{n}{n}{n}{n}{n}{n}1825193847\n" for n in range(500))
    given(project(), "x.csv", f"prompt,seed\n{rows}")
    assert quote()["notes"] == []


def test_a_number_that_multiplies_the_price_is_no_guess(project: Make) -> None:
    made = project()
    wrote = given(made, "x.csv", "sku,prompt,quantity\na,White shoe,120\nb,Brown boot,35\n")
    assert wrote["columns"] == {"id": "sku"}
    assert "quantity looks like samples" in printed("init", "x.csv", "y.yaml")
    assert quote()["jobs"] == 2


RATIOS = {
    "an empty cell": ("id,prompt,Format\na,x y,16:9\nb,x y,\nc,x y,9:16\n", {"aspect_ratio": "Format"}, 3, 0),
    "an odd cell": (
        "id,prompt,aspect\na,x y,16:9\nb,x y,9:16\nc,x y,1920x400\n",
        {"aspect_ratio": "aspect"},
        2,
        1,
    ),
}


@pytest.mark.parametrize(("text", "names", "jobs", "rejected"), RATIOS.values(), ids=RATIOS)
def test_one_odd_or_empty_cell_does_not_drop_its_column(
    project: Make, text: str, names: dict[str, str], jobs: int, rejected: int
) -> None:
    assert given(project(), "x.csv", text)["columns"] == names
    told = quote()
    assert (told["jobs"], told["rejected_rows"]) == (jobs, rejected)


def test_a_guess_is_not_said_any_more_where_the_config_says_otherwise(project: Make) -> None:
    made = project()
    given(made, "x.csv", "id,prompt_de,prompt_en,duration\na,Ein Reiher,A heron,5\n")
    assert quote()["guessed"].keys() == {"prompt", "media"}
    path = made.folder / "new.yaml"
    text = path.read_text().replace("prompt: prompt_de", "prompt: prompt_en")
    path.write_text(text.replace('{model: "reel-1"}', '{model: "sketch-1"}'))
    assert quote()["guessed"] == {}


HELD = {
    "images": (
        "id,image1,image2,prompt\n1,person.png,coat.png,Put on the coat\n",
        "'image1', 'image2' hold images, which are not sent (person.png); to send one: input.columns",
    ),
    "sketches": (
        "sketch_file,prompt\nin/a,Colour it\n",
        "'sketch_file' holds images, which are not sent (in/a)",
    ),
    "media types": (
        "id,kind,prompt\n1,image,A heron\n2,image,A fox\n",
        "'kind' holds media types, which have no effect (image)",
    ),
    "states": (
        "id,prompt,status\n1,A heron,done\n2,A fox,open\n",
        "'status' holds states, and every row is bought (done, open); input.where {status: ...} reads some",
    ),
}


@pytest.mark.parametrize(("text", "said"), HELD.values(), ids=HELD)
def test_what_is_dropped_is_named_by_init_and_by_the_quote(project: Make, text: str, said: str) -> None:
    given(project(), "x.csv", text)
    assert said in printed("quote", "new.yaml")


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("Fotos für März.csv", "Fotos-für-März"),
        ("Cafe\u0301 (2).csv", "Café-2"),  # as macOS spells it
        ("写真 夏.csv", "写真-夏"),
        ("हिन्दी_१.csv", "हिन्दी_१"),
        ("写" * 80 + ".csv", "写" * 66),  # a file's name has 255 bytes
        ("\U0001f600.csv", "my-batch"),
    ],
)
def test_a_batch_named_after_its_file_keeps_the_letters_and_can_be_bought(
    project: Make, name: str, batch: str
) -> None:
    made = project()
    (made.folder / name).write_text("prompt,model\na cup,sketch-1\n")
    assert json.loads(printed("init", name, "--json"))["batch"] == batch
    config = str(Path(name).with_suffix(".yaml"))
    assert ran(config)["stored"] == 1
    assert (made.folder / f"out/{batch}/report/report.json").is_file()
    assert ran(config)["submissions"] == 0


def test_a_secret_is_named_and_never_carried(project: Make) -> None:
    made = project()
    wrote = given(made, "x.csv", "prompt,api_key\nA heron,sk_live_123\n")
    told = quote()
    assert told["carried"] == []
    assert told["unused"] == [{"column": "api_key", "looks_like": "secret"}]
    assert "'api_key' holds a secret, which is not carried" in printed("quote", "new.yaml")
    assert wrote["defaults"] == {"model": "sketch-1"}
    assert ran("new.yaml", "--yes")["stored"] == 1
    assert "sk_live_123" not in "".join(
        path.read_text(errors="replace") for path in (made.folder / "out").rglob("*") if path.is_file()
    )


def quote_of_prompts(made: Project, *prompts: str) -> str:
    """What a quote says of a file of these prompts, from its second line on."""
    given(made, "x.csv", "\n".join(["prompt", *(f'"{prompt}"' for prompt in prompts)]), "--model", "sketch-1")
    return printed("quote", "new.yaml")


def test_words_of_a_prompt_that_may_be_a_mistake_are_counted(project: Make) -> None:
    words = {
        "<p><strong>A duck</strong></p>": "1 prompt with HTML tags (line 2)",
        "poster of {prompt}, bold": "1 prompt with a placeholder such as {name} (line 3)",
        "/imagine a duck": "1 prompt with /imagine (line 4)",
        "Vertical 9:16 poster of a duck": "1 prompt asks in words for 9:16 (line 5), and 16:9 is sent",
        "A duck swims for 10 seconds": "1 prompt asks in words for 10 s (line 6), and none is sent",
        "=========": "4 prompts that look like headings, rules or labels (line 7",
        "VIDEO PROMPTS": "that look like headings",
        "Scene 12:": "that look like headings",
        "Total: 24 prompts": "that look like headings",
    }
    said = quote_of_prompts(project(), *words)
    assert [told for told in words.values() if told not in said] == [], said


def test_a_plain_prompt_is_not_remarked_on(project: Make) -> None:
    plain = (
        "A man in his 30s",
        "A retro 80s poster",
        "A heron at 10:30",
        "一只苍鹭 A4",
        "5 ducks, 16:9",
        "NASA rocket",
    )
    assert "Prompts" not in quote_of_prompts(project(), *plain)


KINDS = {
    "Chinese has no blanks": (
        "name,image_prompt\n豆腐汤,一碗豆腐汤在木桌上晨光手绘风格\n蒸蛋,一碗蒸蛋白瓷碗柔和光线\n",
        {"prompt": "image_prompt", "id": "name"},
    ),
    "an id named like a prompt": (
        "prompt_id,prompt_text\nP001,A heron lands on a pond\nP002,A fox crosses\n",
        {"prompt": "prompt_text", "id": "prompt_id"},
    ),
    "an instruction beside a target": (
        "instruct,target_description\nAdd a sunset to the top,Photo of the sunset at sea\n",
        {"prompt": "instruct"},
    ),
    "times are no ratios": (
        "Timestamp,Shot\n00:00,Wide shot of a city at night\n00:15,A singer before the show\n",
        {"prompt": "Shot"},
    ),
    "a product's texts, not those of its second picture": (
        "Handle,Body,Alt Text\na,<p>A stool of solid oak.</p>,\na,,\nb,<p>A thin cup.</p>,A cup of hot tea\n",
        {"prompt": "Body"},
    ),
    "words of a setting's name": (
        "prompt,sound\nWaves,wind and distant thunder\n",
        {"sound": None},
    ),
}


@pytest.mark.parametrize(("text", "names"), KINDS.values(), ids=KINDS)
def test_a_column_is_taken_for_what_it_holds_and_its_name_is_the_second_witness(
    project: Make, text: str, names: dict[str, Any]
) -> None:
    wrote = given(project(), "x.csv", text)
    assert (wrote["columns"], wrote.get("guessed")) == (names, None)


def test_a_plain_file_is_told_in_six_lines_with_the_requests_first(project: Make) -> None:
    made = project()
    (made.folder / "x.csv").write_text("id,prompt\na,A heron\nb,A fox\n")
    lines = printed("init", "x.csv").splitlines()
    assert lines[0] == 'a: "A heron"; sketch-1, 16:9, jpeg, 0.25K'
    assert len(lines) <= 6


def test_a_project_is_told_as_one_object_too_and_has_nothing_of_a_batch_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert json.loads(printed("init", "--project", "studio", "--json")) == {"project": "studio"}
    assert (tmp_path / "studio/prefect.yaml").is_file()
    for words in (["--model", "still-1"], ["shots.csv"]):
        assert "--project is for a Prefect project alone" in refusal("init", "--project", "p", *words).message
    assert not (tmp_path / "p").exists()


def test_what_a_config_would_refuse_is_said_and_nothing_is_written(project: Make) -> None:
    made = project()
    (made.folder / "x.csv").write_text("prompt,model\na fox,sketch-1\n")
    wrong = refusal("init", "x.csv", "new.yaml", "--encoding", "nope").message
    assert wrong == "`input.encoding` there is no text encoding named 'nope'"
    assert "the name of a config ends in .yaml" in refusal("init", "x.csv", "new.csv").message
    assert not [*made.folder.glob("new.*")]


def test_each_config_names_the_schema_beside_it_for_an_editor(project: Make) -> None:
    made = project()
    given(made, "x.csv", "id,prompt\na,A heron\n")
    printed("init", "first.yaml")
    printed("init", "--project", "studio")
    for file in (
        made.folder / "new.yaml",
        made.folder / "first.yaml",
        *made.folder.glob("studio/configs/*.yaml"),
    ):
        line = file.read_text().splitlines()[0]
        named = file.parent / line.removeprefix("# yaml-language-server: $schema=")
        assert named.read_text() == printed("schema"), file


def test_a_production_has_samples_budgets_of_each_and_of_both_and_all_commands_in_their_order(
    project: Make,
) -> None:
    made = project()
    shots = "id,prompt,motion,seconds\na,A kite,it climbs,5\nb,A ridge,he runs,10\nc,A pier,slow pan,7\n"
    (made.folder / "x.csv").write_text(shots)
    said = printed("init", "x.csv", "--production", "--model", "still-1")
    assert "9 images of 3 rows on still-1" in said
    assert "only of 2 of 3 rows: line 4, seconds: duration 7 is not offered by reel-1" in said
    lines = [line.strip() for line in said.partition("Next")[2].splitlines()]
    steps = [line for line in lines if line.startswith("callsheet")]
    assert [step.split()[1:] for step in steps] == [
        ["quote", "x.yaml"],
        ["run", "x.yaml"],
        ["review", "x.yaml"],
        ["run", "x.yaml", "--again"],
        ["quote", "x-films.yaml"],
        ["run", "x-films.yaml"],
        ["review", "x-films.yaml"],
        ["status", "x.yaml", "x-films.yaml"],
        ["export", "x-films.yaml", "--to", "cut", "--as", "otio", "--kept"],
    ]
    budgets = [yaml.safe_load(Path(name).read_text())["budget"] for name in ("x.yaml", "x-films.yaml")]
    assert budgets == [{"limit": "1.00", "ledger": "2.00"}, {"limit": "1.00", "ledger": "2.00"}]
    assert all(f"#   {step} " in Path("x.yaml").read_text() for step in steps)

    assert ran("x.yaml")["stored"] == 9
    (made.folder / "more.csv").write_text(shots + "d,A tower,it falls,5,\n")
    printed("init", "more.csv", "--production", "--model", "still-1")
    assert "ledger" not in yaml.safe_load(Path("more.yaml").read_text())["budget"], "it is used already"

    (made.folder / "y.csv").write_text("id,prompt,motion,seconds\na,A kite,it climbs,99\n")
    said = printed("init", "y.csv", "--production")
    assert "Films      without seconds: no model takes its cells as duration: duration 99 is not" in said
