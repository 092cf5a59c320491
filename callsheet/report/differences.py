"""Why the service's account of a day differs from the ledger's: the most likely name for each part of it.

Pure: it gets both accounts, and looks at no clock. A name is a guess from what the interface says (INTERFACE
4.7): figures lag, every key of the project is in them, and a charge near midnight may be on either day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise

from callsheet.ledger.spending import Spending
from callsheet.records import dollars
from callsheet.report.doubt_evidence import JudgedDoubt, OpenDoubt, judge

NEXT_DAY, OF_DAY_BEFORE = "posted on the next day", "posted for the day before"
DAY_BEFORE, OF_NEXT_DAY = "posted on the day before", "posted for the next day"
NOT_YET = "not yet posted"
OTHER_KEY = "another key's spending"
LESS = "charged less than answered, or bought with another project's key"
SURCHARGE = "surcharge over the quote"

LAG = timedelta(days=2)
"""How long after its end a day may still be incomplete. The interface gives no figure."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a day's difference: its name, and how much it is in dollars, without a sign."""

    name: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Day:
    """One UTC day in three books. Money is in dollars.

    Attributes:
        quoted: the quotes of what was sent and not refused.
        usage: what the service answered that it costs.
        billed: what the service's account has for the day.
        other_batches: the part of `usage` that is of other batches of the ledger.
        parts: the names of the difference, and of a surcharge, which is no part of it.
        unexplained: the part of the difference that nothing in the ledger explains, without a sign.
        partial: the day is not over.
    """

    date: date
    quoted: Decimal
    usage: Decimal
    billed: Decimal
    other_batches: Decimal
    parts: tuple[Part, ...]
    unexplained: Decimal
    partial: bool

    @property
    def difference(self) -> Decimal:
        """How much more the service's account has than the ledger."""
        return self.billed - self.usage

    @property
    def reason(self) -> str:
        """The names of the difference with their amounts; empty where there is none."""
        return "; ".join(f"{part.name} {dollars(part.amount)}" for part in self.parts)


class _Rest:
    """What is left of each day's difference while it is being explained."""

    def __init__(self, differences: Mapping[date, Decimal]) -> None:
        self.of = dict(differences)
        self.parts: dict[date, list[Part]] = {day: [] for day in differences}

    def explain(self, day: date, name: str, amount: Decimal) -> None:
        """Takes an amount off what is left of the day, on whichever side that is."""
        if amount > 0:
            self.of[day] -= amount if self.of[day] > 0 else -amount
            self.parts[day].append(Part(name, amount))


def compare(
    billed: Mapping[date, Decimal],
    spending: Mapping[date, Spending],
    doubts: Sequence[OpenDoubt],
    now: datetime,
) -> tuple[list[Day], list[JudgedDoubt]]:
    """Puts the two accounts side by side, and names the differences.

    Args:
        billed: the service's account, for every UTC day of a range.
        spending: the ledger's; days without spending may be missing.
        doubts: what was sent on these days, and nobody knows whether it was accepted.
        now: when the accounts were read.

    Returns:
        The days in order, and the doubts with what the accounts say about them.
    """
    days = sorted(billed)
    own = {day: spending.get(day, Spending()) for day in days}
    rest = _Rest({day: billed[day] - own[day].usage for day in days})
    _across_midnight(rest, own)
    in_flight = {day: own[day].in_flight for day in days}
    complete = {day for day in days if not _may_be_incomplete(day, now)}
    judged, explained = judge(rest.of, in_flight, complete, doubts)
    for day, name, amount in explained:
        rest.explain(day, name, amount)
    for day in days:
        if _may_be_incomplete(day, now):
            rest.explain(day, NOT_YET, -rest.of[day])
    return [_day(day, billed[day], own[day], rest, now) for day in days], judged


def _across_midnight(rest: _Rest, own: Mapping[date, Spending]) -> None:
    """Opposite differences of neighbouring days, as far as what was sent near midnight explains them."""
    for day, following in pairwise(sorted(own)):
        late = min(-rest.of[day], rest.of[following], own[day].late)
        rest.explain(day, NEXT_DAY, late)
        rest.explain(following, OF_DAY_BEFORE, late)
        early = min(rest.of[day], -rest.of[following], own[following].early)
        rest.explain(following, DAY_BEFORE, early)
        rest.explain(day, OF_NEXT_DAY, early)


def _may_be_incomplete(day: date, now: datetime) -> bool:
    return now < datetime.combine(day, time.min, UTC) + timedelta(days=1) + LAG


def _day(day: date, billed: Decimal, own: Spending, rest: _Rest, now: datetime) -> Day:
    left = rest.of[day]
    rest.explain(day, OTHER_KEY if left > 0 else LESS, abs(left))
    if own.surcharge:
        rest.parts[day].append(Part(SURCHARGE, own.surcharge))
    return Day(
        date=day,
        quoted=own.quoted,
        usage=own.usage,
        billed=billed,
        other_batches=own.other_batches,
        parts=tuple(rest.parts[day]),
        unexplained=abs(left),
        partial=day == now.astimezone(UTC).date(),
    )
