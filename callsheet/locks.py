"""Locks on files: another process waits for one, or sees that it is taken. A lock ends with its process, in
whichever way that ends.

Where a system has `flock`, it is the open file that is locked; reading and writing go on. What Windows locks
are bytes, which nobody else can read then: there it is one byte, far behind the end of the file.
"""

from __future__ import annotations

import errno
import os
import sys
import time

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_BYTE = 0x7FFF_FFFE
_AGAIN = 0.02  # seconds
_READERS = 0.2  # seconds: readers keep a lock for less, and Windows has none that they could share


def lock(descriptor: int, *, wait: bool = False, shared: bool = False) -> None:
    """Locks an open file until it is closed.

    Args:
        descriptor: the file's.
        wait: wait until nobody else has it locked.
        shared: others may lock it too, `shared` as well.

    Raises:
        BlockingIOError: somebody else has it locked, and `wait` is not set.
    """
    if sys.platform == "win32":
        until = time.monotonic() + (_READERS if shared else 0)
        while not _locks_byte(descriptor):
            if not wait and time.monotonic() >= until:
                raise BlockingIOError(errno.EAGAIN, "another process has it locked")
            time.sleep(_AGAIN)
    else:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


if sys.platform == "win32":

    def _locks_byte(descriptor: int) -> bool:
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)
        return True
