"""The processes that a command starts for as long as it runs: a Prefect server, a worker, `prefect deploy`.

Each has a pipe as stdin, whose end tells it that the command is gone, in whichever way; and a session of its
own, because a terminal sends Ctrl-C to every process of a command, and the worker must end before the server.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from callsheet.errors import ProcessEnded

T = TypeVar("T")
ENDING = 5.0  # seconds for an orderly end, where nothing else is said
_ALL = {"COLUMNS": "200"}  # Prefect breaks lines of its logs at 80 characters otherwise


async def start(
    words: Sequence[str], environment: Mapping[str, str], log: Path, pass_fds: Collection[int] = ()
) -> Process:
    """Starts `python -m <words>` with a pipe as stdin, whose end tells it that this process is gone."""
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *words),
            stdin=PIPE,
            stdout=output,
            stderr=STDOUT,
            env=_ALL | dict(environment),
            pass_fds=pass_fds,
            start_new_session=True,
        )


@asynccontextmanager
async def ending(process: Process, patience: float = ENDING) -> AsyncIterator[None]:
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
                async with asyncio.timeout(ENDING):
                    await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
            raise


async def unless_it_ends(process: Process, log: Path, work: Coroutine[Any, Any, T]) -> T:
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


def _tell(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
