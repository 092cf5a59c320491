"""What a person sees on a terminal: the quote, the progress, the summary. It decides nothing.

Progress and notes go to stderr, results to stdout, so that `--json` and pipes stay clean.
"""

from __future__ import annotations

import sys
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from callsheet import signals
from callsheet.errors import CallsheetError
from callsheet.ledger.doubts import Evidence
from callsheet.pricing.quote import Quote
from callsheet.records import Doubt, Model, State, Totals, dollars
from callsheet.report.report import Summary
from callsheet.watch import Progress

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
_LINES = 30  # of a quote's table
PLAIN_EVERY = 5.0  # seconds between two lines of progress where stderr is no terminal


class Terminal:
    """Watches a run for the person at the terminal (a `watch.Watcher`)."""

    def __init__(self) -> None:
        self.summary: Summary | None = None
        self._bar: Bar | None = None
        self._last = time.monotonic()
        self._status = err.status("Starting Prefect ...")

    def unseen(self) -> None:
        """Says that the run is not in any UI, and how it would be."""
        err.print("[dim]This run is not in a Prefect UI; PREFECT_API_URL names the server of one.[/]")

    def start(self) -> None:
        """Says that something slow begins."""
        if err.is_terminal:
            self._status.start()
        else:
            err.print("Starting Prefect ...")

    def quoted(self, quote: Quote) -> None:
        """Shows the quote."""
        self._status.stop()
        show_quote(quote, err)

    def approves(self, quote: Quote) -> bool:
        """Asks, where there is a terminal to ask on."""
        if not (sys.stdin.isatty() and err.is_terminal):
            return False
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before the question is no answer to it
        question = rf"Buy {quote.to_buy} jobs for [bold]{dollars(quote.quoted)} USD[/]? \[y/N] "
        try:
            with signals.raised():
                return err.input(question).strip().lower() in ("y", "yes")
        except EOFError:
            err.print()
            return False

    def progress(self, progress: Progress) -> None:
        """A live bar on a terminal, else a line now and then."""
        if err.is_terminal:
            self._live(progress)
        elif time.monotonic() - self._last >= PLAIN_EVERY:
            self._last = time.monotonic()
            err.print(escape(progress.line()))

    def note(self, text: str) -> None:
        """Prints what a person should know."""
        err.print(f"[yellow]note:[/] {escape(text)}")

    def finished(self, summary: Summary) -> None:
        """Keeps the summary: it is shown when the flow has ended."""
        self.summary = summary

    def close(self) -> None:
        """Leaves the terminal as it was."""
        self._status.stop()
        if self._bar:
            self._bar.stop()

    def _live(self, progress: Progress) -> None:
        if self._bar is None:
            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
            )
            self._bar = Bar(*columns, console=err)
            self._bar.add_task("", total=progress.jobs)
            self._bar.start()
        spent = f"{dollars(progress.totals.spent)} USD  {progress.states()}"
        self._bar.update(self._bar.task_ids[0], completed=progress.done, description=spent)


def show_error(error: CallsheetError) -> None:
    """Prints what is wrong and what to do about it, to stderr."""
    err.print(f"[bold red]error:[/] {escape(error.message)}")
    if error.hint:
        err.print(f"  {escape(error.hint)}")


def show_quote(quote: Quote, console: Console = out) -> None:
    """Prints the quote: a line for each distinct price, what it comes to, and what is wrong where."""
    table = Table(box=SIMPLE_HEAD)
    lines = quote.table()
    numbers = ("bought", "to buy", "each", "USD")
    for name in ("model", "what", *numbers):
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=name in numbers)
    for line in lines[:_LINES]:
        sound = f"sound {line['sound']}" if line["sound"] else ""
        what = ", ".join(filter(None, (line["resolution"], line["duration"], sound)))
        table.add_row(escape(line["model"]), escape(what), *(line[name] for name in numbers))
    console.print(f"[bold]{quote.plan.batch}[/]")
    if lines:
        console.print(table)
    if len(lines) > _LINES:
        console.print(f"  and {len(lines) - _LINES} prices more")
    _pairs(console, quote.facts())
    rejects = quote.plan.rejects
    for line, column, _, reason in rejects.head(10).iter_rows():
        where = ", ".join(filter(None, (f"line {line}", column)))
        console.print(f"  [yellow]{escape(where)}: {escape(reason)}[/]")
    if rejects.height > 10:
        console.print(f"  and {rejects.height - 10:,} more in rejects.csv")
    if not quote.plan.jobs:
        console.print("[yellow]Nothing to buy: no row can be bought as it is.[/]")
    elif not quote.to_buy and not quote.held:
        console.print("[green]Nothing to buy: everything is bought already.[/]")


def show_summary(summary: Summary) -> None:
    """Prints how a batch stands after a run, and where its files are."""
    colour = {"complete": "green", "partial": "yellow", "stopped": "red"}[summary.outcome]
    out.print(f"\n[bold {colour}]{summary.batch}: {summary.outcome}[/]")
    if summary.stop_message:
        out.print(f"  stopped early: {escape(summary.stop_message)}")
    counts = {name: getattr(summary, name) for name in ("stored", "failed", "in_doubt", "lost", "pending")}
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing bought"
    pairs = [
        ("Jobs", f"{summary.jobs}: {shown}"),
        ("Quoted", f"{dollars(summary.quoted)} {summary.currency}"),
        ("Spent", f"{dollars(summary.spent)} {summary.currency}"),
    ]
    if summary.in_doubt:
        pairs += [("In doubt", f"at most {dollars(summary.in_doubt_exposure)} {summary.currency} more")]
    sent = f"{summary.submissions} submissions, {summary.rate_limited} rate limited"
    pairs += [
        ("This run", f"{sent}, {summary.seconds:.1f} s"),
        ("Manifest", summary.manifest),
        ("Costs", summary.costs),
        ("Report", summary.report),
    ]
    _pairs(out, pairs)
    for problem in summary.problems:
        out.print(f"  [yellow]{escape(problem)}[/]")


def show_demo(summary: Summary) -> None:
    """Says what the demo has made, and what to try next."""
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


def show_status(batch: str, totals: Totals) -> None:
    """Prints what the ledger says of a batch."""
    _pairs(
        out,
        [
            ("Batch", batch),
            *((state.value, str(totals.states.get(state, 0))) for state in State if totals.states.get(state)),
            ("spent", f"{dollars(totals.spent)} USD"),
            ("in doubt", f"{dollars(totals.in_doubt_exposure)} USD at most"),
        ],
    )


def show_doubts(batch: str, doubts: Sequence[Doubt], evidence: Evidence | None) -> None:
    """Prints what is in doubt, and what may tell whether it was charged."""
    if evidence is None:
        out.print(f"[green]{batch}: nothing is in doubt.[/]")
        return
    table = Table("key", "row", "model", "submitted (UTC)", "USD", box=SIMPLE_HEAD)
    happened: dict[str, list[str]] = {}
    for doubt in doubts:
        row = doubt.row_id if doubt.sample == 1 else f"{doubt.row_id} (sample {doubt.sample})"
        price = "unpriced" if doubt.price is None else dollars(doubt.price)
        when = f"{doubt.submitted_at:%Y-%m-%d %H:%M:%S}"
        table.add_row(doubt.job_key[:12], escape(row), escape(doubt.model), when, price)
        happened.setdefault(doubt.what, []).append(doubt.row_id)
    out.print(f"[bold]{batch}[/]: {len(doubts)} in doubt")
    out.print(table)
    for what, rows in happened.items():
        out.print(f"  [bold]{escape(_some(rows))}[/]: {escape(what)}")
    out.print()
    _pairs(out, _evidence(evidence))
    out.print("  [dim]Anybody else who buys in this workspace, and costs that lag, blur these figures.[/]")
    out.print("\nTo settle: callsheet resolve CONFIG KEY... (or --all) --charged | --not-charged --why ...")


def _evidence(evidence: Evidence) -> Iterator[tuple[str, str]]:
    if known := evidence.reckoning:
        spent = f"{dollars(known.spent_since)} USD that the ledger knows were spent since"
        then = f"{dollars(known.balance_then)} USD on {known.since:%Y-%m-%d %H:%M:%S} UTC"
        yield "Expected", f"{dollars(known.expected)} USD: {then}, less {spent}"
    else:
        yield "Expected", "unknown: no run before these doubts saw the balance"
    if evidence.missing:
        yield "Balance", f"this evidence is missing: {evidence.missing}"
    elif evidence.balance is not None:
        yield "Balance", f"{dollars(evidence.balance)} USD now"
    if known and evidence.gone is not None:
        beside = f"; in doubt since then: {dollars(known.in_doubt)} USD"
        flight = f"; in flight now: {dollars(known.in_flight)} USD" if known.in_flight else ""
        if evidence.gone < 0:
            yield (
                "Gone",
                f"nothing: there are {dollars(-evidence.gone)} USD more, so money was paid in{beside}",
            )
        else:
            yield "Gone", f"{dollars(evidence.gone)} USD more than the ledger knows of{beside}{flight}"
    for day in evidence.days:
        yield f"{day.day}", f"{dollars(day.service)} USD by the service, {dollars(day.ledger)} by the ledger"


def show_settled(batch: str, doubts: Sequence[Doubt], *, charged: bool, left: int) -> None:
    """Prints what was settled, and what is left."""
    price = sum((doubt.price or Decimal(0) for doubt in doubts), Decimal(0))
    end = "paid for, and lost" if charged else "free: the next run buys them again"
    out.print(f"[bold]{batch}[/]: {len(doubts)} settled ({dollars(price)} USD), {end}")
    _pairs(out, [("Rows", _some([doubt.row_id for doubt in doubts])), ("In doubt", f"{left} left")])


def _some(rows: Sequence[str]) -> str:
    """The first of these rows, as many as fit a line."""
    return ", ".join(rows[:10]) + (f" and {len(rows) - 10} more" if len(rows) > 10 else "")


def show_models(models: Iterable[Model]) -> None:
    """Prints the catalogue: what each model takes, defaults first, and what it costs."""
    for model in models:
        out.print(f"[bold]{escape(model.id)}[/]  {model.type}")
        if model.unreadable:
            _pairs(out, [("error", f"the service's entry cannot be read: {model.unreadable}")])
            continue
        takes = [
            ("ratios", ", ".join(model.supported_aspect_ratios)),
            ("sizes", ", ".join(model.supported_resolutions)),
            ("seconds", ", ".join(map(str, model.supported_durations))),
            ("images", ", ".join(f"{role} {most}" for role, most in model.supported_references.items())),
        ]
        _pairs(out, [(name, values) for name, values in takes if values])
        for rate in model.pricing.rates:
            sound = "" if rate.sound == "not_applicable" else f", {rate.sound.replace('_', ' ')}"
            price = f"{rate.unit_price} {model.pricing.currency} / {rate.billable_unit.replace('_', ' ')}"
            _pairs(out, [("price", f"{price} at {rate.resolution}{sound}")])
        if not model.pricing.rates:
            _pairs(out, [("price", "unpriced: the catalogue has no rate")])


def _pairs(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    for name, value in pairs:
        console.print(f"  [bold]{name:<9}[/] {escape(value)}")
