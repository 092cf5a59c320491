"""The command: `callsheet backlot`, or `python -m backlot`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from backlot.errors import SettingsError
from backlot.settings import Settings, read_settings

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


def flag(name: str) -> Any:
    """The flag of a setting, with the setting's description as help. Without the flag, nothing is set."""
    field = Settings.model_fields[name]
    # Round brackets: rich reads square ones as a tag, and drops them.
    default = "" if field.default is None else f" (default: {field.default})"
    return typer.Option(help=f"{field.description}{default}", show_default=False)


@app.command()
def backlot(
    *,
    host: Annotated[str | None, flag("host")] = None,
    port: Annotated[int | None, flag("port")] = None,
    state: Annotated[Path | None, flag("state")] = None,
    api_key: Annotated[str | None, flag("api_key")] = None,
    image_rpm: Annotated[int | None, flag("image_rpm")] = None,
    video_rpm: Annotated[int | None, flag("video_rpm")] = None,
    concurrency: Annotated[int | None, flag("concurrency")] = None,
    window: Annotated[int | None, flag("window")] = None,
    balance: Annotated[str | None, flag("balance")] = None,
    image_seconds: Annotated[float | None, flag("image_seconds")] = None,
    video_seconds: Annotated[float | None, flag("video_seconds")] = None,
    media_ttl: Annotated[int | None, flag("media_ttl")] = None,
    seed: Annotated[int | None, flag("seed")] = None,
    faults: Annotated[Path | None, flag("faults")] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with any of these settings and more.")
    ] = None,
    dashboard_host: Annotated[str | None, flag("dashboard_host")] = None,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,  # for `server.spawn`
) -> None:
    """Run the whole generation service on this machine, with real images and videos, for trials and tests.

    Every option can also be set by a variable BACKLOT_<NAME> or in the config
    file. A flag wins over a variable, a variable over the file.
    """
    options = locals()
    flags = {name: options[name] for name in Settings.model_fields if options.get(name) is not None}
    from backlot import server

    try:
        settings = read_settings(config, flags, os.environ)

        def announce(address: str, dashboard: str | None) -> None:
            keys = ", ".join(settings.keys)
            # In one write: a program that reads the first line only may be gone before the second.
            typer.echo(
                f"The backlot listens at {address} with the key {keys} (Ctrl-C stops it)\n"
                f"{server.DASHBOARD}{dashboard or 'off; --dashboard-host NAME says how browsers may call it'}"
            )

        server.run(settings, announce, until_eof=until_eof)
    except SettingsError as error:
        typer.echo(f"backlot: {error}", err=True)
        raise typer.Exit(2) from None
