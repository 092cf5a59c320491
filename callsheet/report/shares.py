"""What a batch has of each model, and of each value of a setting: files, decisions and costs, side by side.

A setting is compared where some row has asked for several of its values, as `input.matrix` does. Everything
is counted by the database, from what was sent: the config and the batch file may have changed since.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from callsheet.ledger import sums
from callsheet.ledger.marks import FILE, IS_NEWEST, Counts, MediaDecision
from callsheet.ledger.tables import attempts, marks, media
from callsheet.records import State, dollars

MODEL = "model"
SETTINGS = ("aspect_ratio", "resolution", "duration", "sound", "output_format")
"""What a request may set besides the model, the prompt and the images."""


@dataclass(frozen=True, slots=True)
class Share:
    """What the batch has of a model, or of a value of a setting; `spent` is in dollars."""

    setting: str
    value: str | int | bool
    review: Counts
    spent: Decimal

    @property
    def files(self) -> int:
        """How many are stored."""
        return sum(self.review)

    @property
    def cost_per_kept(self) -> Decimal | None:
        """What a kept file costs, in dollars; None without one."""
        return self.review.cost_per_kept(self.spent)

    def as_json(self) -> dict[str, Any]:
        """The JSON object in the `by_model` and `by_setting` of `review --json`; money is a string."""
        cost_per_kept = self.cost_per_kept
        return {
            MODEL if self.setting == MODEL else "value": self.value,
            "files": self.files,
            **self.review._asdict(),
            "spent": dollars(self.spent),
            "cost_per_kept": None if cost_per_kept is None else dollars(cost_per_kept),
        }


Shares = dict[str, tuple[Share, ...]]
"""Of `model`, and of each setting that is compared, its values in order; what has one value is not there."""


def shares(connection: sa.Connection, batch: str) -> Shares:
    """What was sent of the batch, by model and by each setting of which some row has several values.

    A setting of which each model has one value is left out: its table would be that of the models.
    """
    names = [MODEL, *_compared_settings(connection, batch)]
    sent = _requests(connection, batch, names)
    costs = connection.execute(_costs(sent, names)).all()
    files = connection.execute(_files(sent, names, batch)).all()
    shares_by_name = {}
    for place, name in enumerate(names):
        pairs = {(row[0], row[place]) for row in costs if row[place] is not None}
        values = {value for _, value in pairs}
        is_of_model = name != MODEL and len(pairs) == len({model for model, _ in pairs})
        if len(values) > 1 and not is_of_model:
            ordered = sorted(values, key=_in_order)
            shares_by_name[name] = tuple(_share(name, value, place, costs, files) for value in ordered)
    return shares_by_name


def _share(name: str, value: Any, place: int, costs: Sequence[Any], files: Sequence[Any]) -> Share:
    decided: Counter[str | None] = Counter()
    for row in files:
        if row[place] == value:
            decided[row.decision] += row.count_of
    spent = sum((row.spent for row in costs if row[place] == value), Decimal(0))
    return Share(name, value, Counts(*(decided[decision] for decision in (*MediaDecision, None))), spent)


def _in_order(value: Any) -> list[Any]:
    """`720p` is before `1080p`: texts and numbers take turns."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(value))]


def _compared_settings(connection: sa.Connection, batch: str) -> list[str]:
    """The settings of which some row has asked for several values."""
    body = _body(connection)
    counts = (sa.func.count(sa.distinct(body[name].as_string())).label(name) for name in SETTINGS)
    by_row = sa.select(*counts).where(*_was_sent(batch)).group_by(attempts.c.row_id).subquery()
    most_values = connection.execute(sa.select(*map(sa.func.max, by_row.c))).one()
    return [name for name, count in zip(SETTINGS, most_values, strict=True) if (count or 0) > 1]


def _requests(connection: sa.Connection, batch: str, names: Sequence[str]) -> sa.Subquery:
    """Each attempt that was sent, with these values of its request."""
    body = _body(connection)
    values = (attempts.c.model if name == MODEL else body[name].label(name) for name in names)
    columns = (attempts.c.job_key, attempts.c.attempt, attempts.c.cost, *values)
    return sa.select(*columns).where(*_was_sent(batch)).subquery()


def _costs(sent: sa.Subquery, names: Sequence[str]) -> sa.Select[Any]:
    values = [sent.c[name] for name in names]
    return sa.select(*values, sums.total(sent.c.cost).label("spent")).group_by(*values)


def _files(sent: sa.Subquery, names: Sequence[str], batch: str) -> sa.Select[Any]:
    """How many files are stored, by these values and by what was decided last."""
    newest = sa.select(*(marks.c[name] for name in FILE), marks.c.decision)
    decisions = newest.where(marks.c.batch == batch, IS_NEWEST).subquery()
    stored = sa.and_(
        *(sent.c[name] == media.c[name] for name in ("job_key", "attempt")), media.c.stored_at.is_not(None)
    )
    groups = [*(sent.c[name] for name in names), decisions.c.decision]
    return (
        sa.select(*groups, sa.func.count().label("count_of"))
        .join_from(sent, media, stored)
        .outerjoin(decisions, sa.and_(*(decisions.c[name] == media.c[name] for name in FILE)))
        .group_by(*groups)
    )


def _was_sent(batch: str) -> tuple[sa.ColumnElement[bool], ...]:
    return attempts.c.batch == batch, attempts.c.state != State.PLANNED


def _body(connection: sa.Connection) -> Any:
    """The request as JSON, of which the database reads a field."""
    if connection.dialect.name == "postgresql":
        return sa.cast(attempts.c.request, JSONB)
    return sa.type_coerce(attempts.c.request, sa.JSON)
