"""Which jobs a run buys: one rule, for the quote that counts them and for the reservation that takes them.

The rule is SQL over the newest attempt at a job. Whether the budget allows a job is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from callsheet.config.checks import RetryFailed
from callsheet.config.settings import Settings
from callsheet.errors import SERVICE_CODES
from callsheet.ledger.tables import attempts
from callsheet.records import State

CHARGED = "charged"
"""The error code of an attempt that was in doubt, and that a person has settled as charged."""

NOT_CHARGED = "not_charged"
"""The error code of an attempt that was in doubt, and that a person has settled as not charged."""

UNKNOWN_STATUS = "unknown_status"
"""The error code of a pending video of which the service said a status that the interface does not have."""

BOUGHT = (State.SUBMITTING, State.PENDING, State.GENERATED, State.STORED, State.LOST)
"""The states of jobs that are sent, and that no run sends again."""

MAY_COST = (*BOUGHT, State.IN_DOUBT)
"""The states of jobs that have cost money, or may have."""

DELIVERED = (State.GENERATED, State.STORED, State.LOST)
"""The states of jobs that are paid for and answered."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a run does with jobs that it meets in the ledger.

    Attributes:
        retry_failed: which failed jobs to buy again, each once a run.
        retry_doubt: buy jobs in doubt again; their exposure stays.
        attempts: how many attempts a job may have, over all runs, before its failure or its doubt is left to
            a person. Only attempts that were sent count.
        reuse: take what another batch of the same service has stored for the same request, and do not buy it.
    """

    retry_failed: RetryFailed = False
    retry_doubt: bool = False
    attempts: int = 4
    reuse: bool = False


def policy_of(settings: Settings) -> Policy:
    """What a config says about jobs that were tried before."""
    return Policy(
        retry_failed=settings.retry_failed,
        retry_doubt=settings.on_doubt == "retry",
        attempts=settings.attempts,
        reuse=settings.reuse == "ledger",
    )


def to_buy(policy: Policy) -> sa.ColumnElement[bool]:
    """Whether a run buys a job, by the newest attempt at it: true too for a job that a run has reserved.

    A job without any attempt is always to buy. One in doubt that has a generation id was accepted: it is
    asked for again, and never bought again.
    """
    not_charged = sa.and_(attempts.c.state == State.FAILED, attempts.c.error_code == NOT_CHARGED)
    buys = [attempts.c.state == State.PLANNED, not_charged]
    if policy.retry_failed:
        failed = sa.and_(attempts.c.state == State.FAILED, _is_of_kind(policy.retry_failed))
        buys.append(sa.and_(failed, attempts.c.attempt < policy.attempts))
    if policy.retry_doubt:
        in_doubt = sa.and_(attempts.c.state == State.IN_DOUBT, attempts.c.generation_id.is_(None))
        buys.append(sa.and_(in_doubt, attempts.c.attempt < policy.attempts))
    return sa.or_(*buys)


def _is_of_kind(kind: RetryFailed) -> sa.ColumnElement[bool]:
    """Whether a failed job is one of those that `retry_failed` names."""
    code = attempts.c.error_code
    if kind == "server_error":
        return sa.or_(code == "server_error", code.startswith("http_5", autoescape=True))
    return code.not_in(SERVICE_CODES) if kind == "gateway" else sa.true()
