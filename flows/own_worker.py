"""`python -m flows.own_worker OPTIONS`: a Prefect worker whose runs end in order before it does.

`prefect worker start` kills its runs as soon as it is told to end, and what is on the wire then is in doubt.
This one tells its runs to stop, waits for them, and then ends the worker. It is told to end by SIGTERM,
SIGINT or SIGHUP; or, where its stdin is a pipe, by its end: who has started it is gone then, in whichever
way. Told twice, it kills them all.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil

RUNS_ENDING = 45.0  # seconds; a run waits 25 at most for what is on the wire, then it writes its report
WORKER_ENDING = 15.0
_TOLD, _ENDED = b"t", b"e"


def main() -> int:
    """Works as `prefect worker start OPTIONS`; returns its exit code, 0 where it was told to end."""
    read, write = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(write, _TOLD))
    # Of its own session, because a terminal sends Ctrl-C to every process of a command.
    worker = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "flows.prefect_worker", *sys.argv[1:]],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=lambda: (worker.wait(), os.write(write, _ENDED)), daemon=True).start()
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=_tell_at_end_of_stdin, args=[write], daemon=True).start()
    if os.read(read, 1) == _ENDED:
        return worker.wait()
    _end(worker, read)
    return 0


def _tell_at_end_of_stdin(write: int) -> None:
    while os.read(0, 1024):  # not sys.stdin, whose lock blocks the end of the interpreter
        pass
    os.write(write, _TOLD)


def _end(worker: subprocess.Popen[bytes], read: int) -> None:
    """Ends the runs, then the worker; all of them at once when `read` says that we are told again."""
    with suppress(psutil.NoSuchProcess):
        runs = psutil.Process(worker.pid).children()
        for run in runs:
            with suppress(psutil.NoSuchProcess):
                run.terminate()
        until = time.monotonic() + RUNS_ENDING
        while any(run.is_running() for run in runs) and time.monotonic() < until:
            if _told(read, 0.2):
                break
        for each in [one for run in runs if run.is_running() for one in _family(run)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    worker.terminate()
    try:
        worker.wait(WORKER_ENDING)
    except subprocess.TimeoutExpired:
        worker.kill()


def _told(read: int, seconds: float) -> bool:
    return bool(select.select([read], [], [], seconds)[0]) and os.read(read, 1) == _TOLD


def _family(run: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [run, *run.children(recursive=True)]
    return []


if __name__ == "__main__":
    sys.exit(main())
