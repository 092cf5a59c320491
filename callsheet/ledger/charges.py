"""What the service has charged next to its quotes, and for which model, over all runs of a batch.

A service that charges more than it lists, or delivers another model than was ordered, stops the buying of
every run, before that costs a whole batch, until a person has accepted these charges by name (`gate.py`).
Money is in dollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.ledger.tables import charges

_PERCENT = 101  # of its quote: a charge of at most so much is a rounding, and not dearer
_LAST = 3  # charges that are looked at
DEARER = 2  # of these that stop the buying, being dearer or for another model
SHARE = Decimal("0.1")  # of what the batch may come to: so much above the quotes stops the buying, too


def is_dearer(cost: Any, quoted: Any) -> Any:
    """Whether a job cost more than its quote, a rounding aside: the rule of all who say so.

    Of two amounts, or of two columns: of Polars, or of the database as whole numbers.
    """
    return cost * 100 > quoted * _PERCENT


@dataclass(frozen=True, slots=True)
class Charge:
    """What a job was charged, next to its quote.

    Attributes:
        model: as it was ordered.
        needs_yes: it is dearer than a person has accepted for such a job, or for a model that nobody has
            accepted in place of the one that was ordered.
        delivered: the model by the answer, where that is another one; otherwise empty.
    """

    row_id: str
    sample: int
    model: str
    quoted: Decimal
    cost: Decimal
    needs_yes: bool = False
    delivered: str = ""

    @property
    def pair(self) -> tuple[str, Decimal]:
        """What says which jobs are such jobs: the model and the quote."""
        return self.model, self.quoted

    @property
    def models(self) -> tuple[str, str]:
        """The model that was ordered, and the other one that has come."""
        return self.model, self.delivered

    def as_json(self) -> list[Any]:
        """As the ledger has it."""
        amounts = str(self.quoted), str(self.cost)
        return [self.row_id, self.sample, self.model, *amounts, self.needs_yes, self.delivered]


def charge_of(value: Sequence[Any]) -> Charge:
    """A charge as the ledger has it; an older one says nothing of another model."""
    row_id, sample, model, quoted, cost, *others = value
    return Charge(row_id, sample, model, Decimal(quoted), Decimal(cost), *others)


@dataclass(frozen=True, slots=True)
class Charged:
    """How a batch is charged.

    Attributes:
        last: the last charges, the newest last, as far as one of them needs a yes.
        unaccepted: those that need one, the dearest of each model, ordered and delivered, and quote.
        accepted: what a person has accepted.
        above: by how much all charges that nobody has accepted are above their quotes.
    """

    last: tuple[Charge, ...] = ()
    unaccepted: tuple[Charge, ...] = ()
    accepted: tuple[Charge, ...] = ()
    above: Decimal = Decimal(0)

    def to_accept(self, allowed: Decimal | None) -> tuple[Charge, ...]:
        """What a person must accept before more is bought; `allowed`: what the batch may come to, or None."""
        in_a_row = sum(charge.needs_yes for charge in self.last) >= DEARER
        return self.unaccepted if in_a_row or (allowed is not None and self.above > allowed * SHARE) else ()


def dearest(listed: Iterable[Charge]) -> dict[tuple[str, Decimal], Decimal]:
    """The dearest of these charges, by model and quote."""
    return {charge.pair: charge.cost for charge in sorted(listed, key=lambda charge: charge.cost)}


_OF_BATCH = sa.select(charges).where(charges.c.batch == sa.bindparam("the_batch"))


def of_batch(connection: sa.Connection, batch: str) -> Charged:
    """How the batch is charged."""
    row = connection.execute(_OF_BATCH, {"the_batch": batch}).first()
    if row is None:
        return Charged()
    last, unaccepted, accepted = (
        tuple(map(charge_of, kind)) for kind in (row.last, row.unaccepted, row.accepted)
    )
    return Charged(last, unaccepted, accepted, row.above)


def count(connection: sa.Connection, batch: str, charge: Charge) -> None:
    """The service has charged a job."""
    charged = of_batch(connection, batch)
    highest = max(dearest(charged.accepted).get(charge.pair, charge.quoted), charge.quoted)
    dearer = is_dearer(charge.cost, highest)
    is_of_other = charge.delivered != "" and charge.models not in _models(charged.accepted)
    counted = replace(charge, needs_yes=dearer or is_of_other)
    if not any(last.needs_yes for last in (*charged.last, counted)):
        return  # it would change nothing that anybody asks for, and each job of a batch comes here
    charged = replace(charged, last=(*charged.last, counted)[-_LAST:])
    if counted.needs_yes:
        above = charged.above + (charge.cost - highest if dearer else 0)
        charged = replace(charged, unaccepted=_with(charged.unaccepted, counted), above=above)
    _write(connection, batch, charged)


def accept(connection: sa.Connection, batch: str, to_accept: Sequence[Charge]) -> None:
    """A person has accepted these charges: that they are above their quotes, and for other models than were
    ordered. Others are not accepted.
    """
    charged = of_batch(connection, batch)
    for charge in to_accept:
        charged = replace(charged, accepted=_with(charged.accepted, charge))
    accepted, models = dearest(charged.accepted), _models(charged.accepted)
    left = tuple(
        charge
        for charge in charged.unaccepted
        if is_dearer(charge.cost, max(accepted.get(charge.pair, charge.quoted), charge.quoted))
        or (charge.delivered and charge.models not in models)
    )
    above = charged.above if left else Decimal(0)
    _write(
        connection, batch, replace(charged, last=charged.last if left else (), unaccepted=left, above=above)
    )


def _models(accepted: Iterable[Charge]) -> set[tuple[str, str]]:
    return {charge.models for charge in accepted}


def _with(listed: Sequence[Charge], added: Charge) -> tuple[Charge, ...]:
    """The list, with a charge in the place of a lower one of the same models and quote."""
    in_order = sorted([*listed, added], key=lambda charge: charge.cost)
    return tuple({(charge.pair, charge.delivered): charge for charge in in_order}.values())


def _write(connection: sa.Connection, batch: str, charged: Charged) -> None:
    values = {
        name: [charge.as_json() for charge in getattr(charged, name)]
        for name in ("last", "unaccepted", "accepted")
    }
    row: dict[str, Any] = {**values, "above": charged.above}
    if connection.execute(charges.update().where(charges.c.batch == batch), row).rowcount == 0:
        connection.execute(charges.insert(), row | {"batch": batch})
