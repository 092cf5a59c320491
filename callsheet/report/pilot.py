"""The jobs of a pilot, for a person who decides whether to buy the rest: where each file is, and a thumbnail.

It reads the ledger and the storage, and changes nothing. What cannot be shown has no thumbnail.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, aclosing
from dataclasses import dataclass

from callsheet.config.settings import Settings
from callsheet.ledger import stories
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.stories import StoredCopy, Story
from callsheet.plain_text import row_name
from callsheet.pricing.quote import Quote
from callsheet.records import State
from callsheet.report.contact_sheet.thumbnails import Decoder, path_of

_JOBS = 24  # that are shown


@dataclass(frozen=True, slots=True)
class PilotJob:
    """A job of the pilot.

    Attributes:
        row: its row, as people know it.
        place: the path or URL of its first file; empty where none is stored.
        thumbnail: a small JPEG of that file; empty where there is none.
        reason: why it has no file.
    """

    row: str
    model: str
    state: State
    place: str
    thumbnail: bytes
    reason: str


async def bought_pilot(quote: Quote, settings: Settings) -> tuple[PilotJob, ...]:
    """The first jobs of the pilot, in the batch file's order.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if quote.pilot_jobs is None:
        return ()
    lines = dict(quote.table.select("key", "line").filter(quote.pilot_jobs).head(_JOBS).iter_rows())
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        told = await ledger.read(lambda connection, _: stories.of_jobs(connection, [*lines]))
    finally:
        await ledger.close()
    told = sorted(told, key=lambda story: [*lines].index(story.job_key))
    async with aclosing(Decoder()) as decoder:
        thumbnails = [await _thumbnail(_first_file(story), settings, decoder) for story in told]
    return tuple(
        PilotJob(
            row=row_name(story.row_id, story.sample, lines[story.job_key]),
            model=story.model,
            state=story.state,
            place=file.url if (file := _first_file(story)) else "",
            thumbnail=thumbnail,
            reason=story.error_message or "",
        )
        for story, thumbnail in zip(told, thumbnails, strict=True)
    )


def _first_file(story: Story) -> StoredCopy | None:
    return next((file for file in story.files if file.stored_at), None)


async def _thumbnail(file: StoredCopy | None, settings: Settings, decoder: Decoder) -> bytes:
    if file is None:
        return b""
    with ExitStack() as copies:
        path = await asyncio.to_thread(path_of, file.url, settings.storage.endpoint_url, copies)
        return await decoder.make(path, file.mime_type) if path else b""
