"""A Callsheet to come, whose schema has a column more, computed from others.

`python -m tests.ledger.next_release URL [POINT [FILE_SIZE]]` opens a ledger with it and says what it has
upgraded. It kills itself at a failpoint, and no file that it writes can grow beyond so many bytes.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import sqlalchemy as sa

from callsheet import failpoints
from callsheet.errors import LedgerError
from callsheet.ledger import migrations, tables
from callsheet.ledger.databases import open_engine

if TYPE_CHECKING:
    from alembic.operations import Operations

SCHEMA = 1 + tables.SCHEMA_VERSION


def to_next(op: Operations) -> None:
    """Each attempt says by how much it was dearer than its quote."""
    op.add_column("attempts", sa.Column("dearer", sa.BigInteger()))
    op.execute("UPDATE attempts SET dearer = coalesce(cost, 0) - coalesce(quoted, 0)")
    with op.batch_alter_table("attempts") as attempts:
        attempts.alter_column("dearer", existing_type=sa.BigInteger(), server_default="0", nullable=False)


def be_next(setattr_: Callable[[object, str, object], None] = setattr) -> None:
    """From now on this process is that Callsheet; `setattr_` is that of a `MonkeyPatch`."""
    setattr_(tables, "SCHEMA_VERSION", SCHEMA)
    setattr_(tables, "SINCE", "0.3.0")
    setattr_(migrations, "MIGRATIONS", migrations.MIGRATIONS | {SCHEMA: to_next})


def main(url: str, point: str = "", file_size: str = "") -> None:
    be_next()

    def at(passed: str) -> None:
        if passed == point:
            os.kill(os.getpid(), signal.SIGKILL)

    failpoints.observer = at
    if file_size:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(file_size), int(file_size)))
    try:
        open_engine(url, note=print).dispose()
    except LedgerError as error:
        sys.exit(f"{error}\n{error.hint}")


if __name__ == "__main__":
    main(*sys.argv[1:])
