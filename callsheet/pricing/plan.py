"""The plan: every job of a batch, resolved, priced, keyed and frozen in one Parquet file.

`plan.parquet` has a row per job, in the batch file's order. Its metadata contain the catalogue from which the
prices come. `plan.rejects.parquet`, next to it, has what will not be bought. The same batch, catalogue,
settings and time make the same bytes. `jobs.py` makes the rows; here they are written and read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal

import polars as pl
from polars.io.plugins import register_io_source

from callsheet.batches.read import Batch
from callsheet.batches.rejects import Rejects, in_order
from callsheet.config.settings import Settings
from callsheet.errors import InputError, StorageError
from callsheet.files import PartialFile
from callsheet.pricing.config_values import check_config_values
from callsheet.pricing.jobs import JobMaker, request_key
from callsheet.pricing.known import match
from callsheet.pricing.positions import Positions
from callsheet.records import Catalogue, Job, Model, ModelType, Price, canonical
from callsheet.rows import rejects

_SLICE = 49_152
_READERS = max(4, os.cpu_count() or 1)  # of images, at most 10 MiB each; S3 answers slowly, so never only one
_UNREADABLE = (KeyError, ValueError, OSError, pl.exceptions.PolarsError)
_JOB_COLUMNS = ["key", "row_id", "sample", "type", "model", "request", "inlined", "inlined_bytes", "carried"]
_JOB_COLUMNS += ["billable_unit", "unit_price", "quantity", "currency"]


@dataclass(frozen=True)
class Plan:
    """A plan on disk.

    Attributes:
        path: `plan.parquet`.
        batch: the batch's name.
        rows: rows of the batch file, rejected ones too.
        rejected_rows: rows with at least one reject. With a matrix, a row may be rejected in part.
        jobs: what can be bought; the rows of `plan.parquet`.
        rejects: what is wrong with the rejected rows (`rows.rejects`), sorted by line; rows without a price
            too, unless the config allows them. Read when they are asked for.
        unpriced: prompt rows for which the catalogue has no price (bought or not).
        quoted: the sum of all prices, in `currency`.
        made_at: when the catalogue was read.
        catalogue: the models and rates from which the prices come.
        notes: what a person should know of how the rows became jobs, in sentences.
        file: `path`, kept open: another run may replace the plan.
    """

    path: Path
    batch: str
    rows: int
    rejected_rows: int
    jobs: int
    rejects: pl.LazyFrame = field(compare=False)
    unpriced: int
    quoted: Decimal
    made_at: datetime
    catalogue: Catalogue
    notes: tuple[str, ...]
    file: BinaryIO = field(repr=False, compare=False)
    currency: Literal["USD"] = "USD"

    @property
    def all_rejected(self) -> bool:
        """Whether the batch has rows, and no job can be made of any of them."""
        return self.rows > 0 and self.jobs == 0

    def jobs_in_order(
        self, of_type: ModelType | None = None, among: pl.Series | None = None
    ) -> Iterator[Job]:
        """The jobs in the file's order; read a slice at a time, and only the slices that have some.

        Args:
            of_type: only those of this type.
            among: only those for which it is true: a Boolean for every job.
        """
        wanted = pl.repeat(True, self.jobs, eager=True) if among is None else among
        if of_type:
            wanted = wanted & self.scan().select(pl.col("type") == of_type.value).collect().to_series()
        for start in range(0, self.jobs, _SLICE):
            some = wanted.slice(start, _SLICE)
            if some.any():
                rows = self.scan().select(_JOB_COLUMNS).slice(start, _SLICE).collect().filter(some)
                yield from map(_job, rows.with_columns(request_key()).iter_rows(named=True))

    def jobs_of(self, keys: Collection[str]) -> dict[str, Job]:
        """Those of these jobs that the plan has and can be bought, by key."""
        wanted = pl.col("key").is_in(list(keys)) & pl.col("request").is_not_null()
        rows = self.scan().select(_JOB_COLUMNS).filter(wanted).collect()
        jobs = map(_job, rows.with_columns(request_key()).iter_rows(named=True))
        return {job.key: job for job in jobs}

    def scan(self) -> pl.LazyFrame:
        """The rows of `plan.parquet`, read when they are asked for."""
        return pl.scan_parquet(self.file)

    def kept(self) -> int:
        """How many jobs are bought, and not offered by the catalogue any more: they have no request."""
        return int(self.scan().select(pl.col("request").null_count()).collect().item())

    def lines(self, keys: Collection[str] | None = None) -> dict[str, int]:
        """The line of each of these jobs (without `keys`: of all) in the batch file, by key."""
        rows = self.scan().select("key", "line")
        if keys is not None:
            rows = rows.filter(pl.col("key").is_in(list(keys)))
        return dict(rows.collect().iter_rows())

    def sha256(self) -> str:
        """A hash of what is bought at which price: of the jobs' keys and prices, in the file's order."""
        digest = hashlib.sha256()
        price = pl.col("price").cast(pl.String).fill_null("unpriced")
        lines = pl.concat_str("key", price, separator=" ").str.join("\n")
        for start in range(0, self.jobs, _SLICE):
            part = self.scan().slice(start, _SLICE).select(lines).collect().item()
            digest.update(f"{part}\n".encode())
        return digest.hexdigest()

    def positions(self) -> Positions:
        """Where each job stands in the file's order, by its key."""
        return Positions(self.scan().select("key").collect()["key"])


def make_plan(
    batch: Batch,
    catalogue: Catalogue,
    settings: Settings,
    path: Path,
    *,
    now: datetime,
    known: pl.DataFrame | None = None,
) -> Plan:
    """Prices a batch and freezes it. Reads local and S3 reference images; call it in a thread.

    Args:
        batch: the rows.
        catalogue: the live models.
        settings: the config.
        path: where the plan is written, in one step; an older one is replaced.
        now: when the catalogue was read.
        known: what the ledger has of the batch (`queries.requests`); None where it has nothing.

    Raises:
        ConfigError: a value of `input.matrix` or `input.defaults.model` is wrong for the catalogue.
        InputError: the batch file cannot be read to its end.
        StorageError: the plan cannot be written.
    """
    check_config_values(settings, catalogue, batch)
    readers = ThreadPoolExecutor(_READERS, "images")
    maker = JobMaker(catalogue, settings, readers)
    try:
        jobs, not_offered, wrong, counts = batch.use(lambda slices: _made(maker, slices, batch))
    finally:
        readers.shutdown(cancel_futures=True)
    counts["rows"] = batch.total
    counts["rejected_rows"] += batch.total
    jobs, notes = match(jobs, not_offered, jobs.clear() if known is None else known, settings.batch)
    about = {"batch": settings.batch, "made_at": now.astimezone(UTC).isoformat(), "notes": notes}
    slices = [jobs.slice(start, _SLICE) for start in range(0, max(1, jobs.height), _SLICE)]
    _write(path, iter(slices), lambda: in_order(batch.rejects, wrong), lambda: about | counts, catalogue)
    return open_plan(path)


def _made(
    maker: JobMaker, slices: Iterator[pl.DataFrame], batch: Batch
) -> tuple[pl.DataFrame, pl.DataFrame, Rejects, Counter[str]]:
    """All jobs of a batch: those that are offered, the others, the rejects, and counts of rows."""
    counts = Counter(rejected_rows=0, unpriced=0)
    wrong = Rejects()
    jobs, not_offered = [], []

    def parts() -> Iterator[pl.DataFrame]:
        for rows in slices:
            counts["rejected_rows"] -= rows.height
            yield from maker.split(rows)

    for made in map(maker.make_jobs, parts()):
        counts["rejected_rows"] += made.rejected
        counts["unpriced"] += made.unpriced
        if made.rejected:
            wrong.add(rejects(made.wrong, batch.columns).unique(maintain_order=True))
        jobs.append(made.jobs)
        not_offered.append(made.not_offered)
    return pl.concat(jobs, how="diagonal_relaxed"), pl.concat(not_offered), wrong, counts


def _metadata(source: Path | BinaryIO) -> tuple[dict[str, Any], Catalogue]:
    metadata = pl.read_parquet_metadata(source)
    models = [Model.model_validate(model) for model in json.loads(metadata["callsheet.catalogue"])]
    return json.loads(metadata["callsheet.plan"]), {model.id: model for model in models}


def open_plan(path: Path) -> Plan:
    """Reads a plan back.

    Args:
        path: `plan.parquet`.

    Raises:
        InputError: there is no plan, or it cannot be read.
    """
    try:
        file, rejects_file = path.open("rb"), rejects_path(path).open("rb")
        about, catalogue = _metadata(file)
        file.seek(0)
        table = pl.scan_parquet(file)
        if missing := {*_JOB_COLUMNS} - {*table.collect_schema()}:
            raise ValueError(f"it has no column {', '.join(sorted(missing))}")
        rejects = pl.scan_parquet(rejects_file)
        rejects.collect_schema()
        totals = table.select(jobs=pl.len(), quoted=pl.col("price").sum()).collect()
        plan = Plan(
            path=path,
            batch=about["batch"],
            rows=about["rows"],
            rejected_rows=about["rejected_rows"],
            jobs=totals["jobs"][0],
            rejects=rejects,
            unpriced=about["unpriced"],
            quoted=totals["quoted"][0] or Decimal(0),
            made_at=datetime.fromisoformat(about["made_at"]),
            catalogue=catalogue,
            notes=tuple(about["notes"]),
            file=file,
        )
    except _UNREADABLE as error:
        raise InputError(f"{path}: is not a plan that can be read: {error}") from None
    for each in (file, rejects_file):
        weakref.finalize(plan, each.close)
    return plan


def _write(
    path: Path,
    jobs: Iterator[pl.DataFrame],
    rejects: Callable[[], Iterator[pl.DataFrame]],
    about: Callable[[], dict[str, Any]],
    catalogue: Catalogue,
) -> None:
    """Writes both files, each in one step, the rejects first. They are complete once the last job is made."""
    models = [catalogue[name].model_dump(mode="json") for name in sorted(catalogue)]
    first = next(jobs)

    def metadata(_: object) -> dict[str, str]:
        ours = {"callsheet.plan": canonical(about()), "callsheet.catalogue": canonical(models)}
        return _plain_text(first.schema) | ours

    try:
        with PartialFile(path) as partial:
            tables = _synced(chain([first], jobs), partial.file)
            table = register_io_source(lambda *_: tables, schema=first.schema)
            table.sink_parquet(
                partial.file,
                compression="lz4",
                statistics=False,
                row_group_size=_SLICE,
                metadata=metadata,
            )
            with PartialFile(rejects_path(path)) as partial_rejects:
                some = rejects()
                source = register_io_source(lambda *_: some, schema=next(some).schema)
                source.sink_parquet(partial_rejects.file)
                partial_rejects.commit()
            partial.commit()
    except (OSError, pl.exceptions.ComputeError) as error:  # polars wraps the errors of the disk
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"{path}: the plan cannot be written: {reason}") from None


def _plain_text(schema: pl.Schema) -> dict[str, str]:
    """The metadata by which readers take a plan's enums for what they are in the file: plain text."""
    plain = {name: pl.String if dtype == pl.Enum else dtype for name, dtype in schema.items()}
    file = io.BytesIO()
    pl.DataFrame(schema=plain).write_parquet(file)
    return {"ARROW:schema": pl.read_parquet_metadata(file.getvalue())["ARROW:schema"]}


def _synced(tables: Iterator[pl.DataFrame], file: BinaryIO) -> Iterator[pl.DataFrame]:
    """The tables. Meanwhile, a thread syncs what the file has of them: little is left for its end."""
    with ThreadPoolExecutor(1, "sync") as pool:
        syncing = pool.submit(os.fsync, file.fileno())
        for table in tables:
            yield table
            if syncing.done():
                syncing.result()
                syncing = pool.submit(os.fsync, file.fileno())
    syncing.result()


def adopted(plan: Plan, path: Path) -> Plan:
    """The plan, as the batch's own: a copy of both files at `path`, each written in one step.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        for source, target in ((rejects_path(plan.path), rejects_path(path)), (plan.path, path)):
            with PartialFile(target) as partial:
                if source == plan.path:  # which another look may have replaced
                    size = os.fstat(plan.file.fileno()).st_size
                    partial.file.write(os.pread(plan.file.fileno(), size, 0))
                else:
                    partial.file.write(source.read_bytes())
                partial.commit()
    except OSError as error:
        raise StorageError(f"{path}: the plan cannot be written: {error.strerror or error}") from None
    return open_plan(path)


def rejects_path(path: Path) -> Path:
    """Where the rejects of the plan at `path` are."""
    return path.with_suffix(".rejects.parquet")


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
        inlined_bytes=row["inlined_bytes"],
    )
