"""What `callsheet up` starts for as long as it runs: a Prefect server with its UI, and a worker.

Each has a pipe as stdin, whose end tells it that this process is gone, in whichever way; and a session of its
own, because a terminal sends Ctrl-C to every process of a command, and the worker must end before the server.
Nothing is printed here. `python -m flows.servers PORT` is the server.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import threading
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
from prefect import get_client
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, get_current_settings, temporary_settings

from callsheet.config.load import masked
from callsheet.errors import ConfigError, ProcessEnded
from callsheet.processes import APART, tell_to_end
from flows import server_errors
from flows.deployments import make_pool

SERVER_LOG, WORKER_LOG = "server.log", "worker.log"
_ENDING = 5.0  # seconds for an orderly end
_WORKER_ENDING = 75.0  # more than the worker itself gives its runs (own_worker.py)
# In the lines of Prefect's logs. What ends a task, its flow run says too.
_ERROR = re.compile(r"\| (ERROR|CRITICAL) +\| (?!Task run )")
LOCAL = ("127.0.0.1", "localhost")

# Offline, the telemetry prints stack traces; and with it the UI sends usage data to its makers. Leases in
# memory are lost when the server ends, and with them the slots of deployments with a concurrency limit.
_SERVER = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_UI_ENABLED": "true",
}
_STARTED_BY = "CALLSHEET_STARTED_BY"  # of a worker and its runs: the folder of its logs, which no other has
_WORKER = {"PREFECT_WORKER_QUERY_SECONDS": "2"}  # a run that somebody starts in the UI begins at once


def api_address(port: int | None) -> str:
    """The API of the server: on this machine at a given port, or the configured one, or at 4200."""
    if port is None and (url := PREFECT_API_URL.value()):
        return str(url)
    return f"http://127.0.0.1:{port or 4200}/api"


@contextmanager
def connected(api: str) -> Iterator[None]:
    """Within it, Prefect's client in this process uses this server.

    Raises:
        ConfigError: the server fails, or is gone.
    """
    hint = "What was started has been ended. Run the command again."
    with temporary_settings({PREFECT_API_URL: api}), server_errors.in_words(hint):
        yield


@asynccontextmanager
async def server(api: str, environment: Mapping[str, str], folder: Path) -> AsyncIterator[Process | None]:
    """A server at this address, to which this process is `connected`; None where one answers there already.

    Raises:
        ConfigError: the address is not one of this machine, or another program listens there.
        ProcessEnded: it ended before it answered.
    """
    if await _answers():
        yield None
        return
    # In the installation, which may be another user's, its UI cannot be unpacked.
    ui = {"PREFECT_UI_STATIC_DIRECTORY": str(Path(PREFECT_HOME.value()) / "callsheet/ui")}
    addresses = {"PREFECT_API_URL": api, "PREFECT_SERVER_UI_API_URL": api}
    variables = _SERVER | ui | dict(environment) | addresses
    async with _child(["flows.servers", str(_free_port(api))], variables, folder / SERVER_LOG) as process:
        while not await _answers():
            _check(process, folder / SERVER_LOG)
            await asyncio.sleep(0.2)  # it has no other way of saying that it is there
        yield process


async def _answers() -> bool:
    try:
        async with get_client(httpx_settings={"timeout": 10}) as client:
            return isinstance(await client.api_version(), str)
    except Exception:  # noqa: BLE001 - whatever it is, it is no Prefect server that can be used
        return False


def _free_port(api: str) -> int:
    try:
        address = urlsplit(api)
        port = address.port or 80
        is_here = address.scheme == "http" and address.hostname in LOCAL
    except ValueError:  # no address, or such a port
        is_here = False
    if not is_here or address.path.rstrip("/") != "/api":
        raise ConfigError(
            f"the Prefect server at {masked(api)} does not answer",
            hint="It is the configured one (PREFECT_API_URL or a profile). With --port 4200 a server of this "
            "machine is used instead.",
        )
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise ConfigError(
            f"port {port} of this machine cannot be used for the Prefect server: {error.strerror}",
            hint="Another program has it, which is no Prefect server. Choose another one: --port 4201",
        ) from None
    return port


async def ui_address() -> str:
    """Where links to the UI lead: the configured address, or the UI that the connected server opens.

    Prefect's own default leads to its first UI, also where the second one is opened.
    """
    settings = get_current_settings()
    address = str(settings.ui_url).rstrip("/")
    if "ui_url" not in settings.model_fields_set:
        with suppress(httpx.HTTPStatusError):  # Prefect Cloud tells nobody
            async with get_client() as client:
                answer = await client.request("GET", "/admin/settings")
            if answer.json()["server"]["ui"].get("v2_enabled"):
                return f"{address}/v2"
    return address


@asynccontextmanager
async def worker(pool: str, environment: Mapping[str, str], folder: Path) -> AsyncIterator[Process]:
    """A worker of a process pool, which is made where there is none. Its runs end before it does.

    Where it is killed, they hear of it and end by themselves; the server is still needed by then.
    """
    await make_pool(pool)
    arguments = ["flows.own_worker", "--type", "process", "--pool", pool]
    variables = _WORKER | dict(environment) | {_STARTED_BY: str(folder)}
    try:
        async with _child(arguments, variables, folder / WORKER_LOG, patience=_WORKER_ENDING) as process:
            yield process
    finally:
        await _runs_ended(folder)


async def _runs_ended(folder: Path) -> None:
    """Waits for the runs that have outlived their worker; kills them after a while, or when told again."""
    until = time.monotonic() + _WORKER_ENDING
    runs = []
    try:
        while runs := await asyncio.to_thread(_started_by, folder):
            if time.monotonic() > until:
                break
            await asyncio.sleep(0.5)
    finally:
        for run in runs:
            with suppress(psutil.Error):
                run.kill()


def _started_by(folder: Path) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it has ended, or is another user's
            if process.environ().get(_STARTED_BY) == str(folder):
                processes.append(process)
    return processes


async def stay(server: Process | None, worker: Process, folder: Path, *, show: Callable[[str], None]) -> None:
    """Calls `show` with each error in the worker's log, its runs' among them, until a process ends.

    Not of the server's log: when the server is busy, it has errors that mean nothing.

    Args:
        server: None where it was not started here: then the worker waits for it, whatever becomes of it.

    Raises:
        ProcessEnded: one of them has ended.
    """
    with (folder / WORKER_LOG).open(errors="replace") as log:
        while True:
            for line in log:
                if _ERROR.search(line):
                    show(line.strip())
            _check(worker, folder / WORKER_LOG)
            if server:
                _check(server, folder / SERVER_LOG)
            await asyncio.sleep(0.5)


def _check(process: Process, log: Path) -> None:
    if process.returncode is not None:
        raise ProcessEnded(
            f"the Prefect {log.stem} has ended by itself, with exit code {process.returncode}",
            hint=f"Its log says more: {log}",
        )


@asynccontextmanager
async def _child(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path, patience: float = _ENDING
) -> AsyncIterator[Process]:
    """`python -m <arguments>`, which is ended in order if that takes no longer than `patience` seconds."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *arguments),
            stdin=PIPE,
            stdout=output,
            stderr=STDOUT,
            env={"COLUMNS": "200"} | dict(environment),  # Prefect breaks its lines at 80 characters otherwise
            **APART,
        )
    try:
        yield process
    finally:
        try:
            await _end(process, patience)
        except asyncio.CancelledError:
            await _end(process, _ENDING)  # told twice, a worker ends at once, with its runs
            raise


async def _end(process: Process, patience: float) -> None:
    with suppress(ProcessLookupError):
        tell_to_end(process)
    try:
        async with asyncio.timeout(patience):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _serve(port: int) -> None:
    """Serves until SIGTERM, or until stdin ends."""
    import uvicorn
    from prefect.server.api.server import create_app

    threading.Thread(target=_end_with_stdin, daemon=True).start()
    uvicorn.run(create_app, factory=True, lifespan="on", log_level="error", port=port)


def _end_with_stdin() -> None:
    while os.read(0, 1024):  # not sys.stdin, whose lock blocks the end of the interpreter
        pass
    os._exit(0)  # nobody is left who could wait for an orderly end; its database survives a kill


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
