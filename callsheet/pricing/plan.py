"""The plan: every job of a batch, resolved, priced, keyed and frozen in one Parquet file; and where it is.

`plan.parquet` has a row per job, in the batch file's order. Its metadata contain the catalogue from which
the prices come. `plan.rejects.parquet`, next to it, has what will not be bought. The same batch, catalogue,
settings and time make the same bytes. `jobs.py` makes the rows; here they are written and read.

Also which jobs of a plan a run is for: some that a person names, or a pilot that is bought before the rest.
The same plan gives the same pilot, whatever is bought of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.batches.columns import Columns
from callsheet.batches.read import Batch
from callsheet.cells import rejects
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import GatewayAnswer, InputError, MaybeSent, NotSent, ServerError, StorageError
from callsheet.files import PartialFile, open_regular
from callsheet.ledger import marks, queries, writing
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.queries import policy_of
from callsheet.plain_text import counted, has_own_id, line_of, printable
from callsheet.pricing import references
from callsheet.pricing.bought import bought_again, changed_carried, match
from callsheet.pricing.claim import check_report
from callsheet.pricing.jobs import COLUMNS, as_sent, check_config_values, make_jobs, once, request_key
from callsheet.pricing.rates import changed_rates
from callsheet.pricing.references import work_folder
from callsheet.records import MAY_COST, Job, ModelType, Price, Record, canonical
from callsheet.service.client import Client
from callsheet.service.models import Catalogue, Model

_KIND = ["model", "type", "resolution", "duration", "sound", "price"]  # what sets the price


@dataclass(frozen=True, slots=True)
class Choice:
    """The jobs that a person names: only those of the rows with these names (`row_id_of`), and of those only
    so many that are not bought, the `first` in the file's order. Without any, all jobs.
    """

    first: int | None = None
    only: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.first is not None or bool(self.only)

    def line(self) -> str:
        """The choice in words."""
        jobs = "the jobs"
        if self.first is not None:
            are = "is" if self.first == 1 else "are"
            jobs = f"the first {counted(self.first, 'job')} that {are} not bought"
        return f"{jobs} of {counted(len(self.only), 'row')}" if self.only else jobs


ALL = Choice()


def row_id_of(name: str, jobs: pl.DataFrame) -> str:
    """The id of a row of these jobs by its name: its id, or `line 4` where it has none of its own.

    Raises:
        InputError: the name is a line, and no such row is there, or one in each of several files.
    """
    line = line_of(name)
    if line is None or (jobs["row_id"] == name).any():
        return name
    on_line: list[str] = jobs.filter(line=line)["row_id"].unique(maintain_order=True).to_list()
    without_id = [row_id for row_id in on_line if not has_own_id(row_id)]
    if len(without_id) == 1:
        return without_id[0]
    if without_id:
        hint = f"Name one of them by its id, which is made of its content: {', '.join(without_id)}."
        raise InputError(f"{len(without_id)} rows, each of another file, are on line {line}", hint=hint)
    if on_line:
        hint = "A row is named by its line only where it has no id."
        raise InputError(f"the row on line {line} has an id: {printable(on_line[0])}", hint=hint)
    hint = "rejects.csv, next to the report, has the rows that were rejected, with their lines."
    raise InputError(f"the batch has no row on line {line} that can be bought", hint=hint)


def chosen(choice: Choice, jobs: pl.DataFrame) -> pl.Series:
    """The jobs that a person names: a Boolean for every job with its standing.

    Raises:
        InputError: a row is not in the plan, or a line is that of several rows.
    """
    mask = pl.repeat(True, jobs.height, dtype=pl.Boolean, eager=True)
    if choice.only:
        row_ids = set(jobs["row_id"])
        chosen_ids = [row_id_of(name, jobs) for name in choice.only]
        if unknown := [row_id for row_id in chosen_ids if row_id not in row_ids]:
            raise InputError(
                f"the batch has no job of row {printable(unknown[0])!r}",
                hint="Nothing was bought. rejects.csv, next to the report, has the rows that were rejected.",
            )
        mask = jobs["row_id"].is_in(chosen_ids)
    if choice.first is not None:
        mask = mask & jobs["to_buy"]
        mask = mask & (mask.cum_sum() <= min(choice.first, jobs.height))
    return mask


def pilot(jobs: pl.DataFrame, number: int) -> pl.Series:
    """So many jobs of a plan, spread over the models, and in each model over what sets the price.

    The models take turns, in the order in which the file first has them; so do the kinds of each model. Of
    each kind the first jobs of the file are taken. Where rows ask for several things, as with a matrix, their
    rows are taken whole, until there are so many jobs or more: so what a row has asked for can be compared.

    Returns:
        A Boolean for every job, in the plan's order.
    """
    kinds = (
        jobs.select(*_KIND)
        .with_row_index("position")
        .with_columns(rank=pl.int_range(pl.len()).over(_KIND), kind=pl.col("position").min().over(_KIND))
        .filter(pl.col("rank") < number)
        .sort("rank", "kind")
        .with_columns(turn=pl.int_range(pl.len()).over("model"), place=pl.col("position").min().over("model"))
        .sort("turn", "place")
    )
    positions = kinds.head(min(number, kinds.height))["position"]
    if jobs.select("row_id", "sample").is_duplicated().any():
        return _whole_rows(jobs["row_id"], positions)
    mask = pl.repeat(False, jobs.height, dtype=pl.Boolean, eager=True)
    return mask.scatter(positions, True)


def _whole_rows(rows: pl.Series, positions: pl.Series) -> pl.Series:
    """All jobs of the rows of these jobs, in their order, until they are as many: a Boolean for every job."""
    first = pl.DataFrame({"row_id": rows.gather(positions).unique(maintain_order=True)})
    counted = first.join(rows.value_counts(), on="row_id", how="left", maintain_order="left")
    chosen_rows = counted.filter(pl.col("count").cum_sum() - pl.col("count") < positions.len())
    return rows.is_in(chosen_rows["row_id"].implode())


PLAN = "plan.parquet"
"""In the work folder, the batch's plan: that of the last run that was free to buy."""

QUOTE = "quote.parquet"
"""In the work folder, the plan that was priced last: what only looks changes no other file."""

_COUNTS = ("rows", "rejected_rows", "unpriced", "left_out")
_SLICE = 16_384  # jobs whose hashes are made at once
_REJECTS = ".rejects.parquet"


@dataclass(frozen=True)
class Plan:
    """A plan, as it is on disk.

    Attributes:
        rows: rows of the batch file, rejected ones too.
        rejected_rows: rows with at least one reject. With a matrix, a row may be rejected in part.
        unpriced: prompt rows for which the catalogue has no price (bought or not).
        made_at: when the catalogue was read.
        notes: what a person should know of how the rows were read and became jobs, in sentences.
        left_out: how many rows `input.where` leaves out; they are none of `rows`.
        table: what can be bought: the rows of `plan.parquet`.
        rejects: what is wrong with the rejected rows (`cells.rejects`), sorted by line; rows without a price
            too, unless the config allows them.
    """

    path: Path
    batch: str
    rows: int
    rejected_rows: int
    unpriced: int
    made_at: datetime
    catalogue: Catalogue
    notes: tuple[str, ...]
    columns: Columns
    left_out: int
    table: pl.DataFrame = field(repr=False, compare=False)
    rejects: pl.DataFrame = field(repr=False, compare=False)

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return self.table.height

    @property
    def quoted(self) -> Decimal:
        """The sum of all prices, in US dollars."""
        return Decimal(self.table["price"].sum() or 0)

    def jobs_in_order(
        self, of_type: ModelType | None = None, among: pl.Series | None = None
    ) -> Iterator[Job]:
        """The jobs that can be bought, in the file's order; with `among`, a Boolean for every job, only those
        for which it is true.
        """
        rows = self.table if among is None else self.table.filter(among)
        return _jobs(rows.filter(type=of_type.value) if of_type else rows)

    def jobs_of(self, keys: Collection[str]) -> dict[str, Job]:
        """Those of these jobs that the plan has and can be bought, by key."""
        return {job.key: job for job in _jobs(self.table.filter(pl.col("key").is_in(list(keys))))}

    def kept(self) -> int:
        """How many jobs are bought, and not offered by the catalogue any more: they have no request."""
        return self.table["request"].null_count()

    def lines(self, keys: Collection[str] | None = None) -> dict[str, int]:
        """The line of each of these jobs (without `keys`: of all) in the batch file, by key."""
        rows = self.table if keys is None else self.table.filter(pl.col("key").is_in(list(keys)))
        return dict(rows.select("key", "line").iter_rows())

    def sha256(self) -> str:
        """A hash of what the rows ask for at which price: of the jobs' keys and prices, in the file's order.

        What is bought again because it was rejected is no other plan: its price is in `Quote.at_most`.
        """
        price = pl.col("price").cast(pl.String).fill_null("unpriced")
        lines = (
            self.table.filter(~pl.col("again")).select(pl.format("{} {}\n", "key", price).str.join("")).item()
        )
        return hashlib.sha256(lines.encode()).hexdigest()


def _jobs(rows: pl.DataFrame) -> Iterator[Job]:
    """Those that can be bought: of what is bought and not offered any more, there is no request."""
    for part in rows.filter(pl.col("request").is_not_null()).iter_slices(_SLICE):
        yield from map(_job, part.with_columns(request_key()).iter_rows(named=True))


def _job(row: dict[str, Any]) -> Job:
    price = None
    if row["unit_price"] is not None:
        price = Price(row["billable_unit"], row["unit_price"], row["quantity"], row["currency"])
    return Job(
        key=row["key"],
        row_id=row["row_id"],
        sample=row["sample"],
        type=ModelType(row["type"]),
        model=row["model"],
        request=json.loads(row["request"]),
        price=price,
        request_key=row["request_key"],
        inlined={image["sha256"]: image["source"] for image in row["inlined"] or ()},
        carried=row["carried"] or {},
    )


def make_plan(
    batch: Batch,
    catalogue: Catalogue,
    settings: Settings,
    path: Path,
    *,
    now: datetime,
    ledger_jobs: pl.DataFrame | None = None,
    rejected: pl.Series | None = None,
) -> Plan:
    """Prices a batch and freezes it. Reads local and S3 reference images; call it in a thread.

    Args:
        path: where the plan is written, in one step; an older one is replaced.
        now: when the catalogue was read.
        ledger_jobs: what the ledger has of the batch (`queries.requests`); None where it has nothing.
        rejected: the rows of which every stored file is rejected.

    Raises:
        ConfigError: a value of `input.matrix` or `input.defaults.model` is wrong for the catalogue.
        StorageError: the plan cannot be written.
    """
    check_config_values(settings, catalogue, batch)
    table = make_jobs(batch.rows, catalogue, settings, with_repeated=True)
    ledger_jobs = table.jobs.clear() if ledger_jobs is None else ledger_jobs
    jobs, notes = match(
        *(table.jobs, table.not_offered, ledger_jobs, settings.batch),
        rejected=rejected,
        samples=settings.review.samples if settings.review.buy_again else 0,
    )
    if settings.input.repeated == "once":
        jobs, once_notes = _once(jobs, ledger_jobs)
        notes += once_notes
    jobs, changed = as_sent(jobs, batch.stored_files)
    notes += _changed_files(changed, ledger_jobs)
    if table.fitted:
        notes.append(references.said(table.fitted))
    faulty = batch.others.filter(pl.col("model").is_not_null()).with_columns(pl.col("prompt").fill_null(""))
    besides = make_jobs(faulty, catalogue, settings).wrong if faulty.height else table.wrong.clear()
    priced_rejects = rejects(pl.concat([table.wrong, besides]), batch.names).unique(maintain_order=True)
    plan = Plan(
        path=path,
        batch=settings.batch,
        rows=batch.total,
        rejected_rows=batch.total - batch.rows.height + table.rejected,
        unpriced=table.unpriced,
        made_at=now.astimezone(UTC),
        catalogue=catalogue,
        notes=(*batch.notes, *notes),
        columns=batch.columns,
        left_out=batch.left_out,
        table=jobs,
        rejects=pl.concat([batch.rejects, priced_rejects]).sort("line", maintain_order=True),
    )
    _write(plan)
    return plan


def _once(jobs: pl.DataFrame, ledger_jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The jobs without those that `input.repeated` leaves out, and how many rows that are, in a sentence."""
    bought = ledger_jobs.filter(pl.col("state").is_in(MAY_COST))["job_key"] if ledger_jobs.height else None
    jobs, rows = once(jobs, bought)
    ask = f"{counted(rows, 'row')} {'asks' if rows == 1 else 'ask'}"
    return jobs, [f"{ask} for what another row asks for: left out by input.repeated"] if rows else []


def _changed_files(changed: pl.Series, ledger_jobs: pl.DataFrame) -> list[str]:
    """How many new jobs are made from a file that has changed (`as_sent`), in a sentence."""
    new = changed.filter(~changed.is_in(ledger_jobs["job_key"].implode())) if ledger_jobs.height else changed
    if new.is_empty():
        return []
    files = (
        "is made from a stored file that has" if new.len() == 1 else "are made from stored files that have"
    )
    return [f"{counted(new.len(), 'new job')} {files} other bytes now than the other batch has stored"]


def open_plan(path: Path) -> Plan | None:
    """Reads `plan.parquet` back; None where there is none that can be read."""
    with suppress(KeyError, TypeError, ValueError, OSError, pl.exceptions.PolarsError):
        with open_regular(path) as file:
            content = file.read()  # once: another run may replace the file
        metadata = pl.read_parquet_metadata(content)
        facts = json.loads(metadata["callsheet.plan"])
        models = [Model.model_validate(model) for model in json.loads(metadata["callsheet.catalogue"])]
        table = pl.read_parquet(content)
        older = {name: pl.lit(False) for name in ("repeats", "again") if name not in table.columns}
        table = table.with_columns(**older)
        return Plan(
            path=path,
            **{name: facts[name] for name in _COUNTS},
            batch=facts["batch"],
            made_at=datetime.fromisoformat(facts["made_at"]),
            catalogue={model.id: model for model in models},
            notes=tuple(facts["notes"]),
            columns=Columns(**facts["columns"]),
            table=table.select(COLUMNS),
            rejects=pl.read_parquet(path.with_suffix(_REJECTS), glob=False),
        )
    return None


def _write(plan: Plan) -> None:
    """Writes both files, each in one step, the rejects first.

    Raises:
        StorageError: they cannot be written.
    """
    facts = {name: getattr(plan, name) for name in ("batch", "notes", *_COUNTS)}
    facts |= {"made_at": plan.made_at.isoformat(), "columns": asdict(plan.columns)}
    models = [plan.catalogue[name].model_dump(mode="json") for name in sorted(plan.catalogue)]
    metadata = {"callsheet.plan": canonical(facts), "callsheet.catalogue": canonical(models)}
    try:
        with PartialFile(plan.path) as file, PartialFile(plan.path.with_suffix(_REJECTS)) as rejects_file:
            plan.table.write_parquet(file.file, compression="lz4", statistics=False, metadata=metadata)
            plan.rejects.write_parquet(rejects_file.file)
            rejects_file.commit()
            file.commit()
    except (OSError, pl.exceptions.ComputeError) as error:  # polars wraps the errors of the disk
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"{plan.path}: the plan cannot be written: {reason}") from None


# ---- the plans of a batch on this machine


async def price_batch(batch: Batch, settings: Settings, client: Client, ledger: Ledger) -> Plan:
    """Reads the live catalogue, prices every row, and writes the plan of a quote to the work folder.

    Where the service is down, the catalogue of this machine's last plan serves, if nothing is to buy by it
    and no other rows are rejected than then.

    Raises:
        OtherLedger: the report there is another batch's.
        ServiceError: the catalogue cannot be read.
        LedgerError: the ledger cannot be read.
        StorageError: the plan cannot be written.
    """
    await check_report(settings)
    path, now = work_folder(settings) / QUOTE, datetime.now(UTC)
    down, last = None, None
    try:
        catalogue = await client.models()
    except (NotSent, MaybeSent, ServerError, GatewayAnswer) as error:
        down, last = error, await asyncio.to_thread(last_plan, settings)
        if last is None:
            raise
        catalogue, now = last.catalogue, last.made_at

    def read(connection: sa.Connection, name: str) -> tuple[pl.DataFrame, pl.Series]:
        return queries.requests(connection, name, policy_of(settings)), marks.rejected_rows(connection, name)

    ledger_jobs, rejected = await ledger.read(read)
    plan = await asyncio.to_thread(
        make_plan, batch, catalogue, settings, path, now=now, ledger_jobs=ledger_jobs, rejected=rejected
    )
    if down is None or last is None:
        return plan
    not_to_buy = ledger_jobs.filter(~pl.col("to_buy"))["job_key"].implode()
    to_buy = plan.table.filter(pl.col("request").is_not_null(), ~pl.col("key").is_in(not_to_buy))
    if to_buy.height or (plan.rejected_rows and not plan.rejects.equals(last.rejects)):
        raise down
    note = (
        f"nothing is to buy, so the prices are those of {now:%Y-%m-%d %H:%M} UTC: {printable(down.message)}"
    )
    return replace(plan, notes=(*plan.notes, note))


async def adopt(plan: Plan, settings: Settings, ledger: Ledger) -> Plan:
    """Makes the plan of a quote the batch's own, which reports and exports go by: a run is about to buy it.

    From now on the ledger says which of its jobs this plan has, and what they carry by it.

    Raises:
        LedgerError: the ledger cannot be read or written.
        StorageError: the plan cannot be written.
    """
    ledger_jobs = await ledger.read(queries.jobs, ["job_key", "carried", "current"])
    carried = await asyncio.to_thread(changed_carried, plan.table, ledger_jobs)
    is_planned = ledger_jobs["job_key"].is_in(plan.table["key"].implode())
    is_new = ledger_jobs["current"].ne_missing(is_planned)
    current = {
        now: ledger_jobs["job_key"].filter(is_new & (is_planned == now)).to_list() for now in (True, False)
    }
    if carried or is_new.any():
        await ledger.write(writing.adopt, carried, current)
    plan = replace(plan, path=work_folder(settings) / PLAN)
    await asyncio.to_thread(_write, plan)
    return plan


async def is_outdated(plan: Plan, settings: Settings, client: Client) -> bool:
    """Whether a plan is older than `budget.quote_valid_for`, and the rates of its models have changed since.

    Raises:
        ServiceError: the catalogue cannot be read.
    """
    age = datetime.now(UTC) - plan.made_at
    if age.total_seconds() < settings.budget.quote_valid_for:
        return False
    return bool(changed_rates(plan.catalogue, await client.models(), plan.table["model"].unique()))


def last_plan(settings: BatchSettings, name: str = PLAN) -> Plan | None:
    """The batch's plan in the work folder, or with `QUOTE` what was priced last; None if there is none that
    can be read.
    """
    plan = open_plan(work_folder(settings, make=False) / name)
    return plan if plan and plan.batch == settings.batch else None


def is_current(planned: pl.Series | None) -> pl.Expr:
    """Whether the batch file still asks for jobs, by their `job_key` and the ledger's `current`.

    `planned` are the keys of this machine's last plan, or None. They count where no run has adopted a plan
    since the ledger was upgraded; where they are not there either, all jobs are current.
    """
    by_plan = pl.lit(True) if planned is None else pl.col("job_key").is_in(planned.implode())
    return pl.coalesce("current", by_plan).alias("current")


def lines_of_last_plan(settings: BatchSettings, keys: Collection[str]) -> dict[str, int]:
    """The line of each of these jobs in the batch file, by key, where the last plan has it."""
    plan = last_plan(settings) if keys else None
    return plan.lines(keys) if plan else {}


# ---- what is bought again


@dataclass(frozen=True, slots=True)
class ToBuyAgain(Record):
    """What a quote with `--again` has to buy for rows of which every stored file is rejected: so many jobs,
    for so many dollars.
    """

    jobs: int = 0
    quoted: Decimal = Decimal(0)


async def to_buy_again(ledger: Ledger, settings: BatchSettings) -> ToBuyAgain:
    """What is to be bought again, by the batch's last plan and the ledger: its prices are those of that plan.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    rejected = await ledger.read(marks.rejected_rows)
    if rejected.is_empty():
        return ToBuyAgain()
    plan = await asyncio.to_thread(last_plan, settings)
    policy, samples = policy_of(settings), settings.review.samples
    ledger_jobs = await ledger.read(lambda connection, batch: queries.requests(connection, batch, policy))
    jobs = bought_again(plan.table if plan else None, ledger_jobs, rejected, samples)
    return ToBuyAgain(jobs.height, Decimal(jobs["price"].sum() or 0))
