"""`callsheet up`: all that the Prefect UI needs, in one terminal: server, deployments, worker, a backlot."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
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
    """Starts everything and stays, or renews what another `up` has started.

    Args:
        stays: set when everything runs.
    """
    from flows import deployments
    from flows import servers as parts

    names, pool = deployments.in_this_folder()
    api = parts.api_address(port)
    folder = parts.state_folder(api)
    about = {"process": os.getpid(), "folder": str(Path.cwd()), "backlot": with_backlot}
    with signals.cancelled_by_signals(), _lock(folder, about) as other:
        if other is not None:
            await _renew(api, names, environment, folder, _same(other, about))
            return
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
            _say_deployments(ui, names, lost)
            _say("Logs", str(folder))
            _say("", "Ctrl-C ends it all.")
            stays.set()
            try:
                await parts.unless_they_end(api, server, worker, folder, show=_error, note=_note)
            finally:
                _note("Ending: runs at work stop in order first. A second Ctrl-C ends them at once.")


async def _renew(api: str, names: list[str], environment: dict[str, str], folder: Path, process: int) -> None:
    """Makes the deployments anew, on the server of another `up`, whose worker carries out their runs."""
    from flows import deployments
    from flows import servers as parts

    if not await parts.answers(api):
        raise ConfigError(f"callsheet up is just starting here, as process {process}", hint="Wait for it.")
    ui = parts.ui_address(api)
    _say("UI", f"{ui}  (callsheet up runs already, as process {process})")
    with _waiting("Renewing the deployments ..."), parts.connected(api):
        lost = await deployments.deploy(names, environment | {"PREFECT_API_URL": api}, folder)
    _say_deployments(ui, names, lost)


@contextmanager
def _lock(folder: Path, about: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
    """Lets one `up` for each server work at a time; yields what another one that works says about itself.

    The system gives the lock up with the process, however that ends.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "up.lock").open("a+")
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            yield json.loads(file.read() or "{}")
            return
        file.truncate(0)
        file.write(json.dumps(about))
        file.flush()
        yield None


def _same(other: dict[str, Any], about: dict[str, Any]) -> int:
    """The process of another `up`, when it is one for this folder with the same service.

    Raises:
        ConfigError: it is not; both would have deployments of the same names.
    """
    process = int(other.get("process", 0))
    hint = f"End it first, with Ctrl-C or kill {process}."
    if other.get("folder") != about["folder"]:
        raise ConfigError(
            f"callsheet up runs already for the folder {other.get('folder')}, as process {process}", hint=hint
        )
    if about["backlot"] and not other.get("backlot"):
        raise ConfigError(f"callsheet up runs already without a backlot, as process {process}", hint=hint)
    return process


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


def _say_deployments(ui: str, names: list[str], lost: list[str]) -> None:
    _say("Run", f"{ui}/deployments  ({', '.join(names)})")
    for each in lost:
        _note(each)


def _note(text: str) -> None:
    err.print(f"[yellow]note:[/] {safe(text)}")


def _error(line: str) -> None:
    err.print(f"[red]{safe(line)}[/]")


if __name__ == "__main__":
    signals.keep_until_heard()
    main()
