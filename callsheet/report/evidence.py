"""What the service's balance and daily costs say of doubts, next to what the ledger has spent there.

`fitting` is pure: which of the doubts add up to what is gone. The rest reads the ledger and asks the service.
Nothing is decided or settled here: balance and costs are the whole workspace's, so they are evidence and not
proof.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from callsheet.errors import CallsheetError
from callsheet.ledger import spending
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.spending import Spending
from callsheet.plain_text import and_more, row_name
from callsheet.records import Doubt, ExpectedBalance, dollars
from callsheet.service.client import Client

UNCERTAIN = "Other buyers in this workspace, and late costs, make these figures less certain."
_MICRO = Decimal("0.000001")
_SUMS, _ROWS = 3, 10  # that are named
_MOST_PARTS = 4_000_000
"""How many times its smallest part an amount may be, to be looked through: half a megabyte for each price."""


def fitting(doubts: Sequence[Doubt], missing: Decimal, *, most: int = 4) -> list[tuple[Doubt, ...]] | None:
    """The sums of doubts that are an amount: which of them may have been charged, where so much is gone.

    A job is charged or not as a whole, with all its attempts, because they are settled together. Of jobs of
    one price it does not matter which: a sum has the first of them, and no other sum differs from it only in
    that. So a single sum is a finding, and several are what it could be.

    Args:
        doubts: all that is in doubt; in any number.
        missing: the amount, in dollars.
        most: so many sums at the most.

    Returns:
        Each sum as its doubts, in the order of `doubts`; the empty one where nothing is missing, and no sum
        where none fits. None where that is not known: a doubt has no price, or the amount is too large to be
        looked through in its smallest parts.
    """
    if any(doubt.price is None for doubt in doubts):
        return None
    of_price: defaultdict[int, list[str]] = defaultdict(list)
    for key, price in _prices(doubts).items():
        of_price[int(price / _MICRO)].append(key)
    of_price.pop(0, None)
    part = math.gcd(*of_price)
    amount, rest = divmod(int(missing / _MICRO), part) if part else (0, int(missing / _MICRO))
    if rest or amount < 0:
        return []
    if amount > _MOST_PARTS:
        return None
    prices = sorted(of_price, reverse=True)
    counts = _counts([(price // part, len(of_price[price])) for price in prices], amount)
    sums = []
    for _, taken in zip(range(most), counts, strict=False):
        keys = {key for price, count in zip(prices, taken, strict=True) for key in of_price[price][:count]}
        sums.append(tuple(doubt for doubt in doubts if doubt.job_key in keys))
    return sums


def _prices(doubts: Sequence[Doubt]) -> dict[str, Decimal]:
    """By job, in order, the price of all its attempts that are in doubt."""
    prices: defaultdict[str, Decimal] = defaultdict(Decimal)
    for doubt in doubts:
        prices[doubt.job_key] += doubt.price or 0
    return prices


def _counts(prices: Sequence[tuple[int, int]], amount: int) -> Iterator[list[int]]:
    """How many of each price add up to an amount, in every way; of each price there are so many."""
    below = [1]  # for the prices from the last one on: bit n is set where they can be n
    for price, count in reversed(prices):
        sums, left, step = below[-1], count, 1
        while left:  # 1, 2, 4 ... of them, and the rest: together any number up to all
            step = min(step, left)
            sums |= (sums << price * step) & ((1 << amount + 1) - 1)
            left, step = left - step, 2 * step
        below.append(sums)
    below.reverse()

    def ways(place: int, rest: int) -> Iterator[list[int]]:
        if place == len(prices):
            yield []
            return
        price, count = prices[place]
        for taken in range(min(count, rest // price), -1, -1):
            if below[place + 1] >> rest - taken * price & 1:
                for others in ways(place + 1, rest - taken * price):
                    yield [taken, *others]

    if below[0] >> amount & 1:
        yield from ways(0, amount)


@dataclass(frozen=True)
class Evidence:
    """What may show whether doubts were charged. Other users of the workspace and late entries distort it.

    Attributes:
        expected: what the ledger expects of the balance; None where no run before the doubts knew it.
        balance: what the workspace has now, in dollars.
        days: the UTC days on which the doubts were sent, each with its cost in dollars by the service and by
            the ledger.
        missing: why the service cannot be asked: there is no balance then, and no day.
        doubts: what the evidence is about.
    """

    expected: ExpectedBalance | None
    balance: Decimal | None
    days: tuple[tuple[date, Decimal, Decimal], ...]
    missing: str | None
    doubts: Sequence[Doubt] = ()

    @cached_property
    def fits(self) -> list[tuple[Doubt, ...]] | None:
        """The sums of the doubts that are gone (`fitting`).

        None where that cannot be said, because something is in flight or other batches have doubts, too.
        """
        expected = self.expected
        if expected is None or self.gone is None or expected.in_flight:
            return None
        own = sum(_prices(self.doubts).values(), Decimal(0))
        return fitting(self.doubts, self.gone) if expected.in_doubt == own else None

    @property
    def charged(self) -> tuple[Doubt, ...] | None:
        """The doubts that seem to have been charged, where one sum alone fits; the others were not then.

        Of jobs of one price it may as well be others, as many.
        """
        return self.fits[0] if self.fits and len(self.fits) == 1 else None

    @property
    def gone(self) -> Decimal | None:
        """How much less the workspace has than the ledger expects, in dollars."""
        if self.expected is None or self.balance is None:
            return None
        return self.expected.balance_now - self.balance

    def facts(self) -> Iterator[tuple[str, str]]:
        """The evidence in words: what it is about, and what it says."""
        expected = self.expected
        if expected:
            spent = f"{dollars(expected.spent_since)} USD spent since then, by the ledger"
            then = f"{dollars(expected.balance_then)} USD on {expected.since:%Y-%m-%d %H:%M:%S} UTC"
            yield "Expected", f"{dollars(expected.balance_now)} USD: {then}, less {spent}"
        else:
            yield "Expected", "unknown: no run before these doubts read the balance"
        if self.missing:
            yield "Balance", f"this evidence is missing: {self.missing}"
        elif self.balance is not None:
            yield "Balance", f"{dollars(self.balance)} USD now"
        if expected and self.gone is not None:
            in_doubt = f"; in doubt since then: {dollars(expected.in_doubt)} USD"
            in_flight = f"; in flight now: {dollars(expected.in_flight)} USD" if expected.in_flight else ""
            more = f"nothing: there are {dollars(-self.gone)} USD more, so money was paid in{in_doubt}"
            less = f"{dollars(self.gone)} USD more than the ledger has{in_doubt}{in_flight}"
            yield "Gone", more if self.gone < 0 else less
        for day, service, ledger in self.days:
            yield f"{day}", f"{dollars(service)} USD by the service, {dollars(ledger)} by the ledger"
        if said := self._in_words():
            yield "So", said

    def _in_words(self) -> str:
        """What follows, where the figures are plain; empty where they are not."""
        if self.expected is None or self.gone is None or self.gone < 0 or self.expected.in_flight:
            return ""
        gone = f"{dollars(self.gone)} USD"
        sums = [self._sum_in_words(each) for each in self.fits or ()]
        if self.gone == self.expected.in_doubt:
            said = "exactly what is in doubt is gone: all of it seems to have been charged"
        elif not self.gone:
            said = "nothing is gone: none of it seems to have been charged"
        elif len(sums) > 1:
            more = "; or others" if len(sums) > _SUMS else ""
            said = f"{gone} may be {'; or '.join(sums[:_SUMS])}{more}"
        elif sums:
            said = f"{sums[0]}: {gone}. They seem to have been charged, and the others not"
        elif self.fits is not None:
            said = f"no sum of these prices is {gone}: others have bought, or costs are late"
        else:
            said = ""
        return said

    def _sum_in_words(self, these: Sequence[Doubt]) -> str:
        """A sum of doubts: which rows, or how many of which price."""
        prices, taken = _prices(self.doubts), _prices(these)
        names = {one.job_key: row_name(one.row_id, one.sample) for one in these}
        said = []
        for price in dict.fromkeys(taken.values()):
            rows = [names[key] for key, own in taken.items() if own == price]
            there = sum(own == price for own in prices.values())
            if len(rows) == there:
                said.append(f"row {and_more(rows[:_ROWS], len(rows))}")
            else:
                said.append(f"any {len(rows):,} of the {there:,} at {dollars(price)}")
        return " and ".join(said)

    def as_json(self) -> dict[str, Any]:
        """What `resolve --json` prints as `evidence`; money is a string."""
        expected = self.expected
        amounts: dict[str, Any] = {
            "balance_then": expected and expected.balance_then,
            "spent_since": expected and expected.spent_since,
            "balance_expected": expected and expected.balance_now,
            "balance": self.balance,
            "gone": self.gone,
            "in_doubt_since": expected and expected.in_doubt,
            "in_flight": expected and expected.in_flight,
        }
        return {
            "since": expected and expected.since.isoformat(),
            **{name: None if amount is None else dollars(amount) for name, amount in amounts.items()},
            "days": [
                {"date": day.isoformat(), "service": dollars(service), "ledger": dollars(ledger)}
                for day, service, ledger in self.days
            ],
            "missing": self.missing,
            "fits": self.fits and [list(dict.fromkeys(one.job_key for one in each)) for each in self.fits],
        }


async def gather(
    ledger: Ledger, doubts: Sequence[Doubt], connect: Callable[[], Awaitable[Client]]
) -> Evidence:
    """Compares the service's account with the ledger, of which all batches of the same service count, because
    the balance is the workspace's. There is at least one doubt.

    `connect` makes the service's client. Where that fails, or the service, or where it is not the service
    that the batch belongs to, the evidence says why.
    """
    sent = [doubt.submitted_at for doubt in doubts]
    first, last = min(sent), max(sent)
    balance, billed, missing = None, {}, None
    try:
        async with await connect() as client:
            await ledger.read(spending.check, client.base_url)
            balance = await client.balance()
            end = min(datetime.now(UTC), datetime.combine(last.date(), time.max, UTC))
            billed = await client.daily_costs(datetime.combine(first.date(), time.min, UTC), end)
    except CallsheetError as error:
        missing = error.message

    def read(connection: sa.Connection, batch: str) -> tuple[ExpectedBalance | None, dict[date, Spending]]:
        service = spending.of_batch(connection, batch)
        return spending.expected_balance(connection, batch, first), (
            spending.days(connection, batch, service, first.date(), last.date()) if service else {}
        )

    expected, own = await ledger.read(read)
    wanted = sorted({moment.date() for moment in sent} & billed.keys())
    days = ((day, billed[day], own.get(day, Spending()).usage) for day in wanted)
    return Evidence(expected, balance, tuple(days), missing, doubts)
