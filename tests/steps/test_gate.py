"""What may leave: a question binds who has asked it, and who buys nothing says nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from decimal import Decimal

import pytest

import callsheet
from backlot.faults import Faults
from callsheet.config.load import load
from callsheet.errors import ApprovalNeeded, InputError
from callsheet.ledger.words import Reason
from callsheet.pricing.choice import Choice
from callsheet.records import Change, State
from callsheet.report.summary import Summary
from callsheet.steps import batch
from callsheet.watch import Asked, LogWatcher
from tests.conftest import Make, Project, images
from tests.steps.test_again import Person
from tests.steps.test_asking import Charging, dearer

PRICE = Decimal("0.0015")
LIMIT = 4 * PRICE


class Meanwhile(LogWatcher):
    """Carries something out once, when the first job is paid for: the buying waits for it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work: Callable[[], object] | None = work

    def changed(self, change_: Change) -> None:
        if change_.state is State.GENERATED and self.work:
            thread = threading.Thread(target=self.work)
            self.work = None
            thread.start()
            thread.join()


def run_meanwhile(made: Project, *overrides: str, work: Callable[[], object]) -> Summary:
    return made.run(*overrides, watcher=Meanwhile(work))


@pytest.fixture
def made(project: Make) -> Project:
    """Twelve images, one at a time."""
    project_ = project(images(12))
    project_.set(limits={"concurrency": 1})
    return project_


# ---- who buys nothing says nothing


@pytest.mark.parametrize("answer", [None, False])
def test_a_command_that_is_not_approved_leaves_the_limit_of_a_run_at_work(
    made: Project, answer: bool | None
) -> None:
    asks = ("budget.limit=100", "budget.approve_above=0")
    summary = run_meanwhile(
        made, f"budget.limit={LIMIT}", work=lambda: made.run(*asks, watcher=Person(says=answer))
    )
    assert (summary.stop_reason, summary.spent, made.charged) == ("budget", LIMIT, LIMIT)


def test_a_command_that_its_budget_refuses_leaves_the_limit_of_a_run_at_work(made: Project) -> None:
    refuses = (f"budget.limit={8 * PRICE}", "budget.on_exceed=refuse")
    summary = run_meanwhile(made, f"budget.limit={LIMIT}", work=lambda: made.run(*refuses))
    assert (summary.stop_reason, summary.spent, made.charged) == ("budget", LIMIT, LIMIT)


def test_a_command_that_ends_with_an_error_leaves_the_limit_of_a_run_at_work(made: Project) -> None:
    def fails() -> None:
        with pytest.raises(InputError):
            made.run("budget.limit=100", choice=Choice(only=("no-such-row",)))

    summary = run_meanwhile(made, f"budget.limit={LIMIT}", work=fails)
    assert (summary.stop_reason, summary.spent, made.charged) == ("budget", LIMIT, LIMIT)


def test_a_command_with_nothing_to_buy_leaves_the_limit_of_a_run_at_work(made: Project) -> None:
    bought = Choice(only=("s0",))
    summary = run_meanwhile(
        made, f"budget.limit={LIMIT}", work=lambda: made.run("budget.limit=100", choice=bought)
    )
    assert (summary.stop_reason, summary.spent, made.charged) == ("budget", LIMIT, LIMIT)


def test_the_limit_of_a_later_command_counts_for_a_run_at_work_once_it_buys(made: Project) -> None:
    buys = ("budget.limit=100",)
    only = Choice(only=("s11",))
    summary = run_meanwhile(made, f"budget.limit={LIMIT}", work=lambda: made.run(*buys, choice=only))
    assert (summary.outcome, made.charged) == ("complete", 12 * PRICE)


# ---- a yes is to what was shown


def test_a_yes_covers_the_very_plan_and_no_more_to_pay(project: Make) -> None:
    made = project(images(4))
    made.set(budget={"approve_above": "0"})
    assert made.run(f"budget.limit={2 * PRICE}", approved=True).stored == 2
    made.rows(*images(6))
    more = Person(says=None)
    assert (made.run(watcher=more).submissions, more.asked[0].word.shown.jobs) == (0, 4)
    made.rows(*images(3))
    less = Person(says=None)
    assert (made.run(watcher=less).submissions, less.asked[0].word.shown.jobs) == (0, 1)
    made.rows(*images(4))
    assert made.run(watcher=Person(says=None)).stored == 4, "the plan that was approved"


def test_a_yes_to_some_rows_is_none_to_others_of_the_same_plan(project: Make) -> None:
    made = project(images(4))
    made.set(budget={"approve_above": "0"})
    assert made.run(approved=True, choice=Choice(only=("s0", "s1"))).stored == 2
    other = Person(says=None)
    assert made.run(choice=Choice(only=("s2",)), watcher=other).submissions == 0
    assert [asked.word.shown.jobs for asked in other.asked] == [1]


def test_a_cell_of_rows_is_asked_about_once(project: Make) -> None:
    made = project()
    has_a_cell_of_rows(made)
    stopped = made.run()
    assert (stopped.stop_reason, stopped.submissions) == ("approval", 0)
    assert "prompts.csv, lines 8 to 15: are one row, and 6 of them look like rows" in str(
        stopped.stop_message
    )
    assert made.run(approved=True).stored == 8
    with (made.folder / "prompts.csv").open("a") as file:
        file.write("r9,A bird,sketch-1\n")
    assert made.run().stored == 9


def test_each_guess_is_asked_also_in_a_batch_that_has_bought(project: Make) -> None:
    made = project(images(2))
    assert made.run().stored == 2
    made.rows(*images(4))
    guess = {"taken": "prompt", "others": ["id"]}
    made.set(input={"guessed": {"prompt": guess}})
    asked = Person(says=None)
    assert (made.run(watcher=asked).stop_reason, made.run().submissions) == ("approval", 0)
    assert "`callsheet init` has guessed: prompt from 'prompt'" in asked.asked[0].word.why
    assert made.run(approved=True).stored == 4
    made.rows(*images(5))
    assert made.run().stored == 5, "it was seen"
    made.rows(*images(6))
    made.set(input={"guessed": {"prompt": guess, "model": {"taken": "sketch-1", "others": []}}})
    assert made.run().stop_reason == "approval", "a new one"


def test_jobs_without_a_price_are_asked_about_where_an_amount_is(project: Make) -> None:
    made = project([row | {"model": "proof-1"} for row in images(3)])
    made.set(budget={"allow_unpriced": True, "approve_above": "0.10"})
    quote = json.loads(json.dumps(callsheet.quote(made.config).as_json()))
    assert (quote["at_most"], quote["fits"]) == (None, 0), "nobody knows"
    stopped = made.run()
    assert (stopped.stop_reason, stopped.submissions) == ("approval", 0)
    assert "3 jobs have no price" in str(stopped.stop_message)
    assert made.run(approved=True).stored == 3, "what they cost takes nothing from what was approved"


def test_two_runs_with_other_rows_each_buy_their_own_within_one_number(made: Project) -> None:
    first, second = (Choice(only=tuple(f"s{n}" for n in rows)) for rows in (range(6), range(6, 12)))
    others: list[Summary] = []
    summary = made.run(choice=first, watcher=Meanwhile(lambda: others.append(made.run(choice=second))))
    assert (summary.stop_reason, others[0].stop_reason, made.charged) == (None, None, 12 * PRICE)


# ---- each reason to ask, and what may happen to its question


def is_dear(made: Project) -> None:
    made.set(budget={"approve_above": "0"})


def has_new_rates(made: Project) -> None:
    made.set(budget={"approve_above": "1.00"})
    made.run(choice=Choice(only=("s0",)))
    dearer(made)


def is_charged_more(made: Project) -> None:
    made.backlot.service.faults = Charging(9 * PRICE, lambda number: number < 2)
    made.run()
    made.backlot.service.faults = Faults()


def repeats(made: Project) -> None:
    made.rows(*(row | {"id": f"old-{row['id']}"} for row in images(6)))
    made.run()
    made.rows(*images(6))


def is_guessed(made: Project) -> None:
    made.set(input={"guessed": {"prompt": {"taken": "prompt", "others": ["id"]}}})


def has_a_cell_of_rows(made: Project) -> None:
    rows = "".join(f"r{number},A bird number {number},sketch-1\n" for number in range(6))
    text = f'id,prompt,model\n{rows}r6,"A bird\n{rows}r7,A bird",sketch-1\nr8,A bird,sketch-1\n'
    (made.folder / "prompts.csv").write_text(text)


def has_no_price(made: Project) -> None:
    made.rows(*(row | {"model": "proof-1"} for row in images(6)))
    made.set(budget={"allow_unpriced": True, "approve_above": "1.00"})


def is_after_a_pilot(made: Project) -> None:
    made.set(budget={"pilot": 2})
    made.run(watcher=Person(says=None))


REASONS = {
    Reason.PRICE: is_dear,
    Reason.RATE: has_new_rates,
    Reason.CHARGES: is_charged_more,
    Reason.REPEATS: repeats,
    Reason.GUESSES: is_guessed,
    Reason.UNCLEAR: has_a_cell_of_rows,
    Reason.UNPRICED: has_no_price,
    Reason.PILOT: is_after_a_pilot,
}


@pytest.mark.parametrize("reason", REASONS, ids=str)
def test_what_is_asked_is_not_bought_before_a_yes_to_just_that(project: Make, reason: Reason) -> None:
    """After silence, after a no, beside another run, and when there is more to buy meanwhile."""
    made = project(images(6))
    made.set(limits={"concurrency": 1})
    REASONS[reason](made)
    sold = len(made.sold)
    for says in (None, False, None):
        person = Person(says=says)
        assert made.run(watcher=person).stop_reason in ("approval", "price")
        assert [asked.word.about[0] for asked in person.asked] == [reason]
    beside: list[Summary] = []

    class Beside(Person):
        async def approves(self, asked: Asked) -> bool | None:
            thread = threading.Thread(target=lambda: beside.append(made.run(watcher=Person(says=None))))
            thread.start()
            await asyncio.to_thread(thread.join)
            return await super().approves(asked)

    made.run(watcher=Beside(says=None))
    assert (beside[0].submissions, len(made.sold)) == (0, sold)
    done = made.run(approved=True)
    assert (done.outcome, len(made.sold) - sold) == ("complete", done.submissions)
    again = Person(says=None)
    assert (made.run(watcher=again).submissions, again.asked) == (0, []), "nothing is left to ask about"


@pytest.mark.parametrize("says", [None, False])
def test_a_run_of_a_crew_buys_nothing_of_a_plan_that_has_only_a_question(
    project: Make, says: bool | None
) -> None:
    made = project(images(2))
    made.set(budget={"approve_above": "0"})
    assert made.run(watcher=Person(says=says)).stop_reason == "approval"
    with pytest.raises(ApprovalNeeded, match="nobody has approved this plan"):
        asyncio.run(batch.generate(load(made.config), approved=False, plan=made.quote().plan.sha256()))
    assert not made.sold
