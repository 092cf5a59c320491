"""What one service took, by the ledger: to be compared with its own account, and doubts settled.

A batch belongs to one service, its base URL, and nothing that is counted for it comes from another one. All
batches of the service count, because its account does not tell them apart. The database adds the attempts
up by UTC day, so a million of them are one query.

A doubt with an id is no doubt about money: the service accepted the video, and every run asks for it again.
A person settles it only by giving it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from callsheet.errors import LedgerError, OtherService
from callsheet.ledger import leases, sums, writing
from callsheet.ledger.queries import IS_ESTIMATED, IS_POLLED, doubt_of
from callsheet.ledger.sums import total
from callsheet.ledger.tables import Values, attempts, batches, runs, settlements
from callsheet.ledger.tables import learned as learned_table
from callsheet.records import CHARGED, DELIVERED, NOT_CHARGED, CostSource, Doubt, ExpectedBalance, State

_SENT = attempts.c.state != State.PLANNED


def check(connection: sa.Connection, batch: str, service: str) -> bool:
    """Whether the batch is bound to `service`; false where nothing of it was sent yet, to whichever service.

    Raises:
        OtherService: jobs of it were sent to another one.
    """
    bound = of_batch(connection, batch)
    if bound is not None and is_same(bound, service):
        return True
    if bound is None or not _has_attempts(connection, batch, _SENT):
        return False
    raise _other_service(f"the ledger has sent jobs of the batch {batch!r} to {bound}", service)


def bind(connection: sa.Connection, batch: str, service: str, run_id: str) -> None:
    """Binds the batch to `service`: the run is about to send jobs of it there.

    Raises:
        OtherService: jobs of it were sent to another one, or another run is about to send some.
    """
    if check(connection, batch, service):
        return
    if _has_attempts(connection, batch, attempts.c.state == State.PLANNED, attempts.c.run_id != run_id):
        raise _other_service(
            f"another run is about to send jobs of the batch {batch!r} to another service", service
        )
    _bind_to(connection, batch, service)


def rebind(connection: sa.Connection, batch: str, service: str) -> list[str]:
    """The batch's service has moved to this address, and with it all its batches in the ledger: these.

    One account pays for all of them: apart, what some have spent would be missing from its balance.
    """
    moved = {batch}
    if old := of_batch(connection, batch):
        moved |= {*connection.scalars(sa.select(batches.c.batch))} - {*elsewhere(connection, old)}
    for moved_batch in moved:
        _bind_to(connection, moved_batch, service)
    return sorted(moved)


def _bind_to(connection: sa.Connection, batch: str, service: str) -> None:
    row = {"service": without_login(service), "bound_at": datetime.now(UTC)}
    if connection.execute(batches.update().where(batches.c.batch == batch), row).rowcount == 0:
        connection.execute(batches.insert(), row | {"batch": batch})


def of_batch(connection: sa.Connection, batch: str) -> str | None:
    """The base URL of the service that the batch is bound to; None where it is not bound to any."""
    service: str | None = connection.scalar(sa.select(batches.c.service).where(batches.c.batch == batch))
    return service


def elsewhere(connection: sa.Connection, service: str) -> list[str]:
    """The batches that are bound to another service than the one at this base URL."""
    bound = connection.execute(sa.select(batches.c.batch, batches.c.service))
    return [batch for batch, address in bound if not is_same(address, service)]


def learned(connection: sa.Connection, _: str, service: str) -> dict[str, Any] | None:
    """What runs have learned of the limits of a service; None where nothing."""
    query = sa.select(learned_table.c.limits).where(learned_table.c.service == service)
    limits: dict[str, Any] | None = connection.scalar(query)
    return limits


def learn(connection: sa.Connection, _: str, service: str, limits: dict[str, Any]) -> None:
    """Remembers what was learned of the limits of a service."""
    connection.execute(learned_table.delete().where(learned_table.c.service == service))
    connection.execute(learned_table.insert().values(service=service, limits=limits))


def is_same(address: str, other_address: str) -> bool:
    """Whether two addresses are those of one service."""
    return _canonical(address) == _canonical(other_address)


def _has_attempts(connection: sa.Connection, batch: str, *conditions: sa.ColumnElement[bool]) -> bool:
    """Whether the batch has such attempts."""
    return bool(connection.scalar(sa.select(sa.exists().where(attempts.c.batch == batch, *conditions))))


def _other_service(reason: str, service: str) -> OtherService:
    return OtherService(
        f"{reason}, and service.base_url is {without_login(service)}",
        hint="Choose another batch name or another ledger.url. If the same service has a new address, "
        "run `callsheet ledger service-moved CONFIG` first.",
    )


def without_login(url: str) -> str:
    """A base URL as it may be shown: without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _canonical(url: str) -> str:
    """The form in which two addresses of one service are equal."""
    parts = urlsplit(without_login(url))
    return parts._replace(netloc=parts.netloc.lower(), path=parts.path.rstrip("/")).geturl()


_IN_FLIGHT = sa.or_(attempts.c.state == State.SUBMITTING, IS_POLLED)
_IN_DOUBT = sa.and_(attempts.c.state == State.IN_DOUBT, ~IS_POLLED)
_LAST_MINUTES, _FIRST_MINUTES = "23:5", "00:0"  # how the times of ten minutes begin


@dataclass(frozen=True, slots=True)
class Spending:
    """What was sent to the service on one UTC day. Money is in dollars.

    Attributes:
        quoted: the quotes of everything that was sent and was neither refused nor given up.
        usage: the costs that the service has answered, and those of doubts that a person settled as charged.
        other_batches: the part of `usage` that is of other batches than the ledger is opened for.
        surcharge: by how much costs were above their quotes. A job without a quote has none.
        estimated: the part of `usage` that is not the service's word: computed, or as quoted.
        in_flight: the quotes of what is on the wire, or accepted and not answered yet.
        late: the part of `usage` that the service may have charged on the next day only: it was answered or
            stored after midnight, or sent in the last ten minutes.
        early: the part of `usage` that was sent in the first ten minutes: by another clock it may have been
            charged on the day before.
    """

    quoted: Decimal = Decimal(0)
    usage: Decimal = Decimal(0)
    other_batches: Decimal = Decimal(0)
    surcharge: Decimal = Decimal(0)
    estimated: Decimal = Decimal(0)
    in_flight: Decimal = Decimal(0)
    late: Decimal = Decimal(0)
    early: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class KnownBalance:
    """What the workspace had at a moment, in dollars: each run reads it when it begins."""

    at: datetime
    balance: Decimal


def first_day(connection: sa.Connection, service: str) -> date | None:
    """The UTC day on which something was first sent to the service at a base URL; None where nothing was."""
    query = sa.select(sa.func.min(attempts.c.submitted_at, type_=attempts.c.submitted_at.type))
    first: datetime | None = connection.scalar(query.where(_was_sent(connection, service)))
    return first and first.date()


def days(
    connection: sa.Connection, batch: str, service: str, first: date, last: date
) -> dict[date, Spending]:
    """What was sent to the service on each UTC day from `first` to `last`; days without anything are missing.

    `batch` is the one that is not one of the `other_batches`.
    """
    sent, finished = (sa.type_coerce(attempts.c[name], sa.String) for name in ("submitted_at", "finished_at"))
    quoted, cost = attempts.c.quoted, attempts.c.cost
    day, minutes = sa.func.substr(sent, 1, 10), sa.func.substr(sent, 12, 4)
    ended_later = sa.or_(finished.is_(None), sa.func.substr(finished, 1, 10) > day, minutes == _LAST_MINUTES)
    amounts: dict[str, Any] = {
        "quoted": total(quoted, sa.or_(attempts.c.state.in_([*DELIVERED, State.IN_DOUBT]), _IN_FLIGHT)),
        "usage": total(cost),
        "other_batches": total(cost, attempts.c.batch != batch),
        "surcharge": total(cost - quoted, cost > quoted),
        "estimated": total(cost, IS_ESTIMATED),
        "in_flight": total(quoted, _IN_FLIGHT),
        "late": total(cost, ended_later),
        "early": total(cost, minutes == _FIRST_MINUTES),
    }
    query = sa.select(day, *amounts.values()).where(_was_sent(connection, service), _within(first, last))
    rows = connection.execute(query.group_by(day))
    return {date.fromisoformat(name): Spending(*amounts) for name, *amounts in rows}


def doubts(connection: sa.Connection, service: str, first: date, last: date) -> list[tuple[str, Doubt]]:
    """What was sent to the service from `first` to `last` and is in doubt, with its batch, in that order."""
    query = (
        sa.select(attempts)
        .where(_was_sent(connection, service), _within(first, last), attempts.c.state == State.IN_DOUBT)
        .order_by(attempts.c.submitted_at, attempts.c.job_key, attempts.c.attempt)
    )
    return [(row.batch, doubt_of(row)) for row in connection.execute(query)]


def expected_balance(connection: sa.Connection, batch: str, first: datetime) -> ExpectedBalance | None:
    """What the balance at a batch's service should be, counted from before a doubt that was sent at `first`.

    None where no run before it knew the balance.
    """
    service = of_batch(connection, batch)
    if service is None:  # it has bought nothing
        return None
    query = sa.select(runs).where(_knew_balance(connection, service), runs.c.started_at <= first)
    base = connection.execute(query.order_by(runs.c.started_at.desc()).limit(1)).first()
    if base is None:
        return None
    # Older doubts that were settled as charged since then: their money had left the balance before.
    settled = sa.exists().where(
        settlements.c.job_key == attempts.c.job_key,
        settlements.c.attempt == attempts.c.attempt,
        settlements.c.settled_at >= base.started_at,
    )
    newer = attempts.c.submitted_at >= base.started_at
    amounts = {
        "older": total(attempts.c.cost, ~newer, settled),
        "in_doubt": total(attempts.c.quoted, newer, _IN_DOUBT),
        "in_flight": total(attempts.c.quoted, _IN_FLIGHT),
    }
    labelled = (amount.label(name) for name, amount in amounts.items())
    row = connection.execute(sa.select(*labelled).where(_was_sent(connection, service))).one()
    other_batches = elsewhere(connection, service)
    return ExpectedBalance(
        since=base.started_at,
        balance_then=base.balance_at_start,
        spent_since=sums.spent(connection, but_of=other_batches) - base.spent_at_start - row.older,
        in_doubt=row.in_doubt,
        in_flight=row.in_flight,
    )


def usage_between(connection: sa.Connection, service: str, start: datetime, end: datetime) -> Decimal:
    """The costs of what was sent to the service from `start` until before `end`, in dollars."""
    sent = sa.and_(attempts.c.submitted_at >= start, attempts.c.submitted_at < end)
    costs = sa.select(total(attempts.c.cost)).where(_was_sent(connection, service), sent)
    return connection.scalar(costs) or Decimal(0)


def balance_near(
    connection: sa.Connection, service: str, moment: datetime, *, after: datetime | None = None
) -> KnownBalance | None:
    """The balance that a run read nearest to a moment, and later than `after`; None where no run knew it."""
    query = sa.select(runs.c.started_at, runs.c.balance_at_start).where(_knew_balance(connection, service))
    if after is not None:
        query = query.where(runs.c.started_at > after)
    balances = (KnownBalance(*row) for row in connection.execute(query.order_by(runs.c.started_at)))
    return min(balances, key=lambda balance: abs(balance.at - moment), default=None)


def _knew_balance(connection: sa.Connection, service: str) -> sa.ColumnElement[bool]:
    """Runs at the service that knew its balance when they began."""
    other_batches = elsewhere(connection, service)
    return sa.and_(runs.c.balance_at_start.is_not(None), runs.c.batch.not_in(other_batches))


def _was_sent(connection: sa.Connection, service: str) -> sa.ColumnElement[bool]:
    """Attempts that were sent, of the batches that do not belong to another service."""
    is_of_service = attempts.c.batch.not_in(elsewhere(connection, service))
    return sa.and_(attempts.c.submitted_at.is_not(None), attempts.c.state != State.PLANNED, is_of_service)


def _within(first: date, last: date) -> sa.ColumnElement[bool]:
    begin = datetime.combine(first, time.min, UTC)
    end = datetime.combine(last, time.min, UTC) + timedelta(days=1)
    return sa.and_(attempts.c.submitted_at >= begin, attempts.c.submitted_at < end)


def settle(
    connection: sa.Connection, batch: str, doubts: Sequence[Doubt], *, charged: bool, by: str, why: str | None
) -> None:
    """Records a person's decision: charged is paid for and lost, not charged is free to buy again.

    Raises:
        LedgerError: one of them is no longer as the person saw it, or a run at work asks the service for it.
    """
    leases.end_dead(connection, batch)  # the person has seen what that leaves
    rows = writing.rows_of(connection, [doubt.job_key for doubt in doubts])
    at_work = {run.run_id: run for run in leases.others(connection, batch, None)}
    now, verb = datetime.now(UTC), "charged" if charged else "not charged"
    record = {"charged": charged, "settled_by": by, "settled_at": now, "why": why}
    for doubt in doubts:
        row = rows[doubt.job_key, doubt.attempt]
        # It would end where its job is no longer what it was.
        if doubt.is_accepted and row["run_id"] in at_work:
            raise LedgerError(
                f"row {doubt.row_id}: a run at work asks the service for this video: "
                f"{at_work[row['run_id']].line()}; nothing was settled",
                hint="Wait until that run has ended, or end it (Ctrl-C); then the same command.",
            )
        if (row["state"], row["generation_id"]) != (doubt.state, doubt.generation_id):
            raise LedgerError(
                f"row {doubt.row_id} is no longer {doubt.state.replace('_', ' ')}; nothing was settled",
                hint="List what is in doubt again: a run or a person has settled it.",
            )
        decision: Values = {"state": State.FAILED, "cost": Decimal(0), "settled": NOT_CHARGED}
        if charged:
            decision = {"state": State.LOST, "cost": row["quoted"], "settled": CHARGED}
            decision["cost_source"] = CostSource.QUOTED
        decision["error_message"] = f"{doubt.what.rstrip('.')}; settled as {verb} by {by}"
        decision["finished_at"] = row["finished_at"] or now
        writing.change(connection, row, decision)
        # It may be settled a second time, where an answer came after the first and is in doubt in its turn.
        settled = {"job_key": doubt.job_key, "attempt": doubt.attempt}
        connection.execute(settlements.delete().filter_by(**settled))
        connection.execute(settlements.insert(), settled | record)
