"""Prompt rows and a catalogue -> the jobs to buy, resolved, priced and keyed; and what is refused.

A column at a time; what takes a decision is decided once for each distinct case and joined back: each image
source is read once, each combination of parameters is checked and priced once, by `pricing`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from threading import Lock
from typing import Any

import polars as pl

from callsheet.batches.identities import sha256
from callsheet.batches.read import UNTIL_PRICED
from callsheet.config.settings import Settings
from callsheet.pricing import rates as pricing
from callsheet.pricing import references
from callsheet.pricing.rates import Combination, Defaults, Offer, Reject
from callsheet.records import Catalogue, canonical
from callsheet.rows import IMAGE_COLUMNS, fixed_values

MONEY = pl.Decimal(18, 6)
_MOST_JOBS = 65_536
_ASKED = ("model", "aspect_ratio", "resolution", "output_format", "duration", "sound")
_INLINED = pl.List(pl.Struct({"sha256": pl.String, "source": pl.String}))


@dataclass(frozen=True)
class JobList:
    """What a slice of a batch comes to.

    Attributes:
        table: a row per job, in the file's order; the columns of `plan.parquet`.
        wrong: what cannot be bought: `line`, `file`, `column`, `value`, `reason`.
        rejected: prompt rows with something of it.
        unpriced: prompt rows for which the catalogue has no price.
    """

    table: pl.DataFrame
    wrong: pl.DataFrame
    rejected: int
    unpriced: int


class Lister:
    """Turns the rows of one batch into jobs, a part at a time.

    Args:
        catalogue: the live models.
        settings: the config.
    """

    def __init__(self, catalogue: Catalogue, settings: Settings) -> None:
        given = settings.input.defaults
        held = fixed_values({each: given[each] for each in UNTIL_PRICED if each in given})
        self._catalogue = catalogue
        self._settings = settings
        self._defaults = Defaults(**held)  # type: ignore[arg-type]  # typed by fixed_values
        self._combinations = _combinations(settings)
        self._read: dict[str, references.Sent | str] = {}
        self._reading = Lock()

    def portions(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """A slice of a batch in parts that make some ten thousand jobs each, whatever is multiplied out.

        There is at least one, and in each at least one row where there is one.
        """
        times = self._combinations.height if self._combinations is not None else 1
        jobs = (rows["samples"] * times).cum_sum()
        begin = 0
        while True:
            so_far = jobs[begin - 1] if begin else 0
            end = max(begin + 1, jobs.search_sorted(so_far + _MOST_JOBS, side="right"))
            yield rows[begin:end]
            begin = end
            if begin >= rows.height:
                return

    def list(self, rows: pl.DataFrame) -> JobList:
        """Multiplies out the matrix and the samples, resolves, prices and keys. Reads local and S3 images.

        Threads may share it.

        Args:
            rows: of a batch.
        """
        rows = _multiplied(rows, self._combinations)
        with self._reading:
            rows, bad_images = _with_images(rows, self._read, self._settings.storage.endpoint_url)
        rows, refused = _priced(rows, self._catalogue, self._defaults)
        unpriced = rows.filter(pl.col("price").is_null())
        wrong = [bad_images, refused]
        if not self._settings.budget.allow_unpriced:
            wrong.append(unpriced.with_columns(reason="unpriced"))
            rows = rows.filter(pl.col("price").is_not_null())
        rows, impossible = _requested(rows, twice=self._combinations is not None)
        said = ["row", "line", "file", "column", "value", "reason"]
        refusals = pl.concat([each.select(said) for each in [*wrong, *impossible]])
        return JobList(
            table=_keyed(_table(rows), self._settings.batch),
            wrong=refusals.drop("row"),
            rejected=refusals["row"].n_unique(),
            unpriced=unpriced["row"].n_unique(),
        )


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
    """Every row times every combination of the matrix, in the file's order; `row` counts the file's rows."""
    rows = rows.with_row_index("row")
    if combinations is None:
        return rows
    return (
        rows.drop(combinations.columns)
        .join(combinations.with_row_index("combination"), how="cross")
        .sort("row", "combination")
        .drop("combination")
    )


def _answered(
    rows: pl.DataFrame,
    columns: Sequence[str],
    answer: Callable[[dict[str, Any]], dict[str, Any]],
    schema: Mapping[str, Any],
) -> pl.DataFrame:
    """Rows with what each distinct combination of some columns comes to: found once, and joined back.

    Args:
        rows: some or none.
        columns: what the answer hangs on.
        answer: from the cells of all `columns` to those of `schema`; what it leaves out is null.
        schema: the columns that are added.
    """
    said = [each for each in columns if rows[each].null_count() < rows.height] or columns[:1]
    distinct = rows.select(said).unique(maintain_order=True)
    nothing: dict[str, Any] = dict.fromkeys(columns)
    answers = [answer(nothing | cells) for cells in distinct.iter_rows(named=True)]
    table = pl.DataFrame(answers, schema=schema)
    differs = [each for each in schema if any(one.get(each) != answers[0].get(each) for one in answers)]
    # What is the same for all rows is held once, and not a million times.
    rows = rows.with_columns(pl.lit(each).first().alias(each.name) for each in table.drop(differs))
    if not differs:
        return rows
    table = distinct.hstack(table.select(differs))
    return rows.join(table, on=said, how="left", nulls_equal=True, maintain_order="left")


def _with_images(
    rows: pl.DataFrame, seen: dict[str, references.Sent | str], endpoint_url: str | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Finds each row's images; every distinct source is read once, every distinct set made up once.

    Adds `images_json` (of the request), `inlined`, `grows` and `roles` (role and column of each, as JSON).
    """
    schema = dict.fromkeys(["images_json", "roles", "column", "value", "reason"], pl.String)
    joined = _answered(
        rows,
        IMAGE_COLUMNS,
        lambda cells: _image_set(cells, seen, endpoint_url),
        schema | {"inlined": _INLINED, "grows": pl.Int64},
    )
    wrong = joined.filter(pl.col("reason").is_not_null())
    sound = joined.filter(pl.col("reason").is_null()).drop(*IMAGE_COLUMNS, "column", "value", "reason")
    return sound, wrong


def _image_set(
    cells: dict[str, Any], seen: dict[str, references.Sent | str], endpoint_url: str | None
) -> dict[str, Any]:
    named = references.named(cells)
    if isinstance(named, Reject):
        return asdict(named)
    images, inlined, grows = [], {}, 0
    for each in named:
        sent = seen.get(each.source)
        if sent is None:
            sent = references.look(each.source, endpoint_url)
            if not each.source.startswith(("https://", "data:")):  # these cost no reading, only memory
                seen[each.source] = sent
        if isinstance(sent, str):
            return {"column": each.column, "value": each.source, "reason": sent}
        # Only an image model lets a role be left out (see pricing), and there it can be but this one.
        images.append({"role": each.role or pricing.REFERENCE, "url": sent.url})
        grows += sent.grows
        if sent.sha256:
            inlined[sent.sha256] = each.source
    return {
        "images_json": canonical(images) if images else None,
        "roles": json.dumps([(each.role, each.column) for each in named]) if named else None,
        "inlined": [{"sha256": sha256, "source": source} for sha256, source in inlined.items()],
        "grows": grows,
    }


def _priced(
    rows: pl.DataFrame, catalogue: Catalogue, defaults: Defaults
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Resolves and prices each distinct combination once, and joins the answers back to the rows."""

    def answer(cells: dict[str, Any]) -> dict[str, Any]:
        images = tuple((role, column) for role, column in json.loads(cells["roles"] or "[]"))
        combination = Combination(**{each: cells[each] for each in _ASKED}, images=images)
        return _answer(pricing.offer(combination, catalogue, defaults))

    joined = _answered(rows, [*_ASKED, "roles"], answer, _ANSWER)
    refused = pl.col("reason").is_not_null()
    return joined.filter(~refused), joined.filter(refused)


_ANSWER: dict[str, Any] = {
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


def _answer(offer: Offer | Reject) -> dict[str, Any]:
    """An offer as a row of `_ANSWER`; the request's JSON in three parts, around `images` and `prompt`."""
    if isinstance(offer, Reject):
        return asdict(offer)
    parts = {name: f'"{name}":{canonical(value)}' for name, value in sorted(offer.parameters.items())}
    price = offer.price
    before = [f"{parts[name]}," for name in parts if name < "images"]
    between = [f"{parts[name]}," for name in parts if "images" < name < "prompt"]
    after = [f",{parts[name]}" for name in parts if name > "prompt"]
    return {
        "type": offer.type.value,
        "head": "".join(["{", *before]),
        "middle": "".join([*between, '"prompt":']),
        "tail": "".join([*after, "}"]),
        "sent_resolution": offer.parameters.get("resolution"),
        "sent_duration": offer.parameters.get("duration"),
        "sent_sound": offer.parameters.get("sound"),
        "column": "model",
        "value": offer.parameters["model"],
        "unpriced": offer.unpriced,
    } | (
        {"billable_unit": price.billable_unit, "currency": price.currency, "quantity": price.quantity}
        | {"unit_price": price.unit_price, "price": price.total}
        if price
        else {}
    )


def _requested(rows: pl.DataFrame, *, twice: bool) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Adds each row's `request`; parts off what is too large, and what a matrix asks for `twice`."""
    images = pl.format('"images":{},', "images_json").fill_null("")
    rows = rows.with_columns(request=pl.concat_str("head", images, "middle", _as_json("prompt"), "tail"))
    limit = references.LARGEST_REQUEST
    size = pl.col("request").str.len_bytes() + pl.col("grows")
    too_large = rows.filter(size > limit).with_columns(
        column=pl.lit("images"),
        value=pl.lit(""),
        reason=pl.format(f"the request has {{}} bytes with its images; at most {limit:,} are allowed", size),
    )
    rows = rows.filter(size <= limit)
    if not twice:
        return rows, [too_large]
    again = ~pl.struct("row", "request").is_first_distinct()
    repeated = rows.filter(again).with_columns(reason=pl.lit("input.matrix asks for the same request twice"))
    return rows.filter(~again), [too_large, repeated]


def _as_json(column: str) -> pl.Expr:
    """Text as `canonical` gives it: polars writes the same escapes, a column at a time."""
    wrapped = pl.struct(pl.col(column).alias("i")).struct.json_encode()
    return wrapped.str.strip_prefix('{"i":').str.strip_suffix("}")


def _table(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per sample."""
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
        carried,
        "billable_unit",
        "unit_price",
        "quantity",
        "price",
        "currency",
    )


def _keyed(jobs: pl.DataFrame, batch: str) -> pl.DataFrame:
    """A table of jobs with each one's `key`, its content address, before the other columns.

    That is the sha256 of {"batch", "request", "row_id", "sample"} as canonical JSON, in hex.
    """
    address = pl.concat_str(
        pl.lit(f'{{"batch":{canonical(batch)},"request":'),
        "request",
        pl.lit(',"row_id":'),
        _as_json("row_id"),
        pl.lit(',"sample":'),
        "sample",
        pl.lit("}"),
    )
    return jobs.select(sha256(address).alias("key"), pl.all())
