"""A file of prompts as people have them -> a config by `init`, and what its quote then says of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from callsheet.errors import InputError
from tests.batches.test_workbooks import text, workbook
from tests.cli.test_commands import callsheet
from tests.cli.test_files import QUICK
from tests.cli.test_rows import printed, refusal
from tests.conftest import Project
from tests.pictures import picture
from tests.servers.forks import forks

Make = Callable[..., Project]


def given(made: Project, name: str, content: str | bytes, *options: str) -> dict[str, Any]:
    """What `init` writes into `input` for a file with this text."""
    (made.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    printed("init", name, "new.yaml", *options)
    return config(made, "new.yaml")


def config(made: Project, name: str) -> dict[str, Any]:
    """What a config has in `input`."""
    return dict(yaml.safe_load((made.folder / name).read_text())["input"])


@pytest.fixture
def photos(project: Make) -> Project:
    made = project()
    (made.folder / "photos").mkdir()
    for number, name in enumerate(("cup.png", "vase.jpeg")):
        kind = "PNG" if name.endswith("png") else "JPEG"
        (made.folder / "photos" / name).write_bytes(picture(number, kind))
    return made


def ran(*words: str, code: int = 0) -> dict[str, Any]:
    """The summary of `run` for a config, without its pictures."""
    done = callsheet("run", *words, "--json", *QUICK)
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout))


def quote() -> dict[str, Any]:
    return dict(json.loads(printed("quote", "new.yaml", "--json")))


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


ON_ITS_TERMINAL = """
import fcntl, os, runpy, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C goes to it
runpy.run_module("callsheet", run_name="__main__", alter_sys=True)
"""


def on_a_terminal(answers: str, *words: str) -> str:
    """What a command prints on a terminal of its own, into which somebody types these answers when asked."""
    terminal, theirs = os.openpty()
    environment = os.environ | {"COLUMNS": "120", "LINES": "40", "TERM": "dumb"}
    program = ("-c", ON_ITS_TERMINAL, *words)
    with forks().start(*program, env=environment, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        shown, typed = b"", answers.encode()
        with os.fdopen(terminal, "r+b", buffering=0) as screen, suppress(OSError):  # the other end closes
            while some := screen.read(4_096):
                shown += some
                if typed and b"> " in shown:
                    screen.write(typed)
                    typed = b""
    return shown.decode()


SHOTS = "id,image_prompt,motion_prompt,seconds\na,A heron on a pond,The heron lifts its head,5\n"


def asked(made: Project, answers: str, text: str = SHOTS) -> str:
    """What `init x.csv` says on a terminal to these answers."""
    (made.folder / "x.csv").write_text(text)
    return on_a_terminal(answers, "init", "x.csv")


def test_a_terminal_is_asked_for_each_doubt_with_an_example_of_each_answer(project: Make) -> None:
    made = project()
    said = asked(made, "2\n", "id,prompt_de,prompt_en\na,Ein Reiher,A heron\n")
    at = 0
    for words in (
        "Which column has the prompts?",
        "1  prompt_de  Ein Reiher",
        "2  prompt_en  A heron",
        'a: "A heron"; sketch-1',
        "Wrote x.yaml: 1 image of 1 row on sketch-1, the cheapest; 0.0015 USD",
        "callsheet run x.yaml",
    ):
        assert words in said[at:], said
        at = said.index(words, at) + len(words)
    wrote = config(made, "x.yaml")
    assert wrote["columns"] == {"prompt": "prompt_en"}
    assert "guessed" not in wrote, "a person has said it"


def test_a_question_takes_a_name_or_a_template_says_what_is_wrong_and_goes_back(project: Make) -> None:
    made = project()
    text = "id,kind,prompt_de,prompt_en,seconds\na,owl,Ein Reiher,A heron,5\n"
    said = asked(made, "7\n\nback\nA photo of a {king}\nA photo of a {kind}\nmovies\nimages\n", text)
    assert "there is no column '7'; the columns are id, kind, prompt_de" in said
    assert "there is no column 'king'" in said
    assert said.count("Which column has the prompts?") == 2, "back asks again"
    assert "'movies' is none of the answers. Type a number from 1 to 2, or back." in said
    assert "pydantic" not in said
    wrote = config(made, "x.yaml")
    assert (wrote["template"], wrote["defaults"]) == ("A photo of a {kind}", {"model": "sketch-1"})


@pytest.mark.parametrize("end", ["\x04", "\x03"])
def test_the_end_of_the_input_and_the_first_interrupt_end_the_questions_and_nothing_is_written(
    project: Make, end: str
) -> None:
    made = project()
    said = asked(made, end)
    assert "ended; nothing was written" in said
    assert "Traceback" not in said
    assert not (made.folder / "x.yaml").exists()


def test_the_first_rows_are_cut_to_the_screen_however_many_columns_there_are(project: Make) -> None:
    names = ["prompt_de", "prompt_en", *(f"note{number}" for number in range(42))]
    text = "\n".join([",".join(names), *[",".join(["A heron lands on a pond " * 9] * 44)] * 3])
    said = asked(project(), "\n", text).replace("\r", "")
    shown = said[: said.index("Which column")].splitlines()
    assert len(shown) == 6
    assert "and 34 more columns: note8" in said
    assert all(len(line) <= 120 for line in shown)


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


def test_the_model_that_is_written_fits_most_rows(project: Make) -> None:
    text = "id,prompt,ratio\na,x y,4:5\nb,x y,4:5\nc,x y,9:16\nd,x y,16:9\n"
    wrote = given(project(), "x.csv", text)
    assert (wrote["columns"], wrote["defaults"]) == ({"aspect_ratio": "ratio"}, {"model": "poster-1"})
    assert "16:9 is not offered by poster-1; it offers" in printed("quote", "new.yaml")


UNKNOWN_MODELS = {
    "a typo in every cell": ("model", "postr-1", "postr-1", "poster-1"),
    "those of another service, in a column of another name": ("Model Name", "flux.pro", "dalle-3", None),
}


@pytest.mark.parametrize(("name", "first", "second", "nearest"), UNKNOWN_MODELS.values(), ids=UNKNOWN_MODELS)
def test_the_model_is_a_doubt_where_a_column_of_models_names_none_of_the_catalogue(
    project: Make, name: str, first: str, second: str, nearest: str | None
) -> None:
    made, text = project(), f"id,prompt,{name}\na,A heron,{first}\nb,A fox,{second}\n"
    guessed = given(made, "x.csv", text)["guessed"]["model"]
    assert guessed["taken"] == "sketch-1"
    assert nearest in (None, guessed["others"][0])
    said = printed("init", "x.csv", "y.yaml")
    assert f"Not used   {name} names no model of the catalogue: {first}" in said
    assert ran("new.yaml", code=4)["stop_reason"] == "approval"
    made.folder.joinpath("new.yaml").unlink()
    assert "guessed" not in given(made, "x.csv", text, "--model", "poster-1")


def test_a_terminal_is_asked_which_model_is_meant_by_a_name_that_the_catalogue_does_not_have(
    project: Make,
) -> None:
    made = project()
    said = asked(made, "reel-9\n2\n", "id,prompt,model\na,A heron,postr-1\n")
    assert "Which model is meant? The catalogue has no postr-1." in said
    assert "1  sketch-1  the cheapest" in said
    assert "2  poster-1  like postr-1" in said
    assert "the catalogue has no model 'reel-9'. Type a number from 1 to" in said
    wrote = config(made, "x.yaml")
    assert wrote["defaults"] == {"model": "poster-1"}
    assert "guessed" not in wrote


def test_a_model_that_a_person_names_is_that_of_all_rows_and_says_the_medium(project: Make) -> None:
    made = project()
    wrote = given(made, "x.csv", "id,prompt,model\na,A heron,still-1\n", "--model", "poster-1")
    assert (wrote["columns"], wrote["defaults"]) == ({"model": None}, {"model": "poster-1"})
    made.folder.joinpath("new.yaml").unlink()
    wrote = given(made, "x.csv", SHOTS, "--model", "reel-1")
    assert wrote["columns"] == {"prompt": "motion_prompt", "duration": "seconds"}
    assert "guessed" not in wrote
    made.folder.joinpath("new.yaml").unlink()
    stills = given(made, "x.csv", SHOTS, "--production", "--model", "still-1")
    assert stills["defaults"] == {"model": "still-1", "samples": 3}
    assert config(made, "new-films.yaml")["defaults"] == {"model": "reel-1"}
    error = refusal("init", "x.csv", "y.yaml", "--media", "images", "--model", "reel-1")
    assert error.message == "reel-1 makes videos, not images"


def test_a_model_that_was_given_is_not_called_the_cheapest(project: Make) -> None:
    project().folder.joinpath("x.csv").write_text("id,prompt\na,A heron\n", encoding="utf-8")
    said = printed("init", "x.csv", "--model", "still-1")
    assert "1 image of 1 row on still-1; 0.0400 USD" in said


def test_models_for_images_and_for_videos_are_a_doubt_where_the_file_names_others(project: Make) -> None:
    made, text = project(), "id,prompt,type,model\na,A heron,image,stil-1\nb,A fox,video,real-1\n"
    wrote = given(made, "x.csv", text)
    taken = "sketch-1, dailies-1"
    assert wrote["guessed"]["model"] == {"taken": taken, "others": ["still-1", "silent-1", "reel-1"]}
    assert f"Guessed    model {taken} (also: still-1" in printed("quote", "new.yaml")
    assert "2 rows on sketch-1 and dailies-1, the cheapest;" in printed("init", "x.csv", "y.yaml")
    asked(made, "\n", text)
    wrote = config(made, "x.yaml")
    assert wrote["values"] == {"model": {"image": "sketch-1", "video": "dailies-1"}}
    assert "guessed" not in wrote
    made.folder.joinpath("new.yaml").unlink()
    shots = "image_prompt,motion_prompt,model\nA heron on a pond,The heron lifts its head,real-1\n"
    given(made, "y.csv", shots, "--production")
    assert config(made, "new-films.yaml")["guessed"]["model"]["others"][0] == "reel-1"


@pytest.mark.parametrize(
    ("name", "text"), [("video_prompts.csv", "prompt\nA heron\n"), ("x.csv", "clip_prompt\nA heron\n")]
)
def test_a_name_that_says_video_is_a_reason_for_videos(project: Make, name: str, text: str) -> None:
    wrote = given(project(), name, text)
    assert "guessed" not in wrote, "nothing says images"
    assert quote()["media"] == {"images": 0, "videos": 1}


MEDIA = {
    "a duration alone": ("x.csv", "id,prompt,duration\na,Waves,5\n", ["videos", "images"]),
    "a duration beside a name of images": ("photos.csv", "prompt,seconds\nWaves,5\n", ["videos", "images"]),
    "a prompt of images beside one of motion": ("x.csv", SHOTS, ["images", "videos", "both"]),
    "first frames": ("x.csv", "prompt,start_image\nWaves,https://example.com/a.png\n", []),
    "nothing": ("x.csv", "id,prompt\na,Waves\n", []),
}


@pytest.mark.parametrize(("name", "text", "answers"), MEDIA.values(), ids=MEDIA)
def test_the_medium_is_in_doubt_where_there_is_a_reason_for_both(
    project: Make, name: str, text: str, answers: list[str]
) -> None:
    guessed = given(project(), name, text).get("guessed", {}).get("media")
    assert ([guessed["taken"], *guessed["others"]] if guessed else []) == answers


def test_a_column_of_media_types_gives_each_row_a_model_of_its_type(project: Make) -> None:
    wrote = given(project(), "x.csv", "id,kind,prompt\n1,image,A heron\n2,Video,A fox\n")
    assert wrote["columns"] == {"model": "kind"}
    assert wrote["values"] == {"model": {"image": "sketch-1", "Video": "dailies-1"}}
    assert quote()["media"] == {"images": 1, "videos": 1}


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


def test_images_that_are_there_are_sent_and_the_guess_says_so(photos: Project) -> None:
    wrote = given(photos, "x.jsonl", '{"file_name": "photos/cup.png", "instruction": "give the cat a hat"}\n')
    assert wrote["columns"] == {"prompt": "instruction", "reference_image": "file_name"}
    assert wrote["guessed"]["images"] == {"taken": "file_name", "others": ["none"]}
    assert quote()["first_request"]["images"]


def test_images_of_a_model_that_takes_first_frames_are_its_first_frames(photos: Project) -> None:
    given(photos, "x.csv", "image,prompt\nphotos/cup.png,the cat walks\n", "--model", "reel-1")
    [sent] = quote()["first_request"]["images"]
    assert sent["role"] == "first_frame"


def test_a_folder_of_images_gets_a_config_with_the_prompt_that_is_given(photos: Project) -> None:
    printed("init", "photos", "--prompt", "A slow push in", "--media", "videos")
    wrote = config(photos, "photos.yaml")
    assert wrote["path"] == "photos"
    assert wrote["defaults"] == {"model": "dailies-1", "prompt": "A slow push in"}
    assert "2 videos (dailies-1" in printed("quote", "photos.yaml")
    assert not (photos.folder / "photos/batch.yaml").exists()


def test_a_glob_of_images_gets_a_config_and_no_folder_of_that_name(photos: Project) -> None:
    printed("init", "photos/*.jpeg", "--prompt", "{id} on a table", "--model", "still-1")
    wrote = config(photos, "photos.yaml")
    assert (wrote["path"], wrote["template"]) == ("photos/*.jpeg", "{id} on a table")
    assert "1 image (still-1" in printed("quote", "photos.yaml")
    assert not (photos.folder / "photos/*.jpeg").exists()


def test_without_a_prompt_the_option_is_named_and_texts_beside_the_images_are_prompts(
    photos: Project,
) -> None:
    assert '--prompt "A slow push in"' in refusal("init", "photos").hint
    (photos.folder / "photos/cup.txt").write_text("Steam rises")
    printed("init", "photos", "first.yaml", "--model", "reel-1")
    assert config(photos, "first.yaml")["defaults"] == {"model": "reel-1"}
    said = printed("quote", "first.yaml")
    assert "2 read, 1 rejected" in said
    assert "vase.jpeg has no prompt" in said


def test_a_folder_with_a_config_is_no_folder_of_images(photos: Project) -> None:
    (photos.folder / "photos/batch.yaml").write_text("batch: x\n")
    assert "batch.yaml: already there" in refusal("init", "photos").message


def test_a_file_that_cannot_be_read_is_an_error_and_no_config(project: Make) -> None:
    made = project()
    (made.folder / "x.csv").write_text('prompt\n"never closed\n')
    assert isinstance(refusal("init", "x.csv"), InputError)
    assert not Path("x.yaml").exists()


# ---- files in files


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


def test_values_that_fit_no_model_are_named_with_what_the_models_offer(project: Make) -> None:
    made = project()
    (made.folder / "x.csv").write_text("id,prompt,duration\n1,Waves,1:30\n")
    said = printed("init", "x.csv", code=2)
    assert said.startswith(
        "Nothing can be bought: every row is rejected. duration 90 is not offered by reel-1;"
    )
    assert "not offered by silent-1" in said
    assert json.loads(printed("quote", "x.yaml", "--json"))["rejected_rows"] == 1


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


IMAGES = {
    "several, in their order": (
        "image1,image2,prompt\nphotos/cup.png,photos/vase.jpeg,Put the vase beside the cup\n",
        {"reference_image": ["image1", "image2"]},
        None,
        2,
    ),
    "a list in a cell": (
        'scene,characters,prompt\nphotos/cup.png,"[""photos/vase.jpeg"", ""photos/cup.png""]",They meet\n',
        {"reference_image": ["scene", "characters"]},
        "scene, characters",
        3,
    ),
    "first and last frames": (
        "start_image,end_image,prompt\nphotos/cup.png,photos/cup.png,The camera moves in\n",
        {"first_frame": "start_image", "last_frame": "end_image"},
        None,
        2,
    ),
    "results that are there": (
        "filename,prompt\nphotos/cup.png,A white cup on a table\n",
        {"id": "filename"},
        "none",
        0,
    ),
}


@pytest.mark.parametrize(("text", "names", "guessed", "count"), IMAGES.values(), ids=IMAGES)
def test_images_are_sent_where_they_are_found_and_are_no_results(
    photos: Project, text: str, names: dict[str, Any], guessed: str | None, count: int
) -> None:
    wrote = given(photos, "x.csv", text)
    assert wrote["columns"] == names
    assert wrote.get("guessed", {}).get("images", {}).get("taken") == guessed
    assert len(quote()["first_request"].get("images", [])) == count


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


def test_one_broken_row_is_rejected_with_its_line_and_the_others_are_read(project: Make) -> None:
    rows = '"Keep the light, and the pose"\nb,"Like a girl named "KIM". Keep the light, please"\nc,A fox\n'
    given(project(), "x.csv", f"id,prompt\na,{rows}")
    assert "line 3: broken quoting" in printed("init", "x.csv", "again.yaml")
    told = quote()
    assert (told["jobs"], told["rejected_rows"]) == (2, 1)


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


def test_what_the_models_do_not_take_is_not_mapped_and_where_nothing_can_be_bought_init_ends_with_2(
    project: Make,
) -> None:
    made = project()
    named = "id,prompt,model,seconds\na,A heron,still-1,5\nb,A fox,still-1,4\n"
    assert "columns" not in given(made, "x.csv", named), "the models of the file make images"
    assert quote()["media"] == {"images": 2, "videos": 0}
    assert "'seconds' is for videos, and images are bought" in printed("quote", "new.yaml")
    mixed = "id,prompt,model,duration\na,A heron,still-1,\nb,A fox runs,reel-1,5\n"
    (made.folder / "m.csv").write_text(mixed)
    assert "Doubt" not in printed("init", "m.csv"), "each row's model says what it makes"
    said = printed("init", "x.csv", "y.yaml", "--media", "videos", code=2)
    assert said.startswith("Nothing can be bought: every row is rejected. line 2, seconds: duration is for")
    assert printed("quote", "y.yaml").splitlines()[1] == "Nothing to buy: every row is rejected."

    (made.folder / "q.csv").write_text("id,prompt,resolution\na,A heron,4K\n")
    said = printed("init", "q.csv", "--model", "sketch-1")
    assert "resolution holds what sketch-1 does not take as resolution: resolution 4K is not offered" in said
    assert json.loads(printed("quote", "q.yaml", "--json"))["to_buy"] == 1


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
