"""A process that runs a batch, and is killed where it is told to.

`python -m tests.crash.forked_run` imports everything once and then forks a process for each request that it
reads (a line of JSON on stdin), so that a kill costs the run and not the imports. For each it writes the exit
code: -9 for one that was killed. A request has `folder`, `environment`, and some of

    kill: {point, nth}     it kills itself at the nth passing of a named point (`callsheet.failpoints`)
    kill: {after}          it is killed from outside after so many seconds
    waits                  seconds that it waits for a ledger that fails (`tests.ledger.waits`), by name
    move                   {point, nth, files, to}: at this point these files are moved to another folder
    file_size              no file that it writes can grow beyond so many bytes: a disk that is full
    record                 a file that gets the name of every point that is passed

It runs `flows.batch.generate`, as `callsheet run` does where no Prefect server is configured.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import itertools
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

from callsheet import failpoints
from callsheet.config.load import load
from callsheet.errors import known_error
from callsheet.service.client import Client
from callsheet.service.verdicts import Backoff
from callsheet.steps.batch import generate
from tests.ledger.waits import set_waits
from tests.servers.forks import IMPORTED_LATER


def killer(point: str, nth: int) -> Callable[[str], None]:
    """An observer that ends this process at the nth passing of a point."""
    return at(point, nth, lambda: os.kill(os.getpid(), signal.SIGKILL))


def mover(point: str, nth: int, files: list[str], to: str) -> Callable[[str], None]:
    """An observer that moves files to another folder at the nth passing of a point."""

    def move() -> None:
        for file in map(Path, files):
            file.rename(Path(to) / file.name)

    return at(point, nth, move)


def at(point: str, nth: int, do: Callable[[], None]) -> Callable[[str], None]:
    """An observer that does something at the nth passing of a point."""
    passings = itertools.count(1)

    def observe(passed: str) -> None:
        if passed == point and next(passings) == nth:
            do()

    return observe


def recorder(path: Path) -> Callable[[str], None]:
    """An observer that writes down every point that is passed."""

    def observe(passed: str) -> None:
        with path.open("a") as file:
            file.write(f"{passed}\n")

    return observe


def run_request(request: dict[str, Any]) -> int:
    """Carries out one request, in the forked process; returns its exit code if it is let live."""
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    with Path("run.log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    kill = request.get("kill", {})
    if "point" in kill:
        failpoints.observer = killer(kill["point"], kill["nth"])
    elif "move" in request:
        failpoints.observer = mover(**request["move"])
    elif "record" in request:
        failpoints.observer = recorder(Path(request["record"]))
    if "file_size" in request:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"], request["file_size"]))
    backoff = Backoff(first=request.get("backoff", 0.01))
    Client.__init__ = partialmethod(Client.__init__, backoff=backoff)  # type: ignore[method-assign, assignment]
    set_waits(**request.get("waits", {}))
    try:
        return asyncio.run(generate(load(Path("batch.yaml")), approved=False)).exit_code
    except BaseException as error:  # noqa: BLE001 - a forked process must not run on in its parent's code
        traceback.print_exc()
        first = known_error(error)
        return first.exit_code if first else 1


def main() -> None:
    for name in IMPORTED_LATER:
        importlib.import_module(name)
    gc.freeze()  # a collection in a fork would copy all that is imported
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(run_request(request))
        if "after" in request.get("kill", {}):
            time.sleep(request["kill"]["after"])
            os.kill(pid, signal.SIGKILL)  # not waited for yet, so the id is still its own
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
