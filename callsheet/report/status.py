"""How a batch stands, from the ledger alone: for `status --json`, for people, and for Python."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from callsheet.errors import LedgerError
from callsheet.ledger import approvals, leases, running_totals
from callsheet.ledger.approvals import Approval
from callsheet.ledger.ledger import Ledger
from callsheet.records import OtherRun, Record, State


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


async def read_status(ledger: Ledger) -> Status:
    """The status of the ledger's batch.

    Raises:
        LedgerError: the ledger cannot be read, or its running totals are wrong.
    """

    wrong, totals, others, asked = await ledger.read(
        lambda connection, batch: (
            running_totals.differences(connection, batch),
            running_totals.of_batch(connection, batch),
            leases.others(connection, batch, ledger.run_id),
            approvals.of_batch(connection, batch),
        )
    )
    check_totals(wrong)
    counts: dict[str, Any] = {state.value: totals.states.get(state, 0) for state in State}
    return Status(
        batch=ledger.batch,
        **counts,
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
