"""What is said when a person is asked whether to buy: the reason, the quote, and what a pilot has made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from callsheet.cells import rejects_in_words
from callsheet.ledger.words import Shown, Word
from callsheet.plain_text import counted
from callsheet.present import amounts, priced, reasons
from callsheet.present.page import Document, Line, Link, Page, Picture, Pictures, Table
from callsheet.pricing.quote import Quote
from callsheet.report.contact_sheet.cards import browser_address
from callsheet.report.pilot import PilotJob

_ROWS = 50  # of the prices above the fields in which to approve
_IN_A_DIALOG, _ON_A_PAGE = 88, 168  # pixels


def question(shown: Shown, batch: str = "") -> str:
    """The question: `Buy the other 3 jobs for 0.1200 USD?`; with the batch where that is not plain."""
    other = "the other " if shown.is_rest else ""
    of_batch = f" of {batch}" if batch else ""
    return f"Buy {other}{counted(shown.jobs, 'job')}{of_batch} for {reasons.price_of(shown)}?"


def topic(word: Word) -> str:
    """What is asked about, in a few words."""
    return amounts.topic(word.shown.jobs, word.shown.quoted) if word.shown.plan else "not priced yet"


def dialog(word: Word, quote: Quote | None, pilot: Sequence[PilotJob], sheet: str | None) -> Document:
    """What stands above the fields in which to approve: the reason, the quote, and the facts; where nothing
    is priced yet, the pictures. `sheet` is the contact sheet.
    """
    if quote is None:
        return [Line(strong=word.why), *to_sheet(sheet), _pictures(pilot, _IN_A_DIALOG)]
    lines = [line for line in priced.in_few_columns(quote, "to buy", "each", "USD") if line["to buy"] != "0"]
    rejects = rejects_in_words(quote.plan.rejects)  # the first comes first; the others are among the facts
    rejected = f"{counted(quote.plan.rejected_rows, 'row')} rejected"
    left_out = len(lines) - _ROWS
    return [
        Line(f" You are asked because {word.why}.", strong=question(word.shown, quote.plan.batch)),
        *(Line(f"{rejected}: {reason}.") for reason in rejects[:1]),
        Line(marked(pilot)),
        _pictures(pilot, _IN_A_DIALOG),
        *to_sheet(sheet),
        Table(lines[:_ROWS]),
        Line(f"and {counted(left_out, 'line')} more, in the artifact" if left_out > 0 else ""),
        *priced.facts_in_order(quote, rejects[1:]),
    ]


def pilot_document(batch: str, pilot: Sequence[PilotJob], sheet: str | None) -> Document:
    """All pictures of a pilot."""
    heading = Line(strong=f"{batch}: the pilot", level=1)
    return [heading, *to_sheet(sheet), Line(marked(pilot)), _pictures(pilot, _ON_A_PAGE)]


def pilot_screen(pilot: Sequence[PilotJob], sheet: str | None) -> Page:
    """Where the files of a pilot are."""
    lines = [
        {"row": job.row, "model": job.model, "state": job.decision or job.state.in_words}
        | {"file": job.place or job.reason}
        for job in pilot
    ]
    page: Page = [Line("The pilot is bought:"), Table(lines, ("row", "model", "state", "file"))]
    return page + ([Link("All of it on one page", browser_address(sheet))] if sheet else [])


def bought_so_far(quote: Quote) -> str:
    """What is bought of a batch of which no more is bought now."""
    totals, batch = quote.totals, quote.plan.batch
    if not totals.sent:
        return f"nothing of {batch} was bought"
    doubt = totals.in_doubt_exposure
    in_doubt = f", {amounts.in_doubt(doubt)}" if doubt else ""
    bought = f"{counted(totals.bought_jobs, 'job')} bought, {amounts.spent(totals.spent)}"
    return f"nothing more was bought. Of {batch} so far: {bought}{in_doubt}"


def marked(pilot: Sequence[PilotJob]) -> str:
    """What was decided about a pilot, in a line; empty where nothing is."""
    counts = Counter(job.decision for job in pilot if job.thumbnail or job.place)
    left = counts.pop("", 0)
    if not counts:
        return ""
    decided = [f"{count} {decision}" for decision, count in sorted(counts.items())]
    return f"Of the pilot: {', '.join([*decided, f'{left} not looked at'])}"


def to_sheet(place: str | None) -> list[Link]:
    """What leads to a contact sheet; a link where it is served."""
    if place and place.startswith("http://"):
        return [Link("Look at the images and videos, and mark them", place)]
    return [Link("The contact sheet", place)] if place else []


def _pictures(pilot: Sequence[PilotJob], edge: int) -> Pictures:
    pictures = [
        Picture(
            name=job.row,
            words=f"{job.row}, {job.model}, {job.state.in_words}",
            strong=job.decision,
            jpeg=job.thumbnail,
            place=job.place,
            text=job.reason,
        )
        for job in pilot
    ]
    return Pictures(pictures, edge)
