"""A folder for people: each file under the name of its row, and `files.csv`, which says what each is.

`files.csv` also says which names in the folder are the export's, and what they have: a name that is to have
another content is removed first, so whatever is there under a name of the export is the file itself.
"""

from __future__ import annotations

import asyncio
import io
import string
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, suppress

import polars as pl

from callsheet.cells import unguarded
from callsheet.errors import InputError
from callsheet.export.files import AT_ONCE, NAME, Copying, Exported, Row
from callsheet.export.tables import as_csv
from callsheet.media_types import extension
from callsheet.records import MADE_FROM
from callsheet.storage.names import folded, name
from callsheet.storage.store import Store

INDEX = "files.csv"

ALL = pl.exclude(NAME, "url")
"""The columns of `files.csv` beside the names."""

BY_ROW = "{row_id}"
"""How a file is named, without its ending, unless a person says otherwise."""


def with_readable_names(files: pl.DataFrame, template: str) -> pl.DataFrame:
    """Rows of the manifest with `NAME`: the filled template, with a number where several files have the same.

    Args:
        template: `{row_id}`, or other columns of the manifest in braces.

    Raises:
        InputError: the template names no column, or one that is not there.
    """
    _check(template, files.columns)
    places_of_stem = defaultdict[str, list[int]](list)
    stems = [_stem(template, row) for row in files.iter_rows(named=True)]
    for place, stem in enumerate(stems):
        places_of_stem[folded(stem)].append(place)
    names, taken = [""] * len(stems), set[str]()
    # Those without a number first: a number gives way to a row whose id ends as if it had one.
    for places in sorted(places_of_stem.values(), key=lambda places: len(places) > 1):
        numbers = _numbers(files[places])
        for number, place in zip(numbers, places, strict=True):
            stem = f"{stems[place]}-{number}" if len(places) > 1 else stems[place]
            while folded(stem) in taken:
                stem += "_"
            taken.add(folded(stem))
            names[place] = f"{stem}.{extension(files['mime_type'][place])}"
    return files.with_columns(pl.Series(NAME, names, pl.String))


def _numbers(files: pl.DataFrame) -> list[str]:
    """What tells files of one name apart: of a row their numbers; films of a shot the numbers of its stills,
    and their own where several are of one still; otherwise their places.
    """
    numbers = files["file_number"].cast(pl.String)
    if files["row_id"].n_unique() == 1:
        return numbers.to_list()
    shots = [_shot_of(row) for row in files.select("row_id", MADE_FROM).iter_rows(named=True)]
    if None in shots or len({*shots}) > 1:
        return [str(place) for place in range(1, files.height + 1)]
    stills = files["row_id"].str.strip_prefix(f"{shots[0]}/").str.replace_all("/", "-")
    is_alone = ~files["row_id"].is_duplicated()
    return pl.select(pl.when(is_alone).then(stills).otherwise(stills + "-" + numbers)).to_series().to_list()


def _shot_of(row: Row) -> str | None:
    """The row of a film's still, where the film's own row is named after it (`shot/1`); otherwise None."""
    still = row[MADE_FROM]
    return still["row"] if still and row["row_id"].startswith(f"{still['row']}/") else None


def _check(template: str, columns: list[str]) -> None:
    fields: list[str] = []
    with suppress(ValueError):  # a brace without another
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    if wrong := [field for field in fields if field not in columns]:
        raise InputError(
            f"--name: {{{wrong[0]}}} is no column of the manifest", hint=f"It has {', '.join(columns)}."
        )
    if not fields or "/" in template:
        raise InputError(
            f"--name {template}: is no name with a column in braces", hint="{row_id}-{model}, for instance."
        )


def _stem(template: str, row: Row) -> str:
    """A film that was made of a shot's still has the shot's name."""
    cells = {**row, "row_id": _shot_of(row) or row["row_id"]}
    filled = name(f"{template}.{{ext}}", cells, ext=extension(row["mime_type"]))
    return filled.rpartition(".")[0]


async def write_folder(
    files: pl.DataFrame,
    store: Store,
    present: pl.DataFrame,
    copying: Copying,
    progress: Callable[[int], None],
    *,
    listed: pl.Expr,
) -> Exported:
    """Copies the files that are not there yet, and removes those that are no longer exported.

    `present` has `name` and `size` of each file that is there; `files.csv` has the columns `listed`, of which
    one is `sha256`.
    """

    async def copy(row: Row) -> None:
        with ExitStack() as copies:
            path = await asyncio.to_thread(copying.local_file, row, copies)
            await store.write(row[NAME], path, row["mime_type"])

    there = present["name"].to_list()
    old_files = [file for file in _listed(await store.read(INDEX)).rows() if file[0] in there]
    outdated = {file for file, _ in {*old_files} - {*files.select(NAME, "sha256").rows()}}
    for file in sorted(outdated):
        await store.remove(file)
    index = files.select(pl.col(NAME).alias("file"), listed)
    await store.write(INDEX, await asyncio.to_thread(as_csv, index), "text/csv")
    present = present.filter(~pl.col("name").is_in(outdated))
    missing = copying.missing(files, present, pl.col(NAME))
    for chunk in missing.iter_slices(AT_ONCE):
        await asyncio.gather(*map(copy, chunk.iter_rows(named=True)))
        progress(chunk.height)
    removed = outdated - {*files[NAME]}
    return Exported(files.height + 1, missing.height, int(missing["bytes"].sum()), len(removed))


def _listed(content: bytes | None) -> pl.DataFrame:
    """The names that an earlier export has given, each with the sha256 of its file."""
    with suppress(pl.exceptions.PolarsError):  # somebody has edited it
        listed = pl.read_csv(io.BytesIO(content or b""), infer_schema=False)
        return listed.select(unguarded(pl.col("file")), "sha256").drop_nulls()
    return pl.DataFrame(schema={"file": pl.String, "sha256": pl.String})
