"""`callsheet costs`: what all batches of a ledger came to, beside the month before."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from PIL import Image

import callsheet
from callsheet import python
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.tables import attempts
from callsheet.records import dollars
from tests.cli.test_rows import printed, refusal
from tests.conftest import Make, Project

ROWS = [{"id": "good", "model": "sketch-1", "prompt": "an apple", "shelf": "=top"}]
ROWS += [{"id": "dear", "model": "dailies-1", "prompt": "a pear", "shelf": "7"}]


@pytest.fixture
def bought(project: Make) -> Project:
    """Two rows that are bought, and one file of them is kept."""
    made = project(ROWS)
    assert made.run().stored == 2
    printed("review", str(made.config), "--keep", "good")
    return made


def long_ago(made: Project, row: str, sent: datetime) -> None:
    """A row was bought at another time."""

    async def change() -> None:
        async with await Ledger.open(f"sqlite:///{made.folder}/out/ledger.db", "test") as ledger:
            earlier = attempts.update().where(attempts.c.row_id == row).values(submitted_at=sent)
            await ledger.write(lambda connection, _: connection.execute(earlier))

    python.carry_out(change())


def test_what_the_ledger_came_to_is_said_beside_the_month_before(bought: Project) -> None:
    today = datetime.now(UTC)
    since = (today - timedelta(days=1)).date()
    long_ago(bought, "dear", today - timedelta(days=2))
    told = json.loads(printed("costs", "--since", str(since), "--by", "model", "--json"))
    spent = {row["row_id"]: dollars(row["cost"]) for row in bought.costs().iter_rows(named=True)}
    assert (told["by"], told["since"], told["until"]) == ("model", str(since), str(today.date()))
    assert (told["total"]["spent"], told["before"]["spent"]) == (spent["good"], spent["dear"])
    lines = {line["value"]: line for line in told["lines"]}
    assert (lines["sketch-1"]["kept"], lines["sketch-1"]["cost_per_kept"]) == (1, spent["good"])
    assert (lines["dailies-1"]["spent"], lines["dailies-1"]["before"]["spent"]) == ("0.0000", spent["dear"])
    assert sum(map(Decimal, told["spent_by_day"].values())) == bought.charged
    assert callsheet.spending(bought.config, "model", since).as_json() == told
    shown = printed("costs", str(bought.config), "--since", str(since))
    assert f"{spent['good']} USD spent, 1 job bought; 1 kept, {spent['good']} USD a kept file" in shown
    assert f"{spent['dear']} USD spent, 1 job bought" in shown


def test_what_came_back_is_beside_what_was_spent_and_in_the_cost_of_a_kept_file(bought: Project) -> None:
    printed("claim", str(bought.config), "--credit", "0.0005")
    told = json.loads(printed("costs", "--json"))
    net = bought.charged - Decimal("0.0005")
    [line] = told["lines"]
    for part in (line, told["total"]):
        assert (part["credits"], part["spent"]) == ("0.0005", dollars(bought.charged))
        assert (part["kept"], part["cost_per_kept"]) == (1, dollars(net))
    assert "; 0.0005 came back" in printed("costs", "--by", "model")


def test_the_table_is_csv_and_the_days_are_a_picture_and_no_file_is_replaced(bought: Project) -> None:
    wrote = printed("costs", "--by", "shelf", "--csv", "shelves.csv", "--plot", "month.png")
    assert "Wrote shelves.csv" in wrote
    with Path("shelves.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["shelf"] for line in lines] == ["7", "'=top"], "no cell is run as a formula"
    assert sum(Decimal(line["spent"]) for line in lines) == bought.charged
    with Image.open("month.png") as picture:
        assert picture.format == "PNG"
    error = refusal("costs", "--csv", "shelves.csv")
    assert error.message == "shelves.csv: already there; nothing was written"


def test_a_column_a_day_or_a_ledger_that_is_not_there_is_named(bought: Project) -> None:
    error = refusal("costs", "--by", "shelves")
    assert "has the column 'shelves'; the columns are shelf" in error.message
    for day, problem in (("2999-01-01", "too late"), ("0001-01-01", "too early")):
        assert refusal("costs", "--since", day).message == f"{day} is {problem}"
    assert "is not a date" in refusal("costs", "--since", "yesterday").message
    (bought.folder / "out/ledger.db").unlink()
    assert "this folder has no ledger" in refusal("costs").message
