"""The quote: what the rest of a plan costs, by the ledger, the budget and the balance.

Making one reads the catalogue, the balance and the ledger, and writes the plan and the rejects. It buys
nothing, and changes nothing in the ledger: another run may be at work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.cells import rejects_csv
from callsheet.config.settings import Budget, Guessed, Settings, guess_in_words
from callsheet.errors import InputError
from callsheet.ledger import gate, queries, services, sums
from callsheet.ledger.charges import dearest
from callsheet.ledger.gate import Obstacle, Said
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.queries import policy_of
from callsheet.ledger.words import PILOT, Shown
from callsheet.plain_text import counted
from callsheet.pricing.bought import are_too_many, likely_repeats
from callsheet.pricing.claim import taken_names, warning_of_ledger
from callsheet.pricing.plan import ALL, Choice, Plan, chosen, pilot, price_batch
from callsheet.pricing.rates import changed_rates
from callsheet.pricing.sources import read_rows
from callsheet.records import BOUGHT, DELIVERED, Job, ModelType, State, Totals, dollars
from callsheet.service.client import Client
from callsheet.service.models import Model
from callsheet.storage.store import Store

_ENDED = (*DELIVERED, State.FAILED)


def with_standing(jobs: pl.DataFrame, ledger_jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs of a plan with what the ledger has of the batch; all others are to buy.

    `ledger_jobs` has the `job_key`, `state` and `to_buy` of these.

    Returns:
        The same rows with three Booleans: `to_buy` (a run buys it), `bought` (it is accepted, stored or lost,
        and costs nothing more) and `open` (what a run has to look at when it buys: what is to buy,
        and what another run or a person may still free).
    """
    joined = jobs.select("key").join(
        ledger_jobs, left_on="key", right_on="job_key", how="left", maintain_order="left"
    )
    is_offered = jobs["request"].is_not_null()
    return jobs.with_columns(
        to_buy=joined["to_buy"].fill_null(joined["state"].is_null()) & is_offered,
        bought=joined["state"].is_in(BOUGHT).fill_null(value=False),
        open=(joined["to_buy"] | ~joined["state"].is_in(_ENDED)).fill_null(value=True) & is_offered,
    )


@dataclass(frozen=True)
class Quote:
    """What buying the rest of a plan would cost, known before anything is spent. Money is in US dollars.

    Attributes:
        table: the plan's jobs next to the ledger (`with_standing`); nothing is to buy that is not
            chosen.
        balance: what the workspace has; None where nothing is to buy and nobody has asked.
        totals: the batch so far, by the ledger.
        said: what counts for it, by the ledger; its `limit` is `budget.limit` here.
        rpm: submissions a minute by model type, where config or ledger know them.
        rejects: the path or URL of rejects.csv.
        tries: how often a job may be bought, where doubts are bought again (`on_doubt: retry`).
        samples: up to so many samples of a row a run buys, where it buys again what is rejected; otherwise 0.
        chosen: whether a job is chosen, for every job in the plan's order; None where all are.
        left_out: how many jobs are to buy that are not chosen.
        pilot_jobs: whether a job is one of the pilot, which is bought before the rest, for every job in the
            plan's order; None without a pilot, and where it is all that there is to buy.
        is_pilot: it is the part of a quote that is the pilot (`pilot`).
        is_rest: the pilot is bought, and this is the rest.
        guessed: what `callsheet init` has guessed, by setting.
        warnings: what a person should look at before anything is bought, in words.
        taken: the warning among them that names of the next files are taken by others; empty where none is.
    """

    plan: Plan
    table: pl.DataFrame
    budget: Budget
    balance: Decimal | None
    totals: Totals
    said: Said
    rpm: Mapping[str, int]
    rejects: str
    tries: int = 1
    samples: int = 0
    choice: Choice = ALL
    chosen: pl.Series | None = None
    left_out: int = 0
    pilot_jobs: pl.Series | None = None
    is_pilot: bool = False
    is_rest: bool = False
    guessed: Mapping[str, Guessed] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    taken: str = ""

    @cached_property
    def lines(self) -> pl.DataFrame:
        """A line for each combination of what sets the price.

        `model`, `type`, `resolution`, `duration`, `sound`, `unit`, `unit_price`, `each` (a job's price); then
        `jobs`, of these `bought` and `to_buy`, and `total`, the price of what is to buy. Money is decimal,
        and null where there is no price.
        """
        by = ["model", "type", "resolution", "duration", "sound", "billable_unit", "unit_price", "price"]
        counts = [pl.len().alias("jobs"), pl.col("bought").sum(), pl.col("to_buy").sum()]
        lines = self.table.group_by(by).agg(*counts, total=pl.col("price").filter("to_buy").sum())
        lines = lines.with_columns(total=pl.when(pl.col("price").is_not_null()).then("total"))
        lines = lines.rename({"billable_unit": "unit", "price": "each"})
        return lines.sort("model", "resolution", "duration", "sound", "each", nulls_last=True)

    @cached_property
    def fits(self) -> int:
        """How many of the jobs to buy fit into the budget and the balance, as `budget.on_exceed` chooses
        them. Of a job without a price nobody knows whether it fits, so it is not counted.
        """
        left = min(self.said.room.values())
        prices = self.table.filter("to_buy")["price"].drop_nulls()
        prices_so_far = prices.cum_sum()
        if not prices.len() or prices_so_far[-1] <= left:
            return prices.len()
        if self.budget.on_exceed != "skip":
            return int((prices_so_far <= left).sum()) if self.budget.on_exceed == "stop" else 0
        fitting, micros = 0, int(left * 10**6)
        for price in prices.to_physical():  # millionths of a dollar
            if price <= micros:
                fitting, micros = fitting + 1, micros - price
        return fitting

    @cached_property
    def pilot(self) -> Quote | None:
        """What is quoted for the pilot alone; the budget and what is spent are the whole batch's."""
        return None if self.pilot_jobs is None else replace(self.among(self.pilot_jobs), is_pilot=True)

    @property
    def to_buy(self) -> int:
        """Jobs that are not bought and will be."""
        return int(self.lines["to_buy"].sum())

    @property
    def repeats(self) -> int:
        """Those of `to_buy` that look like what the batch has bought (`bought.py`)."""
        return int((self.table["to_buy"] & self.table["repeats"]).sum())

    @property
    def without_price(self) -> int:
        """Those of `to_buy` that the catalogue has no price for."""
        return int(self.table.filter("to_buy")["price"].null_count())

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
        charged = dearest([*self.said.charged.accepted, *self.said.to_accept])
        tables = [self.lines.select("model", "each", jobs="to_buy")]
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

    def shown(self) -> Shown:
        """What a person is shown of it before it is bought."""
        keys = None
        if self.is_pilot or self.choice:
            keys = tuple(self.table.filter("to_buy")["key"] if self.is_pilot else self._chosen_keys())
        repeats = likely_repeats(self.repeats, self.to_buy)
        is_asked = self.budget.repeats == "ask" and are_too_many(self.repeats, self.to_buy)
        return Shown(
            plan=self.plan.sha256(),
            jobs=self.to_buy,
            quoted=self.quoted,
            at_most=self.at_most,
            exposure=self.said.exposure,
            unpriced=self.without_price,
            repeats=repeats if is_asked else "",
            guesses=self.shown_guesses(),
            new_rates=tuple(self.changes()),
            rates=tuple(self.rates().values()),
            charges=self.said.to_accept,
            keys=keys,
            part=self.part,
            is_rest=self.is_rest,
        )

    def shown_guesses(self) -> dict[str, str]:
        """What `callsheet init` has guessed, in words by setting."""
        return {name: guess_in_words(name, guess.taken, guess.others) for name, guess in self.guessed.items()}

    def _chosen_keys(self) -> Iterable[str]:
        return self.table["key"].filter(self.chosen) if self.chosen is not None else ()

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
        left = self.said.room.get(obstacle)
        return None if left is None else max(Decimal(0), left)

    def among(self, jobs: pl.Series) -> Quote:
        """The same with nothing to buy but some jobs: a Boolean for every job, in the plan's order."""
        table = self.table.with_columns(pl.col("to_buy", "open") & jobs)
        return replace(self, table=table, left_out=self.left_out + self.to_buy - int(table["to_buy"].sum()))

    def jobs_in_order(self, of_type: ModelType | None = None) -> Iterator[Job]:
        """The jobs that a run has to look at when it buys (`open`), in the file's order."""
        return self.plan.jobs_in_order(of_type, self.table["open"])

    def line(self) -> str:
        """The quote in one line."""
        fitting = f" ({self.fits} fit into budget and balance)" if self.fits < self.to_buy else ""
        balance = "" if self.balance is None else f"; balance {dollars(self.balance)} USD"
        return (
            f"{self.plan.jobs} jobs: {self.to_buy} to buy for {dollars(self.quoted)} USD{fitting}, "
            f"{self.already_bought} already bought{balance}"
        )

    def changes(self) -> list[str]:
        """The rates that are not those at which the batch last bought or was approved, a line each."""
        bought_rates = {name: Model.model_validate(entry) for name, entry in self.said.known_rates.items()}
        return changed_rates(bought_rates, self.plan.catalogue, self.models)


def affordable(totals: Totals, balance: Decimal | None) -> Decimal:
    """What a batch may come to before the workspace cannot pay; no bound where the balance is not known.

    What is in flight may not be charged yet, and the service answers in time that the balance is too low.
    """
    return totals.sent + (Decimal("Infinity") if balance is None else balance)


# ---- makes a quote


async def quote_batch(settings: Settings, client: Client, choice: Choice = ALL) -> Quote:
    """Reads and prices a whole batch; writes the plan and rejects.csv, and buys nothing.

    Raises:
        InputError: the batch file cannot be read, or rows are rejected and `input.strict` is true; or a
            chosen row is not in the batch.
        ServiceError: the catalogue or the balance cannot be read.
    """
    batch = await read_rows(settings)
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        plan = await price_batch(batch, settings, client, ledger)
        return await quote_plan(plan, settings, client, ledger, choice, balance=await client.balance())


async def has_to_buy(plan: Plan, ledger: Ledger, settings: Settings, choice: Choice) -> bool:
    """Whether a plan has a job to buy, by the ledger, among those that are chosen."""
    ledger_jobs = await ledger.read(queries.jobs, ["job_key", "state"], policy=policy_of(settings))
    jobs = with_standing(plan.table, ledger_jobs)
    with suppress(InputError):  # a chosen row is not in the plan, as its quote says
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
) -> Quote:
    """Compares a plan with the ledger, the budget and the balance, and writes rejects.csv.

    `balance`: what the workspace has, where it was asked for just now. Otherwise it is asked for if anything
    is to buy.

    Raises:
        InputError: rows are rejected and `input.strict` is true, or a chosen row is not in the batch.
        ServiceError: the balance cannot be read.
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
        )
    if balance is None and await has_to_buy(plan, ledger, settings, choice):
        balance = await client.balance()
    return await make(plan, ledger, client.base_url, balance, settings, rejects=rejects, choice=choice)


async def make(
    plan: Plan,
    ledger: Ledger,
    service: str,
    balance: Decimal | None,
    settings: Settings,
    *,
    rejects: str,
    choice: Choice,
) -> Quote:
    """Compares a plan with the ledger, the budget and the balance.

    Raises:
        InputError: a chosen row is not in the plan.
        OtherService: jobs of the batch were sent to another service.
        LedgerError: the ledger cannot be read.
    """
    await ledger.read(services.check, service)
    policy = policy_of(settings)

    def read(connection: sa.Connection, batch: str) -> dict[str, Any]:
        jobs = queries.jobs(connection, batch, ["job_key", "state"], policy=policy)
        totals = sums.of_batch(connection, batch)
        buyer = ledger.buyer(settings.budget, affordable(totals, balance))
        said = gate.said(connection, batch, buyer, settings.budget.limit)
        sent = jobs.filter(pl.col("state") != State.PLANNED)["job_key"]
        return {"table": with_standing(plan.table, jobs), "totals": totals, "said": said, "sent": sent}

    read_together = await ledger.read(read)
    sent, said = read_together.pop("sent"), read_together["said"]
    quote = Quote(
        plan=plan,
        budget=settings.budget.model_copy(update={"limit": said.limit}),
        balance=balance,
        rpm=await _rpm(settings, ledger, service),
        rejects=rejects,
        tries=settings.attempts if policy.retry_doubt else 1,
        samples=settings.review.samples if settings.review.buy_again and choice.first is None else 0,
        choice=choice,
        guessed=settings.input.guessed,
        **read_together,
    )
    if choice:
        mask = chosen(_left_of(choice, said, ledger.asker, sent), quote.table)
        quote = replace(quote.among(mask), chosen=mask)
    elif settings.budget.pilot and quote.to_buy:
        jobs = pilot(plan.table, settings.budget.pilot)
        if (quote.table["to_buy"] & ~jobs).any():
            quote = replace(quote, pilot_jobs=jobs)
    repeats = likely_repeats(quote.repeats, quote.to_buy)
    name_warning = await taken_names(quote.table, settings, ledger)
    warnings = repeats, await warning_of_ledger(ledger, settings), name_warning
    return replace(quote, warnings=tuple(filter(None, warnings)), taken=name_warning)


def _left_of(choice: Choice, said: Said, asker: str, sent: pl.Series) -> Choice:
    """The choice without the first jobs that the run has sent already: after a stop the first that are not
    bought are others, and not so many more.
    """
    own_keys = [word.shown.keys for word in said.words if word.asker == asker and word.shown.keys]
    if choice.first is None or not own_keys:
        return choice
    return replace(
        choice, first=max(0, choice.first - len({*sent} & {key for keys in own_keys for key in keys}))
    )


async def _rpm(settings: Settings, ledger: Ledger, service: str) -> dict[str, int]:
    """Submissions a minute by model type: the config's, otherwise what an earlier run has learned."""
    learned = await ledger.read(services.learned, service) or {"windows": {}}
    remembered = {model_type: window["limit"] for model_type, window in learned["windows"].items()}
    configured = {
        ModelType.IMAGE.value: settings.limits.image_rpm,
        ModelType.VIDEO.value: settings.limits.video_rpm,
    }
    return remembered | {model_type: rpm for model_type, rpm in configured.items() if rpm}
