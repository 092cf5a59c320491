"""The quote: what the rest of a plan costs, by the ledger, the budget and the balance; and whether to buy it.

It reads the catalogue, the balance and the ledger, and writes the plan and the rejects. It buys nothing, and
changes nothing in the ledger: another run may be at work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.batches.read import read_batch
from callsheet.config.settings import Budget, Settings
from callsheet.errors import ApprovalNeeded, BalanceTooLow, BudgetReached, InputError, Stop
from callsheet.ledger import leases, queries
from callsheet.ledger.claims import outlook
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.plain_text import row_name
from callsheet.pricing.breakdown import by_price, count_fitting, most_expensive
from callsheet.pricing.estimate import submission_time
from callsheet.pricing.marks import Marks, mark, with_reused
from callsheet.pricing.plan import Plan
from callsheet.pricing.planning import price_batch
from callsheet.pricing.rates import changed_rates
from callsheet.records import Job, ModelType, Totals, dollars
from callsheet.rows import rejects_csv
from callsheet.service.client import Client
from callsheet.storage.store import Store


@dataclass(frozen=True, slots=True)
class Quote:
    """What buying the rest of a plan would cost, known before anything is spent. Money is in US dollars.

    Attributes:
        plan: the frozen plan.
        marks: the plan's jobs next to the ledger.
        lines: the plan by what sets the price (`breakdown.by_price`).
        most_expensive: the rows of what is to buy that cost most (`breakdown.most_expensive`).
        fits: how many of the jobs to buy fit into the budget and the balance.
        budget: the config's budget.
        balance: the workspace's balance.
        totals: the batch so far, by the ledger.
        used_today: what counts against `budget.per_day` already (`leases.used_today`).
        rpm: submissions a minute by model type, where config or ledger know them.
        rejects: the path or URL of rejects.csv.
    """

    plan: Plan
    marks: Marks
    lines: pl.DataFrame
    most_expensive: pl.DataFrame
    fits: int
    budget: Budget
    balance: Decimal
    totals: Totals
    used_today: Decimal
    rpm: Mapping[str, int]
    rejects: str

    @property
    def to_buy(self) -> int:
        """Jobs that are not bought and will be."""
        return int(self.lines["to_buy"].sum())

    def to_buy_of(self, model_type: ModelType) -> int:
        """Those of `to_buy` that are of one type."""
        return int(self.lines.filter(pl.col("type") == model_type)["to_buy"].sum())

    @property
    def already_bought(self) -> int:
        """Jobs that are accepted, stored or lost, and cost nothing more."""
        return int(self.lines["bought"].sum())

    @property
    def held(self) -> int:
        """Jobs that failed or are in doubt, and that the config does not buy again."""
        return self.plan.jobs - self.to_buy - self.already_bought

    @property
    def quoted(self) -> Decimal:
        """The price of what is to buy."""
        return Decimal(self.lines["total"].sum() or 0)

    @property
    def budget_left(self) -> Decimal | None:
        """What is left of `budget.limit`; None where there is no limit."""
        limit = self.budget.limit
        return None if limit is None else max(Decimal(0), limit - _sent(self.totals))

    @property
    def day_left(self) -> Decimal | None:
        """What is left of `budget.per_day` for today; None where there is no limit."""
        limit = self.budget.per_day
        return None if limit is None else max(Decimal(0), limit - self.used_today)

    @property
    def exposure_limit(self) -> tuple[Decimal, type[Stop]]:
        """The most that the batch may cost, all in all, and the stop that ends the buying there."""
        return _exposure_limit(self.budget, self.totals, self.balance)

    def jobs_in_order(self, of_type: ModelType | None = None) -> Iterator[Job]:
        """The jobs that a run has to look at when it buys, in the file's order (`Marks.open`)."""
        return self.plan.jobs_in_order(of_type, self.marks.open)

    def objection(self) -> Stop | None:
        """Why nothing may be bought, apart from a missing approval; None where buying may begin."""
        limit, stop = self.exposure_limit
        sent = _sent(self.totals)
        if self.budget.on_exceed != "refuse":
            return None
        if sent + self.quoted <= limit:
            return self._objection_of_the_day()
        together = f" and the {dollars(sent)} USD spent, in flight or in doubt" if sent else ""
        return stop(
            f"the quote of {dollars(self.quoted)} USD{together} "
            f"{'do' if sent else 'does'} not fit into the {stop.reason} of {dollars(limit)} USD",
            hint="Nothing was bought, because budget.on_exceed is 'refuse'.",
        )

    def _objection_of_the_day(self) -> Stop | None:
        limit, left = self.budget.per_day, self.day_left
        if limit is None or left is None or self.quoted <= left:
            return None
        what = (
            "Run again after midnight UTC, or with a higher budget.per_day."
            if self.quoted <= limit
            else "It is more than the limit of a whole day: raise budget.per_day, or set budget.on_exceed to "
            "'stop' to buy a part each day."
        )
        return BudgetReached(
            f"the quote of {dollars(self.quoted)} USD does not fit into what is left of budget.per_day for "
            f"today, {dollars(left)} of {dollars(limit)} USD",
            hint=f"Nothing was bought, because budget.on_exceed is 'refuse'. {what}",
        )

    def line(self) -> str:
        """The quote in one line."""
        fitting = f" ({self.fits} fit into budget and balance)" if self.fits < self.to_buy else ""
        return (
            f"{self.plan.jobs} jobs: {self.to_buy} to buy for {dollars(self.quoted)} USD{fitting}, "
            f"{self.already_bought} already bought; balance {dollars(self.balance)} USD"
        )

    def table(self) -> list[dict[str, str]]:
        """`lines` with every value as text."""
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
        """What a person needs to know besides the table: names and texts."""
        plan = self.plan
        unpriced = f", {plan.unpriced:,} without a price" if plan.unpriced else ""
        held = f", {self.held:,} failed or in doubt and not bought again" if self.held else ""
        facts = [
            ("Rows", f"{plan.rows:,} read, {plan.rejected_rows:,} rejected{unpriced}"),
            ("Jobs", f"{plan.jobs:,}: {self.to_buy:,} to buy, {self.already_bought:,} already bought{held}"),
            ("To pay", f"{dollars(self.quoted)} {plan.currency}"),
            ("Budget", self._budget_in_words()),
            *self._day_in_words(),
            ("Balance", self._balance_in_words()),
        ]
        if self.fits < self.to_buy:
            facts.append(("Fits", self._fits_in_words()))
        types = self.lines.group_by("type").agg(pl.col("to_buy").sum())
        facts.append(("Time", submission_time(dict(types.iter_rows()), self.rpm)))
        rows = [
            f"{_row_and_line(row_id, line)} {dollars(total)}" + (f" for {jobs} jobs" if jobs > 1 else "")
            for row_id, line, jobs, total in self.most_expensive.iter_rows()
        ]
        if self.lines.height > 1 and rows:
            facts.append(("Costliest", ", ".join(rows)))
        return facts + [("Changed", change) for change in self.changes()]

    def _budget_in_words(self) -> str:
        left = self.budget_left
        limit = "no limit" if left is None else f"limit {dollars(self.budget.limit or Decimal(0))} USD"
        open_amount = _sent(self.totals) - self.totals.spent
        amounts = [f"{dollars(self.totals.spent)} spent", f"{dollars(open_amount)} in flight or in doubt"]
        amounts += [] if left is None else [f"{dollars(left)} left"]
        return f"{limit}: {', '.join(amounts)}"

    def _day_in_words(self) -> Iterator[tuple[str, str]]:
        if self.budget.per_day is not None and self.day_left is not None:
            limit = f"budget.per_day is {dollars(self.budget.per_day)} USD over all batches"
            left = f"{dollars(self.day_left)} left until midnight UTC"
            yield "Today", f"{limit}: {dollars(self.used_today)} used, {left}"

    def _balance_in_words(self) -> str:
        missing = self.quoted - self.balance
        enough = "enough for the quote" if missing <= 0 else f"{dollars(missing)} USD less than the quote"
        return f"{dollars(self.balance)} {self.plan.currency}, {enough}"

    def _fits_in_words(self) -> str:
        limit, stop = self.exposure_limit
        of_today = self.day_left is not None and self.day_left < limit - _sent(self.totals)
        outcome = {
            "stop": "the same command goes on after midnight UTC"
            if of_today
            else f"then the {stop.reason} stops the buying",
            "skip": "the others are left out",
            "refuse": "nothing is bought, because budget.on_exceed is 'refuse'",
        }
        why = " today, because of budget.per_day" if of_today else ""
        return f"{self.fits:,} of {self.to_buy:,} jobs{why}; {outcome[self.budget.on_exceed]}"

    def changes(self) -> list[str]:
        """The rates that have changed since the batch's previous plan, a line each."""
        if not self.plan.before:
            return []
        catalogue, read_at = self.plan.before
        changes = changed_rates(catalogue, self.plan.catalogue, self.lines["model"].unique().sort())
        return [f"{change} (since the plan of {read_at:%Y-%m-%d %H:%M} UTC)" for change in changes]

    def as_json(self) -> dict[str, Any]:
        """What `quote --json` prints (docs/commands.md, "JSON"); null where there is no limit."""
        limit, left = self.budget.limit, self.budget_left
        per_day, day_left = self.budget.per_day, self.day_left
        return {
            "batch": self.plan.batch,
            "rows": self.plan.rows,
            "rejected_rows": self.plan.rejected_rows,
            "jobs": self.plan.jobs,
            "already_bought": self.already_bought,
            "to_buy": self.to_buy,
            "unpriced": self.plan.unpriced,
            "quoted": dollars(self.quoted),
            "budget_limit": None if limit is None else dollars(limit),
            "budget_left": None if left is None else dollars(left),
            "budget_per_day": None if per_day is None else dollars(per_day),
            "budget_left_today": None if day_left is None else dollars(day_left),
            "fits": self.fits,
            "balance": dollars(self.balance),
            "currency": self.plan.currency,
            "plan": str(self.plan.path),
            "rejects": self.rejects,
        }


def _row_and_line(row_id: str, line: int) -> str:
    by_line = f"line {line}"
    name = row_name(row_id, line=line)
    return name if name == by_line else f"{name} ({by_line})"


def _sent(totals: Totals) -> Decimal:
    """What the jobs cost that were ever sent; the reserved ones are part of what is to buy."""
    return totals.exposure - totals.reserved


def _exposure_limit(budget: Budget, totals: Totals, balance: Decimal) -> tuple[Decimal, type[Stop]]:
    """The budget's limit, or what was sent and the balance together where that is less.

    What is in flight may not be charged yet; the service then answers in time that the balance is too low.
    """
    affordable = _sent(totals) + balance
    if budget.limit is None or budget.limit > affordable:
        return affordable, BalanceTooLow
    return budget.limit, BudgetReached


def approval_needed(quote: Quote, settings: Settings) -> ApprovalNeeded | None:
    """The stop where a person must approve first; None where nobody has to."""
    above = settings.budget.approve_above
    if above is None or quote.quoted <= above:
        return None
    return ApprovalNeeded(
        f"the quote of {dollars(quote.quoted)} USD is above budget.approve_above, {dollars(above)} USD",
        hint="Look at `callsheet quote`, then approve with `callsheet run --yes`.",
    )


async def quote_batch(settings: Settings, client: Client) -> Quote:
    """Reads and prices a whole batch; writes the plan and rejects.csv, and buys nothing.

    Raises:
        InputError: the batch file cannot be read, or rows are rejected and `input.strict` is true.
        ServiceError: the catalogue or the balance cannot be read.
    """
    batch = await asyncio.to_thread(read_batch, settings)
    return await quote_plan(await price_batch(batch, settings, client), settings, client)


async def quote_plan(plan: Plan, settings: Settings, client: Client) -> Quote:
    """Compares a plan with the ledger, the budget and the balance, and writes rejects.csv.

    Raises:
        InputError: rows are rejected and `input.strict` is true.
        ServiceError: the balance cannot be read.
    """
    report = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
    rejects = await report.write("rejects.csv", rejects_csv(plan.rejects), "text/csv")
    if settings.input.strict and plan.rejects.height:
        line, column, _, reason = plan.rejects.row(0)
        raise InputError(
            f"{plan.rejected_rows} rows of {settings.input.path} are rejected; the first, on line {line}: "
            f"{column}: {reason}",
            hint=f"All are in {rejects}. Nothing was bought, because input.strict is true.",
        )
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        return await make(plan, ledger, await client.balance(), settings, rejects)
    finally:
        await ledger.close()


async def make(plan: Plan, ledger: Ledger, balance: Decimal, settings: Settings, rejects: str) -> Quote:
    """Compares a plan with the ledger, the budget and the balance.

    Raises:
        OtherService: the ledger has bought the batch at another service.
        LedgerError: the ledger cannot be read.
    """
    await ledger.check_service(settings.service.base_url)
    policy = policy_of(settings)

    def read(connection: sa.Connection, batch: str) -> tuple[Marks, Totals, Decimal]:
        known, totals = outlook(connection, batch, policy)
        marks = mark(plan, known)
        if policy.reuse:
            marks = with_reused(marks, plan, queries.reusable_requests(connection, batch))
        return marks, totals, leases.used_today(connection, batch, datetime.now(UTC))

    marks, totals, used_today = await ledger.read(read)
    jobs = marks.jobs(plan)
    left = _exposure_limit(settings.budget, totals, balance)[0] - _sent(totals)
    if settings.budget.per_day is not None:
        left = min(left, settings.budget.per_day - used_today)
    return Quote(
        plan=plan,
        marks=marks,
        lines=await asyncio.to_thread(by_price, jobs),
        most_expensive=await asyncio.to_thread(most_expensive, jobs),
        fits=await asyncio.to_thread(count_fitting, jobs, left, settings.budget.on_exceed),
        budget=settings.budget,
        balance=balance,
        totals=totals,
        used_today=used_today,
        rpm=await _rpm(settings, ledger),
        rejects=rejects,
    )


def policy_of(settings: Settings) -> Policy:
    """What a config says about jobs that were tried before."""
    return Policy(
        retry_failed=settings.retry_failed,
        retry_doubt=settings.on_doubt == "retry",
        attempts=settings.attempts,
        reuse=settings.reuse == "ledger",
    )


async def _rpm(settings: Settings, ledger: Ledger) -> dict[str, int]:
    """Submissions a minute by model type: the config's, otherwise what an earlier run has learned."""
    learned = await ledger.learned(settings.service.base_url) or {"windows": {}}
    remembered = {model_type: window["limit"] for model_type, window in learned["windows"].items()}
    given = {
        ModelType.IMAGE.value: settings.limits.image_rpm,
        ModelType.VIDEO.value: settings.limits.video_rpm,
    }
    return remembered | {model_type: rpm for model_type, rpm in given.items() if rpm}
