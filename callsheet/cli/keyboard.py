"""What a person types at a terminal, a line at a time. A signal ends the waiting for it."""

from __future__ import annotations

import asyncio
import sys

import anyio

if sys.platform == "win32":
    import msvcrt
else:
    import termios

_AGAIN = 0.05  # seconds between two looks at the keyboard
_ENTER, _BACK = ("\r", "\n"), ("\b", "\x7f")
_END = ("", "\x04", "\x1a")  # Ctrl-D and Ctrl-Z
_PREFIXES = ("\x00", "\xe0")  # of an arrow or a function key, which is two characters


def forget() -> None:
    """What was typed up to now is never read."""
    if sys.platform == "win32":
        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


async def line() -> str:
    """The next line, with its end; empty where the input was ended in its place."""
    if sys.platform == "win32":  # where one cannot wait for a whole line of the terminal
        return await _typed()
    await anyio.wait_readable(sys.stdin)
    return sys.stdin.readline()


if sys.platform == "win32":

    async def _typed() -> str:
        text = ""
        while True:
            while not msvcrt.kbhit():  # noqa: ASYNC110 - Windows does not say when
                await asyncio.sleep(_AGAIN)
            key = msvcrt.getwch()
            if key in _PREFIXES:
                msvcrt.getwch()
                continue
            if key in _END and not text:
                return ""
            if key in _ENTER:
                _show("\n")
                return f"{text}\n"
            if key in _BACK and text:
                text = text[:-1]
                _show("\b \b")
            elif key.isprintable():
                text += key
                _show(key)

    def _show(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
