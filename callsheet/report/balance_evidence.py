"""What the service's balance and daily costs say of doubts, next to what the ledger has spent there.

It reads the ledger and asks the service. It decides nothing and settles nothing: balance and costs are the
whole workspace's, so they are evidence and not proof.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.errors import CallsheetError
from callsheet.ledger import services, spending
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.spending import Spending
from callsheet.records import Doubt, ExpectedBalance, dollars
from callsheet.service.client import Client


@dataclass(frozen=True, slots=True)
class CostOfDay:
    """What a UTC day has cost in dollars, by the service's account and by the ledger."""

    day: date
    service: Decimal
    ledger: Decimal


@dataclass(frozen=True, slots=True)
class Evidence:
    """What may show whether doubts were charged. Other users of the workspace and late entries distort it.

    Attributes:
        expected: what the ledger expects of the balance; None where no run before the doubts knew it.
        balance: what the workspace has now, in dollars; None where the service cannot be asked.
        days: the days on which the doubts were submitted; empty where the service cannot be asked.
        missing: why the service cannot be asked, or None.
    """

    expected: ExpectedBalance | None
    balance: Decimal | None
    days: tuple[CostOfDay, ...]
    missing: str | None

    @property
    def gone(self) -> Decimal | None:
        """How much less the workspace has than the ledger expects, in dollars."""
        if self.expected is None or self.balance is None:
            return None
        return self.expected.balance_now - self.balance

    def as_json(self) -> dict[str, Any]:
        """What `resolve --json` prints as `evidence`; money is a string."""
        expected = self.expected
        return {
            "since": expected.since.isoformat() if expected else None,
            "balance_then": _money(expected.balance_then if expected else None),
            "spent_since": _money(expected.spent_since if expected else None),
            "balance_expected": _money(expected.balance_now if expected else None),
            "balance": _money(self.balance),
            "gone": _money(self.gone),
            "in_doubt_since": _money(expected.in_doubt if expected else None),
            "in_flight": _money(expected.in_flight if expected else None),
            "days": [
                {"date": day.day.isoformat(), "service": dollars(day.service), "ledger": dollars(day.ledger)}
                for day in self.days
            ],
            "missing": self.missing,
        }


async def evidence(
    ledger: Ledger, doubts: Sequence[Doubt], connect: Callable[[], Awaitable[Client]]
) -> Evidence:
    """Compares the service's account with the ledger.

    Args:
        ledger: the ledger; all its batches of the same service count, because the balance is the workspace's.
        doubts: what is in doubt; not empty.
        connect: makes the service's client. Where that fails, or the service, or where it is not the service
            that the batch belongs to, the evidence says why.
    """
    first = min(doubt.submitted_at for doubt in doubts)
    wanted = sorted({doubt.submitted_at.date() for doubt in doubts})
    balance, service, missing = None, {}, None
    try:
        async with await connect() as client:
            await ledger.check_service(client.base_url)
            balance = await client.balance()
            service = await _service_days(client, wanted)
    except CallsheetError as error:
        missing = error.message
    expected, own = await ledger.read(
        lambda connection, batch: (
            spending.expected_balance(connection, batch, first),
            _own_days(connection, batch, wanted),
        )
    )
    days = (CostOfDay(day, service[day], own.get(day, Spending()).usage) for day in wanted if day in service)
    return Evidence(expected, balance, tuple(days), missing)


def _own_days(connection: sa.Connection, batch: str, wanted: Sequence[date]) -> dict[date, Spending]:
    service = services.of_batch(connection, batch)
    return spending.days(connection, batch, service, wanted[0], wanted[-1]) if service else {}


async def _service_days(client: Client, wanted: Sequence[date]) -> dict[date, Decimal]:
    """The service's costs by day, from the first wanted day to the last, or until now."""
    end = min(datetime.now(UTC), datetime.combine(wanted[-1], time.max, UTC))
    return await client.daily_costs(datetime.combine(wanted[0], time.min, UTC), end)


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else dollars(amount)
