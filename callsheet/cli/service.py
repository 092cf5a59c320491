"""`models` and `balance`: what the service offers, and what the workspace can spend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from callsheet.cli.options import Json, Sets, client_of_environment, load_settings, open_client
from callsheet.cli.output import print_json
from callsheet.errors import ConfigError
from callsheet.records import dollars

if TYPE_CHECKING:
    from callsheet.service.client import Client

T = TypeVar("T")
_Config = Annotated[
    Path | None,
    typer.Argument(
        metavar="[CONFIG]",
        help="A config file; without it, the environment says which service.",
        show_default=False,
    ),
]


def models(config: _Config = None, set_: Sets = None, json: Json = False) -> None:
    """List the service's models, what they take, and their prices."""
    from callsheet.cli import show

    catalogue = asyncio.run(_ask(config, set_, lambda client: client.models()))
    if json:
        print_json({"models": [model.model_dump(mode="json") for model in catalogue.values()]})
    else:
        show.show_models(catalogue.values())


def balance(config: _Config = None, set_: Sets = None, json: Json = False) -> None:
    """Say what the workspace has to spend."""
    amount = asyncio.run(_ask(config, set_, lambda client: client.balance()))
    if json:
        print_json({"balance": dollars(amount), "currency": "USD"})
    else:
        typer.echo(f"{dollars(amount)} USD")


async def _ask(
    config: Path | None, overrides: list[str] | None, question: Callable[[Client], Awaitable[T]]
) -> T:
    """Asks the service one question, with a config or with the environment alone."""
    from callsheet import signals

    if overrides and not config:
        raise ConfigError(
            "--set changes a setting of a config, and none is named", hint="Name it before --set."
        )
    with signals.cancelled_by_signals():
        if config:
            client = await open_client(load_settings(config, overrides))
        else:
            client = client_of_environment("Set it, or name a config.")
        async with client:
            return await question(client)
