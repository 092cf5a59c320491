"""What persons change for the runs of a batch that are at work: settings, and whether they buy.

Runs look here again and again (`session.py`), and say what they go by. What was changed stays here, with who
and when. The next run has the settings of its config. Of `budget.limit` the newest word counts, for all runs
of the batch: so what the config of a run says, or the answer to its question, is entered here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import sqlalchemy as sa

from callsheet.ledger import leases
from callsheet.ledger.tables import changes, runs
from callsheet.records import OtherRun

LIMIT = "budget.limit"
PAUSED = "paused"
"""In place of a setting: whether the runs hold their buying."""


class Setting(NamedTuple):
    """A setting that somebody has changed; `value` as JSON has it, money as text.

    `run_id`: the run whose config or question has said it; None where it was changed for all at work.
    """

    number: int
    setting: str
    value: Any
    changed_by: str
    changed_at: datetime
    run_id: str | None = None

    def line(self) -> str:
        """The change in one line."""
        what, how = in_words(self.setting, self.value), " for another run" if self.run_id else ""
        return f"{what}: by {self.changed_by}{how}, {self.changed_at:%Y-%m-%d %H:%M:%S} UTC"

    def as_json(self) -> dict[str, Any]:
        """The JSON object in the `changes` of `status --json`."""
        fields = self._asdict() | {"changed_at": self.changed_at.isoformat()}
        return {name: value for name, value in fields.items() if name != "run_id"}


def in_words(setting: str, value: Any) -> str:
    """What is so from now on: `budget.limit is 4.00`."""
    if setting == PAUSED:
        return "the buying is paused" if value else "the buying goes on"
    return f"{setting} is {value}"


def change(
    connection: sa.Connection, batch: str, values: Mapping[str, Any], by: str
) -> tuple[int, Sequence[OtherRun]]:
    """Enters changes, by the settings' dotted names; nothing where no run of the batch is at work.

    Returns:
        The number of the last one, and the runs that are at work.
    """
    at_work = leases.others(connection, batch, None)
    if at_work:
        _enter(connection, batch, values, by)
    return newest(connection), at_work


def says_limit(connection: sa.Connection, batch: str, limit: Decimal | None, by: str, run_id: str) -> None:
    """The config of a run says what the batch may spend, or the answer to its question."""
    if limit != said_limit(connection, batch):
        _enter(connection, batch, {LIMIT: None if limit is None else str(limit)}, by, run_id)


def _enter(
    connection: sa.Connection, batch: str, values: Mapping[str, Any], by: str, run_id: str | None = None
) -> None:
    number, now = newest(connection), datetime.now(UTC)
    rows = [
        {"number": number + nth, "batch": batch, "setting": name, "value": value}
        | {"run_id": run_id, "changed_by": by, "changed_at": now}
        for nth, (name, value) in enumerate(values.items(), start=1)
    ]
    connection.execute(changes.insert(), rows)


def said_limit(connection: sa.Connection, batch: str) -> Decimal | None:
    """What the batch may spend by the newest word of a person, in dollars; None where that is no limit."""
    said = sa.select(changes.c.value).where(changes.c.batch == batch, changes.c.setting == LIMIT)
    value = connection.scalar(said.order_by(changes.c.number.desc()).limit(1))
    return None if value is None else Decimal(value)


def goes_by(connection: sa.Connection, run_id: str, number: int) -> None:
    """The run goes by all changes up to this one."""
    connection.execute(runs.update().where(runs.c.id == run_id).values(taken=number))


def taken_by(connection: sa.Connection, run_id: str) -> int:
    """The number of the last change that the run goes by."""
    return connection.scalar(sa.select(runs.c.taken).where(runs.c.id == run_id)) or 0


def not_taken(connection: sa.Connection, batch: str, number: int) -> list[OtherRun]:
    """The runs of the batch at work that do not go by this change yet."""
    known = sa.select(runs.c.id).where(runs.c.batch == batch, runs.c.taken >= number)
    taken = set(connection.scalars(known))
    return [run for run in leases.others(connection, batch, None) if run.run_id not in taken]


def since(connection: sa.Connection, batch: str, number: int) -> list[Setting]:
    """The changes of the batch with a higher number, in order."""
    columns = [changes.c[name] for name in Setting._fields]
    query = sa.select(*columns).where(changes.c.batch == batch, changes.c.number > number)
    return [Setting(*row) for row in connection.execute(query.order_by(changes.c.number))]


def newest(connection: sa.Connection) -> int:
    """The number of the last change; 0 without any."""
    return connection.scalar(sa.select(sa.func.max(changes.c.number))) or 0
