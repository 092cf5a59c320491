"""The arguments and options that several commands share, and what the commands make of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet.errors import ConfigError
from callsheet.files import with_home

if TYPE_CHECKING:
    from callsheet.config.settings import BatchSettings, Settings
    from callsheet.ledger.ledger import Ledger
    from callsheet.service.client import Client


def at_home(url: str) -> str:
    """A path or URL of the command line, where `~` is the home folder: no shell sees it in `--to=~/copy.db`.

    Raises:
        typer.BadParameter: no such home folder is known.
    """
    try:
        return with_home(url)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def path_at_home(path: str | Path) -> Path:
    """The same of a path; Typer gives a default as it is.

    Raises:
        typer.BadParameter: it is empty, or an address: `Path` makes a folder `s3:` of that.
    """
    if not str(path) or "://" in str(path):
        raise typer.BadParameter(f"'{path}' is not a file of this machine")
    return Path(at_home(str(path)))


Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The config file (YAML).", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=VALUE", help="Change one setting of the config; repeatable."),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")
]


def load_settings(config: Path, overrides: list[str] | None) -> Settings:
    """The config file, checked, with the values of `--set`.

    Raises:
        ConfigError: see `callsheet.config.load.load`.
    """
    from callsheet.config.load import load

    with suppress(OSError):  # which `load` meets too, and says
        if config.suffix.lower() not in (".yaml", ".yml") and config.is_file():
            from callsheet.batches.formats import is_batch_file  # polars, which a config does not need

            if is_batch_file(config.name):
                hint = f"Make a config for it: callsheet init {shlex.quote(str(config))}"
                raise ConfigError(f"{config}: is a batch file, not a config", hint=hint)
    return load(config, overrides or ())


def load_batch(config: Path, overrides: list[str] | None) -> BatchSettings:
    """The same without the `service` section, for commands that ask no service and read no batch file.

    Raises:
        ConfigError: see `callsheet.config.load.load_without_service`.
    """
    from callsheet.config.load import load_without_service

    return load_without_service(config, overrides or ())


async def open_client(settings: Settings) -> Client:
    """The service's client."""
    from callsheet.steps.connect import connect

    return await connect(settings)


def client_of_environment(hint: str) -> Client:
    """The client of the service that `CALLSHEET_BASE_URL` names, with the key in `CALLSHEET_API_KEY`.

    Raises:
        ConfigError: a variable is not set, or the address is not one.
    """
    from callsheet.config.checks import WrongValue, service_address
    from callsheet.steps.connect import client_of

    base_url = os.environ.get("CALLSHEET_BASE_URL")
    if not base_url:
        raise ConfigError("which service? The environment variable CALLSHEET_BASE_URL is not set", hint=hint)
    try:
        base_url = service_address(base_url)
    except ValueError as error:
        hint = error.hint if isinstance(error, WrongValue) else ""
        raise ConfigError(f"CALLSHEET_BASE_URL {error}", hint=hint) from None
    return client_of(base_url, "CALLSHEET_API_KEY")


@asynccontextmanager
async def open_ledger(url: str, batch: str) -> AsyncIterator[Ledger]:
    """A batch's ledger, only to look (`Ledger.open`); it is closed at the end."""
    from callsheet.ledger.ledger import Ledger

    async with await Ledger.open(url, batch, looks=True) as ledger:
        yield ledger
