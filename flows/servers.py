"""What `callsheet up` starts: a Prefect server with its UI, and a worker. Nothing is printed here."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import socket
from asyncio.subprocess import Process
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from prefect import get_client
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, PREFECT_UI_URL, temporary_settings

from callsheet.config.yaml_lines import masked
from callsheet.errors import ConfigError
from flows.children import ending, start, unless_it_ends
from flows.deployments import make_pool

SERVER_LOG, WORKER_LOG = "server.log", "worker.log"
PORT = 4200
WORKER_ENDING = 75.0  # more than the worker itself gives its runs (own_worker.py)
_ERROR = re.compile(r"\| (ERROR|CRITICAL) +\|")  # in the lines of Prefect's logs
_LOCAL = ("127.0.0.1", "localhost")

# Offline, the telemetry prints stack traces. Leases in memory are lost when the server ends, and with them
# the slots of deployments with a concurrency limit. The second UI sends usage data to its makers.
_SERVER = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_UI_ENABLED": "true",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
}
_WORKER = {"PREFECT_WORKER_QUERY_SECONDS": "2"}  # a run that somebody starts in the UI begins at once


def api_address(port: int | None) -> str:
    """The API of the server: on this machine at a given port, or the configured one, or at 4200."""
    if port is None and (url := PREFECT_API_URL.value()):
        return str(url)
    return f"http://127.0.0.1:{port or PORT}/api"


def ui_address(api: str) -> str:
    """Where the UI of a server is."""
    with connected(api):
        return str(PREFECT_UI_URL.value() or api.removesuffix("/api"))


def state_folder(api: str) -> Path:
    """Where the logs of what this process starts are."""
    address = urlsplit(api)
    server = f"{address.hostname}-{address.port or address.scheme}"
    return Path(PREFECT_HOME.value()) / "callsheet" / server / str(os.getpid())


@contextmanager
def connected(api: str) -> Iterator[None]:
    """Within it, Prefect's client in this process uses this server.

    Raises:
        ConfigError: the server fails, or is gone.
    """
    with temporary_settings({PREFECT_API_URL: api}):
        try:
            yield
        except httpx.HTTPError as error:  # what Prefect's client raises
            raise ConfigError(
                f"the Prefect server at {masked(api)} fails: {error or type(error).__name__}",
                hint="What was started has been ended. Run the command again.",
            ) from None


async def answers(api: str) -> bool:
    """Whether a Prefect server answers there."""
    with connected(api):
        try:
            async with get_client(httpx_settings={"timeout": 10}) as client:
                return isinstance(await client.api_version(), str)
        except Exception:  # noqa: BLE001 - whatever it is, it is no Prefect server that can be used
            return False


@asynccontextmanager
async def server(api: str, environment: Mapping[str, str], folder: Path) -> AsyncIterator[Process | None]:
    """A server that answers: the one that is there already, or one that is started. Prefect's client uses it.

    Yields:
        Its process; None where it was there already.

    Raises:
        ConfigError: none answers, and none can be started there.
        ProcessEnded: it ended before it answered.
    """
    if await answers(api):
        with connected(api):
            yield None
        return
    log = folder / SERVER_LOG
    # Otherwise it unpacks its UI into its own installation, which may be another user's.
    unpacked = {"PREFECT_UI_STATIC_DIRECTORY": str(folder.parents[1] / "ui")}
    addresses = {"PREFECT_API_URL": api, "PREFECT_SERVER_UI_API_URL": api}
    own = _SERVER | unpacked | dict(environment) | addresses
    with _listener(api) as listener:
        words = ["flows.own_server", str(listener.fileno())]
        process = await start(words, own, log, pass_fds=[listener.fileno()])
    async with ending(process):
        await unless_it_ends(process, log, _until_it_answers(api))
        with connected(api):
            yield process


def _listener(api: str) -> socket.socket:
    address = urlsplit(api)
    if address.scheme != "http" or address.hostname not in _LOCAL or address.path.rstrip("/") != "/api":
        raise ConfigError(
            f"the Prefect server at {masked(api)} does not answer",
            hint="It is the configured one (PREFECT_API_URL or a profile). With --port 4200 a server of this "
            "machine is used instead.",
        )
    try:
        return socket.create_server(("127.0.0.1", address.port or 80))
    except OSError as error:
        raise ConfigError(
            f"port {address.port} of this machine cannot be used for the Prefect server: {error.strerror}",
            hint="Another program has it, which is no Prefect server. Choose another one: --port 4201",
        ) from None


async def _until_it_answers(api: str) -> None:
    while not await answers(api):  # noqa: ASYNC110 - it has no other way of saying that it is there
        await asyncio.sleep(0.2)


@asynccontextmanager
async def worker(pool: str, environment: Mapping[str, str], folder: Path) -> AsyncIterator[Process]:
    """A worker of a process pool, which is made where there is none. Its runs end before it does.

    Raises:
        ProcessEnded: it ended before it was ready.
    """
    name = f"callsheet-up-{platform.node()}-{os.getpid()}"
    log = folder / WORKER_LOG
    await make_pool(pool)
    before = await _heartbeat(pool, name)
    words = ["flows.own_worker", "--type", "process", "--pool", pool, "--name", name]
    process = await start(words, _WORKER | dict(environment), log)
    async with ending(process, WORKER_ENDING):
        await unless_it_ends(process, log, _until_a_heartbeat(pool, name, before))
        yield process


async def _heartbeat(pool: str, name: str) -> str:
    """When a worker last told the server that it is there; empty where it never did."""
    async with get_client() as client:
        known = await client.read_workers_for_work_pool(pool)
    return next((str(each.last_heartbeat_time) for each in known if each.name == name), "")


async def _until_a_heartbeat(pool: str, name: str, before: str) -> None:
    while await _heartbeat(pool, name) == before:  # noqa: ASYNC110 - a worker tells only the server
        await asyncio.sleep(0.3)


async def unless_they_end(
    server: Process | None, worker: Process, folder: Path, *, show: Callable[[str], None]
) -> None:
    """Calls `show` with each error in the worker's log, its runs' among them, until a process ends.

    The server's log is for those who look for something: when it is busy, it has errors that mean nothing.

    Args:
        server: None where it was not started here: then the worker waits for it, whatever becomes of it.

    Raises:
        ProcessEnded: one of them has ended.
    """
    work = unless_it_ends(worker, folder / WORKER_LOG, _show_errors(folder / WORKER_LOG, show))
    await (unless_it_ends(server, folder / SERVER_LOG, work) if server else work)


async def _show_errors(log: Path, show: Callable[[str], None]) -> None:
    with log.open(errors="replace") as file:
        while True:
            for line in file:
                if _ERROR.search(line):
                    show(line.strip())
            await asyncio.sleep(0.5)
