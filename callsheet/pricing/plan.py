"""The plan: every job of a batch, resolved, priced, keyed and frozen in one Parquet file; and where it is.

`plan.parquet` has a row per job, in the batch file's order. Its metadata contain the catalogue from which
the prices come. `plan.rejects.parquet`, next to it, has what will not be bought. The same batch, catalogue,
settings and time make the same bytes. `make_plan` has the way of a row until then.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.batches.columns import Columns
from callsheet.batches.read import Batch
from callsheet.cells import rejects
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import GatewayAnswer, MaybeSent, NotSent, ServerError, StorageError
from callsheet.files import PartialFile, open_regular
from callsheet.ledger import writing
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import policy_of
from callsheet.plain_text import counted, printable
from callsheet.pricing import references
from callsheet.pricing.bought import (
    PLAN_COLUMNS,
    bought_again,
    changed_carried,
    is_to_buy,
    leave_out_repeated,
    match_bought_jobs,
    request_key,
)
from callsheet.pricing.config_values import check_config_values
from callsheet.pricing.rates import PricedJobs, changed_rates, price_requests
from callsheet.pricing.requests import make_requests
from callsheet.records import MADE_FROM, Job, ModelType, Price, Record, canonical, origins
from callsheet.service.client import Client
from callsheet.service.models import Catalogue, Model
from callsheet.standing import ASKED_FOR, Standing, read_standing
from callsheet.storage.spool import work_folder

PLAN = "plan.parquet"
"""In the work folder, the batch's plan: that of the last run that was free to buy."""

QUOTE = "quote.parquet"
"""In the work folder, the plan that was last quoted or asked about: what only looks changes no other file."""

_COUNTS = ("rows", "rejected_rows", "left_out")
_SLICE = 16_384  # jobs whose hashes are made at once
_REJECTS = ".rejects.parquet"


@dataclass(frozen=True)
class Plan:
    """All jobs of a batch, resolved and priced. It is made in memory; `write_plan` writes it to `path`.

    Attributes:
        rows: rows of the batch file, rejected ones too.
        rejected_rows: rows with at least one reject. With a matrix, a row may be rejected in part.
        unpriced_rows: prompt rows for which the catalogue has no price (bought or not).
        made_at: when the catalogue was read.
        notes: what a person should know of how the rows were read and became jobs, in sentences.
        left_out: how many rows `input.where` leaves out; they are none of `rows`.
        unclear: what of the batch file may not be meant so, each in words.
        table: what can be bought: the rows of `plan.parquet`.
        rejects: what is wrong with the rejected rows (`cells.rejects`), sorted by line; rows without a price
            too, unless the config allows them.
    """

    path: Path
    batch: str
    rows: int
    rejected_rows: int
    unpriced_rows: int
    made_at: datetime
    catalogue: Catalogue
    notes: tuple[str, ...]
    columns: Columns
    left_out: int
    unclear: tuple[str, ...]
    table: pl.DataFrame = field(repr=False, compare=False)
    rejects: pl.DataFrame = field(repr=False, compare=False)

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return self.table.height

    @property
    def rejected_in_part(self) -> int:
        """Those of the rejected rows of which something can be bought: with a matrix, its other values."""
        return max(0, self.rejected_rows - (self.rows - self.table["row_id"].n_unique()))

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

    def not_offered(self) -> int:
        """How many jobs are bought, and not offered by the catalogue any more: they have no request."""
        return self.table["request"].null_count()

    def line_numbers(self, keys: Collection[str] | None = None) -> dict[str, int]:
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
    standing: Standing | None = None,
) -> Plan:
    """Prices a batch. Reads local and S3 reference images; call it in a thread.

    Args:
        path: where the plan is to be written.
        now: when the catalogue was read.
        standing: what the ledger has of the batch, with `ASKED_FOR`; None: nothing.

    Raises:
        ConfigError: a value of `input.matrix` or `input.defaults.model` is wrong for the catalogue.
    """
    check_config_values(settings, catalogue, batch)
    requests = make_requests(batch.rows, catalogue, settings)
    priced = price_requests(requests, catalogue, settings)
    jobs, match_notes = match_bought_jobs(priced, standing, settings)
    jobs, repeat_notes = leave_out_repeated(jobs, settings, standing)
    jobs, change_notes = _made_from_what_is_sent(jobs, batch.stored_files, standing)
    notes = [*match_notes, *repeat_notes, *change_notes, *requests.notes]
    return Plan(
        path=path,
        batch=settings.batch,
        rows=batch.total,
        rejected_rows=batch.total - batch.rows.height + priced.rejected,
        unpriced_rows=priced.unpriced_rows,
        made_at=now.astimezone(UTC),
        catalogue=catalogue,
        notes=(*batch.notes, *batch.unclear, *notes),
        columns=batch.columns,
        left_out=batch.left_out,
        unclear=batch.unclear,
        table=jobs,
        rejects=_rejects(batch, priced, catalogue, settings),
    )


def _rejects(batch: Batch, priced: PricedJobs, catalogue: Catalogue, settings: Settings) -> pl.DataFrame:
    """What is wrong with the rejected rows, by line. Of a row with a wrong cell all is said at once, also
    what its request would have been rejected for.
    """
    wrong, faulty = [priced.wrong], batch.others.filter(pl.col("model").is_not_null())
    if faulty.height:
        faulty = faulty.with_columns(pl.col("prompt").fill_null(""))
        wrong.append(price_requests(make_requests(faulty, catalogue, settings), catalogue, settings).wrong)
    of_requests = rejects(pl.concat(wrong), batch.names).unique(maintain_order=True)
    return pl.concat([batch.rejects, of_requests]).sort("line", maintain_order=True)


def _made_from_what_is_sent(
    jobs: pl.DataFrame, stored_files: Mapping[str, str], standing: Standing | None
) -> tuple[pl.DataFrame, list[str]]:
    """The jobs of a plan, in which `MADE_FROM` has the sha256 of the file that is sent; and how many new ones
    are made from a file which has other bytes than were stored, in a sentence.

    `stored_files` are those of another batch, as in `Batch`.
    """
    if not stored_files:
        return jobs, []
    images = jobs.select("key", "inlined").explode("inlined").unnest("inlined")
    place = pl.col("source").str.strip_suffix(references.LAST_FRAME)
    stored = place.replace_strict(stored_files, default=None, return_dtype=pl.String)
    changed = images.select("key", "sha256", stored=stored).filter(pl.col("stored") != pl.col("sha256"))
    if changed.is_empty():
        return jobs, []
    sent = {(key, before): now for key, now, before in changed.iter_rows()}
    cells = jobs["carried"].struct.field(MADE_FROM)
    files_of = [
        [
            file | {"sha256": sent.get((key, file["sha256"]), file["sha256"])}
            for file in origins({MADE_FROM: cell})
        ]
        for key, cell in zip(jobs["key"], cells, strict=True)
    ]
    is_one = isinstance(cells.dtype, pl.Struct)
    new_cells = pl.Series(MADE_FROM, [files[0] for files in files_of] if is_one else files_of, cells.dtype)
    jobs = jobs.with_columns(pl.col("carried").struct.with_fields(new_cells))
    return jobs, _changed_files(changed["key"].unique(), standing)


def _changed_files(changed: pl.Series, standing: Standing | None) -> list[str]:
    new = (
        changed if standing is None else changed.filter(~changed.is_in(standing.newest["job_key"].implode()))
    )
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
        older = {name: pl.lit(False) for name in ("repeats", "unseen", "again") if name not in table.columns}
        table = table.with_columns(**older)
        return Plan(
            path=path,
            **{name: facts[name] for name in _COUNTS},
            unpriced_rows=facts["unpriced"],
            batch=facts["batch"],
            made_at=datetime.fromisoformat(facts["made_at"]),
            catalogue={model.id: model for model in models},
            notes=tuple(facts["notes"]),
            columns=Columns(**facts["columns"]),
            unclear=tuple(facts.get("unclear", ())),
            table=table.select(PLAN_COLUMNS),
            rejects=pl.read_parquet(path.with_suffix(_REJECTS), glob=False),
        )
    return None


def write_plan(plan: Plan) -> None:
    """Writes both files, each in one step, the rejects first; older ones are replaced.

    Raises:
        StorageError: they cannot be written.
    """
    facts = {name: getattr(plan, name) for name in ("batch", "notes", "unclear", *_COUNTS)}
    facts |= {"unpriced": plan.unpriced_rows, "made_at": plan.made_at.isoformat()}
    facts |= {"columns": asdict(plan.columns)}
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
    """Reads the live catalogue, and prices every row; the plan is not written yet.

    Where the service is down, the catalogue of this machine's last plan serves, if nothing is to buy by it
    and no other rows are rejected than then.

    Raises:
        ConfigError: as `make_plan`.
        ServiceError: the catalogue cannot be read.
        LedgerError: the ledger cannot be read.
    """
    path, now = work_folder(settings) / QUOTE, datetime.now(UTC)
    down, last = None, None
    try:
        catalogue = await client.models()
    except (NotSent, MaybeSent, ServerError, GatewayAnswer) as error:
        down, last = error, await asyncio.to_thread(last_plan, settings)
        if last is None:
            raise
        catalogue, now = last.catalogue, last.made_at

    standing = await ledger.read(read_standing, None, policy_of(settings), of_attempts=ASKED_FOR)
    plan = await asyncio.to_thread(make_plan, batch, catalogue, settings, path, now=now, standing=standing)
    if down is None or last is None:
        return plan
    to_buy = plan.table.filter(pl.col("request").is_not_null(), is_to_buy(standing.newest))
    if to_buy.height or (plan.rejected_rows and not plan.rejects.equals(last.rejects)):
        raise down
    note = (
        f"nothing is to buy, so the prices are those of {now:%Y-%m-%d %H:%M} UTC: {printable(down.message)}"
    )
    return replace(plan, notes=(*plan.notes, note))


async def adopt(plan: Plan, standing: Standing, settings: Settings, ledger: Ledger) -> Plan:
    """Makes the plan of a quote the batch's own, which reports and exports go by: a run is about to buy it.

    From now on the ledger says which of its jobs this plan has, and what they carry by it. The attempts of
    `standing` have the column `carried`.

    Raises:
        LedgerError: the ledger cannot be read or written.
        StorageError: the plan cannot be written.
    """
    ledger_jobs = standing.newest
    carried = await asyncio.to_thread(changed_carried, plan.table, ledger_jobs)
    is_planned = ledger_jobs["job_key"].is_in(plan.table["key"].implode())
    is_new = ledger_jobs["current"].ne_missing(is_planned)
    current = {
        now: ledger_jobs["job_key"].filter(is_new & (is_planned == now)).to_list() for now in (True, False)
    }
    if carried or is_new.any():
        await ledger.write(writing.adopt, carried, current)
    plan = replace(plan, path=work_folder(settings) / PLAN)
    await asyncio.to_thread(write_plan, plan)
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
    """The batch's plan in the work folder, or with `QUOTE` the other one; None if there is none that can be
    read.
    """
    plan = open_plan(work_folder(settings, make=False) / name)
    return plan if plan and plan.batch == settings.batch else None


def last_priced(settings: BatchSettings) -> Plan | None:
    """The newer one of these two plans, or None: a run that is free to buy writes `PLAN` alone."""
    plans = (last_plan(settings, name) for name in (QUOTE, PLAN))
    return max(filter(None, plans), key=lambda plan: plan.made_at, default=None)


def lines_of_last_plan(settings: BatchSettings, keys: Collection[str]) -> dict[str, int]:
    """The line of each of these jobs in the batch file, by key, where the last plan has it."""
    plan = last_plan(settings) if keys else None
    return plan.line_numbers(keys) if plan else {}


# ---- what is bought again


@dataclass(frozen=True, slots=True)
class ToBuyAgain(Record):
    """What a quote with `--again` has to buy for rows of which every stored file is rejected: so many jobs,
    for so many dollars.
    """

    jobs: int = 0
    quoted: Decimal = Decimal(0)


def to_buy_again(standing: Standing, plan: Plan | None, settings: BatchSettings) -> ToBuyAgain:
    """What is to be bought again, by the batch's last plan: its prices are those of that plan.

    The attempts of `standing` have the columns `ASKED_FOR`.
    """
    rejected = standing.rejected_rows
    if rejected.is_empty():
        return ToBuyAgain()
    jobs = bought_again(plan.table if plan else None, standing.newest, rejected, settings.review.samples)
    return ToBuyAgain(jobs.height, Decimal(jobs["price"].sum() or 0))
