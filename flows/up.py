"""`callsheet up`: all that the Prefect UI needs, in one terminal: server, deployments, worker, a backlot."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

import httpx

from backlot.errors import SettingsError
from backlot.server import dashboard_of, spawn
from backlot.settings import read_settings
from callsheet import signals
from callsheet.cli.output import err, out, show_error
from callsheet.errors import CallsheetError, ConfigError, Interrupted
from callsheet.present.console import print_page, safe
from callsheet.present.page import Facts, Line, Tone
from callsheet.service.transport import tls_context

STATE = "out/backlot"  # of the backlot: pending videos and its account outlive it


def main() -> None:
    """Starts all of it, and stays until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="callsheet up")
    parser.add_argument("--port", type=int, help="of the Prefect server on this machine")
    parser.add_argument("--backlot", action="store_true", help="also start a service to buy from")
    parser.add_argument("--inbox", action="store_true", help="also look for batch files each minute")
    options = parser.parse_args()
    environment = dict(os.environ)
    # Before Prefect is imported. On this terminal it says nothing: worker and server log to files.
    logging.disable(logging.ERROR)
    os.environ.setdefault("PREFECT_INTERNAL_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("DO_NOT_TRACK", "1")  # of this process: otherwise Prefect prints a notice about it
    try:
        asyncio.run(_up(options.port, environment, with_backlot=options.backlot, with_inbox=options.inbox))
    except Interrupted:
        err.print("Ended.")
    except CallsheetError as error:
        show_error(error)
        sys.exit(error.exit_code)


async def _up(port: int | None, environment: dict[str, str], *, with_backlot: bool, with_inbox: bool) -> None:
    from prefect.settings import PREFECT_HOME

    from callsheet.reviewing import sheets
    from flows import automations, deployments, inbox, servers
    from tasks import events, morning

    tls_context()  # Prefect fails on authorities that are not there, and does not name them
    entrypoints, pool = deployments.in_this_folder()
    inboxes = inbox.watchers(entrypoints) if with_inbox else []
    api = servers.api_address(port)
    folder = _logs(Path(PREFECT_HOME.value()) / "callsheet")
    with signals.cancelled_by_signals(), servers.connected(api):
        async with AsyncExitStack() as stack:
            if with_backlot:
                environment |= stack.enter_context(_backlot(folder / "backlot.log"))
            err.print("Waiting for the Prefect server: a new one takes 10 to 25 seconds ...")
            server = await stack.enter_async_context(servers.server(api, environment, folder))
            ui = await servers.ui_address()
            environment |= {"PREFECT_API_URL": api, "PREFECT_UI_URL": ui}
            link = await stack.enter_async_context(sheets.serving(events.reviewed))
            environment[sheets.ENVIRONMENT] = link if urlsplit(api).hostname in servers.LOCAL else ""
            _say("UI", ui if server else f"{ui}  (the server ran already)")
            err.print("Waiting for the worker and the deployments ...")
            worker = await stack.enter_async_context(servers.worker(pool, environment, folder))
            for line in [*await deployments.deploy(entrypoints, environment), *await automations.make()]:
                err.print(safe(line))
            # All on one page: by itself it has ten.
            _say("Run", f"{ui}/deployments?limit=25  ({', '.join(name for name, _ in entrypoints)})")
            _say("Morning", f"{ui}/artifacts/key/{morning.KEY}  (once a run has ended)")
            if inboxes:
                looking = asyncio.create_task(inbox.watch_inboxes(inboxes, _error))
                stack.callback(looking.cancel)
                names = ", ".join(name for name, _ in inboxes)
                _say("Inbox", f"looked into each minute, by the parameters of {names}")
            _say("Sheets", link)
            _say("Logs", str(folder))
            _say("", "Ctrl-C ends it all.")
            try:
                await servers.stay(server, worker, folder, show=_error)
            finally:
                err.print("Ending: runs at work stop in order first. A second Ctrl-C ends them at once.")


def _logs(folder: Path) -> Path:
    """A new folder for the logs, which only this user can read: so no log is written into what is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(mkdtemp(prefix=f"{os.getpid()}-", dir=folder))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None


@contextmanager
def _backlot(log: Path) -> Iterator[dict[str, str]]:
    """A service to buy from, the one that answers at its address or a new one; yields how a worker finds it.

    It has the settings that `callsheet backlot` would have, but that it keeps its state.

    Raises:
        ConfigError: it cannot start.
    """
    with ExitStack() as stack:
        try:
            settings = read_settings(None, {}, os.environ)
            base_url, state = f"http://{settings.host}:{settings.port}", str(settings.state or STATE)
            if _is_backlot(base_url, settings.api_key):
                note, dashboard = "it ran already", None
            else:
                errors = stack.enter_context(log.open("w"))
                flags = ("--port", str(settings.port), "--state", state)
                base_url, process = stack.enter_context(spawn(*flags, stderr=errors))
                note, dashboard = f"its state is kept in {state}", dashboard_of(process)
        except SettingsError as error:
            log_text = log.read_text().strip() if log.exists() else ""
            raise ConfigError(
                f"the backlot did not start: {log_text or error}",
                hint="Its settings are variables, such as BACKLOT_PORT; `callsheet docs backlot` has them.",
            ) from None
        _say("Backlot", f"{base_url} with the key {settings.api_key}  ({note})")
        if dashboard:
            _say("Dashboard", f"{dashboard}  (a link that works once)")
        yield {"CALLSHEET_BASE_URL": base_url, "CALLSHEET_API_KEY": settings.api_key}


def _is_backlot(base_url: str, key: str) -> bool:
    """Whether a backlot with this key listens there."""
    with suppress(httpx.TransportError, httpx.InvalidURL):  # no URL: IPv6
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.get(f"{base_url}/v2/models", headers=headers, trust_env=False).is_success
    return False


def _say(name: str, value: str) -> None:
    print_page(out, [Facts([(name, value)], indent=0)])


def _error(line: str) -> None:
    print_page(err, [Line(line, tone=Tone.BAD)])


if __name__ == "__main__":
    signals.keep_until_heard()
    main()
