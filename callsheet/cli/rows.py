"""`show`, `failed`, `report`, `open` and `export`: single rows, the report anew, and its files."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import webbrowser
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from callsheet import signals
from callsheet.cli.output import (
    Config,
    Json,
    Sets,
    T,
    err,
    load_batch,
    load_settings,
    open_ledger,
    out,
    print_json,
    print_json_list,
)
from callsheet.errors import CallsheetError, InputError
from callsheet.plain_text import and_more, counted, line_of, printable
from callsheet.present.console import print_page, safe
from callsheet.present.page import MOST_LISTED, Facts, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import polars as pl
    from sqlalchemy import Connection

    from callsheet.config.settings import BatchSettings, Settings
    from callsheet.export.files import Exported
    from callsheet.ledger.queries import Story


def show(
    config: Config,
    row: Annotated[
        str,
        typer.Argument(
            metavar="ROW",
            help="A row's id, 'line 4' of a row without one, or how a job's key begins (8 digits at least).",
            show_default=False,
        ),
    ],
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Tell all that is known of a row: its request, attempts, times, costs, files and reasons."""
    from callsheet.ledger import leases, origins, queries
    from callsheet.present import stories
    from callsheet.records import State

    settings = load_batch(config, set_)
    row_id = _id_of(row, settings)

    def read(connection: Connection, batch: str) -> tuple[list[Story], str]:
        told = origins.flagged(connection, queries.stories(connection, batch, row_id))
        return told, leases.refusal(connection, batch)

    attempts, refusal = _read(settings, read)
    planned = _planned(settings, row_id, {story.job_key for story in attempts})
    if not planned and not any(story.newest and story.state == State.PLANNED for story in attempts):
        refusal = ""
    if not attempts and not planned:
        hint = "callsheet status CONFIG counts its jobs. A wrong row has no job; see rejects.csv."
        if "/" in row:
            hint += f" A row's samples are shown together: callsheet show CONFIG {row.rpartition('/')[0]}."
        raise CallsheetError(
            f"the batch {settings.batch} has no row {row}: neither in the ledger nor in the last quote",
            hint=hint,
        )
    if json:
        as_sent = [story.as_json() | {"request": story.request} for story in attempts]
        print_json(
            {"batch": settings.batch, "row": row, "attempts": as_sent}
            | {"not_bought_yet": list(planned), "refused": refusal}
        )
    else:
        print_page(out, stories.screen(settings.batch, row, attempts, planned, refusal))


def _id_of(row: str, settings: BatchSettings) -> str:
    """A row's id by its name, for `line 4` by the lines of the batch file as it was priced last.

    Raises:
        InputError: no such row is on that line, or nothing was priced on this machine.
    """
    if line_of(row) is None:
        return row
    from callsheet.pricing.choice import row_id_of
    from callsheet.pricing.plan import last_priced

    plan = last_priced(settings)
    if plan is None:
        hint = "callsheet quote CONFIG reads the batch file."
        raise InputError(f"{row}: no quote of {settings.batch} is here that knows the lines", hint=hint)
    return row_id_of(row, plan.table)


def _planned(settings: BatchSettings, row_id: str, tried: Collection[str]) -> dict[str, str]:
    """By key, the request of each job of the row that was priced last and never tried, as JSON text."""
    import polars as pl

    from callsheet.pricing.plan import last_priced

    plan = last_priced(settings)
    if plan is None:
        return {}
    new = (pl.col("row_id") == row_id) & ~pl.col("key").is_in(list(tried)) & pl.col("request").is_not_null()
    return dict(plan.table.filter(new).select("key", "request").iter_rows())


def failed(
    config: Config,
    csv: Annotated[
        bool,
        typer.Option("--csv", help="Print their rows as a batch file, to correct and run again."),
    ] = False,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """List the jobs that failed, each with the service's reason.

    With --csv, corrected rows are bought with the same config:

    callsheet failed CONFIG --csv > again.csv

    callsheet run CONFIG --set input.path=again.csv
    """
    from callsheet.ledger import queries
    from callsheet.present.stories import failed_screen
    from callsheet.pricing.plan import last_plan
    from callsheet.standing import read_standing

    settings = load_batch(config, set_)
    if csv and json:
        raise CallsheetError("--csv and --json exclude each other", hint="Choose one of them.")
    plan = last_plan(settings)

    def read(connection: Connection, batch: str) -> tuple[pl.DataFrame, list[Story]]:
        jobs = read_standing(connection, batch, plan.table if plan else None).failed
        if json:
            failures = queries.stories_of(connection, jobs["key"].to_list())
            print_json_list({"batch": batch}, "failed", failures)
        listed = [] if csv or json else jobs["key"].head(MOST_LISTED).to_list()
        return jobs, list(queries.stories_of(connection, listed))

    jobs, stories = _read(settings, read)
    if csv:
        if jobs.is_empty():
            raise CallsheetError(f"{settings.batch}: no job has failed", hint="So there is no row to print.")
        _print_rows(load_settings(config, set_), set(jobs["row_id"]))
    elif not json:
        lines = plan.line_numbers([story.job_key for story in stories]) if plan else {}
        charged, name = Decimal(jobs["cost"].sum()), shlex.quote(str(config))
        page = failed_screen(settings.batch, stories, lines, name, jobs=jobs.height, charged=charged)
        print_page(out, page)


def _print_rows(settings: Settings, row_ids: set[str]) -> None:
    """Prints these rows as a batch file that the same config reads; a terminal gets no control characters."""
    from callsheet.batches.delimited import written
    from callsheet.batches.read import original_rows

    rows, input_settings = original_rows(settings, row_ids), settings.input
    is_shown = sys.stdout.isatty()
    encoding = None if is_shown else input_settings.encoding
    content = written(rows, delimiter=input_settings.delimiter, quote=input_settings.quote, encoding=encoding)
    if is_shown:
        sys.stdout.writelines(f"{printable(line)}\n" for line in content.decode().splitlines())
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    err.print(f"{counted(rows.height, 'row')} to correct, and to run with --set input.path=FILE")


def _read(settings: BatchSettings, query: Callable[[Connection, str], T]) -> T:
    async def read() -> T:
        async with open_ledger(settings.ledger.url, settings.batch) as ledger:
            return await ledger.read(query)

    return asyncio.run(read())


def report(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Write the report, the plots and the contact sheet anew, and check files that are not checked yet. Asks
    the service nothing.
    """
    from callsheet.present import results
    from callsheet.steps.record import report_anew

    settings = load_batch(config, set_)
    summary = asyncio.run(report_anew(settings, lambda text: err.print(safe(text))))
    if json:
        print_json(summary)
    else:
        print_page(out, results.screen(summary, shlex.quote(str(config)), media=settings.storage.url))


def open_(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Open the batch's contact sheet in the browser, and print its address.

    Where the report is on S3, the page can be opened if its links are signed (report.links_valid_for).
    """
    settings = load_batch(config, set_)
    address, hint = asyncio.run(_address(settings))
    opened = not hint and open_in_browser(address)
    if json:
        print_json({"batch": settings.batch, "contact_sheet": address, "opened": opened})
    else:
        out.print(safe(address))
    if not opened:
        err.print(safe(hint or "No browser could be opened here: open this address in yours."))


async def _address(settings: BatchSettings) -> tuple[str, str]:
    """The page's address, and what to do where a browser cannot open that."""
    from callsheet.report.contact_sheet.cards import Links, browser_address
    from callsheet.report.contact_sheet.sheet import INDEX
    from callsheet.storage.store import Store

    store = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
    url = store.url_of(INDEX)
    if await store.read(INDEX) is None:
        makes = "callsheet run CONFIG or callsheet collect CONFIG makes it"
        hint = f"{makes}, from its first seconds on, unless report.contact_sheet is 0."
        raise InputError(f"{url}: there is no contact sheet yet", hint=hint)
    if not url.startswith("s3://"):
        return browser_address(url), ""
    links = Links(settings)
    if links.signs_own_files:
        return links.to_own(INDEX), ""
    folder = url.removesuffix("/index.html")
    return url, (
        f"A browser cannot open it there. aws s3 sync {folder} contact-sheet copies the page to this "
        "machine; a run with --set report.links_valid_for=86400 signs its links for a day, and then it opens."
    )


def open_in_browser(address: str) -> bool:
    """Whether a browser was told to open it. A browser for text would take the terminal, so none is used."""
    graphical = sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & {
        *os.environ
    }
    return bool(graphical) and webbrowser.open(address)


def export(
    config: Config,
    to: Annotated[
        str,
        typer.Option("--to", metavar="FOLDER|s3://...", help="Where to, new or empty.", show_default=False),
    ],
    as_: Annotated[
        Literal["folder", "csv", "imagefolder", "webdataset", "otio", "page"],
        typer.Option(
            "--as",
            metavar="KIND",
            help="What to make: folder, csv, imagefolder, webdataset, otio or page.",
        ),
    ] = "folder",
    *,
    kept: Annotated[bool, typer.Option("--kept", help="Only the files that are marked as kept.")] = False,
    bom: Annotated[
        bool, typer.Option("--bom", help="CSV files with a byte order mark, for Excel.", show_default=False)
    ] = False,
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="TEMPLATE", help="How the files of a folder are named: columns in braces."
        ),
    ] = "{row_id}",
    still_seconds: Annotated[
        float, typer.Option("--still-seconds", metavar="N", min=0.1, help="How long a cut shows an image.")
    ] = 3.0,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Hand on what is stored: as files for people, a page for a client, a cut for editors, or tables and data
    sets for programs.

    The same command again goes on after any stop, and brings an earlier export up to date: it copies nothing
    twice, and removes what is not part of it any more.

    callsheet export batch.yaml --to handed-on --kept

    callsheet export batch.yaml --to s3://bucket/set --as webdataset --kept
    """
    from callsheet.export.export import Kind, export

    if bom and as_ != "csv":
        raise CallsheetError(f"--bom cannot be combined with --as {as_}", hint="It is for --as csv.")
    if name != "{row_id}" and as_ not in ("folder", "otio", "page"):
        raise CallsheetError(f"--name cannot be combined with --as {as_}", hint="It is for --as folder.")
    settings = load_batch(config, set_)
    done = 0

    def progress(files: int) -> None:
        nonlocal done
        done += files
        status.update(f"{counted(done, 'file')} copied")

    async def write() -> Exported:
        with signals.cancelled_by_signals():
            return await export(
                settings, to, Kind(as_), progress, kept=kept, bom=bom, name=name, still_seconds=still_seconds
            )

    with err.status("Reading the ledger ...") as status:
        exported = asyncio.run(write())
    if json:
        counts = {name: getattr(exported, name) for name in exported.__slots__}
        print_json({"batch": settings.batch, "to": to, "as": as_} | counts)
        return
    copied = counted(exported.copied, "table" if as_ == Kind.CSV.value else "stored file")
    facts = [
        ("There now", counted(exported.files, "file")),
        ("Copied", f"{copied} by this export, {exported.bytes:,} bytes"),
    ]
    if exported.removed:
        are = "is" if exported.removed == 1 else "are"
        facts.append(("Removed", f"{counted(exported.removed, 'file')} that {are} not part of it any more"))
    if exported.left_out:
        facts.append(("Left out", f"{counted(exported.left_out, 'video')}: --as folder takes them"))
    if exported.unmarked:
        formats = "their format does not carry where a file came from"
        facts.append(("Provenance", f"not in {counted(exported.unmarked, 'file')}: {formats}"))
    if gone := exported.not_there:
        named = f"{counted(len(gone), 'file')} that nobody wants: {and_more(gone[:3], len(gone))}"
        facts.append(("Not there", named))
    print_page(out, [Line(f": exported as {as_} to {to}", strong=settings.batch), Facts(facts)])
