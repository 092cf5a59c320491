"""What the batches of a ledger came to in a time, by day, model or what else: the database adds it up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger import marks, services
from callsheet.ledger.charges import is_dearer
from callsheet.ledger.marks import MediaDecision
from callsheet.ledger.sums import total
from callsheet.ledger.tables import attempts, claims
from callsheet.ledger.tables import marks as marks_table
from callsheet.records import ACCEPTED, Record, State, six_decimals

DAY, MONTH, BATCH, MODEL = "day", "month", "batch", "model"

_SENT_AT = sa.type_coerce(attempts.c.submitted_at, sa.String)
_GROUPS: dict[str, sa.ColumnElement[Any]] = {
    DAY: sa.func.substr(_SENT_AT, 1, 10),
    MONTH: sa.func.substr(_SENT_AT, 1, 7),
    BATCH: attempts.c.batch,
    MODEL: attempts.c.model,
}
_SAID_AT = sa.type_coerce(claims.c.said_at, sa.String)
_CREDITS: dict[str, sa.ColumnElement[Any]] = {
    DAY: sa.func.substr(_SAID_AT, 1, 10),
    MONTH: sa.func.substr(_SAID_AT, 1, 7),
    BATCH: claims.c.batch,
}
_IS_DEARER = is_dearer(*(sa.type_coerce(attempts.c[name], sa.BigInteger) for name in ("cost", "quoted")))
_LOOKED_AT = 1_000  # jobs whose columns are named where one is not there


@dataclass(frozen=True, slots=True)
class Spent(Record):
    """What was sent in a time came to, in dollars.

    Attributes:
        bought: the attempts that are bought (`ACCEPTED`); a video that is being made has no cost yet.
        in_doubt_exposure: what it may have cost besides.
        kept: the files that are kept.
        cost_per_kept: what was spent, less what came back, over the files kept; None without one.
        above_quoted: by how much charges were above their quotes, without roundings.
        credits: the money that came back, by when a person has entered it; none by model or column.
    """

    bought: int = 0
    spent: Decimal = Decimal(0)
    in_doubt_exposure: Decimal = Decimal(0)
    kept: int = 0
    cost_per_kept: Decimal | None = None
    above_quoted: Decimal = Decimal(0)
    credits: Decimal = Decimal(0)


def added_up(parts: Iterable[Spent]) -> Spent:
    """All of these together."""
    parts = [*parts]

    def dollars_of(name: str) -> Decimal:
        return sum((getattr(part, name) for part in parts), Decimal(0))

    spent, kept, credit = dollars_of("spent"), sum(part.kept for part in parts), dollars_of("credits")
    return Spent(
        sum(part.bought for part in parts),
        spent,
        dollars_of("in_doubt_exposure"),
        kept,
        _per_kept(spent - credit, kept),
        dollars_of("above_quoted"),
        credit,
    )


def _per_kept(net: Decimal, kept: int) -> Decimal | None:
    return six_decimals(net / kept) if kept else None


def costs(connection: sa.Connection, by: str, since: datetime, until: datetime) -> dict[str | None, Spent]:
    """What was sent from `since` until before `until` came to, in the order of what it is added up by.

    Args:
        by: `DAY` and `MONTH` (of the submission, UTC), `BATCH`, `MODEL`, or else a column of the batch files
            that is carried; rows without it are added up as None.
    """
    key = _GROUPS.get(by, attempts.c.carried[by].as_string()).label("key")
    within = sa.and_(attempts.c.submitted_at >= since, attempts.c.submitted_at < until)
    of_file = sa.and_(
        marks_table.c.job_key == attempts.c.job_key, marks_table.c.attempt == attempts.c.attempt
    )
    sent = sa.select(
        key,
        sa.func.count().filter(attempts.c.state.in_(ACCEPTED)),
        total(attempts.c.cost),
        total(attempts.c.quoted, attempts.c.state == State.IN_DOUBT),
        total(attempts.c.cost - attempts.c.quoted, _IS_DEARER),
    ).where(within, services.IS_SUBMITTED)
    kept = (
        sa.select(key, sa.func.count())
        .join_from(attempts, marks_table, of_file)
        .where(within, marks_table.c.decision == MediaDecision.KEPT, marks.IS_NEWEST)
    )
    kept_files = {_text(value): files for value, files in connection.execute(kept.group_by("key"))}
    came_back = _credits(connection, by, since, until)
    lines = {value: Spent(credits=amount) for value, amount in came_back.items()}
    for value, bought, spent, in_doubt, above in connection.execute(sent.group_by("key")):
        name = _text(value)
        files, credit = kept_files.get(name, 0), came_back.get(name, Decimal(0))
        per_kept = _per_kept(spent - credit, files)
        lines[name] = Spent(bought, spent, in_doubt, files, per_kept, above, credit)
    return dict(sorted(lines.items(), key=lambda line: (line[0] is None, line[0] or "")))


def _credits(
    connection: sa.Connection, by: str, since: datetime, until: datetime
) -> dict[str | None, Decimal]:
    """What came back, by when it was entered or by batch; of a model or a column nobody has said it."""
    if by not in _CREDITS:
        return {}
    key = _CREDITS[by].label("key")
    entered = sa.and_(claims.c.credit.is_not(None), claims.c.said_at >= since, claims.c.said_at < until)
    query = sa.select(key, total(claims.c.credit)).where(entered).group_by("key")
    return dict(connection.execute(query).all())


def _text(value: Any) -> str | None:
    """What a line is of; SQLite has a number of JSON as a number."""
    return None if value is None else str(value)


def carried_columns(connection: sa.Connection) -> list[str]:
    """The columns that the last jobs carry, by name."""
    last = sa.select(attempts.c.carried).order_by(attempts.c.submitted_at.desc()).limit(_LOOKED_AT)
    return sorted({name for carried in connection.scalars(last) for name in carried})
