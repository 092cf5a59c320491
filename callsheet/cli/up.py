"""`up`: all that the Prefect UI needs, in one terminal: server, deployments, worker, and a service to try."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from callsheet import signals
from callsheet.errors import CallsheetError, ConfigError, Interrupted

STATE = "out/backlot"  # of the backlot: pending videos and its account outlive it


def up(
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port of the server on this machine. Without it: the server that Prefect is configured for, "
            "or 4200.",
            show_default=False,
        ),
    ] = None,
    backlot: Annotated[
        bool, typer.Option("--backlot", help="Also start a service to buy from that costs nothing.")
    ] = False,
) -> None:
    """Start the Prefect UI with all that it needs, and stay until Ctrl-C.

    Run it in the folder of your project, which has a prefect.yaml. It starts
    a Prefect server (one that runs already is used), the deployments of
    prefect.yaml, and a worker that carries out their runs.

    The worker has the environment of this terminal: set CALLSHEET_BASE_URL
    and CALLSHEET_API_KEY first, or try it with --backlot.

    Ctrl-C ends what it has started, and nothing else. Runs at work stop in
    order; the next run goes on from there. Run the command again whenever you
    like: a schedule that you have switched in the UI stays as you switched it.
    """
    from callsheet.cli.output import err
    from callsheet.cli.running import quiet_prefect

    environment = dict(os.environ)
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "5")  # a server that has just started is busy
    quiet_prefect()  # on this terminal: worker and server log to files
    homes = ("HOME", "PREFECT_HOME", "PREFECT_PROFILES_PATH")
    environment |= {name: os.environ[name] for name in homes if name in os.environ}
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
    from flows import up as parts

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
    from flows import up as parts

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
    from backlot.errors import SettingsError
    from backlot.server import dashboard_of, spawn
    from backlot.settings import read_settings

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
    from callsheet.service.client import Client

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
    from callsheet.cli.output import err

    if err.is_terminal:
        with err.status(text):
            yield
    else:
        err.print(text)
        yield


def _say(name: str, value: str) -> None:
    from callsheet.cli.output import out, print_facts

    print_facts(out, [(name, value)], indent="")


def _say_deployments(ui: str, names: list[str], lost: list[str]) -> None:
    _say("Run", f"{ui}/deployments  ({', '.join(names)})")
    for each in lost:
        _note(each)


def _note(text: str) -> None:
    from callsheet.cli.output import err, safe

    err.print(f"[yellow]note:[/] {safe(text)}")


def _error(line: str) -> None:
    from callsheet.cli.output import err, safe

    err.print(f"[red]{safe(line)}[/]")
