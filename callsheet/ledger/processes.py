"""Which process this is, and whether another one still runs.

A process number alone says little: another machine or container has the same numbers, and a number is used
again after its process has ended.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path


def host() -> str:
    """This machine and, where there are several, this container: where a process number has a meaning."""
    namespace = ""
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()} {namespace}".strip()


def boot() -> str | None:
    """What identifies the time since this machine was last started; None where the system does not tell."""
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
        return "" if _exists(pid) else None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
