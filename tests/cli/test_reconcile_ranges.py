"""`reconcile` of a range: which days are read, in which pieces, and what of an earlier result is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import polars as pl
import pytest

from tests.cli.test_commands import callsheet
from tests.cli.test_reconcile import (
    CUT_OFF,
    STUDIO,
    TODAY,
    backdate,
    doubtful,
    reconcile,
    refused,
    rows,
    spend,
)
from tests.conftest import Project
from tests.servers.s3 import Server

Make = Callable[..., Project]


def kept(made: Project) -> pl.DataFrame:
    return pl.read_parquet(made.folder / "out/report/reconcile.parquet")


def test_a_range_of_more_than_180_days_is_read_in_pieces(project: Make) -> None:
    made = project(rows("a"))
    made.run()
    backdate(made, 400)
    answer = reconcile(made)
    assert len(answer["days"]) == 401
    assert (answer["start"], answer["end"]) == ((TODAY - timedelta(days=400)).isoformat(), TODAY.isoformat())
    assert (answer["usage"], answer["billed"], answer["unexplained"]) == ("0.0015", "0.0015", "0.0000")
    assert kept(made).height == 401
    shown = callsheet("reconcile", str(made.config)).stdout
    assert len(shown.splitlines()) < 15, "days without anything are not printed"


def test_a_range_leaves_out_other_days_and_its_own_are_whole(project: Make) -> None:
    made = project(rows("a"))
    made.run()
    backdate(made, 3)
    day = (TODAY - timedelta(days=3)).isoformat()
    for words, usage in (
        (("--start", day, "--end", day), "0.0015"),
        (("--end", day), "0.0015"),
        (("--start", (TODAY - timedelta(days=2)).isoformat()), "0.0000"),
        (("--start", day, "--end", (TODAY + timedelta(days=9)).isoformat()), "0.0015"),
    ):
        answer = reconcile(made, *words)
        assert (answer["usage"], answer["billed"]) == (usage, usage), words
    assert answer["end"] == TODAY.isoformat(), "a day in the future is not over, nor has it begun"


def test_a_charge_just_outside_a_range_is_not_taken_for_another_key_s(project: Make) -> None:
    made = project(rows("a"))
    made.run()
    backdate(made, 5)
    with sqlite3.connect(made.folder / "out/ledger.db") as ledger:  # sent on the day before it was charged
        ledger.execute("UPDATE attempts SET submitted_at = substr(submitted_at, 1, 11) || '23:59:59.000000Z'")
        moved = "strftime('%Y-%m-%dT%H:%M:%f', submitted_at, '-1 day') || '000Z'"
        ledger.execute(f"UPDATE attempts SET submitted_at = {moved}")
    before, after = ((TODAY - timedelta(days=n)).isoformat() for n in (6, 5))
    [day] = reconcile(made, "--start", after, "--end", after)["days"]
    assert (day["reason"], day["unexplained"]) == ("sent near midnight 0.0015", "0.0000")
    [day] = reconcile(made, "--start", before, "--end", before)["days"]
    assert (day["reason"], day["unexplained"]) == ("sent near midnight 0.0015", "0.0000")


def test_the_balances_are_those_before_and_after_the_range(project: Make) -> None:
    made = project(rows("a"))
    made.run()
    backdate(made, 4)
    made.rows(*rows("a", "b"))
    made.run()
    backdate(made, 3)
    made.rows(*rows("a", "b", "c", "d"))
    made.run()
    day = (TODAY - timedelta(days=7)).isoformat()
    old = reconcile(made, "--start", day, "--end", day)["balance"]
    assert (old["before"], old["after"]) == ("100.0000", "99.9985")
    assert (old["gone"], old["usage"], old["billed"]) == ("0.0015",) * 3
    assert old["before_at"][:10] == day
    whole = reconcile(made)["balance"]
    assert (whole["before"], whole["after"], whole["usage"]) == ("100.0000", "99.9940", "0.0060")


@pytest.mark.parametrize(
    "words, message",
    [
        (["--start", "yesterday"], "'yesterday' is not a date"),
        (["--end", "2026-02-30"], "'2026-02-30' is not a date"),
        (["--end", "20260101"], "'20260101' is not a date"),
        (["--start", "2026-01-02", "--end", "2026-01-01"], "before it begins"),
        (["--start", "2999-01-01"], "in the future"),
        (["--start", "0206-01-01"], "more than ten years ago"),
        (["--end", "0001-01-01"], "more than ten years ago"),
    ],
)
def test_a_wrong_range_is_an_error_before_anything_is_asked(
    project: Make, words: list[str], message: str
) -> None:
    made = project()
    made.set(service={"base_url": "http://127.0.0.1:9"})
    error = refused(made, *words)
    assert error.exit_code == 2
    assert message in error.message
    assert error.hint
    assert not (made.folder / "out").exists()


# ---- what is kept


def test_a_later_reconciliation_replaces_its_days_and_keeps_the_others(project: Make) -> None:
    made = project(rows("a"), **STUDIO)
    made.run()
    backdate(made, 3)
    old = TODAY - timedelta(days=3)
    reconcile(made)
    first = kept(made)
    assert first["date"].to_list() == [old + timedelta(days=n) for n in range(4)]
    spend(made, "sk_second")
    reconcile(made, "--start", TODAY.isoformat(), code=3)
    reconcile(made, "--start", (old - timedelta(days=1)).isoformat(), "--end", old.isoformat())
    second = kept(made)
    assert second["date"].to_list() == [old + timedelta(days=n) for n in range(-1, 4)]
    assert second["billed"].to_list() == [Decimal(x) for x in ("0", "0.0015", "0", "0", "0.04")]
    assert second["reason"].to_list() == ["", "", "", "", "unexplained 0.0400"]
    times = second["reconciled_at"].to_list()
    assert times[2:4] == first["reconciled_at"].to_list()[1:3], "other days are left as they are"
    assert times[4] > times[3]


def test_money_in_the_file_is_decimal(project: Make) -> None:
    made = project(rows("a"))
    made.run()
    reconcile(made)
    money = {name for name, dtype in kept(made).schema.items() if dtype == pl.Decimal(18, 6)}
    assert money == {"quoted", "usage", "billed", "difference", "unexplained", "other_batches"}
    assert kept(made).schema["date"] == pl.Date


@pytest.mark.parametrize("content", [b"not a table", None], ids=["bytes", "columns"])
def test_a_file_that_cannot_be_extended_is_not_overwritten(project: Make, content: bytes | None) -> None:
    made = project()
    file = made.folder / "out/report/reconcile.parquet"
    file.parent.mkdir(parents=True)
    if content is None:
        pl.DataFrame({"mine": [1]}).write_parquet(file)
    else:
        file.write_bytes(content)
    before = file.read_bytes()
    error = refused(made)
    assert (error.exit_code, "cannot be extended" in error.message) == (2, True)
    assert "Move it away" in error.hint
    assert file.read_bytes() == before


def test_a_postgresql_ledger_and_a_report_on_s3(
    project: Make, new_database: Callable[[], str], s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    made = project(
        [*rows("a"), *doubtful("b")], faults={"rules": [CUT_OFF | {"when": "after_charging"}]}, **STUDIO
    )
    made.set(ledger={"url": new_database()}, report={"url": f"s3://{s3.bucket}/books"})
    made.run()
    answer = reconcile(made)
    assert answer["file"] == f"s3://{s3.bucket}/books/reconcile.parquet"
    assert answer["days"][0]["reason"] == "doubts that were charged 0.0015"
    spend(made, "sk_second")
    yesterday = (TODAY - timedelta(days=1)).isoformat()
    assert reconcile(made, "--start", yesterday, code=3)["unexplained"] == "0.0400"
    found = s3.client().get_object(Bucket=s3.bucket, Key="books/reconcile.parquet")["Body"].read()
    assert pl.read_parquet(found)["billed"].to_list() == [Decimal(0), Decimal("0.0430")]


def test_an_empty_ledger_is_compared_too(project: Make) -> None:
    made = project(**STUDIO)
    answer = reconcile(made, "--end", (TODAY + timedelta(days=1)).isoformat())
    assert (answer["start"], answer["end"], answer["balance"]) == (
        TODAY.isoformat(),
        TODAY.isoformat(),
        None,
    )
    spend(made, "sk_first")
    assert reconcile(made, code=3)["days"][0]["reason"] == "unexplained 0.0400"
