"""The ledger: what was bought, what it cost, where it is. The one record that money rests on.

Every change of state is a durable transaction before the step that relies on it: the intent before the POST,
the id before the first poll, the URLs before the first download, the file before `stored`. Writes that arrive
while a commit is under way share the next one (group commit), so durability costs little.

A run owns the jobs it has reserved (`callsheet.leases`); what a dead run owned is taken over by the next.
The ledger knows neither the service nor the store, and decides nothing: it keeps the rules of the states.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from callsheet import failpoints
from callsheet.errors import LedgerError
from callsheet.ledger import claims, leases, queries
from callsheet.ledger.tables import attempts, learned, media, open_engine, settlements
from callsheet.records import Attempt, Doubt, File, Generation, Job, State, StoredFile

T = TypeVar("T")

# What may precede each state (docs/architecture.md, "States of a job"); any other move is refused.
_BEFORE: dict[State, frozenset[State]] = {
    State.PLANNED: frozenset({State.SUBMITTING}),
    State.SUBMITTING: frozenset({State.PLANNED}),
    State.PENDING: frozenset({State.SUBMITTING}),
    State.GENERATED: frozenset({State.SUBMITTING, State.PENDING}),
    State.STORED: frozenset({State.GENERATED}),
    State.FAILED: frozenset({State.SUBMITTING, State.PENDING}),
    State.IN_DOUBT: frozenset({State.SUBMITTING}),
    State.LOST: frozenset({State.GENERATED}),
}


class Ledger:
    """The ledger of one batch, opened for one run. Use `Ledger.open`, then `close`."""

    def __init__(self, engine: sa.Engine, batch: str, run_id: str) -> None:
        self._engine = engine
        self.batch = batch
        self.run_id = run_id
        self._waiting: list[tuple[str, Callable[[sa.Connection], Any], asyncio.Future[Any]]] = []
        self._committer: asyncio.Task[None] | None = None

    # ---- opening, leases and closing

    @classmethod
    async def open(cls, url: str, batch: str) -> Self:
        """Opens the ledger at `url` (SQLAlchemy's form) for reading; `begin_run` makes it a buyer.

        Raises:
            LedgerError: it cannot be opened.
        """
        return cls(await asyncio.to_thread(open_engine, url), batch, str(uuid.uuid4()))

    async def begin_run(self, balance: Decimal | None = None) -> None:
        """Enters this run, and takes over what dead runs of the batch left (`leases.enter`).

        Args:
            balance: what the workspace has, in dollars, where that is known: evidence for later doubts.
        """
        await self._write(
            "begin_run", lambda connection: leases.enter(connection, self.run_id, self.batch, balance)
        )

    async def close_dead_runs(self) -> None:
        """Settles what dead runs of the batch left half done, as `begin_run` does, without entering a run.

        What they were submitting is in doubt from now on, and what they had reserved is free.
        """
        await self._write(
            "close_dead_runs", lambda connection: leases.close_dead_runs(connection, self.batch)
        )

    async def renew(self) -> None:
        """Renews the lease; to be called well within `leases.LEASE`.

        Raises:
            LedgerError: it had ended, and another run has come since and may own our jobs: stop at once.
        """
        await self._write("renew", lambda connection: leases.renew(connection, self.run_id))

    async def end_run(self) -> None:
        """Leaves: reserved jobs are free again, accepted ones are for the next run. Idempotent."""
        await self._write("end_run", lambda connection: leases.leave(connection, self.run_id))

    async def close(self) -> None:
        """Waits for the writes under way and closes the database."""
        while self._committer:
            await asyncio.wait([self._committer])
        await asyncio.to_thread(self._engine.dispose)

    # ---- buying

    async def reserve(
        self,
        jobs: Sequence[Job],
        *,
        limit: Decimal,
        retry_failed: bool,
        retry_doubt: bool,
        skip: bool = False,
        reuse: bool = False,
    ) -> tuple[list[tuple[Job, Attempt]], list[Job]]:
        """Reserves jobs in their order, until one does not fit the budget.

        Jobs that are bought, in another run's hands, failed or in doubt are passed over (unless asked for, or
        settled as not charged).

        Args:
            jobs: the next jobs of the plan.
            limit: the budget's wall in dollars.
            retry_failed: failed jobs are attempted anew.
            retry_doubt: jobs in doubt are attempted anew, and their exposure stays.
            skip: jobs that do not fit are passed over for later ones that do.
            reuse: what another batch has stored for the same request stands for a job; it is stored at once.

        Returns:
            What was reserved, and the jobs that are left: the first that does not fit and all after it, or
            with `skip` all that do not fit.
        """
        again = {State.FAILED} if retry_failed else set()
        again |= {State.IN_DOUBT} if retry_doubt else set()
        return await self._write(
            "reserve",
            lambda connection: claims.reserve(
                connection, self.batch, self.run_id, jobs, limit=limit, again=again, skip=skip, reuse=reuse
            ),
        )

    async def intend(self, attempt: Attempt) -> None:
        """The POST is about to leave. Durable when this returns."""
        await self._move(attempt, State.SUBMITTING, submitted_at=_now())

    async def release(self, attempt: Attempt) -> None:
        """The service took nothing: the job is planned again, and still ours."""
        await self._move(attempt, State.PLANNED)

    async def pending(self, attempt: Attempt, generation_id: str) -> None:
        """A video was accepted."""
        await self._move(attempt, State.PENDING, generation_id=generation_id)

    async def failed(self, attempt: Attempt, code: str, message: str) -> None:
        """Refused or failed for good; it costs nothing."""
        await self._move(
            attempt, State.FAILED, error_code=code, error_message=message, cost=Decimal(0), finished_at=_now()
        )

    async def doubt(self, attempt: Attempt, message: str) -> None:
        """No answer says whether it was accepted."""
        await self._move(
            attempt, State.IN_DOUBT, error_code="in_doubt", error_message=message, finished_at=_now()
        )

    async def generated(
        self, attempt: Attempt, generation: Generation, names: Sequence[str], storage: str
    ) -> list[File]:
        """Paid for: keeps the cost, the signed URLs, and a name in `storage` for each file that no other has.

        Args:
            attempt: the attempt that was answered.
            generation: the service's answer.
            names: the wished name of each file of `generation.media`, in order.
            storage: the storage URL that the names are in.
        """
        usage = generation.usage

        def op(connection: sa.Connection) -> list[File]:
            self._set(
                connection,
                attempt,
                State.GENERATED,
                generation_id=generation.id,
                cost=usage.total_cost,
                billable_unit=usage.billable_unit,
                unit_price=usage.unit_price,
                quantity=usage.quantity,
            )
            files = []
            for index, (item, wish) in enumerate(zip(generation.media, names, strict=True)):
                name = _free_name(connection, storage, wish, attempt, index)
                row = item.model_dump(exclude={"url"})
                connection.execute(
                    media.insert().values(
                        job_key=attempt.job_key,
                        attempt=attempt.number,
                        index=index,
                        storage=storage,
                        name=name,
                        source_url=item.url,
                        **row,
                    )
                )
                files.append(File(attempt, index, name, item))
            return files

        return await self._write("generated", op)

    async def refreshed(self, file: File, source_url: str, deletes_at: datetime) -> None:
        """A video's URL was renewed by polling again."""
        await self._write(
            "refreshed",
            lambda connection: connection.execute(
                media.update().where(_is_file(file)).values(source_url=source_url, deletes_at=deletes_at)
            ),
        )

    async def renamed(self, file: File, name: str) -> None:
        """The reserved name was taken in storage by other bytes; this one is used instead."""
        await self._write(
            "renamed",
            lambda connection: connection.execute(media.update().where(_is_file(file)).values(name=name)),
        )

    async def stored(self, file: File, stored: StoredFile) -> State | None:
        """A file is verified and in storage. Returns the job's end state when this was its last file."""
        return await self._finish(
            file, url=stored.url, sha256=stored.sha256, bytes=stored.bytes, stored_at=stored.stored_at
        )

    async def lost(self, file: File, message: str) -> State | None:
        """A file can no longer be had. Returns the job's end state when this was its last file."""
        return await self._finish(file, lost_at=_now(), message=message)

    async def _finish(self, file: File, *, message: str | None = None, **values: Any) -> State | None:
        def op(connection: sa.Connection) -> State | None:
            connection.execute(media.update().where(_is_file(file)).values(**values))
            of_job = sa.and_(media.c.job_key == file.attempt.job_key, media.c.attempt == file.attempt.number)
            rows = connection.execute(sa.select(media.c.stored_at, media.c.lost_at).where(of_job)).all()
            if any(row.stored_at is None and row.lost_at is None for row in rows):
                return None
            lost = any(row.lost_at is not None for row in rows)
            error = {"error_code": "lost", "error_message": message} if message else {}
            state = State.LOST if lost else State.STORED
            self._set(connection, file.attempt, state, finished_at=_now(), **error)
            return state

        return await self._write("lost" if "lost_at" in values else "stored", op)

    async def _move(self, attempt: Attempt, to: State, **values: Any) -> None:
        await self._write(to, lambda connection: self._set(connection, attempt, to, **values))

    def _set(self, connection: sa.Connection, attempt: Attempt, to: State, **values: Any) -> None:
        where = sa.and_(
            _is(attempt.job_key, attempt.number),
            attempts.c.state.in_(_BEFORE[to]),
            attempts.c.run_id == self.run_id,
        )
        if connection.execute(attempts.update().where(where).values(state=to, **values)).rowcount != 1:
            raise LedgerError(
                f"row {attempt.row_id}: the ledger refuses the step to {to}: "
                "the job is in another state, or another run has taken it over"
            )

    async def settle(self, doubts: Sequence[Doubt], *, charged: bool, by: str, why: str | None) -> None:
        """Settles doubts, all or none: charged is paid for and lost, not charged is free to buy again.

        Args:
            doubts: attempts of this batch.
            charged: whether the service charged them.
            by: who says so.
            why: for what reason.

        Raises:
            LedgerError: one of them is in doubt no longer.
        """
        # What an unpriced job has cost, nobody can say.
        priced = sa.case((attempts.c.unit_price.is_not(None), attempts.c.quoted))
        verdict: dict[str, Any] = (
            {"state": State.LOST, "cost": priced, "error_code": "charged"}
            if charged
            else {"state": State.FAILED, "cost": Decimal(0), "error_code": queries.NOT_CHARGED}
        )
        record = {"charged": charged, "settled_by": by, "settled_at": _now(), "why": why}

        def op(connection: sa.Connection) -> None:
            for doubt in doubts:
                where = sa.and_(_is(doubt.job_key, doubt.attempt), attempts.c.state == State.IN_DOUBT)
                said = (
                    f"{doubt.what.rstrip('.')}; settled as {'charged' if charged else 'not charged'} by {by}"
                )
                values = verdict | {"error_message": said}
                if connection.execute(attempts.update().where(where).values(values)).rowcount != 1:
                    raise LedgerError(
                        f"row {doubt.row_id} is in doubt no longer; nothing was settled",
                        hint="List what is in doubt again: somebody else has settled it.",
                    )
                connection.execute(
                    settlements.insert().values(job_key=doubt.job_key, attempt=doubt.attempt, **record)
                )

        await self._write("settle", op)

    # ---- reading, and what was learned of the account

    async def read(self, query: Callable[[sa.Connection, str], T]) -> T:
        """Runs one of `callsheet.books`' queries on this batch, in one consistent view."""

        def work() -> T:
            with self._engine.connect() as plain:
                return query(plain.execution_options(reading=True), self.batch)

        return await asyncio.to_thread(_guarded, work)

    async def adopted(self) -> tuple[list[Attempt], list[File]]:
        """What this run has taken over: videos to poll, and files to download."""
        return await self.read(lambda connection, _: queries.unfinished(connection, self.run_id))

    async def learned(self, service: str) -> dict[str, Any] | None:
        """What earlier runs learned of the limits of `service`."""
        query = sa.select(learned.c.limits).where(learned.c.service == service)
        return await self.read(lambda connection, _: connection.scalar(query))

    async def learn(self, service: str, limits: dict[str, Any]) -> None:
        """Remembers what was learned of the limits of `service`."""

        def op(connection: sa.Connection) -> None:
            connection.execute(learned.delete().where(learned.c.service == service))
            connection.execute(learned.insert().values(service=service, limits=limits))

        await self._write("learn", op)

    # ---- the machinery

    async def _write(self, name: str, op: Callable[[sa.Connection], T]) -> T:
        """Runs `op`, called `name`, in the next group commit; returns when it is durable."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, op, future))
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())
        # A cancelled caller must not cancel the commit of the others.
        return await asyncio.shield(future)

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                ops = [(name, op) for name, op, _ in group]
                try:
                    results = await asyncio.to_thread(_guarded, lambda ops=ops: self._commit(ops))
                except Exception as error:  # noqa: BLE001 - whoever waits is told, or would wait for ever
                    results = [error] * len(group)
                for (*_, future), result in zip(group, results, strict=True):
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
        finally:
            self._committer = None

    def _commit(self, ops: Sequence[tuple[str, Callable[[sa.Connection], Any]]]) -> list[Any]:
        results: list[Any] = []
        with self._engine.begin() as connection:
            for _, op in ops:
                try:
                    with connection.begin_nested():  # an op that is refused leaves the others' work alone
                        results.append(op(connection))
                except LedgerError as error:
                    results.append(error)
                except Exception as error:
                    if not _is_of_its_values(error):
                        raise
                    results.append(LedgerError(f"the ledger cannot hold this: {error.__cause__ or error}"))
            for name, _ in ops:
                failpoints.passed(f"before ledger.{name}")
        for name, _ in ops:
            failpoints.passed(f"after ledger.{name}")
        return results


def _is_of_its_values(error: Exception) -> bool:
    """Whether the values of one operation are to blame, and not the database."""
    if isinstance(error, sa.exc.DBAPIError):
        return isinstance(error, sa.exc.IntegrityError | sa.exc.DataError)
    return isinstance(error, sa.exc.StatementError | ValueError | ArithmeticError)


def _guarded(work: Callable[[], T]) -> T:
    try:
        return work()
    except sa.exc.SQLAlchemyError as error:
        raise LedgerError(
            f"the ledger could not be read or written: {error.__cause__ or error}",
            hint="Check free disk space and what else uses the ledger; then run the same command again.",
        ) from error


def _is(job_key: str, number: int) -> sa.ColumnElement[bool]:
    return sa.and_(attempts.c.job_key == job_key, attempts.c.attempt == number)


def _is_file(file: File) -> sa.ColumnElement[bool]:
    return sa.and_(
        media.c.job_key == file.attempt.job_key,
        media.c.attempt == file.attempt.number,
        media.c.index == file.index,
    )


def other_name(name: str, attempt: Attempt, index: int) -> str:
    """The name to use where `name` is taken: the same with what tells the file from all others.

    That is the job's key, the number of a later attempt, and the index of a later file.
    """
    path = Path(name)
    mark = attempt.job_key[:12] + (f"-{attempt.number}" if attempt.number > 1 else "")
    mark += f"_{index}" if index else ""
    return str(path.with_name(f"{path.stem}-{mark}{path.suffix}"))


def _free_name(connection: sa.Connection, storage: str, name: str, attempt: Attempt, index: int) -> str:
    taken = sa.select(media.c.name).where(media.c.storage == storage, media.c.name == name)
    return other_name(name, attempt, index) if connection.scalar(taken) else name


def _now() -> datetime:
    return datetime.now(UTC)
