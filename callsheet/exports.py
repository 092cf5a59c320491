"""Exports a batch: what is stored and still in the batch file, as tables, an image folder or shards.

An export goes to a folder or a bucket that has nothing else, so that what is there is the export. A file is
complete or absent there, so what an interrupted export has written is not written again. Nothing here
changes the ledger or the media.

WebDataset shards are tar files with, for each stored file, the file itself and a JSON file of the same name;
`shards.json` lists them, as the library's own index does. They are filled in the order of storage, so what is
stored later comes into later shards, and those that are full are not written again.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import polars as pl

from callsheet.batches.formats import local_copy
from callsheet.batches.identities import sha256
from callsheet.cells import guarded
from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError, StorageError
from callsheet.files import disk_errors, temporary_file_errors, with_home
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import MediaDecision
from callsheet.media_types import extension
from callsheet.pricing.plan import last_plan
from callsheet.records import MADE_FROM
from callsheet.report.contact_sheet.cards import local_path
from callsheet.report.report import COSTS, OF_MANIFEST, costs, manifest
from callsheet.standing import Standing, read_standing
from callsheet.storage.names import EXPORT_MARK
from callsheet.storage.store import Store

AT_ONCE = 16
"""Files that are read at the same time."""

NAME = "\0name"
"""The column with the name of each file in the export; no column of a batch file has such a name."""

Row = Mapping[str, Any]

_ABOUT = ["row_id", "sample", "index", "model", "prompt", "mime_type", "width", "height", "duration", "fps"]
_ABOUT += ["has_sound", "cost", "sha256", "bytes", "job_key", "generation_id"]
_ABOUT += ["decision", "note", "flags"]
_NOT_ABOUT = {"url", "deletes_at", "stored_at", "current", "decided_by", "decided_at", NAME}
# Columns that the loader of an image folder makes itself, or takes for the names of more files.
_TAKEN = re.compile(r"image|label|(.*_)?file_names?")
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export has done: numbers of files."""

    files: int  # what the destination has now, without the marker
    copied: int  # how many of these this export has written
    bytes: int  # the size of what was written
    removed: int = 0  # those of earlier exports that are not part of it any more
    left_out: int = 0  # those that are not of a type that is exported


def _with_names(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the manifest with `NAME`, which is safe everywhere, and of this file and content alone."""
    extensions = {mime_type: extension(mime_type) for mime_type in rows["mime_type"].unique()}
    stem = pl.col("row_id").str.replace_all("[^A-Za-z0-9_-]+", "_").str.head(_LONGEST)
    identity = sha256(pl.format("{}/{}/{}", "job_key", "index", "sha256")).str.head(12)
    ending = pl.col("mime_type").replace_strict(extensions, default="bin", return_dtype=pl.String)
    name = pl.format("{}-{}-{}-{}.{}", stem, "sample", "index", identity, ending)
    return rows.with_columns(name.alias(NAME))


def _described(rows: pl.DataFrame, *first: pl.Expr) -> bytes:
    """A line of JSON for each file: `first`, its row, request and cost (as text), and the carried columns."""
    left_out = _NOT_ABOUT if rows[MADE_FROM].count() else {*_NOT_ABOUT, MADE_FROM}
    carried = [name for name in rows.columns if name not in {*_ABOUT, *left_out}]
    lines = rows.select(
        *first,
        *(pl.col(name).cast(pl.String) if name == "cost" else pl.col(name) for name in _ABOUT),
        *(pl.col(name).alias(_free(name, carried)) for name in carried),
    )
    content = io.BytesIO()
    lines.write_ndjson(content)
    return content.getvalue()


def _free(name: str, carried: Collection[str]) -> str:
    """The name of a carried column, or another one where that has a meaning for those who load the export."""
    free = name
    while _TAKEN.fullmatch(free) or (free != name and free in carried):
        free += "_column"
    return free


def _local_file(row: Row, endpoint_url: str | None, copies: ExitStack) -> Path:
    """A file on this machine, with the bytes that the ledger knows, or else an error; for a thread.

    `copies` removes the copy at its end, where one is made.
    """
    path = copies.enter_context(local_copy(str(local_path(row["url"]) or row["url"]), endpoint_url))
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{row['url']}: the file of row {row['row_id']} cannot be read: {error.strerror}",
            hint="Was it moved? Its place is in the ledger; relative paths start at the working directory.",
        ) from None
    if digest != row["sha256"]:
        raise InputError(
            f"{row['url']}: the file of row {row['row_id']} was changed since it was stored",
            hint="Put it back from a backup: what is exported is what was bought.",
        )
    return path


_FOLDER = "train"
_PLACE = f"{_FOLDER}/" + pl.col(NAME)
_OURS = rf"^{_FOLDER}/[A-Za-z0-9_-]+-[0-9a-f]{{12}}\.[a-z0-9]+$"


async def _write_image_folder(
    files: pl.DataFrame,
    store: Store,
    present: pl.DataFrame,
    endpoint_url: str | None,
    progress: Callable[[int], None],
) -> Exported:
    """Copies the images that are not there yet, removes those that are no longer exported, describes them.

    `present` has `name` and `size` of each file that is there.
    """

    async def copy(row: Row) -> None:
        with ExitStack() as copies:
            path = await asyncio.to_thread(_local_file, row, endpoint_url, copies)
            await store.write(f"{_FOLDER}/{row[NAME]}", path, row["mime_type"])

    images = files.filter(pl.col("mime_type").str.starts_with("image/"))
    left_out = files.height - images.height
    if images.is_empty():
        raise InputError(
            "there is no image to export, and an image folder has no videos",
            hint="--as webdataset takes them.",
        )
    missing = images.join(
        present, left_on=[_PLACE, "bytes"], right_on=["name", "size"], how="anti", maintain_order="left"
    )
    for chunk in missing.iter_slices(AT_ONCE):
        await asyncio.gather(*map(copy, chunk.iter_rows(named=True)))
        progress(chunk.height)
    ours = present.filter(pl.col("name").str.contains(_OURS))["name"]
    outdated = ours.filter(~ours.is_in(images.select(_PLACE).to_series().implode()))
    for name in outdated:
        await store.remove(name)
    lines = _described(images, pl.col(NAME).alias("file_name"))
    await store.write(f"{_FOLDER}/metadata.jsonl", lines, "application/jsonl")
    return Exported(images.height + 1, missing.height, int(missing["bytes"].sum()), len(outdated), left_out)


INDEX = "shards.json"
_MOST_FILES = 1_000
_MOST_BYTES = 512 << 20
Sample = tuple[Row, bytes]  # a row, and its JSON file


async def _write_shards(
    files: pl.DataFrame,
    store: Store,
    present: pl.DataFrame,
    endpoint_url: str | None,
    progress: Callable[[int], None],
    *,
    batch: str,
) -> Exported:
    """Writes the shards that are not there yet or have changed, and removes those that are no longer needed.

    The parameters are those of `_write_image_folder`, but that `files` is in order of storage, and `progress`
    is called in a thread. The shards are named after the batch.
    """
    old_entries: dict[str, dict[str, Any]] = {}  # of an earlier export; none where its index cannot be read
    with suppress(ValueError, KeyError, TypeError):
        shards = json.loads(await store.read(INDEX) or "{}")["shardlist"]
        old_entries = {entry["url"]: entry for entry in shards if entry["filesize"]}
    ours = present.filter(pl.col("name").str.contains(rf"^{re.escape(batch)}-\d{{6}}\.tar$"))
    sizes = dict(ours.iter_rows())
    index: list[dict[str, Any]] = []
    copied = size = 0
    for number, samples in enumerate(_shards(files)):
        name = f"{batch}-{number:06d}.tar"
        content = b"".join(f"{row[NAME]}\n".encode() + line + b"\n" for row, line in samples)
        members = hashlib.sha256(content).hexdigest()
        entry = {"url": name, "nsamples": len(samples), "members": members}
        old_entry = old_entries.pop(name, {})
        if {**old_entry, **entry} == old_entry and sizes.get(name) == old_entry["filesize"]:
            index.append(old_entry)
            continue
        with temporary_file_errors(), TemporaryDirectory(prefix="callsheet-") as folder:
            tar = Path(folder, name)
            filesize = await asyncio.to_thread(_pack, samples, endpoint_url, progress, tar)
            await store.write(name, tar, "application/x-tar")
        index.append(entry | {"filesize": filesize})
        await _write_index(store, batch, [*index, *old_entries.values()])
        copied, size = copied + len(samples), size + filesize
    await _write_index(store, batch, index)
    needed = [entry["url"] for entry in index]
    outdated = ours.filter(~pl.col("name").is_in(needed))["name"]
    for name in outdated:
        await store.remove(name)
    return Exported(len(index) + 1, copied, size, len(outdated))


def _shards(files: pl.DataFrame) -> Iterator[list[Sample]]:
    """The samples of each shard: a thousand at most, and half a GiB unless one file alone is larger."""
    shard: list[Sample] = []
    size = 0
    for row, line in zip(files.iter_rows(named=True), _described(files).splitlines(), strict=True):
        if shard and (len(shard) == _MOST_FILES or size + row["bytes"] > _MOST_BYTES):
            yield shard
            shard, size = [], 0
        shard.append((row, line))
        size += row["bytes"]
    yield shard


def _pack(
    samples: list[Sample], endpoint_url: str | None, progress: Callable[[int], None], path: Path
) -> int:
    """Writes a shard, and returns its size; the same samples always make the same bytes."""
    with tarfile.open(path, "w") as tar:
        for start in range(0, len(samples), AT_ONCE):
            chunk = samples[start : start + AT_ONCE]
            with ExitStack() as copies, ThreadPoolExecutor(AT_ONCE) as threads:
                local = partial(_local_file, endpoint_url=endpoint_url, copies=copies)
                paths = threads.map(local, [row for row, _ in chunk])
                for (row, line), copy in zip(chunk, paths, strict=True):
                    with copy.open("rb") as file:
                        _add(tar, row[NAME], copy.stat().st_size, file)
                    _add(tar, row[NAME].partition(".")[0] + ".json", len(line), io.BytesIO(line))
            progress(len(chunk))
    return path.stat().st_size


def _add(tar: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    tar.addfile(member, content)


async def _write_index(store: Store, batch: str, shards: list[dict[str, Any]]) -> None:
    index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "name": batch, "shardlist": shards}
    await store.write(INDEX, json.dumps(index, indent=1).encode(), "application/json")


_FORMAT = 1
_UNFINISHED = re.compile(r"(^|/)\.[^/]+\.part$")  # what a killed export leaves in a folder
_PRESENT = {"name": pl.String, "size": pl.Int64}


class Kind(StrEnum):
    """What a batch can be exported as."""

    CSV = "csv"
    IMAGEFOLDER = "imagefolder"
    WEBDATASET = "webdataset"


async def export(
    settings: BatchSettings,
    to: str,
    kind: Kind,
    progress: Callable[[int], None] = lambda _: None,
    *,
    kept: bool = False,
    bom: bool = False,
) -> Exported:
    """Exports a batch. What an earlier export has written there already is not written again.

    Args:
        to: a folder, where `~` is the home folder, or `s3://bucket/prefix`: new, empty, or with an earlier
            export of the batch.
        kind: what it is exported as.
        progress: called with the number of files that were copied in the meantime.
        kept: only the files that somebody has marked as kept.
        bom: CSV files begin with a byte order mark, by which Excel reads them as UTF-8.

    Raises:
        InputError: something else is at the destination, or its home folder is not known; or there is nothing
            to export, or a stored file was removed or changed.
        StorageError: the destination cannot be written.
        LedgerError: the ledger cannot be read, or there is none.
    """
    if not to:
        raise InputError("--to is empty", hint="Name a folder, or s3://bucket/prefix.")
    try:
        to = with_home(to)
    except ValueError as error:
        raise InputError(f"{to}: {error}", hint="Write the whole path.") from None
    path = local_path(to)
    with disk_errors(path or Path(), "--to"):
        is_other = path is not None and path.exists() and not path.is_dir()
    if is_other:
        raise InputError(f"{to}: is a file", hint="Name a folder, or s3://bucket/prefix.")
    check_exists(settings.ledger.url)
    endpoint_url = settings.storage.endpoint_url
    plan = await asyncio.to_thread(last_plan, settings)
    jobs = plan.table if plan else None
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        try:
            store = Store(to, endpoint_url=endpoint_url, put=settings.storage.put)
            present = await _mark(store, to, batch=settings.batch, kind=kind, ledger_id=ledger.id)
            standing = await ledger.read(read_standing, jobs, of_attempts=COSTS, of_files=OF_MANIFEST)
            files = _exported(standing, kind, kept=kept)
            if kind is Kind.CSV:
                return await _write_tables(files, costs(standing), store, bom=bom)
            if files.is_empty() and kept:
                hint = "callsheet review CONFIG marks files."
                raise InputError("no stored file is marked as kept", hint=hint)
            if files.is_empty():
                hint = "callsheet status CONFIG counts its jobs."
                raise InputError("the batch has no stored file to export", hint=hint)
            files = _with_names(files)
            if kind is Kind.IMAGEFOLDER:
                return await _write_image_folder(files, store, present, endpoint_url, progress)
            return await _write_shards(files, store, present, endpoint_url, progress, batch=settings.batch)
        except StorageError as error:  # its hint names the settings of a store's URL
            error.hint = error.hint.replace("storage.url or report.url", "--to")
            raise


async def _mark(store: Store, url: str, *, batch: str, kind: Kind, ledger_id: str) -> pl.DataFrame:
    """Marks an empty place as that of an export, and refuses one that has something else.

    An export of another ledger than that of `ledger_id` is not brought up to date.

    Returns `name` and `size` in bytes of each file that an earlier export has written.
    """
    marker = {"callsheet_export": _FORMAT, "batch": batch, "as": kind.value, "ledger_id": ledger_id}
    content = await store.read(EXPORT_MARK)
    if content is None:
        for name, _ in await store.listing():
            raise InputError(
                f"{url}: has other files already, {name} for instance",
                hint="Name a new or empty folder, or the one of an earlier export of this batch.",
            )
        content = json.dumps(marker).encode()
        await store.write(EXPORT_MARK, content, "application/json")
    old_marker: Any = None  # another file of that name is an export of something unknown
    with suppress(ValueError):
        old_marker = json.loads(content)
    if old_marker != marker:
        old_marker = old_marker if isinstance(old_marker, dict) else {}
        description = f"the batch {old_marker.get('batch')} as {old_marker.get('as')}"
        if old_marker | {"ledger_id": ledger_id} == marker:
            description += " from another ledger"
        raise InputError(f"{url}: has an export of {description}", hint="Name another folder for this one.")
    files = await store.listing()
    for name, _ in files:
        if _UNFINISHED.search(name):
            await store.remove(name)
    return pl.DataFrame(files, schema=_PRESENT, orient="row")


def _exported(standing: Standing, kind: Kind, *, kept: bool) -> pl.DataFrame:
    """The manifest of what is exported. Shards are in order of storage, so that those that are full stay.

    What is kept is exported also where the batch file no longer has its row: a person wants it.
    """
    files = manifest(standing, in_order=kind is not Kind.WEBDATASET)
    if kept:
        return files.filter(pl.col("decision") == MediaDecision.KEPT)
    return files if kind is Kind.CSV else files.filter("current")


async def _write_tables(files: pl.DataFrame, costs: pl.DataFrame, store: Store, *, bom: bool) -> Exported:
    """Writes `manifest.csv` and `costs.csv`, with the columns of the report's Parquet files."""
    size = 0
    for name, table in (("manifest.csv", files), ("costs.csv", costs)):
        content = (codecs.BOM_UTF8 if bom else b"") + await asyncio.to_thread(_as_csv, table)
        await store.write(name, content, "text/csv")
        size += len(content)
    return Exported(files=2, copied=2, bytes=size)


def _as_csv(table: pl.DataFrame) -> bytes:
    """A table as CSV in which no cell is run as a formula; lists and structs become JSON."""
    nested = [column for column in table if column.dtype.is_nested()]
    cells = table.with_columns(map(_as_json, nested)).with_columns(guarded(pl.col(pl.String)))
    cells.columns = pl.select(guarded(pl.lit(pl.Series(table.columns)))).to_series().to_list()
    return cells.write_csv().encode()


def _as_json(column: pl.Series) -> pl.Series:
    cells = (
        cell if cell is None else json.dumps(cell, ensure_ascii=False, default=str)
        for cell in column.to_list()
    )
    return pl.Series(column.name, [*cells], pl.String)
