"""`ledger`: what a person may do with the ledger, besides settling doubts (`resolve`)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet.cli.output import (
    Config,
    Json,
    Sets,
    at_home,
    load_batch,
    load_settings,
    open_ledger,
    path_at_home,
    print_json,
)
from callsheet.errors import CallsheetError
from callsheet.plain_text import printable

if TYPE_CHECKING:
    from callsheet.config.settings import Settings

app = typer.Typer(
    name="ledger",
    no_args_is_help=True,
    help="Back up or move the ledger, or change what it knows of a batch.",
)


@app.command()
def backup(
    config: Config,
    to: Annotated[
        Path,
        typer.Option(
            metavar="FILE", parser=path_at_home, help="The copy: a new SQLite file.", show_default=False
        ),
    ],
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Copy the whole ledger, all its batches, into a new file, and compare the copy row for row.

    Runs may be under way: the copy is of one moment, and a ledger like any other (--set ledger.url=...).
    """
    from callsheet.ledger.databases import back_up

    counts = back_up(load_batch(config, set_).ledger.url, to)
    if json:
        print_json({"backup": str(to), "rows": counts})
    else:
        typer.echo(printable(f"{to}: {counts['attempts']:,} attempts, {counts['media']:,} files, compared"))


@app.command()
def move(
    config: Config,
    to: Annotated[
        str,
        typer.Option(
            metavar="URL",
            parser=at_home,
            help="An empty database: postgresql+psycopg://user:password@host/name, or sqlite:///new.db.",
            show_default=False,
        ),
    ],
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Move the whole ledger, all its batches, into another database, and compare them row for row.

    No run may be at work. The old ledger cannot be opened any more: two that both go on would buy twice.
    """
    from callsheet.ledger import databases

    counts = databases.move(load_batch(config, set_).ledger.url, to)
    if json:
        print_json({"moved": True, "rows": counts})
    else:
        moved = f"moved {counts['attempts']:,} attempts and {counts['media']:,} files, compared"
        typer.echo(printable(f"{moved}. Set ledger.url of every config to the new address."))


@app.command()
def upgrade(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Upgrade a ledger that an older Callsheet has made; `run` and `collect` do so by themselves.

    No run may be at work. A SQLite ledger is copied before, into its folder. Older Callsheets cannot open it
    any more.
    """
    from callsheet.ledger import databases
    from callsheet.ledger.tables import SCHEMA_VERSION

    url, done = load_batch(config, set_).ledger.url, list[str]()
    databases.check_exists(url)
    databases.upgrade(url, done.append)
    if json:
        print_json({"upgraded": bool(done), "ledger_version": SCHEMA_VERSION})
    else:
        typer.echo(
            printable("".join(done) or f"the ledger has schema {SCHEMA_VERSION}, that of this Callsheet")
        )


@app.command("service-moved")
def service_moved(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Record that the batch's service has a new address, service.base_url of the config.

    All batches of the ledger that belong to that service are at the new address then.
    Only for the same service: another one does not know what the batch has bought.
    """
    settings = load_settings(config, set_)
    service, batches = asyncio.run(rebind(settings))
    if not batches:
        raise CallsheetError(
            f"the ledger knows of no service of the batch {settings.batch}: nothing was sent yet",
            hint="Check batch and ledger.url. callsheet status CONFIG says what the ledger has.",
        )
    if json:
        print_json({"batch": settings.batch, "service": service, "batches": batches})
    else:
        typer.echo(printable(f"{', '.join(batches)}: the service is at {service} from now on"))


async def rebind(settings: Settings) -> tuple[str, list[str]]:
    """The service of the config's batch is the config's: its address, and all its batches in the ledger.

    There are none where nothing of the batch was sent yet: then it belongs to no service.
    """
    from callsheet.ledger import spending
    from callsheet.steps.connect import address

    service = address(settings)
    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        is_bound = await ledger.read(spending.of_batch) is not None
        return service, await ledger.write(spending.rebind, service) if is_bound else []
