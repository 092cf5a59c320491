"""The bound of a batch is one, for all its runs: the newest word about the limit, and what is approved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import callsheet
from backlot.faults import Faults, Matched, Surcharge
from callsheet.config.load import load
from callsheet.ledger import approvals
from callsheet.ledger.approvals import Decision
from callsheet.ledger.ledger import Ledger
from callsheet.records import State
from callsheet.report.summary import Summary
from callsheet.steps import batch
from callsheet.steps.change import Changed, change
from callsheet.watch import Change, LogWatcher
from tests.conftest import Project
from tests.steps.test_again import Person, checked

Make = Callable[..., Project]
PRICE = Decimal("0.0015")
DEAR = 5 * PRICE
LEDGERS = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


def images(count: int) -> list[dict[str, Any]]:
    return [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(count)]


class Charging(Faults):
    """A service that charges some images `amount` more than their price: those at these positions."""

    def __init__(self, amount: Decimal, which: Callable[[int], bool]) -> None:
        super().__init__()
        self.which, self.count = which, 0
        self.dear = Surcharge(do="surcharge", endpoint="images", amount=amount)

    def match(self, endpoint: Any, model: str = "", prompt: str = "") -> Matched:
        if endpoint != "images":
            return super().match(endpoint, model, prompt)
        self.count += 1
        return Matched([self.dear] if self.which(self.count - 1) else [])


def every_other(made: Project) -> None:
    made.backlot.service.faults = Charging(4 * PRICE, lambda number: number % 2 == 0)


@pytest.fixture
def no_brake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the bound stops the buying."""
    monkeypatch.setattr(approvals, "DEARER", 1_000)
    monkeypatch.setattr(approvals, "SHARE", Decimal(1_000))


@pytest.fixture
def shared(
    project: Make, request: pytest.FixtureRequest, new_database: Callable[[], str]
) -> Callable[[str, int], Project]:
    """A batch of so many images, every other one charged five times its price, in a ledger of a kind."""

    def make(kind: str, count: int) -> Project:
        made = project(images(count), concurrency=8, image_seconds=0.01)
        made.set(limits={"concurrency": 2})
        if kind == "postgresql":
            made.set(ledger={"url": new_database()})
        every_other(made)
        return made

    return make


def given(made: Project) -> list[tuple[Decision | None, Decimal]]:
    """The decision of each approval of the batch, and how much it allows, those that nobody was asked too."""

    async def read() -> Any:
        async with await Ledger.open(load(made.config).ledger.url, "test") as ledger:
            return await ledger.read(
                lambda connection, _: list(
                    connection.exec_driver_sql("SELECT decision, at_most FROM approvals ORDER BY asked_at")
                )
            )

    return [
        (decision and Decision(decision), Decimal(most) / 10**6) for decision, most in asyncio.run(read())
    ]


def several(made: Project, count: int, **how: Any) -> list[Summary]:
    """Runs of a batch at once."""

    async def all_of_them() -> list[Summary]:
        runs = (batch.generate(load(made.config), approved=False, **how) for _ in range(count))
        return await asyncio.gather(*runs)

    return asyncio.run(all_of_them())


# ---- without a limit


@LEDGERS
def test_runs_one_after_another_spend_what_the_first_was_quoted(
    shared: Callable[[str, int], Project], no_brake: None, kind: str
) -> None:
    made = shared(kind, 60)
    quoted = 60 * PRICE
    first, second, third = made.run(), made.run(), made.run()
    assert [each.stop_reason for each in (first, second, third)] == ["price"] * 3
    assert quoted - DEAR <= made.charged <= quoted * approvals.ROUNDING + 2 * DEAR
    assert (second.submissions, third.submissions) == (0, 0)
    assert {decision for decision, _ in given(made)} == {Decision.NOT_ASKED}
    assert callsheet.status(made.config).approvals == (), "nobody was asked"


@LEDGERS
def test_runs_side_by_side_share_what_is_quoted(
    shared: Callable[[str, int], Project], no_brake: None, kind: str
) -> None:
    made = shared(kind, 60)
    summaries = several(made, 3)
    assert {each.stop_reason for each in summaries} <= {"price", None}
    assert made.charged <= 60 * PRICE * approvals.ROUNDING + 3 * 2 * DEAR
    assert [most for _, most in given(made)][:1] == [60 * PRICE]


def test_two_runs_of_one_batch_at_work_at_once_with_other_files_each_spend_their_own_quote(
    project: Make,
) -> None:
    made = project(images(40), concurrency=16, image_seconds=0.02)

    async def both() -> list[Summary]:
        halves = (callsheet_choice(range(20)), callsheet_choice(range(20, 40)))
        runs = (batch.generate(load(made.config), approved=False, choice=half) for half in halves)
        return await asyncio.gather(*runs)

    assert [each.stop_reason for each in asyncio.run(both())] == [None, None]
    assert made.charged == 40 * PRICE


def callsheet_choice(numbers: range) -> Any:
    return batch.Choice(only=tuple(f"s{number}" for number in numbers))


@LEDGERS
def test_a_crew_has_one_approval_and_its_amount(
    shared: Callable[[str, int], Project], no_brake: None, kind: str
) -> None:
    made = shared(kind, 60)
    made.set(budget={"approve_above": "0.01"})
    members: list[Summary] = []

    async def crew() -> Summary:
        async def others(run: batch.Run) -> None:
            assert run.quote is not None
            plan, settings = run.quote.plan.sha256(), load(made.config)
            group = (batch.generate(settings, approved=False, plan=plan) for _ in range(2))
            waiting.append(asyncio.ensure_future(asyncio.gather(*group)))

        waiting: list[asyncio.Future[list[Summary]]] = []
        first = await batch.generate(load(made.config), approved=True, steps=batch.Steps(before=others))
        members.extend(await waiting[0])
        return first

    asyncio.run(crew())
    assert given(made) == [(Decision.APPROVED, 60 * PRICE)]
    assert made.charged <= 60 * PRICE * approvals.ROUNDING + 3 * 2 * DEAR
    left = made.run()
    assert (left.stop_reason, left.submissions) == ("approval", 0), "the rest is above the threshold"


def test_a_limit_that_is_taken_away_leaves_what_was_quoted(project: Make, no_brake: None) -> None:
    made = project(images(30), image_seconds=0.02)
    made.set(limits={"concurrency": 1}, budget={"limit": "0.0500"})
    every_other(made)
    said: list[Changed] = []

    class Somebody(LogWatcher):
        def changed(self, change_: Change) -> None:
            if change_.state is State.STORED and not threads:
                threads.append(threading.Thread(target=says))
                threads[0].start()

    def says() -> None:
        said.append(asyncio.run(change(load(made.config), {approvals.LIMIT: None}, "somebody")))

    threads: list[threading.Thread] = []
    summary = made.run(watcher=Somebody())
    threads[0].join()
    assert said[0].bound == 30 * PRICE
    assert "0.0450 USD" in said[0].bound_in_words()
    assert summary.stop_reason == "price"
    assert summary.spent <= 30 * PRICE * approvals.ROUNDING + DEAR


# ---- what a command can cost


def test_the_rounds_of_a_command_are_a_part_of_what_it_may_cost(project: Make) -> None:
    made = project(images(1))
    made.set(review={"buy_again": True})
    quote = callsheet.quote(made.config)
    assert (quote.quoted, quote.at_most) == (PRICE, 3 * PRICE)
    assert callsheet.quote(made.config, settings={"review.samples": 1000}).at_most == 1000 * PRICE
    stopped, person = checked(
        made, "review.samples=1000", "budget.approve_above=1.00", rejects=lambda *_: True
    )
    assert (stopped.stop_reason, stopped.submissions, len(person.asked)) == ("approval", 0, 1)
    assert "the quote may come to 1.5000 USD" in person.asked[0].reason
    done, person = checked(made, rejects=lambda *_: True)
    assert (done.stored, made.charged) == (3, 3 * PRICE)
    assert [most for decision, most in given(made) if decision] == [3 * PRICE], (
        "entered once, with its rounds"
    )


def test_a_yes_is_entered_once_however_many_rounds_follow(project: Make) -> None:
    made = project(images(2))
    made.set(budget={"approve_above": "0"})
    done, person = checked(made, rejects=lambda *_: True, says=True)
    assert (done.stored, len(person.asked)) == (6, 1)
    assert given(made) == [(Decision.APPROVED, 6 * PRICE)]


def test_a_later_run_finishes_what_was_approved_without_asking_again(project: Make) -> None:
    made = project(images(6))
    made.set(budget={"approve_above": "0"})
    part = made.run("budget.limit=0.0060", approved=True)
    assert (part.stop_reason, part.stored) == ("budget", 4)
    person = Person(says=None)
    done = made.run("budget.limit=1.00", watcher=person)
    assert (done.stored, person.asked) == (6, [])
    made.rows(*images(7))
    assert made.run("budget.limit=1.00", watcher=Person(says=None)).stop_reason == "approval", "another plan"


# ---- a service that charges more


def test_only_what_an_approval_has_named_is_accepted(project: Make) -> None:
    made = project(images(1))
    made.set(limits={"concurrency": 1})
    made.backlot.service.faults = Charging(9 * PRICE, lambda number: number == 0)
    assert made.run().spent == 10 * PRICE
    made.rows(*images(2))
    made.set(budget={"limit": "1.00", "approve_above": "0"})
    assert made.run(approved=True).spent == 11 * PRICE, "one dear charge below a limit stops nothing"
    made.set(budget={"limit": "1.00", "approve_above": "1.00"})
    made.backlot.service.faults = Charging(8 * PRICE, lambda _: True)
    made.rows(*images(14))
    stopped = made.run()
    assert (stopped.stop_reason, stopped.submissions) == ("price", 1), "two of the last three"
    assert made.run().submissions == 0
    person = Person(says=True)
    done = made.run(watcher=person)
    assert "row s0: 0.0150 USD, quoted 0.0015" in person.asked[0].reason
    assert (done.stored, done.stop_reason) == (14, None)


def test_a_yes_leaves_what_became_dear_after_the_question(project: Make) -> None:
    made = project(images(1))
    made.run()
    named, later = (
        approvals.Charge(f"s{n}", 1, model, PRICE, 2 * PRICE) for n, model in enumerate(["a", "b"])
    )

    async def stops() -> bool:
        async with await Ledger.open(load(made.config).ledger.url, "test") as ledger:
            await ledger.write(approvals.charged, [named, later])
            await ledger.write(approvals.accept, [named])
            known = await ledger.read(approvals.charges_of)
            return known.stops(Decimal("0.01")) and [one.model for one in known.dearer] == ["b"]

    assert asyncio.run(stops())


def test_two_dear_charges_of_three_stop_it_wherever_they_stand(project: Make) -> None:
    made = project(images(10))
    made.set(limits={"concurrency": 1}, budget={"limit": "10.00"})
    made.backlot.service.faults = Charging(4 * PRICE, lambda number: number in (0, 2))
    stopped = made.run()
    assert (stopped.stop_reason, stopped.stored) == ("price", 3)


def test_charges_are_counted_over_the_runs_of_a_batch(project: Make) -> None:
    made = project(images(1))
    made.set(budget={"limit": "10.00"})
    made.backlot.service.faults = Charging(9 * PRICE, lambda _: True)
    for count in range(1, 5):
        made.rows(*images(count))
        last = made.run()
    assert (last.stop_reason, last.submissions, made.charged) == ("price", 0, 2 * 10 * PRICE)


def test_a_tenth_of_the_bound_above_the_quotes_stops_it(project: Make) -> None:
    made = project(images(30))
    made.set(limits={"concurrency": 1})
    made.backlot.service.faults = Charging(4 * PRICE, lambda number: number == 3)
    stopped = made.run()
    assert (stopped.stop_reason, stopped.stored) == ("price", 4), (
        "four prices are more than a tenth of thirty"
    )
    made.backlot.service.faults = Charging(2 * PRICE, lambda _: False)
    done = made.run(approved=True)
    assert done.stored == 30
    assert [one.decision for one in done.approvals] == [Decision.APPROVED]
