"""A run that is killed, or goes wrong, where it is told to: `python -m tests.crash.forked_run REQUEST`.

The request is JSON with the `folder` of the batch, and some of

    kill: {point, nth}     it kills itself at the nth passing of a named point (`callsheet.failpoints`)
    waits                  seconds that it waits for a ledger that fails (`tests.ledger.waits`), by name
    move                   {point, nth, files, to}: at this point these files are moved to another folder
    file_size              no file that it writes can grow beyond so many bytes: a disk that is full
    record                 a file that gets the name of every point that is passed
    backoff                seconds between two tries of a submission
    grace                  seconds that it has to end politely after a signal; says how it ended, as a command

It carries out `callsheet.steps.batch.generate`, as `callsheet run` does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

from callsheet import failpoints, signals
from callsheet.config.load import load
from callsheet.errors import known_error
from callsheet.service.client import Client
from callsheet.service.verdicts import Backoff
from callsheet.session import Bounds
from callsheet.steps.batch import Steps, generate
from tests.ledger.waits import set_waits


def at(point: str, nth: int, do: Callable[[], object]) -> Callable[[str], None]:
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


def main(
    folder: str, kill: Any = None, move: Any = None, record: str = "", grace: float = 0, **more: Any
) -> int:
    """Carries out the request; returns the exit code if it is let live."""
    os.chdir(folder)
    if kill:
        failpoints.observer = at(**kill, do=lambda: os.kill(os.getpid(), signal.SIGKILL))
    elif move:
        files, to = map(Path, move.pop("files")), Path(move.pop("to"))
        failpoints.observer = at(**move, do=lambda: [file.rename(to / file.name) for file in files])
    elif record:
        failpoints.observer = recorder(Path(record))
    if size := more.get("file_size"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    backoff = Backoff(first=more.get("backoff", 0.01))
    Client.__init__ = partialmethod(Client.__init__, backoff=backoff)  # type: ignore[method-assign, assignment]
    set_waits(**more.get("waits", {}))
    steps = Steps(bounds=Bounds(grace=grace)) if grace else Steps()
    work = generate(load(Path("batch.yaml")), approved=False, steps=steps)
    try:
        if not grace:
            return asyncio.run(work).exit_code
        from callsheet.cli.terminal import Terminal, run_watched

        signals.keep_until_heard()
        summary = run_watched(work, Terminal())
        sys.stderr.write(f"{summary.stop_message}\n")
    except BaseException as error:  # noqa: BLE001 - it is in the log, and says the exit code
        first = known_error(error)
        if grace and first:
            sys.stderr.write(f"{first}\n")
        else:
            traceback.print_exc()
        return first.exit_code if first else 1
    return summary.exit_code


if __name__ == "__main__":
    sys.exit(main(**json.loads(sys.argv[1])))
