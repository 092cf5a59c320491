"""The names of files in storage: no two files of the ledger have the same. It does not look into storage.

Names that differ only in case, or in how an accent is encoded, are the same name: on many disks they are one
file.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from callsheet.ledger.tables import media
from callsheet.records import Attempt
from callsheet.storage.names import folded

_TAKEN = sa.select(sa.literal(1)).where(
    media.c.storage == sa.bindparam("the_storage"), media.c.folded_name == sa.bindparam("the_name")
)


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
    taken = connection.scalar(_TAKEN, {"the_storage": storage, "the_name": folded(name)})
    return other_name(name, attempt, index) if taken else name
