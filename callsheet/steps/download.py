"""Download: each file that is paid for is fetched before its URL expires, verified, and stored.

A file is stored only whole: its length, its first bytes and its end are checked, and its sha256 is kept. Its
type is the one that its bytes have, whatever was announced. The files whose URLs expire first go first. What
cannot be stored stays `generated` in the ledger, for the next run.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import anyio

from callsheet.channels import Waiting
from callsheet.errors import (
    KeyRefused,
    MediaError,
    Refusal,
    ServiceError,
    StorageConflict,
    StorageDown,
    StorageError,
)
from callsheet.ledger import queries, states
from callsheet.ledger.states import FileEnd, SameGeneration
from callsheet.media_types import extension, with_extension
from callsheet.places import stop_for_storage
from callsheet.records import Attempt, File, Generation, ModelType, State
from callsheet.report.sidecars import write_sidecar
from callsheet.service import verdicts
from callsheet.service.verdicts import Verdict
from callsheet.session import Run
from callsheet.storage.names import carried_columns, ends_with_type
from callsheet.storage.names import name as name_in_store
from callsheet.storage.spool import Spooled
from callsheet.watch import WATCHER

_GONE_IMAGE = 2  # answers after `deletes_at` that there is no such file: one alone loses nothing
_GONE_VIDEO = 3  # the first of them is the reason to ask for a fresh URL
STORE_TRIES = 3  # a store that refuses this often is left for the next run


async def record_generation(
    run: Run, attempt: Attempt, generation: Generation, carried: Mapping[str, Any] | None = None
) -> bool:
    """Writes a paid generation into the ledger, and gives its files, each under a name in storage, on.

    `carried` are the job's carried columns, which a name may need. Without them the ledger is read, and
    where that fails, the answer is lost: so only a video is without, which can be asked for again.

    Returns:
        Whether it is paid for; if not, its id is another job's, and this one is in doubt.
    """
    key = run.settings.storage.key
    if carried is None and carried_columns(key):
        keys = [attempt.job_key]
        asked = await run.ledger.read(lambda connection, _: queries.asked_for(connection, keys))
        _, carried = asked[attempt.job_key]
    names = [
        name_in_store(
            key,
            carried or {},
            batch=run.settings.batch,
            row_id=attempt.row_id,
            sample=attempt.sample,
            index=index,
            ext=extension(item.mime_type),
            job_key=attempt.job_key,
            model=attempt.model,
            generation_id=generation.id,
        )
        for index, item in enumerate(generation.media)
    ]
    files = await run.ledger.generated(attempt, generation, names, run.settings.storage.url)
    if isinstance(files, SameGeneration):
        run.count_doubt(attempt, files.what)
        return False
    cost, _ = generation.usage.cost(attempt.quoted)
    run.tell(attempt, State.GENERATED, generation.id, cost)
    for file in files:
        run.files.put(file)
    return True


async def download(run: Run) -> None:
    """Downloads the files of earlier runs and of this one, the most urgent first."""
    refused = 0  # files in a row that storage did not take
    not_there: StorageDown | None = None

    async def worker() -> None:
        nonlocal refused
        while True:
            waiting = await run.downloads.next()
            began = time.monotonic()
            spooled = await _fetch(run, waiting)
            if isinstance(spooled, float):
                run.downloads.again(waiting, spooled)
                continue
            if spooled is not None and not_there and not refused:
                refused = run.downloads.side_by_side
                _refused(run, waiting.file, not_there)
            if spooled is not None and refused >= run.downloads.side_by_side:
                try:  # storage takes none now: it is kept for the next run
                    await asyncio.to_thread(spooled.complete)
                except StorageError as error:
                    _refused(run, waiting.file, error)
            elif spooled is not None:
                refused = 0 if await _store(run, waiting.file, spooled) else refused + 1
            run.downloads.done(time.monotonic() - began)

    try:
        if left := await asyncio.to_thread(run.spool.find_left):
            # What a killed run had already stored, or lost, and not yet removed.
            keys = [name.partition("-")[0] for name in left]  # see _spool_name
            ended = await run.ledger.read(lambda connection, _: queries.ended_files(connection, keys))
            await asyncio.to_thread(run.spool.remove, left & {_spool_name(file) for file in ended})
        if not run.has_places:  # otherwise it has looked before it has taken the place
            not_there = await stop_for_storage(run.ledger, run.settings)
        with run.unless_ended():  # what is not stored then is left for the next run
            async with anyio.create_task_group() as workers:
                for _ in range(run.downloads.side_by_side):
                    workers.start_soon(worker)
                async for file in run.files:
                    run.downloads.add(file)
                await run.downloads.all_done()
                workers.cancel_scope.cancel()
    finally:
        run.collected.set()


async def _fetch(run: Run, waiting: Waiting) -> Spooled | float | None:
    """Tries once to download and verify a file.

    Returns:
        The verified file; seconds after which to try again; None when it is lost, or left for the next run.
    """
    file, name = waiting.file, _spool_name(waiting.file)
    if spooled := await run.spool.left(name):
        return spooled  # an earlier run had it, and storage did not take it
    try:
        async with run.client.download(file.media.url) as response:
            patience = run.settings.poll.timeout
            spooled = await run.spool.receive(response, file.media.mime_type, name, patience=patience)
    except (ServiceError, MediaError) as error:
        return await _failed(run, waiting, error)
    except StorageError as error:  # the spool's disk
        _refused(run, file, error)
        return None
    run.downloads.succeeded = time.monotonic()
    return spooled


async def _failed(run: Run, waiting: Waiting, error: ServiceError | MediaError) -> float | None:
    """Carries out the verdict on a failed download: as `_fetch` returns it."""
    file = waiting.file
    waiting.tries += 1
    is_video = file.attempt.type is ModelType.VIDEO
    verdict = verdicts.download(error, file.attempt.type)
    late = verdicts.is_late(error, file.media.deletes_at)
    waiting.gone += verdict is Verdict.GONE and late
    if verdict is Verdict.GONE and late and waiting.gone >= (_GONE_VIDEO if is_video else _GONE_IMAGE):
        reason = f"the file was deleted on {file.media.deletes_at}: {error}"
        if await run.ledger.transition(states.lost, FileEnd(file, lost=reason)) is State.LOST:
            run.tell(file.attempt, State.LOST, reason)
            run.breaker.of(file.attempt.model).wrong("loss", f"row {file.attempt.row_id}: {reason}")
        return None
    renews = is_video and (late or verdict in (Verdict.GONE, Verdict.RENEW))
    if renews and (renewed := await _renew(run, file)):
        changed = renewed.media.url != file.media.url
        waiting.file = renewed
        if waiting.tries == 1 and changed:
            return 0.0
    elif renews:
        waiting.gone = 0  # the service did not say whether there is a fresh URL
    patience = run.settings.poll.timeout
    no_key = renews and isinstance(run.stop, KeyRefused)  # then no fresh URL is to be had
    out_of_patience = waiting.tries > 1 and time.monotonic() > waiting.began + patience
    if run.interrupted or no_key or out_of_patience:
        WATCHER.get().note(f"row {file.attempt.row_id}: not downloaded yet, left for the next run: {error}")
        if run.downloads.succeeded < waiting.began:  # nothing could be downloaded in all that time
            run.halt(error)
        return None
    retry_after = (error.retry_after if isinstance(error, Refusal) else None) or 0.0
    left = waiting.began + patience - time.monotonic()  # the end of its patience is worth a try
    return max(min(retry_after, left), run.client.backoff(waiting.tries))


async def _renew(run: Run, file: File) -> File | None:
    """Polls a video again for a fresh URL: the file as it is now; None when the service does not say."""
    assert file.attempt.generation_id is not None  # noqa: S101 - what has files has an id
    try:
        answer = await run.client.video(file.attempt.generation_id)
    except ServiceError as error:
        verdict = verdicts.poll(error)
        if verdict is Verdict.STOP_KEY:
            run.halt(error)
        return file if verdict is Verdict.NOT_FOUND else None
    if not isinstance(answer, Generation) or file.index >= len(answer.media):
        return file
    fresh = answer.media[file.index]
    await run.ledger.transition(states.refreshed, file, fresh.url, fresh.deletes_at)
    return replace(file, media=fresh)


async def _store(run: Run, file: File, spooled: Spooled) -> bool:
    """Puts a verified file into storage under a name that no other file has; False when it is not taken.

    The type is the one that its bytes have, and the name ends so where `storage.key` does. It is stored when
    its sidecar is there too: what comes between them is done again by the next run.
    """
    mime_type = spooled.mime_type or file.media.mime_type
    name = with_extension(file.name, mime_type) if ends_with_type(run.settings.storage.key) else file.name
    if name != file.name:
        name = await run.ledger.transition(states.renamed, file, name)
    file = replace(file, name=name, media=file.media.model_copy(update={"mime_type": mime_type}))
    tries = 0
    while True:
        try:
            stored = await run.store.put(spooled, file.name, file.media.mime_type)
            sidecar = run.settings.storage.sidecar
            if sidecar and not await write_sidecar(run.store, run.ledger, file, stored):
                problem = f"its sidecar is not written, because something else is named {stored.url}.json"
                WATCHER.get().note(f"row {file.attempt.row_id}: {problem}")
        except StorageConflict as error:
            own_name = _own_name(file)
            if own_name == file.name:  # a server says so of every name
                _refused(run, file, error)
                return False
            file = replace(file, name=await run.ledger.transition(states.renamed, file, own_name))
        except StorageError as error:
            tries += 1
            if tries >= STORE_TRIES or not spooled.sha256:  # without it, it is not even in the spool
                _refused(run, file, error)
                return False
            await anyio.sleep(run.client.backoff(tries))
        else:
            await run.ledger.transition(states.stored, FileEnd(file, stored))
            run.tell(file.attempt, State.STORED, stored.url)
            run.spool.forget(spooled)
            run.breaker.of(file.attempt.model).stored()
            return True


def _refused(run: Run, file: File, error: StorageError | StorageDown) -> None:
    if not isinstance(run.stop, StorageDown):  # it is said once, not for each file on its way
        WATCHER.get().note(f"row {file.attempt.row_id}: {error}")
    run.halt(error)


def _own_name(file: File) -> str:
    """The name in storage for a file whose name is taken there: no file of another purchase can have it."""
    path, end = PurePosixPath(file.name), f"-{_purchase(file)}"
    return file.name if path.stem.endswith(end) else str(path.with_name(f"{path.stem}{end}{path.suffix}"))


def _spool_name(file: File) -> str:
    """A file's name in the spool: of this purchase alone, for another ledger may have bought the same job."""
    return f"{file.attempt.job_key}-{_purchase(file)}"


def _purchase(file: File) -> str:
    """What tells a file from those of other purchases; a hash, because the service's id is any text."""
    generation = hashlib.sha256((file.attempt.generation_id or "").encode()).hexdigest()[:16]
    return f"{generation}-{file.index}"
