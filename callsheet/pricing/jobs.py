"""Prompt rows and a catalogue -> the jobs to buy, resolved, priced and keyed; and what cannot be bought.

It works on whole columns. What needs a decision is decided once for each distinct case and joined back: an
image source is read once, and a combination of parameters is checked and priced once (`rates.offer`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from itertools import product
from threading import Lock
from typing import Any

import polars as pl

from callsheet.batches.identities import sha256
from callsheet.batches.read import UNTIL_PRICED
from callsheet.config.settings import Settings
from callsheet.pricing import references
from callsheet.pricing.rates import REFERENCE, Combination, Defaults, Offer, Reject, offer
from callsheet.pricing.references import Reference, RequestImage
from callsheet.records import Catalogue, canonical
from callsheet.rows import IMAGE_COLUMNS, fixed_values, separate

MONEY = pl.Decimal(18, 6)
_MOST_JOBS = 65_536
_PARAMETERS = ("model", "aspect_ratio", "resolution", "output_format", "duration", "sound")
_NOT_READ = ("https://", "data:")
_INLINED = pl.List(pl.Struct({"sha256": pl.String, "source": pl.String}))

Cells = dict[str, Any]
"""Values of one row by column."""


@dataclass(frozen=True)
class JobTable:
    """The jobs of a slice of a batch.

    Attributes:
        jobs: a row per job, in the file's order; the columns of `plan.parquet`.
        wrong: what cannot be bought: `line`, `file`, `column`, `value`, `reason`.
        rejected: how many prompt rows have at least one entry in `wrong`.
        unpriced: how many prompt rows have a request without a price in the catalogue.
    """

    jobs: pl.DataFrame
    wrong: pl.DataFrame
    rejected: int
    unpriced: int


class JobMaker:
    """Turns the rows of one batch into jobs. Threads may share it.

    Args:
        catalogue: the live models.
        settings: the config.
        readers: reads the images; as many at once as it has threads.
    """

    def __init__(self, catalogue: Catalogue, settings: Settings, readers: Executor) -> None:
        defaults = settings.input.defaults
        late = fixed_values({column: defaults[column] for column in UNTIL_PRICED if column in defaults})
        self._catalogue = catalogue
        self._settings = settings
        self._defaults = Defaults(**late)  # type: ignore[arg-type]  # typed by fixed_values
        self._combinations = _combinations(settings)
        self._images = _Images(settings.storage.endpoint_url, readers)

    def split(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Splits the rows of a batch, so that each part makes some ten thousand jobs.

        Returns:
            At least one part. A part has at least one row, unless there are no rows.
        """
        combinations = self._combinations.height if self._combinations is not None else 1
        jobs = (rows["samples"] * combinations).cum_sum()
        begin = 0
        while True:
            jobs_before = jobs[begin - 1] if begin else 0
            end = max(begin + 1, jobs.search_sorted(jobs_before + _MOST_JOBS, side="right"))
            yield rows[begin:end]
            begin = end
            if begin >= rows.height:
                return

    def make_jobs(self, rows: pl.DataFrame) -> JobTable:
        """Multiplies rows by matrix and samples, resolves, prices and keys. Reads local and S3 images.

        Args:
            rows: of a batch.
        """
        rows = _multiplied(rows, self._combinations)
        rows, bad_images = _with_images(rows, self._images)
        rows, not_offered = _priced(rows, self._catalogue, self._defaults)
        with_price, unpriced = separate(rows, pl.col("price").is_null())
        wrong = [bad_images, not_offered]
        if not self._settings.budget.allow_unpriced:
            wrong.append(unpriced.with_columns(reason="unpriced"))
            rows = with_price
        rows, too_large = _with_request(rows)
        wrong.append(too_large)
        if self._combinations is not None:
            rows, repeated = _each_request_once(rows)
            wrong.append(repeated)
        columns = ["row", "line", "file", "column", "value", "reason"]
        wrong_cells = pl.concat([table.select(columns) for table in wrong])
        return JobTable(
            jobs=_keyed(_per_sample(rows), self._settings.batch),
            wrong=wrong_cells.drop("row"),
            rejected=wrong_cells["row"].n_unique(),
            unpriced=unpriced["row"].n_unique(),
        )


class _Images:
    """The images of a batch: each distinct source is read once, several at the same time."""

    def __init__(self, endpoint_url: str | None, readers: Executor) -> None:
        self._endpoint_url = endpoint_url
        self._readers = readers
        self._files: dict[str, Future[RequestImage | str]] = {}
        self._lock = Lock()

    def examine(self, sources: Sequence[str]) -> dict[str, RequestImage | str]:
        """Each source as its request has it, or why it cannot be sent (`references.examine`)."""
        files = {source: self._read(source) for source in sources if not source.startswith(_NOT_READ)}
        return {
            source: files[source].result() if source in files else references.examine(source)
            for source in sources
        }

    def _read(self, source: str) -> Future[RequestImage | str]:
        with self._lock:
            if source not in self._files:
                self._files[source] = self._readers.submit(references.examine, source, self._endpoint_url)
            return self._files[source]


def _combinations(settings: Settings) -> pl.DataFrame | None:
    """Every combination of the matrix, a row each; None where there is no matrix."""
    matrix = settings.input.matrix
    if not matrix:
        return None
    combinations = [
        fixed_values(dict(zip(matrix, values, strict=True))) for values in product(*matrix.values())
    ]
    types: dict[str, Any] = {"duration": pl.Int64, "sound": pl.Boolean}
    return pl.DataFrame(combinations, schema={column: types.get(column, pl.String) for column in matrix})


def _multiplied(rows: pl.DataFrame, combinations: pl.DataFrame | None) -> pl.DataFrame:
    """Every row with every combination of the matrix, in the file's order; `row` counts the file's rows."""
    rows = rows.with_row_index("row")
    if combinations is None:
        return rows
    return (
        rows.drop(combinations.columns)
        .join(combinations.with_row_index("combination"), how="cross")
        .sort("row", "combination")
        .drop("combination")
    )


def _resolve_distinct(
    rows: pl.DataFrame,
    columns: Sequence[str],
    resolve: Callable[[list[Cells]], list[Cells]],
    schema: Mapping[str, Any],
) -> pl.DataFrame:
    """Adds columns that follow from others: resolves each distinct combination once, and joins it back.

    Args:
        rows: some or none.
        columns: the columns on which the new ones depend.
        resolve: from combinations of all `columns` to the new cells of each, in the same order; a cell that
            is left out is null.
        schema: the columns that are added.
    """
    used = [column for column in columns if rows[column].null_count() < rows.height]
    # Without any of them, all rows are alike.
    distinct = rows.select(used).unique(maintain_order=True) if used else rows.select(columns[:1]).head(1)
    blank: Cells = dict.fromkeys(columns)
    resolved = resolve([blank | cells for cells in distinct.iter_rows(named=True)])
    # Money comes as text: for a Decimal, polars imports numpy, which takes as long as 50,000 rows.
    read_as = {column: pl.String if dtype == MONEY else dtype for column, dtype in schema.items()}
    table = pl.DataFrame(resolved, schema=read_as).cast(pl.Schema(schema))
    differing = [
        column for column in schema if any(cells.get(column) != resolved[0].get(column) for cells in resolved)
    ]
    # A column with the same value everywhere is a literal, which takes no memory for each row.
    rows = rows.with_columns(pl.lit(column).first().alias(column.name) for column in table.drop(differing))
    if not differing:
        return rows
    table = distinct.hstack(table.select(differing))
    return rows.join(table, on=used, how="left", nulls_equal=True, maintain_order="left")


def _with_images(rows: pl.DataFrame, images: _Images) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Adds `images_json` (of the request), `inlined`, `inlined_bytes` and `roles` (role and column, as JSON).

    Returns:
        The rows whose images can be sent, and the others.
    """

    def resolve(combinations: list[Cells]) -> list[Cells]:
        parsed = [references.parse_references(cells) for cells in combinations]
        sources = dict.fromkeys(
            reference.source for listed in parsed if not isinstance(listed, Reject) for reference in listed
        )
        examined = images.examine(list(sources))
        return [asdict(each) if isinstance(each, Reject) else _image_set(each, examined) for each in parsed]

    schema = dict.fromkeys(["images_json", "roles", "column", "value", "reason"], pl.String)
    resolved = _resolve_distinct(
        rows, IMAGE_COLUMNS, resolve, schema | {"inlined": _INLINED, "inlined_bytes": pl.Int64}
    )
    good, wrong = separate(resolved, pl.col("reason").is_not_null())
    return good.drop(*IMAGE_COLUMNS, "column", "value", "reason"), wrong


def _image_set(listed: list[Reference], examined: Mapping[str, RequestImage | str]) -> Cells:
    """The images of one row."""
    images, inlined, inlined_bytes = [], {}, 0
    for reference in listed:
        image = examined[reference.source]
        if isinstance(image, str):
            return {"column": reference.column, "value": reference.source, "reason": image}
        # Only for an image model may the role be left out (see rates), and there is only this one.
        images.append({"role": reference.role or REFERENCE, "url": image.url})
        inlined_bytes += image.added_bytes
        if image.sha256:
            inlined[image.sha256] = reference.source
    roles = [(reference.role, reference.column) for reference in listed]
    return {
        "images_json": canonical(images) if images else None,
        "roles": json.dumps(roles) if roles else None,
        "inlined": [{"sha256": sha256, "source": source} for sha256, source in inlined.items()],
        "inlined_bytes": inlined_bytes,
    }


def _priced(
    rows: pl.DataFrame, catalogue: Catalogue, defaults: Defaults
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Resolves and prices the parameters of every row.

    Returns:
        The rows that the catalogue offers, with or without a price, and the others.
    """

    def resolve(combinations: list[Cells]) -> list[Cells]:
        return [_offered(cells, catalogue, defaults) for cells in combinations]

    resolved = _resolve_distinct(rows, [*_PARAMETERS, "roles"], resolve, _OFFERED)
    return separate(resolved, pl.col("reason").is_not_null())


_OFFERED: dict[str, Any] = {
    **dict.fromkeys(
        ["column", "value", "reason", "unpriced", "type", "billable_unit", "currency"], pl.String
    ),
    **dict.fromkeys(["head", "middle", "tail", "sent_resolution"], pl.String),
    "sent_duration": pl.Int64,
    "sent_sound": pl.Boolean,
    "quantity": pl.Int64,
    "unit_price": MONEY,
    "price": MONEY,
}


def _offered(cells: Cells, catalogue: Catalogue, defaults: Defaults) -> Cells:
    """An offer as a row of `_OFFERED`; the request's JSON in three parts, around `images` and `prompt`."""
    images = tuple((role, column) for role, column in json.loads(cells["roles"] or "[]"))
    wanted = Combination(**{column: cells[column] for column in _PARAMETERS}, images=images)
    offered = offer(wanted, catalogue, defaults)
    if isinstance(offered, Reject):
        return asdict(offered)
    return _request_parts(offered) | _price_cells(offered)


def _request_parts(offered: Offer) -> Cells:
    pairs = {name: f'"{name}":{canonical(value)}' for name, value in sorted(offered.parameters.items())}
    before_images = [f"{pairs[name]}," for name in pairs if name < "images"]
    before_prompt = [f"{pairs[name]}," for name in pairs if "images" < name < "prompt"]
    after_prompt = [f",{pairs[name]}" for name in pairs if name > "prompt"]
    return {
        "head": "".join(["{", *before_images]),
        "middle": "".join(before_prompt),
        "tail": "".join([*after_prompt, "}"]),
    }


def _price_cells(offered: Offer) -> Cells:
    price = offered.price
    cells = {
        "type": offered.type.value,
        "sent_resolution": offered.parameters.get("resolution"),
        "sent_duration": offered.parameters.get("duration"),
        "sent_sound": offered.parameters.get("sound"),
        "column": "model",
        "value": offered.parameters["model"],
        "unpriced": offered.unpriced,
    }
    if price is None:
        return cells
    return cells | {
        "billable_unit": price.billable_unit,
        "currency": price.currency,
        "quantity": price.quantity,
        "unit_price": f"{price.unit_price:f}",
        "price": f"{price.total:f}",
    }


def _with_request(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Adds each row's `request`.

    Returns:
        The rows whose request is not too large, and the others.
    """
    images = pl.format('"images":{},', "images_json").fill_null("")
    rows = rows.with_columns(request=pl.concat_str("head", images, "middle", _json_pair("prompt"), "tail"))
    limit = references.LARGEST_REQUEST
    size = pl.col("request").str.len_bytes() + pl.col("inlined_bytes")
    good, too_large = separate(rows, size > limit)
    reason = pl.format(f"the request has {{}} bytes with its images; at most {limit:,} are allowed", size)
    return good, too_large.with_columns(column=pl.lit("images"), value=pl.lit(""), reason=reason)


def _each_request_once(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows without those that a matrix makes twice, and these."""
    good, repeated = separate(rows, ~pl.struct("row", "request").is_first_distinct())
    return good, repeated.with_columns(reason=pl.lit("input.matrix asks for the same request twice"))


def _json_pair(column: str) -> pl.Expr:
    """`"name":"text"` as `canonical` writes it; polars has the same escapes, and writes a whole column."""
    return pl.struct(column).struct.json_encode().str.slice(1).str.head(-1)


def _per_sample(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per sample, with the columns of `plan.parquet` but for the key."""
    if (rows["samples"] == 1).all():
        jobs = rows.with_columns(sample=pl.lit(1, pl.Int64))
    else:
        jobs = rows.with_columns(sample=pl.int_ranges(1, pl.col("samples") + 1)).explode("sample")
    carried = pl.col("carried") if "carried" in rows.columns else pl.lit(None, pl.String).alias("carried")
    return jobs.select(
        "row_id",
        "sample",
        "line",
        "type",
        "model",
        pl.col("sent_resolution").alias("resolution"),
        pl.col("sent_duration").alias("duration"),
        pl.col("sent_sound").alias("sound"),
        "request",
        "inlined",
        "inlined_bytes",
        carried,
        "billable_unit",
        "unit_price",
        "quantity",
        "price",
        "currency",
    )


def request_key() -> pl.Expr:
    """The column `request_key` of jobs: the sha256 of [request, sample] as canonical JSON, in hex."""
    pair = pl.concat_str(pl.lit("["), "request", pl.lit(","), "sample", pl.lit("]"))
    return sha256(pair).alias("request_key")


def _keyed(jobs: pl.DataFrame, batch: str) -> pl.DataFrame:
    """A table of jobs with `key`, each job's content address, before the other columns.

    The key is the sha256 of {"batch", "request", "row_id", "sample"} as canonical JSON, in hex.
    """
    row = pl.struct("row_id", "sample").struct.json_encode().str.slice(1)
    address = pl.concat_str(pl.lit(f'{{"batch":{canonical(batch)},"request":'), "request", pl.lit(","), row)
    return jobs.select(sha256(address).alias("key"), pl.all())
