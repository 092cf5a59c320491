"""The quote: what the rest of a plan costs, by the ledger, the budget and the balance.

Making one reads the ledger, and the balance where anything is to buy, and writes the rejects. It buys
nothing, and changes nothing in the ledger: another run may be at work.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, NamedTuple

import polars as pl
import sqlalchemy as sa

from callsheet.cells import IMAGE_COLUMNS, rejects_csv
from callsheet.config.settings import Budget, Guessed, Settings
from callsheet.errors import InputError
from callsheet.ledger import gate, origins, services, sums
from callsheet.ledger.charges import dearest
from callsheet.ledger.gate import Basis, Fitting, Obstacle
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import policy_of
from callsheet.ledger.words import PILOT
from callsheet.plain_text import counted
from callsheet.pricing.bought import are_too_many
from callsheet.pricing.choice import ALL, Choice, chosen, pilot
from callsheet.pricing.plan import Plan
from callsheet.pricing.rates import changed_rates
from callsheet.records import Job, ModelType, State, Totals
from callsheet.service.client import Client
from callsheet.service.models import Catalogue, Model
from callsheet.standing import SUBMITTED, Standing, read_standing
from callsheet.storage.store import Store


@dataclass(frozen=True)
class Quote:
    """What buying the rest of a plan would cost, known before anything is spent. Money is in US dollars.

    Attributes:
        standing: how the batch stood when it was quoted.
        table: those of its jobs that the plan has; nothing is to buy that is not chosen.
        balance: what the workspace has; None where nothing is to buy and nobody has asked.
        totals: the batch so far, by the ledger.
        basis: what it may buy by, by the ledger; its `limit` is `budget.limit` here.
        rpm: submissions a minute by model type, where config or ledger know them.
        rejects: the path or URL of rejects.csv.
        tries: how often a job may be bought, where doubts are bought again (`on_doubt: retry`).
        samples: up to so many samples of a row a run buys, where it buys again what is rejected; otherwise 0.
        chosen: whether a job is chosen, for every job in the plan's order; None where all are.
        pilot_jobs: whether a job is one of the pilot, which is bought before the rest, for every job in the
            plan's order; None without a pilot, and where it is all that there is to buy.
        is_pilot: it is the part of a quote that is the pilot (`pilot`).
        is_rest: the pilot is bought, and this is the rest.
        guessed: what `callsheet init` has guessed, by setting.
        warning: what a person should know of the ledger (`places.warning_of`); empty without such.
        old_files: what became of files that jobs were bought with, and what hangs on them, in words.
    """

    plan: Plan
    standing: Standing = field(repr=False)
    table: pl.DataFrame
    budget: Budget
    balance: Decimal | None
    totals: Totals
    basis: Basis
    rpm: Mapping[str, int]
    rejects: str
    tries: int = 1
    samples: int = 0
    choice: Choice = ALL
    chosen: pl.Series | None = None
    pilot_jobs: pl.Series | None = None
    is_pilot: bool = False
    is_rest: bool = False
    guessed: Mapping[str, Guessed] = field(default_factory=dict)
    warning: str = ""
    old_files: tuple[str, ...] = ()

    @cached_property
    def price_lines(self) -> pl.DataFrame:
        """A line for each combination of what sets the price.

        `model`, `type`, `resolution`, `duration`, `sound`, `unit`, `unit_price`, `each` (a job's price); then
        `jobs`, of these `already_bought` and `to_buy`, and `total`, the price of what is to buy. Money is
        decimal, and null where there is no price.
        """
        by = ["model", "type", "resolution", "duration", "sound", "billable_unit", "unit_price", "price"]
        counts = [pl.len().alias("jobs"), pl.col("already_bought").sum(), pl.col("to_buy").sum()]
        lines = self.table.group_by(by).agg(*counts, total=pl.col("price").filter("to_buy").sum())
        lines = lines.with_columns(total=pl.when(pl.col("price").is_not_null()).then("total"))
        lines = lines.rename({"billable_unit": "unit", "price": "each"})
        return lines.sort("model", "resolution", "duration", "sound", "each", nulls_last=True)

    @cached_property
    def fitting(self) -> Fitting:
        """Which of the jobs to buy fit into the budget and the balance."""
        prices = self.table.filter("to_buy")["price"].drop_nulls()
        return gate.fitting(prices, self.basis.room, self.budget.on_exceed)

    @property
    def fits(self) -> int:
        """How many of the jobs to buy fit; one without a price is not counted."""
        return self.fitting.jobs

    @cached_property
    def pilot(self) -> Quote | None:
        """What is quoted for the pilot alone; the budget and what is spent are the whole batch's."""
        return None if self.pilot_jobs is None else replace(self.among(self.pilot_jobs), is_pilot=True)

    @property
    def to_buy(self) -> int:
        """Jobs that are not bought and will be."""
        return int(self.price_lines["to_buy"].sum())

    @property
    def repeats(self) -> int:
        """Those of `to_buy` that look like what the batch has bought (`bought.py`)."""
        return int((self.table["to_buy"] & self.table["repeats"]).sum())

    @property
    def unseen(self) -> int:
        """Those of `repeats` that differ from what was bought only in what cannot be seen of their prompt."""
        return int((self.table["to_buy"] & self.table["unseen"]).sum())

    @property
    def without_price(self) -> int:
        """Those of `to_buy` that the catalogue has no price for."""
        return int(self.table.filter("to_buy")["price"].null_count())

    @property
    def models(self) -> list[str]:
        """The models of what is to buy."""
        return sorted(set(self.price_lines.filter(pl.col("to_buy") > 0)["model"]))

    def rates(self) -> dict[str, Any]:
        """The catalogue's entries of these models as JSON objects, by id."""
        catalogue = self.plan.catalogue
        return {name: catalogue[name].model_dump(mode="json") for name in self.models if name in catalogue}

    def to_buy_of(self, model_type: ModelType) -> int:
        """Those of `to_buy` that are of one type."""
        return int(self.price_lines.filter(pl.col("type") == model_type)["to_buy"].sum())

    @property
    def already_bought(self) -> int:
        """Jobs that are bought, or on the wire: no run sends them."""
        return int(self.price_lines["already_bought"].sum())

    @cached_property
    def left_out(self) -> Counter[State]:
        """How many jobs are to buy that are not chosen, by their state."""
        is_left_out = self.standing.planned["to_buy"] & ~self.table["to_buy"]
        return Counter(map(State, self.table.filter(is_left_out)["state"]))

    @property
    def held(self) -> int:
        """Jobs that failed or are in doubt, and that the config does not buy again."""
        return self.plan.jobs - self.to_buy - self.already_bought - self.left_out.total()

    @property
    def quoted(self) -> Decimal:
        """The price of what is to buy."""
        return Decimal(self.price_lines["total"].sum() or 0)

    @property
    def affordable(self) -> Decimal:
        """What the batch may come to before the workspace cannot pay."""
        return affordable(self.totals, self.balance)

    @property
    def part(self) -> str:
        """Which part of the plan it is for, in words; empty where it is for all of it."""
        return PILOT if self.is_pilot else self.choice.line() if self.choice else ""

    @cached_property
    def at_most(self) -> Decimal:
        """What it may come to: the quote, or what the service is known to charge instead, as often as a job
        may be bought, with the samples that may be bought again because they are rejected. Jobs without a
        price are not in it.
        """
        charged = dearest([*self.basis.charged.accepted, *self.basis.to_accept])
        tables = [self.price_lines.select("model", "each", jobs="to_buy")]
        if self.samples and not self.is_pilot:
            # Up to so many samples of each request that is to be bought may be bought again.
            by = self.table.group_by("row_id", "request", "model", each="price")
            requests = by.agg(pl.col("sample").max(), pl.col("to_buy").any()).filter("to_buy")
            extra = requests.select("model", "each", jobs=self.samples - pl.col("sample").cast(pl.Int64))
            tables.append(
                extra.filter(pl.col("jobs") > 0).group_by("model", "each").agg(pl.col("jobs").sum())
            )
        lines = (line for table in tables for line in table.drop_nulls("each").iter_rows())
        once = sum(
            (max(price, charged.get((model, price), price)) * jobs for model, price, jobs in lines),
            Decimal(0),
        )
        return once * self.tries

    @property
    def must_look_at_repeats(self) -> bool:
        """Whether a person must look at `repeats` before anything is bought."""
        must_look = bool(self.unseen) or are_too_many(self.repeats, self.to_buy)
        return must_look and self.budget.repeats == "ask"

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The keys of the jobs that it is for; None where it is for all of the plan."""
        if self.is_pilot:
            return tuple(self.table.filter("to_buy")["key"])
        if self.choice:
            return tuple(self.table["key"].filter(self.chosen)) if self.chosen is not None else ()
        return None

    @property
    def budget_left(self) -> Decimal | None:
        """What is left of `budget.limit`; None where there is no limit."""
        return self._left(Obstacle.LIMIT)

    @property
    def day_left(self) -> Decimal | None:
        """What is left of `budget.per_day` for today; None where there is no limit."""
        return self._left(Obstacle.DAY)

    @property
    def ledger_left(self) -> Decimal | None:
        """What is left of `budget.ledger`; None where there is no limit."""
        return self._left(Obstacle.LEDGER)

    def _left(self, obstacle: Obstacle) -> Decimal | None:
        left = self.basis.room.get(obstacle)
        return None if left is None else max(Decimal(0), left)

    def among(self, jobs: pl.Series) -> Quote:
        """The same with nothing to buy but some jobs: a Boolean for every job, in the plan's order."""
        table = self.table.with_columns(pl.col("to_buy", "may_be_bought") & jobs)
        return replace(self, table=table)

    def jobs_in_order(self, of_type: ModelType | None = None) -> Iterator[Job]:
        """The jobs that a run has to look at when it buys (`may_be_bought`), in the file's order."""
        return self.plan.jobs_in_order(of_type, self.table["may_be_bought"])

    def changes(self) -> list[str]:
        """The rates that are not those at which the batch last bought or was approved, a line each."""
        bought_rates = {name: Model.model_validate(entry) for name, entry in self.basis.known_rates.items()}
        return changed_rates(bought_rates, self.plan.catalogue, self.models)


def affordable(totals: Totals, balance: Decimal | None) -> Decimal:
    """What a batch may come to before the workspace cannot pay; no bound where the balance is not known.

    What is in flight may not be charged yet, and the service answers in time that the balance is too low.
    """
    return totals.sent + (Decimal("Infinity") if balance is None else balance)


# ---- makes a quote


async def has_to_buy(plan: Plan, ledger: Ledger, settings: Settings, choice: Choice) -> bool:
    """Whether a plan has a job to buy, by the ledger, among those that are chosen."""
    policy = policy_of(settings, ledger.run_id)
    return _buys(await ledger.read(read_standing, plan.table, policy), choice)


def _buys(standing: Standing, choice: Choice) -> bool:
    with suppress(InputError):  # a chosen row is not in the plan, as its quote says
        jobs = standing.planned
        return bool((jobs["to_buy"] & chosen(choice, jobs)).any())
    return False


async def quote_plan(
    plan: Plan,
    settings: Settings,
    client: Client,
    ledger: Ledger,
    choice: Choice,
    *,
    balance: Decimal | None = None,
    warning: str = "",
) -> Quote:
    """Compares a plan with the ledger, the budget and the balance, and writes rejects.csv.

    Args:
        balance: what the workspace has, where it was asked for just now. Otherwise it is asked for if
            anything is to buy.
        warning: as in `Quote`.

    Raises:
        InputError: rows are rejected and `input.strict` is true, or a chosen row is not in the batch.
        OtherService: jobs of the batch were sent to another service.
        ServiceError: the balance cannot be read.
        LedgerError: the ledger cannot be read.
    """
    report = Store.of(settings.report.url, settings.storage)
    content = await asyncio.to_thread(rejects_csv, plan.rejects)
    rejects = await report.write("rejects.csv", content, "text/csv")
    if settings.input.strict and plan.rejected_rows:
        line, column, _, reason = plan.rejects.row(0)
        rows = f"{counted(plan.rejected_rows, 'row')} of {settings.input.source}"
        first = ": ".join(filter(None, (f"line {line}", column, reason)))
        raise InputError(
            f"{rows} {'is' if plan.rejected_rows == 1 else 'are'} rejected; the first, on {first}",
            hint=f"All are in {rejects}. Nothing was bought, because input.strict is true.",
            where=f"{settings.input.source}, line {line}",
        )
    read = partial(read_from_ledger, ledger, settings, plan, client.base_url)
    from_ledger = await read(balance)
    if balance is None and _buys(from_ledger.standing, choice):
        balance = await client.balance()
        from_ledger = await read(balance)
    quote = make(plan, from_ledger, settings, balance=balance, rejects=rejects, choice=choice)
    return replace(quote, warning=warning)


class FromLedger(NamedTuple):
    """What a quote takes from the ledger, read together: what another run buys meanwhile would count twice.

    `limits`: submissions a minute by model type, as earlier runs have learned them. `asker`: whose the
    questions of the run are. `old_files`: as in `Quote`.
    """

    standing: Standing
    totals: Totals
    basis: Basis
    limits: Mapping[str, int]
    asker: str
    old_files: Sequence[str] = ()


async def read_from_ledger(
    ledger: Ledger, settings: Settings, plan: Plan, service: str, balance: Decimal | None
) -> FromLedger:
    """What it takes; `balance`: what the workspace has, where that is known.

    Raises:
        OtherService: jobs of the batch were sent to another service.
    """

    def read(connection: sa.Connection, batch: str) -> FromLedger:
        services.check(connection, batch, service)
        policy = policy_of(settings, ledger.run_id)
        standing = read_standing(connection, batch, plan.table, policy, of_attempts=["carried"])
        totals = sums.of_batch(connection, batch)
        buyer = ledger.buyer(settings.budget, affordable(totals, balance))
        basis = gate.read_basis(connection, batch, buyer)
        learned = services.learned(connection, batch, service) or {"windows": {}}
        limits = {model_type: window["limit"] for model_type, window in learned["windows"].items()}
        old_files = origins.changes(connection, batch)
        return FromLedger(standing, totals, basis, limits, ledger.asker, old_files)

    return await ledger.read(read)


def make(
    plan: Plan,
    from_ledger: FromLedger,
    settings: Settings,
    *,
    balance: Decimal | None,
    rejects: str,
    choice: Choice,
) -> Quote:
    """Compares a plan as it stands with the budget and the balance.

    Raises:
        InputError: a chosen row is not in the plan.
    """
    standing, basis = from_ledger.standing, from_ledger.basis
    quote = Quote(
        plan=plan,
        standing=standing,
        table=standing.planned,
        totals=from_ledger.totals,
        basis=basis,
        budget=settings.budget.model_copy(update={"limit": basis.limit}),
        balance=balance,
        rpm=_rpm(settings, from_ledger.limits),
        rejects=rejects,
        tries=settings.attempts if policy_of(settings).retry_doubt else 1,
        samples=settings.review.samples if settings.review.buy_again and choice.first is None else 0,
        choice=choice,
        guessed=_still_guessed(settings, plan.catalogue),
        old_files=tuple(from_ledger.old_files),
    )
    if choice:
        sent = standing.newest.filter(SUBMITTED)["job_key"]
        mask = chosen(_left_of(choice, basis, from_ledger.asker, sent), quote.table)
        return replace(quote.among(mask), chosen=mask)
    if settings.budget.pilot and quote.to_buy:
        jobs = pilot(plan.table, settings.budget.pilot)
        if (quote.table["to_buy"] & ~jobs).any():
            return replace(quote, pilot_jobs=jobs)
    return quote


def _still_guessed(settings: Settings, catalogue: Catalogue) -> dict[str, Guessed]:
    """What `callsheet init` has guessed, without what a person has set otherwise since."""
    config = settings.input
    model = catalogue.get(str(config.defaults.get("model")))
    sent = [name for column, name in config.columns.items() if column in IMAGE_COLUMNS and name]
    images = [name for names in sent for name in (names if isinstance(names, tuple) else (names,))]
    now = {
        "prompt": config.template or config.columns.get("prompt", "prompt"),
        "model": model.id if model else None,
        "media": f"{model.type}s" if model else None,
        "images": ", ".join(images) or "none",
        "header": config.header or "names",
    }
    return {
        setting: guess
        for setting, guess in config.guessed.items()
        if now.get(setting, getattr(config, setting, None)) in (guess.taken, None)
    }


def _left_of(choice: Choice, basis: Basis, asker: str, sent: pl.Series) -> Choice:
    """The choice without the first jobs that the run has sent already: after a stop the first that are not
    bought are others, and not so many more.
    """
    own_keys = [word.shown.keys for word in basis.words if word.asker == asker and word.shown.keys]
    if choice.first is None or not own_keys:
        return choice
    return replace(
        choice, first=max(0, choice.first - len({*sent} & {key for keys in own_keys for key in keys}))
    )


def _rpm(settings: Settings, learned: Mapping[str, int]) -> dict[str, int]:
    """Submissions a minute by model type: the config's, otherwise what an earlier run has learned."""
    configured = {
        ModelType.IMAGE.value: settings.limits.image_rpm,
        ModelType.VIDEO.value: settings.limits.video_rpm,
    }
    return {**learned, **{model_type: rpm for model_type, rpm in configured.items() if rpm}}
