"""The ledger of one batch, as a run uses it: what was bought, what it cost, and where it is.

Every change of state is durable before the step that relies on it: the intent before the POST, the id before
the first poll, the URLs before the first download, the file before `stored`. What each change means in the
tables is in the other modules; here they are put into group commits.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import sqlalchemy as sa

from callsheet.config.settings import Budget
from callsheet.errors import LedgerError, LedgerUnavailable
from callsheet.ledger import databases, journal, leases, services, states, takeover
from callsheet.ledger.databases import BUSY, explained, open_engine
from callsheet.ledger.gate import Buyer, Obstacle, Reservation, reserve
from callsheet.ledger.group_commit import GroupCommit
from callsheet.ledger.journal import Journal, PaidAnswer
from callsheet.ledger.policy import Policy
from callsheet.ledger.states import SameGeneration
from callsheet.ledger.tables import about
from callsheet.ledger.takeover import Owner
from callsheet.records import Attempt, File, Generation, Job, State

T = TypeVar("T")
P = ParamSpec("P")

logger = logging.getLogger("callsheet")


def _opened(
    url: str, busy: float, looks: bool, note: Callable[[str], None]
) -> tuple[sa.Engine, str, timedelta]:
    """The database, the ledger's id, and by how much this machine's clock is behind the database's."""
    engine = open_engine(url, busy, looks=looks, note=note)
    with explained(engine), engine.connect().execution_options(reading=True) as connection:
        behind = leases.time_by_database(connection) - datetime.now(UTC)
        return engine, str(connection.scalar(sa.select(about.c.ledger_id))), behind


class Ledger:
    """The ledger of one batch, opened for one run: `async with await Ledger.open(...) as ledger`.

    Its `id` says which ledger it is; a backup, and what it was moved to, have the same. `lease`: for how many
    seconds the run counts as alive after `renew`. `asker`: whose its questions are, the flow run's in Prefect
    and elsewhere its own.

    While the run's lease lives, a database that fails is tried again, for writes and reads: the run waits.
    When it has failed until the lease expired, and at once where there is no lease, every method raises
    LedgerUnavailable; whether the database has carried it out is not known then. Every method that writes
    raises another LedgerError when the ledger refused it; then nothing of it was written.
    """

    def __init__(
        self,
        engine: sa.Engine,
        owner: Owner,
        *,
        behind: timedelta = timedelta(),
        purse: str | None = None,
        journal: Path | None = None,
        note: Callable[[str], None] = logger.warning,
    ) -> None:
        self._engine = engine
        self._commits = GroupCommit(engine, owner.batch, self._wait)
        self._journal = Journal(journal, owner.run_id, note)
        self._note = note
        self._owner = owner
        self._behind = behind  # this machine's clock behind the database's
        self.id = owner.ledger_id
        self.batch = owner.batch
        self.run_id = owner.run_id
        self.flow_run = owner.flow_run
        self.asker = owner.flow_run or owner.run_id
        self.purse = purse
        self.lease = owner.lease

    @classmethod
    async def open(
        cls,
        url: str,
        batch: str,
        *,
        looks: bool = False,
        service: str = "",
        flow_run: str | None = None,
        purse: str | None = None,
        journal: Path | None = None,
        note: Callable[[str], None] = logger.warning,
        busy: float = BUSY,
        lease: float = leases.LEASE,
    ) -> Self:
        """Opens the ledger at `url` (a SQLAlchemy URL) for reading; `begin_run` makes it ready to buy.

        Args:
            url, batch: the database, and its batch.
            looks: nothing is created or upgraded. A ledger that is not there yet is read as an empty one, and
                one that this user may not write is read all the same.
            service: the base URL of the service that this run buys at, to which its first reservation binds
                the batch. Empty for what only reads.
            flow_run: the id of the flow run in Prefect, where it is one.
            purse: the name in which the run buys (`gate.Buyer`).
            journal: the folder for answers that are paid for and cannot be written to the ledger; on the
                local disk, and the same for the next run. None: such answers are in doubt.
            note: called with what a person should know, and the run goes on from.
            busy: for how many seconds a write waits for another process's write, before it has failed.
            lease: for how many seconds the run counts as alive after `renew`.

        Raises:
            OtherVersion: it is of another Callsheet: a newer one, or an older one and is only looked at.
            LedgerError: it cannot be opened.
        """
        engine, ledger_id, behind = await asyncio.to_thread(_opened, url, busy, looks, note)
        owner = Owner(str(uuid.uuid4()), batch, ledger_id, service, lease, flow_run=flow_run)
        return cls(engine, owner, behind=behind, purse=purse, journal=journal, note=note)

    async def begin_run(
        self,
        balance: Decimal | None = None,
        *,
        find: Callable[[Collection[str]], Mapping[str, Job]] = lambda _: {},
        buys: bool = True,
        replaces: bool = False,
    ) -> list[Attempt]:
        """Enters this run, and takes over what dead runs of the batch left.

        Args:
            balance: what the workspace has, in dollars, where that is known: evidence for later doubts.
            find: the jobs of the plan that have these keys, by key: for answers that only journals have.
            buys: whether the run is about to buy.
            replaces: whether this ledger takes the place of others.

        Returns:
            What dead runs were submitting, and is in doubt from now on.

        Raises:
            UnknownAnswers: the run would buy again what a journal has an answer for.
        """
        lease_until = datetime.now(UTC) + timedelta(seconds=self.lease)
        journals = await asyncio.to_thread(journal.left_in, self._journal.folder)
        keys = {answer.attempt.job_key for left in journals for answer in left.answers}
        jobs = await asyncio.to_thread(find, keys) if keys else {}
        owner = replace(self._owner, jobs=jobs, buys=buys, replaces=replaces)
        recovered = await self._commits.write("begin_run", takeover.begin_run, owner, balance, journals)
        self._commits.lease_until = lease_until
        return await self._recovered(recovered)

    async def take_over(self) -> tuple[list[Attempt], list[File], list[Attempt]]:
        """Takes over what runs of the batch left that have died since this one began.

        Returns:
            What is new of it: videos to poll, files to download, and what is in doubt from now on.
        """
        journals = await asyncio.to_thread(journal.left_in, self._journal.folder)
        taken_over = takeover.Taken()
        videos, files, recovered = await self._commits.write(
            "take_over", takeover.take_over, self._owner, journals, taken_over
        )
        await self._recovered(recovered)
        return videos, files, [*taken_over.doubts]

    async def _recovered(self, recovered: takeover.Recovered) -> list[Attempt]:
        for left in recovered.journals:
            await asyncio.to_thread(journal.remove, left)
        for text in recovered.notes:
            self._note(f"an answer of an earlier run could not be written to the ledger: {text}")
        return recovered.doubts

    async def renew(self) -> None:
        """Renews the lease; to be called several times within a lease.

        Raises:
            LedgerError: it had expired, and another run has taken our jobs over: stop at once.
        """
        lease_until = datetime.now(UTC) + timedelta(seconds=self.lease)
        await self._commits.write("renew", leases.renew, self.run_id, self.lease)
        self._commits.lease_until = lease_until

    def hurry(self) -> None:
        """From now on nothing waits for a database that fails, or is locked for longer than a moment.

        What waits now is tried once more. An answer that cannot be written is kept in the journal, as ever.
        """
        self._commits.hurry()
        databases.hurry(self._engine)

    async def end_run(self) -> None:
        """Ends the run: reserved jobs are free again, accepted ones are left to the next run. Idempotent.

        From now on nothing waits for a database that fails.
        """
        self._commits.hurry()
        await self._commits.write("end_run", leases.leave, self.run_id, self.batch)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for the writes that are under way, and closes the database."""
        await self._commits.close()
        leases.forget(self.run_id)
        self._journal.close()
        await asyncio.to_thread(self._engine.dispose)

    def buyer(self, budget: Budget, affordable: Decimal = Decimal(0)) -> Buyer:
        """This run, as the gate knows it; `affordable` as for `Buyer`."""
        return Buyer(self.batch, self.run_id, self.asker, budget, affordable, self.purse)

    async def reserve(
        self, jobs: Sequence[Job], policy: Policy, buyer: Buyer, *, skip: bool = False
    ) -> Reservation:
        """Reserves jobs in their order, until one may not leave.

        Jobs that the policy does not buy, and jobs that another run has reserved, are passed over; what this
        run has reserved it gets again. `skip`: also a job that does not fit, for later ones that do.

        Raises:
            OtherService: the batch belongs to another service; nothing was reserved.
            LedgerError: another run has taken this run's jobs over; nothing was reserved.
        """

        def reserving(connection: sa.Connection) -> Reservation:
            leases.renew(connection, self.run_id, self.lease)
            result = reserve(connection, buyer, jobs, policy, skip=skip)
            if result.reserved and (service := self._owner.service):
                services.bind(connection, self.batch, service, self.run_id)
            return result

        return await self._commits.write("reserve", reserving)

    async def intend(self, attempt: Attempt, buyer: Buyer, rates: Mapping[str, Any]) -> Obstacle | None:
        """The POST is about to leave, if it still may.

        What was answered since it was reserved may have cost more than its quote. `rates` are the catalogue's
        entries of the models that the run buys, by id: what somebody has agreed to from now on.

        Returns:
            None where it may leave. Otherwise why not, and it is no longer reserved.
        """
        at = datetime.now(UTC) + self._behind
        obstacle = await self._commits.write(
            State.SUBMITTING, states.intend, self.run_id, attempt, buyer, rates=rates, at=at
        )
        if obstacle:
            await self.transition(leases.unreserve, attempt)
        return obstacle

    async def pending(self, attempt: Attempt, generation_id: str) -> SameGeneration | None:
        """A video was accepted; or it is in doubt, because the id is another job's."""
        result = await self._answered(State.PENDING, PaidAnswer(attempt, generation_id))
        return result if isinstance(result, SameGeneration) else None

    async def generated(
        self, attempt: Attempt, generation: Generation, names: Sequence[str], storage: str
    ) -> list[File] | SameGeneration:
        """The job is paid for: records its cost, its files' URLs, and a free name in `storage` for each file.

        `names` are the wanted ones, in order, and `storage` is the URL that they are in. Where the database
        fails, the answer is kept in the journal, too: what that has, the next run writes.

        Returns:
            The files; or why the job is in doubt: the answer's id is another job's.

        Raises:
            LedgerError: the job is in another state, or the answer cannot be stored.
        """
        paid_for = (generation.id, generation.usage, generation.media)
        answer = PaidAnswer(attempt, *paid_for, tuple(names), storage, model=generation.model)
        return await self._answered(State.GENERATED, answer)

    async def _answered(self, state: State, answer: PaidAnswer) -> list[File] | SameGeneration:
        """Writes an answer; also into the journal, where the database fails or refuses it."""
        answer = replace(answer, batch=self.batch, service=self._owner.service, ledger_id=self.id)
        if self._commits.failing:
            await self._journal.keep_answer(answer)
        try:
            result = await self._commits.write(state, states.answered, self.run_id, answer)
        except LedgerError:
            await self._journal.keep_answer(answer)
            raise
        if self._journal.waiting:
            await asyncio.to_thread(self._journal.written, answer)
        return result

    async def _wait(self, error: LedgerUnavailable, waiting: Sequence[Any]) -> None:
        """The database fails, and this waits for it: the answers among it are kept elsewhere too."""
        kept = "is kept in the journal" if self._journal.folder else "is not kept"
        self._note(f"{error}; the run waits and tries again until its lease expires; what is answered {kept}")
        for argument in waiting:
            if isinstance(argument, PaidAnswer):
                await self._journal.keep_answer(argument)

    async def transition(
        self, change: Callable[Concatenate[sa.Connection, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Writes what has become of a job of this run, or of a file, with `states.failed` and the like.

        Returns what that returns, when it is durable.

        Raises:
            LedgerError: the job is in another state, or another run has taken it over.
        """
        return await self._commits.write(change.__name__, change, self.run_id, *args, **kwargs)

    async def write(
        self, operation: Callable[Concatenate[sa.Connection, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Writes what is not the state of a job, all or nothing, with `marks.mark` and the like.

        Returns what that returns, when it is durable, and raises its errors.
        """
        return await self._commits.write(operation.__name__, operation, self.batch, *args, **kwargs)

    async def read(
        self, query: Callable[Concatenate[sa.Connection, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs a query on this batch, `queries.doubts` for instance, in one consistent view.

        It finds the ledger as the next run will: what dead runs have left is in doubt, or free.
        """

        def foreseen(connection: sa.Connection) -> T:
            return query(leases.foreseen(connection), self.batch, *args, **kwargs)

        return await self._commits.read(foreseen)
