"""The frozen, priced plan: every job of a batch, resolved, priced and keyed, in one Parquet file.

`plan.parquet` has a row per job, in the batch file's order; its metadata hold the catalogue that the prices
come from. Beside it lies `plan.rejects.parquet`, what will not be bought. The same batch, catalogue, settings
and time make the same bytes. Each distinct combination is checked and priced once, by `pricing`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

import polars as pl

from callsheet import pricing, references
from callsheet.batches import UNTIL_PRICED, Batch, fixed_values
from callsheet.errors import InputError, StorageError
from callsheet.pricing import Combination, Defaults, Offer, Refusal
from callsheet.records import Catalogue, Job, Kind, Model, Price, Reject
from callsheet.rows import IMAGE_COLUMNS, in_file, shortened
from callsheet.settings import Settings

MONEY = pl.Decimal(18, 6)
_SLICE = 8_192
_ASKED = ("model", "aspect_ratio", "resolution", "output_format", "duration", "sound")
_INLINED = pl.List(pl.Struct({"sha256": pl.String, "source": pl.String}))


@dataclass(frozen=True)
class Plan:
    """A plan on disk.

    Attributes:
        path: `plan.parquet`.
        batch: the batch's name.
        rows: rows of the batch file, rejected ones too.
        jobs: what can be bought; rows of `plan.parquet`.
        rejects: what is wrong with the other rows, sorted by line; rows without a price too, unless the
            config allows them.
        unpriced: prompt rows for which the catalogue has no price (bought or not).
        quoted: the sum of all prices, in `currency`.
        made_at: when the catalogue was read.
    """

    path: Path
    batch: str
    rows: int
    jobs: int
    rejects: tuple[Reject, ...]
    unpriced: int
    quoted: Decimal
    made_at: datetime
    currency: Literal["USD"] = "USD"

    @property
    def rejected_rows(self) -> int:
        """Rows with something wrong, those without a price among them."""
        return len({reject.line for reject in self.rejects})

    def jobs_in_order(self) -> Iterator[Job]:
        """Every job, in the file's order, read a slice at a time."""
        for start in range(0, self.jobs, _SLICE):
            for row in pl.scan_parquet(self.path).slice(start, _SLICE).collect().iter_rows(named=True):
                yield _job(row)

    def keys(self) -> pl.DataFrame:
        """`key`, `price` (decimal, null where there is none) and `kind` of every job, in the file's order."""
        return pl.read_parquet(self.path, columns=["key", "price", "type"]).rename({"type": "kind"})

    def catalogue(self) -> Catalogue:
        """The models and rates that the prices come from."""
        frozen = json.loads(pl.read_parquet_metadata(self.path)["callsheet.catalogue"])
        return {each["id"]: Model.model_validate(each) for each in frozen}


def make(batch: Batch, catalogue: Catalogue, settings: Settings, path: Path, *, now: datetime) -> Plan:
    """Prices a batch and freezes it. Reads local and S3 reference images; call it in a thread.

    Args:
        batch: the rows.
        catalogue: the live models.
        settings: the config.
        path: where `plan.parquet` is written, in one step; a plan that is there is replaced.
        now: when the catalogue was read.

    Raises:
        ConfigError: a default or a value of the matrix is no value for its column.
        StorageError: the plan cannot be written.
    """
    rows = _multiplied(batch.rows, settings)
    rows, wrong_images = _with_images(rows, batch, settings.storage.endpoint_url)
    rows, refused = _priced(rows, batch, catalogue, settings)
    unpriced = rows.filter(pl.col("unit_price").is_null())
    without_price: list[Reject] = []
    if not settings.budget.allow_unpriced:
        without_price = _rejects(unpriced.with_columns(reason=pl.col("unpriced")), batch)
        rows = rows.filter(pl.col("unit_price").is_not_null())
    jobs, impossible = _jobs(rows, batch, settings.batch)
    rejects = dict.fromkeys([*batch.rejects, *wrong_images, *refused, *without_price, *impossible])
    about = {
        "batch": settings.batch,
        "rows": batch.total,
        "unpriced": unpriced["row"].n_unique(),
        "made_at": now.astimezone(UTC).isoformat(),
    }
    _write(path, jobs, sorted(rejects, key=lambda reject: reject.line), about, catalogue)
    return open_plan(path)


def open_plan(path: Path) -> Plan:
    """Reads a plan back.

    Raises:
        InputError: there is none, or it is not one of ours.
    """
    try:
        about = json.loads(pl.read_parquet_metadata(path)["callsheet.plan"])
        price = pl.scan_parquet(path).select(jobs=pl.len(), quoted=pl.col("price").sum()).collect()
        rejects = pl.read_parquet(_beside(path))
    except (KeyError, OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: is no plan that can be read: {error}") from None
    return Plan(
        path=path,
        batch=about["batch"],
        rows=about["rows"],
        jobs=price["jobs"][0],
        rejects=tuple(Reject(*each) for each in rejects.iter_rows()),
        unpriced=about["unpriced"],
        quoted=price["quoted"][0] or Decimal(0),
        made_at=datetime.fromisoformat(about["made_at"]),
    )


def lines(plan: Plan) -> pl.DataFrame:
    """The quote: jobs, unit, unit_price, quantity, total by model, type, resolution, sound and duration.

    Returns:
        Sorted by these; money as decimals; unit_price and total are null where there is no price.
    """
    by = ["model", "type", "resolution", "sound", "duration"]
    grouped = pl.scan_parquet(plan.path).group_by(*by, unit="billable_unit", unit_price="unit_price")
    priced = pl.col("price").is_not_null().any()
    return (
        grouped.agg(
            jobs=pl.len(),
            quantity=pl.col("quantity").sum(),
            total=pl.when(priced).then(pl.col("price").sum()),
        )
        .select(*by, "jobs", "unit", "unit_price", "quantity", "total")
        .sort(*by, "unit", "unit_price", nulls_last=True)
        .collect()
    )


def _multiplied(rows: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Every row times every combination of the matrix, in the file's order; `row` counts the file's rows."""
    rows = rows.with_row_index("row")
    matrix = settings.input.matrix
    if not matrix:
        return rows
    combinations = [
        fixed_values(dict(zip(matrix, values, strict=True)), "input.matrix")
        for values in product(*matrix.values())
    ]
    table = pl.DataFrame(combinations, schema={column: rows.schema[column] for column in matrix})
    return (
        rows.drop(matrix)
        .join(table.with_row_index("combination"), how="cross")
        .sort("row", "combination")
        .drop("combination")
    )


def _with_images(
    rows: pl.DataFrame, batch: Batch, endpoint_url: str | None
) -> tuple[pl.DataFrame, list[Reject]]:
    """Finds each row's images; every distinct source is read once, every distinct set made up once.

    Adds `images_json` (of the request), `inlined`, `grows` and `roles` (role and column of each, as JSON).
    """
    seen: dict[str, references.Sent | str] = {}
    sets = [
        cells | _image_set(cells, seen, endpoint_url)
        for cells in rows.select(IMAGE_COLUMNS).unique(maintain_order=True).iter_rows(named=True)
    ]
    schema = dict.fromkeys([*IMAGE_COLUMNS, "images_json", "roles", "column", "value", "reason"], pl.String)
    table = pl.DataFrame(sets, schema=schema | {"inlined": _INLINED, "grows": pl.Int64})
    joined = rows.join(table, on=IMAGE_COLUMNS, how="left", nulls_equal=True, maintain_order="left")
    wrong = joined.filter(pl.col("reason").is_not_null())
    sound = joined.filter(pl.col("reason").is_null()).drop(*IMAGE_COLUMNS, "column", "value", "reason")
    return sound, _rejects(wrong, batch)


def _image_set(
    cells: dict[str, Any], seen: dict[str, references.Sent | str], endpoint_url: str | None
) -> dict[str, Any]:
    named = references.named(cells)
    if isinstance(named, Refusal):
        return asdict(named)
    images, inlined, grows = [], {}, 0
    for each in named:
        sent = seen.get(each.source)
        if sent is None:
            sent = seen[each.source] = references.look(each.source, endpoint_url)
        if isinstance(sent, str):
            return {"column": each.column, "value": shortened(each.source), "reason": sent}
        # Only an image model lets a role be left out (see pricing), and there it can be but this one.
        images.append({"role": each.role or "reference_image", "url": sent.url})
        grows += sent.grows
        if sent.sha256:
            inlined[sent.sha256] = each.source
    return {
        "images_json": _json(images) if images else None,
        "roles": json.dumps([(each.role, each.column) for each in named]) if named else None,
        "inlined": [{"sha256": sha256, "source": source} for sha256, source in inlined.items()],
        "grows": grows,
    }


def _priced(
    rows: pl.DataFrame, batch: Batch, catalogue: Catalogue, settings: Settings
) -> tuple[pl.DataFrame, list[Reject]]:
    """Resolves and prices each distinct combination once, and joins the answers back to the rows."""
    given = settings.input.defaults
    held = fixed_values({each: given[each] for each in UNTIL_PRICED if each in given}, "input.defaults")
    defaults = Defaults(**held)  # type: ignore[arg-type]  # typed by fixed_values
    asked = [*_ASKED, "roles"]
    answers = []
    for cells in rows.select(asked).unique(maintain_order=True).iter_rows(named=True):
        images = tuple((role, column) for role, column in json.loads(cells["roles"] or "[]"))
        combination = Combination(**{each: cells[each] for each in _ASKED}, images=images)
        answers.append(_answer(pricing.offer(combination, catalogue, defaults)))
    table = pl.DataFrame(answers, schema=_ANSWER)
    distinct = rows.select(asked).unique(maintain_order=True).hstack(table)
    joined = rows.join(distinct, on=asked, how="left", nulls_equal=True, maintain_order="left")
    wrong = joined.filter(pl.col("reason").is_not_null())
    return joined.filter(pl.col("reason").is_null()), _rejects(wrong, batch)


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


def _answer(offer: Offer | Refusal) -> dict[str, Any]:
    """An offer as a row of `_ANSWER`; the request's JSON in three parts, around `images` and `prompt`."""
    if isinstance(offer, Refusal):
        return asdict(offer)
    parts = {name: f'"{name}":{_json(value)}' for name, value in sorted(offer.parameters.items())}
    price = offer.price
    return {
        "type": offer.kind.value,
        "head": "".join(f"{parts[name]}," for name in parts if name < "images"),
        "middle": "".join(f"{parts[name]}," for name in parts if "images" < name < "prompt"),
        "tail": "".join(f",{parts[name]}" for name in parts if name > "prompt"),
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


def _jobs(rows: pl.DataFrame, batch: Batch, name: str) -> tuple[pl.DataFrame, list[Reject]]:
    """Requests, samples and keys: the plan's table, and what turns out impossible on the way."""
    prompts = pl.Series("prompt_json", map(_json, rows["prompt"]), pl.String)
    images = pl.when(pl.col("images_json").is_not_null()).then(pl.format('"images":{},', "images_json"))
    rows = rows.with_columns(prompts).with_columns(
        request=pl.concat_str(
            pl.lit("{"),
            "head",
            images.fill_null(""),
            "middle",
            pl.lit('"prompt":'),
            "prompt_json",
            "tail",
            pl.lit("}"),
        )
    )
    size = pl.col("request").str.len_bytes() + pl.col("grows")
    limit = references.LARGEST_REQUEST
    reason = pl.format(f"the request has {{}} bytes with its images; at most {limit:,} are taken", size)
    too_large = rows.filter(size > limit).with_columns(
        column=pl.lit("images"), value=pl.lit(""), reason=reason
    )
    rows = rows.filter(size <= limit)
    again = ~pl.struct("row", "request").is_first_distinct()
    twice = rows.filter(again).with_columns(reason=pl.lit("input.matrix asks for the same request twice"))
    jobs = rows.filter(~again).with_columns(sample=pl.int_ranges(1, pl.col("samples") + 1)).explode("sample")
    carried = pl.col("carried") if "carried" in rows.columns else pl.lit(None, pl.String).alias("carried")
    table = jobs.select(
        pl.Series("key", _keys(name, jobs), pl.String),
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
    return table, _rejects(too_large, batch) + _rejects(twice, batch)


def _keys(batch: str, jobs: pl.DataFrame) -> list[str]:
    """Content addresses: the sha256 of {"batch", "request", "row_id", "sample"} as canonical JSON."""
    name = _json(batch)
    return [
        hashlib.sha256(
            f'{{"batch":{name},"request":{request},"row_id":{_json(row_id)},"sample":{sample}}}'.encode()
        ).hexdigest()
        for request, row_id, sample in jobs.select("request", "row_id", "sample").iter_rows()
    ]


def _json(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _rejects(wrong: pl.DataFrame, batch: Batch) -> list[Reject]:
    """Rows with `column`, `value` and `reason` as rejects."""
    return [
        Reject(line, batch.columns.get(column, column), shortened(value), in_file(reason, file))
        for line, file, column, value, reason in wrong.select(
            "line", "file", "column", "value", "reason"
        ).iter_rows()
    ]


def _write(
    path: Path, jobs: pl.DataFrame, rejects: Sequence[Reject], about: dict[str, Any], catalogue: Catalogue
) -> None:
    """Both files, each in one step, the rejects first."""
    models = [catalogue[name].model_dump(mode="json") for name in sorted(catalogue)]
    metadata = {"callsheet.plan": _json(about), "callsheet.catalogue": _json(models)}
    schema = {"line": pl.Int64, "column": pl.String, "value": pl.String, "reason": pl.String}
    table = pl.DataFrame([asdict(each) for each in rejects], schema=schema)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(_beside(path), table, {})
        _replace(path, jobs, metadata)
    except OSError as error:
        raise StorageError(f"{path}: the plan cannot be written: {error.strerror or error}") from None


def _replace(path: Path, table: pl.DataFrame, metadata: dict[str, str]) -> None:
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as partial:
        try:
            table.write_parquet(partial, row_group_size=_SLICE, metadata=metadata)
            partial.flush()
            os.fsync(partial.fileno())
            Path(partial.name).replace(path)
        except BaseException:
            Path(partial.name).unlink(missing_ok=True)
            raise


def _beside(path: Path) -> Path:
    return path.with_suffix(".rejects.parquet")


def _job(row: dict[str, Any]) -> Job:
    price = None
    if row["price"] is not None:
        price = Price(row["billable_unit"], row["unit_price"], row["quantity"], row["currency"])
    return Job(
        key=row["key"],
        row_id=row["row_id"],
        sample=row["sample"],
        kind=Kind(row["type"]),
        model=row["model"],
        request=json.loads(row["request"]),
        price=price,
        inlined={each["sha256"]: each["source"] for each in row["inlined"]},
        carried=row["carried"] or {},
    )
