"""The ledger of one batch, as a run uses it: what was bought, what it cost, and where it is.

Every change of state is durable before the step that relies on it: the intent before the POST, the id before
the first poll, the URLs before the first download, the file before `stored`. What each change means in the
tables is in `transitions.py`, `claims.py` and `leases.py`; here they are put into group commits.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from callsheet.ledger import claims, leases, queries, services, transitions
from callsheet.ledger.claims import Reservation
from callsheet.ledger.databases import explained, open_engine
from callsheet.ledger.group_commit import GroupCommit
from callsheet.ledger.policy import Policy
from callsheet.ledger.tables import learned
from callsheet.records import Attempt, Doubt, File, Generation, Job, OtherRun, State, StoredFile

T = TypeVar("T")


class Ledger:
    """The ledger of one batch, opened for one run. Use `Ledger.open`, then `close`.

    Every method that writes raises LedgerError when it could not; then nothing of it was written.
    """

    def __init__(self, engine: sa.Engine, batch: str, run_id: str) -> None:
        self._engine = engine
        self._commits = GroupCommit(engine)
        self.batch = batch
        self.run_id = run_id

    # ---- opening, leases and closing

    @classmethod
    async def open(cls, url: str, batch: str) -> Self:
        """Opens the ledger at `url` (a SQLAlchemy URL) for reading; `begin_run` makes it ready to buy.

        Raises:
            LedgerError: it cannot be opened.
        """
        return cls(await asyncio.to_thread(open_engine, url), batch, str(uuid.uuid4()))

    async def begin_run(self, balance: Decimal | None = None) -> None:
        """Enters this run, and takes over what dead runs of the batch left (`leases.enter`).

        Args:
            balance: what the workspace has, in dollars, where that is known: evidence for later doubts.
        """
        await self._commits.write(
            "begin_run", lambda connection: leases.enter(connection, self.run_id, self.batch, balance)
        )

    async def bind(self, service: str) -> None:
        """Binds the batch to the service with this base URL, unless it is bound already.

        Raises:
            OtherService: it is bound to another service; nothing may be bought, polled or fetched at this
                one.
        """
        await self._commits.write("bind", lambda connection: services.bind(connection, self.batch, service))

    async def check_service(self, service: str) -> None:
        """Checks, without a write, that the batch is not bound to another service than the one at this URL.

        Raises:
            OtherService: it is.
        """
        await self.read(lambda connection, batch: services.check(connection, batch, service))

    async def rebind(self, service: str) -> None:
        """Binds the batch to the service at this URL: a person knows that its service has moved."""
        await self._commits.write(
            "rebind", lambda connection: services.rebind(connection, self.batch, service)
        )

    async def renew(self) -> None:
        """Renews the lease; to be called several times within a lease.

        Raises:
            LedgerError: it had expired, and another run has taken our jobs over: stop at once.
        """
        await self._commits.write("renew", lambda connection: leases.renew(connection, self.run_id))

    async def end_run(self) -> None:
        """Ends the run: reserved jobs are free again, accepted ones are left to the next run. Idempotent."""
        await self._commits.write("end_run", lambda connection: leases.leave(connection, self.run_id))

    async def close(self) -> None:
        """Waits for the writes that are under way, and closes the database."""
        await self._commits.drain()
        leases.forget(self.run_id)
        await asyncio.to_thread(self._engine.dispose)

    # ---- buying

    async def reserve(
        self,
        jobs: Sequence[Job],
        policy: Policy,
        *,
        limit: Decimal,
        per_day: Decimal | None = None,
        skip: bool = False,
    ) -> Reservation:
        """Reserves jobs in their order, until one does not fit the budget.

        Jobs that the policy does not buy, and jobs that a run has reserved, are passed over.

        Args:
            jobs: the next jobs of the plan.
            policy: which jobs are bought again, and whether other batches' files are reused.
            limit: what the batch may spend, in dollars: spent, reserved, in flight and in doubt.
            per_day: what all batches of the ledger together may spend in a UTC day, in dollars. A job counts
                for the day on which it is sent; until then it counts for today.
            skip: pass over a job that does not fit, for later ones that do.
        """
        return await self._commits.write(
            "reserve",
            lambda connection: claims.reserve(
                connection, self.batch, self.run_id, jobs, policy, limit=limit, per_day=per_day, skip=skip
            ),
        )

    async def intend(self, attempt: Attempt) -> None:
        """The POST is about to leave."""
        await self._commits.write(
            State.SUBMITTING, lambda connection: transitions.intend(connection, self.run_id, attempt)
        )

    async def release(self, attempt: Attempt) -> None:
        """The service took nothing: the job is planned again, and still ours."""
        await self._commits.write(
            State.PLANNED, lambda connection: transitions.release(connection, self.run_id, attempt)
        )

    async def pending(self, attempt: Attempt, generation_id: str) -> None:
        """A video was accepted."""
        await self._commits.write(
            State.PENDING,
            lambda connection: transitions.pending(connection, self.run_id, attempt, generation_id),
        )

    async def failed(self, attempt: Attempt, code: str, message: str) -> None:
        """The service refused the job or gave it up; it costs nothing."""
        await self._commits.write(
            State.FAILED,
            lambda connection: transitions.failed(connection, self.run_id, attempt, code, message),
        )

    async def doubt(self, attempt: Attempt, message: str) -> None:
        """No answer says whether the job was accepted."""
        await self._commits.write(
            State.IN_DOUBT, lambda connection: transitions.doubt(connection, self.run_id, attempt, message)
        )

    async def generated(
        self, attempt: Attempt, generation: Generation, names: Sequence[str], storage: str
    ) -> list[File]:
        """The job is paid for: records its cost, its files' URLs, and a free name in `storage` for each file.

        Args:
            attempt: the attempt that was answered.
            generation: the service's answer.
            names: the wanted name of each file of `generation.media`, in order.
            storage: the storage URL that the names are in.
        """
        return await self._commits.write(
            State.GENERATED,
            lambda connection: transitions.generated(
                connection, self.run_id, attempt, generation, names=names, storage=storage
            ),
        )

    async def refreshed(self, file: File, source_url: str, deletes_at: datetime) -> None:
        """The service gave a new URL for a file."""
        await self._commits.write(
            "refreshed", lambda connection: transitions.refreshed(connection, file, source_url, deletes_at)
        )

    async def renamed(self, file: File, name: str) -> None:
        """The file's name is taken in storage by other bytes; `name` is used instead."""
        await self._commits.write("renamed", lambda connection: transitions.renamed(connection, file, name))

    async def stored(self, file: File, copy: StoredFile) -> State | None:
        """A file is verified and in storage. Returns the job's end state when this was its last file."""
        return await self._commits.write(
            State.STORED, lambda connection: transitions.stored(connection, self.run_id, file, copy)
        )

    async def lost(self, file: File, message: str) -> State | None:
        """A file can no longer be had. Returns the job's end state when this was its last file."""
        return await self._commits.write(
            State.LOST, lambda connection: transitions.lost(connection, self.run_id, file, message)
        )

    async def settle(self, doubts: Sequence[Doubt], *, charged: bool, by: str, why: str | None) -> None:
        """Records a person's decision about doubts, all or none.

        Args:
            doubts: attempts of this batch.
            charged: whether the service charged them: then they are paid for and lost, else free to buy
                again.
            by: who decided.
            why: the reason.

        Raises:
            LedgerError: one of them is no longer in doubt.
        """
        await self._commits.write(
            "settle",
            lambda connection: transitions.settle(connection, doubts, charged=charged, by=by, why=why),
        )

    # ---- reading, and what was learned of the account

    async def read(self, query: Callable[[sa.Connection, str], T]) -> T:
        """Runs a query of `queries.py` on this batch, in one consistent view.

        Raises:
            LedgerError: the ledger cannot be read.
        """

        def work() -> T:
            with self._engine.connect() as connection:
                return query(connection.execution_options(reading=True), self.batch)

        return await asyncio.to_thread(explained, work)

    async def adopted(self) -> tuple[list[Attempt], list[File]]:
        """What this run has taken over: videos to poll, and files to download."""
        return await self.read(lambda connection, _: queries.unfinished(connection, self.run_id))

    async def others(self) -> list[OtherRun]:
        """The other runs of the batch that are at work now, the oldest first."""
        return await self.read(lambda connection, batch: leases.others(connection, batch, self.run_id))

    async def learned(self, service: str) -> dict[str, Any] | None:
        """What earlier runs learned of the limits of `service`."""
        query = sa.select(learned.c.limits).where(learned.c.service == service)
        return await self.read(lambda connection, _: connection.scalar(query))

    async def learn(self, service: str, limits: dict[str, Any]) -> None:
        """Remembers what was learned of the limits of `service`."""

        def operation(connection: sa.Connection) -> None:
            connection.execute(learned.delete().where(learned.c.service == service))
            connection.execute(learned.insert().values(service=service, limits=limits))

        await self._commits.write("learn", operation)
