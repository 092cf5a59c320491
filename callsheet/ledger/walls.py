"""What bounds the buying in dollars: which of it is near, and that a person is told of that once.

What is used of a wall is what the gate counts when it lets a job be sent: spent, in flight and in doubt.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import sqlalchemy as sa

from callsheet.ledger import changes, leases
from callsheet.ledger.gate import Buyer, Counting, Obstacle, room_within
from callsheet.records import dollars

BALANCE = "balance"


@dataclass(frozen=True, slots=True)
class Wall:
    """A limit that is nearly used up.

    Attributes:
        setting: its dotted name.
        amount: the limit, in dollars; `used` of it.
        day: the UTC day that it is for; empty where it is for ever.
    """

    setting: str
    amount: Decimal
    used: Decimal
    day: str = ""


_SETTINGS = {
    Obstacle.LIMIT: changes.LIMIT,
    Obstacle.DAY: "budget.per_day",
    Obstacle.LEDGER: "budget.ledger",
}


def near(connection: sa.Connection, batch: str, buyer: Buyer) -> list[Wall]:
    """The walls before the batch of which `budget.warn` or more is used."""
    budget = buyer.budget
    if budget.warn is None:
        return []
    now, limit = leases.time_by_database(connection), changes.limit(connection, batch)
    amounts = {Obstacle.LIMIT: limit, Obstacle.DAY: budget.per_day, Obstacle.LEDGER: budget.ledger}
    left, _ = room_within(connection, buyer, limit, now, Counting.SEND)
    walls = [
        Wall(
            _SETTINGS[obstacle],
            amount,
            used=amount - left[obstacle],
            day=f"{now:%Y-%m-%d}" if obstacle is Obstacle.DAY else "",
        )
        for obstacle, amount in amounts.items()
        if amount
    ]
    return [wall for wall in walls if wall.used >= wall.amount * Decimal(str(budget.warn))]


def not_told(connection: sa.Connection, batch: str, buyer: Buyer) -> list[Wall]:
    """Those of which nobody was told.

    Each is told once for its amount: a batch's limit for the batch, the others for the ledger, the day's each
    day.
    """
    return [wall for wall in near(connection, batch, buyer) if not _is_told(connection, batch, wall)]


def tell(connection: sa.Connection, batch: str, buyer: Buyer) -> list[Wall]:
    """The same; from now on somebody is told of them."""
    walls = not_told(connection, batch, buyer)
    for wall in walls:
        changes.enter_told(connection, batch, wall.setting, _key(wall))
    return walls


def _is_told(connection: sa.Connection, batch: str, wall: Wall) -> bool:
    of_batch = batch if wall.setting == changes.LIMIT else None
    return changes.is_told(connection, wall.setting, _key(wall), batch=of_batch)


def _key(wall: Wall) -> str:
    return f"{dollars(wall.amount)} {wall.day}".rstrip()


def tell_of_balance(connection: sa.Connection, batch: str) -> bool:
    """Whether nobody was told on this UTC day that the balance is low; from now on somebody is."""
    day = f"{leases.time_by_database(connection):%Y-%m-%d}"
    if changes.is_told(connection, BALANCE, day):
        return False
    changes.enter_told(connection, batch, BALANCE, day)
    return True
