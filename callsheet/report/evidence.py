"""What the service's balance and daily costs say of doubts, next to what the ledger has spent there.

Nothing is decided or settled here: balance and costs are the whole workspace's, so they are evidence and not
proof.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from callsheet.errors import CallsheetError
from callsheet.ledger import services, spending
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.spending import Spending
from callsheet.plain_text import row_name
from callsheet.records import Doubt, ExpectedBalance, dollars
from callsheet.service.client import Client

UNCERTAIN = "Other buyers in this workspace, and late costs, make these figures less certain."


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
    def charged(self) -> list[Doubt] | None:
        """The doubts that seem to have been charged, where the figures are plain; the others were not then.

        They are plain where nothing is gone, what all jobs cost, or what exactly one of them costs. A job is
        charged or not as a whole, with all its attempts, because they are settled together.

        None where they are not plain: anything else is gone, something is in flight, a doubt has no price, or
        other batches have doubts, too.
        """
        expected, shortfall = self.expected, self.gone
        if expected is None or shortfall is None or expected.in_flight:
            return None
        prices: defaultdict[str, Decimal] = defaultdict(Decimal)
        for doubt in self.doubts:
            prices[doubt.job_key] += doubt.price or 0
        have_prices = all(doubt.price is not None for doubt in self.doubts)
        if not have_prices or expected.in_doubt != sum(prices.values()):
            return None
        if shortfall in (0, expected.in_doubt):
            return list(self.doubts) if shortfall else []
        jobs = [job for job, price in prices.items() if price == shortfall]
        cheaper = sum(price for price in prices.values() if price < shortfall)
        if len(jobs) != 1 or cheaper >= shortfall:  # several of the cheaper jobs may come to the same
            return None
        return [doubt for doubt in self.doubts if doubt.job_key in jobs]

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
            balance_then = f"{dollars(expected.balance_then)} USD on {expected.since:%Y-%m-%d %H:%M:%S} UTC"
            yield "Expected", f"{dollars(expected.balance_now)} USD: {balance_then}, less {spent}"
        else:
            yield "Expected", "unknown: no run before these doubts read the balance"
        if self.missing:
            yield "Balance", f"this evidence is missing: {self.missing}"
        elif self.balance is not None:
            yield "Balance", f"{dollars(self.balance)} USD now"
        if expected and self.gone is not None:
            in_doubt = f"; in doubt since then: {dollars(expected.in_doubt)} USD"
            in_flight = f"; in flight now: {dollars(expected.in_flight)} USD" if expected.in_flight else ""
            surplus = f"nothing: there are {dollars(-self.gone)} USD more, so money was paid in{in_doubt}"
            shortfall = f"{dollars(self.gone)} USD more than the ledger has{in_doubt}{in_flight}"
            yield "Gone", surplus if self.gone < 0 else shortfall
        for day, service, ledger in self.days:
            yield f"{day}", f"{dollars(service)} USD by the service, {dollars(ledger)} by the ledger"
        if conclusion := self._in_words():
            yield "So", conclusion

    def _in_words(self) -> str:
        """What follows from the figures; empty where nothing can yet."""
        if self.expected is None or self.gone is None or self.gone < 0 or self.expected.in_flight:
            return ""
        if not self.gone:
            return "nothing is gone: none of it seems to have been charged"
        if self.gone == self.expected.in_doubt:
            return "exactly what is in doubt is gone: all of it seems to have been charged"
        amount = f"{dollars(self.gone)} USD"
        if self.charged:
            row = row_name(self.charged[0].row_id, self.charged[0].sample)
            return f"row {row}: {amount}. It seems to have been charged, and the others not"
        return f"it is not plain which jobs are {amount}: nothing is proposed"

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
        charged = None if self.charged is None else dict.fromkeys(doubt.job_key for doubt in self.charged)
        return {
            "since": expected and expected.since.isoformat(),
            **{name: None if amount is None else dollars(amount) for name, amount in amounts.items()},
            "days": [
                {"date": day.isoformat(), "service": dollars(service), "ledger": dollars(ledger)}
                for day, service, ledger in self.days
            ],
            "missing": self.missing,
            "fits": None if charged is None else [list(charged)],
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
            await ledger.read(services.check, client.base_url)
            balance = await client.balance()
            end = min(datetime.now(UTC), datetime.combine(last.date(), time.max, UTC))
            billed = await client.daily_costs(datetime.combine(first.date(), time.min, UTC), end)
    except CallsheetError as error:
        missing = error.message

    def read(connection: sa.Connection, batch: str) -> tuple[ExpectedBalance | None, dict[date, Spending]]:
        service = services.of_batch(connection, batch)
        return spending.expected_balance(connection, batch, first), (
            spending.days(connection, batch, service, first.date(), last.date()) if service else {}
        )

    expected, ledger_days = await ledger.read(read)
    sent_days = sorted({moment.date() for moment in sent} & billed.keys())
    days = ((day, billed[day], ledger_days.get(day, Spending()).usage) for day in sent_days)
    return Evidence(expected, balance, tuple(days), missing, doubts)
