"""The quote: what the rest of a plan costs, by the ledger, the budget and the balance; and whether to buy it.

Here it is what people and programs read of it; `quoting.py` makes it. Nothing here reads the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.config.settings import Budget
from callsheet.errors import BalanceTooLow, BudgetReached, Stop
from callsheet.ledger.approvals import Approval
from callsheet.limits.charges import Charge, Pairs, in_words
from callsheet.plain_text import counted, row_name
from callsheet.pricing.breakdown import by_price, count_fitting, most_expensive
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.estimate import submission_time
from callsheet.pricing.marks import Marks
from callsheet.pricing.plan import Plan
from callsheet.pricing.rates import changed_rates
from callsheet.records import Catalogue, Job, ModelType, Totals, dollars


@dataclass(frozen=True, slots=True)
class Pilot:
    """The jobs of a batch that are bought before the rest (`budget.pilot`).

    Attributes:
        jobs: whether a job is one of them: a Boolean for every job, in the plan's order.
        to_buy: how many of them are to buy.
        quoted: the price of these, in dollars.
    """

    jobs: pl.Series
    to_buy: int
    quoted: Decimal


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
        known_rates: the catalogue's entries, by model, at which the batch last bought or was approved.
        approvals: what persons were asked about the batch, the oldest first.
        dearer: the charges of the jobs that were sent last, where all are dearer than quoted, and nobody has
            approved that; otherwise none.
        accepted: what jobs were charged at most before somebody approved, where it was more than quoted.
        tries: how often a job may be bought, where doubts are bought again (`on_doubt: retry`).
        choice: which jobs of the batch it is about.
        chosen: whether a job is chosen, for every job in the plan's order; None where all are.
        left_out: how many jobs are to buy that are not chosen.
        pilot: what is bought before the rest; None without a pilot, and where nothing is to buy.
        is_approved: a person has said yes to it.
        is_pilot: it is the part of a quote that is the pilot (`of_pilot`).
        warnings: what a person should look at before anything is bought, in words.
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
    known_rates: Catalogue = field(default_factory=dict)
    approvals: tuple[Approval, ...] = ()
    dearer: tuple[Charge, ...] = ()
    accepted: Pairs = field(default_factory=dict)
    tries: int = 1
    choice: Choice = ALL
    chosen: pl.Series | None = None
    left_out: int = 0
    pilot: Pilot | None = None
    is_approved: bool = False
    is_pilot: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def to_buy(self) -> int:
        """Jobs that are not bought and will be."""
        return int(self.lines["to_buy"].sum())

    @property
    def models(self) -> list[str]:
        """The models of what is to buy."""
        return sorted(set(self.lines.filter(pl.col("to_buy") > 0)["model"]))

    def rates(self) -> dict[str, Any]:
        """The catalogue's entries of these models as JSON objects, by id."""
        catalogue = self.plan.catalogue
        return {name: catalogue[name].model_dump(mode="json") for name in self.models if name in catalogue}

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
        return self.plan.jobs - self.to_buy - self.already_bought - self.left_out

    @property
    def quoted(self) -> Decimal:
        """The price of what is to buy."""
        return Decimal(self.lines["total"].sum() or 0)

    @property
    def charged(self) -> Pairs:
        """What jobs are known to be charged, by model and quote, where it is more than their quote."""
        dearer = {(one.model, one.quoted): one.cost for one in sorted(self.dearer, key=lambda one: one.cost)}
        return {**self.accepted, **dearer}

    @property
    def bound(self) -> Decimal | None:
        """What a run of it may spend, apart from roundings; None where only the budget's limit says that.

        An approval is a bound, and so is the quote where there is no limit.
        """
        return self.at_most if self.is_approved or self.budget.limit is None else None

    @property
    def at_most(self) -> Decimal:
        """What it may come to: the quote, or what the service is known to charge instead, as often as a job
        may be bought.
        """
        charged = self.charged
        lines = self.lines.filter(pl.col("each").is_not_null()).select("model", "each", "to_buy").iter_rows()
        once = sum(
            (max(each, charged.get((model, each), each)) * jobs for model, each, jobs in lines), Decimal(0)
        )
        return once * self.tries

    def price(self) -> str:
        """What is to pay, in a few words, with the most that it can come to where that is more."""
        most = f", at most {dollars(self.at_most)}" if self.at_most > self.quoted else ""
        return f"{dollars(self.quoted)} {self.plan.currency}{most}"

    @property
    def budget_left(self) -> Decimal | None:
        """What is left of `budget.limit`; None where there is no limit."""
        limit = self.budget.limit
        return None if limit is None else max(Decimal(0), limit - self.totals.sent)

    @property
    def day_left(self) -> Decimal | None:
        """What is left of `budget.per_day` for today; None where there is no limit."""
        limit = self.budget.per_day
        return None if limit is None else max(Decimal(0), limit - self.used_today)

    @property
    def exposure_limit(self) -> tuple[Decimal, type[Stop]]:
        """The most that the batch may cost, all in all, and the stop that ends the buying there."""
        return _exposure_limit(self.budget, self.totals, self.balance)

    def of_pilot(self) -> Quote:
        """What is quoted for the pilot alone; the budget and what is spent are the whole batch's."""
        if self.pilot is None:
            return self
        left_out = self.left_out + self.to_buy - self.pilot.to_buy
        narrowed = replace(self, marks=self.marks.among(self.pilot.jobs), left_out=left_out, is_pilot=True)
        return narrowed.counted()

    def with_limit(self, limit: Decimal | None) -> Quote:
        """The same with another `budget.limit`; None changes nothing."""
        if limit is None:
            return self
        return replace(self, budget=self.budget.model_copy(update={"limit": limit})).counted()

    def counted(self) -> Quote:
        """The same with `lines`, `most_expensive` and `fits` as the marks and the budget are now."""
        jobs = self.marks.jobs(self.plan)
        left = self.exposure_limit[0] - self.totals.sent
        if self.budget.per_day is not None:
            left = min(left, self.budget.per_day - self.used_today)
        return replace(
            self,
            lines=by_price(jobs),
            most_expensive=most_expensive(jobs),
            fits=count_fitting(jobs, left, self.budget.on_exceed),
        )

    def jobs_in_order(self, of_type: ModelType | None = None) -> Iterator[Job]:
        """The jobs that a run has to look at when it buys, in the file's order (`Marks.open`)."""
        return self.plan.jobs_in_order(of_type, self.marks.open)

    def objection(self) -> Stop | None:
        """Why nothing may be bought, apart from a missing approval; None where buying may begin."""
        limit, stop = self.exposure_limit
        sent = self.totals.sent
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
            *self._part_in_words(),
            ("To pay", f"{dollars(self.quoted)} {plan.currency}"),
            *self._at_most_in_words(),
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
        facts += [("Note", note) for note in self.plan.notes]
        facts += [("Changed", change) for change in self.changes()]
        return facts + [("Warning", warning) for warning in self.warnings]

    def _part_in_words(self) -> Iterator[tuple[str, str]]:
        if self.choice:
            yield "Chosen", f"{self.choice.line()}; {self.left_out:,} others are left for later"
        if self.pilot and self.pilot.to_buy:
            first = f"{counted(self.pilot.to_buy, 'job')} for {dollars(self.pilot.quoted)} USD"
            yield "Pilot", f"{first}; then somebody is asked whether to buy the rest"

    def _at_most_in_words(self) -> Iterator[tuple[str, str]]:
        if self.at_most > self.quoted:
            again = f"; a job in doubt may be bought {self.tries} times in all" if self.tries > 1 else ""
            dearer = f"; {in_words(self.dearer)}" if self.dearer else ""
            yield "At most", f"{dollars(self.at_most)} {self.plan.currency}{again}{dearer}"

    def _budget_in_words(self) -> str:
        left = self.budget_left
        limit = "no limit" if left is None else f"limit {dollars(self.budget.limit or Decimal(0))} USD"
        open_amount = self.totals.sent - self.totals.spent
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
        of_today = self.day_left is not None and self.day_left < limit - self.totals.sent
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
        """The rates that are not those at which the batch last bought or was approved, a line each."""
        return changed_rates(self.known_rates, self.plan.catalogue, self.models)

    def as_json(self) -> dict[str, Any]:
        """What `quote --json` prints (docs/commands.md, "JSON"); null without a limit or a pilot."""
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
            "at_most": dollars(self.at_most),
            "budget_limit": None if limit is None else dollars(limit),
            "budget_left": None if left is None else dollars(left),
            "budget_per_day": None if per_day is None else dollars(per_day),
            "budget_left_today": None if day_left is None else dollars(day_left),
            "fits": self.fits,
            "pilot_to_buy": self.pilot.to_buy if self.pilot else None,
            "pilot_quoted": dollars(self.pilot.quoted) if self.pilot else None,
            "balance": dollars(self.balance),
            "currency": self.plan.currency,
            "plan": str(self.plan.path),
            "rejects": self.rejects,
            "warnings": list(self.warnings),
        }


def _row_and_line(row_id: str, line: int) -> str:
    by_line = f"line {line}"
    name = row_name(row_id, line=line)
    return name if name == by_line else f"{name} ({by_line})"


def _exposure_limit(budget: Budget, totals: Totals, balance: Decimal) -> tuple[Decimal, type[Stop]]:
    """The budget's limit, or what was sent and the balance together where that is less.

    What is in flight may not be charged yet; the service then answers in time that the balance is too low.
    """
    affordable = totals.sent + balance
    if budget.limit is None or budget.limit > affordable:
        return affordable, BalanceTooLow
    return budget.limit, BudgetReached
