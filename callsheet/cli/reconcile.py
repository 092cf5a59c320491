"""`reconcile`: the ledger next to the service's own account, day by day."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet import signals
from callsheet.cli.options import Config, Json, Sets, load_settings, open_client
from callsheet.cli.output import out, print_facts, print_json, print_line, safe, table_of
from callsheet.errors import CallsheetError
from callsheet.records import dollars

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
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        hint = "Write a UTC day as 2026-01-31."
        raise CallsheetError(f"{option} {text!r} is not a date", hint=hint) from None


async def _reconcile(settings: Settings, start: date | None, end: date | None) -> Reconciliation:
    from callsheet.report.reconcile import reconcile

    with signals.cancelled_by_signals():
        async with await open_client(settings) as client:
            return await reconcile(settings, client, start, end)


def _show(result: Reconciliation, config: Path) -> None:
    colour, ending = ("red", "not reconciled") if result.is_over else ("green", "reconciled")
    out.print(f"[bold {colour}]{safe(result.batch)}: {ending}[/], {result.range()}")
    _print_table(result)
    print_facts(out, result.facts())
    if result.is_over:
        over = f"{dollars(result.total('unexplained'))} USD"
        threshold = f"reconcile.threshold is {dollars(result.threshold)}"
        print_facts(out, [("Over", f"{over} unexplained, and {threshold}")])
    for name, lines in (("Doubts", result.doubt_lines()), ("Accepted", result.accepted_lines())):
        print_facts(out, [(name, line) for line in lines[:1]])
        for line in lines[1:]:
            print_line(out, f"    {safe(line)}", 6)
    print_facts(out, [("File", result.file)])
    for command in result.resolving(str(config)):
        out.print(f"  [bold]{'Next':<10}[/] {safe(command)}")  # in one piece, to be copied
    words = "Costs are of all keys of the project, and lag; the balance is of the whole workspace."
    print_line(out, f"  [dim]{words}[/]", 2)


def _print_table(result: Reconciliation) -> None:
    """Prints the days, and below them the reason of each one that has a difference."""
    table = table_of(["UTC day"], ("quoted", "usage", "in doubt", "billed", "difference"))
    lines = result.table()
    for line in lines:
        table.add_row(*(safe(value) for name, value in line.items() if name != "reason"))
    out.print(table)
    for line in lines:
        if line["reason"]:
            print_line(out, f"  {line['date']}: {safe(line['reason'])}")
