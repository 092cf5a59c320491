"""When a run asks a person whether to buy, and what the ledger keeps of it: without Prefect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import callsheet
from backlot.faults import Faults, Matched, Surcharge
from callsheet import python
from callsheet.errors import InputError, Interrupted
from callsheet.ledger import approvals
from callsheet.pricing.plan import Choice, open_plan
from callsheet.records import dollars
from callsheet.watch import Asked, LogWatcher
from tests.conftest import Project

Make = Callable[..., Project]


def images(count: int) -> list[dict[str, Any]]:
    return [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(count)]


def dearer(made: Project, name: str = "sketch-1") -> None:
    """All rates of the model double."""
    models = made.backlot.service.models
    rates = [rate.model_copy(update={"unit_price": rate.unit_price * 2}) for rate in models[name].rates]
    models[name] = models[name].model_copy(update={"rates": tuple(rates)})


def test_every_question_is_kept_with_its_answer(project: Make) -> None:
    made = project(images(2))
    made.set(budget={"approve_above": "0.0010"})
    assert made.run().stop_reason == "approval"
    assert callsheet.run(made.config, yes=True).stored == 2
    first, second = callsheet.status(made.config).approvals
    assert (first.decision, first.decided_at) == (None, None)
    assert (second.decision, second.place) == ("approved", "python")
    assert (second.jobs, second.quoted) == (2, Decimal("0.0030"))
    assert second.plan == open_plan(made.folder / "out/report/plan.parquet").sha256()
    assert [one["decision"] for one in made.report()["approvals"]] == [None, "approved"]
    dearer(made)
    assert made.run().outcome == "complete", "nothing to buy needs nobody"


def test_changed_rates_must_be_approved_whatever_the_price(project: Make) -> None:
    """Whoever has looked at them before, in a quote, a run or the question, or has said no."""
    made = project(images(2))
    made.set(budget={"approve_above": "1.00"})
    assert made.run().stored == 2
    made.rows(*images(3))
    dearer(made)
    asyncio.run(python.quote(made.config, None, None))
    with pytest.raises(InputError):
        made.run(choice=Choice(only=("no such row",)))
    with pytest.raises(Interrupted):
        made.run(watcher=Interrupting())
    refused = [made.run(watcher=Refusing()).stop_reason for _ in range(2)]
    assert refused == ["approval", "approval"]
    stopped = made.run()
    assert (stopped.stop_reason, stopped.stored) == ("approval", 2)
    assert "a rate has changed: sketch-1" in str(stopped.stop_message)
    decisions = [None, "refused", "refused", None]
    assert [one.decision for one in stopped.approvals] == decisions, (
        "questions are kept before they are asked"
    )
    assert made.run(approved=True).stored == 3
    made.rows(*images(4))
    assert made.run().stored == 4, "these rates are approved"


class Interrupting(LogWatcher):
    """Somebody who presses Ctrl-C at the question."""

    async def approves(self, asked: Asked) -> bool:
        raise Interrupted("stopped by SIGINT")


class Refusing(LogWatcher):
    """Somebody who says no."""

    async def approves(self, asked: Asked) -> bool:
        return False


def test_the_rates_of_a_model_that_came_later_must_be_approved_too(project: Make) -> None:
    made = project(images(1))
    made.set(budget={"approve_above": "0"})
    made.run(approved=True)
    made.set(budget={"approve_above": "1.00"})
    videos = [{"id": f"v{n}", "prompt": f"video {n}", "model": "dailies-1", "duration": 1} for n in range(2)]
    made.rows(*images(1), *videos[:1])
    assert made.run().stored == 2, "a new model has no rates that could have changed"
    dearer(made, "dailies-1")
    assert made.run().stored == 2, "nothing of it is to buy"
    made.rows(*images(1), *videos)
    assert made.run().stop_reason == "approval"
    assert "dailies-1" in str(made.run().stop_message), "also the next time"


# ---- a service that charges more than it lists: the budget holds, and the buying stops until it is approved


PRICE = Decimal("0.0015")
LANES = 2


def faults(amount: str) -> Faults:
    """Each image is charged so much more than its price."""
    return Faults([Surcharge(do="surcharge", endpoint="images", amount=Decimal(amount))])


@pytest.fixture
def dear(project: Make) -> Make:
    """A project whose images are charged ten times their price."""

    def make(rows: list[dict[str, Any]], extra: str = "0.0135") -> Project:
        made = project(rows)
        made.backlot.service.faults = faults(amount=extra)
        made.set(limits={"concurrency": LANES})
        return made

    return make


@pytest.fixture
def no_brake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the walls of the budget stop the buying."""
    monkeypatch.setattr(approvals, "DEARER", 1_000)
    monkeypatch.setattr(approvals, "ROUNDING", Decimal(1_000))


class Rising(Faults):
    """A service whose prices double after some images."""

    def __init__(self, made: Project, after: int) -> None:
        super().__init__()
        self.made, self.left = made, after

    def match(self, endpoint: Any, model: str = "", prompt: str = "") -> Matched:
        if endpoint == "images":
            self.left -= 1
            if self.left == 0:
                dearer(self.made)
        return super().match(endpoint, model, prompt)


@pytest.mark.parametrize("wall", ["limit", "per_day", "ledger"])
def test_the_budget_is_passed_by_what_is_on_the_wire_at_most(dear: Make, no_brake: None, wall: str) -> None:
    """All jobs fit at their quotes, and are reserved; answers take what other reservations counted on."""
    made = dear(images(12))
    made.set(budget={wall: "0.0450"})
    summary = made.run()
    assert summary.stop_reason == "budget"
    assert Decimal("0.0450") <= summary.spent <= Decimal("0.0450") + LANES * PRICE * 10
    assert summary.exit_code == 4
    assert made.run().submissions == 0
    made.set(budget={wall: "1.00"})
    assert made.run().stored == 12, "with a higher limit the others are bought"
    assert made.charged == 12 * 10 * PRICE


def test_two_dear_charges_of_three_stop_the_buying_until_somebody_approves_the_price(
    dear: Make,
) -> None:
    made = dear(images(40))
    first = made.run()
    assert (first.outcome, first.stop_reason, first.exit_code) == ("stopped", "price", 4)
    assert 1 <= first.stored <= 2 + LANES
    message = str(first.details.stop_message)
    assert "the service charges more than was quoted: row s" in message
    assert "0.0150 USD, quoted 0.0015" in message
    assert "the catalogue is the same" in message
    again = made.run()
    assert (again.stop_reason, again.submissions) == ("price", 0)
    quote = callsheet.quote(made.config)
    assert quote.at_most == 10 * quote.quoted
    made.backlot.service.faults = faults(amount="0.0300")
    dearer_again = made.run(approved=True)
    assert dearer_again.stop_reason == "price", "it is dearer than what was approved"
    assert "0.0315 USD, quoted 0.0015" in str(dearer_again.details.stop_message)
    done = made.run(approved=True)
    assert (done.outcome, done.stored, done.spent) == ("complete", 40, made.charged)
    made.rows(*images(42))
    assert made.run().stored == 42, "what was approved once is not asked again"


@pytest.mark.parametrize("budget, approved", [({}, False), ({"limit": "10.00", "approve_above": "0"}, True)])
def test_without_a_limit_and_below_a_higher_one_the_amount_quoted_or_approved_holds(
    dear: Make, monkeypatch: pytest.MonkeyPatch, budget: dict[str, str], approved: bool
) -> None:
    monkeypatch.setattr(approvals, "DEARER", 1_000)
    made = dear(images(30))
    made.set(budget=budget)
    summary = made.run(approved=approved)
    assert (summary.stop_reason, summary.exit_code) == ("price", 4)
    assert summary.spent <= 30 * PRICE * Decimal("1.01") + LANES * PRICE * 10


def test_roundings_and_single_dear_charges_do_not_stop_a_run_with_a_limit(dear: Make, project: Make) -> None:
    rounded = dear([row | {"model": "still-1", "resolution": "1K"} for row in images(8)], extra="0.0004")
    assert (rounded.run().outcome, rounded.manifest().height) == ("complete", 8)
    made = project(images(6))
    fault = Surcharge(do="surcharge", endpoint="images", amount=Decimal("0.0135"), prompt="image 2")
    made.backlot.service.faults = Faults([fault])
    made.set(batch="single", budget={"limit": "1.00"}, limits={"concurrency": 1})
    summary = made.run()
    assert (summary.outcome, summary.stored) == ("complete", 6)
    assert summary.spent == 6 * PRICE + Decimal("0.0135")


def test_a_charge_for_a_job_quoted_at_nothing_is_a_surcharge(dear: Make) -> None:
    made = dear(images(6), extra="0.0400")
    models = made.backlot.service.models
    rates = [rate.model_copy(update={"unit_price": Decimal(0)}) for rate in models["sketch-1"].rates]
    models["sketch-1"] = models["sketch-1"].model_copy(update={"rates": tuple(rates)})
    made.set(budget={"limit": "1.00"})
    summary = made.run()
    assert summary.stop_reason == "price"
    assert summary.spent > 0
    assert made.costs()["quoted"].unique().to_list() == [Decimal(0)]
    for words in (f"{dollars(summary.spent)} USD more than quoted", "0.0400 instead of 0.0000"):
        assert words in summary.details.surcharge


def test_a_rate_that_rises_while_a_run_buys_is_said_with_what_was_quoted_and_charged(project: Make) -> None:
    made = project(images(30))
    made.set(limits={"concurrency": LANES})
    made.backlot.service.faults = Rising(made, after=6)
    summary = made.run()
    assert summary.stop_reason == "price"
    message = str(summary.details.stop_message)
    assert "0.0030 USD, quoted 0.0015" in message
    assert "the catalogue has changed; sketch-1 0.25K not_applicable image: 0.0030, was 0.0015" in message
    assert summary.spent == made.charged
