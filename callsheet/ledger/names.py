"""The names of files in storage: no two files of the ledger have the same. It does not look into storage.

Names that differ only in case, or in how an accent is encoded, are the same name: on many disks they are one
file.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import sqlalchemy as sa

from callsheet.ledger.tables import media
from callsheet.records import Attempt
from callsheet.storage.names import folded

_TAKEN = sa.select(media.c.folded_name).where(
    media.c.storage == sa.bindparam("the_storage"),
    media.c.folded_name.in_(sa.bindparam("the_names", expanding=True)),
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


def known(connection: sa.Connection, storage: str, names: Collection[str]) -> set[str]:
    """Those of the names in `storage` that files of the ledger have, folded."""
    wanted = {"the_storage": storage, "the_names": [folded(name) for name in names]}
    return set(connection.scalars(_TAKEN, wanted))


class FreeNames:
    """Free names for the files that one transaction enters.

    Args:
        connection: the transaction.
        wanted: the storage URL and the wanted name of each file.
    """

    def __init__(self, connection: sa.Connection, wanted: Collection[tuple[str, str]]) -> None:
        self._taken: dict[str, set[str]] = {}
        for storage in {storage for storage, _ in wanted}:
            self._taken[storage] = known(connection, storage, [name for of, name in wanted if of == storage])

    def take(self, storage: str, name: str, attempt: Attempt, index: int) -> str:
        """`name`, or the other name of the file where another file of `storage` has that name."""
        taken = self._taken[storage]
        free = other_name(name, attempt, index) if folded(name) in taken else name
        taken.add(folded(free))
        return free
