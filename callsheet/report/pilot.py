"""What a batch has made, for a person who decides what is bought next: where each file is, and a thumbnail.

It reads the ledger and the storage, and changes nothing. What cannot be shown has no thumbnail.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

import polars as pl

from callsheet.config.settings import Settings
from callsheet.ledger import marks, queries
from callsheet.ledger.ledger import Ledger
from callsheet.plain_text import row_name
from callsheet.pricing.quote import Quote
from callsheet.records import State
from callsheet.report.contact_sheet.thumbnails import Decoder
from callsheet.standing import read_standing

_JOBS = 24  # that are shown


@dataclass(frozen=True, slots=True)
class PilotJob:
    """A job of the pilot, with the path or URL of its first file, a small JPEG of it, and what was decided
    about it (`marks.MediaDecision`), or the reason why it has none. What there is not is empty.
    """

    row: str
    model: str
    state: State
    place: str
    thumbnail: bytes
    reason: str
    decision: str


async def bought_pilot(quote: Quote, settings: Settings, ledger: Ledger) -> tuple[PilotJob, ...]:
    """The first jobs of the pilot, in the batch file's order: one of each row before second samples.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if quote.pilot_jobs is None:
        return ()
    nth = pl.int_range(pl.len()).over("row_id")
    jobs = quote.table.filter(quote.pilot_jobs).sort(nth, maintain_order=True).head(_JOBS)
    return await _pilot_jobs(ledger, settings, dict(jobs.select("key", "line").iter_rows()))


async def made_last(settings: Settings) -> tuple[PilotJob, ...]:
    """The jobs of a batch that are stored: first those with a file that is kept, then those not decided.

    Raises:
        LedgerError: the ledger cannot be read.
    """

    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        standing = await ledger.read(read_standing)
        stored = standing.jobs.filter(state=State.STORED)
        is_rejected = (pl.col("kept") == 0) & (pl.col("rejected") > 0)
        first = stored.sort(pl.col("kept") == 0, is_rejected, maintain_order=True)["key"].head(_JOBS)
        return await _pilot_jobs(ledger, settings, dict.fromkeys(first))


async def _pilot_jobs(
    ledger: Ledger, settings: Settings, lines: Mapping[str, int | None]
) -> tuple[PilotJob, ...]:
    """These jobs, by their keys, each with its line in the batch file where that is known."""
    stories, decided_files = await ledger.read(
        lambda connection, batch: (
            list(queries.stories_of(connection, [*lines])),
            marks.decisions(connection, batch).select(*marks.FILE, "decision"),
        )
    )
    decisions = {tuple(file): decision for *file, decision in decided_files.iter_rows()}
    jobs = []
    async with aclosing(Decoder(settings.storage.endpoint_url)) as decoder:
        for story in stories:
            file = next((file for file in story.files if file.stored_at), None)
            jobs.append(
                PilotJob(
                    row=row_name(story.row_id, story.sample, lines[story.job_key]),
                    model=story.model,
                    state=story.state,
                    place=file.url if file else "",
                    thumbnail=(await decoder.decode(file.url, file.mime_type))[1] if file else b"",
                    reason=story.error_message or "",
                    decision=decisions.get((story.job_key, story.attempt, file.index)) or "" if file else "",
                )
            )
    return tuple(jobs)
