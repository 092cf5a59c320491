"""Prompt rows and a catalogue -> the jobs to buy, resolved, priced and keyed; and what cannot be bought.

It works on whole columns. What needs a decision is decided once for each distinct case and joined back: an
image source is read once, and a combination of parameters is checked and priced once (`rates.offer`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import polars as pl

from callsheet.batches.identities import nfc, sha256
from callsheet.batches.read import UNTIL_PRICED
from callsheet.cells import IMAGE_COLUMNS, WRONG, as_text, fixed_values, separate
from callsheet.config.settings import Settings
from callsheet.pricing import references
from callsheet.pricing.rates import REFERENCE, Combination, Reject, offer, rejects_of
from callsheet.pricing.references import Reference, RequestImage
from callsheet.records import canonical
from callsheet.service.models import Catalogue

COLUMNS = ["key", "row_id", "sample", "line", "type", "model", "resolution", "duration", "sound", "request"]
COLUMNS += ["inlined", "inlined_bytes", "carried", "billable_unit", "unit_price", "quantity", "price"]
COLUMNS += ["currency"]
"""The columns of `plan.parquet`."""

_MONEY = pl.Decimal(18, 6)
_READERS = max(4, os.cpu_count() or 1)  # of images, at most 10 MiB each; S3 answers slowly, so never only one
_PARAMETERS = ("model", "aspect_ratio", "resolution", "output_format", "duration", "sound")
_SENT = ("model", "resolution", "duration", "sound")
_INLINED = pl.List(pl.Struct({"sha256": pl.String, "source": pl.String}))
_WRONG_IN_ROW = {"row": pl.UInt32} | WRONG
_IMAGES = dict.fromkeys(["sent_images", "asked_images", "roles", "column", "value", "reason"], pl.String) | {
    "inlined": _INLINED,
    "inlined_bytes": pl.Int64,
}
_OFFERED = {
    **dict.fromkeys(["column", "value", "reason", "unpriced", "head", "middle", "tail"], pl.String),
    **dict.fromkeys(["asked_head", "asked_middle", "asked_tail", "type", "sent_model"], pl.String),
    **dict.fromkeys(["sent_resolution", "billable_unit", "currency"], pl.String),
    "more": pl.List(pl.Struct(dict.fromkeys(["column", "value", "reason"], pl.String))),
    "sent_duration": pl.Int64,
    "sent_sound": pl.Boolean,
    "quantity": pl.Int64,
    "unit_price": _MONEY,
    "price": _MONEY,
}
_Cells = dict[str, Any]
"""Values of one row by column."""


@dataclass(frozen=True)
class JobTable:
    """The jobs of a batch.

    Attributes:
        jobs: a row per job, in the file's order: `COLUMNS`, with `asked` in place of `key` (see `keyed`).
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


def make_jobs(rows: pl.DataFrame, catalogue: Catalogue, settings: Settings) -> JobTable:
    """Multiplies the rows of a batch by matrix and samples, resolves, prices and keys them.

    Reads local and S3 images.
    """
    defaults = settings.input.defaults
    late: _Cells = fixed_values({column: defaults[column] for column in UNTIL_PRICED if column in defaults})
    combinations = _combinations(settings)
    is_wrong = pl.col("reason").is_not_null()
    rows = _multiplied(rows, combinations)
    images = partial(_images, path=settings.input.path, endpoint_url=settings.storage.endpoint_url)
    rows, bad_images = separate(_resolved(rows, [*IMAGE_COLUMNS, "file"], images, _IMAGES), is_wrong)
    offers = partial(_offers, catalogue=catalogue, late=late)
    rows, besides = (
        _resolved(
            each.drop(*IMAGE_COLUMNS, "column", "value", "reason"), [*_PARAMETERS, "roles"], offers, _OFFERED
        )
        for each in (rows, bad_images)
    )
    rows = _with_json(rows)
    rows, not_offered = separate(rows, is_wrong)
    with_price, unpriced = separate(rows, pl.col("price").is_null())
    wrong = [bad_images, not_offered]
    if not settings.budget.allow_unpriced:
        wrong.append(unpriced.with_columns(column=pl.lit("model"), value="model", reason="unpriced"))
        rows = with_price
    rows, too_large = _not_too_large(rows)
    wrong.append(too_large)
    if combinations is not None:
        rows, repeated = _each_request_once(rows)
        wrong.append(repeated)
    refused = pl.concat(table.select("row_id", "samples", "line", "asked") for table in wrong[1:])
    besides = besides.filter(is_wrong)
    more = [_more(not_offered), besides, _more(besides)]
    wrong_cells = pl.concat(table.select(*_WRONG_IN_ROW) for table in (*wrong, *more))
    return JobTable(
        jobs=_columns_of_plan(_per_sample(rows)),
        not_offered=_per_sample(refused).select("row_id", "sample", "line", "asked"),
        wrong=wrong_cells.drop("row"),
        rejected=wrong_cells["row"].n_unique(),
        unpriced=unpriced["row"].n_unique(),
    )


def _more(rows: pl.DataFrame) -> pl.DataFrame:
    """The wrong cells of rows besides the first of each."""
    return rows.select("row", "line", "file", "more").explode("more").drop_nulls("more").unnest("more")


def _resolved(
    rows: pl.DataFrame,
    columns: Sequence[str],
    resolve: Callable[[list[_Cells]], list[_Cells]],
    schema: Mapping[str, Any],
) -> pl.DataFrame:
    """The rows with the columns of `schema`, worked out once for each combination of the columns on which
    they depend.

    `resolve` gets combinations, and gives the new cells of each in the same order; one left out is null.
    """
    used = [column for column in columns if rows[column].null_count() < rows.height] or [*columns[:1]]
    combinations = rows.select(used).unique(maintain_order=True)
    blank: _Cells = dict.fromkeys(columns)
    cells = resolve([blank | each for each in combinations.iter_rows(named=True)])
    # Money comes as text: for a Decimal, polars imports numpy, which takes as long as 50,000 rows.
    read_as = {name: pl.String if dtype == pl.Decimal else dtype for name, dtype in schema.items()}
    new = combinations.hstack(pl.DataFrame(cells, schema=read_as).cast(pl.Schema(schema)))
    return rows.join(new, on=used, how="left", nulls_equal=True, maintain_order="left")


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


def _images(combinations: list[_Cells], path: str, endpoint_url: str | None) -> list[_Cells]:
    """The images of rows as cells of `_IMAGES`, or why they cannot be sent. `path` is the batch file.

    Each source is read once, several at the same time.
    """
    parsed = [(cells["file"] or path, references.parse_references(cells)) for cells in combinations]
    lists = [(file, listed) for file, listed in parsed if not isinstance(listed, Reject)]
    places = list(dict.fromkeys((reference.source, file) for file, listed in lists for reference in listed))
    with ThreadPoolExecutor(_READERS, "images") as readers:
        found = readers.map(lambda place: references.examine(place[0], place[1], endpoint_url), places)
        examined = dict(zip(places, found, strict=True))
    return [
        asdict(each) if isinstance(each, Reject) else _image_set(each, file, examined)
        for file, each in parsed
    ]


def _image_set(
    listed: list[Reference], file: str, examined: Mapping[tuple[str, str], RequestImage | str]
) -> _Cells:
    """The images of one row: their JSON in the request and in what the row asks for, and role and column of
    each, as JSON.
    """
    images, inlined, inlined_bytes = [], {}, 0
    for reference in listed:
        image = examined[reference.source, file]
        if isinstance(image, str):
            return {"column": reference.column, "value": reference.source, "reason": image}
        # Only for an image model may the role be left out (see rates), and there is only this one.
        images.append({"role": reference.role or REFERENCE, "url": image.url})
        inlined_bytes += image.added_bytes
        if image.sha256:
            inlined[image.sha256] = image.place
    listed_json = canonical(images)
    roles = [(reference.role, reference.column) for reference in listed]
    return {
        "sent_images": f'"images":{listed_json},' if images else "",
        "asked_images": f'"images":{canonical(listed_json)},' if images else "",
        "roles": json.dumps(roles) if roles else None,
        "inlined": [{"sha256": sha256, "source": source} for sha256, source in inlined.items()] or None,
        "inlined_bytes": inlined_bytes,
    }


def _offers(combinations: list[_Cells], catalogue: Catalogue, late: _Cells) -> list[_Cells]:
    """What the catalogue offers for rows, with or without a price, or why they cannot be bought.

    `late` are the config's defaults that are applied by the type of the model.
    """
    return [_asked(cells, late) | _offered(cells, catalogue, late) for cells in combinations]


def _asked(cells: _Cells, late: _Cells) -> _Cells:
    """What a row asks for, in texts, as JSON in three parts; what nobody has set is left out.

    The catalogue has no part in it: its defaults and prices may change, and the job stays the same job.
    """
    given = {name: late.get(name) if cells[name] is None else cells[name] for name in _PARAMETERS}
    texts = {name: as_text(value) for name, value in given.items() if value is not None}
    return {f"asked_{part}": text for part, text in _json_parts(texts).items()}


def _offered(cells: _Cells, catalogue: Catalogue, late: _Cells) -> _Cells:
    """An offer as cells of `_OFFERED`; the request is JSON in three parts."""
    images = tuple((role, column) for role, column in json.loads(cells["roles"] or "[]"))
    wanted = Combination(**{column: cells[column] for column in _PARAMETERS}, images=images)
    offered = offer(wanted, catalogue, late)
    if isinstance(offered, Reject):
        return asdict(offered) | {"more": [asdict(each) for each in rejects_of(wanted, catalogue, late)[1:]]}
    found = _json_parts(offered.parameters) | {
        "type": offered.type.value,
        **{f"sent_{name}": offered.parameters.get(name) for name in _SENT},
        "unpriced": offered.unpriced,
    }
    price = offered.price
    if price is None:
        return found
    return found | {
        "billable_unit": price.billable_unit,
        "currency": price.currency,
        "quantity": price.quantity,
        "unit_price": f"{price.unit_price:f}",
        "price": f"{price.total:f}",
    }


def _json_parts(values: Mapping[str, object]) -> dict[str, str]:
    """Canonical JSON of an object, cut where each row's own `images` and `prompt` belong."""
    pairs = {name: f'"{name}":{canonical(value)}' for name, value in sorted(values.items())}
    return {
        "head": "{" + "".join(f"{pairs[name]}," for name in pairs if name < "images"),
        "middle": "".join(f"{pairs[name]}," for name in pairs if "images" < name < "prompt"),
        "tail": "".join(f",{pairs[name]}" for name in pairs if name > "prompt") + "}",
    }


def _with_json(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `request`, as it is sent; and `asked`, in NFC, in which texts that look the same are the same."""
    rows = rows.with_columns(
        # Polars has the same escapes as `canonical`, and writes a whole column: {"prompt":"..."}
        prompt_json=pl.struct("prompt").struct.json_encode().str.slice(1).str.head(-1)
    )
    return rows.with_columns(
        request=pl.concat_str("head", "sent_images", "middle", "prompt_json", "tail"),
        asked=nfc(pl.concat_str("asked_head", "asked_images", "asked_middle", "prompt_json", "asked_tail")),
    )


def _not_too_large(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows whose request is not too large, and the others."""
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


def _per_sample(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per sample."""
    if (rows["samples"] == 1).all():
        return rows.with_columns(sample=pl.lit(1, pl.Int64))
    return rows.with_columns(sample=pl.int_ranges(1, pl.col("samples") + 1)).explode("sample")


def _columns_of_plan(jobs: pl.DataFrame) -> pl.DataFrame:
    """Jobs with the columns of a plan, and `asked` in place of `key`."""
    if "carried" not in jobs.columns:
        jobs = jobs.with_columns(carried=pl.lit(None, pl.String))
    jobs = jobs.with_columns(pl.col(f"sent_{name}").alias(name) for name in _SENT)
    return jobs.select("asked", *COLUMNS[1:])


def request_key() -> pl.Expr:
    """The column `request_key` of jobs: the sha256 of [request, sample] as canonical JSON, in hex."""
    pair = pl.concat_str(pl.lit("["), "request", pl.lit(","), "sample", pl.lit("]"))
    return sha256(pair).alias("request_key")


def keyed(jobs: pl.DataFrame, batch: str) -> pl.DataFrame:
    """Jobs with `key`, each job's identity.

    The key is the sha256 of {"asked", "batch", "row_id", "sample"} as canonical JSON, in hex.
    """
    row = pl.struct("row_id", "sample").struct.json_encode().str.slice(1)
    identity = pl.concat_str(pl.lit('{"asked":'), "asked", pl.lit(f',"batch":{canonical(batch)},'), row)
    return jobs.with_columns(sha256(identity).alias("key"))
