"""The automatic checks of a batch's stored files, each once, in the background while a run is at work.

Begin with `check_files`. Which files are left the ledger says, so a killed run leaves them to the next one.
Some checks go by what was seen of a file and what was asked for; one is a program of the user's own
(`checks.command`).
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from array import array
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from callsheet import processes
from callsheet.config.settings import BatchSettings, Checks
from callsheet.errors import LedgerError
from callsheet.ledger import leases, marks, queries
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import FileKey, Finding, Measured
from callsheet.plain_text import counted, printable
from callsheet.records import RejectedFile
from callsheet.report.contact_sheet.thumbnails import Seen, Thumbnails, local_file
from callsheet.reviewing.delivered import differences

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

    def __init__(self, line: str, note: Callable[[str], None], patience: float) -> None:
        self._line = line
        self._note = note
        self._patience = patience
        self._process: Process | None = None
        self._stderr = bytearray()  # the beginning of it
        self._hearing: asyncio.Task[None] | None = None
        self.works = True

    async def judge(self, question: Mapping[str, Any]) -> Judged | None:
        """What it says of a file; None where it fails, or has failed before."""
        if not self.works:
            return None
        try:
            return await self._ask(question)
        except _Failed as error:
            self.works = False
            await self.aclose(at_once=True)
            stderr = printable(self._stderr.decode(errors="replace").strip())
            self._note(
                f"the program of checks.command judges no more files: {error}: {self._line}"
                + (f"; it wrote: {stderr}" if stderr else "")
            )
            return None

    async def _ask(self, question: Mapping[str, Any]) -> Judged:
        process = self._process or await self._start()
        assert process.stdin and process.stdout  # noqa: S101 - both are pipes
        try:
            async with asyncio.timeout(self._patience):
                process.stdin.write(json.dumps(question).encode() + b"\n")
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
                **processes.APART,  # a terminal's Ctrl-C is for the run
            )
        except (OSError, ValueError) as error:
            raise _Failed(f"it cannot be started: {error}") from None
        self._hearing = asyncio.create_task(self._hear(process))
        return process

    async def _hear(self, process: Process) -> None:
        """Keeps the beginning of its stderr, and reads the rest, so that it does not wait for a reader."""
        assert process.stderr  # noqa: S101 - it is a pipe
        while text := await process.stderr.read(1 << 16):
            self._stderr += text[: _SHOWN - len(self._stderr)]

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
                processes.kill(process.pid)  # what it has started, too
        await process.wait()
        await self._hearing


_NEAR = 4  # of 64 bits: no more differ in another size or format; of unlike images rarely fewer than 10


_OWN = ("blank", "size", "duplicate", "delivered")  # the checks that are no program of the user's


def is_wanted(checks: Checks) -> bool:
    """Whether the config wants any check at all."""
    return checks.command is not None or any(getattr(checks, name) != "off" for name in _OWN)


def may_reject(checks: Checks) -> bool:
    """Whether a check may reject a file."""
    return checks.command is not None or any(getattr(checks, name) == "reject" for name in _OWN)


class Pictures:
    """The perceptual hashes of a batch's images. Among 100,000 a nearly equal one is found in 0.1 ms.

    Args:
        images: the row of each image and its hash, 16 hex digits.
    """

    def __init__(self, images: Iterable[tuple[str, str]] = ()) -> None:
        images = list(images)
        self._rows = [row_id for row_id, _ in images]
        self._hashes = array("Q", (int(hash_, 16) for _, hash_ in images))

    def add(self, row_id: str, hash_: str) -> None:
        """Adds an image of a row."""
        self._rows.append(row_id)
        self._hashes.append(int(hash_, 16))

    def like(self, row_id: str, hash_: str) -> str | None:
        """The first other row that has nearly the same image as this row's; None where none has."""
        import numpy as np  # here, because it takes 0.1 s to load

        differing = np.bitwise_count(np.asarray(self._hashes) ^ np.uint64(int(hash_, 16)))
        near = (self._rows[place] for place in np.flatnonzero(differing <= _NEAR))
        return next((other_row for other_row in near if other_row != row_id), None)


def wrong(
    checks: Checks, measured: Seen, file: Mapping[str, Any], request: Mapping[str, Any], pictures: Pictures
) -> list[tuple[str, str]]:
    """What the checks find in a file, a row of `marks.unchecked`, by the request as it was sent.

    Returns:
        The check and its flag, a short text for people, of each that finds something. A file that no decoder
        can show is `unreadable`: a person should look at it, and no check rejects it for that.
    """
    row_id, check_flags = file["row_id"], []
    if not measured.width:
        check_flags.append(("", "unreadable"))
    if checks.blank != "off" and measured.blank:
        check_flags.append(("blank", "blank"))
    for name, difference in differences(request, file, measured).items():
        check = "size" if name == "size" else "delivered"
        if getattr(checks, check) != "off":
            check_flags.append((check, f"{name}: {difference}"))
    if checks.duplicate != "off" and measured.hash and (other_row := pictures.like(row_id, measured.hash)):
        check_flags.append(("duplicate", f"duplicate of row {other_row}"))
    return check_flags


def rejecting(checks: Checks, check_flags: Iterable[tuple[str, str]]) -> str:
    """The first check that found something and rejects the file for it; empty where none does."""
    return next((name for name, _ in check_flags if name and getattr(checks, name) == "reject"), "")


_PART = 16  # files that are looked at side by side; their checks are what a kill may undo
_PAUSE = 3.0  # seconds between two looks for new files
_SHARE = 20  # looking for them takes at most one part in so many of the time, in a batch of any size


async def check_files(
    ledger: Ledger,
    settings: BatchSettings,
    thumbnails: Thumbnails | None,
    *,
    note: Callable[[str], None],
    rejected: Callable[[RejectedFile], None] = lambda _: None,
    over: asyncio.Event | None = None,
    may_leave: Callable[[int], bool],
    patience: float = PATIENCE,
) -> None:
    """Checks each stored file of the batch that is not checked yet, as the config wants it.

    Left for a later run is only what cannot be read now, ends or delays the process that looks at it, or was
    not judged by a program that has failed; and, once `over` is set, all that `may_leave` allows. Where the
    ledger fails, a person is told so. At the end a person is told how many files were rejected.

    Args:
        thumbnails: of the contact sheet, so that a file is decoded once for both; None where there is none.
        note: called with what a person should know.
        rejected: called for each file that a check rejects, once the ledger has it.
        over: what is stored until it is set is checked, too; None: only what is stored now.
        may_leave: whether so many files may be left for later.
        patience: seconds that the user's program may take for a file.
    """
    if not is_wanted(settings.checks):
        return
    used_thumbnails = thumbnails or Thumbnails(settings)
    command = settings.checks.command
    judge = Judge(command, note, patience) if command else None
    checking = _Checking(ledger, settings, used_thumbnails, judge, note, rejected)
    try:
        await checking.check_until(over, may_leave)
    except LedgerError as error:
        note(f"not all files are checked: {error}. {error.hint}".strip())
    finally:
        if not used_thumbnails.decoder.works:
            note("files are not checked: the process that looks at them could not be started")
        if checking.rejected:
            by_check = ", ".join(f"{check} {count:,}" for check, count in sorted(checking.rejected.items()))
            note(f"{counted(checking.rejected.total(), 'file')} rejected by checks: {by_check}")
        if judge:
            await judge.aclose()
        if thumbnails is None:
            await used_thumbnails.close()


@dataclass(slots=True)
class _Checking:
    """The checks of a batch."""

    ledger: Ledger
    settings: BatchSettings
    thumbnails: Thumbnails
    judge: Judge | None
    note: Callable[[str], None]
    tell: Callable[[RejectedFile], None]
    pictures: Pictures = field(default_factory=Pictures)  # those that are not rejected
    later: set[FileKey] = field(default_factory=set)  # files that could not be checked now
    rejected: Counter[str] = field(default_factory=Counter)  # how many files, by check
    pause: float = _PAUSE

    async def check_until(self, over: asyncio.Event | None, may_leave: Callable[[int], bool]) -> None:
        while over and not over.is_set():
            with anyio.move_on_after(self.pause):
                await over.wait()
            if not over.is_set():
                other_runs = await self.ledger.read(leases.others, self.ledger.run_id)
                # They check what they store.
                await self._check_files(lambda _: over.is_set(), [run.run_id for run in other_runs])
        if left := await self._check_files(may_leave):
            self.note(f"{counted(left, 'file')} not checked yet: callsheet report CONFIG checks them")

    async def _check_files(self, may_leave: Callable[[int], bool], other_run_ids: Sequence[str] = ()) -> int:
        """Checks what is not checked yet, but of these runs; returns how many files `may_leave` has left."""
        began = time.monotonic()
        unchecked = (await self.ledger.read(marks.unchecked)).iter_rows(named=True)
        files = [
            row for row in unchecked if row["run_id"] not in other_run_ids and _key(row) not in self.later
        ]
        self.pause = max(_PAUSE, _SHARE * (time.monotonic() - began))
        if files and self.settings.checks.duplicate != "off":
            self.pictures = Pictures(await self.ledger.read(marks.hashes))
        part = 1 if self.judge else _PART  # what a program says may have taken long, and have cost something
        for start in range(0, len(files), part):
            if may_leave(len(files) - start):
                return len(files) - start
            await self._check(files[start : start + part])
        return 0

    async def _check(self, files: Sequence[dict[str, Any]]) -> None:
        """Checks some files, rows of `marks.unchecked`, and enters what is found."""
        keys = [file["job_key"] for file in files]
        requests = await self.ledger.read(lambda connection, _: queries.asked_for(connection, keys))
        looks = [
            self.thumbnails.look_at(file["sha256"], file["url"], file["mime_type"])
            if file["flags"] is None
            else None
            for file in files
        ]
        findings: list[tuple[dict[str, Any], Finding]] = []
        for file, look in zip(files, looks, strict=True):
            asked = requests[file["job_key"]]
            if look is None:  # only the program is left
                finding = await self._judgement(file, *asked)
            else:
                measured = await asyncio.shield(look)
                finding = await self._finding(file, measured, *asked) if measured else None
            if finding:
                findings.append((file, finding))
            if not (finding and finding.judged):
                self.later.add(_key(file))
        if not findings:
            return
        rejected = await self.ledger.write(marks.found, [finding for _, finding in findings])
        for file, finding in findings:
            if finding in rejected:
                self.rejected[finding.rejected_by] += 1
                fields = {name: file[name] for name in ("job_key", "row_id", "sample", "index", "url")}
                self.tell(RejectedFile(**fields, check=finding.rejected_by, flags=finding.flags))

    async def _finding(
        self, file: dict[str, Any], measured: Seen, request: dict[str, Any], carried: dict[str, Any]
    ) -> Finding | None:
        """What is found in a file; None where nothing is, and the user's program has not judged it."""
        checks = self.settings.checks
        check_flags = wrong(checks, measured, file, request, self.pictures)
        answer = await self._judged(file, request, carried)
        if answer is None and not check_flags:
            return None
        judged, answer = answer is not None, answer or Judged()
        check = rejecting(checks, check_flags) or ("command" if answer.reject else "")
        if measured.hash and not check:
            self.pictures.add(file["row_id"], measured.hash)
        flags = (*(flag for _, flag in check_flags), *answer.flags)
        size = (measured.width or None, measured.height or None)
        measures = Measured(*size, measured.duration, measured.fps, measured.has_sound)
        return Finding(_key(file), flags, answer.score, measured.hash, check, judged, measures)

    async def _judgement(
        self, file: dict[str, Any], request: dict[str, Any], carried: dict[str, Any]
    ) -> Finding | None:
        """What was found in a file, with what the user's program says now; None where it still cannot."""
        answer = await self._judged(file, request, carried)
        if answer is None:
            return None
        flags = (*json.loads(file["flags"]), *answer.flags)
        return Finding(_key(file), flags, answer.score, file["hash"], "command" if answer.reject else "")

    async def _judged(
        self, file: dict[str, Any], request: dict[str, Any], carried: dict[str, Any]
    ) -> Judged | None:
        """What the user's program says of a file; None where it fails, or the file cannot be read now."""
        if self.judge is None:
            return Judged()
        with ExitStack() as copies:
            endpoint_url = self.settings.storage.endpoint_url
            path = await asyncio.to_thread(local_file, file["url"], endpoint_url, copies)
            if path is None:
                return None
            question = {"path": str(path), "row": file["row_id"], "prompt": request.get("prompt", "")}
            question |= {name: file[name] for name in ("sample", "index", "model")}
            return await self.judge.judge(question | {"carried": carried})


def _key(file: dict[str, Any]) -> FileKey:
    return FileKey(file["job_key"], file["attempt"], file["index"])
