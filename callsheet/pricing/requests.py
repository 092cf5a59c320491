"""Prompt rows, config and catalogue -> requests: what is sent for each row, and what each row asks for.

It works on whole columns. What needs a decision is decided once for each distinct case and joined back: an
image source is read once, and a combination of parameters is checked once (`parameters.resolve`).
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

from callsheet.batches.identities import nfc, without_signature
from callsheet.batches.read import UNTIL_PRICED
from callsheet.cells import BY_MODEL, IMAGE_COLUMNS, as_text, fixed_values, same_prompt, separate
from callsheet.config.settings import Settings
from callsheet.pricing import references
from callsheet.pricing.parameters import REFERENCE, Combination, Reject, image_role, rejects_of, resolve
from callsheet.pricing.references import Reading, Reference, RequestImage, batch_file, reading_of
from callsheet.records import canonical
from callsheet.service.models import Catalogue

REQUEST_COLUMNS = ["row_id", "sample", "line", "type", "model", "resolution", "duration", "sound", "request"]
REQUEST_COLUMNS += ["inlined", "inlined_bytes", "carried"]
"""The columns of jobs that are not priced yet."""

PLACE = ("row", "line", "file")
"""Where a request comes from: the number of the prompt row, and its place in the batch files."""

_READERS = max(4, os.cpu_count() or 1)  # of images, at most 10 MiB each; S3 answers slowly, so never only one
_PARAMETERS = ("model", "aspect_ratio", "resolution", "output_format", "duration", "sound")
_SENT = ("model", "resolution", "duration", "sound")
_REJECT = pl.Struct(dict.fromkeys(["column", "value", "reason"], pl.String))
_IMAGES = {
    "wrong_image": _REJECT,
    **dict.fromkeys(["sent_images", "asked_images", "roles"], pl.String),
    "size": pl.String,
    "inlined": pl.List(pl.Struct({"sha256": pl.String, "source": pl.String})),
    "inlined_bytes": pl.Int64,
}
_RESOLVED = {
    "wrong": pl.List(_REJECT),
    **dict.fromkeys(["sent", "asked", "type", "sent_model", "sent_resolution", "image_role"], pl.String),
    "sent_duration": pl.Int64,
    "sent_sound": pl.Boolean,
}
_Cells = dict[str, Any]
"""Values of one row by column."""


@dataclass(frozen=True)
class Requests:
    """What the rows of a batch ask for.

    Attributes:
        rows: a row for each request, in the file's order: `PLACE`; `asked`, what the row asks for as JSON, by
            which it is the same job again; and `REQUEST_COLUMNS`, with `samples` in place of `sample`.
        not_offered: `row_id`, `samples`, `line` and `asked` of each that the catalogue does not offer now.
        wrong: what cannot be asked for: `PLACE`, `column`, `value`, `reason`.
        notes: what a person should know of the images, in sentences.
    """

    rows: pl.DataFrame
    not_offered: pl.DataFrame
    wrong: pl.DataFrame
    notes: list[str]


def make_requests(rows: pl.DataFrame, catalogue: Catalogue, settings: Settings) -> Requests:
    """Multiplies the rows of a batch by the matrix, and resolves them. Reads local and S3 images."""
    defaults = settings.input.defaults
    late: _Cells = fixed_values({column: defaults[column] for column in UNTIL_PRICED if column in defaults})
    fitted: set[str] = set()
    images = partial(_images, path=batch_file(settings), reading=reading_of(settings), fitted=fitted)
    resolving = partial(
        _parameters, catalogue=catalogue, late=late, own_ratio=settings.input.has_ratio_of_files
    )
    rows = _multiplied(rows, settings)
    rows = for_each_combination(rows, [*IMAGE_COLUMNS, "file"], images, _IMAGES).drop(IMAGE_COLUMNS)
    rows = for_each_combination(rows, [*_PARAMETERS, "roles", "size"], resolving, _RESOLVED)
    notes = []
    if rows["size"].count():
        notes.append("the aspect ratio of each image is asked for, where the model offers it")
    if fitted:
        notes.append(references.fitted_in_words(len(fitted)))
    rows, not_offered, wrong = _without_wrong(_with_json(_with_image_roles(rows)), settings)
    return Requests(rows=_as_sent(rows), not_offered=not_offered, wrong=wrong, notes=notes)


def _without_wrong(rows: pl.DataFrame, settings: Settings) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The requests that can be bought; of the others what `Requests.not_offered` has, and what is wrong."""
    bad_image = pl.col("wrong_image").is_not_null()
    rows, wrong_rows = separate(rows, bad_image | pl.col("wrong").is_not_null())
    cells = [wrong_rows.filter(bad_image).select(*PLACE, "wrong_image").unnest("wrong_image")]
    cells += [wrong_rows.select(*PLACE, "wrong").explode("wrong").drop_nulls("wrong").unnest("wrong")]
    refused = [wrong_rows.filter(~bad_image)]
    for column, is_wrong, value, reason in _refusals(settings):
        rows, wrong_rows = separate(rows, is_wrong)
        refused.append(wrong_rows)
        cells.append(wrong_rows.select(*PLACE, column=pl.lit(column), value=value, reason=reason))
    not_offered = pl.concat(table.select("row_id", "samples", "line", "asked") for table in refused)
    return rows, not_offered, pl.concat(cells)


def _as_sent(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the columns of `Requests.rows`: of the parameters those that are sent."""
    if "carried" not in rows.columns:
        rows = rows.with_columns(carried=pl.lit(None, pl.String))
    sent = (pl.col(f"sent_{name}").alias(name) for name in _SENT)
    columns = [column for column in REQUEST_COLUMNS if column not in ("sample", "line")]
    return rows.with_columns(*sent).select(*PLACE, "asked", "samples", *columns)


def _refusals(settings: Settings) -> Iterator[tuple[str, pl.Expr, pl.Expr, pl.Expr]]:
    """Why requests that the catalogue offers are not bought: the column, where it is so, value and reason."""
    limit = references.LARGEST_REQUEST
    size = pl.col("request").str.len_bytes() + pl.col("inlined_bytes")
    reason = pl.format(f"the request has {{}} bytes with its images; at most {limit:,} are allowed", size)
    yield "images", size > limit, pl.lit(""), reason
    if settings.input.matrix:
        repeated = ~pl.struct("row", "request").is_first_distinct()
        yield "model", repeated, pl.col("model"), pl.lit("input.matrix asks for the same request twice")


def for_each_combination(
    rows: pl.DataFrame,
    columns: Sequence[str],
    work_out: Callable[[list[_Cells]], list[_Cells]],
    schema: Mapping[str, Any],
) -> pl.DataFrame:
    """The rows with the columns of `schema`, worked out once for each combination of the columns on which
    they depend.

    `work_out` gets combinations, and gives the new cells of each in the same order; one left out is null.
    """
    used = [column for column in columns if rows[column].null_count() < rows.height] or [*columns[:1]]
    combinations = rows.select(used).unique(maintain_order=True)
    blank: _Cells = dict.fromkeys(columns)
    cells = work_out([blank | combination for combination in combinations.iter_rows(named=True)])
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
    role and column of each, as JSON; and the size of the first.
    """
    images, asked, inlined, inlined_bytes, sizes = [], [], [], 0, []
    for reference in listed:
        image = examined[reference.source, file]
        if isinstance(image, str):
            reason = image if file else f"{reference.source} {image}"  # a row that is an image has no line
            return {"wrong_image": asdict(Reject(reference.column, reference.source, reason))}
        # Only for an image model may the role be left out (`parameters.py`), and there is only this one.
        images.append({"role": reference.role or REFERENCE, "url": image.url})
        asked.append(images[-1] | {"url": without_signature(image.url)})
        inlined_bytes += image.added_bytes
        sizes.append(image.size)
        if image.sha256:
            inlined.append({"sha256": image.sha256, "source": image.place})
    roles = [(reference.role, reference.column) for reference in listed]
    return {
        "sent_images": canonical(images) if images else None,
        "asked_images": canonical(canonical(asked)) if images else None,
        "roles": json.dumps(roles) if roles else None,
        "size": sizes[0] if sizes and not file else None,
        "inlined": inlined or None,
        "inlined_bytes": inlined_bytes,
    }


def _parameters(
    combinations: list[_Cells], catalogue: Catalogue, late: _Cells, *, own_ratio: bool
) -> list[_Cells]:
    """What rows ask for and what is sent for that as cells of `_RESOLVED`, or why they cannot be bought.

    What a row asks for is in texts, without what nobody has set. The catalogue has no part in it: its
    defaults and prices may change, and the job stays the same job. `late` are the config's defaults that are
    applied by the type of the model. `own_ratio`: aspect ratios are those of files, and a model that does not
    offer one is asked for its own. The size of a photo is such a default: its ratio is sent, and not what the
    row asks for, so what was bought without it stays the same job.
    """
    resolved_cells = []
    for cells in combinations:
        values = {name: late.get(name) if cells[name] is None else cells[name] for name in _PARAMETERS}
        texts = {name: as_text(value) for name, value in values.items() if value is not None}
        images = tuple((role, column) for role, column in json.loads(cells["roles"] or "[]"))
        combination = Combination(**{column: cells[column] for column in _PARAMETERS}, images=images)
        asked = _template(texts, has_images=bool(images))
        if combination.aspect_ratio is None:
            combination = replace(combination, aspect_ratio=cells["size"])
        if (own_ratio or cells["size"]) and any(
            reject.column == "aspect_ratio" for reject in rejects_of(combination, catalogue, late)
        ):
            combination = replace(combination, aspect_ratio=None)
        role = image_role(combination.model, catalogue) if BY_MODEL in dict(images) else None
        sent = _sent(combination, catalogue, late)
        resolved_cells.append({"asked": asked, "image_role": role} | sent)
    return resolved_cells


def _sent(combination: Combination, catalogue: Catalogue, late: _Cells) -> _Cells:
    """What is sent for a combination, or all that is wrong with it, as cells of `_RESOLVED`."""
    resolved = resolve(combination, catalogue, late)
    if isinstance(resolved, Reject):
        return {"wrong": [asdict(reject) for reject in rejects_of(combination, catalogue, late)]}
    return {
        "sent": _template(resolved.parameters, has_images=bool(combination.images)),
        "type": resolved.type.value,
        **{f"sent_{name}": resolved.parameters.get(name) for name in _SENT},
    }


_NO_IMAGES, _NO_PROMPT = '"images":null', '"prompt":null'
"""In a template, where each row has its own. No text in JSON reads like this: its quotes are escaped."""


def _template(values: Mapping[str, object], *, has_images: bool) -> str:
    """Canonical JSON of a request without its images and its prompt."""
    return canonical({**values, "prompt": None} | ({"images": None} if has_images else {}))


def _with_image_roles(rows: pl.DataFrame) -> pl.DataFrame:
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
