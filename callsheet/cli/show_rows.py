"""What `show` and `failed` print for people. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from callsheet.cli.output import out, print_facts, print_more, print_steps, safe
from callsheet.ledger.stories import StoredCopy, Story
from callsheet.plain_text import counted, row_name
from callsheet.records import CostSource, dollars

_SOURCES: dict[str | None, str] = {
    CostSource.COMPUTED: ", computed: the service gave a unit price and a quantity, and no sum",
    CostSource.QUOTED: ", as quoted: the service did not say what it cost",
}


def show_stories(batch: str, row: str, stories: Sequence[Story], planned: Mapping[str, str]) -> None:
    """Prints a row: its jobs, their attempts in order, and the files; then the requests of those to come."""
    out.print(f"[bold]{safe(row)}[/] of {safe(batch)}")
    for key, attempts in groupby(stories, key=lambda story: story.job_key):
        _show_job(key, list(attempts))
    for key, request in planned.items():
        out.print(f"\n[bold]{key[:12]}[/]: not bought yet")
        print_facts(out, [("request", request)])


def _show_job(key: str, attempts: Sequence[Story]) -> None:
    newest = attempts[-1]
    sample = f", sample {newest.sample}" if newest.sample > 1 else ""
    state = newest.state.replace("_", " ")
    out.print(f"\n[bold]{key[:12]}[/]{sample}: {state}")
    carried = ", ".join(f"{name} {value}" for name, value in newest.carried.items() if value is not None)
    print_facts(
        out,
        [
            ("model", f"{newest.model} ({newest.type})"),
            ("prompt", newest.prompt),
            ("request", newest.request),
            *([("carried", carried)] if carried else []),
        ],
    )
    for story in attempts:
        out.print(f"  [bold]attempt {story.attempt}[/]: {story.state.replace('_', ' ')}")
        print_facts(out, _facts(story), indent="    ")


def _facts(story: Story) -> Iterator[tuple[str, str]]:
    if story.submitted_at:
        yield "sent", _moment(story.submitted_at)
    if story.finished_at:
        took = ""
        if story.submitted_at:
            took = f", {(story.finished_at - story.submitted_at).total_seconds():.1f} s later"
        yield "ended", f"{_moment(story.finished_at)}{took}"
    quoted = "unpriced" if story.quoted is None else f"{dollars(story.quoted)} USD quoted"
    cost = "cost not known" if story.cost is None else f"{dollars(story.cost)} USD charged"
    source = _SOURCES.get(story.cost_source, "")
    yield "price", f"{quoted}, {cost}{source}"
    if story.generation_id:
        yield "id", story.generation_id
    if story.reused_from:
        yield "reused", f"the files of job {story.reused_from[:12]} of another batch"
    if story.error_message:
        yield "reason", f"{story.error_code}: {story.error_message}"
    if decision := story.decision:
        what = "charged" if decision.charged else "not charged"
        why = f": {decision.why}" if decision.why else ""
        yield "settled", f"as {what} by {decision.settled_by}, {_moment(decision.settled_at)}{why}"
    for file in story.files:
        yield "file", _file(file)


def _file(file: StoredCopy) -> str:
    size = f", {file.width}x{file.height}" if file.width and file.height else ""
    length = f", {file.duration:g} s" if file.duration else ""
    what = f"{file.url}: {file.mime_type}{size}{length}"
    if file.lost_at:
        return f"{what}; lost {_moment(file.lost_at)}"
    if file.stored_at is None:
        until = f", its URL expires {_moment(file.deletes_at)}" if file.deletes_at else ""
        return f"{what}; not stored yet{until}"
    return f"{what}, {file.bytes:,} bytes, stored {_moment(file.stored_at)}, sha256 {file.sha256}"


def show_failed(
    batch: str, stories: Sequence[Story], jobs: int, lines: Mapping[str, int], config: str
) -> None:
    """Prints a table of the jobs that failed.

    Args:
        batch: its name.
        stories: the last attempt at each of the first.
        jobs: how many there are in all.
        lines: the line of each job in the batch file, by key, where the last plan has it.
        config: the config file, as it is typed in a command.
    """
    if not stories:
        out.print(f"[green]{safe(batch)}: no job has failed.[/]")
        return
    names = ("row", "model", "attempts", "when (UTC)", "reason")
    table = Table(*(Column(name, overflow="fold") for name in names), box=SIMPLE_HEAD)
    for story in stories:
        when = f"{story.submitted_at:%Y-%m-%d %H:%M:%S}" if story.submitted_at else ""
        reason = f"{story.error_code}: {story.error_message}"
        table.add_row(
            safe(row_name(story.row_id, story.sample, lines.get(story.job_key))),
            safe(story.model),
            str(story.attempt),
            when,
            safe(reason),
        )
    out.print(f"[bold]{safe(batch)}[/]: {counted(jobs, 'job')} failed, at no cost")
    out.print(table)
    print_more(jobs)
    print_steps(
        [
            f"callsheet show {config} ROW tells all about one of them.",
            f"callsheet failed {config} --csv prints their rows, to correct and run again.",
            f"callsheet run {config} --set retry_failed=true buys them as they are.",
        ]
    )


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
