"""Where the rows of a batch come from: its batch files, or the files that another batch has kept or stored.

`read_rows` makes the prompt rows of any config. Of another batch it reads config and ledger, and changes
nothing: settings of that batch are not taken over, but for the aspect ratio of each file. Its files
are read later, as the images of any batch file (`references.py`). Single cells may name such a file, too
(`cast.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.batches import columns
from callsheet.batches.formats import FILE, is_batch_file, versions
from callsheet.batches.headers import Table, mapped, read_by
from callsheet.batches.left_out import NOTHING, StoredFiles
from callsheet.batches.read import Batch, batch_of, read_batch
from callsheet.config.load import load_without_service
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import ConfigError, NothingKept
from callsheet.ledger import queries
from callsheet.ledger.databases import exists
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import MediaDecision
from callsheet.plain_text import and_more, counted, printable
from callsheet.pricing import originals
from callsheet.pricing.cast import with_cast
from callsheet.pricing.plan import PLAN
from callsheet.pricing.references import LAST_FRAME
from callsheet.records import MADE_FROM, canonical
from callsheet.storage.spool import work_folder

_OWN = ("row", "sample", "model", "prompt", FILE, "width", "height", "duration")
_POSITION = "\0position"
_NAMED = 20  # files


async def read_rows(settings: Settings) -> Batch:
    """Reads and checks the rows of a batch, whatever they are made from.

    Raises:
        InputError: a batch file cannot be read, or has not all columns; or the other batch has no such file.
        ConfigError: the other batch's config is wrong, or the batch is made from itself.
        LedgerError: the other batch's ledger is not there, or cannot be read.
        StorageError: the temporary copy of a file on S3 cannot be written.
    """
    if settings.input.other is None:
        batch = await asyncio.to_thread(read_batch, settings, await _stored_files(settings))
        return await with_cast(batch, settings)
    origin = await asyncio.to_thread(_checked, settings)
    stored = await originals.read(origin)
    if stored is None:
        raise NothingKept(
            f"{settings.input.other}: nothing of the batch {origin.batch} is bought yet",
            hint=f"callsheet run {settings.input.other} buys it.",
        )
    bought_ids = await _bought_ids(settings, stored.files["former_id"].to_list())
    files = originals.with_bought_ids(stored.files, bought_ids)
    batch = await asyncio.to_thread(_batch, settings, origin, files, stored.planned)
    return await with_cast(batch, settings)


async def _bought_ids(settings: Settings, ids: Sequence[str]) -> set[str]:
    """Those of the ids that rows of this batch have in its ledger."""
    if not await asyncio.to_thread(exists, settings.ledger.url):
        return set()
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        return await ledger.read(lambda connection, batch: queries.row_ids(connection, batch, ids))


async def version_of_rows(settings: Settings) -> str:
    """A text that is another one where `read_rows` may make other rows than now. Of images that are the rows
    it has the names alone: their bytes are read while pricing.

    Raises:
        CallsheetError: as `read_rows`.
        OSError: a file cannot be read.
    """
    if settings.input.other is None:
        return canonical(await asyncio.to_thread(versions, settings, await _stored_files(settings)))
    origin = await asyncio.to_thread(_checked, settings)
    async with await Ledger.open(origin.ledger.url, origin.batch, looks=True) as ledger:
        revision = await ledger.read(queries.revision)
    plan, order = work_folder(origin, make=False) / PLAN, ""
    with suppress(FileNotFoundError):  # it is bought on another machine
        order = hashlib.sha256(await asyncio.to_thread(plan.read_bytes)).hexdigest()
    return canonical([origin.model_dump(mode="json"), ledger.id, revision, order])


async def _stored_files(settings: Settings) -> StoredFiles:
    """What all batches of the ledger have stored, where a folder or a glob may have some of it."""
    is_named = is_batch_file(settings.input.source)
    if is_named or not await asyncio.to_thread(exists, settings.ledger.url):
        return NOTHING
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        return await ledger.read(queries.stored_hashes)


def _checked(settings: Settings) -> BatchSettings:
    """The config of the batch from which this one is made.

    Raises:
        ConfigError: it is wrong; or a batch is made from itself, by itself or through others.
    """
    first = str(settings.input.other)
    origin = load_without_service(Path(first))
    names, identities, current, place = [_shown(settings)], [_identity(settings)], origin, first
    while True:
        names.append(place)
        if _identity(current) in identities:
            raise _circle(names, settings, first)
        identities.append(_identity(current))
        if current.input.other is None:
            return origin
        place = current.input.other
        try:
            current = load_without_service(Path(place))
        except ConfigError:  # it matters to that batch, and not to this one
            return origin


def _identity(settings: BatchSettings) -> tuple[str, str]:
    scheme, _, path = settings.ledger.url.partition("sqlite:///")
    return f"{scheme}{Path(path).absolute()}" if path else scheme, settings.batch


def _shown(settings: BatchSettings) -> str:
    """The config as a person names it: from the working directory."""
    file = settings.file or Path(settings.batch)
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


def _circle(names: Sequence[str], settings: Settings, first: str) -> ConfigError:
    setting = "kept" if settings.input.kept else "stored"
    way = ", which is made from ".join(names[1:])
    place = settings.where(("input", setting))
    return ConfigError(
        f"{place}: a batch cannot be made from itself: {names[0]} is made from {way}",
        hint=f"{first} has another batch name or ledger where it is another batch.",
    )


def _batch(settings: Settings, origin: BatchSettings, files: pl.DataFrame, planned: pl.Series) -> Batch:
    """The rows that are made from these files; `planned` are the ids of the rows of the other batch."""
    config = settings.input
    if config.stored is not None:  # what the other batch no longer asks for is wanted only by a person
        files = files.filter("current")
    progress = f"{origin.batch}: {_progress(files, planned, is_kept=config.kept is not None)}"
    chosen = files.filter(pl.col("decision").eq_missing(MediaDecision.KEPT))
    if config.stored is not None:
        chosen = files.filter(pl.col("decision").ne_missing(MediaDecision.REJECTED))
    if chosen.is_empty():
        step = f"callsheet review {config.other} marks its files."
        if files.is_empty():
            step = f"callsheet status {config.other} says what became of its jobs."
        raise NothingKept(
            f"{config.other}: has no file that is {'kept' if config.kept else 'stored and not rejected'}",
            hint=f"{progress}. {step}",
        )
    order = {row_id: at for at, row_id in enumerate(planned.unique(maintain_order=True))}
    position = pl.col("row_id").replace_strict(order, default=len(order), return_dtype=pl.Int64)
    chosen = chosen.with_columns(position.alias(_POSITION)).sort(_POSITION, "row_id", "file_number", "index")
    chosen = originals.with_places(chosen, origin)
    batch = batch_of([_table(chosen, settings, origin)], config)
    ratios = f"the aspect ratio of each file of {origin.batch} is asked for, where the model offers it"
    files_in_words = f"the files of {origin.batch}: {_in_words(chosen)}"
    notes = (progress, files_in_words, *batch.notes, *([ratios] if config.has_ratio_of_files else []))
    return replace(batch, notes=notes, stored_files=dict(chosen.select(FILE, "sha256").iter_rows()))


def _in_words(files: pl.DataFrame) -> str:
    """The first of the files by their ids, each with what it was bought as."""
    named = []
    for row_id, model, request in files.head(_NAMED).select("id", "model", "request").iter_rows():
        sent = json.loads(request)
        settings = [str(sent[name]) for name in ("aspect_ratio", "resolution") if name in sent]
        settings += [f"{sent['duration']} s"] if "duration" in sent else []
        named.append(f"{printable(row_id)} ({', '.join([model, *settings])})")
    return and_more(named, files.height)


def _progress(files: pl.DataFrame, planned: pl.Series, *, is_kept: bool) -> str:
    """How far the other batch is, by its rows."""
    kept, rejected = pl.col("decision") == MediaDecision.KEPT, pl.col("decision") == MediaDecision.REJECTED
    rows = files.group_by("row_id").agg(
        kept=kept.fill_null(value=False).any(), rejected=rejected.fill_null(value=False).all()
    )
    all_rejected = int(rows["rejected"].sum())
    if is_kept:
        good = int(rows["kept"].sum())
        parts = [f"{good:,} with a kept file"]
        parts += [f"{left:,} to review"] if (left := rows.height - good - all_rejected) else []
    else:
        parts = [f"{rows.height - all_rejected:,} with a file that is not rejected"]
    parts += [f"{all_rejected:,} with every file rejected"] if all_rejected else []
    total = pl.concat([planned, rows["row_id"]]).n_unique()
    parts += [f"{total - rows.height:,} without a file"] if total > rows.height else []
    return f"{counted(total, 'row')}: {', '.join(parts)}"


def _table(files: pl.DataFrame, settings: Settings, origin: BatchSettings) -> Table:
    """Files of another batch as rows: what they are, and then what that batch carries for them."""
    config = settings.input
    made_from = pl.struct(
        pl.lit(origin.batch).alias("batch"), pl.col("row_id").alias("row"), "sample", "sha256"
    )
    ratio = pl.coalesce(
        pl.col("request").str.json_path_match("$.aspect_ratio"), pl.format("{}x{}", "width", "height")
    )
    is_video = files["mime_type"].str.starts_with("video/")
    cells = files.select(
        "id",
        pl.col("row_id").alias("row"),
        *_OWN[1:],
        *([ratio.alias("aspect_ratio")] if config.has_ratio_of_files else []),
        made_from.alias(MADE_FROM),
    )
    if columns.LAST_FRAME in (*mapped(config), *read_by(config)):
        frames = pl.when(is_video).then(files[FILE] + LAST_FRAME)
        cells = cells.with_columns(pl.select(frames).to_series().alias(columns.LAST_FRAME))
    reserved = {*cells.columns, "aspect_ratio", columns.LAST_FRAME}
    cells = cells.with_columns(column for column in _carried(files["carried"]) if column.name not in reserved)
    lines = pl.int_range(1, cells.height + 1, eager=True)
    return Table(cells, lines, config.source, file=config.source, placed=FILE)


def _carried(texts: pl.Series) -> list[pl.Series]:
    rows: list[dict[str, Any]] = [json.loads(text or "{}") for text in texts]
    names = dict.fromkeys(name for row in rows for name in row)
    return [pl.Series(name, [row.get(name) for row in rows], strict=False) for name in names]
