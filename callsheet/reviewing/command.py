"""The program of the user's own that judges files (`checks.command`)."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from callsheet.plain_text import printable

PATIENCE = 60.0
"""Seconds that the program may take for a file."""

_LONGEST = 200  # characters of a flag
_LONGEST_LINE = 1 << 20  # bytes of an answer
_SHOWN = 1_000  # characters of its stderr
_GRACE = 2.0  # seconds to end by itself when nothing more is asked


class Judged(BaseModel):
    """What the program says of a file; a field that it has besides is not read. A longer flag is cut off."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    score: float | None = None
    flags: list[Annotated[str, AfterValidator(lambda text: printable(text)[:_LONGEST])]] = []
    reject: bool = False


class _Failed(Exception):
    """The program cannot be asked any more; the text says why."""


class Judge:
    """The program, which starts with the first question and ends with `aclose`. No shell is used.

    It reads a line of JSON for each file and answers with one. One that cannot be started, ends, answers
    anything else or takes longer is not asked any more: after an odd line nobody knows which file the next
    one is about.

    `line` is the program with its arguments. `note` is called once where it fails, with the reason and what
    it has written to stderr. `patience`: seconds that it may take for a file.
    """

    def __init__(self, line: str, note: Callable[[str], None], patience: float = PATIENCE) -> None:
        self._line = line
        self._note = note
        self._patience = patience
        self._process: Process | None = None
        self._said = bytearray()  # on stderr
        self._hearing: asyncio.Task[None] | None = None
        self.works = True

    async def judge(self, about: Mapping[str, Any]) -> Judged | None:
        """What it says of a file; None where it fails, or has failed before."""
        if not self.works:
            return None
        try:
            return await self._ask(about)
        except _Failed as error:
            self.works = False
            await self.aclose(at_once=True)
            said = printable(self._said.decode(errors="replace").strip())
            self._note(
                f"the program of checks.command judges no more files: {error}: {self._line}"
                + (f"; it wrote: {said}" if said else "")
            )
            return None

    async def _ask(self, about: Mapping[str, Any]) -> Judged:
        process = self._process or await self._start()
        assert process.stdin and process.stdout  # noqa: S101 - both are pipes
        try:
            async with asyncio.timeout(self._patience):
                process.stdin.write(json.dumps(about).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            raise _Failed(f"it took longer than {self._patience:g} s for a file") from None
        except (OSError, ValueError):  # it reads no more; or a line without end
            line = b""
        if not line:
            raise _Failed("it ended")
        try:
            return Judged.model_validate_json(line)
        except ValidationError:
            answer = printable(line[:_LONGEST].decode(errors="replace").strip())
            raise _Failed(f"its answer is no JSON object with score, flags and reject ({answer})") from None

    async def _start(self) -> Process:
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *shlex.split(self._line),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=_LONGEST_LINE,
                start_new_session=True,  # a terminal's Ctrl-C is for the run
            )
        except (OSError, ValueError) as error:
            raise _Failed(f"it cannot be started: {error}") from None
        self._hearing = asyncio.create_task(self._hear(process))
        return process

    async def _hear(self, process: Process) -> None:
        """Keeps the beginning of its stderr, and reads the rest, so that it does not wait for a reader."""
        assert process.stderr  # noqa: S101 - it is a pipe
        while text := await process.stderr.read(1 << 16):
            self._said += text[: _SHOWN - len(self._said)]

    async def aclose(self, *, at_once: bool = False) -> None:
        """Ends the program, which may first write what it has left to write."""
        process, self._process = self._process, None
        if process is None or self._hearing is None:
            return
        assert process.stdin  # noqa: S101 - it is a pipe
        process.stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(process.wait()), 0 if at_once else _GRACE)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
        await process.wait()
        await self._hearing
