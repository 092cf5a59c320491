"""The signals that ask a program to end, as callbacks of the event loop.

An exception that a signal handler raises can be lost in whatever code runs at that moment. Here the event
loop calls a function in its own turn, and nothing is raised. What to do is for the caller to say.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from callsheet.errors import CallsheetError, Interrupted, known_error

if sys.platform == "win32":
    ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)  # the last: Ctrl-Break, or its window is closed
else:
    ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Listener = Callable[[signal.Signals], None]


class _Hearing:
    """A task that a signal ends, and who is told of it before: runs side by side each have their own."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self.task, self.loop = task, asyncio.get_running_loop()
        self.listeners: list[Listener] = [self.cancel]  # the innermost last
        self.came: signal.Signals | None = None  # it has cancelled the task; a library may have dropped that
        self.done = False

    def tell(self, number: signal.Signals) -> None:
        self.listeners[-1](number)

    def cancel(self, number: signal.Signals) -> None:
        if not self.done:
            self.came = number
            self.task.cancel()


_unheard: list[signal.Signals] = []  # came while nobody listened
_hearings: list[_Hearing] = []  # those that listen
_handlers_before: dict[signal.Signals, Any] = {}  # what the signals did before somebody listened
_users = 0  # of our handlers
_HEARING: ContextVar[_Hearing | None] = ContextVar("hearing", default=None)


def keep_until_heard() -> None:
    """From now on a signal is kept until somebody listens. A second one ends the program at once.

    For the time before there is an event loop, when nothing is bought yet, and after it, when all is written.
    """

    def remember(number: int, _frame: object) -> None:
        if _unheard:
            os._exit(Interrupted.exit_code)
        _unheard.append(signal.Signals(number))

    def ignore() -> None:
        for number in _not_ignored():
            signal.signal(number, signal.SIG_IGN)

    for number in _not_ignored():
        signal.signal(number, remember)
    # Python takes its handlers away before it unloads its modules; a signal would then kill what succeeded.
    atexit.register(ignore)


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """A signal cancels the current task, unless an inner `listening` deals with it.

    Others that are at work at the same time hear the signal too.

    Raises:
        Interrupted: a signal has cancelled the task. It takes the place of Callsheet's errors: what is ended
            at once may fail in many ways.
    """
    outer = _HEARING.get()
    if outer and outer.task is asyncio.current_task():
        outer.done = False  # what was is safe; what begins now can be ended
        with _interrupted_by(outer):
            yield
        return
    hearing = _Hearing()
    token = _HEARING.set(hearing)
    _hearings.append(hearing)
    try:
        with _interrupted_by(hearing), _handled():
            if _unheard:
                hearing.loop.call_soon(hearing.tell, _unheard.pop())
            yield
    finally:
        hearing.done = True
        _hearings.remove(hearing)
        _HEARING.reset(token)


@contextmanager
def _interrupted_by(hearing: _Hearing) -> Iterator[None]:
    """Raises `Interrupted` where a signal has cancelled the task, also where a library dropped that."""
    try:
        yield
    except (asyncio.CancelledError, CallsheetError, BaseExceptionGroup) as error:
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if not hearing.came or not (is_cancelled or known_error(error)):
            raise
        if is_cancelled:
            hearing.task.uncancel()
    if hearing.came and not hearing.done:
        came, hearing.came = hearing.came, None
        raise _interrupted(came)


@contextmanager
def listening(listener: Listener) -> Iterator[Listener]:
    """While it lasts, the event loop calls `listener` for each signal, and for one that came before.

    Yields:
        What a signal does otherwise: it cancels the task that is inside `cancelled_by_signals`.
    """
    hearing = _HEARING.get() or _Hearing()
    hearing.listeners.append(listener)
    if came := hearing.came or (_unheard.pop() if _unheard else None):
        hearing.came = None
        hearing.loop.call_soon(listener, came)
    try:
        yield hearing.cancel
    finally:
        hearing.listeners.remove(listener)


def done() -> None:
    """From now on a signal cancels nothing: what it could end has ended, and its result must not be lost."""
    if hearing := _HEARING.get():
        hearing.done = True


def tell_main_thread(number: signal.Signals) -> None:
    """The same as if the signal came from outside; the main thread is awake then, whatever it waits for."""
    if sys.platform == "win32":
        signal.raise_signal(number)
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def passed_on() -> Iterator[None]:
    """While it lasts, the main thread passes signals on to what another thread runs.

    For code that waits in the main thread for an event loop of another one, because its own is busy: a
    notebook. In any other thread it does nothing.

    Raises:
        Interrupted: a signal came, and nobody has heard it.
    """
    with _handled():
        yield
    if _unheard and threading.current_thread() is threading.main_thread():
        raise _interrupted(_unheard.pop())


@contextmanager
def _handled() -> Iterator[None]:
    """While it lasts, signals go to those who listen. Only the main thread can see to that."""
    # Not `loop.add_signal_handler`: taking such a handler away leaves none for a moment, and a signal that
    # comes just then kills the program.
    global _users  # noqa: PLW0603 - a program has one handler for each signal
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _users:
        for number in {*ENDING} - {*_not_ignored()}:  # polars has put its own handler in the place of none
            signal.signal(number, signal.SIG_IGN)
        _handlers_before.update({number: signal.signal(number, _tell) for number in _not_ignored()})
        if sys.platform != "win32":  # a worker's runs begin with them blocked (`flows/own_worker.py`)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    _users += 1
    try:
        yield
    finally:
        _users -= 1
        if not _users:
            for number, handler in _handlers_before.items():
                signal.signal(number, handler)
            _handlers_before.clear()


def _tell(number: int, _frame: object) -> None:
    for hearing in tuple(_hearings):
        with suppress(RuntimeError):  # its event loop has just ended
            hearing.loop.call_soon_threadsafe(hearing.tell, signal.Signals(number))
    if not _hearings:
        _unheard[:] = [signal.Signals(number)]


def _interrupted(number: signal.Signals) -> Interrupted:
    return Interrupted(f"stopped by {number.name}", hint="The same command goes on from here.")


def _not_ignored() -> list[signal.Signals]:
    """All of them but those that the parent process set to be ignored, as `nohup` does with SIGHUP."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
