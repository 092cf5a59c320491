"""How a person settles what is in doubt.

A doubt with an id is no doubt about money: the service accepted the video, and every run asks for it again.
A person settles it only by giving it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import leases, writing
from callsheet.ledger.tables import Values, settlements
from callsheet.records import CHARGED, NOT_CHARGED, CostSource, Doubt, State


def settle(
    connection: sa.Connection, batch: str, doubts: Sequence[Doubt], *, charged: bool, by: str, why: str | None
) -> None:
    """Records a person's decision: charged is paid for and lost, not charged is free to buy again.

    Raises:
        LedgerError: one of them is no longer as the person saw it, or a run at work asks the service for it.
    """
    leases.end_dead(connection, batch)  # the person has seen what that leaves
    rows = writing.rows_of(connection, [doubt.job_key for doubt in doubts])
    at_work = {run.run_id: run for run in leases.others(connection, batch, None)}
    now, verb = datetime.now(UTC), "charged" if charged else "not charged"
    record = {"charged": charged, "settled_by": by, "settled_at": now, "why": why}
    for doubt in doubts:
        row = rows[doubt.job_key, doubt.attempt]
        # It would end where its job is no longer what it was.
        if doubt.is_accepted and row["run_id"] in at_work:
            raise LedgerError(
                f"row {doubt.row_id}: a run at work asks the service for this video: "
                f"{at_work[row['run_id']].line()}; nothing was settled",
                hint="Wait until that run has ended, or end it (Ctrl-C); then the same command.",
            )
        if (row["state"], row["generation_id"]) != (doubt.state, doubt.generation_id):
            raise LedgerError(
                f"row {doubt.row_id} is no longer {doubt.state.replace('_', ' ')}; nothing was settled",
                hint="List what is in doubt again: a run or a person has settled it.",
            )
        decision: Values = {"state": State.FAILED, "cost": Decimal(0), "settled": NOT_CHARGED}
        if charged:
            decision = {"state": State.LOST, "cost": row["quoted"], "settled": CHARGED}
            decision["cost_source"] = CostSource.QUOTED
        decision["error_message"] = f"{doubt.what.rstrip('.')}; settled as {verb} by {by}"
        decision["finished_at"] = row["finished_at"] or now
        writing.change_attempt(connection, row, decision)
        # It may be settled a second time, where an answer came after the first and is in doubt in its turn.
        settled = {"job_key": doubt.job_key, "attempt": doubt.attempt}
        connection.execute(settlements.delete().filter_by(**settled))
        connection.execute(settlements.insert(), settled | record)
