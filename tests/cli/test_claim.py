"""`claim`: what the service owes, what of it was sent, and the money that came back."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from callsheet.present.results import next_steps
from callsheet.processes import user_name
from tests.cli.test_reconcile import backdate
from tests.cli.test_rows import printed, refusal
from tests.conftest import Project
from tests.servers.proxies import ReverseProxy
from tests.servers.s3 import Server
from tests.steps.test_odd_answers import VIDEOS, changed

Make = Callable[..., Project]
DEAR = {"prompt": "dear", "do": "surcharge", "amount": "0.01"}
GONE = {"endpoint": "images", "prompt": "gone", "do": "expire_url", "deleted": True}
CUT_OFF = {"endpoint": "images", "prompt": "cut off", "do": "drop", "when": "after_charging"}
FAULTS = {"rules": [DEAR, GONE, CUT_OFF]}


def rows(*prompts: str) -> list[dict[str, Any]]:
    """Images for 0.0015 USD each, with their prompts as ids."""
    return [{"id": prompt, "prompt": prompt, "model": "sketch-1"} for prompt in prompts]


def claim(made: Project, *words: str) -> dict[str, Any]:
    """Runs `callsheet claim CONFIG WORDS --json` in this process."""
    answer: dict[str, Any] = json.loads(printed("claim", str(made.config), *words, "--json"))
    return answer


def written(made: Project) -> list[dict[str, str]]:
    """The lines of `claim.csv`."""
    with (made.folder / "out/report/claim.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def amounts(answer: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """By row: why it is claimed, what it cost, should have cost, and what is owed."""
    names = ("why", "cost", "should_cost", "owed")
    return {file["row_id"]: tuple(file[name] for name in names) for file in answer["files"]}


def test_what_was_charged_and_never_came_or_cost_more_than_its_quote_is_owed(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project(rows("fine", "dear", "gone", "cut off"), faults=FAULTS)
    summary = made.run()
    assert (summary.lost, made.charged) == (1, Decimal("0.0160"))
    assert any(step.startswith("callsheet claim CONFIG") for step in next_steps(summary))
    with monkeypatch.context() as refused:
        refused.setenv("CALLSHEET_API_KEY", "sk_wrong")
        answer = claim(made)
    assert [*amounts(answer)] == ["dear", "gone"]
    assert "checks.delivered is off" in answer["notes"][1]
    assert "cannot be asked about what is in doubt" in answer["notes"][0]
    answer = claim(made)
    assert amounts(answer) == {
        "dear": ("above its quote", "0.0115", "0.0015", "0.0100"),
        "gone": ("lost", "0.0015", "0.0000", "0.0015"),
        "cut off": ("no answer", None, "0.0000", "0.0015"),
    }
    assert (answer["cost"], answer["owed"], answer["not_said"]) == ("0.0130", "0.0130", 0)
    costs = {row["row_id"]: row for row in made.costs().iter_rows(named=True)}
    for file in answer["files"]:
        of_ledger = costs[file["row_id"]]
        assert file["generation_id"] == of_ledger["generation_id"]
        assert file["submitted_at"] == of_ledger["submitted_at"].isoformat()
        assert file["ordered"]["model"] == "sketch-1"
    printed("resolve", str(made.config), "cut off", "--charged")
    assert amounts(claim(made))["cut off"] == ("lost", "0.0015", "0.0000", "0.0015")
    shown = printed("claim", str(made.config))
    assert "3 generations, 0.0130 USD owed" in shown
    assert "1 generation above its quote: 0.0100 USD" in shown


def test_a_failure_that_is_charged_is_owed(project: Make) -> None:
    made = project([{"id": "v", "prompt": "a video", "model": "dailies-1", "duration": 1}])

    def failed(answer: dict[str, Any]) -> None:
        error = {"code": "server_error", "message": "No."}
        answer.update(status="failed", error=error, data=None, usage={"total_cost": 0.004})

    with ReverseProxy(made.backlot.base_url) as gateway:
        gateway.rewrite = changed(VIDEOS, failed)
        made.set(service={"base_url": gateway.url})
        assert made.run().failed == 1
        assert amounts(claim(made)) == {"v": ("failed", "0.0040", "0.0000", "0.0040")}


def test_nothing_in_a_claim_is_secret_or_a_formula(project: Make) -> None:
    """No address of a file, no key, no place on this machine, no prompt; a spreadsheet shows text as text."""
    formulas = ["=1+1", "+1", "-1", "@SUM(A1)"]
    made = project(
        [row | {"id": f"{begin} gone"} for begin in formulas for row in rows("gone")], faults=FAULTS
    )
    assert made.run().lost == len(formulas)
    answer = claim(made)
    table = written(made)
    assert [line["row_id"] for line in table] == [f"'{file['row_id']}" for file in answer["files"]]
    texts = [(made.folder / f"out/report/claim.{kind}").read_text() for kind in ("csv", "md")]
    secrets = [made.backlot.api_key, made.backlot.base_url, str(made.folder), "out/media", "sig="]
    for text in texts:
        assert [secret for secret in secrets if secret in text] == []
        assert answer["files"][0]["generation_id"] in text


def test_a_claim_of_days_in_the_future_or_of_no_day_is_an_error_and_of_later_days_has_no_earlier_one(
    project: Make,
) -> None:
    made = project(rows("gone"), faults=FAULTS)
    for since, message in (("yesterday", "'yesterday' is not a date"), ("2999-01-01", "in the future")):
        error = refusal("claim", str(made.config), "--since", since)
        assert (message in error.message, bool(error.hint)) == (True, True)
    assert not (made.folder / "out/report/claim.csv").exists()
    made.run()
    today = datetime.now(UTC).date()
    assert claim(made, "--since", str(today))["owed"] == claim(made)["owed"] == "0.0015"
    with sqlite3.connect(made.folder / "out/ledger.db") as ledger:
        ledger.execute("UPDATE attempts SET submitted_at = '2026-01-01T12:00:00.000000Z'")
    assert claim(made, "--since", "2026-01-01")["owed"] == "0.0015"
    assert claim(made, "--since", str(today - timedelta(days=1)))["files"] == []


def test_a_rounding_above_the_quote_is_no_surcharge_and_leads_to_no_claim(project: Make) -> None:
    rounded = {"id": "rounded", "prompt": "a rounded vase", "model": "still-1", "resolution": "1K"}
    rule = {"prompt": "rounded", "do": "surcharge", "amount": "0.0002"}
    made = project([rounded], faults={"rules": [rule]})
    summary = made.run()
    assert summary.quoted < summary.spent <= summary.quoted * Decimal("1.01")
    assert claim(made)["files"] == []
    assert summary.details.surcharge is None
    assert not any("claim" in step for step in next_steps(summary))


def test_what_was_sent_is_not_in_the_next_claim_and_what_came_since_is(project: Make) -> None:
    """Marked is what the claim names that was written last: whoever sent it has not seen more."""
    made = project(rows("gone"), faults=FAULTS)
    made.run()
    error = refusal("claim", str(made.config), "--sent", "by mail")
    assert ("no claim of test to mark" in error.message, bool(error.hint)) == (True, True)
    claim(made)
    made.rows(*rows("gone", "dear"))
    made.run()
    sent = claim(made, "--sent", "by mail")
    assert sent == {"batch": "test", "sent": 1, "note": "by mail", "said_by": user_name()}
    assert "was sent before" in refusal("claim", str(made.config), "--sent", "again").message
    assert [*amounts(claim(made))] == ["dear"]
    assert [*amounts(claim(made, "--all"))] == ["gone", "dear"]
    claim(made, "--sent", "with the rest")
    assert "nothing to claim" in printed("claim", str(made.config))
    assert written(made) == []
    assert "names nothing" in refusal("claim", str(made.config), "--sent", "once more").message


# ---- what came back


def test_money_that_came_back_counts_in_what_a_kept_file_costs_and_makes_no_room_in_a_budget(
    project: Make,
) -> None:
    made = project(rows("fine", "gone"), faults=FAULTS)
    made.set(budget={"limit": "0.0030"})
    made.run()
    name = str(made.config)
    printed("review", name, "--keep", "fine")
    entered = json.loads(printed("claim", name, "--credit", "0.001", "--note", "half of it", "--json"))
    assert entered == {
        "batch": "test",
        "credit": "0.0010",
        "credits": "0.0010",
        "note": "half of it",
        "said_by": user_name(),
        "currency": "USD",
    }
    assert "0.0015 USD came back in all" in printed("claim", name, "--credit", "0.0005")
    status = json.loads(printed("status", name, "--json"))
    assert (status["spent"], status["credits"], status["cost_per_kept"]) == ("0.0030", "0.0015", "0.0015")
    [of_ledger] = json.loads(printed("status", "--json"))["batches"]
    assert of_ledger["credits"] == "0.0015"
    for command in ("review", "report"):
        assert json.loads(printed(command, name, "--json"))["cost_per_kept"] == "0.0015"
    assert "Came back 0.0015 USD, by credits" in " ".join(printed("status", name).split())
    assert (made.report()["credits"], claim(made)["credits"]) == ("0.0015", "0.0015")
    made.rows(*rows("fine", "gone", "more"))
    assert made.run().stop_reason == "budget", "the limit counts what was spent"


def test_a_credit_that_cannot_be_is_an_error_and_nothing_is_entered(project: Make) -> None:
    made = project(rows("gone"), faults=FAULTS)
    made.run()
    name = str(made.config)
    for amount, message in (
        ("-0.001", "is no amount of US dollars"),
        ("0", "is no amount of US dollars"),
        ("much", "is no amount of US dollars"),
        ("nan", "is no amount of US dollars"),
        ("0.0000001", "is no amount of US dollars"),
        ("0.0016", "more than test has cost: 0.0015 USD"),
    ):
        error = refusal("claim", name, "--credit", amount)
        assert (message in error.message, bool(error.hint)) == (True, True), error.message
    printed("claim", name, "--credit", "0.001")
    assert "0.0010 came back already" in refusal("claim", name, "--credit", "0.0006").message
    for words in (("--credit", "1", "--sent", "x"), ("--sent", "x", "--all"), ("--note", "x")):
        assert refusal("claim", name, *words).hint
    assert json.loads(printed("status", name, "--json"))["credits"] == "0.0010"


def book_back(made: Project, row: str) -> None:
    """The service takes its charge for a row back, in its own account."""
    [generation_id] = made.costs().filter(row_id=row)["generation_id"]
    made.backlot.service.store.db.execute("UPDATE generations SET cost = 0 WHERE id = ?", [generation_id])


def test_what_came_back_is_the_name_of_a_difference_between_the_accounts(project: Make) -> None:
    made = project(rows("fine", "gone"), faults=FAULTS)
    made.run()
    name = str(made.config)
    book_back(made, "gone")
    backdate(made, 5)
    assert json.loads(printed("reconcile", name, "--json", code=3))["unexplained"] == "0.0015"
    printed("claim", name, "--credit", "0.001")
    answer = json.loads(printed("reconcile", name, "--json", code=3))
    assert (answer["credits"], answer["unexplained"]) == ("0.0010", "0.0005")
    assert answer["days"][0]["reason"] == "came back 0.0010; unexplained 0.0005"
    printed("claim", name, "--credit", "0.0005")
    assert json.loads(printed("reconcile", name, "--json"))["unexplained"] == "0.0000"
    assert "0.0015 USD, by credits" in printed("reconcile", name)


def test_what_came_back_may_hide_that_a_doubt_was_charged_so_nothing_is_said_of_it(project: Make) -> None:
    made = project(rows("gone", "cut off"), faults=FAULTS)
    made.run()
    name = str(made.config)
    book_back(made, "gone")
    backdate(made, 5)
    printed("claim", name, "--credit", "0.0015")
    [doubt] = json.loads(printed("reconcile", name, "--json"))["doubts"]
    assert doubt["verdict"] == "unclear", "there is no difference, and it was charged"
    evidence = json.loads(printed("resolve", name, "--json", code=3))["evidence"]
    assert (evidence["credits"], evidence["fits"]) == ("0.0015", None)
    assert "nothing is proposed" in printed("resolve", name, code=3)


def test_a_postgresql_ledger_and_a_report_on_s3(
    project: Make, new_database: Callable[[], str], s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    made = project(rows("gone", "cut off"), faults=FAULTS)
    made.set(ledger={"url": new_database()}, report={"url": f"s3://{s3.bucket}/claims"})
    made.run()
    answer = claim(made)
    assert (answer["csv"], answer["owed"]) == (f"s3://{s3.bucket}/claims/claim.csv", "0.0030")
    stored = s3.client().get_object(Bucket=s3.bucket, Key="claims/claim.csv")["Body"].read()
    assert pl.read_csv(stored)["owed"].to_list() == [0.0015, 0.0015]
    assert claim(made, "--sent", "by mail")["sent"] == 2
    assert claim(made, "--credit", "0.001")["credits"] == "0.0010"
    assert claim(made)["files"] == []
    assert json.loads(printed("reconcile", str(made.config), "--json"))["credits"] == "0.0010"


# ---- what came other than ordered

VIDEO = {"model": "dailies-1", "aspect_ratio": "16:9", "resolution": "360p", "duration": 3, "sound": "true"}
OTHER: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str | None]] = {
    "another model": (
        {"model": "still-1"},
        [{"do": "says", "endpoint": "images", "fields": {"model": "poster-1"}}],
        "0.0390",
    ),
    "short": (VIDEO, [{"do": "short", "seconds": 1}], "0.0115"),
    "without sound": (VIDEO, [{"do": "silent", "track": False}], "0.0240"),
    "short and silent": (VIDEO, [{"do": "short", "seconds": 1}, {"do": "silent"}], "0.0080"),
    "small": ({"model": "still-1", "resolution": "2K"}, [{"do": "smaller"}], None),
    "a model that nobody knows": (
        {"model": "still-1"},
        [{"do": "says", "endpoint": "images", "fields": {"model": "still-9"}}],
        None,
    ),
    "another format": ({"model": "sketch-1", "output_format": "png"}, [{"do": "other_format"}], "0.0015"),
    "said to be brief": (
        VIDEO,
        [{"do": "says", "endpoint": "status", "fields": {"duration": 1}}],
        "0.0345",
    ),
    "of one picture": (VIDEO, [{"do": "still"}], None),
    "short and dear": (
        VIDEO,
        [{"do": "short", "seconds": 2}, {"do": "surcharge", "amount": "0.01"}],
        "0.0230",
    ),
}
"""By what is wrong: what was ordered, the faults, and what it should have cost by the catalogue."""


def test_a_claim_of_twenty_files_opens_in_a_spreadsheet_and_its_sums_are_the_ledger_s(project: Make) -> None:
    rules = [{"prompt": f"{name}.", **fault} for name, (_, faults, _) in OTHER.items() for fault in faults]
    twenty = [
        {"id": f"={name} {number}", "prompt": f"{name}.", **ordered}
        for number in (1, 2)
        for name, (ordered, *_) in OTHER.items()
    ]
    made = project([*twenty, *rows("fine")], faults={"rules": rules})
    made.set(checks={"size": "flag", "delivered": "flag"}, limits={"concurrency": 1})
    summary = made.run()
    while summary.stop_reason == "price":  # other models stop the buying, until a person accepts them
        summary = made.run(approved=True)
    assert summary.stored == 21
    answer = claim(made)
    should_cost = {file["row_id"]: file["should_cost"] for file in answer["files"]}
    assert should_cost == {row["id"]: OTHER[row["prompt"][:-1]][2] for row in twenty}
    lines = written(made)
    assert [line["row_id"] for line in lines] == [f"'{file['row_id']}" for file in answer["files"]]
    of_ledger = made.costs().filter(pl.col("row_id") != "fine")
    assert sum(Decimal(line["cost"]) for line in lines) == of_ledger["cost"].sum() == Decimal(answer["cost"])
    assert sum(Decimal(line["owed"] or 0) for line in lines) == Decimal(answer["owed"])
    assert answer["notes"] == []
    assert answer["not_said"] == sum(not line["owed"] for line in lines) == 6
    stored = made.manifest()["sha256"].to_list()
    for line, file in zip(lines, answer["files"], strict=True):
        assert (line["sha256"] in stored, bool(line["flags"])) == (True, True)
        assert file["why"] == "other than ordered"
        if file["should_cost"]:
            owed = Decimal(line["cost"]) - Decimal(line["should_cost"])
            assert Decimal(line["owed"]) == owed
    page = (made.folder / "out/report/claim.md").read_text()
    assert f"Owed**: {answer['owed']} USD" in page
    assert "6 generations: what it should have cost, the catalogue does not say" in page
