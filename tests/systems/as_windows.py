"""`python -m tests.systems.as_windows FOLDER [WORDS] [and WORDS]...`: commands of ours, as on Windows.

Our modules are imported where `sys.platform` is `win32`, and without what Windows does not have. Files in the
folder are used by its rules: what is open is neither removed nor renamed, no folder is opened, and nothing
has a name that Windows refuses. Libraries, Python's too, see the system that they are on. Each command is a
process of its own; the first that does not end with 0 is the last.
"""

from __future__ import annotations

import errno
import fcntl
import importlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

OURS = ("callsheet", "backlot", "flows", "tasks")
USED = (
    "callsheet.cli.main",
    "callsheet.cli.demo",
    "callsheet.cli.init",
    "callsheet.cli.keyboard",
    "callsheet.cli.books",
    "callsheet.cli.review",
    "callsheet.cli.rows",
    "callsheet.cli.terminal",
    "callsheet.export.export",
    "callsheet.waiting_files",
    "callsheet.report.contact_sheet.decoder",
    "callsheet.report.against_account",
    "callsheet.reviewing.sheets",
    "callsheet.steps.batch",
    "backlot.cli",
    "backlot.server",
)
ABSENT = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
ATTRIBUTES = ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "fchmod", "getuid", "killpg", "listxattr", "nice")
REFUSED = set('<>:"|?*')


def main() -> None:
    folder, *words = sys.argv[1:]
    for module in USED:
        importlib.import_module(module)  # for the libraries that they import
    become_windows(Path(folder))
    for module in USED:
        importlib.import_module(module)
    while words:
        end = words.index("and") if "and" in words else len(words)
        if code := carry_out(words[:end]):
            sys.exit(code)
        words = words[end + 1 :]


def carry_out(words: list[str]) -> int:
    """A command's exit code."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.argv = ["callsheet", *words]
    importlib.import_module("callsheet.__main__").main()
    return 0


def become_windows(folder: Path) -> None:
    """From now on our modules are imported as on Windows, and files in the folder are used by its rules."""
    for module in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[module]
    sys.addaudithook(Rules(folder.resolve()))
    modules: Any = sys.modules
    modules.update(dict.fromkeys(ABSENT), msvcrt=console_and_locks())
    there: Any = os
    there.O_BINARY = 0
    for name in ATTRIBUTES:
        delattr(os, name)
    there = signal
    there.SIGBREAK = signal.SIGQUIT
    del there.SIGHUP, there.pthread_kill
    there = subprocess
    there.CREATE_NEW_PROCESS_GROUP = 0
    there = os
    there.kill = _kill
    sys.platform = "win32"


def _kill(pid: int, number: int, kill: Callable[[int, int], None] = os.kill) -> None:
    assert number, "on Windows that is no question, but Ctrl-C"
    kill(pid, number)


def console_and_locks() -> ModuleType:
    """What of `msvcrt` is used: a lock on one byte, and the keys of the terminal."""
    module: Any = ModuleType("msvcrt")
    module.LK_NBLCK = 2

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (module.LK_NBLCK, 1)
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > os.fstat(descriptor).st_size
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "locked") from None

    def is_pressed() -> bool:
        return bool(select.select([0], [], [], 0)[0])

    module.locking, module.kbhit, module.getwch = locking, is_pressed, lambda: os.read(0, 1).decode()
    return module


class Rules:
    """Raises what Windows would, for what is done with files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}/"

    def __call__(self, event: str, about: tuple[Any, ...]) -> None:
        if event == "open" and (path := self._inside(about[0])):
            self._named(path)
            if os.path.isdir(path):  # noqa: PTH112 - as the program itself has it
                raise PermissionError(errno.EACCES, "it is a folder", path)
        elif event in ("os.mkdir", "os.link", "os.rename"):
            for each in filter(None, map(self._inside, about[: 2 if event != "os.mkdir" else 1])):
                self._named(each)
        if event in ("os.remove", "os.rename"):
            for each in filter(None, map(self._inside, about[:2])):
                self._closed(each)

    def _inside(self, path: Any) -> str | None:
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        whole = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        return whole if whole.startswith(self._folder) else None

    def _named(self, path: str) -> None:
        for name in path.removeprefix(self._folder).split("/"):
            is_device = name.partition(".")[0].rstrip().upper() in {"CON", "NUL", "AUX", "PRN", "COM1"}
            if is_device or name.endswith((".", " ")) or REFUSED & {*name}:
                raise OSError(errno.EINVAL, "Windows takes no such name", path)

    def _closed(self, path: str) -> None:
        for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208
            there = ""
            with suppress(OSError):
                there = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
            if there == path:
                raise PermissionError(errno.EACCES, "it is open", path)


if __name__ == "__main__":
    main()
