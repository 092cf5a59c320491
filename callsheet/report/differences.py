"""The service's account of each day beside the ledger's: the difference, and what of it is certain.

Pure: it gets both accounts, and looks at no clock. The service's figures lag, every key of the project is in
them, and a charge near midnight may be on either day (INTERFACE 4.7). So a difference is compared with what
the ledger knows to be open at that time; what is beyond that is unexplained. Nothing is guessed, and nothing
is settled: a person does that (`callsheet resolve`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum

from callsheet.ledger.spending import Spending
from callsheet.records import Doubt, dollars

LAG = timedelta(days=2)
"""How long after its end a day may still be incomplete. The interface gives no figure."""

_DAY = timedelta(days=1)
_NOTHING = Decimal(0)


class Judgement(StrEnum):
    """What the service's account says about a doubt."""

    CHARGED = "charged"
    NOT_CHARGED = "not charged"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class OpenDoubt:
    """An attempt in doubt, its batch, and what the service's account says about it."""

    batch: str
    doubt: Doubt
    verdict: Judgement = Judgement.UNCLEAR

    @property
    def day(self) -> date:
        """The UTC day on which it was sent."""
        return self.doubt.submitted_at.date()


@dataclass(frozen=True, slots=True)
class Day:
    """One UTC day in the accounts. Money is in dollars.

    Attributes:
        quoted: the quotes of what was sent and not refused.
        usage: what the service answered that it costs.
        in_doubt: the quotes of what was sent, and nobody knows whether it was accepted.
        billed: what the service's account has for the day.
        other_batches: the part of `usage` that is of other batches of the ledger.
        reason: the names of the difference, with amounts; then a surcharge, and costs without the service's
            word, which are no parts of it. Empty where there are none.
        unexplained: the part of the difference that is beyond everything that is open, without a sign.
        partial: the day is not over.
    """

    date: date
    quoted: Decimal
    usage: Decimal
    in_doubt: Decimal
    billed: Decimal
    other_batches: Decimal
    reason: str
    unexplained: Decimal
    partial: bool

    @property
    def difference(self) -> Decimal:
        """How much more the service's account has than the ledger."""
        return self.billed - self.usage


def compare(
    billed: Mapping[date, Decimal],
    spending: Mapping[date, Spending],
    doubts: Sequence[OpenDoubt],
    now: datetime,
) -> tuple[list[Day], list[OpenDoubt]]:
    """Puts the two accounts side by side, as they were read at `now`.

    Args:
        billed: the service's account, for every UTC day of a range.
        spending: the ledger's; days without spending may be missing.
        doubts: what was sent on these days, and nobody knows whether it was accepted.

    Returns:
        The days in order, and the doubts with their verdicts.
    """
    accounts = _Accounts(billed, spending, doubts, now)
    verdicts = {day: accounts.verdict(day) for day in billed}
    days = [accounts.day(day, verdicts) for day in sorted(billed)]
    of_job: defaultdict[str, set[Judgement]] = defaultdict(set)
    for each in doubts:
        of_job[each.doubt.job_key].add(verdicts[each.day])
    # Attempts at one job are settled together: different verdicts about them are none.
    together = {job: found.pop() if len(found) == 1 else Judgement.UNCLEAR for job, found in of_job.items()}
    return days, [replace(each, verdict=together[each.doubt.job_key]) for each in doubts]


class _Accounts:
    """Both accounts of a range of days; the arguments are those of `compare`."""

    def __init__(
        self,
        billed: Mapping[date, Decimal],
        spending: Mapping[date, Spending],
        doubts: Sequence[OpenDoubt],
        now: datetime,
    ) -> None:
        self._now, self._billed = now, billed
        self._own = defaultdict(Spending, spending)
        self._in_doubt: defaultdict[date, Decimal] = defaultdict(Decimal)
        for each in doubts:
            self._in_doubt[each.day] += each.doubt.price or 0
        self._unpriced = {each.day for each in doubts if not each.doubt.price}

    def _difference(self, day: date) -> Decimal:
        return self._billed[day] - self._own[day].usage if day in self._billed else _NOTHING

    def _lags(self, day: date) -> bool:
        """Whether the service's figures of a day may still be incomplete."""
        return self._now < datetime.combine(day, time.min, UTC) + _DAY + LAG

    def verdict(self, day: date) -> Judgement:
        """What is certain of a day's doubts: of all of them, or of none.

        Not charged: there is no difference on the day and on those beside it, and none can come any more.
        Charged: the difference is the price of all of them, nothing in flight can be charged in their place,
        and the days beside it are as clear. What is charged near midnight may be on either day.
        """
        days = (day - _DAY, day, day + _DAY)
        if not any(map(self._difference, days)):
            return Judgement.UNCLEAR if self._lags(day + _DAY) else Judgement.NOT_CHARGED
        exact = all(self._difference(each) == self._in_doubt[each] for each in days)
        in_flight = any(own.in_flight for sent, own in self._own.items() if sent <= day + _DAY)
        if exact and not in_flight and not self._unpriced & {*days}:
            return Judgement.CHARGED
        return Judgement.UNCLEAR

    def day(self, day: date, verdicts: Mapping[date, Judgement]) -> Day:
        """The day, with the names of its difference."""
        own, rest = self._own[day], abs(self._difference(day))
        before, after = self._own[day - _DAY], self._own[day + _DAY]
        if self._difference(day) > 0:
            charged = verdicts[day] is Judgement.CHARGED
            doubts = [each for each in (day - _DAY, day) if verdicts.get(each) is not Judgement.CHARGED]
            open_ = sum((self._in_doubt[each] for each in doubts), before.in_flight + own.in_flight)
            known = {
                "doubts that were charged": self._in_doubt[day] if charged else _NOTHING,
                "sent near midnight": before.late + after.early,
                "in doubt or in flight": open_,
            }
        else:
            known = {
                "not yet posted": rest if self._lags(day) else _NOTHING,
                "sent near midnight": own.late + own.early,
            }
        names = {}
        for name, most in known.items():
            names[name] = min(rest, most)
            rest -= names[name]
        names |= {
            "unexplained": rest,
            "surcharge over the quote": own.surcharge,
            "costs without the service's word": own.estimated,
        }
        return Day(
            date=day,
            quoted=own.quoted,
            usage=own.usage,
            in_doubt=self._in_doubt[day],
            billed=self._billed[day],
            other_batches=own.other_batches,
            reason="; ".join(f"{name} {dollars(amount)}" for name, amount in names.items() if amount),
            unexplained=rest,
            partial=day == self._now.astimezone(UTC).date(),
        )
