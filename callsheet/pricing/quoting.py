"""Makes a quote: reads the catalogue, the balance and the ledger, and writes the plan and the rejects.

It buys nothing, and changes nothing in the ledger: another run may be at work.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.batches.read import read_batch
from callsheet.config.settings import Settings
from callsheet.errors import InputError
from callsheet.ledger import approvals, leases, queries
from callsheet.ledger.claims import outlook
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.limits.charges import IN_A_ROW, Charge
from callsheet.pricing.choice import ALL, Choice, chosen, pilot
from callsheet.pricing.last_report import warning_of_report
from callsheet.pricing.marks import Marks, mark, with_reused
from callsheet.pricing.plan import Plan, price_batch
from callsheet.pricing.quote import Pilot, Quote
from callsheet.pricing.taken_names import taken_names
from callsheet.records import Model, ModelType, Totals
from callsheet.rows import write_rejects
from callsheet.service.client import Client
from callsheet.storage.store import Store


async def quote_batch(settings: Settings, client: Client, choice: Choice = ALL) -> Quote:
    """Reads and prices a whole batch; writes the plan and rejects.csv, and buys nothing.

    Raises:
        InputError: the batch file cannot be read, or rows are rejected and `input.strict` is true; or a
            chosen row is not in the batch.
        ServiceError: the catalogue or the balance cannot be read.
    """
    batch = await asyncio.to_thread(read_batch, settings)
    return await quote_plan(await price_batch(batch, settings, client), settings, client, choice)


async def quote_plan(plan: Plan, settings: Settings, client: Client, choice: Choice = ALL) -> Quote:
    """Compares a plan with the ledger, the budget and the balance, and writes rejects.csv.

    Raises:
        InputError: rows are rejected and `input.strict` is true, or a chosen row is not in the batch.
        ServiceError: the balance cannot be read.
    """
    report = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
    rejects = await report.write_made("rejects.csv", partial(write_rejects, plan.rejects), "text/csv")
    if settings.input.strict and plan.rejected_rows:
        line, column, _, reason = plan.rejects.row(0)
        raise InputError(
            f"{plan.rejected_rows} rows of {settings.input.path} are rejected; the first, on line {line}: "
            f"{column}: {reason}",
            hint=f"All are in {rejects}. Nothing was bought, because input.strict is true.",
        )
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        balance = await client.balance()
        return await make(plan, ledger, client.base_url, balance, settings, rejects=rejects, choice=choice)
    finally:
        await ledger.close()


async def make(
    plan: Plan,
    ledger: Ledger,
    service: str,
    balance: Decimal,
    settings: Settings,
    *,
    rejects: str,
    choice: Choice = ALL,
) -> Quote:
    """Compares a plan with the ledger, the budget and the balance.

    Raises:
        InputError: a chosen row is not in the plan.
        OtherService: jobs of the batch were sent to another service.
        LedgerError: the ledger cannot be read.
    """
    await ledger.check_service(service)
    policy = policy_of(settings)

    def read(connection: sa.Connection, batch: str) -> tuple[Marks, Totals, dict[str, Any]]:
        known, totals = outlook(connection, batch, policy)
        marks = mark(plan, known)
        if policy.reuse:
            marks = with_reused(marks, plan, queries.reusable_requests(connection, batch))
        return marks, totals, _history(connection, batch)

    marks, totals, history = await ledger.read(read)
    to_buy = int(marks.to_buy.sum())
    mask = await asyncio.to_thread(chosen, choice, plan, marks.to_buy) if choice else None
    marks = marks if mask is None else marks.among(mask)
    warnings = (await warning_of_report(ledger, settings), await taken_names(plan, marks, settings, ledger))
    wanted = settings.budget.pilot if to_buy and not choice else None
    quote = Quote(
        plan=plan,
        marks=marks,
        lines=pl.DataFrame(),
        most_expensive=pl.DataFrame(),
        fits=0,
        budget=settings.budget,
        balance=balance,
        totals=totals,
        rpm=await _rpm(settings, ledger, service),
        rejects=rejects,
        **history,
        tries=settings.attempts if policy.retry_doubt else 1,
        choice=choice,
        chosen=mask,
        left_out=to_buy - int(marks.to_buy.sum()),
        pilot=await asyncio.to_thread(_pilot, plan, marks, wanted) if wanted else None,
        warnings=tuple(filter(None, warnings)),
    )
    return await asyncio.to_thread(quote.counted)


def _history(connection: sa.Connection, batch: str) -> dict[str, Any]:
    """What the ledger knows of the batch besides its jobs: fields of the quote."""
    asked = approvals.of_batch(connection, batch)
    approved = [one.asked_at for one in asked if one.is_approved]
    accepted = queries.dearest_charges(connection, batch, max(approved)) if approved else {}
    rows = queries.last_charges(connection, batch, IN_A_ROW)
    last = [Charge(row.row_id, row.sample, row.model, row.quoted, row.cost) for row in rows]
    rates = approvals.known_rates(connection, batch)
    return {
        "used_today": leases.used_today(connection, batch, datetime.now(UTC)),
        "approvals": asked,
        "known_rates": {name: Model.model_validate(entry) for name, entry in rates.items()},
        "accepted": accepted,
        "dearer": tuple(last) if all(charge.is_dearer(accepted) for charge in last) else (),
    }


def _pilot(plan: Plan, marks: Marks, number: int) -> Pilot | None:
    """The pilot; None where it is all that there is to buy."""
    jobs = pilot(plan, number)
    if not (marks.to_buy & ~jobs).any():
        return None
    prices = marks.among(jobs).jobs(plan).filter("to_buy")["price"]
    return Pilot(jobs, len(prices), Decimal(prices.sum() or 0))


def policy_of(settings: Settings) -> Policy:
    """What a config says about jobs that were tried before."""
    return Policy(
        retry_failed=settings.retry_failed,
        retry_doubt=settings.on_doubt == "retry",
        attempts=settings.attempts,
        reuse=settings.reuse == "ledger",
    )


async def _rpm(settings: Settings, ledger: Ledger, service: str) -> dict[str, int]:
    """Submissions a minute by model type: the config's, otherwise what an earlier run has learned."""
    learned = await ledger.learned(service) or {"windows": {}}
    remembered = {model_type: window["limit"] for model_type, window in learned["windows"].items()}
    given = {
        ModelType.IMAGE.value: settings.limits.image_rpm,
        ModelType.VIDEO.value: settings.limits.video_rpm,
    }
    return remembered | {model_type: rpm for model_type, rpm in given.items() if rpm}
