"""What persons change for the runs of a batch that are at work: settings, and whether they buy.

Runs look here again and again (`session.py`). What was changed stays here, with who and when. The next run
has the settings of its config.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from callsheet.ledger import leases
from callsheet.ledger.tables import changes
from callsheet.records import OtherRun

PAUSED = "paused"
"""In place of a setting: whether the runs hold their buying."""


class Setting(NamedTuple):
    """A setting that somebody has changed; `value` as JSON has it, money as text."""

    number: int
    setting: str
    value: Any
    changed_by: str
    changed_at: datetime

    def line(self) -> str:
        """The change in one line."""
        what = in_words(self.setting, self.value)
        return f"{what}: by {self.changed_by}, {self.changed_at:%Y-%m-%d %H:%M:%S} UTC"

    def as_json(self) -> dict[str, Any]:
        """The JSON object in the `changes` of `status --json`."""
        return self._asdict() | {"changed_at": self.changed_at.isoformat()}


def in_words(setting: str, value: Any) -> str:
    """What is so from now on: `budget.limit is 4.00`."""
    if setting == PAUSED:
        return "the buying is paused" if value else "the buying goes on"
    return f"{setting} is {value}"


def change(connection: sa.Connection, batch: str, values: Mapping[str, Any], by: str) -> Sequence[OtherRun]:
    """Enters changes, by the settings' dotted names; nothing where no run of the batch is at work.

    Returns:
        The runs that are at work.
    """
    at_work = leases.others(connection, batch, None)
    if at_work:
        number, now = newest(connection), datetime.now(UTC)
        rows = [
            {"number": number + nth, "batch": batch, "setting": name, "value": value}
            | {"changed_by": by, "changed_at": now}
            for nth, (name, value) in enumerate(values.items(), start=1)
        ]
        connection.execute(changes.insert(), rows)
    return at_work


def since(connection: sa.Connection, batch: str, number: int) -> list[Setting]:
    """The changes of the batch with a higher number, in order."""
    columns = [changes.c[name] for name in Setting._fields]
    query = sa.select(*columns).where(changes.c.batch == batch, changes.c.number > number)
    return [Setting(*row) for row in connection.execute(query.order_by(changes.c.number))]


def newest(connection: sa.Connection) -> int:
    """The number of the last change; 0 without any."""
    return connection.scalar(sa.select(sa.func.max(changes.c.number))) or 0
