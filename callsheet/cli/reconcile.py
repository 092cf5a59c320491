"""`reconcile`: the ledger next to the service's own account, day by day."""

from __future__ import annotations

import asyncio
import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet import signals
from callsheet.cli.options import Config, Json, Sets, load_settings, open_client
from callsheet.cli.output import print_json
from callsheet.errors import CallsheetError

if TYPE_CHECKING:
    from callsheet.config.settings import Settings
    from callsheet.report.reconcile import Reconciliation

_Start = Annotated[
    str | None,
    typer.Option(metavar="DATE", help="The first UTC day. Without it: the first day in the ledger."),
]
_End = Annotated[
    str | None, typer.Option(metavar="DATE", help="The last UTC day, inclusive. Without it: today.")
]


def reconcile(
    config: Config, start: _Start = None, end: _End = None, set_: Sets = None, json: Json = False
) -> None:
    """Compare quotes, answered costs and the service's own account, day by day. Buys and settles nothing.

    What is certain of each difference has a name; reconcile.parquet in the report keeps the result. Costs are
    of every key of the project, and lag; the balance is of the whole workspace.

    Exit codes: 0 nothing is unexplained, or not more than reconcile.threshold; 3 more is; 2 a wrong config or
    range; 4 the service cannot be asked.
    """
    settings = load_settings(config, set_)
    days = _day("--start", start), _day("--end", end)
    result = asyncio.run(_reconcile(settings, *days))
    if json:
        print_json(result.as_json(str(config)))
    else:
        _show(result, config)
    raise typer.Exit(3 if result.is_over else 0)


def _day(option: str, text: str | None) -> date | None:
    if text is None:
        return None
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise CallsheetError(f"{option} {text!r} is not a date", hint="Write a UTC day as 2026-01-31.")


async def _reconcile(settings: Settings, start: date | None, end: date | None) -> Reconciliation:
    from callsheet.report.reconcile import reconcile

    with signals.cancelled_by_signals():
        async with await open_client(settings) as client:
            return await reconcile(settings, client, start, end)


def _show(result: Reconciliation, config: Path) -> None:
    from callsheet.cli.output import out, print_facts, safe
    from callsheet.records import dollars

    colour, ending = ("red", "not reconciled") if result.is_over else ("green", "reconciled")
    out.print(f"[bold {colour}]{safe(result.batch)}: {ending}[/], {result.range()}")
    _print_table(result)
    print_facts(out, result.facts())
    if result.is_over:
        over = f"{dollars(result.total('unexplained'))} {result.currency}"
        threshold = f"reconcile.threshold is {dollars(result.threshold)}"
        print_facts(out, [("Over", f"{over} unexplained, and {threshold}")])
    for name, lines in (("Doubts", result.doubt_lines()), ("Accepted", result.accepted_lines())):
        print_facts(out, [(name, line) for line in lines[:1]])
        for line in lines[1:]:
            out.print(f"    {safe(line)}")
    print_facts(out, [("File", result.file)])
    print_facts(out, [("Next", command) for command in result.resolving(str(config))])
    out.print(
        "  [dim]Costs are of all keys of the project, and lag; the balance is of the whole workspace.[/]"
    )


def _print_table(result: Reconciliation) -> None:
    """Prints the days. Where it is piped, a day is one line, however long its reason is."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from callsheet.cli.output import out, safe

    table = Table(box=SIMPLE_HEAD)
    *names, reason = ("UTC day", "quoted", "usage", "in doubt", "billed", "difference", "reason")
    for name in names:
        table.add_column(name, justify="left" if name == "UTC day" else "right", no_wrap=True)
    table.add_column(reason)
    for line in result.table():
        table.add_row(*map(safe, line.values()))
    console = out
    if not out.is_terminal:
        width = out.measure(table, options=out.options.update(width=100_000)).maximum
        console = Console(width=width, highlight=False, soft_wrap=True)
    console.print(table)
