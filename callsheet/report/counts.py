"""Counts jobs: those of the plan, and all others of the batch that have cost money or may have.

A batch file may have some rows of a batch only; what was bought for the others counts all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import queries
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.queries import MONEY, Policy
from callsheet.pricing.plan import Plan
from callsheet.records import MAY_COST, State

_JOB = {"job_key": pl.String(), "state": pl.String(), "quoted": MONEY}
ENDED = (State.STORED, State.FAILED, State.LOST, State.IN_DOUBT)
"""The states in which a job needs nothing more from a run."""

OPEN = (State.SUBMITTING, State.PENDING, State.GENERATED)
"""The states in which a job is sent, and a run has something to do with it."""


async def other_jobs(ledger: Ledger, plan: Plan | None) -> pl.DataFrame:
    """`job_key`, `state` and `quoted` of each job that the ledger knows and the plan does not have.

    Without a plan nothing is known of the batch file, and all jobs count.
    """
    if plan is None:
        return pl.DataFrame(schema=_JOB)
    known = await ledger.read(lambda connection, batch: queries.jobs(connection, batch, _JOB))
    return known.join(plan.table, left_on="job_key", right_on="key", how="anti")


async def left_to_buy(ledger: Ledger, plan: Plan, policy: Policy, wanted: pl.Series | None) -> int:
    """How many jobs the run of an open ledger would still have to send.

    `policy` is what the run does with jobs that were tried before. `wanted` says for every job of the plan
    whether the run was to buy it; None: all of them.
    """
    run_id = ledger.run_id

    def read(connection: sa.Connection, batch: str) -> pl.DataFrame:
        return queries.jobs(connection, batch, ["job_key", "state", "run_id"], policy=policy)

    known = await ledger.read(read)
    # What this run has sent, it does not send again, whatever its policy says.
    is_left = (pl.col("state") == State.PLANNED) | (pl.col("to_buy") & pl.col("run_id").ne_missing(run_id))
    jobs = plan.table if wanted is None else plan.table.filter(wanted)
    return jobs.join(known.filter(~is_left), left_on="key", right_on="job_key", how="anti").height


def counted_states(states: Mapping[State, int], others: pl.DataFrame) -> Counter[State]:
    """The jobs that count by state: all jobs of the batch, but those of `other_jobs` that cost nothing."""
    counted = Counter(states)
    counted.subtract(map(State, others.filter(~pl.col("state").is_in(MAY_COST))["state"]))
    return +counted


def is_complete(states: Mapping[State, int], jobs: int, plan: Plan | None) -> bool:
    """Whether all jobs that count are stored; a plan of which every row is rejected is not complete."""
    return states.get(State.STORED, 0) >= jobs and not (plan and plan.rejected_rows and not plan.jobs)
