"""What the commands print for people: quotes, summaries, rows, models. It decides nothing."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from pathlib import Path

from rich.console import Console

from callsheet.cells import as_text
from callsheet.cli.output import err, out, print_facts, print_line, print_more, print_steps, print_table, safe
from callsheet.cli.reconcile import print_jobs
from callsheet.errors import CallsheetError
from callsheet.ledger.queries import StoredCopy, Story
from callsheet.plain_text import counted, row_name
from callsheet.pricing import facts
from callsheet.pricing.compare import Comparison
from callsheet.pricing.quote import Quote
from callsheet.records import CostSource, Doubt, State, Totals, dollars, made_from
from callsheet.report.contact_sheet.cards import browser_address
from callsheet.report.summary import PARTICULARS, ReviewResult, Status, Summary, retries
from callsheet.service.models import Model
from callsheet.standing import MODEL, Share
from callsheet.watch import Asked

_APPROVALS = 5  # the last ones
_REJECTS = 10  # of a quote
_FIRST = ("Buys", "Guessed")  # facts of a quote that stand above its prices
_AROUND = r"^[A-Z]+ /\S+: | \(\d{3} [^()]*\)$"  # the service's words: what was asked for, and the code again
_SOURCES: dict[str | None, str] = {
    CostSource.COMPUTED: ", computed: the service gave a unit price and a quantity, and no sum",
    CostSource.QUOTED: ", as quoted: the service did not say what it cost",
}


def show_error(error: CallsheetError) -> None:
    """Prints an error and its hint to stderr."""
    first, *other_lines = error.message.split("\n")
    print_line(err, f"[bold red]error:[/] {safe(first)}", 2)
    for line in filter(None, (*other_lines, *error.hint.split("\n"))):
        print_line(err, f"  {safe(line)}", 2)


def show_quote(quote: Quote, console: Console = out, show: str | None = None) -> None:
    """Prints the quote: prices, sums, the first rows or the requests that `show` names and rejects."""
    console.print(f"[bold]{safe(quote.plan.batch)}[/]")
    quote_facts = facts.as_facts(quote)
    print_facts(console, (fact for fact in quote_facts if fact[0] in _FIRST))
    prices = facts.in_few_columns(quote, "bought", "to buy", "each", "USD")
    print_table(console, prices, "model", "what", more="more prices")
    print_facts(console, (fact for fact in quote_facts if fact[0] not in _FIRST))
    print_table(console, facts.costliest(quote), "costliest row")
    if show is None:
        print_table(console, facts.first_rows(quote.table), "row", "prompt", "images", "settings")
    for row, request in facts.requests(quote.table, show) if show is not None else ():
        console.print(f"  [bold]{'Request':<10}[/] {safe(row)}, as it would be sent:")
        for text in facts.in_lines(request):
            print_line(console, f"    [dim]{safe(text)}[/]", 8)
    _show_rejects(quote, console)
    if not quote.plan.jobs:
        console.print("[yellow]Nothing to buy: every row is rejected.[/]")
    elif not quote.to_buy and not quote.held:
        console.print("[green]Nothing to buy: everything is bought already.[/]")


def _show_rejects(quote: Quote, console: Console) -> None:
    """Prints what is wrong with which line, and where all of it is if some is left out."""
    rejects = facts.rejects_in_words(quote.plan.rejects)
    for reject in rejects[:_REJECTS]:
        print_line(console, f"  [yellow]{safe(reject)}[/]")
    left_out = len(rejects) - _REJECTS
    print_more(left_out, "more reason" if left_out == 1 else "more reasons", console)
    if quote.plan.rejects.height > len(rejects[:_REJECTS]):
        print_line(console, f"  All are in {safe(quote.rejects)}.")


def show_comparison(comparisons: Sequence[Comparison]) -> None:
    """Prints what the rows of a batch would cost on each model."""
    lines = [
        {
            "model": comparison.model,
            "makes": comparison.type,
            "rows": f"{comparison.rows:,} of {comparison.of:,}",
            "jobs": f"{comparison.jobs:,}",
            "USD": dollars(comparison.price),
            "why not all": ""
            if comparison.rows == comparison.of
            else next(iter(comparison.reasons.values()), ""),
        }
        for comparison in comparisons
    ]
    print_table(out, lines, "model", "makes", "why not all", limit=len(lines))


def show_summary(summary: Summary, config: Path | None, *, media: str) -> None:
    """Prints the result of a run: by model, in money, what went wrong, where the files are, what to do next.

    `config` is the file, for the commands that can be typed next; None shows none. `media` is `storage.url`.
    """
    details, sheet = summary.details, summary.details.contact_sheet
    colour = {"complete": "green", "partial": "yellow", "stopped": "red"}[summary.outcome]
    out.print(f"\n[bold {colour}]{safe(summary.batch)}: {summary.outcome}[/]")
    print_table(out, summary.by_model(), "model", more="more models", is_narrow=True)
    places = [("Media", media), ("Manifest", summary.manifest), ("Costs", summary.costs)]
    places += [("Report", summary.report), ("Sheet", browser_address(sheet) if sheet else "")]
    print_facts(out, [*summary.stopped(), *summary.facts(), *places])
    for problem in details.problems:
        print_line(out, f"  [yellow]{safe(problem.line())}[/]")
    if details.other_problems:
        out.print(f"  [yellow]{details.other_problems:,} jobs with other reasons: see the costs file[/]")
    if config:
        print_steps(summary.next_steps(shlex.quote(str(config))))


def show_demo(summary: Summary) -> None:
    """Prints where the demo's files are, and what to try next."""
    report = Path(summary.manifest).parent
    if summary.outcome == "stopped" or summary.pending:
        out.print("\nThe same command again goes on from here.")
    elif summary.submissions == 0:
        out.print("\n[green]Nothing was bought:[/] everything here is paid for and stored already.")
        out.print("To start afresh: rm -r out/demo")
    else:
        out.print("\nThe same command again buys nothing.")
    out.print(f"The images and videos are in {report.parent / 'media'}.")
    out.print(f"On purpose, one row is wrong ({report / 'rejects.csv'}) and the service refuses one.")
    if summary.details.contact_sheet:
        out.print("Look at every job on one page, keep or reject each, with one key a decision:")
        out.print(f"callsheet review {report.parent / 'demo.yaml'}")


def show_status(status: Status, config: str, doubts: Sequence[Doubt]) -> None:
    """Prints the state of a batch, the runs that are at work, these jobs in doubt, and what to do next."""
    out.print(f"[bold]{safe(status.batch)}[/]")
    counts = {state: status[state] for state in State if status[state]}
    lines = [{"state": state.replace("_", " "), "jobs": f"{count:,}"} for state, count in counts.items()]
    print_table(out, lines, "state")
    if not lines:
        out.print("  The ledger has no job of this batch: nothing was bought yet.")
    in_flight = f"{dollars(status.in_flight_exposure)} USD, sent and not answered yet"
    print_facts(
        out,
        [
            ("Spent", f"{dollars(status.spent)} USD"),
            ("In flight", in_flight if status.in_flight_exposure else ""),
            ("In doubt", f"{dollars(status.in_doubt_exposure)} USD at most"),
            ("Reviewed", status.reviewed()),
            ("To buy again", status.to_buy_again.line()),
            ("Last run", f"began {_moment(status.last_run)}" if status.last_run else ""),
            ("Paused", status.paused.line() if status.paused else ""),
            *(("At work", run.line()) for run in status.other_runs),
            *(("Changed", change.line()) for change in status.changes),
            *(("Asked", approval.line()) for approval in status.approvals[-_APPROVALS:]),
        ],
    )
    show_parts(status)
    if doubts:
        print_jobs(doubts, {})
    print_steps(status.next_steps(config))


def show_parts(result: Status | ReviewResult) -> None:
    """Prints how far a batch is reviewed and what it has cost, by model and by each setting with several
    values.
    """
    for name, shares in {MODEL: result.by_model, **result.by_setting}.items():
        if any(share.files for share in shares):
            head = name.replace("_", " ")
            lines = [{head: as_text(share.value) or ""} | _of_share(share) for share in shares]
            print_table(out, lines, head, more="more", is_narrow=True)


def _of_share(share: Share) -> dict[str, str]:
    counts = {"files": share.files, **share.review._asdict()}
    cost_per_kept = share.cost_per_kept
    return {
        **{name.replace("_", " "): f"{count:,}" for name, count in counts.items()},
        "USD spent": dollars(share.spent),
        "USD a kept": "" if cost_per_kept is None else dollars(cost_per_kept),
    }


def show_pilot(asked: Asked, console: Console) -> None:
    """Prints where the files of a pilot are, before the question whether to buy the rest."""
    console.print("The pilot is bought:")
    lines = [
        {"row": job.row, "model": job.model}
        | {"state": job.decision or job.state.replace("_", " "), "file": job.place or job.reason}
        for job in asked.pilot
    ]
    print_table(console, lines, *lines[0])
    if asked.contact_sheet:
        console.print(f"All of it on one page: {safe(browser_address(asked.contact_sheet))}")


def show_batches(batches: Mapping[str, Totals]) -> None:
    """Prints a line for every batch of a ledger, and the sums of what they cost and may have cost."""
    states = [state for state in State if any(totals.states.get(state) for totals in batches.values())]
    lines = [
        {"batch": batch}
        | {state.replace("_", " "): f"{totals.states.get(state, 0):,}" for state in states}
        | {"USD spent": dollars(totals.spent), "USD in doubt": dollars(totals.in_doubt_exposure)}
        for batch, totals in batches.items()
    ]
    print_table(out, lines, "batch", limit=len(lines))
    spent = sum((totals.spent for totals in batches.values()), Decimal(0))
    sent = sum((totals.sent for totals in batches.values()), Decimal(0))
    used = f"{dollars(spent)} USD spent, {dollars(sent - spent)} in flight or in doubt"
    out.print(f"{counted(len(batches), 'batch', 'batches')}, {used}")


def show_models(models: Iterable[Model]) -> None:
    """Prints the catalogue: the values that each model supports, defaults first, and its prices."""
    for model in models:
        out.print(f"[bold]{safe(model.id)}[/]  {safe(model.type)}")
        if model.unreadable:
            print_facts(out, [("error", f"the service's entry cannot be read: {model.unreadable}")])
            continue
        facts = [
            ("ratios", ", ".join(model.supported_aspect_ratios)),
            ("sizes", ", ".join(model.supported_resolutions)),
            ("seconds", ", ".join(map(str, model.supported_durations))),
            ("images", ", ".join(f"{role} {count}" for role, count in model.supported_references.items())),
            ("price", "" if model.pricing.rates else "unpriced: the catalogue has no rate"),
        ]
        for rate in model.pricing.rates:
            sound = "" if rate.sound == "not_applicable" else f", {rate.sound.replace('_', ' ')}"
            price = f"{rate.unit_price} {model.pricing.currency} / {rate.billable_unit.replace('_', ' ')}"
            facts.append(("price", f"{price} at {rate.resolution}{sound}"))
        print_facts(out, facts)


def show_stories(
    batch: str, row: str, stories: Sequence[Story], planned: Mapping[str, str], refusal: str
) -> None:
    """Prints a row: its jobs, their attempts in order, and the files; then the requests of those to come, and
    the service's words (`refusal`) where it refuses them.
    """
    out.print(f"[bold]{safe(row)}[/] of {safe(batch)}")
    for key, attempts in groupby(stories, key=lambda story: story.job_key):
        job_stories = list(attempts)
        newest, state = job_stories[-1], job_stories[-1].state.replace("_", " ")
        sample = f", sample {newest.sample}" if newest.sample > 1 else ""
        out.print(f"\n[bold]{key[:12]}[/]{sample}: {state}")
        origin, columns = made_from(newest.carried)
        carried = (f"{name} {value}" for name, value in columns.items() if value is not None)
        facts = [("model", f"{newest.model} ({newest.type})"), ("prompt", newest.prompt)]
        facts += [("request", _spaced(newest.request)), ("carried", ", ".join(carried))]
        if origin:
            facts.append(("made from", f"{origin['batch']}: {origin['row']}, sample {origin['sample']}"))
        print_facts(out, facts)
        for story in job_stories:
            out.print(f"  [bold]attempt {story.attempt}[/]: {story.state.replace('_', ' ')}")
            print_facts(out, _facts(story), indent="    ")
    for key, request in planned.items():
        out.print(f"\n[bold]{key[:12]}[/]: not bought yet")
        print_facts(out, [("request", _spaced(request))])
    if refusal:
        print_line(out, f"\n[yellow]The service refuses every submission:[/] {safe(refusal)}")


def _spaced(request: str) -> str:
    """A request as JSON with spaces, between which a line can be broken."""
    return json.dumps(json.loads(request), ensure_ascii=False)


def _facts(story: Story) -> list[tuple[str, str]]:
    sent, ended, decision = story.submitted_at, story.finished_at, story.decision
    took = f", {(ended - sent).total_seconds():.1f} s later" if sent and ended else ""
    quoted = "unpriced" if story.quoted is None else f"{dollars(story.quoted)} USD quoted"
    cost = "cost not known" if story.cost is None else f"{dollars(story.cost)} USD charged"
    settled = ""
    if decision:
        outcome = "charged" if decision.charged else "not charged"
        reason = f": {decision.why}" if decision.why else ""
        settled = f"as {outcome} by {decision.settled_by}, {_moment(decision.settled_at)}{reason}"
    return [
        ("sent", _moment(sent) if sent else ""),
        ("ended", f"{_moment(ended)}{took}" if ended else ""),
        ("price", f"{quoted}, {cost}{_SOURCES.get(story.cost_source, '')}"),
        ("id", story.generation_id or ""),
        ("reason", f"{story.error_code}: {story.error_message}" if story.error_message else ""),
        ("settled", settled),
        *(("file", _file(file)) for file in story.files),
    ]


def _file(file: StoredCopy) -> str:
    size = f", {file.width}x{file.height}" if file.width and file.height else ""
    length = f", {file.duration:g} s" if file.duration else ""
    description = f"{file.url}: {file.mime_type}{size}{length}"
    if file.lost_at:
        return f"{description}; lost {_moment(file.lost_at)}"
    if file.stored_at is None:
        until = f", its URL expires {_moment(file.deletes_at)}" if file.deletes_at else ""
        return f"{description}; not stored yet{until}"
    return f"{description}, {file.bytes:,} bytes, stored {_moment(file.stored_at)}, sha256 {file.sha256}"


def show_failed(
    batch: str,
    stories: Sequence[Story],
    lines: Mapping[str, int],
    config: str,
    *,
    jobs: int,
    charged: Decimal,
) -> None:
    """Prints the jobs that failed, by reason: the last attempt at each of the first, of so many in all.

    `charged` is what the service says that it charged for all of them, in dollars.
    """
    if not stories:
        out.print(f"[green]{safe(batch)}: no job has failed.[/]")
        return
    cost = f"charged {dollars(charged)} USD" if charged else "at no cost"
    out.print(f"[bold]{safe(batch)}[/]: {counted(jobs, 'job')} failed, {cost}\n")
    alike: dict[tuple[str | None, str], list[Story]] = {}
    for story in stories:
        reason = re.sub(PARTICULARS, "#", story.error_message or "")
        alike.setdefault((story.error_code, reason), []).append(story)
    for (code, _), group in sorted(alike.items(), key=lambda item: -len(item[1])):
        rows = (row_name(story.row_id, story.sample, lines.get(story.job_key)) for story in group)
        message = re.sub(_AROUND, "", group[0].error_message or "")
        print_line(out, f"  [yellow]{counted(len(group), 'job')}: {safe(f'{code}: {message}')}[/]")
        print_line(out, f"    {safe(', '.join(rows))}\n")
    print_more(jobs - len(stories), "more: --json and costs.parquet have all\n")
    print_steps(
        [
            f"callsheet show {config} ROW tells all about one of them.",
            f"callsheet failed {config} --csv prints their rows, to correct and run again.",
            *retries({code or "" for code, _ in alike}, config),
        ]
    )


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
