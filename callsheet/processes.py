"""Processes: which one this is, and whose; how others are started apart from a terminal, told to end, or seen
to live.

Systems differ in each of these. A number alone says little of a process: other machines and containers have
the same ones, and one is used again after its process has ended.
"""

from __future__ import annotations

import getpass
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

APART: dict[str, Any] = {"start_new_session": True}
"""How a process is started that a terminal's Ctrl-C is not for: arguments of `subprocess.Popen`."""

if sys.platform == "win32":
    APART = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}


class Child(Protocol):
    """A process of `asyncio.subprocess` or psutil."""

    def terminate(self) -> None:
        """Sends SIGTERM; on Windows it ends the process at once."""

    def send_signal(self, number: int, /) -> None:
        """Sends any signal."""


def tell_to_end(process: Child) -> None:
    """Tells a process that was started `APART` to end in order: by SIGTERM, on Windows by Ctrl-Break.

    Raises as `terminate` does.
    """
    if sys.platform == "win32":
        with suppress(OSError):  # it has no console, or is no program of ours
            process.send_signal(signal.CTRL_BREAK_EVENT)
    else:
        process.terminate()


def kill(pid: int) -> None:
    """Kills a process that was started `APART`, and what it has started.

    Raises:
        ProcessLookupError: there is no such process.
    """
    if sys.platform == "win32":
        _kill_tree(pid)
    else:
        os.killpg(pid, signal.SIGKILL)


def exists(pid: int) -> bool:
    """Whether there is a process with this number, also somebody else's."""
    if sys.platform == "win32":  # where `os.kill` with 0 is no question, but Ctrl-C
        import psutil

        return bool(psutil.pid_exists(pid))
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


def machine() -> str:
    """This machine and, where there are several, this container: where a process number has a meaning."""
    namespace = ""
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()} {namespace}".strip()


def boot() -> str | None:
    """The time since this machine was last started; None where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def start_of(pid: int) -> str | None:
    """When a process of this machine was started, in ticks since the machine's start.

    Returns:
        None where the process has ended; "" where it runs, and the system does not tell since when.
    """
    try:
        # The name of the program, in parentheses, may have spaces and parentheses in it.
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else fields[18]
    except (OSError, ValueError, IndexError):
        return "" if exists(pid) else None


def give_way() -> None:
    """From now on this process works only when others leave it time. Raises OSError where that is refused."""
    if sys.platform == "win32":
        import psutil

        psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
    else:
        os.nice(10)


if sys.platform == "win32":

    def _kill_tree(pid: int) -> None:
        import psutil

        try:
            process = psutil.Process(pid)
            tree = [*process.children(recursive=True), process]
        except psutil.NoSuchProcess:
            raise ProcessLookupError(pid) from None
        for member in tree:
            with suppress(psutil.NoSuchProcess):
                member.kill()


def user_name() -> str:
    """The user of this process: the login name, or the user's number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # the last: on Windows
        if sys.platform == "win32":
            return "unknown"
        return f"uid {os.getuid()}"
