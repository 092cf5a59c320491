"""What `callsheet up` starts: a Prefect server with its UI, the deployments, and a worker of their pool.

Each process ends with the one that has started it, in whichever way that ends. It has a session of its own,
because a terminal sends Ctrl-C to every process of a command, and the worker must end before the server does.
Nothing is printed here.
"""

from __future__ import annotations

import asyncio
import platform
import re
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from prefect import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, PREFECT_UI_URL, temporary_settings
from prefect.workers.process import ProcessWorker

from callsheet.config.yaml_lines import masked
from callsheet.errors import ConfigError, ProcessEnded
from flows.server import configured_server

T = TypeVar("T")

SERVER_LOG, WORKER_LOG, DEPLOY_LOG = "server.log", "worker.log", "deploy.log"
PORT = 4200
SERVER_ENDING = 5.0  # seconds that a server has for an orderly end; an open page of its UI can hold it up
WORKER_ENDING = 75.0  # more than the worker itself gives its runs (own_worker.py)
_ERROR = re.compile(r"\| (ERROR|CRITICAL) +\|")  # in the lines of Prefect's logs
_LOCAL = ("127.0.0.1", "localhost")

# Offline, the telemetry prints stack traces. Leases in memory are lost when the server ends, and with them
# the slots of deployments with a concurrency limit.
_SERVER = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_UI_ENABLED": "true",
}
_WORKER = {"PREFECT_WORKER_QUERY_SECONDS": "2"}  # a run that somebody starts in the UI begins at once
_ALL = {"COLUMNS": "200"}  # Prefect breaks lines of its logs at 80 characters otherwise


def api_address(port: int | None) -> str:
    """The API of the server: on this machine at a given port, or the configured one, or at 4200."""
    if port is None and (url := configured_server()):
        return url
    return f"http://127.0.0.1:{port or PORT}/api"


def ui_address(api: str) -> str:
    """Where the UI of a server is."""
    with connected(api):
        return str(PREFECT_UI_URL.value() or api.removesuffix("/api"))


def state_folder(api: str) -> Path:
    """Where the logs of what is started are, one folder for each server."""
    address = urlsplit(api)
    return Path(PREFECT_HOME.value()) / "callsheet" / f"{address.hostname}-{address.port or address.scheme}"


@contextmanager
def connected(api: str) -> Iterator[None]:
    """Within it, Prefect's client in this process uses this server."""
    with temporary_settings({PREFECT_API_URL: api}):
        yield


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
    own = _SERVER | dict(environment) | {"PREFECT_API_URL": api, "PREFECT_SERVER_UI_API_URL": api}
    with _listener(api) as listener:
        words = ["flows.own_server", str(listener.fileno())]
        process = await _start(words, own, log, pass_fds=[listener.fileno()])
    async with _ending(process, SERVER_ENDING):
        await _unless_it_ends(process, log, _until_it_answers(api))
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


async def _make_pool(name: str) -> None:
    async with get_client() as client:
        template = ProcessWorker.get_default_base_job_template()
        with suppress(ObjectAlreadyExists):
            await client.create_work_pool(
                WorkPoolCreate(name=name, type="process", base_job_template=template)
            )


async def deploy(names: Sequence[str], environment: Mapping[str, str], folder: Path) -> list[str]:
    """Makes or renews all deployments of `prefect.yaml` in the working directory.

    A schedule that a person has switched on or off stays so; Prefect would set it as the file has it.

    Returns:
        What a person should know: schedules that were switched on and are not in the file any more.

    Raises:
        ConfigError: Prefect refuses the file.
    """
    log = folder / DEPLOY_LOG
    before = await _deployed(names)
    command = ["prefect", "--no-prompt", "deploy", "--all"]
    process = await _start(command, environment, log)
    async with _ending(process, SERVER_ENDING):
        if await process.wait():
            raise ConfigError(f"prefect.yaml: {_last_words(log)}", hint=f"All that Prefect says is in {log}")
    return await _switch(before, await _deployed(names))


async def _deployed(names: Sequence[str]) -> dict[UUID, DeploymentResponse]:
    named = DeploymentFilter(name=DeploymentFilterName(any_=list(names)))
    async with get_client() as client:
        return {each.id: each for each in await client.read_deployments(deployment_filter=named)}


async def _switch(
    before: Mapping[UUID, DeploymentResponse], after: Mapping[UUID, DeploymentResponse]
) -> list[str]:
    """Switches schedules as they were before; returns a line for each that was on, and is gone."""
    gone = []
    async with get_client() as client:
        for key, deployment in before.items():
            now = {_when(each): each for each in after[key].schedules}
            for schedule in deployment.schedules:
                same = now.get(_when(schedule))
                if same is None and schedule.active:
                    gone.append(f"a schedule of {deployment.name} was on, and is gone: not in prefect.yaml")
                elif same is not None and same.active != schedule.active:
                    await client.update_deployment_schedule(key, same.id, schedule.active)
    return gone


def _when(schedule: DeploymentSchedule) -> str:
    return schedule.schedule.model_dump_json(exclude={"anchor_date"})  # of an interval: when it was deployed


def _last_words(log: Path) -> str:
    """The error that Prefect has printed; after a stack trace, its last line but one."""
    lines = [line.strip(" │╭╰─╮╯") for line in log.read_text(errors="replace").splitlines()]
    said = [line for line in lines if line and line != "An exception occurred."]
    return said[-1] if said else "it cannot be deployed"


@asynccontextmanager
async def worker(pool: str, environment: Mapping[str, str], folder: Path) -> AsyncIterator[Process]:
    """A worker of a process pool, which is made where there is none. Its runs end before it does.

    Raises:
        ProcessEnded: it ended before it was ready.
    """
    name = f"callsheet-up-{platform.node()}"
    log = folder / WORKER_LOG
    await _make_pool(pool)
    before = await _heartbeat(pool, name)
    words = ["flows.own_worker", "--type", "process", "--pool", pool, "--name", name]
    process = await _start(words, _WORKER | dict(environment), log)
    async with _ending(process, WORKER_ENDING):
        await _unless_it_ends(process, log, _until_a_heartbeat(pool, name, before))
        yield process


async def _heartbeat(pool: str, name: str) -> str:
    """When a worker last told the server that it is there; empty where it never did."""
    async with get_client() as client:
        known = await client.read_workers_for_work_pool(pool)
    return next((str(each.last_heartbeat_time) for each in known if each.name == name), "")


async def _until_a_heartbeat(pool: str, name: str, before: str) -> None:
    while await _heartbeat(pool, name) == before:  # noqa: ASYNC110 - the same
        await asyncio.sleep(0.3)


async def unless_they_end(
    server: Process | None, worker: Process, folder: Path, show: Callable[[str], None]
) -> None:
    """Calls `show` with each error in the worker's log, its runs' among them, until a process ends.

    The server's log is for those who look for something: when it is busy, it has errors that mean nothing.

    Args:
        server: None where it was not started here: then it is not watched.

    Raises:
        ProcessEnded: one of them has ended.
    """
    work = _unless_it_ends(worker, folder / WORKER_LOG, _show_errors(folder / WORKER_LOG, show))
    await (_unless_it_ends(server, folder / SERVER_LOG, work) if server else work)


async def _show_errors(log: Path, show: Callable[[str], None]) -> None:
    with log.open(errors="replace") as file:
        while True:
            for line in file:
                if _ERROR.search(line):
                    show(line.strip())
            await asyncio.sleep(0.5)


async def _unless_it_ends(process: Process, log: Path, work: Coroutine[Any, Any, T]) -> T:
    """Carries out `work` while a process runs.

    Raises:
        ProcessEnded: the process ended first.
    """
    working, ended = asyncio.ensure_future(work), asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait([working, ended], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ProcessEnded(
                f"the Prefect {log.stem} has ended by itself, with exit code {ended.result()}",
                hint=f"Its log says more: {log}",
            )
        return working.result()
    finally:
        working.cancel()
        ended.cancel()


async def _start(
    words: Sequence[str], environment: Mapping[str, str], log: Path, pass_fds: Collection[int] = ()
) -> Process:
    """Starts `python -m <words>` with a pipe as stdin, whose end tells it that this process is gone."""
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", *words),
            stdin=PIPE,
            stdout=output,
            stderr=STDOUT,
            env=_ALL | dict(environment),
            pass_fds=pass_fds,
            start_new_session=True,
        )


@asynccontextmanager
async def _ending(process: Process, patience: float) -> AsyncIterator[None]:
    """Ends a process: in order, if it takes no longer than `patience` seconds and nobody interrupts that."""
    try:
        yield
    finally:
        _tell(process)
        try:
            async with asyncio.timeout(patience):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        except asyncio.CancelledError:
            _tell(process)  # told twice, a worker ends at once, with its runs
            try:
                async with asyncio.timeout(SERVER_ENDING):
                    await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
            raise


def _tell(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
