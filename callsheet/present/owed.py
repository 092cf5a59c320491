"""What is said of a claim: on the page that is sent to the service, and to who sends it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from callsheet.plain_text import counted, moment_in_words, row_name
from callsheet.present.page import Fact, Facts, Line, Listed, Page, Table, Tone
from callsheet.records import dollars
from callsheet.report.claim import Claim, Claimed

_NOT_SAID = "not said"
_LISTED = 30
_SHOWN = ("row", "why", "charged", "should be", "owed")  # on a terminal; the files have the rest


def document(claim: Claim) -> Page:
    """The page for the service."""
    return [
        Line(strong=f"Claim: {claim.batch}", level=1),
        Facts([("Written", moment_in_words(claim.written_at)), *facts(claim)]),
        Listed("How it is counted", _rules(claim)),
        Table([_line(file) | {"SHA-256": ", ".join(file.sha256)} for file in claim.files]),
    ]


def screen(claim: Claim, config: str) -> Page:
    """The sums and the first lines for who sends the claim, and what to do next; `config` as it is typed."""
    lines = [{name: text for name, text in _line(file).items() if name in _SHOWN} for file in claim.files]
    steps = [
        f"Send {claim.csv} and {claim.page} to the service.",
        f"callsheet claim {config} --sent NOTE marks that as sent: the next claim leaves it out.",
        f"callsheet claim {config} --credit AMOUNT enters what came back.",
    ]
    page: Page = [Line(f": {_topic(claim)}", strong=claim.batch, tone=None if lines else Tone.GOOD)]
    page.append(Table(lines, ("row", "why"), limit=_LISTED, more="more: see the file"))
    page.append(Facts([*(facts(claim) if lines else ()), *(("Note", note) for note in claim.notes)]))
    return [*page, Listed("Next", steps if lines else [])]


def marked(generations: int) -> str:
    """That so many were claimed."""
    return f"{counted(generations, 'generation')} marked as claimed; the next claim leaves them out"


def entered(amount: Decimal, total: Decimal) -> str:
    """That this amount came back, of so much in all."""
    return f"a credit of {dollars(amount)} USD is entered; {dollars(total)} USD came back in all"


def _topic(claim: Claim) -> str:
    """What is claimed in a few words."""
    if not claim.files:
        return "nothing to claim"
    return f"{counted(len(claim.files), 'generation')}, {dollars(claim.owed)} {claim.currency} owed"


def facts(claim: Claim) -> Iterator[Fact]:
    """The sums, in all and by reason."""
    if claim.since:
        yield "Since", f"{claim.since} (UTC)"
    yield "Charged", f"{dollars(claim.cost)} {claim.currency} for {counted(len(claim.files), 'generation')}"
    yield "Owed", f"{dollars(claim.owed)} {claim.currency}"
    by_reason = defaultdict[str, list[Claimed]](list)
    for file in claim.files:
        by_reason[file.why].append(file)
    for reason, files in by_reason.items():
        owed = sum((file.owed or Decimal(0) for file in files), Decimal(0))
        yield "", f"{counted(len(files), 'generation')} {reason}: {dollars(owed)} {claim.currency}"
    if claim.not_said:
        said = "what it should have cost, the catalogue does not say: it is not in the sum"
        yield "Not said", f"{counted(claim.not_said, 'generation')}: {said}"
    if claim.credits:
        yield "Came back", f"{dollars(claim.credits)} {claim.currency} so far, for the whole batch"


def _rules(claim: Claim) -> Iterator[str]:
    if not claim.files:
        return
    yield "Times are UTC. Amounts are in USD, as the answers have charged them; without an answer, as quoted."
    yield "What never came should have cost nothing; of what is above its quote the quote counts."
    yield (
        "What came other than ordered should have cost the catalogue's price of what came, of its model, its "
        "whole seconds and its sound, and at most what was quoted."
    )
    yield f"Where the catalogue has no such price, it is {_NOT_SAID}."


def _line(file: Claimed) -> dict[str, str]:
    """A generation as a line of a table."""
    return {
        "row": row_name(file.row_id, file.sample),
        "id": file.generation_id or "none",
        "sent (UTC)": f"{file.submitted_at:%Y-%m-%d %H:%M:%S}",
        "ended (UTC)": f"{file.finished_at:%Y-%m-%d %H:%M:%S}" if file.finished_at else "",
        "why": "; ".join(file.flags) or file.why,
        "ordered": _in_words(file.ordered),
        "came": _came(file),
        "charged": _amount(file.cost),
        "should be": _amount(file.should_cost),
        "owed": _amount(file.owed),
    }


def _came(file: Claimed) -> str:
    if file.delivered is None:
        return "nothing"
    said, measured = (_in_words(file.delivered[by]) for by in ("said", "measured"))
    return said if said == measured else f"by the answer: {said}; by the file: {measured}"


def _in_words(values: Mapping[str, Any]) -> str:
    """The settings of a request, or what came, as far as it is known: `reel-1, 16:9, 720p, 5 s, sound`."""
    width, height = values.get("width"), values.get("height")
    seconds, frames = values.get("duration"), values.get("fps")
    sound = values.get("sound", values.get("has_sound"))
    words = [
        *(values.get(name) for name in ("model", "aspect_ratio", "resolution")),
        f"{width} \u00d7 {height}" if width and height else None,
        None if seconds is None else f"{seconds:g} s",
        None if frames is None else f"{frames:g} frames a second",
        None if sound is None else "sound" if sound else "no sound",
        values.get("output_format", values.get("mime_type")),
    ]
    return ", ".join(filter(None, words))


def _amount(amount: Decimal | None) -> str:
    return _NOT_SAID if amount is None else dollars(amount)
