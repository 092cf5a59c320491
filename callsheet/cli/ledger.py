"""`ledger`: what a person may change in the ledger, besides settling doubts (`resolve`)."""

from __future__ import annotations

import asyncio
import json as jsonlib
from typing import TYPE_CHECKING

import typer

from callsheet.cli.options import Config, Json, Sets, load_settings, open_ledger
from callsheet.plain_text import printable

if TYPE_CHECKING:
    from callsheet.config.settings import Settings

app = typer.Typer(name="ledger", no_args_is_help=True, help="Change what the ledger knows of a batch.")


@app.callback()
def _ledger() -> None:
    """Change what the ledger knows of a batch."""


@app.command("service-moved")
def service_moved(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Record that the batch's service has a new address, service.base_url of the config.

    Only for the same service: another one does not know what the batch has bought.
    """
    settings = load_settings(config, set_)
    service = asyncio.run(rebind(settings))
    if json:
        typer.echo(jsonlib.dumps({"batch": settings.batch, "service": service}))
    else:
        typer.echo(printable(f"{settings.batch}: the service is at {service} from now on"))


async def rebind(settings: Settings) -> str:
    """Binds the config's batch to the config's service, and returns its address."""
    from tasks.connect import address

    service = await address(settings)
    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        await ledger.rebind(service)
    return service
