"""`export`: what a batch has stored, handed on as tables, an image folder, or shards of a data set."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from callsheet import signals
from callsheet.cli.options import Config, Json, Sets, load_batch
from callsheet.cli.output import print_json
from callsheet.errors import CallsheetError
from callsheet.plain_text import counted

if TYPE_CHECKING:
    from callsheet.exports import Exported


def export(
    config: Config,
    to: Annotated[
        str,
        typer.Option("--to", metavar="FOLDER|s3://...", help="Where to, new or empty.", show_default=False),
    ],
    as_: Annotated[
        Literal["csv", "imagefolder", "webdataset"],
        typer.Option("--as", help="What to make.", show_default=False),
    ],
    *,
    kept: Annotated[bool, typer.Option("--kept", help="Only the files that are marked as kept.")] = False,
    bom: Annotated[
        bool, typer.Option("--bom", help="CSV files with a byte order mark, for Excel.", show_default=False)
    ] = False,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Hand on what is stored: as CSV files, an image folder with metadata, or WebDataset shards.

    The same command again goes on after any stop, and brings an earlier export up to date: it copies nothing
    twice, and removes what is not part of it any more.
    """
    from callsheet.cli.output import err, out, print_facts, safe
    from callsheet.exports import Kind, export

    if bom and as_ != "csv":
        raise CallsheetError(f"--bom cannot be combined with --as {as_}", hint="It is for --as csv.")
    settings = load_batch(config, set_)
    done = 0

    def progress(files: int) -> None:
        nonlocal done
        done += files
        status.update(f"{counted(done, 'file')} copied")

    async def write() -> Exported:
        with signals.cancelled_by_signals():
            return await export(settings, to, Kind(as_), progress, kept=kept, bom=bom)

    with err.status("Reading the ledger ...") as status:
        made = asyncio.run(write())
    if json:
        counts = {name: getattr(made, name) for name in made.__slots__}
        print_json({"batch": settings.batch, "to": to, "as": as_} | counts)
        return
    out.print(f"[bold]{safe(settings.batch)}[/]: exported as {as_} to {safe(to)}")
    facts = [("Files", f"{made.files:,}: {made.copied:,} copied by this export, {made.bytes:,} bytes")]
    if made.removed:
        are = "is" if made.removed == 1 else "are"
        facts.append(("Removed", f"{counted(made.removed, 'file')} that {are} not part of it any more"))
    if made.left_out:
        facts.append(("Left out", f"{counted(made.left_out, 'video')}: --as webdataset takes them"))
    print_facts(out, facts)
