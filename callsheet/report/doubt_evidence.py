"""What a day's difference says about its doubts: whether they were charged.

It is evidence and no proof: another key may have spent the same amount. It settles nothing; a person does
(`callsheet resolve`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import islice

from callsheet.records import Doubt

IN_FLIGHT = "charged, and not answered yet"
CHARGED = "doubts that were charged"
MAYBE_CHARGED = "doubts that may have been charged"

_LATE = time(23, 50)  # what is sent later may be charged on the next day
_STEPS = 20_000  # of one search for the doubts that a difference is made of
_PRICES = 100  # different ones, among which it is searched


class Verdict(StrEnum):
    """What the service's account says about a doubt."""

    CHARGED = "charged"
    NOT_CHARGED = "not charged"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class OpenDoubt:
    """An attempt in doubt, and its batch."""

    batch: str
    doubt: Doubt

    @property
    def day(self) -> date:
        """The UTC day on which it was sent."""
        return self.doubt.submitted_at.date()

    @property
    def price(self) -> Decimal:
        """What it cost if it was charged, in dollars; zero where that is not known."""
        return self.doubt.price or Decimal(0)

    @property
    def key(self) -> tuple[str, int]:
        """Which attempt it is."""
        return self.doubt.job_key, self.doubt.attempt


@dataclass(frozen=True, slots=True)
class JudgedDoubt:
    """A doubt, and what the service's account says about it."""

    open: OpenDoubt
    verdict: Verdict


def judge(
    rest: Mapping[date, Decimal],
    in_flight: Mapping[date, Decimal],
    complete: Collection[date],
    doubts: Sequence[OpenDoubt],
) -> tuple[list[JudgedDoubt], list[tuple[date, str, Decimal]]]:
    """Compares doubts with what is not explained of each day.

    Args:
        rest: by day, how much more the service's account has than the ledger, in dollars.
        in_flight: the price of what was sent on each of these days and will be answered yet, in dollars. It
            may be charged on that day or on a later one.
        complete: the days whose figures do not lag any more.
        doubts: what is in doubt.

    Returns:
        The same doubts, each with a verdict; and the day, the name and the amount of each difference that
        doubts, or what is in flight, explain.
    """
    by_day: defaultdict[date, list[OpenDoubt]] = defaultdict(list)
    for doubt in doubts:
        by_day[doubt.day].append(doubt)
    verdicts: dict[tuple[str, int], Verdict] = {}
    explained = []
    unanswered = Decimal(0)
    for day in sorted(rest):
        unanswered += in_flight[day]
        late = [doubt for doubt in by_day[day - timedelta(days=1)] if _may_be_charged_later(doubt, verdicts)]
        judged, name, amount = _judge_day(
            rest[day], late + by_day[day], complete=day in complete, alone=not unanswered
        )
        if amount:
            explained.append((day, name, amount))
        charged = min(rest[day] - amount, unanswered)
        if charged > 0:
            explained.append((day, IN_FLIGHT, charged))
            unanswered -= charged
        for key, verdict in judged:
            agrees = verdict in (verdicts.get(key, verdict), Verdict.CHARGED)
            verdicts[key] = verdict if agrees else Verdict.UNCLEAR
    found = [JudgedDoubt(doubt, verdicts.get(doubt.key, Verdict.UNCLEAR)) for doubt in doubts]
    return _one_verdict_for_a_job(found), explained


def _may_be_charged_later(doubt: OpenDoubt, verdicts: Mapping[tuple[str, int], Verdict]) -> bool:
    """Whether a doubt may have been charged on the day after it was sent."""
    was_charged = verdicts.get(doubt.key) is Verdict.CHARGED
    return doubt.doubt.submitted_at.time() >= _LATE and not was_charged


def _judge_day(
    rest: Decimal, doubts: Sequence[OpenDoubt], *, complete: bool, alone: bool
) -> tuple[list[tuple[tuple[str, int], Verdict]], str, Decimal]:
    """A verdict for each of a day's doubts; and how much of `rest` they explain, with its name.

    Only where they are alone, because what is in flight may have been charged in their place.
    """
    left = Verdict.NOT_CHARGED if complete and rest >= 0 else Verdict.UNCLEAR
    if rest <= 0 or not doubts:
        return [(doubt.key, left) for doubt in doubts], "", Decimal(0)
    priced = Counter(doubt.price for doubt in doubts if doubt.price)
    ways, searched = _ways(priced, rest)
    amount = rest if ways else _at_most(priced, rest)
    if not (alone and searched and len(ways) == 1 and priced.total() == len(doubts)):
        return [(doubt.key, Verdict.UNCLEAR) for doubt in doubts], MAYBE_CHARGED, amount
    charged = ways[0]
    judged = []
    for doubt in doubts:
        judged.append((doubt.key, Verdict.CHARGED if charged[doubt.price] > 0 else left))
        charged[doubt.price] -= 1
    return judged, CHARGED, amount


def _one_verdict_for_a_job(judged: Sequence[JudgedDoubt]) -> list[JudgedDoubt]:
    """Attempts at one job are settled together: different verdicts about them are none."""
    verdicts: defaultdict[str, set[Verdict]] = defaultdict(set)
    for each in judged:
        verdicts[each.open.doubt.job_key].add(each.verdict)
    return [
        each if len(verdicts[each.open.doubt.job_key]) == 1 else replace(each, verdict=Verdict.UNCLEAR)
        for each in judged
    ]


def _ways(prices: Counter[Decimal], target: Decimal) -> tuple[list[Counter[Decimal]], bool]:
    """How many doubts of each price add up to `target`: two ways at most, and whether there are no others."""
    if sum(price * count for price, count in prices.items()) == target:
        return [Counter(prices)], True
    if len(prices) > _PRICES:
        return [], False
    ordered = sorted(prices.items(), reverse=True)
    steps = iter(range(_STEPS))
    ways = list(islice(_search(ordered, target, steps), 2))
    return ways, next(steps, None) is not None


def _search(
    prices: Sequence[tuple[Decimal, int]], target: Decimal, steps: Iterator[int]
) -> Iterator[Counter[Decimal]]:
    if not target:
        yield Counter()
        return
    if not prices or sum(price * count for price, count in prices) < target:
        return
    price, count = prices[0]
    for taken in range(min(count, int(target // price)), -1, -1):
        if next(steps, None) is None:
            return
        for others in _search(prices[1:], target - taken * price, steps):
            yield others + Counter({price: taken})


def _at_most(prices: Counter[Decimal], limit: Decimal) -> Decimal:
    """The sum of as many doubts as fit below a limit, the most expensive first."""
    total = Decimal(0)
    for price, count in sorted(prices.items(), reverse=True):
        total += price * min(count, int((limit - total) // price))
    return total
