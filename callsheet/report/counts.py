"""Counts jobs: those of the batch file as it is now, without those whose rows were removed or changed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

import polars as pl

from callsheet.ledger import queries
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan
from callsheet.records import State

ENDED = (State.STORED, State.FAILED, State.LOST, State.IN_DOUBT)
"""The states in which a job needs nothing more from a run."""


async def removed_jobs(ledger: Ledger, plan: Plan | None) -> dict[str, State]:
    """The state of each job that the ledger knows and the plan no longer has, by key.

    Without a plan nothing is known of the batch file, and no job counts as removed.
    """
    if plan is None:
        return {}
    states = await ledger.read(queries.states)
    removed = await asyncio.to_thread(_not_in_plan, states, plan)
    return {key: states[key] for key in removed}


def _not_in_plan(states: Mapping[str, State], plan: Plan) -> list[str]:
    known = pl.LazyFrame({"key": list(states)}, schema={"key": pl.String})
    return known.join(plan.scan().select("key"), on="key", how="anti").collect()["key"].to_list()


def current_states(states: Mapping[State, int], removed: Mapping[str, State]) -> Counter[State]:
    """Jobs of the batch file by state.

    Args:
        states: all jobs of the batch by state.
        removed: the jobs that are not in the batch file.
    """
    current = Counter(states)
    current.subtract(removed.values())
    return +current
