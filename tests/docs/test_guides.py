"""The guides: what they tell people to type works, and what they list is all that there is."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import nbformat
import opentimelineio
import polars as pl
import pytest
import yaml
from PIL import Image

import callsheet
from callsheet import errors
from callsheet.config.load import load
from callsheet.config.settings import Section, Settings, Storage
from callsheet.records import State
from tests.cli.test_rows import printed
from tests.conftest import Project

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
Make = Callable[..., Project]


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The blocks of code of a page, or of a section, in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def section(name: str, title: str) -> str:
    return page(name).partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(table: str) -> list[str]:
    """Every name in backticks in the first column of a table, below its head."""
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    return [name for cell in rows[2:] for name in re.findall(r"`([^`]+)`", cell)]


def test_the_quick_start_works_when_it_is_typed(project: Make) -> None:
    made = project()
    *_, real = typed = [line for block in blocks(page("quick_start.md"), "sh") for line in block.splitlines()]
    assert real == "callsheet quote second.yaml"
    said = {line: said for line in typed[5:-3] for said in type_in(line, made.folder)}
    assert "buys nothing" in said["callsheet init first.yaml"] or "Next" in said["callsheet init first.yaml"]
    assert "5 stored" in said["callsheet run first.yaml"] or "6 stored" in said["callsheet run first.yaml"]
    assert "harbour" in said["callsheet show first.yaml harbour"]
    assert pl.read_parquet("out/first/report/manifest.parquet")["row_id"].to_list()[-1] == "pier"
    assert Path(Storage().url, "first").is_dir()


def type_in(line: str, folder: Path) -> Iterator[str]:
    """Types a line of the guide; yields what a command prints."""
    words = shlex.split(line)
    if words[0] == "callsheet":
        yield printed(*words[1:])
    elif words[0] == "echo":
        subprocess.run(line, shell=True, check=True, cwd=folder)
    else:
        assert words[0] in ("export", "source"), line


def test_every_state_and_stop_reason_has_its_way_out() -> None:
    assert first_cells(section("recovering.md", "The state of a job")) == [state.value for state in State]
    stops = {stop.reason for stop in errors.Stop.__subclasses__()}
    assert set(first_cells(section("recovering.md", "Why a run stopped"))) == stops


@pytest.fixture
def shots(project: Make) -> Project:
    """A batch that has been run, with everything that its report can have."""
    rows = [
        {"id": "a", "prompt": "an apple", "model": "sketch-1", "shot": "hero"},
        {"id": "b", "prompt": "a bee", "model": "dailies-1", "shot": "grid"},
        {"id": "c", "prompt": "forbidden-test-word", "model": "sketch-1", "shot": "grid"},
        {"id": "d", "prompt": "a door", "model": "poster-1", "shot": "hero"},
    ]
    made = project(rows)
    made.set(batch="shots", report={"url": "out/shots/report"}, budget={"limit": "0.05"})
    assert made.run().stop_reason == "budget"
    return made


def test_the_columns_are_those_of_the_files(shots: Project) -> None:
    report = shots.folder / "out/shots/report"
    for name in ("plan", "manifest", "costs"):
        columns = pl.read_parquet_schema(report / f"{name}.parquet").names()
        listed = first_cells(section("files_and_columns.md", f"{name}.parquet"))
        assert [column for column in columns if column != "shot"] == listed, name
    header = (report / "rejects.csv").read_text().splitlines()[0]
    assert header.split(",") == first_cells(section("files_and_columns.md", "rejects.csv"))


def test_the_fields_of_each_command_s_json_are_on_the_page(shots: Project) -> None:
    """Also those in its lists and objects; names that a batch or a service gives are none of them."""
    free = ("columns", "carried", "guessed", "request", "requests", "first_request", "by_setting", "rows")

    def names(value: Any) -> Iterator[str]:
        if isinstance(value, list):
            for each in value:
                yield from names(each)
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield name
                yield from () if name in free else names(inner)

    json_section = section("commands.md", "JSON")
    for words, code in (
        ("quote batch.yaml --show 1 --compare", 0),
        ("run batch.yaml", 4),
        ("collect batch.yaml", 3),
        ("status batch.yaml", 0),
        ("status", 0),
        ("show batch.yaml a", 0),
        ("failed batch.yaml", 0),
        ("review batch.yaml --keep a", 0),
        ("tidy batch.yaml", 0),
        ("resolve batch.yaml", 0),
        ("reconcile batch.yaml", 0),
        ("claim batch.yaml", 0),
        ("export batch.yaml --to exported --as csv", 0),
        ("balance", 0),
        ("ledger backup batch.yaml --to copy.db", 0),
        ("ledger upgrade batch.yaml", 0),
        ("ledger service-moved batch.yaml", 0),
        ("purse batch.yaml 1.00", 0),
    ):
        answer = json.loads(printed(*words.split(), "--json", code=code))
        assert [name for name in names(answer) if f"`{name}`" not in json_section] == [], words


def test_the_code_of_each_error_is_on_the_page() -> None:
    types = [value for value in vars(errors).values() if isinstance(value, type)]
    codes = [errors.code_of(kind.__new__(kind)) for kind in types if issubclass(kind, errors.CallsheetError)]
    assert len(codes) > 30
    assert [code for code in codes if f"`{code}`" not in section("commands.md", "JSON")] == []


def test_the_code_runs_and_pandas_polars_and_duckdb_agree(shots: Project) -> None:
    answers: list[dict[str, Any]] = []
    for code in blocks(page("files_and_columns.md"), "python"):
        names: dict[str, Any] = {}
        exec(code, names)
        answers.append(names)
    in_pandas, in_polars = answers
    [sql] = blocks(page("files_and_columns.md"), "sql")
    statements = [statement for statement in sql.split(";") if statement.strip()]
    asked = [name for name in in_polars if name in in_pandas and not callable(in_pandas[name])]
    results = ["spent", "by_model", "by_day", "failures", "waiting", "by_shot", "not_bought"]
    assert asked[-len(results) :] == results
    for name, statement in zip(results, statements, strict=True):
        rows = duckdb.sql(statement).fetchall()
        assert rows, name
        if name == "spent":
            assert rows[0][0] == in_pandas[name] == in_polars[name]
        else:
            assert len(rows) == len(in_pandas[name]) == in_polars[name].height > 0, name
        if name.startswith("by_"):
            exact = {str(key): value for key, value in rows}
            assert exact == {str(key): value for key, value in in_pandas[name].items()}
            assert exact == {str(key): value for key, value in in_polars[name].iter_rows()}


def test_the_pictures_are_there_and_small() -> None:
    shown = {
        ROOT / folder / name
        for folder, page in (
            (".", "README.md"),
            *(("docs", f"docs/{name}.md") for name in ("commands", "backlot", "reviewing")),
        )
        for name in re.findall(r"!\[[^]]+\]\(([^)]+\.png)\)", (ROOT / page).read_text("utf-8"))
    }
    assert {path.resolve() for path in shown} == {*(DOCS / "pictures").glob("*.png")}
    assert all(10_000 < path.stat().st_size < 300_000 for path in shown)


@pytest.mark.soak
def test_the_pictures_are_taken_anew_from_the_demo(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "docs.take_pictures", str(tmp_path)], cwd=ROOT, check=True)
    for committed in sorted((DOCS / "pictures").glob("*.png")):
        with Image.open(committed) as shown, Image.open(tmp_path / committed.name) as taken:
            assert taken.size == shown.size
            assert len(taken.convert("RGB").getcolors(1 << 20) or ()) > 100, "the page was not there yet"


@pytest.mark.soak
def test_each_figure_that_the_benchmarks_print_has_its_line_in_the_page() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick"]
    printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = [
        [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
        for text in (printed, (ROOT / "benchmarks/README.md").read_text())
    ]
    assert figures[0] == figures[1]


@pytest.mark.soak
def test_the_notebook_shows_what_its_cells_do() -> None:
    script = runpy.run_path(str(DOCS / "execute_notebook.py"))
    shown = script["outputs"](nbformat.read(DOCS / "python.ipynb", as_version=4))
    assert script["outputs"](script["executed"]()) == shown, "run `make docs`"


def test_the_notebook_has_no_path_of_the_machine_that_executed_it() -> None:
    text = (DOCS / "python.ipynb").read_text()
    assert not re.search(r"/(tmp|home|root|work|usr)/|127\.0\.0\.1:(?!8400)", text)


# ---- docs/batches.md: each of its files is read with its config as the page says

EXAMPLES = {
    title: text
    for title, text in re.findall(
        r"^### (.*?)\n(.*?)(?=^### |\Z)", section("batches.md", "I have this file"), re.DOTALL | re.MULTILINE
    )
    if "$ callsheet quote" in text
} | {"Rejected rows": section("batches.md", "Rejected rows")}


def in_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_is_read_as_the_page_says(project: Make, title: str) -> None:
    folder = project().folder
    files = re.findall(r"^`([^`]+)`:\n\n```\w+\n(.*?)^```$", EXAMPLES[title], re.DOTALL | re.MULTILINE)
    for name, content in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    [(config, output)] = re.findall(
        r"^```\n\$ callsheet quote (.*?)\n(.*?)^```$", EXAMPLES[title], re.DOTALL | re.MULTILINE
    )
    said = in_one_line(printed("quote", config))
    for line in output.splitlines():
        assert in_one_line(line) in said, said


def test_every_type_of_file_that_is_read_is_on_the_page() -> None:
    from callsheet.batches import formats

    assert all(
        f"`{ending}`" in page("batches.md") for ending in (*formats._TEXT, *formats._PARQUET, *formats._EXCEL)
    )


# ---- docs/configuration.md describes every setting, as the schema has it

PAGE = DOCS / "configuration.md"


def keys(section: type[Section], prefix: str = "") -> dict[str, str | None]:
    """Every setting with its description."""
    described: dict[str, str | None] = {}
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            described |= keys(inner, f"{prefix}{name}.")
        else:
            described[prefix + name] = field.description
    return described


def test_every_setting_is_described():
    assert [key for key, description in keys(Settings).items() if not description] == []


def test_the_page_is_what_the_schema_generates():
    page = runpy.run_path(str(DOCS / "generate_configuration.py"))["page"]
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_page_has_a_row_for_every_setting():
    rows = re.findall(r"^\| `([a-z_.]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(keys(Settings))


def test_the_page_s_example_is_a_config(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSHEET_BASE_URL", "https://api.example.com")
    example = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "run.yaml").write_text(example[0])
    assert load(tmp_path / "run.yaml").batch == "product-shots"


def test_the_way_of_the_review_goes_as_the_page_says(project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its commands but the page itself, which tests/reviewing drives in a browser."""
    text = page("reviewing.md").partition("\n## From stills to films\n")[0]
    files = dict(re.findall(r"^`([^`]+)`:\n\n```\w+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    faults = yaml.safe_load(files["faults.yaml"])
    made = project(faults=faults)
    for name in ("mugs.csv", "mugs.yaml"):
        (made.folder / name).write_text(files[name])
    [marks] = [block for block in blocks(text, "csv") if block.startswith("row_id")]
    (made.folder / "marks.csv").write_text(marks)
    elsewhere = ("callsheet backlot --faults faults.yaml", "callsheet review mugs.yaml")
    for line in "\n".join(blocks(text, "sh")).splitlines():
        if not line.startswith("callsheet ") or line in elsewhere:
            continue
        if line == "callsheet quote mugs.yaml --again":
            exec(blocks(text, "python")[0], {})
        said = printed(*shlex.split(line)[1:])
        if line == "callsheet quote mugs.yaml --again":
            assert "13: 1 to buy, 12 already bought" in " ".join(said.split())
    assert len(made.sold) == 13
    assert "blank" in str(callsheet.reviews("mugs.yaml")["flags"].tolist())
    assert sorted(path.name for path in Path("out/kept").glob("*.jpeg")) == ["blue.jpeg", "tall.jpeg"]


def test_the_way_of_a_production_goes_as_the_page_says(project: Make) -> None:
    """All its commands, and its quotes."""
    made = project()
    text = section("reviewing.md", "From stills to films")
    [shots], [goes_on] = blocks(text, "csv"), blocks(text, "yaml")
    (made.folder / "shots.csv").write_text(shots)
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        asked, *said = block.splitlines()
        for line in block.splitlines() if language == "sh" else ():
            printed(*shlex.split(line)[1:])
        if not language:
            told = in_one_line(printed(*shlex.split(asked)[2:]))
            assert [line for line in said if in_one_line(line) not in told] == [], told
    assert len(made.sold) == 6 + 6 + 1 + 3
    cut = opentimelineio.adapters.read_from_file("cut/cut.otio").video_tracks()[0]
    assert [clip.metadata["callsheet"]["made_from"]["row"] for clip in cut.find_clips()] == [
        *("harbour", "gulls", "cabin"),
    ]
    (made.folder / "films-2.yaml").write_text(goes_on)
    request = json.loads(printed("quote", "films-2.yaml", "--json"))["first_request"]
    assert request["prompt"].endswith("lamps flicker, then everything falls silent")
    assert request["images"][0]["role"] == "first_frame"


def test_the_program_that_judges_on_the_page_judges(tmp_path: Path) -> None:
    program = tmp_path / "too_dark.py"
    program.write_text(blocks(page("reviewing.md"), "python")[1])
    asked = []
    for light in (5, 50, 200):
        path = tmp_path / f"{light}.png"
        Image.new("RGB", (64, 64), (light,) * 3).save(path)
        asked.append(json.dumps({"path": str(path)}))
    done = subprocess.run(
        [sys.executable, program], input="\n".join(asked), capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["flags"], each["reject"]) for each in answers] == [
        (["dark"], True),
        (["dark"], False),
        ([], False),
    ]
