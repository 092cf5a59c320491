"""What is said in the morning of all batches of a ledger: what was bought, and what waits for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from callsheet.ledger.spending import Bought
from callsheet.plain_text import counted
from callsheet.present import amounts
from callsheet.present.page import Facts, Line, Link, Listed, Page, Table
from callsheet.present.status import counts
from callsheet.records import State, Totals, dollars


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The runs that are scheduled for the next day, and what they may cost, by what their deployments' last
    runs have cost.
    """

    runs: int = 0
    cost: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Morning:
    """What the page is made of.

    Attributes:
        batches: every batch of the project's ledgers.
        bought: what each of them has bought in the last day, where that is anything.
        pages: of a batch, the page of the last run.
        waiting: the runs that wait for a person.
        failed: the runs of the last day that ended red.
        spent_today: what was sent since the UTC day began, over the whole ledger of the run.
        spent_elsewhere: the same, over the project's other ledgers.
        per_day: the day's limit, `budget.per_day`; None without one.
        balance: what the workspace has; None where the service has not said it.
        near: the limits that are nearly used up, each in words.
        scheduled: what comes in the next day.
    """

    batches: Mapping[str, Totals]
    bought: Mapping[str, Bought]
    pages: Mapping[str, str]
    waiting: Sequence[Link]
    failed: Sequence[Link]
    spent_today: Decimal
    spent_elsewhere: Decimal
    per_day: Decimal | None
    balance: Decimal | None
    near: Sequence[str] = ()
    scheduled: Scheduled = Scheduled()

    @property
    def low_balance(self) -> str:
        """That the balance is below what comes in the next day, in words; empty where it is not."""
        if self.balance is None or self.balance >= self.scheduled.cost:
            return ""
        return (
            f"the balance of {dollars(self.balance)} USD is below what is scheduled for the next day: "
            f"{_scheduled(self.scheduled)}"
        )

    @property
    def in_doubt(self) -> dict[str, Totals]:
        """The batches with jobs in doubt."""
        return {batch: totals for batch, totals in self.batches.items() if totals.states.get(State.IN_DOUBT)}


def line(morning: Morning) -> str:
    """The morning in one line: `3 bought, 0.1200 USD; 1 in doubt; 2 runs wait for a person`."""
    bought = sum(each.jobs for each in morning.bought.values())
    cost = sum((each.cost for each in morning.bought.values()), Decimal(0))
    doubts = sum(totals.states[State.IN_DOUBT] for totals in morning.in_doubt.values())
    waiting = len(morning.waiting)
    parts = [
        amounts.bought(bought, cost),
        f"{doubts:,} in doubt" if doubts else "",
        f"{counted(waiting, 'run')} {'waits' if waiting == 1 else 'wait'} for a person" if waiting else "",
        f"{counted(len(morning.failed), 'run')} ended red" if morning.failed else "",
    ]
    return "; ".join(filter(None, parts))


def document(morning: Morning) -> Page:
    """What a person has to do first, then the money, then each batch."""
    limit = ", without a limit" if morning.per_day is None else ""
    elsewhere = morning.spent_elsewhere
    balance = "the service has not said it" if morning.balance is None else f"{dollars(morning.balance)} USD"
    return [
        Line(strong=line(morning), level=1),
        Listed("Waits for a person", morning.waiting),
        Listed("In doubt", [_doubts(batch, totals, morning) for batch, totals in morning.in_doubt.items()]),
        Listed("Ended red in the last day", morning.failed),
        Listed("Nearly used up", [*morning.near, *filter(None, [morning.low_balance])]),
        Line(strong="Money", level=2),
        Facts(
            [
                ("Used today", f"{amounts.of_limit(morning.spent_today, morning.per_day)}{limit}"),
                *([("Used today of other ledgers", f"{dollars(elsewhere)} USD")] if elsewhere else []),
                ("Balance", balance),
                *([("Scheduled", _scheduled(morning.scheduled))] if morning.scheduled.runs else []),
            ],
            indent=0,
        ),
        Table([_batch(batch, totals, morning) for batch, totals in morning.batches.items()], ("batch",)),
    ]


def _scheduled(scheduled: Scheduled) -> str:
    return f"{counted(scheduled.runs, 'run')}, about {dollars(scheduled.cost)} USD by the last ones"


def _doubts(batch: str, totals: Totals, morning: Morning) -> str | Link:
    exposure = amounts.at_most(totals.in_doubt_exposure)
    words = f"{batch}: {totals.states[State.IN_DOUBT]:,}, {exposure}"
    return Link(words, morning.pages[batch]) if batch in morning.pages else words


def _batch(batch: str, totals: Totals, morning: Morning) -> dict[str, str]:
    bought = morning.bought.get(batch)
    tonight = amounts.bought(bought.jobs, bought.cost) if bought else amounts.NOTHING_BOUGHT
    return {
        "batch": batch,
        "in the last day": tonight,
        "now": counts({state: totals.states.get(state, 0) for state in State}),
        "USD spent": dollars(totals.spent),
    }
