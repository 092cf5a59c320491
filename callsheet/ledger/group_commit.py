"""Group commit: writes that arrive within some milliseconds share a commit, so durability costs little.

A commit that fails is tried again as a whole, while the run's lease lives; the writes that arrive meanwhile
wait for it. Its connection may be lost when it has succeeded. So a write that is made a second time must
change nothing, and come to the same; whoever writes sees to that (`states.py`).

It knows no table. A change is a function that writes many items at once, all or none: those of one commit
are given to it together. Where it refuses, each item is tried alone, so that one that is refused leaves the
others alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from callsheet import failpoints
from callsheet.errors import CallsheetError, LedgerError, LedgerUnavailable
from callsheet.ledger.databases import explained

A = TypeVar("A")
T = TypeVar("T")
P = ParamSpec("P")
Change = Callable[[sa.Connection, str, Sequence[A]], Sequence[T] | None]
"""Writes items for a run, given its id, all or none; returns a result for each, or None: they have none."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between two tries
_PAUSE = 0.01  # seconds between two commits, in which more writes arrive: the CPU of a commit is shared


@dataclass(slots=True)
class _Group:
    """Items of one change that wait for the next commit."""

    name: str
    change: Change[Any, Any]
    items: list[Any] = field(default_factory=list)
    futures: list[asyncio.Future[Any]] = field(default_factory=list)


class GroupCommit:
    """Writes to one database for one run, many items to a commit, one commit at a time.

    A database that fails is tried again for as long as the run's lease lives, which others respect.
    `on_failure` is called once when commits begin to fail and are tried again, with the error and the items
    that wait.

    Attributes:
        lease_until: when the lease expires; None where there is none, and nothing is tried again.
        failing: a commit has failed, and is tried again.
    """

    def __init__(
        self,
        engine: sa.Engine,
        run_id: str,
        on_failure: Callable[[LedgerUnavailable, Sequence[Any]], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._run_id = run_id
        # Nobody else makes a commit wait, and with it the lease: not even a read that takes minutes.
        self._commit_thread = ThreadPoolExecutor(1, "ledger-commits")
        self._read_threads = ThreadPoolExecutor(2, "ledger-reads")
        self._on_failure = on_failure
        self.lease_until: datetime | None = None
        self.failing = False
        self._hurried = asyncio.Event()
        self._waiting: dict[tuple[str, Any], _Group] = {}
        self._committer: asyncio.Task[None] | None = None

    def hurry(self) -> None:
        """From now on nothing is tried again; what waits for its next try has it now."""
        self._hurried.set()

    async def read(self, work: Callable[[], T]) -> T:
        """Does work on the database that changes nothing, in a thread; again while the database fails.

        Raises:
            LedgerUnavailable: the database failed until the lease expired, or `hurry`.
        """
        return await self._tried(self._read_threads, work)

    async def _tried(
        self,
        threads: ThreadPoolExecutor,
        work: Callable[[], T],
        failed: Callable[[LedgerUnavailable], Awaitable[None]] | None = None,
    ) -> T:
        """Does work on the database; again and again while it fails.

        The work is idempotent: a database that fails may have done it. `failed` is called after each failure
        that is not the last.
        """
        loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE
        while True:
            try:
                return await loop.run_in_executor(threads, work)
            except LedgerUnavailable as error:
                next_try = datetime.now(UTC) + timedelta(seconds=pause)
                if self._hurried.is_set() or self.lease_until is None or next_try >= self.lease_until:
                    raise
                if failed:
                    await failed(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def write(self, name: str, change: Change[A, T], item: A) -> T:
        """Writes an item in the next commit; returns its result when the commit is durable.

        It is written also where the caller is cancelled while it waits. Failpoints call the change `name`.

        Raises:
            LedgerError: the item's values cannot be stored.
            LedgerUnavailable: the database failed until the end, and with it all of the commit.
            CallsheetError: the change refused the item.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        group = self._waiting.setdefault((name, change), _Group(name, change))
        group.items.append(item)
        group.futures.append(future)
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())
        return await future

    async def write_one(
        self,
        name: str,
        operation: Callable[Concatenate[sa.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs an operation that has no items in the next commit; raises as `write` does."""
        return await self.write(name, lambda connection, *_: [operation(connection, *args, **kwargs)], None)

    async def close(self) -> None:
        """Waits until nothing is left to write; nothing is written after it."""
        while self._committer:
            await asyncio.wait([self._committer])
        for threads in (self._commit_thread, self._read_threads):
            threads.shutdown(wait=False)

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                groups = list(self._waiting.values())
                self._waiting = {}
                results: list[Any]
                try:
                    results = await self._until_written(groups)
                except Exception as error:  # noqa: BLE001 - each caller gets it; otherwise they wait for ever
                    results = [error] * sum(len(group.items) for group in groups)
                self.failing = False
                futures = (future for group in groups for future in group.futures)
                for future, result in zip(futures, results, strict=True):
                    if future.done():  # its caller was cancelled
                        continue
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
                if len(results) > 1:  # others write at the same time
                    await asyncio.sleep(_PAUSE)
        finally:
            self._committer = None

    async def _until_written(self, groups: Sequence[_Group]) -> list[Any]:
        """Makes a commit, as often as it takes; the result of each item, or the error that it ended with."""

        async def failed(error: LedgerUnavailable) -> None:
            if not self.failing:
                self.failing = True
                waiting = (*groups, *self._waiting.values())
                await self._on_failure(error, [item for group in waiting for item in group.items])

        return await self._tried(self._commit_thread, partial(self._commit, groups), failed)

    def _commit(self, groups: Sequence[_Group]) -> list[Any]:
        """Writes the groups in one transaction."""
        with explained():
            try:
                results = self._together(groups)
            except CallsheetError:  # of one of them
                results = self._one_by_one(groups)
        _passed("after", groups)
        return results

    def _together(self, groups: Sequence[_Group]) -> list[Any]:
        with self._engine.begin() as connection, explain_values():
            results = [result for group in groups for result in self._written(connection, group, group.items)]
            _passed("before", groups)
        return results

    def _one_by_one(self, groups: Sequence[_Group]) -> list[Any]:
        results: list[Any] = []
        with self._engine.begin() as connection:
            for group in groups:
                for item in group.items:
                    try:
                        with connection.begin_nested(), explain_values():
                            results += self._written(connection, group, [item])
                    except CallsheetError as error:
                        results.append(error)
            _passed("before", groups)
        return results

    def _written(self, connection: sa.Connection, group: _Group, items: Sequence[Any]) -> Sequence[Any]:
        results = group.change(connection, self._run_id, items)
        return [None] * len(items) if results is None else results


def _passed(when: str, groups: Sequence[_Group]) -> None:
    for group in groups:
        for _ in group.items:
            failpoints.passed(f"{when} ledger.{group.name}")


@contextmanager
def explain_values() -> Iterator[None]:
    """For work in a transaction or a savepoint: an error that its values caused, in words.

    Raises:
        LedgerError: the values can be in no ledger.
    """
    try:
        yield
    except (sa.exc.StatementError, UnicodeError, OverflowError) as error:
        is_of_database = isinstance(error, sa.exc.DBAPIError)
        if is_of_database and not isinstance(error, sa.exc.IntegrityError | sa.exc.DataError):
            raise
        raise LedgerError(f"this is a value that no ledger can have: {error.__cause__ or error}") from error
