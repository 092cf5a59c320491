"""Prompt rows and a catalogue -> the jobs to buy, resolved, priced and keyed; and what cannot be bought.

It works on whole columns. What needs a decision is decided once for each distinct case and joined back: an
image source is read once, and a combination of parameters is checked and priced once (`rates.offer`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import polars as pl

from callsheet.batches.identities import sha256
from callsheet.batches.read import UNTIL_PRICED
from callsheet.config.settings import Settings
from callsheet.pricing import references
from callsheet.pricing.distinct import Cells, Resolver
from callsheet.pricing.rates import REFERENCE, Combination, Defaults, Offer, Reject, offer
from callsheet.pricing.references import Reference, RequestImage
from callsheet.records import Catalogue, ModelType, canonical
from callsheet.rows import IMAGE_COLUMNS, WRONG, fixed_values, separate

MONEY = pl.Decimal(18, 6)
_MOST_JOBS = 65_536
_PARAMETERS = ("model", "aspect_ratio", "resolution", "output_format", "duration", "sound")
_NOT_READ = ("https://", "data:")
_INLINED = pl.List(pl.Struct({"sha256": pl.String, "source": pl.String}))
_WRONG_IN_ROW = {"row": pl.UInt32} | WRONG


@dataclass(frozen=True)
class JobTable:
    """The jobs of a slice of a batch.

    Attributes:
        jobs: a row per job, in the file's order: the columns of `plan.parquet`, some of its texts as enums,
            with `asked` in place of `key` (see `keyed`).
        not_offered: `row_id`, `sample`, `line` and `asked` of each job that the catalogue does not offer now.
        wrong: what cannot be bought: `line`, `file`, `column`, `value`, `reason`.
        rejected: how many prompt rows have at least one entry in `wrong`.
        unpriced: how many prompt rows have a request without a price in the catalogue.
    """

    jobs: pl.DataFrame
    not_offered: pl.DataFrame
    wrong: pl.DataFrame
    rejected: int
    unpriced: int


class JobMaker:
    """Turns the rows of one batch into jobs.

    Args:
        catalogue: the live models.
        settings: the config.
        readers: reads the images; as many at once as it has threads.
    """

    def __init__(self, catalogue: Catalogue, settings: Settings, readers: Executor) -> None:
        defaults = settings.input.defaults
        late: Cells = fixed_values(
            {column: defaults[column] for column in UNTIL_PRICED if column in defaults}
        )
        self._settings = settings
        self._late = late
        self._combinations = _combinations(settings)
        self._images = _image_resolver(_Images(settings.storage.endpoint_url, readers))
        self._offers = _offer_resolver(catalogue, Defaults(**late))

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
        is_wrong = pl.col("reason").is_not_null()
        rows, bad_images = separate(self._images.add_to(rows), is_wrong)
        rows = rows.drop(*IMAGE_COLUMNS, "column", "value", "reason").with_columns(_asked(self._late))
        rows, not_offered = separate(self._offers.add_to(rows), is_wrong)
        with_price, unpriced = separate(rows, pl.col("price").is_null())
        wrong = [bad_images, not_offered]
        if not self._settings.budget.allow_unpriced:
            wrong.append(unpriced.with_columns(column=pl.lit("model"), value="model", reason="unpriced"))
            rows = with_price
        rows, too_large = _with_request(rows)
        wrong.append(too_large)
        if self._combinations is not None:
            rows, repeated = _each_request_once(rows)
            wrong.append(repeated)
        refused = [table.select("row_id", "samples", "line", "asked") for table in wrong[1:]]
        tables = [table.select(*_WRONG_IN_ROW) for table in wrong if table.height]
        wrong_cells = pl.concat([pl.DataFrame(schema=_WRONG_IN_ROW), *tables])
        return JobTable(
            jobs=_columns_of_plan(_per_sample(rows)),
            not_offered=_per_sample(pl.concat(refused)).select("row_id", "sample", "line", "asked"),
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

    def examine(self, sources: Sequence[str]) -> dict[str, RequestImage | str]:
        """Each source as its request has it, or why it cannot be sent (`references.examine`)."""
        files = {source: self._read(source) for source in sources if not source.startswith(_NOT_READ)}
        return {
            source: files[source].result() if source in files else references.examine(source)
            for source in sources
        }

    def _read(self, source: str) -> Future[RequestImage | str]:
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


def _image_resolver(images: _Images) -> Resolver:
    """Adds `images_json` (of the request), `inlined`, `inlined_bytes`, and `roles` (role and column, as JSON)
    or why the images cannot be sent.
    """

    def resolve(combinations: list[Cells]) -> list[Cells]:
        parsed = [references.parse_references(cells) for cells in combinations]
        sources = dict.fromkeys(
            reference.source for listed in parsed if not isinstance(listed, Reject) for reference in listed
        )
        examined = images.examine(list(sources))
        return [asdict(each) if isinstance(each, Reject) else _image_set(each, examined) for each in parsed]

    schema = dict.fromkeys(["images_json", "roles", "column", "value", "reason"], pl.String)
    return Resolver(IMAGE_COLUMNS, resolve, schema | {"inlined": _INLINED, "inlined_bytes": pl.Int64})


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
        "inlined": [{"sha256": sha256, "source": source} for sha256, source in inlined.items()] or None,
        "inlined_bytes": inlined_bytes,
    }


def _offer_resolver(catalogue: Catalogue, defaults: Defaults) -> Resolver:
    """Adds what the catalogue offers for a row, with or without a price, or why the row cannot be bought."""

    def resolve(combinations: list[Cells]) -> list[Cells]:
        return [_offered(cells, catalogue, defaults) for cells in combinations]

    return Resolver([*_PARAMETERS, "roles"], resolve, _offered_schema(catalogue))


def _offered_schema(catalogue: Catalogue) -> dict[str, Any]:
    """The columns that an offer gives. A text that many jobs share is a number in memory, which is faster."""
    texts = {*ModelType, *catalogue}
    for model in catalogue.values():
        texts |= {model.pricing.currency, *model.supported_resolutions}
        texts |= {rate.billable_unit for rate in model.pricing.rates}
    shared = pl.Enum(sorted(map(str, texts)))
    return {
        **dict.fromkeys(["column", "value", "reason", "unpriced", "head", "middle", "tail"], pl.String),
        **dict.fromkeys(["type", "sent_model", "sent_resolution", "billable_unit", "currency"], shared),
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
    return _request_parts(offered, has_images=bool(images)) | _price_cells(offered)


def _request_parts(offered: Offer, *, has_images: bool) -> Cells:
    pairs = {name: f'"{name}":{canonical(value)}' for name, value in sorted(offered.parameters.items())}
    before_images = [f"{pairs[name]}," for name in pairs if name < "images"]
    before_prompt = [f"{pairs[name]}," for name in pairs if "images" < name < "prompt"]
    after_prompt = [f",{pairs[name]}" for name in pairs if name > "prompt"]
    if not has_images:  # fewer parts are put together faster
        before_images, before_prompt = before_images + before_prompt, []
    return {
        "head": "".join(["{", *before_images]),
        "middle": "".join(before_prompt),
        "tail": "".join([*after_prompt, "}"]),
    }


def _price_cells(offered: Offer) -> Cells:
    price = offered.price
    cells = {
        "type": offered.type.value,
        "sent_model": offered.parameters["model"],
        "sent_resolution": offered.parameters.get("resolution"),
        "sent_duration": offered.parameters.get("duration"),
        "sent_sound": offered.parameters.get("sound"),
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
    images = [pl.format('"images":{},', "images_json").fill_null(""), pl.col("middle")]
    if rows["images_json"].null_count() == rows.height:
        images = []  # the middle is empty, too
    rows = rows.with_columns(request=pl.concat_str("head", *images, _json_pair("prompt"), "tail"))
    limit = references.LARGEST_REQUEST
    size = pl.col("request").str.len_bytes() + pl.col("inlined_bytes")
    good, too_large = separate(rows, size > limit)
    reason = pl.format(f"the request has {{}} bytes with its images; at most {limit:,} are allowed", size)
    return good, too_large.with_columns(column=pl.lit("images"), value=pl.lit(""), reason=reason)


def _each_request_once(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows without those that a matrix makes twice, and these."""
    good, repeated = separate(rows, ~pl.struct("row", "request").is_first_distinct())
    reason = pl.lit("input.matrix asks for the same request twice")
    return good, repeated.with_columns(column=pl.lit("model"), value="model", reason=reason)


def _json_pair(column: str) -> pl.Expr:
    """`"name":"text"` as `canonical` writes it; polars has the same escapes, and writes a whole column."""
    return pl.struct(column).struct.json_encode().str.slice(1).str.head(-1)


def _per_sample(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per sample."""
    if (rows["samples"] == 1).all():
        return rows.with_columns(sample=pl.lit(1, pl.Int64))
    return rows.with_columns(sample=pl.int_ranges(1, pl.col("samples") + 1)).explode("sample")


def _columns_of_plan(jobs: pl.DataFrame) -> pl.DataFrame:
    """Jobs with the columns of `plan.parquet`, and `asked` in place of `key`."""
    carried = pl.col("carried") if "carried" in jobs.columns else pl.lit(None, pl.String).alias("carried")
    return jobs.select(
        "asked",
        "row_id",
        "sample",
        "line",
        "type",
        pl.col("sent_model").alias("model"),
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


def _asked(late: Cells) -> pl.Expr:
    """The column `asked`: what a row asks for, as JSON of texts in the form NFC, in which texts that look the
    same are the same. What nobody has set is left out.

    The catalogue has no part in it: its defaults and prices may change, and the job stays the same job.

    Args:
        late: the config's defaults that are applied by the type of the model.
    """
    given = {name: pl.col(name).fill_null(pl.lit(value)) for name, value in late.items() if value is not None}
    texts = {name: given.get(name, pl.col(name)).cast(pl.String) for name in _PARAMETERS}
    texts |= {"images": pl.col("images_json"), "prompt": pl.col("prompt")}
    pairs = [
        pl.when(text.is_not_null()).then(
            pl.struct(text.alias(name)).struct.json_encode().str.slice(1).str.head(-1)
        )
        for name, text in sorted(texts.items())
    ]
    asked = pl.format("{{{}}}", pl.concat_str(pairs, separator=",", ignore_nulls=True))
    return asked.str.normalize("NFC").alias("asked")


def keyed(jobs: pl.DataFrame, batch: str) -> pl.DataFrame:
    """Jobs with `key`, each job's identity, in place of `asked`.

    The key is the sha256 of {"asked", "batch", "row_id", "sample"} as canonical JSON, in hex.
    """
    row = pl.struct("row_id", "sample").struct.json_encode().str.slice(1)
    identity = pl.concat_str(pl.lit('{"asked":'), "asked", pl.lit(f',"batch":{canonical(batch)},'), row)
    return jobs.select(sha256(identity).alias("key"), pl.exclude("asked"))
