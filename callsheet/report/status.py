"""How a batch stands, from the ledger alone: for `status --json`, for people, and for Python."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import approvals, leases, running_totals
from callsheet.ledger.approvals import Approval
from callsheet.ledger.ledger import Ledger
from callsheet.records import OtherRun, Record, State, Totals, dollars


@dataclass(frozen=True, slots=True)
class Status(Record):
    """A batch with the names that `status --json` prints: jobs by state, and money in US dollars.

    `other_runs` are the runs of the batch that are at work, `approvals` what persons were asked about it.
    """

    batch: str
    planned: int
    submitting: int
    pending: int
    generated: int
    stored: int
    failed: int
    in_doubt: int
    lost: int
    spent: Decimal
    in_doubt_exposure: Decimal
    currency: str
    other_runs: tuple[OtherRun, ...]
    approvals: tuple[Approval, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The JSON object; money is a string."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        money = {name: dollars(value) for name, value in fields.items() if isinstance(value, Decimal)}
        lists = {name: [one.as_json() for one in getattr(self, name)] for name in ("other_runs", "approvals")}
        return fields | money | lists


async def read_status(ledger: Ledger) -> Status:
    """The status of the ledger's batch.

    Raises:
        LedgerError: the ledger cannot be read, or its running totals are wrong.
    """

    def read(
        connection: sa.Connection, batch: str
    ) -> tuple[list[str], Totals, list[OtherRun], tuple[Approval, ...]]:
        wrong = running_totals.differences(connection, batch)
        others = leases.others(connection, batch, ledger.run_id)
        asked = approvals.of_batch(connection, batch)
        return wrong, running_totals.of_batch(connection, batch), others, asked

    wrong, totals, others, asked = await ledger.read(read)
    check_totals(wrong)
    fields: dict[str, Any] = {state.value: totals.states.get(state, 0) for state in State}
    return Status(
        batch=ledger.batch,
        **fields,
        spent=totals.spent,
        in_doubt_exposure=totals.in_doubt_exposure,
        currency="USD",
        other_runs=tuple(others),
        approvals=asked,
    )


def check_totals(wrong: list[str]) -> None:
    """Refuses a ledger in which the running totals of these batches are not the sums of their attempts.

    Raises:
        LedgerError: there are such batches.
    """
    if wrong:
        raise LedgerError(
            f"the ledger's totals of {', '.join(wrong)} are not the sums of its attempts",
            hint="Something other than Callsheet has written to the ledger. Go back to a backup of it.",
        )
