"""Whose the places of a batch are: another ledger does not know what is bought, and would buy it again.

It is another one in another folder, on another machine, and where the ledger was lost; a backup may be
older than the last run. So a run claims both places before its first purchase, by a file in each, which names
its batch and its ledger: a `report.url` has one batch, and a `storage.url` has each batch's name once. The
report names both as well, and says how many jobs were paid for. And where files have the names that the next
ones would get, their ledger may be lost.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import polars as pl
from pydantic import BaseModel, ValidationError

from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import (
    LedgerError,
    LedgerMoved,
    OtherLedger,
    OtherVersion,
    StorageConflict,
    StorageError,
)
from callsheet.ledger import databases, states, sums
from callsheet.ledger.ledger import Ledger
from callsheet.plain_text import counted
from callsheet.records import ModelType
from callsheet.storage.names import folded
from callsheet.storage.names import name as name_in_store
from callsheet.storage.store import Store

_CLAIM = ".callsheet-ledger"
_REPORT = "report.json"
_FIRST = 20  # names that are looked up
_WAYS_ON = (
    "What this ledger does not know would be bought again. Use the batch's own ledger (ledger.url, the "
    "folder to start in), or restore its newest copy. If this one is to take its place: callsheet run CONFIG "
    "--new-ledger (--set ledger.new=true). Another batch needs another name."
)
_OWN_PLACE = "Give this batch a report.url of its own, such as out/{batch}/report, or another name."


class _Owner(BaseModel):
    """Whose a place is, as a file in it says: a claim, or the last report, which has the other fields too."""

    batch: str
    ledger_id: str
    paid_jobs: int | None = None
    stored: int | None = None
    written_at: str = ""

    def line(self) -> str:
        """What the file says, in a line."""
        if self.paid_jobs is None:
            return f"it buys the batch {self.batch}"
        paid = f"it was written at {self.written_at} and has {counted(self.paid_jobs, 'job')} paid for"
        return f"{paid}, {self.stored} of the batch file stored"


async def check_report(settings: BatchSettings) -> None:
    """Makes sure that `report.url` is not another batch's, whatever `ledger.new` says.

    Raises:
        OtherLedger: it is.
    """
    with suppress(StorageError):  # who may only write there goes on all the same
        await _owners(settings, _files(settings)[:2])


async def check_ledger(settings: BatchSettings) -> None:
    """Makes sure that `report.url` is the batch's; and, unless `ledger.new` says otherwise, that the ledger
    is the batch's too, and knows all that the report has.

    Raises:
        OtherLedger: the report is another batch's, or the ledger another one, or an older copy.
        LedgerError: the ledger cannot be opened.
    """
    await check_report(settings)
    if not settings.ledger.new:
        async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
            with suppress(StorageError):  # who may only write there buys all the same; the quote says it
                await _check(ledger, settings)


async def warning_of_ledger(ledger: Ledger, settings: BatchSettings) -> str:
    """What a quote says where the ledger is not the batch's, or does not know all; otherwise empty."""
    try:
        await _check(ledger, settings)
    except OtherLedger as error:
        return str(error)
    except StorageError as error:
        return f"the last report cannot be read, so it may be of another ledger: {error}"
    return ""


async def claim(ledger: Ledger, settings: BatchSettings) -> None:
    """Claims `report.url`, and the batch's name in `storage.url`: a run is about to buy. Of two that do so at
    the same moment, one gets it; with `ledger.new` it is taken over from another ledger.

    Raises:
        OtherLedger: another ledger has claimed the batch, or another batch the report.
        StorageError: it cannot be claimed.
    """
    content = (json.dumps({"batch": ledger.batch, "ledger_id": ledger.id}) + "\n").encode()
    for place, name in _files(settings)[1:]:
        existing = None
        with suppress(StorageError):  # who may only write there
            existing = await place.read(name)
        if existing == content:
            continue
        try:
            if settings.ledger.new:
                await place.write(name, content, "application/json")
            else:
                await place.add(name, content, "application/json")
        except StorageConflict:
            await check_report(settings)
            raise OtherLedger(f"{place.url_of(name)} is of another ledger", hint=_WAYS_ON) from None


async def _check(ledger: Ledger, settings: BatchSettings) -> None:
    """Makes sure that the ledger knows all that the batch has bought.

    Raises:
        OtherLedger: it may not.
        StorageError: report or claim cannot be read.
    """
    reason = await _begun_elsewhere(settings)
    owners = [] if reason else await _owners(settings, _files(settings))
    paid = (await ledger.read(sums.of_batch)).paid_jobs  # after the report, of which it only gets ahead
    for url, owner in owners:
        if owner.ledger_id != ledger.id and owner.paid_jobs != 0:
            reason = reason or f"{url} is of another ledger: {owner.line()}"
        elif (owner.paid_jobs or 0) > paid:
            reason = reason or f"{url} is newer than this ledger: {owner.line()}; this ledger knows of {paid}"
    if reason:
        raise OtherLedger(reason, hint=_WAYS_ON)


def _files(settings: BatchSettings) -> list[tuple[Store, str]]:
    """The files that say whose the places are: the report, then the two claims."""
    reports, media = (Store.of(url, settings.storage) for url in (settings.report.url, settings.storage.url))
    return [(reports, _REPORT), (reports, _CLAIM), (media, f"{_CLAIM}-{settings.batch}")]


async def _owners(settings: BatchSettings, files: Iterable[tuple[Store, str]]) -> list[tuple[str, _Owner]]:
    """What these files say, by their URLs; without those that are not there, or are something else.

    Raises:
        OtherLedger: one is another batch's.
        StorageError: one cannot be read.
    """
    owners: list[tuple[str, _Owner]] = []
    for place, name in files:
        with suppress(ValidationError):
            owners.append((place.url_of(name), _Owner.model_validate_json(await place.read(name) or b"")))
    for url, owner in owners:
        if owner.batch != settings.batch:
            problem = f"{url} is of the batch {owner.batch}, and this is the batch {settings.batch}"
            raise OtherLedger(problem, hint=_OWN_PLACE)
    return owners


async def _begun_elsewhere(settings: BatchSettings) -> str:
    """Why a ledger that is about to begin may not be the batch's: its path begins at the working directory,
    and the config lies elsewhere, or a folder above the config has a ledger that knows the batch. Otherwise
    empty, and where the ledger is there.
    """
    path, config = databases.file_of(settings.ledger.url), settings.file
    if path is None or path.is_absolute() or config is None or databases.exists(settings.ledger.url):
        return ""
    working_folder = Path.cwd()
    begins = f"a new ledger would begin at {working_folder / path}, and"
    ledger = next((folder / path for folder in config.parents if _is_file(folder / path)), None)
    if not _lies_in(working_folder, config):
        place = f"the ledger {ledger} is there" if ledger else f"there is no ledger at {config.parent / path}"
        return f"{begins} the config lies in another folder, {config.parent}: {place}"
    if ledger and await _knows_batch(ledger, settings.batch):
        return f"{begins} the ledger {ledger} has jobs of the batch {settings.batch}"
    return ""


async def _knows_batch(ledger: Path, batch: str) -> bool:
    try:
        async with await Ledger.open(f"sqlite:///{ledger}", batch, looks=True) as opened:
            return bool((await opened.read(sums.of_batch)).states)
    except (LedgerMoved, OtherVersion):  # it may
        raise
    except LedgerError:
        return False


def _lies_in(folder: Path, path: Path) -> bool:
    """Whether a path is inside a folder, by its names or by where links lead."""
    return any(spelling.is_relative_to(folder) for spelling in (Path(os.path.normpath(path)), path.resolve()))


def _is_file(path: Path) -> bool:
    with suppress(OSError):  # of folders that this user may not look into
        return path.is_file()
    return False


# ---- names in storage


async def taken_names(jobs: pl.DataFrame, settings: Settings, ledger: Ledger) -> str:
    """How many of the first names to buy are those of files that the ledger does not know; empty if none, if
    names have the generation's id, and if the storage does not say what it has.
    """
    if "{generation_id" in settings.storage.key:
        return ""
    url = settings.storage.url
    names = [
        name_in_store(
            settings.storage.key,
            job["carried"],
            batch=settings.batch,
            row_id=job["row_id"],
            sample=job["sample"],
            index=0,
            ext=_extension(job["type"], json.loads(job["request"])),
            job_key=job["key"],
            model=job["model"],
        )
        for job in jobs.filter("to_buy").head(_FIRST).iter_rows(named=True)
    ]
    store = Store.of(url, settings.storage)
    try:
        are_there = await asyncio.gather(*map(store.exists, names))
    except StorageError:  # a key that may not list, for instance: the probe before the buying says more
        return ""
    existing = [name for name, is_there in zip(names, are_there, strict=True) if is_there]
    # Only now: of a run beside this one, a name is in the ledger before its file is in the storage.
    ledger_names = await ledger.read(lambda connection, _: states.taken_names(connection, url, existing))
    unknown = [name for name in existing if folded(name) not in ledger_names]
    if not unknown:
        return ""
    return (
        f"{len(unknown)} of the first {len(names)} names in {url} are taken: {unknown[0]}, for instance; "
        "what is there stays, and the new files get other names"
    )


def _extension(model_type: str, request: dict[str, object]) -> str:
    """INTERFACE 2.3: an image's format is `jpeg` unless `output_format` says otherwise."""
    return "mp4" if model_type == ModelType.VIDEO else str(request.get("output_format", "jpeg"))


def check_names(taken: str, settings: Settings) -> None:
    """Where no person is asked whether to buy, nobody has seen that names are taken: nothing is bought.

    `taken` is what `taken_names` has found.

    Raises:
        OtherLedger: some are, and `ledger.new` does not say otherwise.
    """
    if taken and not settings.ledger.new:
        raise OtherLedger(
            f"{taken}. The ledger does not know these files: another ledger may have bought them",
            hint=_WAYS_ON,
        )
