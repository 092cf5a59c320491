"""Whose the places of a batch are: another ledger does not know what is bought, and would buy it again.

It is another one in another folder, on another machine, and where the ledger was lost; a backup may be
older than the last run. So a run takes both places before its first purchase, by a file in each, which names
its batch and its ledger: a `report.url` has one batch, and a `storage.url` has each batch's name once. The
report names both as well, and says how many jobs were paid for. A command looks at these once, where it has
opened its ledger.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from callsheet.config.settings import BatchSettings
from callsheet.errors import OtherLedger, StorageConflict, StorageDown, StorageError
from callsheet.ledger import databases, queries, sums
from callsheet.ledger.ledger import Ledger
from callsheet.plain_text import counted
from callsheet.storage.names import OWNER_FILE
from callsheet.storage.spool import work_folder
from callsheet.storage.store import Store

_REPORT = "report.json"
_WAYS_ON = (
    "What this ledger does not know would be bought again. Use the batch's own ledger (ledger.url, the "
    "folder to start in), or restore its newest copy. If this one is to take its place: callsheet run CONFIG "
    "--new-ledger (--set ledger.new=true). Another batch needs another name."
)
_OWN_PLACE = "Give this batch a report.url of its own, such as out/{batch}/report, or another name."


class _Owner(BaseModel):
    """Whose a place is, as its owner file says, or the last report, which has the other fields too."""

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


async def check(ledger: Ledger | None, settings: BatchSettings) -> str:
    """Makes sure that the places are the batch's; and, unless `ledger.new` says otherwise, that the ledger is
    the batch's too, and knows all that the report has. `ledger`: None where it is not there yet.

    Returns:
        What a person should know besides, as `warning_of`.

    Raises:
        OtherLedger: the report is another batch's, or the ledger another one, or an older copy.
        LedgerError: the ledger cannot be read.
    """
    reason, unreadable = await _doubts_of(ledger, settings)
    if reason and not settings.ledger.new:
        raise OtherLedger(reason, hint=_WAYS_ON)
    return reason or unreadable


async def warning_of(ledger: Ledger, settings: BatchSettings) -> str:
    """What a quote says where the ledger is not the batch's, or does not know all; otherwise empty.

    Raises:
        OtherLedger: the report is another batch's.
        LedgerError: the ledger cannot be read.
    """
    reason, unreadable = await _doubts_of(ledger, settings)
    return reason or unreadable


async def check_report(settings: BatchSettings) -> None:
    """Makes sure that `report.url` is not another batch's, whatever `ledger.new` says.

    Raises:
        OtherLedger: it is.
    """
    with suppress(StorageError):  # who may only write there goes on all the same
        await _owners(settings)


async def take(ledger: Ledger, settings: BatchSettings) -> None:
    """Takes `report.url`, and the batch's name in `storage.url`: a run is about to buy. Of two that do so at
    the same moment, one gets it; with `ledger.new` it is taken over from another ledger.

    Raises:
        OtherLedger: another ledger has taken the batch, or another batch the report.
        StorageError: it cannot be taken.
    """
    content = (json.dumps({"batch": ledger.batch, "ledger_id": ledger.id}) + "\n").encode()
    for place, name in _files(settings)[1:]:
        take_name = place.write if settings.ledger.new else place.add
        try:  # where the batch has it already, the same bytes are there
            await take_name(name, content, "application/json")
        except StorageConflict:
            await check_report(settings)
            raise OtherLedger(f"{place.url_of(name)} is of another ledger", hint=_WAYS_ON) from None


async def stop_for_storage(ledger: Ledger, settings: BatchSettings) -> StorageDown | None:
    """Why nothing may be bought or stored: nothing of what the ledger has stored in `storage.url` is there,
    as where a disk is not mounted. None where it is, or the ledger has stored nothing, or `storage.new`.

    The last file alone tells the place, too: an owner file is lost where hidden files are not copied, or
    where a bucket removes what is old.
    """
    newest = await ledger.read(queries.newest_file, settings.storage.url)
    if newest is None or settings.storage.new:
        return None
    batch, name = newest
    media = Store.of(settings.storage.url, settings.storage)
    with suppress(StorageError):  # who may only write there
        for file in (f"{OWNER_FILE}-{settings.batch}", f"{OWNER_FILE}-{batch}", name):
            if await media.exists(file):
                return None
        return StorageDown(
            f"{settings.storage.url} is not the place in which the ledger has stored: "
            f"the file {OWNER_FILE}-{batch} and the last file, {name}, are gone",
            hint="If its disk is not mounted, mount it; then run the same command again. If the files were "
            "moved away: callsheet run CONFIG --new-place (--set storage.new=true). Files that are paid for "
            f"wait in {work_folder(settings, make=False) / 'spool'}.",
        )
    return None


async def _doubts_of(ledger: Ledger | None, settings: BatchSettings) -> tuple[str, str]:
    """Why the ledger may not know all that the batch has bought; and why nobody can tell. Empty: it does.

    Raises:
        OtherLedger: the report is another batch's.
    """
    reason = _begun_elsewhere(settings)
    try:
        owners = await _owners(settings)
    except StorageError as error:  # who may only write there buys all the same
        return reason, f"the last report cannot be read, so it may be of another ledger: {error}"
    # After the report, of which it only gets ahead.
    ledger_id, paid = (ledger.id, await ledger.read(sums.ever_paid_jobs)) if ledger else ("", 0)
    for url, owner in owners:
        if owner.ledger_id != ledger_id and owner.paid_jobs != 0:
            reason = reason or f"{url} is of another ledger: {owner.line()}"
        elif (owner.paid_jobs or 0) > paid:
            reason = reason or f"{url} is newer than this ledger: {owner.line()}; this ledger knows of {paid}"
    return reason, ""


def _files(settings: BatchSettings) -> list[tuple[Store, str]]:
    """The files that say whose the places are: the report, then the two owner files."""
    reports, media = (Store.of(url, settings.storage) for url in (settings.report.url, settings.storage.url))
    return [(reports, _REPORT), (reports, OWNER_FILE), (media, f"{OWNER_FILE}-{settings.batch}")]


async def _owners(settings: BatchSettings) -> list[tuple[str, _Owner]]:
    """What these files say, by their URLs; without those that are not there, or are something else.

    Raises:
        OtherLedger: one is another batch's.
        StorageError: one cannot be read.
    """
    owners: list[tuple[str, _Owner]] = []
    for place, name in _files(settings):
        with suppress(ValidationError):
            owner = _Owner.model_validate_json(await place.read(name) or b"")
            if owner.batch != settings.batch:
                problem = f"{place.url_of(name)} is of the batch {owner.batch}, and this is the batch "
                raise OtherLedger(problem + settings.batch, hint=_OWN_PLACE)
            owners.append((place.url_of(name), owner))
    return owners


def _begun_elsewhere(settings: BatchSettings) -> str:
    """Why a ledger that is about to begin may not be the batch's: its path begins at the working directory,
    and the config lies elsewhere, or a folder above the config is taken for the batch. Otherwise empty, and
    where the ledger is there.
    """
    path, config, here = databases.file_of(settings.ledger.url), settings.file, Path.cwd()
    if path is None or path.is_absolute() or config is None or databases.exists(settings.ledger.url):
        return ""
    begins = f"a new ledger would begin at {here / path}, and"
    if not _lies_in(here, config):
        return f"{begins} the config lies in another folder, {config.parent}"
    for folder in config.parents:
        owner_file = folder / settings.report.url / OWNER_FILE
        with suppress(OSError, ValidationError):  # none is there, or it may not be read
            owner = _Owner.model_validate_json(owner_file.read_bytes())
            if folder != here and owner.batch == settings.batch:
                return f"{begins} {owner_file} is of another one: {owner.line()}"
    return ""


def _lies_in(folder: Path, path: Path) -> bool:
    """Whether a path is inside a folder, by its names or by where links lead."""
    return any(spelling.is_relative_to(folder) for spelling in (Path(os.path.normpath(path)), path.resolve()))
