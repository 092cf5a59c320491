"""Prompt rows and a catalogue -> the jobs to buy, resolved, priced and keyed; and what cannot be bought.

It works on whole columns. What needs a decision is decided once for each distinct case and joined back: an
image source is read once, and a combination of parameters is checked and priced once (`rates.offer`).

The config's own values are checked against the catalogue first: a wrong one is an error of the config.
Otherwise it would reject every row, or each row in part.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import polars as pl

from callsheet.batches.formats import is_batch_file
from callsheet.batches.identities import nfc, sha256, without_signature
from callsheet.batches.read import UNTIL_PRICED, Batch
from callsheet.cells import BY_MODEL, IMAGE_COLUMNS, Value, as_text, fixed_values, same_prompt, separate
from callsheet.config.checks import KeyPath
from callsheet.config.load import dotted
from callsheet.config.settings import FileColumn, Settings
from callsheet.errors import ConfigError
from callsheet.pricing import references
from callsheet.pricing.rates import REFERENCE, Combination, Reject, image_role, offer, rejects_of
from callsheet.pricing.references import Reading, Reference, RequestImage, examine, parse_references
from callsheet.records import MADE_FROM, ModelType, canonical
from callsheet.service.models import Catalogue
from callsheet.storage.names import PLACEHOLDERS, carried_columns
from callsheet.storage.spool import work_folder

_REASONS = 3  # that are shown, of one for each model in use


def check_config_values(settings: Settings, catalogue: Catalogue, batch: Batch) -> None:
    """Checks `input.matrix` and `input.defaults` against the catalogue, for the models in use: those of the
    matrix, otherwise those of the rows. Reads local and S3 images that these name.

    Raises:
        ConfigError: values are wrong; the message names each of them with file, line and key.
    """
    wrong_values = [*_problems(settings, catalogue, batch), *_wrong_defaults(settings, catalogue, batch)]
    if wrong_values:
        problems = [f"{settings.where(place)}: {dotted(place)}: {reason}" for place, reason in wrong_values]
        is_of_a_model = any(place[0] == "input" for place, _ in wrong_values)
        hint = "`callsheet models` lists what each model takes." if is_of_a_model else ""
        raise ConfigError("\n".join(problems), hint=hint)


def _problems(settings: Settings, catalogue: Catalogue, batch: Batch) -> Iterator[tuple[KeyPath, str]]:
    for name in carried_columns(settings.storage.key):
        if name not in batch.columns.carried:
            expected = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            yield (
                ("storage", "key"),
                f"{{{name}}} is no carried column of the batch file, and none of {expected}",
            )
    matrix, default = settings.input.matrix, settings.input.defaults.get("model")
    models: Sequence[object] = matrix.get("model", ())
    if not models:
        unknown = default is not None and _unknown(default, catalogue)
        if not matrix and not unknown:
            return
        models = sorted(batch.rows["model"].unique())
        if unknown and default in models:
            yield ("input", "defaults", "model"), unknown
    usable = [str(model) for model in models if not _unknown(model, catalogue)]
    for column, cells in matrix.items():
        for position, cell in enumerate(cells):
            if column == "model":
                reason = _unknown(cell, catalogue)
            else:
                value = fixed_values({column: cell})[column]
                reason = _not_taken(column, value, usable, catalogue, settings)
            if reason:
                yield ("input", "matrix", column, position), reason


def _wrong_defaults(settings: Settings, catalogue: Catalogue, batch: Batch) -> Iterator[tuple[KeyPath, str]]:
    """Defaults that no model takes of the rows that use them; that of the model is one of `_problems`."""
    matrix = settings.input.matrix
    for column, value in fixed_values(settings.input.defaults).items():
        if column in {"model", "samples", *matrix}:
            continue
        cells = batch.rows[column]
        using = batch.rows.filter(cells.is_null() if column in UNTIL_PRICED else cells == as_text(value))
        models = matrix.get("model") or using["model"].unique().sort()
        usable = [str(model) for model in models if using.height and not _unknown(model, catalogue)]
        if column in UNTIL_PRICED:  # a default for the models of one type
            type_ = ModelType.IMAGE if column == "output_format" else ModelType.VIDEO
            usable = [model for model in usable if catalogue[model].type == type_]
        if reason := _not_taken(column, value, usable, catalogue, settings):
            yield ("input", "defaults", column), reason


def _unknown(model: object, catalogue: Catalogue) -> str | None:
    """Why nothing can be bought from a model."""
    offered = offer(Combination(str(model)), catalogue)
    return offered.reason if isinstance(offered, Reject) and offered.column == "model" else None


def _not_taken(
    column: FileColumn, value: Value, models: Sequence[str], catalogue: Catalogue, settings: Settings
) -> str | None:
    """Why none of the models takes a value; None where one does."""
    if value is None or column == "prompt":
        return None
    images: list[tuple[str | None, str]] = []
    if column in IMAGE_COLUMNS:
        listed = parse_references(dict.fromkeys(IMAGE_COLUMNS) | {column: str(value)})
        if isinstance(listed, Reject):
            return listed.reason
        path, reading = _beside(settings), reading_of(settings)
        for reference in listed:
            image = examine(reference.source, path, reading)
            if isinstance(image, str):
                return f"{reference.source}: {image}"
            images.append((reference.role, column))
        if column == "last_frame":  # which needs a first_frame: the row may have one
            images.append(("first_frame", "first_frame"))
    reasons = []
    for model in models:
        asked: dict[str, Any] = {"images": tuple(images)} if images else {column: value}
        offered = offer(Combination(model, **asked), catalogue)
        if not (isinstance(offered, Reject) and offered.column == column):
            return None
        reasons.append(offered.reason)
    return "; ".join(reasons[:_REASONS]) or None


COLUMNS = ["key", "row_id", "sample", "line", "type", "model", "resolution", "duration", "sound", "request"]
COLUMNS += ["inlined", "inlined_bytes", "carried", "billable_unit", "unit_price", "quantity", "price"]
COLUMNS += ["currency", "repeats", "again"]
"""The columns of `plan.parquet`. `repeats`: the job looks like one that was bought; `again`: it is a sample
more than the row asks for (`bought.py`).
"""

_MONEY = pl.Decimal(18, 6)
_READERS = max(4, os.cpu_count() or 1)  # of images, at most 10 MiB each; S3 answers slowly, so never only one
_PARAMETERS = ("model", "aspect_ratio", "resolution", "output_format", "duration", "sound")
_SENT = ("model", "resolution", "duration", "sound")
_REJECT = pl.Struct(dict.fromkeys(["column", "value", "reason"], pl.String))
_IMAGES = {
    "wrong_image": _REJECT,
    **dict.fromkeys(["sent_images", "asked_images", "roles"], pl.String),
    "inlined": pl.List(pl.Struct({"sha256": pl.String, "source": pl.String})),
    "inlined_bytes": pl.Int64,
}
_OFFERED = {
    "wrong": pl.List(_REJECT),
    **dict.fromkeys(["sent", "asked", "type", "sent_model", "sent_resolution", "unpriced"], pl.String),
    **dict.fromkeys(["billable_unit", "currency", "image_role"], pl.String),
    "sent_duration": pl.Int64,
    "sent_sound": pl.Boolean,
    "quantity": pl.Int64,
    "unit_price": _MONEY,
    "price": _MONEY,
}
_PLACE = ("row", "line", "file")
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
        fitted: how many images are sent as JPEGs that were made of them (`input.fit`).
    """

    jobs: pl.DataFrame
    not_offered: pl.DataFrame
    wrong: pl.DataFrame
    rejected: int
    unpriced: int
    fitted: int = 0


def make_jobs(
    rows: pl.DataFrame, catalogue: Catalogue, settings: Settings, *, with_repeated: bool = False
) -> JobTable:
    """Multiplies the rows of a batch by matrix and samples, resolves, prices and keys them.

    Reads local and S3 images. `with_repeated` leaves `input.repeated` to the caller, who knows what is bought
    (see `once`).
    """
    defaults = settings.input.defaults
    late: _Cells = fixed_values({column: defaults[column] for column in UNTIL_PRICED if column in defaults})
    fitted: set[str] = set()
    images = partial(_images, path=_beside(settings), reading=reading_of(settings), fitted=fitted)
    offers = partial(_offers, catalogue=catalogue, late=late, own_ratio=settings.input.has_ratio_of_files)
    rows = _multiplied(rows, settings)
    rows = _resolved(rows, [*IMAGE_COLUMNS, "file"], images, _IMAGES).drop(IMAGE_COLUMNS)
    rows = _with_json(_placed(_resolved(rows, [*_PARAMETERS, "roles"], offers, _OFFERED)))
    bad_image = pl.col("wrong_image").is_not_null()
    rows, wrong_rows = separate(rows, bad_image | pl.col("wrong").is_not_null())
    cells = [wrong_rows.filter(bad_image).select(*_PLACE, "wrong_image").unnest("wrong_image")]
    cells += [wrong_rows.select(*_PLACE, "wrong").explode("wrong").drop_nulls("wrong").unnest("wrong")]
    refused = [wrong_rows.filter(~bad_image)]
    unpriced = rows.filter(pl.col("price").is_null())["row"].n_unique()
    for column, is_wrong, value, reason in _refusals(settings):
        rows, wrong_rows = separate(rows, is_wrong)
        refused.append(wrong_rows)
        cells.append(wrong_rows.select(*_PLACE, column=pl.lit(column), value=value, reason=reason))
    not_offered = pl.concat(table.select("row_id", "samples", "line", "asked") for table in refused)
    wrong_cells = pl.concat(cells)
    jobs = _columns_of_plan(_per_sample(rows))
    if settings.input.repeated == "once" and not with_repeated:
        jobs, _ = once(jobs)
    return JobTable(
        jobs=jobs,
        not_offered=_per_sample(not_offered).select("row_id", "sample", "line", "asked"),
        wrong=wrong_cells.drop("row"),
        rejected=wrong_cells["row"].n_unique(),
        unpriced=unpriced,
        fitted=len(fitted),
    )


def reading_of(settings: Settings) -> Reading:
    """How the images of a batch are read."""
    folder = work_folder(settings, make=False) / "images"
    return Reading(settings.storage.endpoint_url, settings.input.fit, folder)


def _beside(settings: Settings) -> str:
    """The batch file, beside which images are looked for; empty where there is none."""
    path = settings.input.path
    return path if path and is_batch_file(path) else ""


def once(jobs: pl.DataFrame, bought: pl.Series | None = None) -> tuple[pl.DataFrame, int]:
    """Of jobs with the same request and sample the first alone, or those that are bought, by their keys.

    Returns:
        The jobs; and of how many rows one is left out.
    """
    request_and_sample = ["request", "sample"]
    is_bought = pl.col("request").is_null()
    if bought is not None:
        is_bought |= pl.col("key").is_in(bought.implode())
    is_first = pl.struct(request_and_sample).is_first_distinct() & ~is_bought.any().over(request_and_sample)
    kept, left_out = separate(jobs, ~(is_bought | is_first))
    return kept, left_out["row_id"].n_unique()


def _refusals(settings: Settings) -> Iterator[tuple[str, pl.Expr, pl.Expr, pl.Expr]]:
    """Why requests that the catalogue offers are not bought: the column, where it is so, value and reason."""
    if not settings.budget.allow_unpriced:
        yield "model", pl.col("price").is_null(), pl.col("model"), pl.col("unpriced")
    limit = references.LARGEST_REQUEST
    size = pl.col("request").str.len_bytes() + pl.col("inlined_bytes")
    reason = pl.format(f"the request has {{}} bytes with its images; at most {limit:,} are allowed", size)
    yield "images", size > limit, pl.lit(""), reason
    if settings.input.matrix:
        repeated = ~pl.struct("row", "request").is_first_distinct()
        yield "model", repeated, pl.col("model"), pl.lit("input.matrix asks for the same request twice")


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
    cells = resolve([blank | combination for combination in combinations.iter_rows(named=True)])
    # Money comes as text: for a Decimal, polars imports numpy, which takes as long as 50,000 rows.
    read_as = {name: pl.String if dtype == pl.Decimal else dtype for name, dtype in schema.items()}
    new = combinations.hstack(pl.DataFrame(cells, schema=read_as).cast(pl.Schema(schema)))
    return rows.join(new, on=used, how="left", nulls_equal=True, maintain_order="left")


def _multiplied(rows: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Every row with every combination of the matrix, in the file's order; `row` counts the file's rows."""
    rows, matrix = rows.with_row_index("row"), settings.input.matrix
    if not matrix:
        return rows
    cells = [fixed_values(dict(zip(matrix, values, strict=True))) for values in product(*matrix.values())]
    types: dict[str, Any] = {"duration": pl.Int64, "sound": pl.Boolean}
    combinations = pl.DataFrame(cells, {column: types.get(column, pl.String) for column in matrix})
    return (
        rows.drop(combinations.columns)
        .join(combinations.with_row_index("combination"), how="cross")
        .sort("row", "combination")
        .drop("combination")
    )


def _images(combinations: list[_Cells], path: str, reading: Reading, fitted: set[str]) -> list[_Cells]:
    """The images of rows as cells of `_IMAGES`, or why they cannot be sent. `path` is the batch file, and
    `fitted` receives the sha256 of each image that is made to fit.

    Each source is read once, several at the same time.
    """
    parsed = [(cells["file"] or path, references.parse_references(cells)) for cells in combinations]
    lists = [(file, listed) for file, listed in parsed if not isinstance(listed, Reject)]
    places = list(dict.fromkeys((reference.source, file) for file, listed in lists for reference in listed))
    with ThreadPoolExecutor(_READERS, "images") as readers:
        images = readers.map(lambda place: references.examine(place[0], place[1], reading), places)
        examined = dict(zip(places, images, strict=True))
    fitted |= {
        image.sha256 or "" for image in examined.values() if not isinstance(image, str) and image.is_fitted
    }
    return [
        {"wrong_image": asdict(listed)} if isinstance(listed, Reject) else _image_set(listed, file, examined)
        for file, listed in parsed
    ]


def _image_set(
    listed: list[Reference], file: str, examined: Mapping[tuple[str, str], RequestImage | str]
) -> _Cells:
    """The images of one row: their JSON in the request and in what the row asks for, where they are a text;
    and role and column of each, as JSON.
    """
    images, asked, inlined, inlined_bytes = [], [], {}, 0
    for reference in listed:
        image = examined[reference.source, file]
        if isinstance(image, str):
            reason = image if file else f"{reference.source} {image}"  # a row that is an image has no line
            return {"wrong_image": asdict(Reject(reference.column, reference.source, reason))}
        # Only for an image model may the role be left out (see rates), and there is only this one.
        images.append({"role": reference.role or REFERENCE, "url": image.url})
        asked.append(images[-1] | {"url": without_signature(image.url)})
        inlined_bytes += image.added_bytes
        if image.sha256:
            inlined[image.sha256] = image.place
    roles = [(reference.role, reference.column) for reference in listed]
    return {
        "sent_images": canonical(images) if images else None,
        "asked_images": canonical(canonical(asked)) if images else None,
        "roles": json.dumps(roles) if roles else None,
        "inlined": [{"sha256": sha256, "source": source} for sha256, source in inlined.items()] or None,
        "inlined_bytes": inlined_bytes,
    }


def _offers(
    combinations: list[_Cells], catalogue: Catalogue, late: _Cells, *, own_ratio: bool
) -> list[_Cells]:
    """What rows ask for and what the catalogue offers for that, with or without a price, or why they cannot
    be bought.

    What a row asks for is in texts, without what nobody has set. The catalogue has no part in it: its
    defaults and prices may change, and the job stays the same job. `late` are the config's defaults that are
    applied by the type of the model. `own_ratio`: aspect ratios are those of files, and a model that does not
    offer one is asked for its own.
    """
    offers = []
    for cells in combinations:
        values = {name: late.get(name) if cells[name] is None else cells[name] for name in _PARAMETERS}
        texts = {name: as_text(value) for name, value in values.items() if value is not None}
        images = tuple((role, column) for role, column in json.loads(cells["roles"] or "[]"))
        combination = Combination(**{column: cells[column] for column in _PARAMETERS}, images=images)
        asked = _template(texts, has_images=bool(images))
        if own_ratio and any(
            reject.column == "aspect_ratio" for reject in rejects_of(combination, catalogue, late)
        ):
            combination = replace(combination, aspect_ratio=None)
        role = image_role(combination.model, catalogue) if BY_MODEL in dict(images) else None
        offers.append({"asked": asked, "image_role": role} | _offered(combination, catalogue, late))
    return offers


def _offered(combination: Combination, catalogue: Catalogue, late: _Cells) -> _Cells:
    """An offer as cells of `_OFFERED`."""
    offered = offer(combination, catalogue, late)
    if isinstance(offered, Reject):
        return {"wrong": [asdict(reject) for reject in rejects_of(combination, catalogue, late)]}
    price = offered.price
    return {
        "sent": _template(offered.parameters, has_images=bool(combination.images)),
        "type": offered.type.value,
        **{f"sent_{name}": offered.parameters.get(name) for name in _SENT},
        "unpriced": offered.unpriced,
        "billable_unit": price and price.billable_unit,
        "currency": price and price.currency,
        "quantity": price and price.quantity,
        "unit_price": price and f"{price.unit_price:f}",
        "price": price and f"{price.total:f}",
    }


_NO_IMAGES, _NO_PROMPT = '"images":null', '"prompt":null'
"""In a template, where each row has its own. No text in JSON reads like this: its quotes are escaped."""


def _template(values: Mapping[str, object], *, has_images: bool) -> str:
    """Canonical JSON of a request without its images and its prompt."""
    return canonical({**values, "prompt": None} | ({"images": None} if has_images else {}))


def _placed(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, in which an image that goes where the model takes it has that role in the request."""
    by_model, roles = f'"role":"{BY_MODEL}"', rows["image_role"].drop_nulls().unique().to_list()
    for role in roles:
        sent = pl.col("sent_images").str.replace_all(by_model, f'"role":"{role}"', literal=True)
        is_of_it = pl.col("image_role").eq_missing(pl.lit(role))
        rows = rows.with_columns(sent_images=pl.when(is_of_it).then(sent).otherwise("sent_images"))
    return rows


def _with_json(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `request`, as it is sent; and makes `asked` that of the row, in NFC, in which texts that look the
    same are the same.
    """

    def filled(template: str, images: str, prompt: pl.Expr) -> pl.Expr:
        # Polars has the same escapes as `canonical`, and writes a whole column: {"prompt":"..."}
        prompt_json = pl.struct(prompt).struct.json_encode().str.slice(1).str.head(-1)
        with_images = pl.when(pl.col(images).is_not_null()).then(
            pl.col(template).str.replace(_NO_IMAGES, pl.format('"images":{}', images), literal=True)
        )
        return with_images.otherwise(template).str.replace(_NO_PROMPT, prompt_json, literal=True)

    prompt = pl.col("prompt")
    return rows.with_columns(
        request=filled("sent", "sent_images", prompt),
        asked=nfc(filled("asked", "asked_images", same_prompt(prompt))),
    )


def _per_sample(rows: pl.DataFrame) -> pl.DataFrame:
    """A row per sample."""
    if (rows["samples"] == 1).all():
        return rows.with_columns(sample=pl.lit(1, pl.Int64))
    return rows.with_columns(sample=pl.int_ranges(1, pl.col("samples") + 1)).explode("sample")


def _columns_of_plan(jobs: pl.DataFrame) -> pl.DataFrame:
    """Jobs with the columns of a plan, and `asked` in place of `key`."""
    if "carried" not in jobs.columns:
        jobs = jobs.with_columns(carried=pl.lit(None, pl.String))
    no = pl.lit(False)
    sent = (pl.col(f"sent_{name}").alias(name) for name in _SENT)
    jobs = jobs.with_columns(*sent, repeats=no, again=no)
    return jobs.select("asked", *COLUMNS[1:])


def as_sent(jobs: pl.DataFrame, stored_files: Mapping[str, str]) -> tuple[pl.DataFrame, pl.Series]:
    """The jobs of a plan, in which `MADE_FROM` has the sha256 of the file that is sent.

    `stored_files` are those of another batch, as in `Batch`.

    Returns:
        The jobs, and the keys of those that are made from a file which has other bytes than were stored.
    """
    images = jobs.select("key", "inlined").explode("inlined").unnest("inlined")
    place = pl.col("source").str.strip_suffix(references.LAST_FRAME)
    stored = place.replace_strict(stored_files, default=None, return_dtype=pl.String)
    changed = images.filter(stored != pl.col("sha256")).unique("key", keep="first", maintain_order=True)
    if changed.is_empty():
        return jobs, changed["key"]
    sent = jobs.join(changed, on="key", how="left", maintain_order="left")["sha256"]
    origin = pl.col("carried").struct.field(MADE_FROM)
    origin = origin.struct.with_fields(pl.coalesce(sent, origin.struct.field("sha256")).alias("sha256"))
    return jobs.with_columns(pl.col("carried").struct.with_fields(origin.alias(MADE_FROM))), changed["key"]


def request_key(request: pl.Expr | None = None) -> pl.Expr:
    """The column `request_key` of jobs: the sha256 of [request, sample] as canonical JSON in NFC, in hex."""
    request = pl.col("request") if request is None else request
    pair = pl.concat_str(pl.lit("["), nfc(request), pl.lit(","), "sample", pl.lit("]"))
    return sha256(pair).alias("request_key")


MAY_DIFFER = r'"prompt":"(?:\s|\\)|(?:\s|\\.|\\u....)"[,}]|\\r|"url":"https://[^"]*\?'
"""Requests that `same_request` may change: a blank or an escape at an end of a text, a CR, a query."""


def same_request() -> pl.Expr:
    """The column `request` without what makes no other job: the prompt's kind of line ends, blanks at its
    ends, and signatures of addresses.
    """
    return pl.col("request").map_batches(_same, return_dtype=pl.String)


def _same(requests: pl.Series) -> pl.Series:
    at = requests.str.contains(MAY_DIFFER).fill_null(value=False).arg_true()
    if at.is_empty():
        return requests
    bodies = [json.loads(request) for request in requests.gather(at)]
    prompts = pl.DataFrame({"prompt": [body["prompt"] for body in bodies]}, {"prompt": pl.String})
    same_prompts = prompts.select(same_prompt(pl.col("prompt"))).to_series()
    for body, prompt in zip(bodies, same_prompts, strict=True):
        body["prompt"] = prompt
        if "images" in body:
            body["images"] = [image | {"url": without_signature(image["url"])} for image in body["images"]]
    return requests.scatter(at, [canonical(body) for body in bodies])


def keyed(jobs: pl.DataFrame, batch: str) -> pl.DataFrame:
    """Jobs with `key`, each job's identity.

    The key is the sha256 of {"asked", "batch", "row_id", "sample"} as canonical JSON, in hex.
    """
    row = pl.struct("row_id", "sample").struct.json_encode().str.slice(1)
    identity = pl.concat_str(pl.lit('{"asked":'), "asked", pl.lit(f',"batch":{canonical(batch)},'), row)
    return jobs.with_columns(sha256(identity).alias("key"))
