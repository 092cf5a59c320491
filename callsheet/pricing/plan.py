"""The frozen, priced plan: every job of a batch, resolved, priced and keyed, in one Parquet file.

`plan.parquet` has a row per job, in the batch file's order; its metadata hold the catalogue that the prices
come from. Beside it lies `plan.rejects.parquet`, what will not be bought. The same batch, catalogue, settings
and time make the same bytes. What stands in it is found by `jobs`.
"""

from __future__ import annotations

import json
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Literal

import polars as pl
from polars.io.plugins import register_io_source

from callsheet.batches.prefetch import parallel_map
from callsheet.batches.read import Batch
from callsheet.config.settings import Settings
from callsheet.errors import InputError, StorageError
from callsheet.files import PartialFile
from callsheet.pricing.jobs import Lister
from callsheet.records import Catalogue, Job, Model, ModelType, Price, canonical
from callsheet.rows import rejects

_SLICE = 32_768
_UNREADABLE = (KeyError, ValueError, OSError, pl.exceptions.PolarsError)
_OF_JOB = ["key", "row_id", "sample", "type", "model", "request", "inlined", "carried"]
_OF_JOB += ["billable_unit", "unit_price", "quantity", "currency"]


@dataclass(frozen=True)
class Plan:
    """A plan on disk.

    Attributes:
        path: `plan.parquet`.
        batch: the batch's name.
        rows: rows of the batch file, rejected ones too.
        rejected_rows: those with something wrong, a combination of the matrix or no price among it.
        jobs: what can be bought; rows of `plan.parquet`.
        rejects: what is wrong with the other rows (`rows.rejects`), sorted by line; rows without a price
            too, unless the config allows them.
        unpriced: prompt rows for which the catalogue has no price (bought or not).
        quoted: the sum of all prices, in `currency`.
        made_at: when the catalogue was read.
        catalogue: the models and rates that the prices come from.
        file: `path`, held open: another run may put another plan in its place.
        before: the catalogue of the batch's plan whose place it took, and when that one was read.
    """

    path: Path
    batch: str
    rows: int
    rejected_rows: int
    jobs: int
    rejects: pl.DataFrame = field(compare=False)
    unpriced: int
    quoted: Decimal
    made_at: datetime
    catalogue: Catalogue
    file: BinaryIO = field(repr=False, compare=False)
    currency: Literal["USD"] = "USD"
    before: tuple[Catalogue, datetime] | None = field(default=None, compare=False)

    @property
    def all_rejected(self) -> bool:
        """Whether the batch has rows, and no job can be made of any of them."""
        return self.rows > 0 and self.jobs == 0

    def jobs_in_order(self) -> Iterator[Job]:
        """Every job, in the file's order, read a slice at a time."""
        for start in range(0, self.jobs, _SLICE):
            rows = self.scan().select(_OF_JOB).slice(start, _SLICE).collect()
            yield from map(_job, rows.iter_rows(named=True))

    def scan(self) -> pl.LazyFrame:
        """The rows of `plan.parquet`, read when they are asked for."""
        return pl.scan_parquet(self.file)

    def keys(self) -> pl.DataFrame:
        """`key`, `price` (decimal, null where there is none) and `type` of every job, in the file's order."""
        return pl.read_parquet(self.file, columns=["key", "price", "type"])


def make_plan(batch: Batch, catalogue: Catalogue, settings: Settings, path: Path, *, now: datetime) -> Plan:
    """Prices a batch and freezes it. Reads local and S3 reference images; call it in a thread.

    Args:
        batch: the rows.
        catalogue: the live models.
        settings: the config.
        path: where `plan.parquet` is written, in one step; a plan that is there is replaced.
        now: when the catalogue was read.

    Raises:
        StorageError: the plan cannot be written.
    """
    told = [batch.rejects]
    counts = Counter(rows=batch.total, rejected_rows=batch.total, unpriced=0)
    lister = Lister(catalogue, settings)

    def portions() -> Iterator[pl.DataFrame]:
        for rows in batch.slices():
            counts["rejected_rows"] -= rows.height
            yield from lister.portions(rows)

    def tables() -> Iterator[pl.DataFrame]:
        for found in parallel_map(lister.list, portions(), threads=2):
            counts["rejected_rows"] += found.rejected
            counts["unpriced"] += found.unpriced
            told.append(rejects(found.wrong, batch.columns).unique(maintain_order=True))
            yield found.table

    def all_told() -> pl.DataFrame:
        return pl.concat(told).sort("line", maintain_order=True)

    about = {"batch": settings.batch, "made_at": now.astimezone(UTC).isoformat()}
    before = _before(path, settings.batch)
    _write(path, tables(), all_told, lambda: about | counts, catalogue)
    return open_plan(path, before)


def _before(path: Path, batch: str) -> tuple[Catalogue, datetime] | None:
    """The catalogue of the batch's plan that lies there, and when it was read; None where there is none."""
    try:
        about, catalogue = _metadata(path)
    except _UNREADABLE:
        return None
    return (catalogue, datetime.fromisoformat(about["made_at"])) if about["batch"] == batch else None


def _metadata(source: Path | BinaryIO) -> tuple[dict[str, Any], Catalogue]:
    metadata = pl.read_parquet_metadata(source)
    models = json.loads(metadata["callsheet.catalogue"])
    return json.loads(metadata["callsheet.plan"]), {each["id"]: Model.model_validate(each) for each in models}


def open_plan(path: Path, before: tuple[Catalogue, datetime] | None = None) -> Plan:
    """Reads a plan back.

    Args:
        path: `plan.parquet`.
        before: see `Plan`.

    Raises:
        InputError: there is none, or it is not one of ours.
    """
    try:
        file = path.open("rb")
        about, catalogue = _metadata(file)
        file.seek(0)
        price = pl.scan_parquet(file).select(jobs=pl.len(), quoted=pl.col("price").sum()).collect()
        plan = Plan(
            path=path,
            batch=about["batch"],
            rows=about["rows"],
            rejected_rows=about["rejected_rows"],
            jobs=price["jobs"][0],
            rejects=pl.read_parquet(_beside(path)),
            unpriced=about["unpriced"],
            quoted=price["quoted"][0] or Decimal(0),
            made_at=datetime.fromisoformat(about["made_at"]),
            catalogue=catalogue,
            file=file,
            before=before,
        )
    except _UNREADABLE as error:
        raise InputError(f"{path}: is no plan that can be read: {error}") from None
    weakref.finalize(plan, file.close)
    return plan


def _write(
    path: Path,
    jobs: Iterator[pl.DataFrame],
    rejects: Callable[[], pl.DataFrame],
    about: Callable[[], dict[str, Any]],
    catalogue: Catalogue,
) -> None:
    """Both files, each put in place in one step, the rejects first; these are asked for last."""
    models = [catalogue[name].model_dump(mode="json") for name in sorted(catalogue)]
    first = next(jobs)

    def source(*_: object) -> Iterator[pl.DataFrame]:
        yield first
        yield from jobs

    def metadata(_: object) -> dict[str, str]:
        return {"callsheet.plan": canonical(about()), "callsheet.catalogue": canonical(models)}

    try:
        with PartialFile(path) as partial:
            table = register_io_source(source, schema=first.schema)
            table.sink_parquet(partial.file, compression="lz4", row_group_size=_SLICE, metadata=metadata)
            with PartialFile(_beside(path)) as partial_rejects:
                rejects().write_parquet(partial_rejects.file)
                partial_rejects.commit()
            partial.commit()
    except (OSError, pl.exceptions.ComputeError) as error:  # polars wraps what the disk says
        why = getattr(error, "strerror", None) or error
        raise StorageError(f"{path}: the plan cannot be written: {why}") from None


def _beside(path: Path) -> Path:
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
        inlined={each["sha256"]: each["source"] for each in row["inlined"]},
        carried=row["carried"] or {},
    )
