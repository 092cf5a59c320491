"""The names of files in storage: no two files of the ledger have the same. It does not look into storage."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from callsheet.ledger.tables import media
from callsheet.records import Attempt


def other_name(name: str, attempt: Attempt, index: int) -> str:
    """The name for a file where `name` is taken.

    It adds what identifies the file: the job's key, the number of an attempt after the first, and the index
    of a file after the first.
    """
    path = Path(name)
    identity = attempt.job_key[:12] + (f"-{attempt.number}" if attempt.number > 1 else "")
    identity += f"_{index}" if index else ""
    return str(path.with_name(f"{path.stem}-{identity}{path.suffix}"))


def free_name(connection: sa.Connection, storage: str, name: str, attempt: Attempt, index: int) -> str:
    """`name`, or the other name of the file where the ledger has a file of that name in `storage`."""
    taken = sa.select(media.c.name).where(media.c.storage == storage, media.c.name == name)
    return other_name(name, attempt, index) if connection.scalar(taken) else name
