"""What is said of single rows: all attempts at the jobs of one, and the jobs that failed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import groupby

from callsheet.ledger.queries import StoredCopy, Story
from callsheet.plain_text import counted, moment_in_words, row_name
from callsheet.present.page import Fact, Facts, Line, Listed, Page, Tone
from callsheet.records import ALSO_MADE_FROM, CostSource, dollars, made_from, origins, refuses
from callsheet.report.remedies import command, retries
from callsheet.report.summary import PARTICULARS

_AROUND = r"^[A-Z]+ /\S+: | \(\d{3} [^()]*\)$"  # the service's words: what was asked for, and the code again
_SOURCES: dict[str | None, str] = {
    CostSource.COMPUTED: ", computed: the service gave a unit price and a quantity, and no sum",
    CostSource.QUOTED: ", as quoted: the service did not say what it cost",
}


def screen(batch: str, row: str, stories: Sequence[Story], planned: Mapping[str, str], refusal: str) -> Page:
    """A row: its jobs, their attempts in order, and the files; then the requests of those to come, and the
    service's words (`refusal`) where it refuses them.
    """
    page: Page = [Line(f" of {batch}", strong=row)]
    for key, attempts in groupby(stories, key=lambda story: story.job_key):
        page += _job(key, list(attempts))
    for key, request in planned.items():
        page += [Line(), Line(": not bought yet", strong=key[:12]), Facts([("request", _spaced(request))])]
    if refusal:
        sentence = refuses(refusal)
        page += [Line(), Line(sentence[0].upper() + sentence[1:], tone=Tone.WARNING)]
    return page


def _job(key: str, stories: Sequence[Story]) -> Page:
    """A job by its newest attempt, and then each attempt."""
    newest = stories[-1]
    columns = made_from(newest.carried)[1]
    columns.pop(ALSO_MADE_FROM, None)
    files = [f"{file['batch']}: {file['row']}, sample {file['sample']}" for file in origins(newest.carried)]
    facts = [
        ("model", f"{newest.model} ({newest.type})"),
        ("prompt", newest.prompt),
        ("request", _spaced(newest.request)),
        ("carried", ", ".join(f"{name} {value}" for name, value in columns.items() if value is not None)),
        ("made from", "; ".join(files)),
    ]
    title = Line(f", file {newest.file_number}: {newest.state.in_words}", strong=key[:12])
    page: Page = [Line(), title, Facts(facts)]
    for story in stories:
        page.append(Line(f": {story.state.in_words}", strong=f"attempt {story.attempt}", indent=2))
        page.append(Facts(_attempt(story), indent=4))
    return page


def _spaced(request: str) -> str:
    """A request as JSON with spaces, between which a line can be broken."""
    return json.dumps(json.loads(request), ensure_ascii=False)


def _attempt(story: Story) -> list[Fact]:
    sent, ended, decision = story.submitted_at, story.finished_at, story.decision
    took = f", {(ended - sent).total_seconds():.1f} s later" if sent and ended else ""
    quoted = "unpriced" if story.quoted is None else f"{dollars(story.quoted)} USD quoted"
    cost = "cost not known" if story.cost is None else f"{dollars(story.cost)} USD charged"
    settled = ""
    if decision:
        outcome = "charged" if decision.charged else "not charged"
        reason = f": {decision.why}" if decision.why else ""
        settled = f"as {outcome} by {decision.settled_by}, {moment_in_words(decision.settled_at)}{reason}"
    return [
        ("sent", moment_in_words(sent) if sent else ""),
        ("ended", f"{moment_in_words(ended)}{took}" if ended else ""),
        ("price", f"{quoted}, {cost}{_SOURCES.get(story.cost_source, '')}"),
        ("id", story.generation_id or ""),
        ("reason", f"{story.error_code}: {story.error_message}" if story.error_message else ""),
        ("settled", settled),
        *(fact for file in story.files for fact in (("file", _file(file)), *_review(file))),
    ]


def _file(file: StoredCopy) -> str:
    size = f", {file.width}x{file.height}" if file.width and file.height else ""
    length = f", {file.duration:g} s" if file.duration else ""
    description = f"{file.url}: {file.mime_type}{size}{length}"
    if file.lost_at:
        return f"{description}; lost {moment_in_words(file.lost_at)}"
    if file.stored_at is None:
        until = f", its URL expires {moment_in_words(file.deletes_at)}" if file.deletes_at else ""
        return f"{description}; not stored yet{until}"
    stored = f"stored {moment_in_words(file.stored_at)}, sha256 {file.sha256}"
    if file.removed_at:
        stored += f"; removed {moment_in_words(file.removed_at)}"
    return f"{description}, {file.bytes:,} bytes, {stored}"


def _review(file: StoredCopy) -> list[Fact]:
    """What a person, or a check, has said of a file."""
    by = f" by {file.decided_by}, {moment_in_words(file.decided_at)}" if file.decided_at else ""
    said = f"{file.decision or 'not decided'}{by}" if by else ""
    return [
        ("review", f"{said}: {file.note}" if file.note else said),
        ("flags", ", ".join(file.flags)),
    ]


def failed_screen(
    batch: str,
    stories: Sequence[Story],
    lines: Mapping[str, int],
    config: str,
    *,
    jobs: int,
    charged: Decimal,
) -> Page:
    """The jobs that failed, by reason: the last attempt at each of the first, of so many in all.

    `lines` are those of the batch file, by job. `charged` is what the service says that it charged for all of
    them, in dollars.
    """
    if not stories:
        return [Line(f"{batch}: no job has failed.", tone=Tone.GOOD)]
    alike: dict[tuple[str | None, str], list[Story]] = {}
    for story in stories:
        reason = re.sub(PARTICULARS, "#", story.error_message or "")
        alike.setdefault((story.error_code, reason), []).append(story)
    cost = f"charged {dollars(charged)} USD" if charged else "at no cost"
    page: Page = [Line(f": {counted(jobs, 'job')} failed, {cost}", strong=batch), Line()]
    for (code, _), group in sorted(alike.items(), key=lambda item: -len(item[1])):
        rows = dict.fromkeys(row_name(job.row_id, job.sample, lines.get(job.job_key)) for job in group)
        message = re.sub(_AROUND, "", group[0].error_message or "")
        said = Line(f"{counted(len(group), 'job')}: {code}: {message}", tone=Tone.WARNING, indent=2)
        page += [said, Line(", ".join(rows), indent=4), Line()]
    if left_out := jobs - len(stories):
        page += [Line(f"and {left_out:,} more: --json and costs.parquet have all", indent=2), Line()]
    steps = [
        f"{command('show', config)} ROW tells all about one of them.",
        f"{command('failed', config)} --csv prints their rows, to correct and run again.",
        *retries({code or "" for code, _ in alike}, config),
    ]
    return [*page, Listed("Next", steps)]
