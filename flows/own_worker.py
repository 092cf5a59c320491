"""`python -m flows.own_worker OPTIONS`: `prefect worker start OPTIONS`, whose runs end in order before it.

Prefect's own kills its runs as soon as it is told to end, and what is on the wire then is in doubt; and it
writes "Flow run was cancelled successfully." over what a cancelled run has said at its end. This one is told
to end by a signal (`callsheet.signals.ENDING`); or, where its stdin is a pipe, by its end: who has started it
is gone then, in whichever way. It tells its runs to stop, and waits for them. Told twice, it kills them all.

SIGTERM is blocked here, and so from the beginning in its runs: one that comes before a run can hear it would
kill it, and waits instead until `@ends_in_a_state` lets it in. A flow without that ends when it is killed.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import psutil
from prefect.cli import app

from callsheet.processes import tell_to_end
from callsheet.signals import ENDING, tell_main_thread
from tasks import private_parts

RUNS_ENDING = 45.0  # seconds; a run waits 25 at most for what is on the wire, then it writes its report
WORKER_ENDING = 15.0
_end_requests: SimpleQueue[None] = SimpleQueue()  # to end; signal handlers may use such a queue


def main() -> None:
    """Works until it is told to end."""
    if sys.platform != "win32":  # before there are threads, which inherit it
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_tell_at_sigterm, daemon=True).start()
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=_tell_at_end_of_stdin, daemon=True).start()
    private_parts.listen_to_signals(_listen)
    private_parts.cancelled_runs_have_the_last_word()
    sys.argv[1:1] = ["worker", "start"]
    app()


def _tell_at_end_of_stdin() -> None:
    while os.read(0, 1024):  # not sys.stdin, whose lock blocks the end of the interpreter
        pass
    _end_requests.put(None)


if sys.platform != "win32":

    def _tell_at_sigterm() -> None:
        while signal.sigwait({signal.SIGTERM}):
            _end_requests.put(None)


def _listen(*_: Any) -> None:
    """The worker calls it just before it looks for runs."""
    stop = signal.getsignal(signal.SIGINT)  # of asyncio: the worker itself ends by it
    over = threading.Event()  # for the runs

    def heard(number: int, frame: Any) -> None:
        if over.is_set() and callable(stop):
            stop(number, frame)
        else:
            _end_requests.put(None)

    for number in ENDING:
        signal.signal(number, heard)
    threading.Thread(target=_end, args=[over], daemon=True).start()


def _end(over: threading.Event) -> None:
    """Waits to be told; ends the runs, then the worker, and all of them at once when it is told again."""
    _end_requests.get()
    asked: set[psutil.Process] = set()
    until = time.monotonic() + RUNS_ENDING
    while (runs := psutil.Process().children()) and time.monotonic() < until:
        for run in {*runs} - asked:
            with suppress(psutil.NoSuchProcess):
                tell_to_end(run)
        asked.update(runs)
        with suppress(Empty):
            _end_requests.get(timeout=0.2)
            break
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    over.set()
    tell_main_thread(signal.SIGINT)
    time.sleep(WORKER_ENDING)
    os._exit(0)


if __name__ == "__main__":
    main()
