"""Group commit: writes that arrive during a commit share the next one, so durability costs little.

It knows no table. A change is a function that writes many items at once, all or none: those of one commit are
given to it together. Where it refuses, each item is tried alone, so that one that is refused leaves the
others alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from callsheet import failpoints
from callsheet.errors import CallsheetError, LedgerError
from callsheet.ledger.databases import explained

A = TypeVar("A")
T = TypeVar("T")
Operation = Callable[[sa.Connection], T]
Change = Callable[[sa.Connection, str, Sequence[A]], Sequence[T]]
"""Writes items for a run, given its id, all or none; returns a result for each."""


@dataclass(slots=True)
class _Group:
    """Items of one change that wait for the next commit."""

    name: str
    change: Change[Any, Any]
    items: list[Any] = field(default_factory=list)
    futures: list[asyncio.Future[Any]] = field(default_factory=list)


class GroupCommit:
    """Writes to one database for one run, many items to a commit.

    Args:
        engine: the database.
        run_id: the run.
        threads: where the commits are made, one at a time.
    """

    def __init__(self, engine: sa.Engine, run_id: str, threads: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._run_id = run_id
        self._threads = threads
        self._waiting: dict[tuple[str, Any], _Group] = {}
        self._committer: asyncio.Task[None] | None = None

    async def write(self, name: str, change: Change[A, T], item: A) -> T:
        """Writes an item in the next commit; returns its result when the commit is durable.

        Args:
            name: what the change is called at the failpoints.
            change: writes this item, and others that come at the same time.
            item: what it writes.

        Raises:
            LedgerError: the item's values cannot be stored.
            LedgerUnavailable: the database failed, and with it all of the commit.
            CallsheetError: the change refused the item.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        group = self._waiting.setdefault((name, change), _Group(name, change))
        group.items.append(item)
        group.futures.append(future)
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())
        # Cancelling one caller must not cancel the commit of the others.
        return await asyncio.shield(future)

    async def write_one(self, name: str, operation: Operation[T]) -> T:
        """Runs an operation that has no items in the next commit; raises as `write` does."""
        return await self.write(name, lambda connection, _run_id, _items: [operation(connection)], None)

    async def drain(self) -> None:
        """Waits until nothing is left to write."""
        while self._committer:
            await asyncio.wait([self._committer])

    async def _commit_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                groups = list(self._waiting.values())
                self._waiting = {}
                results: list[Any]
                try:
                    commit = lambda groups=groups: self._commit(groups)  # noqa: E731 - of this turn
                    results = await loop.run_in_executor(self._threads, explained, commit)
                except Exception as error:  # noqa: BLE001 - each caller gets it; otherwise they wait for ever
                    results = [error] * sum(len(group.items) for group in groups)
                futures = (future for group in groups for future in group.futures)
                for future, result in zip(futures, results, strict=True):
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
        finally:
            self._committer = None

    def _commit(self, groups: Sequence[_Group]) -> list[Any]:
        """Writes the groups in one transaction; the result of each item, or the error that it ended with."""
        try:
            results = self._together(groups)
        except CallsheetError:  # of one of them
            results = self._one_by_one(groups)
        _passed("after", groups)
        return results

    def _together(self, groups: Sequence[_Group]) -> list[Any]:
        with self._engine.begin() as connection, explain_values():
            results: list[Any] = []
            for group in groups:
                results += group.change(connection, self._run_id, group.items)
            _passed("before", groups)
        return results

    def _one_by_one(self, groups: Sequence[_Group]) -> list[Any]:
        results: list[Any] = []
        with self._engine.begin() as connection:
            for group in groups:
                for item in group.items:
                    try:
                        with connection.begin_nested(), explain_values():
                            results += group.change(connection, self._run_id, [item])
                    except CallsheetError as error:
                        results.append(error)
            _passed("before", groups)
        return results


def _passed(when: str, groups: Sequence[_Group]) -> None:
    for group in groups:
        for _ in group.items:
            failpoints.passed(f"{when} ledger.{group.name}")


@contextmanager
def explain_values() -> Iterator[None]:
    """For changes in a transaction or a savepoint: an error that their values caused, in words.

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
