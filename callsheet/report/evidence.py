"""What the service's balance and daily costs say of doubts, next to what the ledger has spent there.

Nothing is decided or settled here: balance and costs are the whole workspace's, so they are evidence and not
proof.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cached_property

import sqlalchemy as sa

from callsheet.errors import CallsheetError
from callsheet.ledger import services, spending
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.spending import ExpectedBalance, Spending
from callsheet.records import Doubt
from callsheet.service.client import Client


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

        None where they are not plain: anything else is gone, something is in flight, a doubt has no price,
        other batches have doubts, too, or money came back, which nobody can tell from what was not charged.
        """
        expected, shortfall = self.expected, self.gone
        if expected is None or shortfall is None or expected.in_flight or expected.credits:
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
            costs = await client.daily_costs(datetime.combine(first.date(), time.min, UTC), end)
            billed = costs.by_day
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
