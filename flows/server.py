"""The Prefect server of a run: the one that is configured, or one that the demo starts."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from prefect import get_client
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
    temporary_settings,
)

from callsheet.config.yaml_lines import masked
from callsheet.errors import ConfigError

ENDING = 5  # seconds that a server has for an orderly end


def configured_server() -> str | None:
    """The API's address in Prefect's settings, where they name one."""
    url: str | None = PREFECT_API_URL.value()
    return url


@asynccontextmanager
async def running_server() -> AsyncIterator[None]:
    """A server that answers: the configured one, or one that is started, and ends with this process.

    Raises:
        ConfigError: the configured server cannot be reached, or none could be started.
    """
    if url := configured_server():
        if wrong := await get_client().api_healthcheck():
            raise ConfigError(
                f"the Prefect server at {masked(url)} cannot be reached: {wrong}",
                hint="A server takes some 20 seconds to start. With --without-prefect the run needs none.",
            )
        yield
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            process = _start(listener)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        # What Prefect still has to tell it is sent when this process ends, so it lives until then.
        atexit.register(_stop, process)
        with temporary_settings({PREFECT_API_URL: url}):
            await _answers(process)
            yield


def _start(listener: socket.socket) -> subprocess.Popen[bytes]:
    """Starts a server that ends with this process; one that Prefect starts outlives a kill of this process.

    It has a session of its own, because a terminal sends Ctrl-C to every process of the command, and the
    server must not end before the run does.
    """
    command = [sys.executable, "-P", "-m", "flows.own_server", str(listener.fileno())]
    # The variables that Prefect gives to such a server of its own.
    own = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    return subprocess.Popen(  # noqa: S603 - our own program
        command,
        stdin=subprocess.PIPE,
        env=os.environ | own,
        pass_fds=[listener.fileno()],
        start_new_session=True,
    )


async def _answers(process: subprocess.Popen[bytes]) -> None:
    """Waits until a server that is starting answers: its socket listens already, so one request is enough."""
    seconds = PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value()
    wrong: object = f"it does not answer within {seconds} seconds"
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                wrong = await get_client(httpx_settings={"timeout": None}).api_healthcheck()
    except BaseException:  # it has nothing to end in order
        process.kill()
        raise
    if wrong:
        process.kill()
        raise ConfigError(
            f"a Prefect server could not be started: {wrong}",
            hint="Nothing was bought. On a busy machine, run the command again later.",
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
