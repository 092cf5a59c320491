"""Any file of prompts, or none: one command to a config, and one look to see that it is read right."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from callsheet.config.load import load
from callsheet.pricing.choice import Choice
from tests.cli.test_rows import printed, refusal
from tests.conftest import Project

Make = Callable[..., Project]


def quoted(made: Project, text: str, name: str = "shots.csv", **given: Any) -> dict[str, Any]:
    """What `quote --json` prints for a batch file with this text."""
    (made.folder / name).write_text(text)
    made.set(input={"path": name, "defaults": {"model": "sketch-1"}, **given})
    return dict(json.loads(printed("quote", "batch.yaml", "--json")))


def test_a_quote_says_how_the_file_was_read(project: Make) -> None:
    made = project()
    header = "prompt,Aspect Ratio,seed,sku"
    told = quoted(made, f"{header}\na cat --ar 16:9,9:16,42,K\na cat --ar 16:9,9:16,42,L\n# birds,,,\n")
    assert told["columns"] == {"prompt": "prompt"}
    assert told["carried"] == ["Aspect Ratio", "seed", "sku"]
    assert told["unused"] == [
        {"column": "Aspect Ratio", "looks_like": "aspect_ratio"},
        {"column": "seed", "looks_like": "seed"},
    ]
    assert (told["first_request"]["prompt"], told["repeated"]) == ("a cat --ar 16:9", 1)
    said = printed("quote", "batch.yaml")
    for line in (
        "prompt; carried: Aspect Ratio, seed, sku",
        "'Aspect Ratio'; to use one, name it: input.columns {aspect_ratio: Aspect Ratio}",
        "'seed': the service has no such setting",
        "1 row asks for what another row asks for: 0.0015 USD; input.repeated: once buys each once",
        "2 prompts with flags such as --ar 16:9 (line 2): sent as text",
        '1 prompt with # or // first (line 4): sent as text; input.comments: "#" leaves them out',
        "Buys       3 images (sketch-1, 16:9) of 3 rows",
        "line 2   a cat --ar 16:9   sketch-1, 16:9, jpeg, 0.25K",
    ):
        assert line in said


def test_a_quote_says_where_models_have_ratios_of_their_own(project: Make) -> None:
    made = project()
    models = {"matrix": {"model": ["sketch-1", "still-1"]}, "defaults": {}}
    quoted(made, "prompt\na lamp\na vase\n", **models)
    assert "Ratios     sketch-1 16:9, still-1 1:1, as no aspect_ratio is given" in printed(
        "quote", "batch.yaml"
    )
    for config in (
        models | {"defaults": {"aspect_ratio": "9:16"}},
        {"matrix": models["matrix"] | {"aspect_ratio": ["1:1", "9:16"]}, "defaults": {}},
    ):
        quoted(made, "prompt\na lamp\na vase\n", **config)
        assert "Ratios" not in printed("quote", "batch.yaml")


def test_more_requests_are_shown_by_number_or_by_row(project: Make) -> None:
    made = project()
    quoted(made, "id,prompt,samples\na,an apple,1\nb,a bee,2\nc,a cat,1\n")
    assert printed("quote", "batch.yaml", "--show", "3").count('"prompt"') == 3
    of_b = json.loads(printed("quote", "batch.yaml", "--show", "b", "--json"))["requests"]
    assert [request["prompt"] for request in of_b] == ["a bee", "a bee"]
    assert "has no row d" in refusal("quote", "batch.yaml", "--show", "d").message
    made.run(choice=Choice(only=("a",)))
    told = json.loads(printed("quote", "batch.yaml", "--json"))
    assert told["first_request"]["prompt"] == "a bee", "what is bought is not sent"


def test_a_quote_shows_the_first_rows_that_are_to_be_bought_also_after_rows_were_added(project: Make) -> None:
    """Rows are added at the end, and between what is bought."""
    made = project()
    header, lamp, vase = "id,prompt,samples\n", "lamp,a lamp,2\n", "vase,a vase,1\n"
    quoted(made, header + lamp + vase)
    made.run()
    told = quoted(made, f"{header}{lamp}rug,a rug,2\n{vase},a cup,1\n")
    assert (told["to_buy"], told["first_request"]["prompt"]) == (3, "a rug")
    [request] = json.loads(printed("quote", "batch.yaml", "--show", "1", "--json"))["requests"]
    assert request == told["first_request"]
    said = printed("quote", "batch.yaml").splitlines()
    rows = said[next(number for number, line in enumerate(said) if "prompt" in line and "settings" in line) :]
    assert [row for row in ("lamp", "rug", "vase", "line 5") if any(row in line for line in rows)] == [
        "rug",
        "line 5",
    ]
    assert json.loads(printed("quote", "batch.yaml", "--first", "1", "--json"))["first_request"] == request
    made.run()
    assert json.loads(printed("quote", "batch.yaml", "--json"))["first_request"] is None
    assert "a rug" not in printed("quote", "batch.yaml")


def test_all_that_is_wrong_with_a_row_is_said_at_once_with_what_may_be_meant(project: Make) -> None:
    made = project()
    rows = "b,reel-1,1080,5s,16x9\nc,reel-1,,5 sec,landscape\nd,reel-1,,8,16:9\nd,reel-1,,8,16:9\n"
    told = quoted(made, f"prompt,model,resolution,duration,aspect_ratio\n{rows}", name="near.csv")
    assert (told["rejected_rows"], told["to_buy"]) == (4, 0)
    said = printed("quote", "batch.yaml")
    for wrong in (
        "line 2, aspect_ratio: aspect_ratio 16x9 is not offered by reel-1",
        "resolution 1080 is not offered by reel-1; it offers 720p, 1080p; did you mean 1080p?",
        "line 3, aspect_ratio: aspect_ratio landscape is not offered by reel-1",
        "did you mean 16:9?",
        "duration 8 is not offered by reel-1; it offers 5, 10; did you mean 10? (and 1 line more)",
    ):
        assert wrong in said
    assert len(made.rejects()) == 5, "rejects.csv has every one of them"
    assert "  All are in out/report/rejects.csv.\n" in said


def test_the_file_of_all_rejects_is_named_where_the_quote_leaves_some_out(project: Make) -> None:
    made = project()
    where = "All are in out/report/rejects.csv."
    for number, left_out in ((1, ""), (10, ""), (12, "and 2 more reasons")):
        wrong = "".join(f"a,sketch-{chr(97 + each)}\n" for each in range(number))
        quoted(made, f"prompt,model\n{wrong}", name="wrong.csv")
        said = printed("quote", "batch.yaml")
        assert left_out in said
        assert (where in said) == bool(left_out), "all are shown"


def test_pixels_are_the_nearest_resolution_that_is_offered_and_others_are_named(project: Make) -> None:
    made = project()
    rows = "a,1024x1024,still-1\nb,2560x1440,still-1\nc,1280x720,reel-1\nd,320x200,still-1\n"
    (made.folder / "x.csv").write_text(f"prompt,resolution,model\n{rows}")
    printed("init", "x.csv")
    told = json.loads(printed("quote", "x.yaml", "--json", "--show", "9"))
    assert [request["resolution"] for request in told["requests"]] == ["1K", "2K", "720p"]
    assert "320x200 is not offered by still-1; it offers 1K, 2K, 4K" in printed("quote", "x.yaml")


def test_pixels_are_the_ratio_that_is_offered_within_three_percent(project: Make) -> None:
    told = quoted(project(), "prompt,aspect_ratio\na,1820x1024\nb,1024x1000\nc,1600x1000\n")
    assert told["first_request"]["aspect_ratio"] == "16:9"
    assert told["rejected_rows"] == 1


def test_images_beside_the_batch_file_are_found_and_a_missing_one_says_where_it_was_looked_for(
    project: Make,
) -> None:
    made = project()
    (made.folder / "sheets").mkdir()
    for name in ("sheets/pig.png", "cow.png"):
        Image.new("RGB", (8 + len(name), 8)).save(made.folder / name)
    text = 'prompt,images\na,"[""pig.png""]"\nb,"[{""url"": ""cow.png""}]"\nc,"[""owl.png""]"\n'
    told = quoted(made, text, name="sheets/shots.csv", defaults={"model": "still-1"})
    assert (told["to_buy"], told["rejected_rows"]) == (2, 1)
    assert "there is no such file; tried sheets/owl.png and owl.png" in printed("quote", "batch.yaml")
    assert made.run().stored == 2, "they are read again when they are sent"


def test_the_same_rows_are_priced_on_each_model_that_can_take_them(project: Make) -> None:
    made = project()
    quoted(made, "prompt,duration\na,\nb,5\n")
    compare = json.loads(printed("quote", "batch.yaml", "--compare", "--json"))["compare"]
    assert [each["quoted"] for each in compare] == sorted((each["quoted"] for each in compare), key=float)
    by_model = {each["model"]: each for each in compare}
    assert by_model["sketch-1"] == {
        "model": "sketch-1",
        "type": "image",
        "rows": 1,
        "jobs": 1,
        "quoted": "0.0015",
    }
    assert by_model["reel-1"]["rows"] == 2
    assert "1 of 2" in printed("quote", "batch.yaml", "--compare")


FILES = {
    "shots.csv": (
        "category,prompt_en\nAnime,A nun on a white background\nAnime,A girl\n",
        {"prompt": "prompt_en"},
    ),
    "ids.csv": ("category,id,prompt\nanime,000,A nun\nportrait,000,A sailor\n", {"id": None}),
    "rows.jsonl": (
        '{"custom_id": "r-1", "body": {"prompt": "a cat"}}\n',
        {"prompt": "body.prompt", "id": "custom_id"},
    ),
}


def test_init_makes_the_config_for_a_batch_file_that_is_there(project: Make) -> None:
    made = project()
    for name, (text, columns) in FILES.items():
        (made.folder / name).write_text(text)
        config = Path(name).with_suffix(".yaml")
        assert f"callsheet quote {config}" in printed("init", name)
        given = yaml.safe_load(config.read_text())["input"]
        assert given.get("columns", {}) == columns
        assert given["defaults"] == {"model": "sketch-1"}
        told = json.loads(printed("quote", str(config), "--json"))
        assert (told["rejected_rows"], told["jobs"]) == (0, told["rows"])


def test_a_batch_file_that_is_not_there_is_an_error_and_no_folder_of_that_name(project: Make) -> None:
    made = project()
    for words in (("shotz.csv",), ("shotz.jsonl.gz",), ("shotz.xlsx", "y.yaml"), ("shotz", "y.yaml")):
        error = refusal("init", *words)
        assert error.message == f"{words[0]}: there is no such batch file"
        assert str(made.folder) in error.hint
        assert not Path(words[0]).exists()


def test_a_path_that_cannot_be_looked_at_is_an_error(project: Make) -> None:
    """A name that is too long stands for a folder that this user may not enter, too."""
    project()
    assert refusal("init", "n" * 300 + ".csv").message.endswith("cannot be read: File name too long")
    assert refusal("quote", "n" * 300).message.endswith("cannot be read: File name too long")
    words = ["export", "batch.yaml", "--to", "x", "--as", "csv", "--set", f"ledger.url=sqlite:///{'n' * 300}"]
    assert "there is no ledger" in refusal(*words).message


def test_what_init_does_not_use_is_a_comment_with_the_reason(project: Make) -> None:
    made = project()
    (made.folder / "x.csv").write_text("prompt,seed,image,model\na cat,7,cup.png,sketch-1\n")
    printed("init", "x.csv", "y.yaml")
    text = Path("y.yaml").read_text()
    assert "# Not used: the column seed is no setting of the service\n" in text
    assert "# Not used: the column image holds images, which are not sent (cup.png)\n" in text
    assert "defaults" not in text


def test_a_name_in_storage_may_have_carried_cells(project: Make) -> None:
    made = project()
    made.set(storage={"key": "{set}/{filename}"})
    text = "prompt,filename,set\na cat,cat.jpg,zoo\na dog,dog,\n"
    assert quoted(made, text)["to_buy"] == 2
    assert made.run("input.defaults.output_format=png").stored == 2
    stored = sorted(
        str(path.relative_to(made.folder / "out/media"))
        for path in (made.folder / "out/media").rglob("[!.]*.*")
    )
    assert stored == ["dog.png", "zoo/cat.png"]
    made.set(storage={"key": "{album}/{row_id}.{ext}"})
    assert "{album} is no carried column of the batch file" in refusal("quote", "batch.yaml").message


# ---- init: a first batch for the service's own catalogue, that quotes and runs as it is


QUICK = ("--set", "report.contact_sheet=0", "--set", "report.plots=false")


def test_what_init_writes_quotes_and_runs_within_its_own_budget(project: Make) -> None:
    """In a folder, the batch is named after it."""
    made = project()
    said = printed("init", "shots/spring.yaml")
    assert "callsheet quote shots/spring.yaml" in said
    quote = json.loads(printed("quote", "shots/spring.yaml", "--json"))
    assert (quote["batch"], quote["rejected_rows"], quote["fits"]) == ("spring", 0, quote["jobs"])
    assert f"{quote['quoted']} USD" in said
    with (made.folder / "shots/spring.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows][:2] == ["sketch-1", "sketch-1"]
    assert {row["duration"] for row in rows if row["model"] in ("dailies-1", "silent-1")} <= {"1", "2"}
    summary = json.loads(printed("run", "shots/spring.yaml", "--json", *QUICK))
    assert (summary["stored"], summary["spent"]) == (len(rows), quote["quoted"])

    told = json.loads(printed("init", "Spring [2026] ${HOME}", "--json"))
    assert (told["batch"], told["rows"]) == ("Spring-2026-HOME", 5)
    config = load(Path(told["config"]))
    assert Path(config.input.path) == Path(told["prompts"]) == Path("Spring [2026] ${HOME}/prompts.csv")
    assert config.budget.limit == Decimal("1.00")
    assert json.loads(printed("quote", told["config"], "--json"))["jobs"] == 5


def test_nothing_is_written_over_and_a_batch_file_is_no_config(project: Make) -> None:
    made = project()
    (made.folder / "batch.csv").write_text("prompt\na cat\n")
    error = refusal("init", "batch.csv")
    assert "batch.yaml: already there" in error.message
    assert error.hint == "Name another config: callsheet init batch.csv NAME.yaml"
    assert refusal("quote", "batch.csv").hint == "Make a config for it: callsheet init batch.csv"
    (made.folder / "batch.csv").unlink()
    made.config.unlink()
    for name in ("batch.yaml", "prompts.csv"):
        taken = made.folder / name
        taken.symlink_to(made.folder / "nowhere")  # a name that is taken, and no file
        assert f"{name}: already there; nothing was written" in refusal("init").message
        assert [path.name for path in made.folder.iterdir() if path.suffix in (".yaml", ".csv")] == [name]
        taken.unlink()


def test_where_init_cannot_ask_or_write_it_says_why_and_writes_nothing(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project()
    made.config.unlink()
    (made.folder / "taken").touch()
    assert "taken: cannot be written" in refusal("init", "taken").message
    monkeypatch.setenv("CALLSHEET_API_KEY", "sk_wrong")
    assert "key" in refusal("init", code=4).message
    monkeypatch.delenv("CALLSHEET_API_KEY")
    assert "CALLSHEET_API_KEY" in refusal("init").hint
    monkeypatch.delenv("CALLSHEET_BASE_URL")
    assert "callsheet backlot" in refusal("init").hint
    assert not list(made.folder.glob("*.csv"))
    assert not list(made.folder.glob("*.yaml"))


def test_a_catalogue_without_videos_or_prices_is_said(project: Make, tmp_path: Path) -> None:
    catalogue = tmp_path / "catalogue.yaml"
    catalogue.write_text(
        '- {id: proof, name: Proof, type: image, supported_aspect_ratios: ["1:1"], '
        'supported_resolutions: ["1K"], rates: [], '
        'unlisted: [{resolution: "1K", sound: not_applicable, unit_price: "0.0525"}]}\n'
    )
    project(catalogue=catalogue)
    assert "no model of the catalogue has a price" in printed("init", "first")
    assert json.loads(printed("quote", "first/batch.yaml", "--json"))["rejected_rows"] == 1
