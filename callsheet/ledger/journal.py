"""The journal: answers that are paid for and could not be written to the ledger, in files of the spool.

A run appends to a file of its own, a line for each answer, and removes it when the ledger has them all. A
later run reads the files that dead runs left (`takeover.py`). So an answer survives both a ledger that fails
and a run that is killed then. Runs of other batches and ledgers may use the same folder: each line says whose
it is, and a run that is at work has its file locked. Knows no database.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from callsheet.errors import LedgerError
from callsheet.files import FREES_OPEN_NAMES, make_folder, open_private, open_regular, sync_folder
from callsheet.locks import lock
from callsheet.records import Attempt, Media, Usage

logger = logging.getLogger("callsheet")

_PREFIX, _SUFFIX = "answers-", ".jsonl"


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """The service's answer to an attempt: it accepted a video, or has finished a generation.

    Attributes:
        usage: what it cost; None for a video that is accepted and not finished.
        names: the wanted name of each of the `media`, in order.
        storage: the storage URL that the names are in.
        ledger_id: the ledger that the answer is for.
        model: the model that has made it, by the answer; None where that names none.
    """

    attempt: Attempt
    generation_id: str
    usage: Usage | None = None
    media: tuple[Media, ...] = ()
    names: tuple[str, ...] = ()
    storage: str = ""
    batch: str = ""
    service: str = ""
    ledger_id: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    model: str | None = None


_ANSWERS = TypeAdapter(PaidAnswer)  # what a line of JSON says


@dataclass(frozen=True, slots=True)
class Left:
    """A file that a run has left, with its size when it was read.

    Attributes:
        unreadable: how many of its lines cannot be read, apart from a last one that was cut off.
        in_use: its run is at work, whether the ledger knows it or not.
    """

    path: Path
    run_id: str
    answers: tuple[PaidAnswer, ...]
    bytes: int
    unreadable: int
    in_use: bool = False


class Journal:
    """The journal of one run, in a folder that is made when it is needed; None: nothing is kept.

    `note` is called once with the reason why nothing is kept. `waiting`: the lines of answers that the ledger
    does not have yet.
    """

    def __init__(
        self, folder: Path | None, run_id: str, note: Callable[[str], None] = logger.warning
    ) -> None:
        self.folder = folder
        self._path = (folder or Path()) / f"{_PREFIX}{run_id}{_SUFFIX}"
        self._note = note
        self._failed = False
        self._lock = threading.Lock()
        self.waiting: set[str] = set()
        self._handle: int | None = None

    async def keep_answer(self, answer: PaidAnswer) -> None:
        """Writes an answer, once, or says why it cannot be kept."""
        try:
            if self.folder:
                await asyncio.to_thread(self.append, answer)
        except OSError as error:
            if not self._failed:
                self._failed = True
                self._note(f"what is answered is not kept: the journal cannot be written: {error}")

    def append(self, answer: PaidAnswer) -> None:
        """Writes an answer durably, unless it is there already.

        Raises:
            OSError: the disk fails; nothing of the answer is kept.
        """
        line = _line_of(answer)
        with self._lock:
            if line in self.waiting:
                return
            make_folder(self._path.parent)
            _append(self._opened(), f"{line}\n".encode())
            sync_folder(self._path.parent)
            self.waiting.add(line)

    def written(self, answer: PaidAnswer) -> None:
        """The ledger has the answer now; when it has all of this run, the file is removed.

        A file that cannot be removed does no harm: what it says is known.
        """
        with self._lock, suppress(OSError):
            self.waiting.discard(_line_of(answer))
            if not self.waiting:
                if not FREES_OPEN_NAMES:
                    self._close()
                self._path.unlink()
                self._close()

    def close(self) -> None:
        """The run is over: what is left is for the next one."""
        with self._lock:
            self._close()

    def _opened(self) -> int:
        """The file, locked until the run is over: nobody else removes it, or takes the run for dead."""
        while self._handle is None or not _is_still(self._path, self._handle):
            self._close()
            self._handle = open_private(self._path, os.O_WRONLY | os.O_APPEND)
            lock(self._handle, wait=True)
        return self._handle

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def left_in(folder: Path | None) -> list[Left]:
    """The journals in a folder, of whichever runs.

    Raises:
        LedgerError: one of them cannot be read.
    """
    try:
        return [_read(path) for path in sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"))] if folder else []
    except OSError as error:
        raise LedgerError(
            f"{error.filename or folder}: cannot be read: {error.strerror or error}",
            hint="It has answers that are paid for, and that the ledger does not know yet.",
        ) from error


def remove(left: Left) -> None:
    """Removes a file whose answers the ledger has, unless its run is at work on it, or has appended to it.

    A file that cannot be removed does no harm: the next run reads it again, and finds that all is known.
    """
    with suppress(OSError), ExitStack() as opened:
        file = opened.enter_context(open_regular(left.path))
        lock(file.fileno())
        if os.fstat(file.fileno()).st_size == left.bytes:
            if not FREES_OPEN_NAMES:  # nor then one that a run has opened meanwhile
                opened.close()
            left.path.unlink()


def _line_of(answer: PaidAnswer) -> str:
    return json.dumps(_ANSWERS.dump_python(answer), default=str)


def _read(path: Path) -> Left:
    with open_regular(path) as file:
        in_use = False
        try:
            lock(file.fileno(), shared=True)
        except BlockingIOError:
            in_use = True
        content = file.read()
    *complete, last = content.split(b"\n")
    answers, unreadable = [], 0
    for line in (*complete, last) if last else complete:
        try:
            answers.append(_ANSWERS.validate_python(json.loads(line)))
        except ValueError:
            unreadable += line is not last
    run_id = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return Left(path, run_id, tuple(answers), len(content), unreadable, in_use)


def _append(handle: int, line: bytes) -> None:
    """Appends a line durably, or leaves the file as it was."""
    size = os.fstat(handle).st_size
    try:
        with open(handle, "ab", buffering=0, closefd=False) as file:
            while line:
                line = line[file.write(line) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise


def _is_still(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
