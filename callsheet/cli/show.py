"""What the commands print for people: quotes, summaries, doubts, models. It decides nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from callsheet.cli.output import MOST_LISTED, err, out, print_facts, print_more, print_steps, safe
from callsheet.errors import CallsheetError
from callsheet.plain_text import counted, row_name
from callsheet.pricing.facts import as_facts, as_table
from callsheet.pricing.quote import Quote
from callsheet.records import Doubt, State, Totals, dollars
from callsheet.report.balance_evidence import Evidence
from callsheet.report.by_model import ModelLine
from callsheet.report.contact_sheet.links import browser_address
from callsheet.report.counts import ENDED
from callsheet.report.status import Status
from callsheet.report.summary import Removed, Summary
from callsheet.service.models import Model
from callsheet.watch import Asked

_LINES = 30  # of a table
_APPROVALS = 5  # the last ones
_REJECTS = 10  # of a quote
_EVENTS = 10  # that left jobs in doubt


def show_error(error: CallsheetError) -> None:
    """Prints an error and its hint to stderr."""
    first, *others = error.message.split("\n")
    err.print(f"[bold red]error:[/] {safe(first)}")
    for line in filter(None, (*others, *error.hint.split("\n"))):
        err.print(f"  {safe(line)}")


def show_quote(quote: Quote, console: Console = out) -> None:
    """Prints the quote: a line for each price, the sums, and the first rejects."""
    table = Table(box=SIMPLE_HEAD)
    lines = as_table(quote)
    numbers = ("bought", "to buy", "each", "USD")
    for name in ("model", "what", *numbers):
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=name in numbers)
    for line in lines[:_LINES]:
        sound = f"sound {line['sound']}" if line["sound"] else ""
        what = ", ".join(filter(None, (line["resolution"], line["duration"], sound)))
        table.add_row(safe(line["model"]), safe(what), *(line[name] for name in numbers))
    console.print(f"[bold]{safe(quote.plan.batch)}[/]")
    if lines:
        console.print(table)
    if len(lines) > _LINES:
        console.print(f"  and {len(lines) - _LINES} more prices")
    print_facts(console, as_facts(quote))
    rejects = quote.plan.rejects
    for line, column, _, reason in rejects.head(_REJECTS).iter_rows():
        where = ", ".join(filter(None, (f"line {line}", column)))
        console.print(f"  [yellow]{safe(where)}: {safe(reason)}[/]")
    more = rejects.height - _REJECTS
    if more > 0:
        console.print(f"  and {more:,} more in rejects.csv")
    if not quote.plan.jobs:
        console.print("[yellow]Nothing to buy: every row is rejected.[/]")
    elif not quote.to_buy and not quote.held:
        console.print("[green]Nothing to buy: everything is bought already.[/]")


def show_summary(summary: Summary, config: Path | None, *, media: str) -> None:
    """Prints the result of a run: by model, in money, what went wrong, where the files are, what to do next.

    Args:
        summary: the result.
        config: the config file, for the commands that can be typed next; None shows none.
        media: `storage.url`.
    """
    details, currency = summary.details, summary.currency
    colour = {"complete": "green", "partial": "yellow", "stopped": "red"}[summary.outcome]
    out.print(f"\n[bold {colour}]{safe(summary.batch)}: {summary.outcome}[/]")
    if details.models:
        out.print(_by_model(details.models))
        if len(details.models) > _LINES:
            out.print(f"  and {len(details.models) - _LINES} more models")
    facts = []
    if details.rows is not None:
        rejected = f"{summary.rejected_rows:,} rejected" if summary.rejected_rows else "none rejected"
        where = f": see {details.rejects}" if summary.rejected_rows else ""
        facts += [("Rows", f"{details.rows:,} read, {rejected}{where}")]
    facts += [("Jobs", f"{summary.jobs:,}: {summary.counts()}"), *_not_bought(summary)]
    facts += [
        *_removed(details.removed),
        ("Quoted", f"{dollars(summary.quoted)} {currency}"),
        ("Spent", f"{dollars(summary.spent)} {currency}"),
    ]
    facts += [("Other run", other.line()) for other in summary.other_runs]
    if summary.estimated_costs:
        facts += [("Estimated", summary.estimated())]
    if details.surcharges:
        facts += [("Surcharge", details.surcharges.line())]
    if summary.in_doubt_exposure:
        facts += [("In doubt", f"at most {dollars(summary.in_doubt_exposure)} {currency} more")]
    if summary.submissions or summary.seconds:
        sent = f"{counted(summary.submissions, 'submission')}, {summary.rate_limited:,} rate limited"
        facts += [("This run", f"{sent}, {summary.seconds:.1f} s")]
    facts += [
        ("Media", media),
        ("Manifest", summary.manifest),
        ("Costs", summary.costs),
        ("Report", summary.report),
    ]
    if details.contact_sheet:
        facts += [("Sheet", browser_address(details.contact_sheet))]
    print_facts(out, facts)
    for problem in details.problems:
        out.print(f"  [yellow]{safe(problem.line())}[/]")
    if details.other_problems:
        out.print(f"  [yellow]{details.other_problems:,} jobs with other reasons: see the costs file[/]")
    if config:
        print_steps(summary.next_steps(shlex.quote(str(config))))


def _by_model(lines: Sequence[ModelLine]) -> Table:
    """A line for each model; a state that no job is in has no column."""
    states = [state for state in ENDED if any(line.states[state] for line in lines)]
    some_open = any(line.open for line in lines)
    table = Table(box=SIMPLE_HEAD)
    table.add_column("model")
    names = ("jobs", *(state.replace("_", " ") for state in states), *(["open"] if some_open else []))
    for name in (*names, "quoted USD", "spent USD"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in sorted(lines, key=lambda line: -line.quoted)[:_LINES]:
        counts = [line.jobs, *(line.states[state] for state in states), *([line.open] if some_open else [])]
        money = [dollars(line.quoted), dollars(line.spent)]
        table.add_row(safe(line.model), *(f"{count:,}" for count in counts), *money)
    return table


def _not_bought(summary: Summary) -> Iterator[tuple[str, str]]:
    details = summary.details
    if details.stop_message:
        count = f"{summary.not_bought:,} of {counted(summary.jobs, 'job')}: " if summary.not_bought else ""
        label = "Not bought" if summary.not_bought else "Stopped" if summary.stop_reason else "Problem"
        yield label, f"{count}{details.stop_message}"
        if details.stop_hint:
            yield "", details.stop_hint
    elif summary.not_bought:
        yield "Not bought", f"{summary.not_bought:,} of {counted(summary.jobs, 'job')}"


def _removed(removed: Removed) -> Iterator[tuple[str, str]]:
    if removed.jobs:
        in_doubt = f", {removed.in_doubt:,} in doubt" if removed.in_doubt else ""
        pending = f", {removed.pending:,} pending" if removed.pending else ""
        spent = f"{dollars(removed.spent)} USD spent"
        jobs = f"{counted(removed.jobs, 'job')} of rows that the batch file no longer has"
        yield "Removed", f"{jobs}: {spent}{in_doubt}{pending}"


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
        out.print("Every job on one page:")
        out.print(safe(browser_address(summary.details.contact_sheet)))


def show_status(status: Status, doubts: Sequence[Doubt] = ()) -> None:
    """Prints the state of a batch, the runs that are at work, and these jobs in doubt, from the ledger."""
    out.print(f"[bold]{safe(status.batch)}[/]")
    counts = {state: status[state] for state in State if status[state]}
    if counts:
        table = Table(box=SIMPLE_HEAD)
        table.add_column("state")
        table.add_column("jobs", justify="right")
        for state, count in counts.items():
            table.add_row(state.replace("_", " "), f"{count:,}")
        out.print(table)
    else:
        out.print("  The ledger has no job of this batch: nothing was bought yet.")
    print_facts(
        out,
        [
            ("Spent", f"{dollars(status.spent)} USD"),
            ("In doubt", f"{dollars(status.in_doubt_exposure)} USD at most"),
            *(("At work", run.line()) for run in status.other_runs),
            *(("Asked", one.line()) for one in status.approvals[-_APPROVALS:]),
        ],
    )
    if doubts:
        _print_jobs(doubts, {})


def show_pilot(asked: Asked, console: Console) -> None:
    """Prints where the files of a pilot are, before the question whether to buy the rest."""
    table = Table("row", "model", "state", "file", box=SIMPLE_HEAD)
    for job in asked.pilot:
        table.add_row(
            safe(job.row), safe(job.model), job.state.replace("_", " "), safe(job.place or job.reason)
        )
    console.print("The pilot is bought:")
    console.print(table)
    if asked.contact_sheet:
        console.print(f"All of it on one page: {safe(browser_address(asked.contact_sheet))}")


def show_batches(batches: Mapping[str, Totals]) -> None:
    """Prints a line for every batch of a ledger, and the sum of what they cost."""
    states = [state for state in State if any(totals.states.get(state) for totals in batches.values())]
    table = Table(box=SIMPLE_HEAD)
    table.add_column("batch")
    for name in (*(state.replace("_", " ") for state in states), "USD spent", "USD in doubt"):
        table.add_column(name, justify="right", no_wrap=True)
    for batch, totals in batches.items():
        counts = [f"{totals.states.get(state, 0):,}" for state in states]
        table.add_row(safe(batch), *counts, dollars(totals.spent), dollars(totals.in_doubt_exposure))
    out.print(table)
    spent = sum((totals.spent for totals in batches.values()), Decimal(0))
    out.print(f"{counted(len(batches), 'batch', 'batches')}, {dollars(spent)} USD spent")


def show_doubts(
    batch: str, doubts: Sequence[Doubt], evidence: Evidence, lines: Mapping[str, int], config: Path
) -> None:
    """Prints the jobs in doubt, and the evidence whether they were charged.

    Args:
        batch: its name.
        doubts: the jobs.
        evidence: what says whether they were charged.
        lines: the line of each job in the batch file, by key, where the last plan has it.
        config: the config file, for the command that settles them.
    """
    out.print(f"[bold]{safe(batch)}[/]: {len(doubts):,} in doubt")
    _print_jobs(doubts, lines)
    out.print()
    print_facts(out, _evidence(evidence))
    out.print("  [dim]Other buyers in this workspace, and late costs, make these figures less certain.[/]")
    command = f"callsheet resolve {shlex.quote(str(config))}"
    out.print()
    out.print(f"To settle: {safe(command)} KEY... (or --all) --charged | --not-charged --why ...")


def show_accepted(batch: str, accepted: Sequence[Doubt], lines: Mapping[str, int], config: Path) -> None:
    """Prints the videos in doubt that the service has accepted, each with its id, and what to do about them.

    Args:
        batch: its name.
        accepted: the jobs; empty where nothing is in doubt at all.
        lines: the line of each job in the batch file, by key, where the last plan has it.
        config: the config file, for the commands.
    """
    if not accepted:
        out.print(f"[green]{safe(batch)}: nothing is in doubt.[/]")
        return
    name = shlex.quote(str(config))
    out.print(f"[bold]{safe(batch)}[/]: {_accepted(len(accepted))}, no doubt about money")
    _print_jobs(accepted, lines)
    out.print()
    out.print("  The service has accepted them. A run with the key that bought them asks for them again.")
    facts = [
        ("Ask now", f"callsheet collect {name}"),
        ("Give up", f"callsheet resolve {name} KEY... --give-up --charged | --not-charged --why ..."),
        ("", "--charged: its price is spent, and the video is lost"),
        ("", "--not-charged: the next run buys it again, and it may be paid for twice"),
    ]
    print_facts(out, facts)


def _accepted(count: int) -> str:
    return counted(count, "accepted video")


def _print_jobs(doubts: Sequence[Doubt], lines: Mapping[str, int]) -> None:
    """Prints the first of these jobs, with their ids where they have any, and what has happened to them."""
    ids = any(doubt.generation_id for doubt in doubts)
    names = ("key", "row", "model", "submitted (UTC)", "USD", *(["id"] if ids else []))
    table = Table(*names, box=SIMPLE_HEAD)
    rows_by_event: dict[str, list[str]] = {}
    for doubt in doubts:
        row = row_name(doubt.row_id, doubt.sample, lines.get(doubt.job_key))
        rows_by_event.setdefault(doubt.what, []).append(row)
        if table.row_count == MOST_LISTED:
            continue
        price = "unpriced" if doubt.price is None else dollars(doubt.price)
        when = f"{doubt.submitted_at:%Y-%m-%d %H:%M:%S}"
        cells = [doubt.job_key[:12], safe(row), safe(doubt.model), when, price]
        table.add_row(*cells, *([safe(doubt.generation_id or "")] if ids else []))
    out.print(table)
    print_more(len(doubts))
    for what, rows in islice(rows_by_event.items(), _EVENTS):
        out.print(f"  [bold]{safe(_some(rows))}[/]: {safe(what)}")
    if len(rows_by_event) > _EVENTS:
        out.print(f"  and {len(rows_by_event) - _EVENTS:,} more of what happened: see --json")


def _evidence(evidence: Evidence) -> Iterator[tuple[str, str]]:
    if expected := evidence.expected:
        spent = f"{dollars(expected.spent_since)} USD spent since then, by the ledger"
        then = f"{dollars(expected.balance_then)} USD on {expected.since:%Y-%m-%d %H:%M:%S} UTC"
        yield "Expected", f"{dollars(expected.balance_now)} USD: {then}, less {spent}"
    else:
        yield "Expected", "unknown: no run before these doubts read the balance"
    if evidence.missing:
        yield "Balance", f"this evidence is missing: {evidence.missing}"
    elif evidence.balance is not None:
        yield "Balance", f"{dollars(evidence.balance)} USD now"
    if expected and evidence.gone is not None:
        in_doubt = f"; in doubt since then: {dollars(expected.in_doubt)} USD"
        in_flight = f"; in flight now: {dollars(expected.in_flight)} USD" if expected.in_flight else ""
        if evidence.gone < 0:
            yield (
                "Gone",
                f"nothing: there are {dollars(-evidence.gone)} USD more, so money was paid in{in_doubt}",
            )
        else:
            yield "Gone", f"{dollars(evidence.gone)} USD more than the ledger has{in_doubt}{in_flight}"
    for day in evidence.days:
        yield f"{day.day}", f"{dollars(day.service)} USD by the service, {dollars(day.ledger)} by the ledger"


def show_settled(
    batch: str, doubts: Sequence[Doubt], *, charged: bool, left: int, left_out: Sequence[Doubt]
) -> None:
    """Prints the doubts that were settled, and how many are left.

    Args:
        batch: its name.
        doubts: what was settled.
        charged: how.
        left: how many jobs are still in doubt.
        left_out: those of them that the service has accepted.
    """
    if doubts:
        price = sum((doubt.price or Decimal(0) for doubt in doubts), Decimal(0))
        decision = "paid for, and lost" if charged else "free: the next run buys them again"
        out.print(f"[bold]{safe(batch)}[/]: {len(doubts)} settled ({dollars(price)} USD), {decision}")
        print_facts(out, [("Rows", _some([doubt.row_id for doubt in doubts])), ("In doubt", f"{left} left")])
    else:
        out.print(f"[bold]{safe(batch)}[/]: nothing is in doubt about money, so nothing was settled.")
    if given_up := [doubt.generation_id for doubt in doubts if doubt.generation_id]:
        twice = "" if charged else ". The service may charge for them: then they are paid for twice"
        out.print(f"  [yellow]Given up: {_accepted(len(given_up))}, {safe(_some(given_up))}{twice}.[/]")
    if ids := [doubt.generation_id for doubt in left_out if doubt.generation_id]:
        asked = "a run with the key that bought them asks for them again"
        out.print(f"  Left out: {_accepted(len(ids))}, {safe(_some(ids))}: {asked}.")


def _some(rows: Sequence[str]) -> str:
    """The first ten of these rows, and how many more there are."""
    return ", ".join(rows[:10]) + (f" and {len(rows) - 10} more" if len(rows) > 10 else "")


def show_models(models: Iterable[Model]) -> None:
    """Prints the catalogue: the values that each model supports, defaults first, and its prices."""
    for model in models:
        out.print(f"[bold]{safe(model.id)}[/]  {safe(model.type)}")
        if model.unreadable:
            print_facts(out, [("error", f"the service's entry cannot be read: {model.unreadable}")])
            continue
        supported = [
            ("ratios", ", ".join(model.supported_aspect_ratios)),
            ("sizes", ", ".join(model.supported_resolutions)),
            ("seconds", ", ".join(map(str, model.supported_durations))),
            ("images", ", ".join(f"{role} {most}" for role, most in model.supported_references.items())),
        ]
        print_facts(out, [(name, values) for name, values in supported if values])
        for rate in model.pricing.rates:
            sound = "" if rate.sound == "not_applicable" else f", {rate.sound.replace('_', ' ')}"
            price = f"{rate.unit_price} {model.pricing.currency} / {rate.billable_unit.replace('_', ' ')}"
            print_facts(out, [("price", f"{price} at {rate.resolution}{sound}")])
        if not model.pricing.rates:
            print_facts(out, [("price", "unpriced: the catalogue has no rate")])
