"""What one service took, by the ledger: to be compared with its own account.

All batches of the service count, because its account does not tell them apart. The database adds the attempts
up by UTC day, so a million of them are one query.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import sqlalchemy as sa

from callsheet.ledger import services, sums
from callsheet.ledger.queries import IS_POLLED, doubt_of
from callsheet.ledger.sums import total
from callsheet.ledger.tables import attempts, claims, runs, settlements
from callsheet.records import ACCEPTED, ESTIMATED, MAY_COST, Doubt, State

# The service will still say of an accepted video what it costs, also where the ledger has it in doubt.
_ANSWER_COMES = sa.or_(attempts.c.state == State.SUBMITTING, IS_POLLED)
_NO_ANSWER_COMES = sa.and_(attempts.c.state == State.IN_DOUBT, ~IS_POLLED)
_LAST_MINUTES, _FIRST_MINUTES = "23:5", "00:0"  # how the times of ten minutes begin


@dataclass(frozen=True, slots=True)
class Spending:
    """What was sent to the service on one UTC day. Money is in dollars.

    Attributes:
        quoted: the quotes of everything that was sent and was neither refused nor given up.
        usage: the costs that the service has answered, and those of doubts that a person settled as charged.
        other_batches: the part of `usage` that is of other batches than the ledger is opened for.
        surcharge: by how much costs were above their quotes, roundings too (`charges.is_dearer` leaves them
            out), because the account has them. A job without a quote has none.
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


class Bought(NamedTuple):
    """Jobs that were sent and accepted, and what they cost, or are quoted at while that is not known."""

    jobs: int
    cost: Decimal


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
        "quoted": total(quoted, attempts.c.state.in_(MAY_COST)),
        "usage": total(cost),
        "other_batches": total(cost, attempts.c.batch != batch),
        "surcharge": total(cost - quoted, cost > quoted),
        "estimated": total(cost, attempts.c.cost_source.in_(ESTIMATED)),
        "in_flight": total(quoted, _ANSWER_COMES),
        "late": total(cost, ended_later),
        "early": total(cost, minutes == _FIRST_MINUTES),
    }
    query = sa.select(day, *amounts.values()).where(_was_sent(connection, service), _within(first, last))
    rows = connection.execute(query.group_by(day))
    return {date.fromisoformat(name): Spending(*amounts) for name, *amounts in rows}


def doubts_at_service(
    connection: sa.Connection, service: str, first: date, last: date
) -> list[tuple[str, Doubt]]:
    """What was sent to the service from `first` to `last` and is in doubt, with its batch, in that order."""
    query = (
        sa.select(attempts)
        .where(_was_sent(connection, service), _within(first, last), attempts.c.state == State.IN_DOUBT)
        .order_by(attempts.c.submitted_at, attempts.c.job_key, attempts.c.attempt)
    )
    return [(row.batch, doubt_of(row)) for row in connection.execute(query)]


def credits_by_day(connection: sa.Connection, service: str) -> dict[date, Decimal]:
    """What came back for the batches of the service, by the UTC day on which a person has entered it."""
    day = sa.func.substr(sa.type_coerce(claims.c.said_at, sa.String), 1, 10)
    query = sa.select(day, total(claims.c.credit)).where(_came_back(connection, service))
    return {date.fromisoformat(name): amount for name, amount in connection.execute(query.group_by(day))}


def _came_back(connection: sa.Connection, service: str) -> sa.ColumnElement[bool]:
    """The credits of the batches that do not belong to another service."""
    of_service = claims.c.batch.not_in(services.elsewhere(connection, service))
    return sa.and_(claims.c.credit.is_not(None), of_service)


@dataclass(frozen=True, slots=True)
class ExpectedBalance:
    """The workspace's balance as the ledger expects it, from its batches of one service. Money is in dollars.

    Attributes:
        since: the start of the last run before the first doubt; each run reads the balance when it starts.
        balance_then: the balance at that time.
        spent_since: the cost since then of everything that the ledger knows to be charged.
        in_doubt: the price of everything since then of which nobody knows whether it was accepted.
        in_flight: the price of everything that is on the wire, or accepted and not answered yet.
        credits: what came back since then, as persons have entered it: to the balance, or elsewhere.
    """

    since: datetime
    balance_then: Decimal
    spent_since: Decimal
    in_doubt: Decimal
    in_flight: Decimal
    credits: Decimal = Decimal(0)

    @property
    def balance_now(self) -> Decimal:
        """The balance now, if nothing that is in doubt was charged and nobody else bought anything."""
        return self.balance_then - self.spent_since


def expected_balance(connection: sa.Connection, batch: str, first: datetime) -> ExpectedBalance | None:
    """What the balance at a batch's service should be, counted from before a doubt that was sent at `first`.

    None where no run before it knew the balance.
    """
    service = services.of_batch(connection, batch)
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
        "in_doubt": total(attempts.c.quoted, newer, _NO_ANSWER_COMES),
        "in_flight": total(attempts.c.quoted, _ANSWER_COMES),
    }
    labelled = (amount.label(name) for name, amount in amounts.items())
    row = connection.execute(sa.select(*labelled).where(_was_sent(connection, service))).one()
    other_batches = services.elsewhere(connection, service)
    came_back = sa.select(total(claims.c.credit)).where(
        _came_back(connection, service), claims.c.said_at >= base.started_at
    )
    return ExpectedBalance(
        since=base.started_at,
        balance_then=base.balance_at_start,
        spent_since=sums.spent(connection, but_of=other_batches) - base.spent_at_start - row.older,
        in_doubt=row.in_doubt,
        in_flight=row.in_flight,
        credits=connection.scalar(came_back) or Decimal(0),
    )


def bought_since(connection: sa.Connection, moment: datetime) -> dict[str, Bought]:
    """What each batch has bought (`ACCEPTED`) since a moment; those that have bought nothing are missing.

    What one run has bought of its batch is counted by the same rule in the batch's table (`report._did`).
    """
    cost = total(sa.func.coalesce(attempts.c.cost, attempts.c.quoted))
    query = (
        sa.select(attempts.c.batch, sa.func.count(), cost)
        .where(attempts.c.submitted_at >= moment, attempts.c.state.in_(ACCEPTED))
        .group_by(attempts.c.batch)
    )
    return {batch: Bought(jobs, price) for batch, jobs, price in connection.execute(query)}


def cost_of_flow_runs(
    connection: sa.Connection, service: str, flow_runs: Collection[str]
) -> dict[str, Decimal]:
    """What flow runs of Prefect have bought at the service, by their ids; those without are missing."""
    of_run = sa.and_(attempts.c.batch == runs.c.batch, attempts.c.run_id == runs.c.id)
    query = (
        sa.select(runs.c.flow_run, total(attempts.c.cost))
        .join_from(runs, attempts, of_run)
        .where(_was_sent(connection, service), runs.c.flow_run.in_(flow_runs))
        .group_by(runs.c.flow_run)
    )
    return dict(connection.execute(query).all())


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
    other_batches = services.elsewhere(connection, service)
    return sa.and_(runs.c.balance_at_start.is_not(None), runs.c.batch.not_in(other_batches))


def _was_sent(connection: sa.Connection, service: str) -> sa.ColumnElement[bool]:
    """Attempts that were sent, of the batches that do not belong to another service."""
    is_of_service = attempts.c.batch.not_in(services.elsewhere(connection, service))
    return sa.and_(services.IS_SUBMITTED, is_of_service)


def _within(first: date, last: date) -> sa.ColumnElement[bool]:
    begin = datetime.combine(first, time.min, UTC)
    end = datetime.combine(last, time.min, UTC) + timedelta(days=1)
    return sa.and_(attempts.c.submitted_at >= begin, attempts.c.submitted_at < end)
