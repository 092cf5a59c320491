"""The command: `callsheet backlot`, or `python -m backlot`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from backlot.errors import SettingsError
from backlot.settings import Settings, read_settings

app = typer.Typer(add_completion=False)


def option(name: str, kind: Any = str) -> Any:
    """The flag of a setting, with the setting's own help text; left out, the setting is not touched."""
    field = Settings.model_fields[name]
    default = "" if field.default is None else f" [default: {field.default}]"
    return Annotated[kind | None, typer.Option(help=f"{field.description}{default}", show_default=False)]


@app.command()
def backlot(
    host: option("host") = None,
    port: option("port", int) = None,
    state: option("state", Path) = None,
    api_key: option("api_key") = None,
    image_rpm: option("image_rpm", int) = None,
    video_rpm: option("video_rpm", int) = None,
    concurrency: option("concurrency", int) = None,
    window: option("window", int) = None,
    balance: option("balance") = None,
    image_seconds: option("image_seconds", float) = None,
    video_seconds: option("video_seconds", float) = None,
    media_ttl: option("media_ttl", int) = None,
    seed: option("seed", int) = None,
    faults: option("faults", Path) = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with any of these and more.")] = None,
) -> None:
    """Run the whole generation service on this machine, with real pictures and films, for trying and testing.

    Every option can also be given as BACKLOT_<NAME>, or in the config file. A flag wins over a variable,
    a variable over the file.
    """
    flags = {name: value for name, value in locals().items() if name != "config" and value is not None}
    from backlot import server

    try:
        settings = read_settings(config, flags, os.environ)
        keys = [
            key for ws in settings.workspaces.values() for project in ws.projects.values() for key in project
        ]

        def announce(address: str) -> None:
            which = ", ".join(keys or [settings.api_key])
            typer.echo(f"The backlot listens at {address} with the key {which} (Ctrl-C stops it)")

        server.run(settings, announce)
    except SettingsError as error:
        typer.echo(f"backlot: {error}", err=True)
        raise typer.Exit(2) from None
