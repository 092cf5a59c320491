"""How a run takes over what dead runs of its batch left: when it begins, and from those that die beside it.

Their journals come first: an answer in one of them decides what would otherwise be in doubt, or bought again.
All of it is one transaction, on the connection that is given.

A journal may be of a run that the ledger does not know: the ledger is a backup, or a new one in the place of
one that is lost. Its answers are entered as if they had been reserved, sent and answered now. Where that
cannot be, nothing is bought before a person has said what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

import sqlalchemy as sa

from callsheet.errors import CallsheetError, UnknownAnswers
from callsheet.ledger import changes, gate, leases, queries, services, states, sums
from callsheet.ledger.databases import explain_values
from callsheet.ledger.journal import Left, PaidAnswer
from callsheet.ledger.tables import attempts
from callsheet.ledger.writing import Key
from callsheet.plain_text import counted
from callsheet.records import MAY_COST, Attempt, File, Job, State

_ATTEMPTS = sa.select(attempts).where(attempts.c.job_key == sa.bindparam("the_job"))
_WHAT_TO_DO = (
    "Nothing was bought. Restore the newer ledger, which knows that run, or put the rows of the batch file "
    "back as they were. If this ledger takes the place of a lost one: callsheet run CONFIG --new-ledger. If "
    "the file belongs to another ledger that is in use, move it away; what it has is not stored here then."
)


@dataclass(frozen=True, slots=True)
class Owner:
    """The run to which what is taken over belongs from now on.

    Attributes:
        service: the base URL of its service.
        lease: how long it counts as alive without a renewal, in seconds.
        jobs: by key, the jobs of its plan that journals have answers for.
        buys: it is about to buy.
        replaces: its ledger takes the place of others (`ledger.new`), so what they left is its own, too.
        flow_run: its id in Prefect, where it is one.
    """

    run_id: str
    batch: str
    ledger_id: str
    service: str = ""
    lease: float = leases.LEASE
    jobs: Mapping[str, Job] = field(default_factory=dict)
    buys: bool = False
    replaces: bool = False
    flow_run: str | None = None


class Recovered(NamedTuple):
    """What dead runs left.

    Attributes:
        journals: those whose answers the ledger has now, to be removed when this is committed.
        notes: what a person should know of the other journals.
        doubts: what was being submitted, and is in doubt from now on.
    """

    journals: list[Left]
    notes: list[str]
    doubts: list[Attempt]


class _Problem(NamedTuple):
    """Why the ledger has no such answer; `unknown`: nor the attempt, so its job could be bought again."""

    message: str
    unknown: bool


def begin_run(
    connection: sa.Connection, owner: Owner, balance: Decimal | None, journals: Sequence[Left]
) -> Recovered:
    """Enters a run, and takes over what dead runs of the batch left (`Ledger.begin_run`).

    `journals`: what lies in the folder of the batch's journals, of whichever runs.
    """
    elsewhere = services.elsewhere(connection, owner.service) if owner.service else ()
    spent = sums.spent(connection, but_of=elsewhere)
    leases.enter_run(
        connection,
        owner.run_id,
        owner.batch,
        balance=balance,
        spent=spent,
        lease=owner.lease,
        flow_run=owner.flow_run,
    )
    changes.goes_by(connection, owner.batch, owner.run_id, changes.newest(connection))
    return _take_over(connection, owner, journals)


@dataclass(slots=True)
class Taken:
    """What a run has taken over while it was at work, also in a commit that was not confirmed.

    `doubts`: what was being submitted, each once.
    """

    keys: set[Key] = field(default_factory=set)
    doubts: dict[Attempt, None] = field(default_factory=dict)


def take_over(
    connection: sa.Connection, owner: Owner, journals: Sequence[Left], taken_over: Taken
) -> tuple[list[Attempt], list[File], Recovered]:
    """Takes over what runs of the batch left that have died since this one began (`Ledger.take_over`).

    Journals of runs that the ledger does not know are left alone. What this try takes over is added to what
    the tries before have `taken_over`: all of that is returned, as far as it is the run's.
    """
    keys_before = _keys(*queries.unfinished(connection, owner.batch, owner.run_id))
    known_runs = leases.known(connection, owner.batch)
    recovered = _take_over(
        connection, owner, [journal for journal in journals if journal.run_id in known_runs]
    )
    videos, files = queries.unfinished(connection, owner.batch, owner.run_id)
    taken_over.keys |= _keys(videos, files) - keys_before
    taken_over.doubts |= dict.fromkeys(recovered.doubts)
    return (
        [video for video in videos if (video.job_key, video.number) in taken_over.keys],
        [file for file in files if (file.attempt.job_key, file.attempt.number) in taken_over.keys],
        recovered,
    )


def _keys(videos: Sequence[Attempt], files: Sequence[File]) -> set[Key]:
    return {(attempt.job_key, attempt.number) for attempt in (*videos, *(file.attempt for file in files))}


def _take_over(connection: sa.Connection, owner: Owner, journals: Sequence[Left]) -> Recovered:
    recovered, notes = _read_journals(connection, owner, journals) if journals else ([], [])
    return Recovered(recovered, notes, leases.take_over(connection, owner.run_id, owner.batch))


def _read_journals(
    connection: sa.Connection, owner: Owner, journals: Sequence[Left]
) -> tuple[list[Left], list[str]]:
    """Writes to the ledger what journals have; returns those that it has all of, and notes on the others.

    Raises:
        UnknownAnswers: the run would buy again what a journal has an answer for.
    """
    reader = _Reader(connection, owner)
    recovered: list[Left] = []
    notes: list[str] = []
    unknown: list[str] = []
    for journal in filter(reader.is_left, journals):
        problems = reader.read(journal)
        notes += [f"{journal.path}: {problem.message}" for problem in problems]
        if reasons := [problem.message for problem in problems if problem.unknown]:
            further = f"; {len(reasons) - 1} more" if len(reasons) > 1 else ""
            answers = f"{counted(len(reasons), 'answer')} paid for, of a run that the ledger does not know"
            unknown.append(f"{journal.path} has {answers} ({reasons[0]}{further})")
        if not problems:
            recovered.append(journal)
    if unknown and owner.buys:
        raise UnknownAnswers("\n".join(unknown), hint=_WHAT_TO_DO)
    return recovered, notes


class _Reader:
    """Reads journals into the ledger."""

    def __init__(self, connection: sa.Connection, owner: Owner) -> None:
        self._connection, self._owner = connection, owner
        self._known = leases.known(connection, owner.batch)
        self._alive = {run.id for run in leases.alive(connection, owner.batch)} - {owner.run_id}

    def is_left(self, journal: Left) -> bool:
        """Whether a journal is one of the batch's, and not of a run of this ledger that is alive."""
        of_batch = all(answer.batch == self._owner.batch for answer in journal.answers)
        return of_batch and journal.run_id not in self._alive

    def read(self, journal: Left) -> list[_Problem]:
        """Writes a journal's answers to the ledger; says what is wrong with those that it cannot write."""
        problems = [self._read(journal, answer) for answer in journal.answers]
        if journal.unreadable:
            message = f"{counted(journal.unreadable, 'line')} cannot be read"
            problems.append(_Problem(message, unknown=journal.run_id not in self._known))
        return [problem for problem in problems if problem]

    def _read(self, journal: Left, answer: PaidAnswer) -> _Problem | None:
        row = f"row {answer.attempt.row_id}"
        of_job = self._connection.execute(_ATTEMPTS, {"the_job": answer.attempt.job_key}).all()
        own_attempt = next((attempt for attempt in of_job if self._is_of(attempt, journal, answer)), None)
        if own_attempt and not _says_more(own_attempt, answer):
            return None
        newest = own_attempt or next((attempt for attempt in of_job if not attempt.superseded), None)
        if newest and newest is not own_attempt and newest.generation_id and newest.state in MAY_COST:
            ids = f"generation {answer.generation_id}, and {newest.generation_id}, which the ledger has"
            return _Problem(f"{row}: is paid for twice: {ids}", unknown=False)
        if newest and newest.run_id in self._alive:
            return _Problem(f"{row}: a run that is at work has this job in hand", unknown=False)
        if not own_attempt and (reason := self._why_not(journal, answer)):
            return _Problem(f"{row}: {reason}", unknown=True)
        try:
            with self._connection.begin_nested(), explain_values():
                self._write(answer, own_attempt)
        except CallsheetError as error:
            return _Problem(f"{row}: {error}", unknown=not own_attempt)
        return None

    def _is_of(self, attempt: Any, journal: Left, answer: PaidAnswer) -> bool:
        """Whether an answer is that of an attempt in the ledger: by the generation, or else by its number.

        A run that the ledger does not know has its own numbers.
        """
        if attempt.generation_id is not None or journal.run_id not in self._known:
            return bool(attempt.generation_id == answer.generation_id)
        return bool(attempt.attempt == answer.attempt.number) and _says_more(attempt, answer)

    def _why_not(self, journal: Left, answer: PaidAnswer) -> str:
        """Why an answer cannot be entered that the ledger has no attempt for; empty where it can."""
        owner = self._owner
        if journal.in_use and journal.run_id not in self._known:
            return "that run is at work"
        if answer.ledger_id != owner.ledger_id and not owner.replaces:
            return "it is of another ledger"
        if not services.is_same(answer.service, owner.service):
            return f"it is of the service at {services.without_login(answer.service)}"
        job = owner.jobs.get(answer.attempt.job_key)
        if job is None or job.request_key != answer.attempt.request_key:
            return "the batch file does not have it with this request"
        return ""

    def _write(self, answer: PaidAnswer, own_attempt: Any) -> None:
        """Writes an answer to its own attempt, or where there is none to one that is entered now."""
        connection, owner = self._connection, self._owner
        if own_attempt:
            number, sent = own_attempt.attempt, own_attempt.submitted_at
        else:
            job = owner.jobs[answer.attempt.job_key]
            number, sent = gate.enter_attempt(connection, owner.batch, owner.run_id, job).number, answer.at
            if owner.service:
                services.bind(connection, owner.batch, owner.service, owner.run_id)
        numbered = replace(answer, attempt=replace(answer.attempt, number=number))
        states.recover(connection, owner.run_id, numbered, sent)


def _says_more(attempt: Any, answer: PaidAnswer) -> bool:
    """Whether the answer says more than the ledger has.

    It counts more than a doubt, and more than a person's decision about that doubt: the service has answered.
    """
    # Not a pending video: it has been answered, and only its end says more.
    undecided = attempt.state in (State.SUBMITTING, State.IN_DOUBT) or attempt.settled is not None
    if answer.usage is None:
        return undecided and attempt.generation_id is None
    return undecided or attempt.state == State.PENDING
