"""`callsheet up`: all that the Prefect UI needs, in one terminal: server, deployments, worker, a backlot."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from backlot.errors import SettingsError
from backlot.server import dashboard_of, spawn
from backlot.settings import read_settings
from callsheet import signals
from callsheet.cli.output import err, out, print_facts, safe
from callsheet.cli.show import show_error
from callsheet.errors import CallsheetError, ConfigError, Interrupted
from callsheet.service.client import Client

STATE = "out/backlot"  # of the backlot: pending videos and its account outlive it


def main() -> None:
    """Starts all of it, and stays until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="callsheet up")
    parser.add_argument("--port", type=int)
    parser.add_argument("--backlot", action="store_true")
    given = parser.parse_args()
    try:
        up(given.port, backlot=given.backlot)
    except CallsheetError as error:
        show_error(error)
        sys.exit(error.exit_code)


def up(port: int | None, *, backlot: bool) -> None:
    """Starts all of it, and stays until Ctrl-C.

    Args:
        port: of the Prefect server on this machine; None for the configured one, or 4200.
        backlot: also start a service to buy from.
    """
    environment = dict(os.environ)
    # Before Prefect is imported. On this terminal it says nothing: worker and server log to files.
    logging.disable(logging.ERROR)
    os.environ.setdefault("PREFECT_INTERNAL_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "5")  # a server that has just started is busy
    stays = asyncio.Event()
    try:
        asyncio.run(_up(port, environment, stays, with_backlot=backlot))
    except Interrupted:
        if not stays.is_set():
            raise
        err.print("Ended.")


async def _up(
    port: int | None, environment: dict[str, str], stays: asyncio.Event, *, with_backlot: bool
) -> None:
    """Starts everything and stays.

    Args:
        stays: set when everything runs.
    """
    from flows import deployments
    from flows import servers as parts

    names, pool = deployments.in_this_folder()
    api = parts.api_address(port)
    folder = parts.state_folder(api)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None
    with signals.cancelled_by_signals():
        async with AsyncExitStack() as stack:
            if with_backlot:
                environment |= await stack.enter_async_context(_backlot(folder / "backlot.log"))
            else:
                _check_service(environment)
            with _waiting("Starting the Prefect server, which takes 10 to 25 seconds ..."):
                server = await stack.enter_async_context(parts.server(api, environment, folder))
            environment["PREFECT_API_URL"] = api
            ui = parts.ui_address(api)
            _say("UI", ui if server else f"{ui}  (the server ran already)")
            with _waiting("Starting a worker, and making the deployments ..."):
                worker = await stack.enter_async_context(parts.worker(pool, environment, folder))
                lost = await deployments.deploy(names, environment, folder)
            _say("Run", f"{ui}/deployments  ({', '.join(names)})")
            for each in lost:
                _note(each)
            _say("Logs", str(folder))
            _say("", "Ctrl-C ends it all.")
            stays.set()
            try:
                await parts.unless_they_end(server, worker, folder, show=_error)
            finally:
                _note("Ending: runs at work stop in order first. A second Ctrl-C ends them at once.")


@asynccontextmanager
async def _backlot(log: Path) -> AsyncIterator[dict[str, str]]:
    """A service to buy from, the one that answers at its address or a new one; yields how a worker finds it.

    It has the settings that `callsheet backlot` would have, but that it keeps its state.

    Raises:
        ConfigError: it cannot start.
    """
    with ExitStack() as stack:
        try:
            settings = read_settings(None, {}, os.environ)
            base_url, state = f"http://{settings.host}:{settings.port}", str(settings.state or STATE)
            if await _is_backlot(base_url, settings.api_key):
                how, dashboard = "it ran already", None
            else:
                errors = stack.enter_context(log.open("w"))
                flags = ("--port", str(settings.port), "--state", state)
                base_url, process = stack.enter_context(spawn(*flags, stderr=errors))
                how, dashboard = f"its state is kept in {state}", dashboard_of(process)
        except SettingsError as error:
            raise ConfigError(f"the backlot did not start: {error}", hint=f"Its log: {log}") from None
        _say("Backlot", f"{base_url} with the key {settings.api_key}  ({how})")
        if dashboard:
            _say("Dashboard", f"{dashboard}  (a link that works once)")
        yield {"CALLSHEET_BASE_URL": base_url, "CALLSHEET_API_KEY": settings.api_key}


async def _is_backlot(base_url: str, key: str) -> bool:
    """Whether a backlot with this key listens there; False where nothing does.

    Raises:
        ConfigError: another program listens there.
    """
    address = urlsplit(base_url)
    try:
        socket.create_connection((address.hostname, address.port), timeout=5).close()
    except OSError:
        return False
    try:
        async with Client(base_url, key) as client:
            await client.models()
    except CallsheetError:
        raise ConfigError(
            f"the backlot cannot start: another program listens at {base_url}",
            hint="End that program, or set BACKLOT_PORT to another port.",
        ) from None
    return True


def _check_service(environment: dict[str, str]) -> None:
    missing = [
        name for name in ("CALLSHEET_BASE_URL", "CALLSHEET_API_KEY") if not environment.get(name, "").strip()
    ]
    if missing:
        _note(
            f"{' and '.join(missing)} not set: runs fail whose config needs them. Set them and begin again, "
            "or try it with --backlot."
        )


@contextmanager
def _waiting(text: str) -> Iterator[None]:
    """Says what is going on while something slow does."""
    if err.is_terminal:
        with err.status(text):
            yield
    else:
        err.print(text)
        yield


def _say(name: str, value: str) -> None:
    print_facts(out, [(name, value)], indent="")


def _note(text: str) -> None:
    err.print(f"[yellow]note:[/] {safe(text)}")


def _error(line: str) -> None:
    err.print(f"[red]{safe(line)}[/]")


if __name__ == "__main__":
    signals.keep_until_heard()
    main()
