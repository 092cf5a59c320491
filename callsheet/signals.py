"""The signals that ask a program to end, as callbacks of the event loop.

An exception that a signal handler raises can be lost in whatever code runs at that moment. Here the event
loop calls a function in its own turn, and nothing is raised. What to do is for the caller to say.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from callsheet.errors import CallsheetError, Interrupted

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Listener = Callable[[signal.Signals], None]
_Handler = Callable[[int, FrameType | None], Any] | int | None


@dataclass(eq=False)
class _Hearing:
    """What one piece of work hears: runs side by side in one program each have their own.

    Attributes:
        listeners: the innermost last, each with the event loop and the context in which it is called.
        unheard: came, and whoever listens next is told again.
        done: it is too late to act.
    """

    listeners: list[tuple[asyncio.AbstractEventLoop, Listener, Context]] = field(default_factory=list)
    unheard: list[signal.Signals] = field(default_factory=list)
    done: bool = False


_unheard: list[signal.Signals] = []  # came while nobody listened
_hearings: list[_Hearing] = []  # those that listen
_handlers: dict[signal.Signals, _Handler] = {}  # what the signals did before somebody listened
_users = 0  # of our handlers
_HEARING: ContextVar[_Hearing | None] = ContextVar("hearing", default=None)
_PASSED_ON: ContextVar[bool] = ContextVar("passed_on", default=False)  # by the main thread, to this one


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

    A `listening` inside another takes its place until it ends; others, at work at the same time, hear the
    signal too. In a thread other than the main one it does nothing, because only the main thread receives
    signals, unless the main thread passes them on (`passed_on`).
    """
    with _listening(listener):
        yield


@contextmanager
def _listening(listener: Listener) -> Iterator[_Hearing]:
    in_main_thread = threading.current_thread() is threading.main_thread()
    outer = _HEARING.get()
    hearing = outer or _Hearing()
    if not (in_main_thread or _PASSED_ON.get()):
        yield hearing
        return
    loop = asyncio.get_running_loop()
    if outer is None:
        _HEARING.set(hearing)
        _hearings.append(hearing)
    hearing.listeners.append((loop, listener, contextvars.copy_context()))
    replaced = _take_signals() if in_main_thread else {}
    for unheard in (hearing.unheard, _unheard):
        if unheard:
            loop.call_soon(listener, unheard.pop())
    try:
        yield hearing
    finally:
        hearing.listeners.pop()
        if outer is None:
            _hearings.remove(hearing)
            _HEARING.set(None)
        if in_main_thread:
            _leave_signals(replaced)


@contextmanager
def passed_on() -> Iterator[None]:
    """While it lasts, the main thread passes signals on to what another thread runs in a copy of its context.

    For code that waits in the main thread for an event loop of another one, because its own is busy: a
    notebook. In any other thread it does nothing.

    Raises:
        Interrupted: a signal came, and nobody has heard it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    replaced = _take_signals()
    _PASSED_ON.set(True)
    try:
        yield
    finally:
        _PASSED_ON.set(False)
        _leave_signals(replaced)
    if _unheard:
        raise _interrupted(_unheard.pop())


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """A signal cancels the current task.

    Raises:
        Interrupted: a signal came, and no inner `listening` has dealt with it. It takes the place of
            Callsheet's errors: what is ended at once may fail in many ways.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task
    hearing = _Hearing()
    try:
        with _listening(lambda number: cancel(task, number)) as hearing:
            yield
    except (asyncio.CancelledError, CallsheetError, BaseExceptionGroup) as error:
        if not (hearing.unheard or _unheard) or _is_a_bug(error):
            raise
        if isinstance(error, asyncio.CancelledError):
            task.uncancel()
    unheard = hearing.unheard or _unheard
    if unheard and not hearing.done:
        raise _interrupted(unheard.pop())


def done() -> None:
    """From now on a signal cancels nothing: what it could end has ended, and its result must not be lost."""
    if hearing := _HEARING.get():
        hearing.done = True


@contextmanager
def raised() -> Iterator[Callable[[int], None]]:
    """A signal raises `Interrupted`: for code that waits for a person, and keeps the event loop waiting.

    Yields:
        A function that waits until there is something to read from a file descriptor. A read alone would miss
        a signal that comes just before it, and wait on.
    """

    def stop(number: int, _frame: object) -> None:
        raise _interrupted(signal.Signals(number))

    def wait(descriptor: int) -> None:
        while descriptor not in select.select([descriptor, came], [], [])[0]:
            os.read(came, 1)  # of a signal that is not ours

    came, write = os.pipe()
    os.set_blocking(write, False)
    others = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, stop) for number in _wanted()}
    try:
        yield wait
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(others)
        os.close(write)
        os.close(came)


def cancel(task: asyncio.Task[Any], number: signal.Signals) -> None:
    """Cancels a task that is inside `cancelled_by_signals`, on behalf of a signal; not after `done`.

    For a listener: it cancels what that belongs to.
    """
    hearing = _HEARING.get()
    if hearing is None or hearing.done:
        return
    hearing.unheard[:] = [
        number
    ]  # libraries sometimes drop a cancellation: whoever listens next is told again
    task.cancel()


def _take_signals() -> dict[signal.Signals, _Handler]:
    """Signals go to those who listen. For the main thread; `_leave_signals` must follow.

    Returns:
        The handlers that somebody else, such as Prefect, has put in the place of ours.
    """
    # Not `loop.add_signal_handler`: taking such a handler away leaves none for a moment, and a signal that
    # comes just then kills the program.
    global _users  # noqa: PLW0603 - a program has one handler for each signal
    replaced: dict[signal.Signals, _Handler] = {}
    for number in _wanted():
        if (handler := signal.getsignal(number)) is not _tell:
            replaced[number] = handler
            signal.signal(number, _tell)
    if not _users:
        _handlers.update(replaced)
        replaced = {}
    _users += 1
    return replaced


def _leave_signals(replaced: dict[signal.Signals, _Handler]) -> None:
    global _users  # noqa: PLW0603
    _users -= 1
    for number, handler in (replaced if _users else _handlers).items():
        signal.signal(number, handler)
    if not _users:
        _handlers.clear()


def _tell(number: int, _frame: object) -> None:
    told = False
    for hearing in tuple(_hearings):
        with suppress(IndexError, RuntimeError):  # it has just ended
            loop, listener, context = hearing.listeners[-1]
            loop.call_soon_threadsafe(listener, signal.Signals(number), context=context)
            told = True
    if not told:
        _unheard[:] = [signal.Signals(number)]


def _is_a_bug(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_a_bug, error.exceptions))
    return not isinstance(error, asyncio.CancelledError | CallsheetError)


def _interrupted(number: signal.Signals) -> Interrupted:
    return Interrupted(f"stopped by {number.name}", hint="The same command goes on from here.")


def _wanted() -> list[signal.Signals]:
    """All of them but those that the parent process set to be ignored, as `nohup` does with SIGHUP."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
