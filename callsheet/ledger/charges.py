"""What a batch is charged next to its quotes, counted over all its runs.

A service that charges more than it lists stops the buying of every run, before that costs a whole batch,
until a person has approved it by name. It is looked at in the transaction that says that a job is about to be
sent (`budget.py`). Money is in dollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger.tables import charges
from callsheet.plain_text import row_name
from callsheet.records import dollars

ROUNDING = Decimal("1.01")  # a charge of at most this many times its quote is a rounding, and not dearer
LAST = 3  # charges that are looked at
DEARER = 2  # of these that stop the buying
SHARE = Decimal("0.1")  # of the bound: so much above the quotes stops the buying, too
APPROVE = (
    "Nothing more is bought until somebody approves that: run it again with --yes, or answer its question."
)

Pairs = Mapping[tuple[str, Decimal], Decimal]
"""What jobs were charged at most, by their model and their quote."""


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
        last: the last charges, the newest last.
        dearer: the dearest charge of each model and quote that nobody has accepted.
        accepted: what a person has accepted.
        above: by how much all charges that nobody has accepted are above their quotes.
    """

    last: tuple[Charge, ...] = ()
    dearer: tuple[Charge, ...] = ()
    accepted: tuple[Charge, ...] = ()
    above: Decimal = Decimal(0)

    def stops(self, bound: Decimal | None) -> bool:
        """Whether nothing more may be bought within a bound of the whole batch; None where it has none."""
        in_a_row = sum(charge.is_dearer for charge in self.last) >= DEARER
        return in_a_row or (bound is not None and self.above > bound * SHARE)

    def in_words(self) -> str:
        """What nobody has accepted, in a sentence."""
        each = (
            f"row {row_name(one.row_id, one.sample)}: {dollars(one.cost)} USD, quoted {dollars(one.quoted)}"
            for one in self.dearer
        )
        return f"the service charges more than was quoted: {'; '.join(each)}"


def pairs(listed: Iterable[Charge]) -> dict[tuple[str, Decimal], Decimal]:
    """The dearest of these charges, by model and quote."""
    return {one.pair: one.cost for one in sorted(listed, key=lambda one: one.cost)}


def of_batch(connection: sa.Connection, batch: str) -> Charged:
    """How the batch is charged."""
    row = connection.execute(sa.select(charges).where(charges.c.batch == batch)).first()
    if row is None:
        return Charged()
    last, dearer, accepted = (tuple(map(charge_of, each)) for each in (row.last, row.dearer, row.accepted))
    return Charged(last, dearer, accepted, row.above)


def charged(connection: sa.Connection, batch: str, new: Iterable[Charge]) -> None:
    """The service has charged jobs, in this order."""
    known = before = of_batch(connection, batch)
    for charge in new:
        most = max(pairs(known.accepted).get(charge.pair, charge.quoted), charge.quoted)
        is_dearer = charge.cost > most * ROUNDING
        said = replace(charge, is_dearer=is_dearer)
        known = replace(known, last=(*known.last, said)[-LAST:])
        if is_dearer:
            known = replace(known, dearer=_with(known.dearer, said), above=known.above + charge.cost - most)
    if known != before:
        _write(connection, batch, known)


def accept(connection: sa.Connection, batch: str, named: Iterable[Charge]) -> None:
    """A person has accepted these charges, and that they are above their quotes; others are not accepted."""
    known, accepted = of_batch(connection, batch), tuple(named)
    for charge in accepted:
        known = replace(known, accepted=_with(known.accepted, charge))
    left = tuple(one for one in known.dearer if one.cost > pairs(known.accepted).get(one.pair, one.quoted))
    above = known.above if left else Decimal(0)
    _write(connection, batch, replace(known, last=() if not left else known.last, dearer=left, above=above))


def _with(listed: Sequence[Charge], charge: Charge) -> tuple[Charge, ...]:
    """The list, with a charge in the place of a lower one of the same model and quote."""
    dearest = {one.pair: one for one in sorted([*listed, charge], key=lambda one: one.cost)}
    return tuple(dearest.values())


def _write(connection: sa.Connection, batch: str, known: Charged) -> None:
    values = {
        name: [each.as_json() for each in getattr(known, name)] for name in ("last", "dearer", "accepted")
    }
    row: dict[str, Any] = {**values, "above": known.above}
    if connection.execute(charges.update().where(charges.c.batch == batch), row).rowcount == 0:
        connection.execute(charges.insert(), row | {"batch": batch})
