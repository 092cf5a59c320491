"""The quote: a plan beside what the ledger has and what the account can pay, and whether to go on.

It reads the ledger, the catalogue and the balance, and writes the plan and the rejects. It buys nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from callsheet import batches, books
from callsheet import plan as plans
from callsheet.batches import Batch
from callsheet.errors import ApprovalNeeded, BalanceTooLow, BudgetReached, InputError, Stop
from callsheet.ledger import Ledger
from callsheet.plan import Plan
from callsheet.records import State, Totals, dollars
from callsheet.report import rejects_csv
from callsheet.service.client import Client
from callsheet.settings import Settings
from callsheet.storage import Store

_BOUGHT = (State.SUBMITTING, State.PENDING, State.GENERATED, State.STORED, State.LOST)


@dataclass(frozen=True, slots=True)
class Quote:
    """What buying the rest of a plan would cost, known before a cent is spent.

    Attributes:
        plan: the frozen plan.
        to_buy: its jobs that are not bought and will be.
        already_bought: its jobs that are accepted, stored or lost, and cost nothing more.
        held: its jobs that failed or are in doubt and are left as they are.
        quoted: the price of `to_buy`, in dollars.
        balance: what the workspace has, in dollars.
        totals: the batch so far.
    """

    plan: Plan
    to_buy: int
    already_bought: int
    held: int
    quoted: Decimal
    balance: Decimal
    totals: Totals

    def wall(self, settings: Settings) -> tuple[Decimal, type[Stop]]:
        """How much the batch's exposure may come to, in dollars, and which stop it is to come there.

        That is the budget's limit, or what the balance can pay beside what was paid already.
        """
        affordable = self.totals.spent + self.totals.in_doubt_exposure + self.balance
        limit = settings.budget.limit
        return (affordable, BalanceTooLow) if limit is None or limit > affordable else (limit, BudgetReached)

    def objection(self, settings: Settings) -> Stop | None:
        """Why not to buy at all, apart from approval; None when buying may begin."""
        wall, stop = self.wall(settings)
        if settings.budget.on_exceed == "stop" or self.totals.exposure + self.quoted <= wall:
            return None
        beside = f", beside {dollars(self.totals.exposure)} USD spent, in flight or in doubt,"
        return stop(
            f"the quote of {dollars(self.quoted)} USD{beside if self.totals.exposure else ''} "
            f"does not fit the {stop.reason} of {dollars(wall)} USD",
            hint="Nothing was bought, because budget.on_exceed is 'refuse'.",
        )

    def line(self) -> str:
        """The quote in one line."""
        return (
            f"{self.plan.jobs} jobs: {self.to_buy} to buy for {dollars(self.quoted)} USD, "
            f"{self.already_bought} already bought; balance {dollars(self.balance)} USD"
        )

    def as_json(self) -> dict[str, Any]:
        """What `quote --json` prints (DESIGN, contracts)."""
        return {
            "batch": self.plan.batch,
            "rows": self.plan.rows,
            "rejected_rows": self.plan.rejected_rows,
            "jobs": self.plan.jobs,
            "already_bought": self.already_bought,
            "unpriced": self.plan.unpriced,
            "quoted": dollars(self.quoted),
            "currency": self.plan.currency,
            "plan": str(self.plan.path),
        }


async def quote_batch(settings: Settings, client: Client) -> Quote:
    """Reads and prices a whole batch; writes the plan and `rejects.csv`, and buys nothing.

    Raises:
        InputError: the batch file cannot be read, or rows are wrong and `input.strict` wants none.
        ServiceError: the catalogue or the balance cannot be read.
    """
    batch = await asyncio.to_thread(batches.read, settings)
    return await quote_plan(await price(batch, settings, client), settings, client)


async def price(batch: Batch, settings: Settings, client: Client) -> Plan:
    """Reads the live catalogue and freezes the plan, as `plan.parquet` in the work folder.

    Raises:
        ServiceError: the catalogue cannot be read.
    """
    catalogue = await client.models()
    path = work_folder(settings) / "plan.parquet"
    return await asyncio.to_thread(plans.make, batch, catalogue, settings, path, now=datetime.now(UTC))


def work_folder(settings: Settings) -> Path:
    """Where the plan and the spool are: the report's folder when it is local, else `.callsheet/<batch>`."""
    url = settings.report.url
    folder = Path(".callsheet", settings.batch) if "://" in url else Path(url)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def quote_plan(plan: Plan, settings: Settings, client: Client) -> Quote:
    """Sets a plan beside the ledger and the balance, and writes `rejects.csv`.

    Raises:
        InputError: rows are wrong and `input.strict` wants none.
        ServiceError: the balance cannot be read.
    """
    report = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
    await report.write("rejects.csv", rejects_csv(plan.rejects), "text/csv")
    if settings.input.strict and plan.rejects:
        first = plan.rejects[0]
        raise InputError(
            f"{plan.rejected_rows} rows of {settings.input.path} are wrong; the first, on line {first.line}: "
            f"{first.column}: {first.reason}",
            hint=f"All are in {report.url_of('rejects.csv')}. Nothing was bought: input.strict is true.",
        )
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        return await make(plan, ledger, await client.balance(), settings)
    finally:
        await ledger.close()


async def make(plan: Plan, ledger: Ledger, balance: Decimal, settings: Settings) -> Quote:
    """Sets a plan beside the ledger and the balance."""
    states = await ledger.read(books.states)
    not_charged = await ledger.read(books.not_charged)
    again = {State.PLANNED}
    again |= {State.FAILED} if settings.retry_failed else set()
    again |= {State.IN_DOUBT} if settings.on_doubt == "retry" else set()
    to_buy, already_bought, quoted = 0, 0, Decimal(0)
    for key, price in plan.keys().select("key", "price").iter_rows():
        state = states.get(key)
        if state is None or state in again or key in not_charged:
            to_buy += 1
            quoted += price or 0
        elif state in _BOUGHT:
            already_bought += 1
    return Quote(
        plan=plan,
        to_buy=to_buy,
        already_bought=already_bought,
        held=plan.jobs - to_buy - already_bought,
        quoted=quoted,
        balance=balance,
        totals=await ledger.read(books.totals),
    )


def approval_needed(quote: Quote, settings: Settings) -> ApprovalNeeded | None:
    """The stop to make when a person must say yes first; None where nobody has to."""
    above = settings.budget.approve_above
    if above is None or quote.quoted <= above:
        return None
    return ApprovalNeeded(
        f"the quote of {dollars(quote.quoted)} USD is above budget.approve_above, {dollars(above)} USD",
        hint="Look at `callsheet quote`, then say yes with `callsheet run --yes`.",
    )
