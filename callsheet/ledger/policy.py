"""Which jobs a run buys, of those that were tried before: one rule for its quote and for the gate.

It is SQL over the newest attempt at a job: the standing has it as `to_buy` for each job (`queries.py`), and
a reservation looks at it once more (`gate.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from callsheet.config.setting_types import RetryFailed
from callsheet.config.settings import BatchSettings
from callsheet.errors import SERVICE_CODES
from callsheet.ledger.tables import attempts
from callsheet.records import NOT_CHARGED, State


@dataclass(frozen=True, slots=True)
class Policy:
    """What a run does with jobs that it meets in the ledger.

    Attributes:
        retry_failed: which failed jobs to buy again, each once a run.
        retry_doubt: buy jobs in doubt again; their exposure stays.
        attempts: how many attempts a job may have, over all runs, before its failure or its doubt is left to
            a person. Only attempts that were sent count.
        run_id: the run, which does not try a job again that has failed in it. Empty: whichever comes next.
    """

    retry_failed: RetryFailed = False
    retry_doubt: bool = False
    attempts: int = 4
    run_id: str = ""


ONLY_NEW = Policy()
"""Nothing is bought again, but what a person has settled as not charged."""


def policy_of(settings: BatchSettings, run_id: str = "") -> Policy:
    """What a config says about jobs that were tried before: to a run that buys, or to the next one."""
    return Policy(
        retry_failed=settings.retry_failed,
        retry_doubt=settings.on_doubt == "retry",
        attempts=settings.attempts,
        run_id=run_id,
    )


def to_buy(policy: Policy) -> sa.ColumnElement[bool]:
    """Whether a run buys a job, by the newest attempt at it: true too for a job that a run has reserved.

    A job without any attempt is always to buy. One in doubt that has a generation id was accepted: it is
    asked for again, and never bought again.
    """
    not_charged = sa.and_(
        attempts.c.state == State.FAILED, attempts.c.settled.is_not_distinct_from(NOT_CHARGED)
    )
    buys = [attempts.c.state == State.PLANNED, not_charged]
    if kind := policy.retry_failed:
        code = attempts.c.error_code
        of_kind: sa.ColumnElement[bool] = sa.true()
        if kind == "server_error":
            of_kind = sa.or_(code == "server_error", code.startswith("http_5", autoescape=True))
        elif kind == "gateway":
            of_kind = code.not_in(SERVICE_CODES)
        of_other_run = attempts.c.run_id.is_distinct_from(policy.run_id)
        failed = sa.and_(attempts.c.state == State.FAILED, of_kind, of_other_run)
        buys.append(sa.and_(failed, attempts.c.attempt < policy.attempts))
    if policy.retry_doubt:
        in_doubt = sa.and_(attempts.c.state == State.IN_DOUBT, attempts.c.generation_id.is_(None))
        buys.append(sa.and_(in_doubt, attempts.c.attempt < policy.attempts))
    return sa.or_(*buys)
