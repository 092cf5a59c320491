"""`review` marks what is stored as kept or rejected, from the command line, a file, or a page; `tidy` removes
what nobody wants.
"""

from __future__ import annotations

import asyncio
import io
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet.cli import keyboard
from callsheet.cli.output import (
    Config,
    Json,
    Sets,
    err,
    load_batch,
    out,
    path_at_home,
    print_json,
)
from callsheet.errors import ConfigError
from callsheet.plain_text import counted
from callsheet.present.console import print_page, safe
from callsheet.present.page import Line

if TYPE_CHECKING:
    from callsheet.config.settings import BatchSettings
    from callsheet.report.summary import ReviewResult
    from callsheet.report.tidy import Tidying
    from callsheet.reviewing.written_marks import Said

_WHICH = "ROW[/NUMBER]"
_ALL_ADDRESSES = ("", "0.0.0.0", "::", "*")  # noqa: S104 - they are refused
_WARNING = (
    "Whoever has this link and reaches this machine sees the page, and can mark files; nothing can be bought "
    "there. It is not encrypted: others in the network may read what is sent, the link too. Use it where you "
    "trust them."
)


def review(
    config: Config,
    *,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar=_WHICH, help="Keep the files of a row, or one of them; repeatable."),
    ] = None,
    reject: Annotated[
        list[str] | None, typer.Option("--reject", metavar=_WHICH, help="Reject them; repeatable.")
    ] = None,
    clear: Annotated[
        list[str] | None, typer.Option("--clear", metavar=_WHICH, help="Take a mark back; repeatable.")
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Why, for these marks.")] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="MARKS.CSV",
            parser=path_at_home,
            help="Take the marks of a file: row_id,sample,index,decision,note,by.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", help="Serve the page at this port; 0: any that is free."),
    ] = 0,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Serve the page to your network, at this machine's address there.",
        ),
    ] = None,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Look at what is stored, and mark it as kept or rejected. It buys nothing.

    Without marks it serves the contact sheet on this machine, until Ctrl-C: K keeps, X rejects, arrows move.

    callsheet review CONFIG --keep cup/2 --reject cup keeps one file, and rejects the others of the row.

    callsheet run CONFIG --again buys one more sample of each row of which every file is rejected;
    callsheet export CONFIG --kept hands on what is kept.
    """
    settings = load_batch(config, set_)
    marks = _given_marks(keep, reject, clear, note, from_)
    is_served = not (marks or from_ or json)
    for option, is_given in (("--port", port != 0), ("--host", host is not None)):
        if is_given and not is_served:
            raise ConfigError(f"{option} is for the page, which is served without marks and without --json")
    if host in _ALL_ADDRESSES:
        hint = "Name the one that a phone or tablet in your network reaches, such as 192.168.1.20."
        raise ConfigError(f"--host {host} means all addresses of this machine", hint=hint)
    if is_served:
        review_result = _served(settings, config, host, port)
    else:
        from callsheet.reviewing.written_marks import enter_marks

        changed, review_result = asyncio.run(enter_marks(settings, marks))
        if json:
            print_json(review_result)
            return
        print_page(out, [Line(f": {counted(changed, 'file')} marked", strong=settings.batch)])
    from callsheet.present.status import review_screen

    print_page(out, review_screen(review_result, shlex.quote(str(config))))


def tidy(
    config: Config,
    older_than: Annotated[
        int, typer.Option("--older-than", metavar="DAYS", min=0, help="Only what is unwanted so long.")
    ] = 30,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them without a question.")] = False,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """List the stored files that nobody wants any more, and remove them on a yes. It buys nothing.

    They are rejected; or the batch file no longer asks for them, and nobody has kept them.

    The ledger keeps what it knows of them, so none is bought again; export, report and status go on.
    """
    settings = load_batch(config, set_)
    removed, tidying = asyncio.run(_tidied(settings, older_than, yes=yes, is_quiet=json))
    if json:
        counts = {"files": tidying.files, "bytes": tidying.bytes, "cost": tidying.cost, "removed": removed}
        print_json({"batch": settings.batch, **counts})
        return
    from callsheet.present.status import tidy_screen

    if removed or not tidying.files:
        print_page(out, tidy_screen(settings.batch, tidying, days=older_than, removed=removed))
    elif not yes:
        err.print("Nothing was removed; --yes removes them.")


async def _tidied(settings: BatchSettings, days: int, *, yes: bool, is_quiet: bool) -> tuple[bool, Tidying]:
    """Lists, asks where there is a terminal to ask on, and removes: whether it did, and the files."""
    from callsheet.ledger.databases import check_exists
    from callsheet.ledger.ledger import Ledger
    from callsheet.present.status import tidy_screen
    from callsheet.report.tidy import find_unwanted, remove

    done = 0

    def progress(files: int) -> None:
        nonlocal done
        done += files
        status.update(f"{counted(done, 'file')} removed")

    check_exists(settings.ledger.url)
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        unwanted = await find_unwanted(ledger, settings, days)
        if not unwanted.files:
            return False, unwanted
        if not is_quiet:
            print_page(out, tidy_screen(settings.batch, unwanted, days=days))
        if not (yes or (not is_quiet and await _is_yes("Remove them from storage?"))):
            return False, unwanted
        with err.status("Removing ...") as status:
            return True, await remove(ledger, settings, unwanted, days, progress)


async def _is_yes(question: str) -> bool:
    if not (sys.stdin.isatty() and err.is_terminal):
        return False
    keyboard.forget()  # what was typed before the question is not an answer
    err.print(rf"{question} \[y/N] ", end="")
    return (await keyboard.line()).strip().lower() in ("y", "yes")


def _given_marks(
    keep: list[str] | None,
    reject: list[str] | None,
    clear: list[str] | None,
    note: str | None,
    from_: Path | None,
) -> list[Said]:
    """The marks of the command line, or of the file.

    Raises:
        ConfigError: they exclude each other.
        InputError: the file cannot be read, or is wrong.
    """
    from callsheet.ledger.marks import MediaDecision
    from callsheet.reviewing.written_marks import of_row, read_marks

    options = (
        ("--keep", keep, MediaDecision.KEPT),
        ("--reject", reject, MediaDecision.REJECTED),
        ("--clear", clear, None),
    )
    marks = [of_row(row, decision, note, name) for name, rows, decision in options for row in rows or ()]
    if from_ and marks:
        raise ConfigError("--from cannot be combined with --keep, --reject and --clear")
    if note and not marks:
        raise ConfigError("--note says why a row is marked", hint="Add --keep, --reject or --clear.")
    return read_marks(from_) if from_ else marks


def _served(settings: BatchSettings, config: Path, host: str | None, port: int) -> ReviewResult:
    """Serves the page until Ctrl-C. Returns how far the batch is reviewed then."""
    import segno

    from callsheet.cli.rows import open_in_browser
    from callsheet.reviewing.guard import LOOPBACK
    from callsheet.reviewing.server import serve

    def announce(link: str) -> None:
        out.print(safe(link))
        out.file.flush()
        opened = open_in_browser(link)
        hint = "" if opened else "No browser could be opened here: open this link in yours. "
        err.print(f"{hint}It works until Ctrl-C, which ends the review; each mark is kept at once.")
        if host is None:
            return
        err.print(_WARNING)
        if err.is_terminal:
            code = io.StringIO()
            segno.make(link).terminal(code, compact=True)
            err.print(code.getvalue(), highlight=False, soft_wrap=True)

    return asyncio.run(serve(settings, str(config), (host or LOOPBACK).lower(), port, announce))
