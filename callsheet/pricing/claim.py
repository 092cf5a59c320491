"""Which ledger is the batch's: another one does not know what is bought, and would buy it again.

It is another one in another folder, on another machine, and where the ledger was lost; a backup may be
older than the last run. So a run's ledger claims the batch before its first purchase, by a file beside the
report and one beside the media, where no other ledger can then claim it. The report says how many jobs were
paid for. And where files have the names that the next ones would get, their ledger may be lost.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import LedgerError, OtherLedger, OtherVersion, StorageConflict, StorageError
from callsheet.ledger import databases, states, writing
from callsheet.ledger.ledger import Ledger
from callsheet.plain_text import counted
from callsheet.records import ModelType
from callsheet.storage.names import folded
from callsheet.storage.names import name as name_in_store
from callsheet.storage.store import Store

_REPORT = "report.json"
_FIRST = 20  # names that are looked up
_WAYS_ON = (
    "What this ledger does not know would be bought again. Use the batch's own ledger (ledger.url, the "
    "folder to start in), or restore its newest copy. If this one is to take its place: callsheet run CONFIG "
    "--new-ledger (--set ledger.new=true). Another batch needs another name."
)


async def check_ledger(settings: BatchSettings) -> None:
    """Makes sure that the ledger is the batch's, and knows all that the batch's report has, unless
    `ledger.new` says otherwise.

    Raises:
        OtherLedger: it is another one, or an older copy.
        LedgerError: the ledger cannot be opened.
    """
    if settings.ledger.new:
        return
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        try:
            wrong = await _wrong(ledger, settings)
        except StorageError:  # who may only write there buys all the same; the quote says it
            wrong = ""
    if wrong:
        raise OtherLedger(wrong, hint=_WAYS_ON)


async def warning_of_ledger(ledger: Ledger, settings: BatchSettings) -> str:
    """What a quote says where the ledger is not the batch's, or does not know all; otherwise empty."""
    try:
        return await _wrong(ledger, settings)
    except StorageError as error:
        return f"the last report cannot be read, so it may be of another ledger: {error}"


async def claim(ledger: Ledger, settings: BatchSettings, store: Store) -> None:
    """Claims the batch for the ledger, beside the report and in the `store` of the media: a run is about to
    buy. Of two ledgers that do so at the same moment, one gets it; with `ledger.new` it takes it over.

    Raises:
        OtherLedger: another ledger has claimed it.
        StorageError: it cannot be claimed.
    """
    name, own = _claim_of(ledger)
    for place in (Store.of(settings.report.url, settings.storage), store):
        known = None
        with suppress(StorageError):  # who may only write there
            known = await place.read(name)
        if known == own:
            continue
        try:
            if settings.ledger.new:
                await place.write(name, own, "application/json")
            else:
                await place.add(name, own, "application/json")
        except StorageConflict:
            raise OtherLedger(_claimed(place.url_of(name), ledger), hint=_WAYS_ON) from None


async def _wrong(ledger: Ledger, settings: BatchSettings) -> str:
    """Why the ledger may not know what the batch has bought, in words; empty where it knows all.

    Raises:
        StorageError: report or claim cannot be read.
    """
    if elsewhere := await _begun_elsewhere(settings):
        return elsewhere
    reports = Store.of(settings.report.url, settings.storage)
    # Before the ledger, which only gets ahead of it.
    if older := await _of_report(ledger, reports.url_of(_REPORT), await reports.read(_REPORT)):
        return older
    name, own = _claim_of(ledger)
    for place in (reports, Store.of(settings.storage.url, settings.storage)):
        if (await place.read(name) or own) != own:
            return _claimed(place.url_of(name), ledger)
    return ""


async def _begun_elsewhere(settings: BatchSettings) -> str:
    """Why a ledger that is about to begin may not be the batch's: its path begins at the working directory,
    and the config lies elsewhere, or a folder above the config has a ledger that knows the batch. Otherwise
    empty, and where the ledger is there.
    """
    path, config = databases.file_of(settings.ledger.url), settings.file
    if path is None or path.is_absolute() or config is None or databases.exists(settings.ledger.url):
        return ""
    here = Path.cwd()
    begins = f"a new ledger would begin at {here / path}, and"
    found = next((each / path for each in config.parents if _is_file(each / path)), None)
    if not _lies_in(here, config):
        there = f"the ledger {found} is there" if found else f"there is no ledger at {config.parent / path}"
        return f"{begins} the config lies in another folder, {config.parent}: {there}"
    if found and await _knows_batch(found, settings.batch):
        return f"{begins} the ledger {found} has jobs of the batch {settings.batch}"
    return ""


async def _knows_batch(ledger: Path, batch: str) -> bool:
    try:
        async with await Ledger.open(f"sqlite:///{ledger}", batch, looks=True) as other:
            return bool((await other.read(writing.of_batch)).states)
    except OtherVersion:  # it may
        raise
    except LedgerError:
        return False


def _lies_in(folder: Path, path: Path) -> bool:
    """Whether a path is inside a folder, by its names or by where links lead."""
    return any(each.is_relative_to(folder) for each in (Path(os.path.normpath(path)), path.resolve()))


def _is_file(path: Path) -> bool:
    with suppress(OSError):  # of folders that this user may not look into
        return path.is_file()
    return False


async def _of_report(ledger: Ledger, url: str, content: bytes | None) -> str:
    """What the batch's report has that the ledger does not know; empty where it knows all."""
    report: dict[str, Any] = {}
    with suppress(ValueError, TypeError):  # another file has its name
        report = dict(json.loads(content or b"{}"))
    paid = report.get("paid_jobs") if report.get("batch") == ledger.batch else None
    if not isinstance(paid, int) or not paid:
        return ""
    known = (await ledger.read(writing.of_batch)).paid_jobs
    says = f"it was written at {report.get('written_at')} and has {counted(paid, 'job')} paid for"
    says += f", {report.get('stored')} of the batch file stored"
    if report.get("ledger_id") != ledger.id:
        return f"{url} is of another ledger: {says}"
    if paid > known:
        return f"{url} is newer than this ledger: {says}; this ledger knows of {known}"
    return ""


def _claim_of(ledger: Ledger) -> tuple[str, bytes]:
    """The name of the batch's claim, and its content for this ledger, which is always the same."""
    content = {"batch": ledger.batch, "ledger_id": ledger.id}
    return f".callsheet-ledger-{ledger.batch}", (json.dumps(content) + "\n").encode()


def _claimed(url: str, ledger: Ledger) -> str:
    return f"another ledger buys the batch {ledger.batch}: {url} is not of this one, {ledger.id}"


# ---- names in storage


async def taken_names(jobs: pl.DataFrame, settings: Settings, ledger: Ledger) -> str:
    """How many of the first names to buy are those of files that the ledger does not know; empty if none, if
    names have the generation's id, and if the storage does not say what it has.
    """
    if "{generation_id" in settings.storage.key:
        return ""
    url = settings.storage.url
    wanted = [
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
        there = await asyncio.gather(*map(store.exists, wanted))
    except StorageError:  # a key that may not list, for instance: the probe before the buying says more
        return ""
    found = [name for name, is_there in zip(wanted, there, strict=True) if is_there]
    # Only now: of a run beside this one, a name is in the ledger before its file is in the storage.
    own = await ledger.read(lambda connection, _: states.taken_names(connection, url, found))
    taken = [name for name in found if folded(name) not in own]
    if not taken:
        return ""
    return (
        f"{len(taken)} of the first {len(wanted)} names in {url} are taken: {taken[0]}, for instance; "
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
