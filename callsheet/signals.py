"""The signals that ask a program to end, as callbacks of the event loop.

An exception that a signal handler raises can be lost in whatever code runs at that moment. Here the event
loop calls a function in its own turn, and nothing is raised. What to do is for the caller to say.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from callsheet.errors import CallsheetError, Interrupted

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Listener = Callable[[signal.Signals], None]

_unheard: list[signal.Signals] = []  # came while nobody listened, or while it was too late to act
_listeners: dict[signal.Signals, Listener] = {}
_done = threading.Event()


def keep_until_heard() -> None:
    """From now on a signal is kept until somebody listens. A second one ends the program at once.

    For the time before there is an event loop, when nothing is bought yet, and after it, when all is written.
    """

    def keep(number: int, _frame: object) -> None:
        if _unheard:
            os._exit(Interrupted.exit_code)
        _unheard.append(signal.Signals(number))

    for number in _wanted():
        signal.signal(number, keep)
    # Python takes its handlers away before it unloads its modules; a signal would then kill what succeeded.
    atexit.register(_ignore)


def _ignore() -> None:
    for number in _wanted():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """While it lasts, the event loop calls `listener` for each signal, and for one that came before.

    A `listening` inside another takes its place until it ends. In a thread other than the main one it does
    nothing, because only the main thread receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = {number: signal.getsignal(number) for number in _wanted()}
    outer = dict(_listeners)
    for number in handlers:
        _listen(loop, number, listener)
    if _unheard:
        loop.call_soon(listener, _unheard.pop())
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if number in outer:
                _listen(loop, number, outer[number])
            else:
                del _listeners[number]
                signal.signal(number, handler)


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """A signal cancels the current task.

    Raises:
        Interrupted: a signal came, and no inner `listening` has dealt with it. It takes the place of
            Callsheet's errors: what is ended at once may fail in many ways.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task
    if not _listeners:
        _done.clear()
    try:
        with listening(lambda number: cancel(task, number)):
            yield
    except (asyncio.CancelledError, CallsheetError, BaseExceptionGroup) as error:
        if not _unheard or _is_a_bug(error):
            raise
        if isinstance(error, asyncio.CancelledError):
            task.uncancel()
    if _unheard and not _done.is_set():
        raise _interrupted(_unheard.pop())


def done() -> None:
    """From now on a signal cancels nothing: what it could end has ended, and its result must not be lost."""
    _done.set()


@contextmanager
def raised() -> Iterator[None]:
    """A signal raises `Interrupted`: for code that waits for a person, and keeps the event loop waiting."""

    def stop(number: int, _frame: object) -> None:
        raise _interrupted(signal.Signals(number))

    handlers = {number: signal.signal(number, stop) for number in _wanted()}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def cancel(task: asyncio.Task[Any], number: signal.Signals) -> None:
    """Cancels a task that is inside `cancelled_by_signals`, on behalf of a signal; not after `done`."""
    if _done.is_set():
        return
    _unheard[:] = [number]  # libraries sometimes drop a cancellation: whoever listens next is told again
    task.cancel()


def _listen(loop: asyncio.AbstractEventLoop, number: signal.Signals, listener: Listener) -> None:
    # Not `loop.add_signal_handler`: taking such a handler away leaves none for a moment, and a signal that
    # comes just then kills the program.
    _listeners[number] = listener
    signal.signal(number, lambda *_: loop.call_soon_threadsafe(listener, number))


def _is_a_bug(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_a_bug, error.exceptions))
    return not isinstance(error, asyncio.CancelledError | CallsheetError)


def _interrupted(number: signal.Signals) -> Interrupted:
    return Interrupted(f"stopped by {number.name}", hint="The same command goes on from here.")


def _wanted() -> list[signal.Signals]:
    """All of them but those that the parent process set to be ignored, as `nohup` does with SIGHUP."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
