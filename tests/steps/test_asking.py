"""When a run asks a person whether to buy, and the bound of a batch: its limit, and what is approved."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest

import callsheet
from backlot.faults import RULE, Faults, Matched, Says, Surcharge
from callsheet import python
from callsheet.config.load import load
from callsheet.errors import InputError, Interrupted
from callsheet.ledger import changes, charges, words
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.words import Decision
from callsheet.present.allowances import without_limit
from callsheet.present.results import facts, next_steps
from callsheet.pricing.choice import Choice
from callsheet.pricing.plan import open_plan
from callsheet.records import Change, Progress, State, dollars
from callsheet.report.summary import Summary
from callsheet.steps import batch
from callsheet.steps.steer import Changed, change_setting
from callsheet.watch import Asked, LogWatcher
from tests.batches.test_workbooks import text, workbook
from tests.conftest import Make, Project, images
from tests.servers.backlots import finish_videos
from tests.steps.test_again import Person, checked

PRICE = Decimal("0.0015")
DEAR = 5 * PRICE
LANES = 2
LEDGERS = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


def dearer(made: Project, name: str = "sketch-1") -> None:
    """All rates of the model double."""
    models = made.backlot.service.models
    rates = [rate.model_copy(update={"unit_price": rate.unit_price * 2}) for rate in models[name].rates]
    models[name] = models[name].model_copy(update={"rates": tuple(rates)})


class Charging(Faults):
    """A service that charges some images `amount` more than their price: those at these positions."""

    def __init__(self, amount: Decimal, which: Callable[[int], bool] = lambda _: True) -> None:
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
    """Dear charges stop nothing by themselves."""
    monkeypatch.setattr(charges, "DEARER", 1_000)
    monkeypatch.setattr(charges, "SHARE", Decimal(1_000))


def test_every_question_is_kept_with_its_answer(project: Make) -> None:
    made = project(images(2))
    made.set(budget={"approve_above": "0.0010"})
    assert made.run().stop_reason == "approval"
    assert callsheet.run(made.config, yes=True).stored == 2
    first, second = callsheet.status(made.config).approvals
    assert (first.decision, first.decided_at) == (None, None)
    assert (second.decision, second.place) == ("approved", "python")
    assert (second.shown.jobs, second.shown.quoted) == (2, Decimal("0.0030"))
    assert second.shown.plan == open_plan(made.folder / "out/report/plan.parquet").sha256()
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
    refused = [made.run(watcher=Person(says=False)).stop_reason for _ in range(2)]
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


def test_hidden_rows_of_a_workbook_are_asked_about_once_or_left_by_the_config(project: Make) -> None:
    made = project()
    rows = [[text(f"a fox {number}"), text("sketch-1")] for number in range(3)]
    sheet = [[text("prompt"), text("model")], *rows]
    workbook(made.folder / "shots.xlsx", hidden=(3,), Shots=sheet)
    made.set(input={"path": "shots.xlsx"})
    assert made.run("batch=left", "report.url=out/left", "input.hidden=leave").stored == 2
    stopped = made.run()
    assert (stopped.stop_reason, stopped.submissions) == ("approval", 0)
    assert "line 3: 1 row is hidden, and read" in str(stopped.stop_message)
    assert made.run(approved=True).stored == 3
    workbook(made.folder / "shots.xlsx", hidden=(3,), Shots=[*sheet, [text("a hen"), text("sketch-1")]])
    assert made.run().stored == 4, "a person has said that it is meant so"
    workbook(made.folder / "shots.xlsx", hidden=(3, 5), Shots=[*sheet, [text("a cow"), text("sketch-1")]])
    assert made.run().stop_reason == "approval", "another one is hidden"


class Interrupting(LogWatcher):
    """Somebody who presses Ctrl-C at the question."""

    async def approves(self, asked: Asked) -> bool:
        raise Interrupted("stopped by SIGINT")


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


@pytest.fixture
def dear(project: Make) -> Make:
    """A project whose images are charged ten times their price."""

    def make(rows: list[dict[str, Any]], extra: str = "0.0135") -> Project:
        made = project(rows)
        made.backlot.service.faults = Charging(Decimal(extra))
        made.set(limits={"concurrency": LANES})
        return made

    return make


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
    assert "callsheet run CONFIG goes on from here, once what stopped it is dealt with." in [
        *next_steps(summary)
    ]
    assert Decimal("0.0450") <= summary.spent <= Decimal("0.0450") + LANES * PRICE * 10
    assert summary.exit_code == 4
    assert made.run().submissions == 0
    made.set(budget={wall: "1.00"})
    assert made.run().stored == 12, "with a higher limit the others are bought"
    assert made.charged == 12 * 10 * PRICE


class Finishing(LogWatcher):
    """Has the service finish its videos once two jobs have lost their room."""

    def __init__(self, made: Project) -> None:
        self.made = made

    def progress(self, progress: Progress) -> None:
        with closing(sqlite3.connect(self.made.folder / "out/ledger.db")) as ledger:
            query = "SELECT count(*) FROM attempts WHERE state = 'planned' AND run_id IS NULL"
            if ledger.execute(query).fetchone() == (2,):
                finish_videos(self.made.backlot.service)


def test_jobs_that_lose_their_room_are_bought_before_those_that_come_after_them(
    project: Make, no_brake: None
) -> None:
    """A video and three images are reserved. The first image is so dear that the others must wait; then the
    video fails, and leaves room for one.
    """
    video = {"id": "video", "prompt": "a video", "model": "dailies-1", "duration": 1}
    made = project([video, *images(4)], concurrency=LANES, video_seconds=600)
    of_video = made.quote().quoted - 4 * PRICE
    dear = {"endpoint": "images", "prompt": "image 0", "do": "surcharge", "amount": of_video + PRICE}
    rules = {"endpoint": "videos", "do": "fail_video"}, dear
    made.backlot.service.faults = Faults(map(RULE.validate_python, rules))
    made.set(budget={"limit": str(of_video + 3 * PRICE)}, limits={"concurrency": LANES})
    summary = made.run(watcher=Finishing(made))
    assert (summary.stop_reason, summary.failed) == ("budget", 1)
    assert made.manifest()["row_id"].to_list() == ["s0", "s1"]


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
    made.backlot.service.faults = Charging(20 * PRICE)
    dearer_again = made.run(approved=True)
    assert dearer_again.stop_reason == "price", "it is dearer than what was approved"
    assert "0.0315 USD, quoted 0.0015" in str(dearer_again.details.stop_message)
    done = made.run(approved=True)
    assert (done.outcome, done.stored, done.spent) == ("complete", 40, made.charged)
    made.rows(*images(42))
    assert made.run().stored == 42, "what was approved once is not asked again"


def test_dear_charges_that_use_up_the_budget_are_said_as_what_they_are(project: Make) -> None:
    """What the images on the wire are charged may be known only when the next one is reserved."""
    made = project(images(10), image_seconds=1)
    made.backlot.service.faults = Charging(9 * PRICE)
    made.set(budget={"limit": str(3 * PRICE)}, limits={"concurrency": 3})
    summary = made.run()
    assert summary.stop_reason == "price"
    message = str(summary.details.stop_message)
    assert "0.0150 USD, quoted 0.0015" in message
    assert "the catalogue is the same" in message


def test_roundings_and_single_dear_charges_do_not_stop_a_run_with_a_limit(dear: Make, project: Make) -> None:
    rounded = dear([row | {"model": "still-1", "resolution": "1K"} for row in images(8)], extra="0.0004")
    assert (rounded.run().outcome, rounded.manifest().height) == ("complete", 8)
    made = project(images(6))
    made.backlot.service.faults = Charging(9 * PRICE, lambda number: number == 2)
    single = {"batch": "single", "report": {"url": "out/single/report"}}
    made.set(**single, budget={"limit": "1.00"}, limits={"concurrency": 1})
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
    for said in (f"{dollars(summary.spent)} USD more than quoted", "0.0400 USD, quoted 0.0000"):
        assert said in dict(facts(summary))["Surcharge"]


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


# ---- the bound of a batch is one, for all its runs: the newest word about the limit, and what is approved


@pytest.fixture
def shared(
    project: Make, request: pytest.FixtureRequest, new_database: Callable[[], str]
) -> Callable[[str], Project]:
    """A batch of 60 images, every other one charged five times its price, in a ledger of a kind."""

    def make(kind: str) -> Project:
        made = project(images(60), concurrency=8, image_seconds=0.01)
        made.set(limits={"concurrency": 2})
        if kind == "postgresql":
            made.set(ledger={"url": new_database()})
        every_other(made)
        return made

    return make


def given(made: Project) -> list[tuple[Decision | None, Decimal]]:
    """The decision of each approval of the batch, and how much it allows, those that nobody was asked too."""
    query = "SELECT decision, at_most FROM words ORDER BY number"
    found = made.read(lambda connection, _: list(connection.exec_driver_sql(query)))
    return [(decision and Decision(decision), Decimal(most) / 10**6) for decision, most in found]


def several(made: Project, count: int, **how: Any) -> list[Summary]:
    """Runs of a batch at once."""

    async def all_of_them() -> list[Summary]:
        runs = (batch.generate(load(made.config), approved=False, **how) for _ in range(count))
        return await asyncio.gather(*runs)

    return asyncio.run(all_of_them())


# ---- without a limit


@LEDGERS
def test_runs_one_after_another_spend_what_the_first_was_quoted_until_a_person_accepts_the_charges(
    shared: Callable[[str], Project], kind: str
) -> None:
    made = shared(kind)
    runs = [made.run(), made.run(), made.run()]
    assert [run.stop_reason for run in runs] == ["price"] * 3
    assert [run.submissions for run in runs[1:]] == [0, 0]
    assert made.charged <= 60 * PRICE * charges.SHARE + 2 * DEAR + LANES * DEAR
    asked = [None, None]
    assert [decision for decision, _ in given(made)] == [Decision.NOT_ASKED, *asked]


@LEDGERS
def test_runs_side_by_side_share_what_is_quoted(shared: Callable[[str], Project], kind: str) -> None:
    made = shared(kind)
    made.backlot.service.faults = Faults()
    summaries = several(made, 3)
    assert {run.stop_reason for run in summaries} == {None}
    assert made.charged == 60 * PRICE
    assert made.read(words.allowed) == 60 * PRICE


def test_two_runs_of_one_batch_at_work_at_once_with_other_files_each_spend_their_own_quote(
    project: Make,
) -> None:
    made = project(images(40), concurrency=16, image_seconds=0.02)

    async def both() -> list[Summary]:
        halves = (Choice(only=tuple(f"s{n}" for n in half)) for half in (range(20), range(20, 40)))
        runs = (batch.generate(load(made.config), approved=False, choice=half) for half in halves)
        return await asyncio.gather(*runs)

    assert [each.stop_reason for each in asyncio.run(both())] == [None, None]
    assert made.charged == 40 * PRICE


@LEDGERS
def test_a_crew_buys_by_the_approval_of_its_first_run(shared: Callable[[str], Project], kind: str) -> None:
    made = shared(kind)
    made.backlot.service.faults = Faults()
    made.set(budget={"approve_above": "0.01"})
    members: list[Summary] = []

    async def crew() -> Summary:
        async def others(run: batch.Run) -> None:
            assert run.quote is not None
            plan, settings = run.quote.plan.sha256(), load(made.config)
            group = (batch.generate(settings, approved=False, plan=plan) for _ in range(2))
            waiting.append(asyncio.ensure_future(asyncio.gather(*group)))

        waiting: list[asyncio.Future[list[Summary]]] = []
        steps = batch.Steps(before_portion=others)
        first = await batch.generate(load(made.config), approved=True, steps=steps)
        members.extend(await waiting[0])
        return first

    asyncio.run(crew())
    assert [decision for decision, _ in given(made)] == [Decision.APPROVED, *[Decision.NOT_ASKED] * 2]
    assert (made.charged, made.read(words.allowed)) == (60 * PRICE, 60 * PRICE)


def test_a_limit_that_is_taken_away_leaves_what_was_quoted(project: Make) -> None:
    made = project(images(30), image_seconds=0.02)
    made.set(limits={"concurrency": 1}, budget={"limit": "0.0300"})
    said: list[Changed] = []

    class Somebody(LogWatcher):
        def changed(self, change_: Change) -> None:
            if change_.state is State.STORED and not threads:
                threads.append(threading.Thread(target=says))
                threads[0].start()

    def says() -> None:
        said.append(asyncio.run(change_setting(load(made.config), {changes.LIMIT: None}, "somebody")))

    threads: list[threading.Thread] = []
    summary = made.run(watcher=Somebody())
    threads[0].join()
    assert said[0].allowed == 30 * PRICE
    assert "0.0450 USD" in without_limit(said[0].allowed)
    assert (summary.outcome, made.charged) == ("complete", 30 * PRICE)


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
    assert "the quote may come to 1.5000 USD" in person.asked[0].word.why
    done, person = checked(made, rejects=lambda *_: True)
    assert (done.stored, made.charged) == (3, 3 * PRICE)
    assert made.read(words.allowed) == 3 * PRICE, "with its rounds"


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
    made.backlot.service.faults = Charging(8 * PRICE)
    made.rows(*images(14))
    stopped = made.run()
    assert (stopped.stop_reason, stopped.submissions) == ("price", 1), "two of the last three"
    assert made.run().submissions == 0
    person = Person(says=True)
    done = made.run(watcher=person)
    assert "row s0: 0.0150 USD, quoted 0.0015" in person.asked[0].word.why
    assert (done.stored, done.stop_reason) == (14, None)


def test_a_yes_leaves_what_became_dear_after_the_question(project: Make) -> None:
    made = project(images(1))
    made.run()
    named, later = (charges.Charge(f"s{n}", 1, model, PRICE, 2 * PRICE) for n, model in enumerate(["a", "b"]))

    async def stops() -> bool:
        async with await Ledger.open(load(made.config).ledger.url, "test") as ledger:
            for charge in (named, later):
                await ledger.write(charges.count, charge)
            await ledger.write(charges.accept, [named])
            charged = await ledger.read(charges.of_batch)
            return [charge.model for charge in charged.to_accept(Decimal("0.01"))] == ["b"]

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
    made.backlot.service.faults = Charging(9 * PRICE)
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
    made.backlot.service.faults = Faults()
    done = made.run(approved=True)
    assert done.stored == 30
    assert [one.decision for one in done.approvals] == [Decision.APPROVED]


# ---- a service that delivers another model than was ordered


def named(model: str | None, **which: Any) -> Faults:
    """A service that says of images that this model has made them; null: of none."""
    return Faults([Says(do="says", endpoint="images", fields={"model": model}, **which)])


def test_two_of_three_of_another_model_stop_the_buying_until_a_person_accepts_that_model(
    project: Make,
) -> None:
    made = project(images(10))
    made.set(limits={"concurrency": 1}, budget={"limit": "10.00"})
    made.backlot.service.faults = named("still-1", nth=[1, 3, 4])
    stopped = made.run()
    assert (stopped.stop_reason, stopped.stored, stopped.exit_code) == ("price", 3, 4)
    why = "the service delivers another model than was ordered: row s2: still-1, ordered sketch-1"
    assert why in str(stopped.details.stop_message)
    again = made.run()
    assert (again.stop_reason, again.submissions) == ("price", 0)
    made.backlot.service.faults = named("still-1")
    person = Person(says=True)
    assert made.run(watcher=person).stored == 10
    assert why in person.asked[0].word.why
    made.rows(*images(12))
    assert made.run().stored == 12, "what was accepted once is not asked again"
    made.rows(*images(20))
    made.backlot.service.faults = named("poster-1")
    assert (made.run().stop_reason, made.charged) == ("price", 14 * PRICE)
    made.backlot.service.faults = named("sketch-1")
    assert made.run(approved=True).stored == 20


def test_single_answers_of_another_model_and_answers_that_name_none_do_not_stop_a_run(project: Make) -> None:
    made = project(images(8))
    made.set(limits={"concurrency": 1})
    made.backlot.service.faults = named("still-1", nth=[1, 4, 7])
    assert (made.run().stored, made.run().stop_reason) == (8, None)
    made.rows(*images(12))
    made.backlot.service.faults = named(None)
    assert made.run().stored == 12


def test_films_and_jobs_without_a_price_of_another_model_stop_the_buying_too(project: Make) -> None:
    video = {"model": "dailies-1", "duration": 1}
    unpriced = {"model": "proof-1"}
    for batch_name, row in (("films", video), ("unpriced", unpriced)):
        made = project([{"id": f"r{n}", "prompt": f"row {n}", **row} for n in range(12)])
        made.set(
            batch=batch_name,
            limits={"concurrency": 1},
            budget={"allow_unpriced": True},
            report={"url": f"out/{batch_name}"},
            storage={"url": f"out/media/{batch_name}"},
            ledger={"url": f"sqlite:///out/{batch_name}.db"},
        )
        made.backlot.service.faults = Faults([Says(do="says", fields={"model": "still-1"})])
        stopped = made.run()
        assert (stopped.stop_reason, stopped.stored < 12) == ("price", True)
        assert f"still-1, ordered {row['model']}" in str(stopped.details.stop_message)
