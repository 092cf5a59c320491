"""`init`: a first batch for the service's own catalogue, that quotes and runs as it is."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from callsheet.config.load import load
from callsheet.errors import CallsheetError
from tests.cli.test_rows import printed
from tests.conftest import Project

Make = Callable[..., Project]
QUICK = ("--set", "report.contact_sheet=0", "--set", "report.plots=false")


def test_what_init_writes_quotes_and_runs_within_its_own_budget(project: Make) -> None:
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


def test_a_folder_gets_a_config_and_a_csv_named_after_it(project: Make) -> None:
    project()
    told = json.loads(printed("init", "Spring [2026] ${HOME}", "--json"))
    assert (told["batch"], told["rows"]) == ("Spring-2026-HOME", 5)
    config = load(Path(told["config"]))
    assert Path(config.input.path) == Path(told["prompts"]) == Path("Spring [2026] ${HOME}/prompts.csv")
    assert config.budget.limit == Decimal("1.00")
    assert json.loads(printed("quote", told["config"], "--json"))["jobs"] == 5


def refusal(*words: str) -> CallsheetError:
    """The error with which a command ends."""
    with pytest.raises(CallsheetError) as caught:
        printed(*words)
    return caught.value


@pytest.mark.parametrize("name", ["batch.yaml", "prompts.csv"])
def test_nothing_is_written_over(project: Make, name: str) -> None:
    made = project()
    made.config.unlink()
    (made.folder / name).symlink_to(made.folder / "nowhere")  # a name that is taken, and no file
    assert f"{name}: already there; nothing was written" in refusal("init").message
    assert [path.name for path in made.folder.iterdir() if path.suffix in (".yaml", ".csv")] == [name]


def test_where_init_cannot_ask_or_write_it_says_why_and_writes_nothing(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project()
    made.config.unlink()
    (made.folder / "taken").touch()
    assert "taken: cannot be written" in refusal("init", "taken").message
    monkeypatch.setenv("CALLSHEET_API_KEY", "sk_wrong")
    assert (refusal("init").exit_code, "key" in refusal("init").message) == (4, True)
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
