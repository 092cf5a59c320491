"""Runs a batch for the person at the terminal, on the configured Prefect server or without Prefect.

Importing Prefect takes two seconds, and a server for one command shows nobody anything. So Prefect is
imported only where its settings may name a server.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from callsheet import signals
from callsheet.cli import STARTED
from callsheet.errors import CallsheetError, ConfigError

if TYPE_CHECKING:
    from callsheet.cli.screens import Screen
    from callsheet.report.summary import Summary

Start = Callable[[], "Awaitable[Summary]"]
Flow = Callable[[], Awaitable[Any]]  # the final state of a flow run


def quiet_prefect() -> None:
    """Sets what Prefect does on this terminal, and where; to be called before Prefect is imported.

    Raises:
        ConfigError: Prefect has no folder for its files.
    """
    _give_prefect_a_home()
    # The watcher tells a person what they should know, in our words.
    logging.disable(logging.ERROR)
    os.environ.setdefault("PREFECT_INTERNAL_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "2")  # the default waits a minute for a lost server
    # The demo starts a server. On a busy machine that takes longer than the 30 s that Prefect allows.
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "600")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")  # offline, it prints stack traces


def _give_prefect_a_home() -> None:
    """Where Prefect's folder cannot be written, as in many containers, gives it a temporary one.

    Profiles are still read from its own. Without a folder that it can write, Prefect prints warnings or stack
    traces, and a server that it starts does not come up.
    """
    try:
        Path.home()
    except RuntimeError:  # Prefect asks for it wherever its own folder is
        os.environ["HOME"] = _temporary_folder()
    home = _prefect_home()
    if home is None or not _can_be_written(home):
        os.environ["PREFECT_HOME"] = _temporary_folder()
        if home and os.access(profiles := home / "profiles.toml", os.R_OK):
            os.environ.setdefault("PREFECT_PROFILES_PATH", str(profiles))


def _can_be_written(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _temporary_folder() -> str:
    """A new folder that is removed when this process ends."""
    try:
        folder = tempfile.mkdtemp(prefix="callsheet-prefect-")
    except OSError as error:
        raise ConfigError(
            f"Prefect has no folder for its files: its own and a temporary one cannot be written: {error}",
            hint="Set PREFECT_HOME or TMPDIR to a folder that can be written.",
        ) from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _prefect_home() -> Path | None:
    """The folder of Prefect's own files; None where it is in the home folder, and there is none."""
    try:
        return Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    except RuntimeError:
        return None


def server_is_configured() -> bool:
    """Whether Prefect's settings name a server: `PREFECT_API_URL`, a profile, or a settings file.

    Prefect itself is asked only where one of these exists.
    """
    home = _prefect_home()
    profiles = os.environ.get("PREFECT_PROFILES_PATH", home and home / "profiles.toml")
    files = ["prefect.toml", ".env", "pyproject.toml", *([profiles] if profiles else [])]
    if "PREFECT_API_URL" in os.environ:
        return bool(os.environ["PREFECT_API_URL"])
    if "PREFECT_PROFILE" not in os.environ and not any(map(_may_configure, files)):
        return False
    quiet_prefect()
    from flows.server import configured_server

    return bool(configured_server())


def _may_configure(file: str | Path) -> bool:
    try:
        text = Path(file).read_text(errors="replace")
    except OSError:
        return False
    return "PREFECT_API_URL" in text or "[tool.prefect" in text or Path(file).name == "prefect.toml"


def run_watched(plain: Start, flow: Flow, *, without_prefect: bool, screen: Screen) -> Summary:
    """Runs a batch in this process.

    Args:
        plain: carries out the steps.
        flow: carries out the same steps as a flow run of Prefect, and returns its final state.
        without_prefect: `plain`, also where a server is configured.
        screen: its watcher.

    Raises:
        ConfigError: the configured Prefect server cannot be reached; nothing was bought.
        Interrupted: a signal came before the buying began, or a second one.
    """
    import anyio

    try:
        if without_prefect or not server_is_configured():
            screen.unseen()
            steps = plain()  # imports them, before there is an event loop that would wait for that
            gc.freeze()  # a collection that looks at all that is imported holds the loop up for 50 ms
            return anyio.run(_watched, lambda: steps, screen)
        return run_flow(flow, screen)
    finally:
        screen.close()


def run_flow(flow: Flow, screen: Screen) -> Summary:
    """Runs a flow of Prefect in this process.

    Args:
        flow: carries it out, and returns its final state.
        screen: the run's watcher.

    Raises:
        ConfigError: the Prefect server cannot be reached; nothing was bought.
    """
    import anyio

    quiet_prefect()
    screen.start()

    async def tagged() -> Summary:
        from flows.names import tagged
        from flows.server import running_server

        async with running_server():
            with tagged():
                state = await flow()
        if screen.summary is None:
            return cast("Summary", await state.aresult())  # raises what broke the run off
        return screen.summary

    try:
        return anyio.run(_watched, tagged, screen)
    except CallsheetError:
        raise
    except Exception as error:
        if screen.summary is None:
            raise
        # The batch is done and reported: only Prefect, by which people watch it, has lost sight of it.
        screen.note(f"Prefect could not record the end of the run: {error}")
        return screen.summary


async def _watched(start: Start, screen: Screen) -> Summary:
    from callsheet.watch import BEGAN, WATCHER

    WATCHER.set(screen)
    BEGAN.set(STARTED)
    with signals.cancelled_by_signals():
        return await start()
