"""The quote: a plan beside what the ledger has and what the account can pay, and whether to go on.

It reads the catalogue, the balance and the ledger (in which it settles what dead runs left half done), and
writes the plan and the rejects. It buys nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.batches import read as batches
from callsheet.config.settings import Settings
from callsheet.errors import ApprovalNeeded, BalanceTooLow, BudgetReached, InputError, Stop
from callsheet.ledger import queries
from callsheet.ledger.claims import request_key
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.pricing.plan import Plan
from callsheet.pricing.planning import price_batch
from callsheet.pricing.rates import changed_rates
from callsheet.records import ModelType, Totals, dollars
from callsheet.service.client import Client
from callsheet.storage.store import Store

_MARKS = {"key": pl.String, "to_buy": pl.Boolean, "bought": pl.Boolean}
_DEAREST = 5


@dataclass(frozen=True, slots=True)
class Quote:
    """What buying the rest of a plan would cost, known before a cent is spent.

    Attributes:
        plan: the frozen plan.
        lines: the plan by what sets the price, sorted: `model`, `type`, `resolution`, `duration`, `sound`,
            `unit`, `unit_price`, `each` (a job's price); then `jobs`, of these `bought` and `to_buy`, and
            `total`, the price of what is to buy. Money is decimal, and null where there is no price.
        dearest: the rows of what is to buy that cost most, by price: `row_id`, `line`, `jobs`, `total`.
        rpm: submissions a minute by type, as far as config or ledger know them.
        balance: what the workspace has, in dollars.
        totals: the batch so far.
    """

    plan: Plan
    lines: pl.DataFrame
    dearest: pl.DataFrame
    rpm: Mapping[str, int]
    balance: Decimal
    totals: Totals

    @property
    def to_buy(self) -> int:
        """Jobs that are not bought and will be."""
        return int(self.lines["to_buy"].sum())

    @property
    def already_bought(self) -> int:
        """Jobs that are accepted, stored or lost, and cost nothing more."""
        return int(self.lines["bought"].sum())

    @property
    def held(self) -> int:
        """Jobs that failed or are in doubt, and are left as they are."""
        return self.plan.jobs - self.to_buy - self.already_bought

    @property
    def quoted(self) -> Decimal:
        """The price of what is to buy, in dollars."""
        return Decimal(self.lines["total"].sum() or 0)

    @property
    def _sent(self) -> Decimal:
        """The exposure of what was ever sent; what is only reserved is in `quoted`."""
        return self.totals.exposure - self.totals.reserved

    def wall(self, settings: Settings) -> tuple[Decimal, type[Stop]]:
        """How much the batch's exposure may come to, in dollars, and which stop it is to come there.

        That is the budget's limit, or what the balance can pay beside what was sent already. (What is in
        flight may not be charged yet; then the service says in time that the balance is too low.)
        """
        affordable = self._sent + self.balance
        limit = settings.budget.limit
        return (affordable, BalanceTooLow) if limit is None or limit > affordable else (limit, BudgetReached)

    def objection(self, settings: Settings) -> Stop | None:
        """Why not to buy at all, apart from approval; None when buying may begin."""
        wall, stop = self.wall(settings)
        if settings.budget.on_exceed != "refuse" or self._sent + self.quoted <= wall:
            return None
        beside = f", beside {dollars(self._sent)} USD spent, in flight or in doubt,"
        return stop(
            f"the quote of {dollars(self.quoted)} USD{beside if self._sent else ''} "
            f"does not fit the {stop.reason} of {dollars(wall)} USD",
            hint="Nothing was bought, because budget.on_exceed is 'refuse'.",
        )

    def line(self) -> str:
        """The quote in one line."""
        return (
            f"{self.plan.jobs} jobs: {self.to_buy} to buy for {dollars(self.quoted)} USD, "
            f"{self.already_bought} already bought; balance {dollars(self.balance)} USD"
        )

    def table(self) -> list[dict[str, str]]:
        """`lines` as people read them; every value is text."""
        return [
            {
                "model": line["model"],
                "resolution": line["resolution"] or "",
                "duration": f"{line['duration']} s" if line["duration"] else "",
                "sound": {True: "on", False: "off", None: ""}[line["sound"]],
                "jobs": f"{line['jobs']:,}",
                "bought": f"{line['bought']:,}",
                "to buy": f"{line['to_buy']:,}",
                "each": dollars(line["each"]) if line["each"] is not None else "unpriced",
                "USD": dollars(line["total"]) if line["total"] is not None else "",
            }
            for line in self.lines.iter_rows(named=True)
        ]

    def facts(self) -> list[tuple[str, str]]:
        """What a person wants to know beside the table, each with its name."""
        plan, short = self.plan, self.quoted - self.balance
        unpriced = f", {plan.unpriced:,} without a price" if plan.unpriced else ""
        held = f", {self.held:,} failed or in doubt and left so" if self.held else ""
        facts = [
            ("Rows", f"{plan.rows:,} read, {plan.rejected_rows:,} rejected{unpriced}"),
            ("Jobs", f"{plan.jobs:,}: {self.to_buy:,} to buy, {self.already_bought:,} already bought{held}"),
            ("To pay", f"{dollars(self.quoted)} {plan.currency}"),
            ("Balance", f"{dollars(self.balance)} {plan.currency}, {_enough(short)}"),
            ("Time", self.time()),
        ]
        dearest = [
            f"{row_id} (line {line}) {dollars(total)}" + (f" for {jobs} jobs" if jobs > 1 else "")
            for row_id, line, jobs, total in self.dearest.iter_rows()
        ]
        if self.lines.height > 1 and dearest:
            facts.append(("Dearest", ", ".join(dearest)))
        return facts + [("Changed", change) for change in self.changes()]

    def changes(self) -> list[str]:
        """The rates that have changed since the batch's plan before this one, a line each."""
        if not self.plan.before:
            return []
        catalogue, read_at = self.plan.before
        changes = changed_rates(catalogue, self.plan.catalogue, self.lines["model"].unique().sort())
        return [f"{change} (since the plan of {read_at:%Y-%m-%d %H:%M} UTC)" for change in changes]

    def time(self) -> str:
        """How long buying takes at the least, by the known limits of submissions a minute (INTERFACE 8)."""
        if not self.to_buy:
            return "none"
        waits = []
        for model_type, jobs in (
            self.lines.group_by("type").agg(pl.col("to_buy").sum()).sort("type").iter_rows()
        ):
            if jobs and model_type not in self.rpm:
                return f"unknown: how many {model_type}s a minute the account allows is not known yet"
            waits.append(-(-jobs // self.rpm[model_type]) - 1 if jobs else 0)
        return f"{max(waits):,} min at the least, by the limits a minute" if max(waits) else "about a minute"

    def as_json(self) -> dict[str, Any]:
        """What `quote --json` prints (`docs/commands.md, "JSON"`)."""
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
    return await quote_plan(await price_batch(batch, settings, client), settings, client)


async def quote_plan(plan: Plan, settings: Settings, client: Client) -> Quote:
    """Sets a plan beside the ledger and the balance, and writes `rejects.csv`.

    Raises:
        InputError: rows are wrong and `input.strict` wants none.
        ServiceError: the balance cannot be read.
    """
    report = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
    await report.write("rejects.csv", plan.rejects.write_csv().encode(), "text/csv")
    if settings.input.strict and plan.rejects.height:
        line, column, _, reason = plan.rejects.row(0)
        raise InputError(
            f"{plan.rejected_rows} rows of {settings.input.path} are wrong; the first, on line {line}: "
            f"{column}: {reason}",
            hint=f"All are in {report.url_of('rejects.csv')}. Nothing was bought: input.strict is true.",
        )
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        await ledger.close_dead_runs()
        return await make(plan, ledger, await client.balance(), settings)
    finally:
        await ledger.close()


async def make(plan: Plan, ledger: Ledger, balance: Decimal, settings: Settings) -> Quote:
    """Compares a plan with the ledger and the balance."""
    policy = policy_of(settings)
    known = await ledger.read(lambda connection, batch: queries.known_jobs(connection, batch, policy))
    marks = pl.DataFrame(known, schema=_MARKS, orient="row").lazy()
    if policy.reuse:
        stay = {row.job_key for row in known if not row.to_buy}
        reused = pl.LazyFrame({"key": await _reused(plan, ledger, stay)}, schema={"key": pl.String})
        marks = pl.concat(
            [marks.join(reused, on="key", how="anti"), reused.with_columns(to_buy=False, bought=True)]
        )
    jobs = plan.scan().join(marks, on="key", how="left")
    jobs = jobs.with_columns(pl.col("to_buy").fill_null(value=True), pl.col("bought").fill_null(value=False))
    return Quote(
        plan=plan,
        lines=await asyncio.to_thread(_lines, jobs),
        dearest=await asyncio.to_thread(_dearest, jobs),
        rpm=await _rpm(settings, ledger),
        balance=balance,
        totals=await ledger.read(queries.totals),
    )


def policy_of(settings: Settings) -> Policy:
    """What a config says about jobs that were tried before."""
    return Policy(
        retry_failed=settings.retry_failed,
        retry_doubt=settings.on_doubt == "retry",
        attempts=settings.attempts,
        reuse=settings.reuse == "ledger",
    )


async def _reused(plan: Plan, ledger: Ledger, stay: Set[str]) -> list[str]:
    """The keys of the jobs that take another batch's files, as `Ledger.reserve` will decide.

    Args:
        plan: the plan.
        ledger: the ledger.
        stay: the keys of the jobs that are not to buy.
    """
    stored = Counter(row.request_key for row in await ledger.read(queries.reusable))

    def keys() -> Iterator[str]:
        for job in plan.jobs_in_order():
            if job.key not in stay and stored[key := request_key(job)]:
                stored[key] -= 1
                yield job.key

    return await asyncio.to_thread(list, keys()) if stored else []


def _lines(jobs: pl.LazyFrame) -> pl.DataFrame:
    by = ["model", "type", "resolution", "duration", "sound", "billable_unit", "unit_price", "price"]
    counts = [pl.len().alias("jobs"), pl.col("bought").sum(), pl.col("to_buy").sum()]
    lines = jobs.group_by(by).agg(*counts, total=pl.col("price").filter("to_buy").sum())
    priced = pl.when(pl.col("price").is_not_null()).then("total")
    lines = lines.with_columns(total=priced).rename({"billable_unit": "unit", "price": "each"})
    return lines.sort("model", "resolution", "duration", "sound", "each", nulls_last=True).collect(
        engine="streaming"
    )


def _dearest(jobs: pl.LazyFrame) -> pl.DataFrame:
    """The rows whose jobs cost most. Rows are told apart by a hash, for the memory's sake."""
    left = jobs.filter("to_buy").with_columns(row=pl.col("row_id").hash())
    sums = [pl.col("line").min(), pl.len().alias("jobs"), pl.col("price").sum().alias("total")]
    rows = left.group_by("row").agg(sums).sort("total", "line", descending=[True, False])
    top = rows.head(_DEAREST).collect(engine="streaming")
    ids = left.filter(pl.col("row").is_in(top["row"].implode())).select("row", "row_id").unique()
    named = top.join(ids.collect(engine="streaming"), on="row", maintain_order="left")
    return named.select("row_id", "line", "jobs", "total")


async def _rpm(settings: Settings, ledger: Ledger) -> dict[str, int]:
    """Submissions a minute by type: the config's, otherwise what an earlier run has learned."""
    learned = await ledger.learned(settings.service.base_url) or {"windows": {}}
    remembered = {model_type: window["limit"] for model_type, window in learned["windows"].items()}
    given = {
        ModelType.IMAGE.value: settings.limits.image_rpm,
        ModelType.VIDEO.value: settings.limits.video_rpm,
    }
    return remembered | {model_type: rpm for model_type, rpm in given.items() if rpm}


def _enough(short: Decimal) -> str:
    return f"{dollars(short)} USD short" if short > 0 else "enough"


def approval_needed(quote: Quote, settings: Settings) -> ApprovalNeeded | None:
    """The stop to make when a person must say yes first; None where nobody has to."""
    above = settings.budget.approve_above
    if above is None or quote.quoted <= above:
        return None
    return ApprovalNeeded(
        f"the quote of {dollars(quote.quoted)} USD is above budget.approve_above, {dollars(above)} USD",
        hint="Look at `callsheet quote`, then say yes with `callsheet run --yes`.",
    )
