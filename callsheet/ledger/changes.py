"""Settings that persons change for the runs of a batch at work, and what the batch may spend by the newest.

Runs look for changes again and again (`session.py`), and say which they go by. The next run has the settings
of its config. `budget.limit` counts for all runs of the batch together: so what the config of a run says,
once its buying is let begin, is a change, too (`gate.py`). Money is in dollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger import leases
from callsheet.ledger.tables import changes, runs
from callsheet.records import OtherRun, Record

LIMIT = "budget.limit"
PAUSED = "paused"
"""In place of a setting: whether the runs hold their buying."""
_TOLD = "told:"
"""How what stands in place of a setting begins, where a person was told of a wall: no change, and kept here
so that it is told once.
"""


@dataclass(frozen=True, slots=True)
class Setting(Record):
    """A setting that somebody has changed; `value` as JSON has it, money as text.

    `run_id`: the run whose config or question has said it; None where it was changed for all at work.
    """

    number: int
    setting: str
    value: Any
    changed_by: str
    changed_at: datetime
    run_id: str | None = None

    def keys(self) -> Iterable[str]:
        """The names of the fields that `--json` prints."""
        return [name for name in Record.keys(self) if name != "run_id"]


def enter_change(
    connection: sa.Connection, batch: str, values: Mapping[str, Any], by: str
) -> tuple[int, Sequence[OtherRun]]:
    """Enters changes, by the settings' dotted names; nothing where no run of the batch is at work.

    Returns:
        The number of the last one, and the runs that are at work.
    """
    at_work = leases.others(connection, batch, None)
    if at_work:
        _enter(connection, batch, values, by, said_to=[run.run_id for run in at_work])
    return newest(connection), at_work


def _enter(connection: sa.Connection, batch: str, values: Mapping[str, Any], by: str, **columns: Any) -> None:
    number, now = newest(connection), datetime.now(UTC)
    rows = [
        {"number": number + nth, "batch": batch, "setting": name, "value": value}
        | {"changed_by": by, "changed_at": now, **columns}
        for nth, (name, value) in enumerate(values.items(), start=1)
    ]
    connection.execute(changes.insert(), rows)


_SAID_LIMIT = (
    sa.select(changes.c.value)
    .where(changes.c.batch == sa.bindparam("the_batch"), changes.c.setting == LIMIT)
    .order_by(changes.c.number.desc())
    .limit(1)
)


def limit(connection: sa.Connection, batch: str) -> Decimal | None:
    """What the batch may spend by the newest word of a person, in dollars; None where that is no limit."""
    value = connection.scalar(_SAID_LIMIT, {"the_batch": batch})
    return None if value is None else Decimal(value)


def limit_with(
    connection: sa.Connection, batch: str, of_config: Decimal | None, run_id: str
) -> Decimal | None:
    """What the batch may spend once a run is let begin whose config says `of_config`, in dollars.

    That is the config's limit. But what `callsheet set` has said holds until the runs that it was said to
    have ended: it holds for these whatever their configs say, and the config of another run only lowers it.
    """
    said_to = _said_to(connection, batch)
    if not said_to:
        return of_config
    said_limit = limit(connection, batch)
    if run_id in said_to or of_config is None:
        return said_limit
    return of_config if said_limit is None else min(said_limit, of_config)


def say_limit(connection: sa.Connection, batch: str, amount: Decimal | None, by: str, run_id: str) -> None:
    """The config of a run says what the batch may spend, or the answer to its question."""
    if amount != limit(connection, batch):
        _enter(connection, batch, {LIMIT: None if amount is None else str(amount)}, by, run_id=run_id)


def _said_to(connection: sa.Connection, batch: str) -> set[str]:
    """The runs to which `callsheet set` has said the limit, as long as one of them is at work."""
    query = sa.select(changes.c.said_to).where(changes.c.batch == batch, changes.c.setting == LIMIT)
    query = query.where(changes.c.run_id.is_(None)).order_by(changes.c.number.desc()).limit(1)
    said_to = set(connection.scalar(query) or ())
    return said_to if said_to & {run.id for run in leases.alive(connection, batch)} else set()


def goes_by(connection: sa.Connection, _: str, run_id: str, number: int) -> None:
    """The run goes by all changes up to this one."""
    connection.execute(runs.update().where(runs.c.id == run_id).values(taken=number))


def to_take(connection: sa.Connection, batch: str, run_id: str) -> list[Setting]:
    """The changes of the batch that the run does not go by yet, in order."""
    taken = connection.scalar(sa.select(runs.c.taken).where(runs.c.id == run_id))
    return since(connection, batch, taken or 0)


def not_taken(connection: sa.Connection, batch: str, number: int) -> list[OtherRun]:
    """The runs of the batch at work that do not go by this change yet."""
    going_by = set(
        connection.scalars(sa.select(runs.c.id).where(runs.c.batch == batch, runs.c.taken >= number))
    )
    return [run for run in leases.others(connection, batch, None) if run.run_id not in going_by]


def since(connection: sa.Connection, batch: str, number: int) -> list[Setting]:
    """The changes of the batch with a higher number, in order."""
    columns = [changes.c[name] for name in Setting.__slots__]
    query = sa.select(*columns).where(changes.c.batch == batch, changes.c.number > number)
    query = query.where(~changes.c.setting.startswith(_TOLD))
    return [Setting(*row) for row in connection.execute(query.order_by(changes.c.number))]


def newest(connection: sa.Connection) -> int:
    """The number of the last change; 0 without any."""
    return connection.scalar(sa.select(sa.func.max(changes.c.number))) or 0


# ---- what a person was told


def is_told(connection: sa.Connection, subject: str, text: str, *, batch: str | None = None) -> bool:
    """Whether somebody was told this, by a run of whichever batch or of this one."""
    query = sa.select(changes.c.value).where(changes.c.setting == f"{_TOLD}{subject}")
    query = query if batch is None else query.where(changes.c.batch == batch)
    return text in connection.scalars(query)


def enter_told(connection: sa.Connection, batch: str, subject: str, text: str) -> None:
    """Somebody is told this now, by a run of the batch."""
    _enter(connection, batch, {f"{_TOLD}{subject}": text}, "callsheet")
