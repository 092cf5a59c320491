"""The automatic checks of a batch's stored files, each once, in the background while a run is at work.

Begin with `check_files`. Which files are left the ledger says, so a killed run leaves them to the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio

from callsheet.config.settings import BatchSettings
from callsheet.errors import LedgerError
from callsheet.ledger import marks, queries
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import FileKey, Finding
from callsheet.plain_text import counted
from callsheet.records import RejectedFile
from callsheet.report.contact_sheet.thumbnails import Seen, Thumbnails, local_file
from callsheet.reviewing.checks import Pictures, is_wanted, rejecting, wrong
from callsheet.reviewing.command import PATIENCE, Judge, Judged

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
    may_leave: Callable[[int], bool] = lambda _: False,
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
    own = thumbnails or Thumbnails(settings)
    command = settings.checks.command
    judge = Judge(command, note, patience) if command else None
    checking = _Checking(ledger, settings, own, judge, note, rejected)
    try:
        await checking.keep(over, may_leave)
    except LedgerError as error:
        note(f"not all files are checked: {error}. {error.hint}".strip())
    finally:
        if not own.decoder.works:
            note("files are not checked: the process that looks at them could not be started")
        if checking.rejected:
            by_check = ", ".join(f"{check} {count:,}" for check, count in sorted(checking.rejected.items()))
            note(f"{counted(checking.rejected.total(), 'file')} rejected by checks: {by_check}")
        if judge:
            await judge.aclose()
        if thumbnails is None:
            await own.close()


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

    async def keep(self, over: asyncio.Event | None, may_leave: Callable[[int], bool]) -> None:
        while over and not over.is_set():
            with anyio.move_on_after(self.pause):
                await over.wait()
            if not over.is_set():
                others = [run.run_id for run in await self.ledger.others()]  # which check what they store
                await self._look(lambda _: over.is_set(), others)
        if left := await self._look(may_leave):
            self.note(f"{counted(left, 'file')} not checked yet: callsheet report CONFIG checks them")

    async def _look(self, may_leave: Callable[[int], bool], but_of: Sequence[str] = ()) -> int:
        """Checks what is not checked yet, but of these runs; returns how many files `may_leave` has left."""
        began = time.monotonic()
        unchecked = (await self.ledger.read(marks.unchecked)).iter_rows(named=True)
        files = [row for row in unchecked if row["run_id"] not in but_of and _key(row) not in self.later]
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
        looks = [self.thumbnails.look_at(file["sha256"], file["url"], file["mime_type"]) for file in files]
        found: list[tuple[dict[str, Any], Finding]] = []
        for file, look in zip(files, looks, strict=True):
            seen = await asyncio.shield(look)
            finding = seen and await self._finding(file, seen, *requests[file["job_key"]])
            if finding:
                found.append((file, finding))
            else:
                self.later.add(_key(file))
        if found:
            self._say(found, await self.ledger.write(marks.found, [finding for _, finding in found]))

    async def _finding(
        self, file: dict[str, Any], seen: Seen, request: dict[str, Any], carried: dict[str, Any]
    ) -> Finding | None:
        """What is found in a file; None where nothing is, and the user's program has not judged it."""
        checks, row_id = self.settings.checks, file["row_id"]
        found = wrong(checks, seen, row_id, request, self.pictures)
        answer = await self._judged(file, request, carried)
        if answer is None and not found:
            return None
        answer = answer or Judged()
        check = rejecting(checks, found) or ("command" if answer.reject else "")
        if seen.hash and not check:
            self.pictures.add(row_id, seen.hash)
        flags = (*(flag for _, flag in found), *answer.flags)
        return Finding(_key(file), flags, answer.score, seen.hash, check)

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
            about = {"path": str(path), "row": file["row_id"], "prompt": request.get("prompt", "")}
            about |= {name: file[name] for name in ("sample", "index", "model")}
            return await self.judge.judge(about | {"carried": carried})

    def _say(self, found: Sequence[tuple[dict[str, Any], Finding]], rejected: Sequence[Finding]) -> None:
        """Tells who watches which of the files are rejected."""
        for file, finding in found:
            if finding in rejected:
                self.rejected[finding.rejected_by] += 1
                which = {name: file[name] for name in ("job_key", "row_id", "sample", "index", "url")}
                self.tell(RejectedFile(**which, check=finding.rejected_by, flags=finding.flags))


def _key(file: dict[str, Any]) -> FileKey:
    return FileKey(file["job_key"], file["attempt"], file["index"])
