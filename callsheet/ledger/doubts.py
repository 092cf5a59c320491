"""Doubts: which jobs a person means, and the evidence for and against a charge.

It reads the ledger and asks the service. It decides nothing and settles nothing: balance and costs are the
whole workspace's, so they are evidence and not proof.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from callsheet.errors import CallsheetError
from callsheet.ledger import queries
from callsheet.ledger.ledger import Ledger
from callsheet.records import Doubt, ExpectedBalance, dollars
from callsheet.service.billing import daily_costs
from callsheet.service.client import Client


@dataclass(frozen=True, slots=True)
class Day:
    """What a UTC day has cost in dollars, by the service's account and by the whole ledger."""

    day: date
    service: Decimal
    ledger: Decimal


@dataclass(frozen=True, slots=True)
class Evidence:
    """What may show whether doubts were charged. Other users of the workspace and late entries distort it.

    Attributes:
        reckoning: what the ledger expects of the balance; None where no run before the doubts knew it.
        balance: what the workspace has now, in dollars; None where the service cannot be asked.
        days: the days on which the doubts were submitted; empty where the service cannot be asked.
        missing: why the service cannot be asked, or None.
    """

    reckoning: ExpectedBalance | None
    balance: Decimal | None
    days: tuple[Day, ...]
    missing: str | None

    @property
    def gone(self) -> Decimal | None:
        """How much less the workspace has than the ledger expects, in dollars."""
        if self.reckoning is None or self.balance is None:
            return None
        return self.reckoning.expected - self.balance

    def as_json(self) -> dict[str, Any]:
        """What `resolve --json` prints as `evidence`; money is a string."""
        reckoning = self.reckoning
        return {
            "since": reckoning.since.isoformat() if reckoning else None,
            "balance_then": _money(reckoning.balance_then if reckoning else None),
            "spent_since": _money(reckoning.spent_since if reckoning else None),
            "balance_expected": _money(reckoning.expected if reckoning else None),
            "balance": _money(self.balance),
            "gone": _money(self.gone),
            "in_doubt_since": _money(reckoning.in_doubt if reckoning else None),
            "in_flight": _money(reckoning.in_flight if reckoning else None),
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
        ledger: the ledger; all its batches count, because the balance is the workspace's.
        doubts: what is in doubt; not empty.
        connect: makes the service's client. Where that fails, or the service, the evidence says why.
    """
    first = min(doubt.submitted_at for doubt in doubts)
    wanted = sorted({doubt.submitted_at.date() for doubt in doubts})
    balance, service, missing = None, {}, None
    try:
        async with await connect() as client:
            balance = await client.balance()
            service = await _service_days(client, wanted)
    except CallsheetError as error:
        missing = error.message
    reckoning = await ledger.read(lambda connection, _: queries.reckoning(connection, first))
    own = await ledger.read(lambda connection, _: queries.days(connection))
    days = tuple(Day(day, service[day], own.get(day, Decimal(0))) for day in wanted if day in service)
    return Evidence(reckoning, balance, days, missing)


async def _service_days(client: Client, wanted: Sequence[date]) -> dict[date, Decimal]:
    """The service's costs by day, from the first wanted day to the last, or until now."""
    end = min(datetime.now(UTC), datetime.combine(wanted[-1], time.max, UTC))
    return await daily_costs(client, datetime.combine(wanted[0], time.min, UTC), end)


def named(doubts: Sequence[Doubt], words: Sequence[str]) -> list[Doubt]:
    """The doubts that a person names, each once and in the list's order.

    Args:
        doubts: what is in doubt.
        words: a row's id (then all its jobs are meant), or the beginning of a job's key or of a row's id
            that no other job in doubt has.

    Raises:
        CallsheetError: a word names no job, or several; exit code 2.
    """
    keys = {job_key for word in words for job_key in _keys_of(doubts, word)}
    return [doubt for doubt in doubts if doubt.job_key in keys]


def _keys_of(doubts: Sequence[Doubt], word: str) -> set[str]:
    if of_row := {doubt.job_key for doubt in doubts if doubt.row_id == word}:
        return of_row
    beginning = [doubt for doubt in doubts if word and _begins(doubt, word)]
    if not beginning:
        raise CallsheetError(
            f"{word!r} is not a job in doubt",
            hint="`callsheet resolve CONFIG` lists what is in doubt.",
        )
    keys = {doubt.job_key for doubt in beginning}
    if len(keys) > 1:
        listed = ", ".join(f"{doubt.job_key[:12]} (row {doubt.row_id})" for doubt in beginning[:5])
        raise CallsheetError(f"{word!r} may mean {len(keys)} jobs: {listed}", hint="Give more of the key.")
    return keys


def _begins(doubt: Doubt, word: str) -> bool:
    return doubt.job_key.startswith(word) or doubt.row_id.startswith(word)


def login() -> str:
    """The user of this process: the login name, or the user's number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else dollars(amount)
