"""Download: each file that is paid for is fetched before its URL expires, verified, and stored.

A file is stored only whole: its length, type and first bytes are checked and its sha256 is kept. The files
whose URLs expire first go first. What cannot be stored stays `generated` in the ledger, for the next run.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from dataclasses import replace
from datetime import UTC, datetime

import anyio

from callsheet import failpoints
from callsheet.errors import MediaError, ServiceError, StorageConflict, StorageError
from callsheet.ledger import queries
from callsheet.ledger.names import other_name
from callsheet.records import File, Generation, StoredFile
from callsheet.service import verdicts
from callsheet.service.verdicts import Verdict
from callsheet.session import Run
from callsheet.storage import spool as media
from callsheet.storage.spool import Spooled
from callsheet.watch import WATCHER
from tasks.step import step

SIDE_BY_SIDE = 16  # downloads at once: enough to fill a line, few enough for a heap by deadline to matter
STORE_TRIES = 3  # a store that refuses this often is left for the next run


@step
async def download(run: Run) -> None:
    """Downloads the files of earlier runs and of this one, the most urgent first."""
    order = itertools.count()
    free = anyio.Semaphore(SIDE_BY_SIDE)
    refused = 0  # files in a row that storage did not take

    async def most_urgent() -> None:
        nonlocal refused
        async with free:
            _, _, file = heapq.heappop(run.urgent)
            began = run.moved = time.monotonic()
            fetched = await _fetch(run, file)
            if fetched is not None and refused < SIDE_BY_SIDE:  # else it waits in the spool
                failpoints.passed("after spool")
                refused = 0 if await _store(run, *fetched) else refused + 1
            run.moved = time.monotonic()
            took = (run.moved - began) / SIDE_BY_SIDE
            # The first one as it is, then a moving average.
            run.seconds_per_file += (took - run.seconds_per_file) / (10 if run.seconds_per_file else 1)

    try:
        await _sweep(run)
        async with anyio.create_task_group() as fetching:

            def add(file: File) -> None:
                heapq.heappush(run.urgent, (file.media.deletes_at, next(order), file))
                fetching.start_soon(most_urgent)

            for file in run.adopted_files:
                add(file)
            async for file in run.files.items:
                add(file)
    finally:
        run.collected.set()


async def _sweep(run: Run) -> None:
    """Clears the spool of what a killed run had already stored, or lost, and not yet removed."""
    left = await asyncio.to_thread(lambda: list(run.spool.glob("*")))
    ended = {_spool_name(file) for file in await run.ledger.read(queries.ended)} if left else ()
    for path in left:
        if path.name.removesuffix(".part") in ended:
            path.unlink(missing_ok=True)


async def _fetch(run: Run, file: File) -> tuple[File, Spooled] | None:
    """Downloads and verifies one file; None when it is lost, or left for the next run."""
    if found := await asyncio.to_thread(media.waiting, run.spool, _spool_name(file)):
        return file, found  # an earlier run had it, and storage did not take it
    renewals = 0  # times that the service has answered the question for a fresh URL
    began, patience = time.monotonic(), run.settings.poll.timeout
    for tries in itertools.count(1):
        try:
            async with run.client.download(file.media.url) as response:
                spooled = await media.spool(
                    response, file.media.mime_type, run.spool, _spool_name(file), patience=patience
                )
        except (ServiceError, MediaError) as error:
            overdue = datetime.now(UTC) >= file.media.deletes_at
            verdict = verdicts.download(error, file.attempt.type, overdue=overdue)
            if verdict is Verdict.LOST or (verdict is Verdict.RENEW and overdue and renewals):
                await run.ledger.lost(
                    file, f"the file could not be had before {file.media.deletes_at}: {error}"
                )
                return None
            if verdict is Verdict.RENEW and (answered := await _refresh(run, file)):
                file, renewals = answered, renewals + 1
                if renewals == 1:
                    continue
            if run.interrupted or (tries > 1 and time.monotonic() > began + patience):
                WATCHER.get().note(
                    f"row {file.attempt.row_id}: not downloaded yet, left for the next run: {error}"
                )
                if run.downloaded < began:  # no file could be had in all that time: buy no more of them
                    run.halt(error)
                return None
            await anyio.sleep(verdicts.backoff(tries, run.jitter))
        except StorageError as error:  # the spool's disk
            WATCHER.get().note(f"row {file.attempt.row_id}: {error}")
            run.halt(error)
            return None
        else:
            run.downloaded = time.monotonic()
            return file, spooled
    raise AssertionError("unreachable")


async def _refresh(run: Run, file: File) -> File | None:
    """Polls a video again for a fresh URL: the file as it is now; None when it could not be asked for."""
    assert file.attempt.generation_id is not None  # noqa: S101 - what has files has an id
    try:
        answer = await run.client.video(file.attempt.generation_id)
    except ServiceError as error:
        return file if verdicts.poll(error) is Verdict.NOT_FOUND else None
    if not isinstance(answer, Generation) or file.index >= len(answer.media):
        return file
    fresh = answer.media[file.index]
    await run.ledger.refreshed(file, fresh.url, fresh.deletes_at)
    return replace(file, media=fresh)


async def _store(run: Run, file: File, spooled: Spooled) -> bool:
    """Puts a verified file into storage under a name that no other file has; False when it is not taken."""
    for tries in itertools.count(1):
        failpoints.passed("before store.put")
        try:
            url = await run.store.put(
                spooled.path, file.name, sha256=spooled.sha256, mime_type=file.media.mime_type
            )
            failpoints.passed("after store.put")
        except StorageConflict:
            file = replace(file, name=other_name(file.name, file.attempt, file.index))
            await run.ledger.renamed(file, file.name)
        except StorageError as error:
            if tries >= STORE_TRIES:
                WATCHER.get().note(f"row {file.attempt.row_id}: {error}")
                run.halt(error)
                return False
            await anyio.sleep(verdicts.backoff(tries, run.jitter))
        else:
            await run.ledger.stored(file, StoredFile(url, spooled.sha256, spooled.bytes, datetime.now(UTC)))
            spooled.path.unlink(missing_ok=True)
            return True
    raise AssertionError("unreachable")


def _spool_name(file: File) -> str:
    return f"{file.attempt.job_key}-{file.attempt.number}-{file.index}"
