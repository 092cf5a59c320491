"""What the service has charged next to its quotes, over all runs of a batch.

A service that charges more than it lists stops the buying of every run, before that costs a whole batch,
until a person has accepted these charges by name (`gate.py`). Money is in dollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger.tables import charges
from callsheet.plain_text import row_name
from callsheet.records import dollars

ROUNDING = Decimal("1.01")  # a charge of at most this many times its quote is a rounding, and not dearer
_LAST = 3  # charges that are looked at
DEARER = 2  # of these that stop the buying
SHARE = Decimal("0.1")  # of what the batch may come to: so much above the quotes stops the buying, too


@dataclass(frozen=True, slots=True)
class Charge:
    """What a job was charged, next to its quote; `is_dearer`: than a person has accepted for such a job."""

    row_id: str
    sample: int
    model: str
    quoted: Decimal
    cost: Decimal
    is_dearer: bool = False

    @property
    def pair(self) -> tuple[str, Decimal]:
        """What says which jobs are such jobs: the model and the quote."""
        return self.model, self.quoted

    def as_json(self) -> list[Any]:
        """As the ledger has it."""
        return [self.row_id, self.sample, self.model, str(self.quoted), str(self.cost), self.is_dearer]


def charge_of(value: Sequence[Any]) -> Charge:
    """A charge as the ledger has it."""
    row_id, sample, model, quoted, cost, is_dearer = value
    return Charge(row_id, sample, model, Decimal(quoted), Decimal(cost), is_dearer)


@dataclass(frozen=True, slots=True)
class Charged:
    """How a batch is charged.

    Attributes:
        last: the last charges, the newest last, as far as one of them was dearer.
        dearer: the dearest charge of each model and quote that nobody has accepted.
        accepted: what a person has accepted.
        above: by how much all charges that nobody has accepted are above their quotes.
    """

    last: tuple[Charge, ...] = ()
    dearer: tuple[Charge, ...] = ()
    accepted: tuple[Charge, ...] = ()
    above: Decimal = Decimal(0)

    def to_accept(self, allowed: Decimal | None) -> tuple[Charge, ...]:
        """What a person must accept before more is bought; `allowed`: what the batch may come to, or None."""
        in_a_row = sum(charge.is_dearer for charge in self.last) >= DEARER
        return self.dearer if in_a_row or (allowed is not None and self.above > allowed * SHARE) else ()


def in_words(dearer: Iterable[Charge]) -> str:
    """What nobody has accepted, in a sentence."""
    listed = (
        f"row {row_name(charge.row_id, charge.sample)}: {dollars(charge.cost)} USD, "
        f"quoted {dollars(charge.quoted)}"
        for charge in dearer
    )
    return f"the service charges more than was quoted: {'; '.join(listed)}"


def dearest(listed: Iterable[Charge]) -> dict[tuple[str, Decimal], Decimal]:
    """The dearest of these charges, by model and quote."""
    return {charge.pair: charge.cost for charge in sorted(listed, key=lambda charge: charge.cost)}


_OF_BATCH = sa.select(charges).where(charges.c.batch == sa.bindparam("the_batch"))


def of_batch(connection: sa.Connection, batch: str) -> Charged:
    """How the batch is charged."""
    row = connection.execute(_OF_BATCH, {"the_batch": batch}).first()
    if row is None:
        return Charged()
    last, dearer, accepted = (tuple(map(charge_of, kind)) for kind in (row.last, row.dearer, row.accepted))
    return Charged(last, dearer, accepted, row.above)


def count(connection: sa.Connection, batch: str, charge: Charge) -> None:
    """The service has charged a job."""
    charged = of_batch(connection, batch)
    highest = max(dearest(charged.accepted).get(charge.pair, charge.quoted), charge.quoted)
    counted = replace(charge, is_dearer=charge.cost > highest * ROUNDING)
    if not any(last.is_dearer for last in (*charged.last, counted)):
        return  # it would change nothing that anybody asks for, and each job of a batch comes here
    charged = replace(charged, last=(*charged.last, counted)[-_LAST:])
    if counted.is_dearer:
        above = charged.above + charge.cost - highest
        charged = replace(charged, dearer=_with(charged.dearer, counted), above=above)
    _write(connection, batch, charged)


def accept(connection: sa.Connection, batch: str, to_accept: Sequence[Charge]) -> None:
    """A person has accepted these charges, and that they are above their quotes; others are not accepted."""
    charged = of_batch(connection, batch)
    for charge in to_accept:
        charged = replace(charged, accepted=_with(charged.accepted, charge))
    accepted = dearest(charged.accepted)
    left = tuple(
        charge for charge in charged.dearer if charge.cost > accepted.get(charge.pair, charge.quoted)
    )
    above = charged.above if left else Decimal(0)
    _write(connection, batch, replace(charged, last=charged.last if left else (), dearer=left, above=above))


def _with(listed: Sequence[Charge], added: Charge) -> tuple[Charge, ...]:
    """The list, with a charge in the place of a lower one of the same model and quote."""
    by_pair = {charge.pair: charge for charge in sorted([*listed, added], key=lambda charge: charge.cost)}
    return tuple(by_pair.values())


def _write(connection: sa.Connection, batch: str, charged: Charged) -> None:
    values = {
        name: [charge.as_json() for charge in getattr(charged, name)]
        for name in ("last", "dearer", "accepted")
    }
    row: dict[str, Any] = {**values, "above": charged.above}
    if connection.execute(charges.update().where(charges.c.batch == batch), row).rowcount == 0:
        connection.execute(charges.insert(), row | {"batch": batch})
