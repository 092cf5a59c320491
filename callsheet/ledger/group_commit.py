"""Group commit: writes that arrive within some milliseconds share a commit, so durability costs little.

A commit that fails is tried again as a whole, while the run's lease lives; the writes that arrive meanwhile
wait for it. Its connection may be lost when it has succeeded. So a write that is made a second time must
change nothing, and come to the same; whoever writes sees to that (`states.py`).

A write is a function of a connection. Where one is refused, all of its commit are made again, each in a
savepoint of its own: so it leaves the others alone, and the savepoints cost nothing where all is well.

A commit that changes what the ledger says of the batch gives the batch another revision (`queries.revision`).
So who has kept the revision that a result was made by knows at once whether the ledger still says the same.
Runs and leases are no part of it: they come and go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from callsheet import failpoints
from callsheet.errors import CallsheetError, LedgerUnavailable
from callsheet.ledger.databases import explain_values, explained
from callsheet.ledger.tables import (
    attempts,
    batches,
    changes,
    charges,
    checks,
    claims,
    marks,
    media,
    new_revision,
    settlements,
    words,
)

T = TypeVar("T")
P = ParamSpec("P")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between two tries
_PAUSE = 0.01  # seconds between two commits, in which more writes arrive: the CPU of a commit is shared
_OF_BATCH = {attempts, media, settlements, words, marks, checks, charges, changes, claims}
_SET_REVISION = batches.update().where(batches.c.batch == sa.bindparam("the_batch"))


@dataclass(frozen=True, slots=True)
class _Write:
    """What waits for the next commit; failpoints call it `name`."""

    name: str
    operation: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    future: asyncio.Future[Any]


class GroupCommit:
    """Writes to one database for one run of a batch, many writes to a commit, one commit at a time.

    A database that fails is tried again for as long as the run's lease lives, which others respect.
    `on_failure` is called once when commits begin to fail and are tried again, with the error and the
    arguments of all writes that wait.

    Attributes:
        lease_until: when the lease expires; None where there is none, and nothing is tried again.
        failing: a commit has failed, and is tried again.
    """

    def __init__(
        self,
        engine: sa.Engine,
        batch: str,
        on_failure: Callable[[LedgerUnavailable, Sequence[Any]], Awaitable[None]],
    ) -> None:
        self._engine, self._batch = engine, batch
        # Nobody else makes a commit wait, and with it the lease: not even a read that takes minutes.
        self._commit_thread = ThreadPoolExecutor(1, "ledger-commits")
        self._read_threads = ThreadPoolExecutor(2, "ledger-reads")
        self._on_failure = on_failure
        self.lease_until: datetime | None = None
        self.failing = False
        self._hurried = asyncio.Event()
        self._waiting: list[_Write] = []
        self._committer: asyncio.Task[None] | None = None

    def hurry(self) -> None:
        """From now on nothing is tried again; what waits for its next try has it now."""
        self._hurried.set()

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Runs a query in one consistent view, in a thread; again while the database fails.

        Raises:
            LedgerError: its values can be in no ledger.
            LedgerUnavailable: the database failed until the lease expired, or `hurry`.
        """

        def work() -> T:
            with explained(self._engine), explain_values(), self._engine.connect() as connection:
                return query(connection.execution_options(reading=True))

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

    async def write(
        self,
        name: str,
        operation: Callable[Concatenate[sa.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs an operation in the next commit, all or nothing; returns its result when that is durable.

        It is written also where the caller is cancelled while it waits. Failpoints call the write `name`.

        Raises:
            LedgerError: its values cannot be stored.
            LedgerUnavailable: the database failed until the end, and with it all of the commit.
            CallsheetError: the operation refused it.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(name, operation, args, kwargs, future))
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())
        return await future

    async def close(self) -> None:
        """Waits until nothing is left to write; nothing is written after it."""
        while self._committer:
            await asyncio.wait([self._committer])
        for threads in (self._commit_thread, self._read_threads):
            threads.shutdown(wait=False)

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                writes, self._waiting = self._waiting, []
                commit, failed = partial(self._commit, writes), partial(self._failed, writes)
                results: list[Any]
                try:
                    results = await self._tried(self._commit_thread, commit, failed)
                except Exception as error:  # noqa: BLE001 - each caller gets it; otherwise they wait for ever
                    results = [error] * len(writes)
                self.failing = False
                for write, result in zip(writes, results, strict=True):
                    if write.future.done():  # its caller was cancelled
                        continue
                    if isinstance(result, Exception):
                        write.future.set_exception(result)
                    else:
                        write.future.set_result(result)
                if len(results) > 1:  # others write at the same time
                    await asyncio.sleep(_PAUSE)
        finally:
            self._committer = None

    async def _failed(self, writes: Sequence[_Write], error: LedgerUnavailable) -> None:
        """A commit of these writes has failed, and is tried again."""
        if not self.failing:
            self.failing = True
            waiting = (*writes, *self._waiting)
            await self._on_failure(error, [argument for write in waiting for argument in write.args])

    def _commit(self, writes: Sequence[_Write]) -> list[Any]:
        """Makes a commit; the result of each write, or the error with which it was refused."""
        with explained(self._engine):
            try:
                results = self._in_one_transaction(writes, _written)
            except CallsheetError:  # of one of them
                results = self._in_one_transaction(writes, _written_or_refused)
            for write in writes:
                failpoints.passed(f"after ledger.{write.name}")
        return results

    def _in_one_transaction(
        self, writes: Sequence[_Write], make: Callable[[sa.Connection, _Write], Any]
    ) -> list[Any]:
        with self._engine.begin() as connection, _revised(connection, self._batch):
            results = [make(connection, write) for write in writes]
            for write in writes:
                failpoints.passed(f"before ledger.{write.name}")
        return results


@contextmanager
def _revised(connection: sa.Connection, batch: str) -> Iterator[None]:
    """For changes of this batch and of no other one: where there are any, it has another revision then."""
    is_changed = False

    @sa.event.listens_for(connection, "after_execute")
    def _look(_: sa.Connection, statement: Any, *__: Any) -> None:
        nonlocal is_changed
        is_changed |= isinstance(statement, sa.UpdateBase) and statement.table in _OF_BATCH

    yield
    if is_changed:
        connection.execute(_SET_REVISION, {"the_batch": batch, "revision": new_revision()})


def _written(connection: sa.Connection, write: _Write) -> Any:
    with explain_values():
        return write.operation(connection, *write.args, **write.kwargs)


def _written_or_refused(connection: sa.Connection, write: _Write) -> Any:
    try:
        with connection.begin_nested():
            return _written(connection, write)
    except CallsheetError as error:
        return error
