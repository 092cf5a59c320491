"""`costs`: what all batches of a ledger came to, beside the month before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet.cli.init import check_free
from callsheet.cli.output import (
    Json,
    Sets,
    ledger_url,
    open_ledger,
    out,
    path_at_home,
    print_json,
    utc_day,
)
from callsheet.files import disk_errors
from callsheet.present.console import print_page
from callsheet.present.page import Line

if TYPE_CHECKING:
    from callsheet.report.month import LedgerCosts


def costs(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG",
            help="A config of the ledger; without it out/ledger.db, or --set ledger.url=...",
            show_default=False,
        ),
    ] = None,
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="The first UTC day. Without it: the first of this month."),
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="WHAT", help="day, month, batch, model, or a column of the batch files.")
    ] = "batch",
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=path_at_home, help="Also write the table there, as CSV."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=path_at_home, help="Also draw what was spent each day, as PNG."),
    ] = None,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Say what all batches of a ledger came to, beside the month before, from the ledger alone.

    What was sent since a day: spent, in doubt, kept, what a kept file costs, and what was charged above the
    quotes. Days are those of the submission, UTC. Files that exist are left as they are.

    callsheet costs --since 2026-01-01 --by month

    callsheet costs batch.yaml --by product --csv products.csv
    """
    from callsheet.export.tables import as_csv
    from callsheet.present import spent
    from callsheet.report.month import read_costs
    from callsheet.report.plots import month_plot

    first = utc_day("--since", since)
    files = [file for file in (csv, plot) if file]
    check_free(*files, hint="Name another file, or move it away.")

    async def read(url: str) -> LedgerCosts:
        async with open_ledger(url, "") as opened:
            return await read_costs(opened, by, first)

    result = asyncio.run(read(ledger_url("costs", config, set_)))
    contents = [as_csv(spent.table(result))] if csv else []
    contents += [month_plot(result)] if plot else []
    for file, content in zip(files, contents, strict=True):
        with disk_errors(file, "the name"):
            file.write_bytes(content)
    if json:
        print_json(result)
    else:
        print_page(out, [*spent.screen(result), *(Line(f"Wrote {file}") for file in files)])
