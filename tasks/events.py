"""Events on the Prefect server, on which automations can act: call a webhook when a batch stops, say.

Outside a flow run there is no server, and nothing happens. Prefect sends them in the background, adds the
flow run, its deployment and its tags, and no run waits for it. `docs/prefect.md`, "Events", has their fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from callsheet.ledger.approvals import Approval
from callsheet.plain_text import printable
from callsheet.pricing.quote import Quote
from callsheet.records import State, dollars
from callsheet.report.summary import Summary
from callsheet.watch import Change
from tasks.step import in_flow_run

_OF_JOBS = {State.IN_DOUBT: "callsheet.job.in_doubt", State.LOST: "callsheet.media.lost"}
_REASON = 500  # characters of a reason; the service's own words may be long


def quoted(quote: Quote) -> None:
    """`callsheet.batch.quoted`: the batch is priced, and nothing is bought yet."""
    _of_batch(
        "quoted",
        quote.plan.batch,
        jobs=quote.plan.jobs,
        to_buy=quote.to_buy,
        fits=quote.fits,
        quoted=dollars(quote.quoted),
        balance=dollars(quote.balance),
    )


def approved(batch: str, approval: Approval) -> None:
    """`callsheet.batch.approved`: a person has said yes, to the quote or to the rest after the pilot."""
    limit = approval.budget_limit
    _of_batch(
        "approved",
        batch,
        question=approval.question.value,
        jobs=approval.jobs,
        quoted=dollars(approval.quoted),
        budget_limit=None if limit is None else dollars(limit),
        decided_by=approval.decided_by,
        place=approval.place,
        note=approval.note and _short(approval.note),
    )


def ended(summary: Summary) -> None:
    """`callsheet.batch.stopped` where the run ended early, otherwise `callsheet.batch.completed`."""
    _of_batch(
        "stopped" if summary.outcome == "stopped" else "completed",
        summary.batch,
        outcome=summary.outcome,
        stop_reason=summary.stop_reason,
        message=_short(summary.line()),
        **{
            name: getattr(summary, name)
            for name in ("jobs", "stored", "failed", "in_doubt", "lost", "pending")
        },
        quoted=dollars(summary.quoted),
        spent=dollars(summary.spent),
        in_doubt_exposure=dollars(summary.in_doubt_exposure),
        report=summary.report,
    )


def of_jobs(batch: str) -> Callable[[Change], None]:
    """What tells of a job's change: `callsheet.job.in_doubt` and `callsheet.media.lost`, nothing else.

    Args:
        batch: the batch of the jobs.
    """

    def tell(change: Change) -> None:
        if change.state in _OF_JOBS:
            attempt = change.attempt
            _emit(
                _OF_JOBS[change.state],
                {
                    "prefect.resource.id": f"callsheet.job.{attempt.job_key}",
                    "prefect.resource.name": attempt.row_id,
                },
                {
                    "batch": batch,
                    "row_id": attempt.row_id,
                    "sample": attempt.sample,
                    "model": attempt.model,
                    "reason": _short(change.detail),
                },
                related=[_batch(batch) | {"prefect.resource.role": "batch"}],
            )

    return tell


def _of_batch(what: str, batch: str, **payload: Any) -> None:
    _emit(f"callsheet.batch.{what}", _batch(batch), payload)


def _batch(batch: str) -> dict[str, str]:
    return {"prefect.resource.id": f"callsheet.batch.{batch}", "prefect.resource.name": batch}


def _emit(
    event: str, resource: dict[str, str], payload: dict[str, Any], related: list[dict[str, str]] | None = None
) -> None:
    if in_flow_run():
        from prefect.events import emit_event

        emit_event(event, resource=resource, payload=payload, related=related)


def _short(text: str) -> str:
    return printable(text)[:_REASON]
