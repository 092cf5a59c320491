"""What is said of a claim: on the page that is sent to the service, and to who sends it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from callsheet.cells import as_text
from callsheet.plain_text import counted, moment_in_words, row_name
from callsheet.present.page import Fact, Facts, Line, Listed, Page, Table, Tone
from callsheet.records import dollars
from callsheet.report.claim import Claim, Claimed

_NOT_SAID = "not said"
_LISTED = 30


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
    lines = [_line(file) for file in claim.files]
    steps = [
        f"Send {claim.csv} and {claim.page} to the service.",
        f"callsheet claim {config} --sent NOTE marks that as sent: the next claim leaves it out.",
        f"callsheet claim {config} --credit AMOUNT enters what came back.",
    ]
    page: Page = [Line(f": {_topic(claim)}", strong=claim.batch, tone=None if lines else Tone.GOOD)]
    texts = ("row", "id", "why", "ordered", "came")
    page.append(Table(lines, texts, limit=_LISTED, more="more: see the file"))
    missing = f"the service's account cannot be asked about what is in doubt: {claim.missing}"
    page.append(Facts([*facts(claim), ("Not known", missing if claim.missing else "")]))
    return [*page, Listed("Next", steps if lines else [])]


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
    yield "Times are UTC. Amounts are in USD, as the answers have charged them."
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
        "ordered": _settings(file.ordered),
        "came": _came(file),
        "charged": _amount(file.cost),
        "should be": _amount(file.should_cost),
        "owed": _amount(file.owed),
    }


def _came(file: Claimed) -> str:
    if file.delivered is None:
        return "nothing"
    parts = {"the answer says": file.delivered["said"], "the file has": file.delivered["measured"]}
    said = {part: _settings(values) for part, values in parts.items()}
    return "; ".join(f"{part} {values}" for part, values in said.items() if values)


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {as_text(value)}" for name, value in values.items() if value is not None
    )


def _amount(amount: Decimal | None) -> str:
    return _NOT_SAID if amount is None else dollars(amount)
