"""Purses: what a person has given somebody to spend without a question, for a batch and a time.

A purse is of one batch, and of the database in which it was given: a copy has nothing to spend. The newest of
a name counts, and none becomes larger: another amount is another purse. What was bought by it is counted by
its id, which each attempt keeps whoever takes it over. Money is in dollars.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

import sqlalchemy as sa

from callsheet.errors import InputError
from callsheet.ledger import databases, leases, sums
from callsheet.ledger.tables import Moment, Values, attempts, purses, runs
from callsheet.ledger.words import Shown
from callsheet.plain_text import printable


class Shut(StrEnum):
    """Why nothing more may be bought by a purse."""

    CLOSED = "closed"
    """A person has closed it, or has given another one of that name."""

    OVER = "over"
    """Its time is over."""

    ELSEWHERE = "elsewhere"
    """It was given in another database."""


@dataclass(frozen=True, slots=True)
class Purse:
    """What a person has given.

    Attributes:
        name: who may buy by it.
        spent: what was bought by it, with what is in flight and in doubt.
        models: the ids of those that it is for; empty: all.
        place: the database in which it was given.
        shut: why nothing more may be bought by it; None where it is open.
    """

    id: str
    name: str
    amount: Decimal
    spent: Decimal
    models: tuple[str, ...]
    given_by: str
    given_at: datetime
    until: datetime
    place: str
    closed_by: str | None
    closed_at: datetime | None
    shut: Shut | None = None

    @property
    def left(self) -> Decimal:
        """What may still be spent by it."""
        return Decimal(0) if self.shut else max(Decimal(0), self.amount - self.spent)

    def takes(self, model: str) -> bool:
        """Whether it is for a model."""
        return not self.models or model in self.models


@dataclass(frozen=True, slots=True)
class BeyondPurse:
    """Why what a run would buy is not within a purse.

    Attributes:
        name: by whose purse it would buy.
        purse: that; None where nobody has given one.
        left: of it, in dollars.
        is_used_up: nothing is left, or it is what the jobs do not fit.
        other_model: a model that it is not for, of those that are to be bought; empty without one.
    """

    name: str
    purse: Purse | None
    left: Decimal
    is_used_up: bool
    other_model: str


def give(
    connection: sa.Connection,
    batch: str,
    name: str,
    amount: Decimal,
    *,
    lasts: timedelta,
    models: Collection[str] = (),
    by: str,
) -> Purse:
    """Gives a purse; an open one of that name is closed."""
    now = time_by_ledger(connection)
    _close(connection, batch, name, by, now)
    number = (connection.scalar(sa.select(sa.func.max(purses.c.number))) or 0) + 1
    values = {"id": uuid4().hex, "number": number, "batch": batch, "name": name, "amount": amount}
    values |= {"models": sorted(models), "given_by": by, "given_at": now, "until": now + lasts}
    connection.execute(purses.insert().values(**values, place=_place(connection)))
    return all_of_batch(connection, batch)[-1]


def close(connection: sa.Connection, batch: str, name: str, by: str) -> Purse:
    """Closes the open purse of a name: nothing more is sent by it.

    Raises:
        InputError: there is none.
    """
    purse = newest(connection, batch, name)
    if purse is None or not _close(connection, batch, name, by, time_by_ledger(connection)):
        raise InputError(f"{batch} has no open purse named {printable(name)}", hint="--list names them.")
    return next(closed for closed in all_of_batch(connection, batch) if closed.id == purse.id)


def _close(connection: sa.Connection, batch: str, name: str, by: str, now: datetime) -> int:
    is_open = sa.and_(purses.c.batch == batch, purses.c.name == name, purses.c.closed_at.is_(None))
    return connection.execute(purses.update().where(is_open).values(closed_by=by, closed_at=now)).rowcount


def all_of_batch(connection: sa.Connection, batch: str) -> list[Purse]:
    """Every purse of the batch, the oldest first."""
    return _read(connection, purses.c.batch == batch)


def newest(connection: sa.Connection, batch: str, name: str) -> Purse | None:
    """The purse of a name that counts, open or not; None where there was none."""
    given = _read(connection, purses.c.batch == batch, purses.c.name == name)
    return given[-1] if given else None


def _read(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> list[Purse]:
    names = [name for name in Purse.__slots__ if name not in ("spent", "shut")]
    query = sa.select(*(purses.c[name] for name in names)).where(*conditions).order_by(purses.c.number)
    rows = [row._asdict() for row in connection.execute(query)]
    now, place = time_by_ledger(connection), _place(connection)
    return [
        Purse(
            **row | {"models": tuple(row["models"])},
            spent=sums.sent_by(connection, row["id"]),
            shut=_shut(row, now, place),
        )
        for row in rows
    ]


def _shut(row: Values, now: datetime, place: str) -> Shut | None:
    """Why nothing may be bought by a purse, whatever is left of it."""
    if row["closed_at"]:
        return Shut.CLOSED
    if now >= row["until"]:
        return Shut.OVER
    return Shut.ELSEWHERE if row["place"] != place else None


def reserved(connection: sa.Connection, batch: str, purse: Purse) -> Decimal:
    """What living runs have reserved by a purse, in dollars."""
    living = [run.id for run in leases.alive(connection, batch)]
    of_living = sa.and_(attempts.c.batch == batch, attempts.c.run_id.in_(living), sums.RESERVED)
    query = sa.select(sums.total(attempts.c.quoted)).where(of_living, attempts.c.purse == purse.id)
    return connection.scalar(query) or Decimal(0)


def beyond(
    purse: Purse | None, name: str, shown: Shown, left: Decimal, *, is_wall: bool
) -> BeyondPurse | None:
    """Why a person must be asked who has given a purse, or none; None where the run may buy by it.

    `left` of it is in dollars; `is_wall`: that is what the jobs do not fit.
    """
    is_used_up, other_model = left <= 0 or is_wall, ""
    if purse is not None:
        models = sorted(rate["id"] for rate in shown.rates)
        other_model = next((model for model in models if not purse.takes(model)), "")
        if not (purse.shut or is_used_up or other_model or shown.unpriced):
            return None
    return BeyondPurse(name, purse, left, is_used_up, other_model)


def time_by_ledger(connection: sa.Connection) -> datetime:
    """The time by the database's clock, and never before what the ledger has seen: a clock that is set back
    makes no purse last longer.
    """
    seen = (connection.scalar(sa.select(sa.func.max(column, type_=Moment))) for column in _SEEN)
    times: list[datetime] = [leases.time_by_database(connection), *filter(None, seen)]
    return max(times)


_SEEN = (runs.c.started_at, attempts.c.submitted_at, purses.c.given_at, purses.c.closed_at)


def _place(connection: sa.Connection) -> str:
    """Which database this is, without a login; a file by its whole path."""
    if connection.dialect.name == "sqlite":
        main = "SELECT file FROM pragma_database_list WHERE name = 'main'"
        return str(Path(connection.exec_driver_sql(main).scalar_one()).resolve())
    return databases.shown(connection.engine.url)
