"""What all batches of a ledger came to since a day, beside the month before: read for `callsheet costs`."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import sqlalchemy as sa

from callsheet.errors import InputError
from callsheet.ledger import costs
from callsheet.ledger.costs import BATCH, DAY, MODEL, MONTH, Spent
from callsheet.ledger.ledger import Ledger
from callsheet.plain_text import and_more
from callsheet.records import Record

_NAMED = 12  # columns
_FIRST = date(2000, 1, 1)


@dataclass(frozen=True, slots=True)
class CostLine(Record):
    """What one day, batch, model or value of a column came to.

    `value` is None for rows that do not have the column; `before` is what the same came to in the month
    before, and None by day and month.
    """

    value: str | None
    costs: Spent
    before: Spent | None

    def as_json(self) -> dict[str, object]:
        """The JSON object, with the costs beside the value."""
        before = self.before and self.before.as_json()
        return {"value": self.value, **self.costs.as_json(), "before": before}


@dataclass(frozen=True, slots=True)
class LedgerCosts(Record):
    """What a ledger came to, with the names that `costs --json` prints. Money is in US dollars.

    Attributes:
        since, until: the first and the last UTC day.
        by: what the lines are added up by.
        total: all of it.
        before: all of the month before `since`, which begins on the day `before_since`.
        spent_by_day: what was spent on each day since then, both times.
    """

    since: date
    until: date
    by: str
    lines: Sequence[CostLine]
    total: Spent
    before_since: date
    before: Spent
    spent_by_day: Mapping[str, Decimal]
    currency: str = "USD"


async def read_costs(ledger: Ledger, by: str, since: date | None = None) -> LedgerCosts:
    """What the ledger came to, from its rows alone.

    Args:
        by: `day`, `month`, `batch`, `model`, or a column of the batch files.
        since: the first UTC day; None for the first of this month.

    Raises:
        InputError: no job has this column, or the day is too early or too late.
        LedgerError: the ledger cannot be read.
    """
    today = datetime.now(UTC).date()
    since = since or today.replace(day=1)
    if not _FIRST <= since <= today:
        hint = f"Name a UTC day from {_FIRST} to {today}."
        raise InputError(f"{since} is too {'late' if since > today else 'early'}", hint=hint)
    return await ledger.read(lambda connection, _: _read(connection, by, since, today))


def _read(connection: sa.Connection, by: str, since: date, today: date) -> LedgerCosts:
    before_since = _month_before(since)
    first, begin, end = (datetime.combine(day, time.min, UTC) for day in (before_since, since, today))
    end += timedelta(days=1)
    by_day = {str(day): spent for day, spent in costs.costs(connection, DAY, first, end).items()}
    lines, earlier = costs.costs(connection, by, begin, end), {}
    if by not in (DAY, MONTH):
        earlier = costs.costs(connection, by, first, begin)
        lines |= {value: Spent() for value in earlier if value not in lines}
    if by not in (DAY, MONTH, BATCH, MODEL) and not {*lines} - {None}:
        columns = costs.carried_columns(connection)
        others = f"; the columns are {and_more(columns[:_NAMED], len(columns))}" if columns else ""
        hint = f"Give one of {DAY}, {MONTH}, {BATCH} and {MODEL}, or a column of the batch files."
        raise InputError(
            f"no job that was sent since {before_since} has the column {by!r}{others}", hint=hint
        )
    return LedgerCosts(
        since,
        today,
        by,
        [
            CostLine(value, spent, None if by in (DAY, MONTH) else earlier.get(value, Spent()))
            for value, spent in lines.items()
        ],
        costs.added_up(spent for day, spent in by_day.items() if day >= str(since)),
        before_since,
        costs.added_up(spent for day, spent in by_day.items() if day < str(since)),
        {day: spent.spent for day, spent in by_day.items()},
    )


def _month_before(day: date) -> date:
    """The same day of the month before, or the last one that it has."""
    last = day.replace(day=1) - timedelta(days=1)
    return last.replace(day=min(day.day, monthrange(last.year, last.month)[1]))
