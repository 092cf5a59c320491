"""Group commit: writes that arrive during a commit share the next one, so durability costs little.

It knows no table. An operation is a function of a connection; each runs in a savepoint, so that one that is
refused leaves the others of its commit alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import sqlalchemy as sa

from callsheet import failpoints
from callsheet.errors import CallsheetError, LedgerError
from callsheet.ledger.databases import explained

T = TypeVar("T")
Operation = Callable[[sa.Connection], T]


class GroupCommit:
    """Writes to one database, many operations to a commit."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._waiting: list[tuple[str, Operation[Any], asyncio.Future[Any]]] = []
        self._committer: asyncio.Task[None] | None = None

    async def write(self, name: str, operation: Operation[T]) -> T:
        """Runs an operation in the next commit; returns its result when the commit is durable.

        Args:
            name: what the operation is called at the failpoints.
            operation: the writes, on the connection of the commit's transaction.

        Raises:
            LedgerError: its values cannot be stored.
            LedgerUnavailable: the database failed, and with it all of the commit.
            CallsheetError: the operation refused.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, operation, future))
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())
        # Cancelling one caller must not cancel the commit of the others.
        return await asyncio.shield(future)

    async def drain(self) -> None:
        """Waits until nothing is left to write."""
        while self._committer:
            await asyncio.wait([self._committer])

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                operations = [(name, operation) for name, operation, _ in group]
                results: Sequence[Any]
                try:
                    results = await asyncio.to_thread(explained, lambda ops=operations: self._commit(ops))
                except Exception as error:  # noqa: BLE001 - each caller gets it; otherwise they wait for ever
                    results = [error] * len(group)
                for (*_, future), result in zip(group, results, strict=True):
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
        finally:
            self._committer = None

    def _commit(self, operations: Sequence[tuple[str, Operation[Any]]]) -> list[Any]:
        """Runs the operations in one transaction; the result of each, or the error that it ended with."""
        results: list[Any] = []
        with self._engine.begin() as connection:
            for _, operation in operations:
                try:
                    with connection.begin_nested(), explain_values():
                        results.append(operation(connection))
                except CallsheetError as error:
                    results.append(error)
            for name, _ in operations:
                failpoints.passed(f"before ledger.{name}")
        for name, _ in operations:
            failpoints.passed(f"after ledger.{name}")
        return results


@contextmanager
def explain_values() -> Iterator[None]:
    """For one operation in a savepoint: an error that its values caused, and not the database, in words.

    Raises:
        LedgerError: the values cannot be stored.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, CallsheetError) or not _is_about_values(error):
            raise
        raise LedgerError(f"the ledger cannot store this: {error.__cause__ or error}") from error


def _is_about_values(error: Exception) -> bool:
    if isinstance(error, sa.exc.DBAPIError):
        return isinstance(error, sa.exc.IntegrityError | sa.exc.DataError)
    return isinstance(error, sa.exc.StatementError | ValueError | ArithmeticError)
