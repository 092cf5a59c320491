"""Events on the Prefect server, on which automations can act: call a webhook when a batch stops, say.

Prefect sends them in the background, adds the flow run, its deployment and its tags, and no run waits for it.
`docs/prefect.md`, "Events", has their fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import anyio
from prefect.events import emit_event

from callsheet.errors import Interrupted
from callsheet.ledger.walls import BALANCE, Wall
from callsheet.ledger.words import Word
from callsheet.plain_text import printable
from callsheet.present import allowances, results
from callsheet.pricing.plan import ToBuyAgain
from callsheet.pricing.quote import Quote
from callsheet.records import Attempt, Change, RejectedFile, State, dollars
from callsheet.report.remedies import remedies
from callsheet.report.summary import ReviewResult, Summary
from callsheet.watch import WATCHER, LogWatcher
from tasks.pressed import flow_run, say, until_pressed

_OF_JOBS = {State.IN_DOUBT: "callsheet.job.in_doubt", State.LOST: "callsheet.media.lost"}
_COUNTS = ("jobs", "stored", "failed", "in_doubt", "lost", "pending")
_REASON = 500  # characters of a reason; the service's own words may be long
_REJECTED = 1_000  # files of a run; a check may reject every file of a batch


class Events(LogWatcher):
    """The watcher of a batch's flow run: its log has what happens, and what others may act on is an event."""

    def __init__(self, batch: str) -> None:
        self.batch = batch
        self._rejected = 0
        self._left: dict[str, State] = {}  # by job key: in doubt or lost, and so since this run

    def quoted(self, quote: Quote) -> None:
        """`callsheet.batch.quoted`: the batch is priced, and nothing is bought yet."""
        super().quoted(quote)
        _of_batch(
            "quoted",
            self.batch,
            jobs=quote.plan.jobs,
            to_buy=quote.to_buy,
            fits=quote.fits,
            quoted=dollars(quote.quoted),
            balance=None if quote.balance is None else dollars(quote.balance),
        )

    def begun(self, left: Mapping[str, State]) -> None:
        """What this flow run left before it was suspended is its own; the events of it are sent already."""
        self._left |= left

    def changed(self, change: Change) -> None:
        """`callsheet.job.in_doubt` and `callsheet.media.lost`; nothing else, for there may be a million."""
        self._left.pop(change.attempt.job_key, None)
        if event := _OF_JOBS.get(change.state):
            attempt = change.attempt
            self._left[attempt.job_key] = change.state
            self._of_job(event, attempt, model=attempt.model, reason=_short(change.detail))

    def rejected(self, file: RejectedFile) -> None:
        """`callsheet.media.rejected`, for the first thousand files of a run."""
        self._rejected += 1
        if self._rejected <= _REJECTED:
            self._of_job(
                "callsheet.media.rejected",
                file,
                index=file.index,
                url=file.url,
                check=file.check,
                flags=[_short(flag) for flag in file.flags],
            )

    def nears(self, wall: Wall) -> None:
        """`callsheet.batch.warned`: a limit is nearly used up."""
        super().nears(wall)
        _of_batch(
            "warned",
            self.batch,
            setting=wall.setting,
            amount=dollars(wall.amount),
            used=dollars(wall.used),
            message=allowances.of_wall(wall),
        )

    async def waits(self, text: str) -> None:
        """It is the message of the run's state, too."""
        await super().waits(text)
        await say(text)

    async def pause(self, seconds: float) -> None:
        """What is pressed meanwhile in the Prefect UI ends the run."""
        with anyio.move_on_after(seconds):
            reason, hint = (await until_pressed()).value
            raise Interrupted(reason, hint=hint)

    def finished(self, summary: Summary) -> None:
        """`callsheet.batch.stopped` where the run ended early, otherwise `callsheet.batch.completed`."""
        super().finished(summary)
        _of_batch(
            "stopped" if summary.outcome == "stopped" else "completed",
            summary.batch,
            outcome=summary.outcome,
            stop_reason=summary.stop_reason,
            message=_short(results.line(summary)) + (settling() if summary.in_doubt else ""),
            **{name: getattr(summary, name) for name in _COUNTS},
            quoted=dollars(summary.quoted),
            spent=dollars(summary.spent),
            in_doubt_exposure=dollars(summary.in_doubt_exposure),
            not_as_ordered=results.differences(summary),
            report=summary.report,
        )

    def leaves(self, state: State) -> bool:
        """Whether this run leaves jobs in this state, in doubt or lost: not whether there are older ones."""
        return state in self._left.values()

    def _of_job(self, event: str, subject: Attempt | RejectedFile, **payload: Any) -> None:
        emit_event(
            event,
            resource=_resource(f"job.{subject.job_key}", subject.row_id),
            payload={"batch": self.batch, "row_id": subject.row_id, "sample": subject.sample, **payload},
            related=[_batch(self.batch) | {"prefect.resource.role": "batch"}],
        )


def broken_off(batch: str, reason: str | None, message: str) -> None:
    """`callsheet.batch.stopped` of a run that an error has ended before it could write a report.

    `reason`: the stop's; None where it has failed.
    """
    outcome = "stopped" if reason else "failed"
    _of_batch("stopped", batch, outcome=outcome, stop_reason=reason, message=_short(message))


def leaves(state: State) -> bool:
    """`Events.leaves` of this flow run; True where nobody has watched it."""
    watcher = WATCHER.get()
    return not isinstance(watcher, Events) or watcher.leaves(state)


def settling() -> str:
    """How a person settles the doubts that this run leaves: a sentence to add; empty without any."""
    if not leaves(State.IN_DOUBT):
        return ""
    run = flow_run()
    config = str((run.parameters if run else {}).get("config") or "CONFIG")
    deployments = {"resolve": "resolve"} if run and run.deployment_id else {}
    return f". {remedies(State.IN_DOUBT, config=config, deployments=deployments)[0]}"


def asked(batch: str, word: Word, within: float) -> None:
    """`callsheet.batch.asked`: a run waits for a person, for at most `within` seconds."""
    _of_batch(
        "asked",
        batch,
        question=word.question,
        jobs=word.shown.jobs,
        quoted=dollars(word.shown.quoted),
        within=round(within),
    )


def refused(batch: str, word: Word) -> None:
    """`callsheet.batch.refused`: a person has said no."""
    note = word.note and _short(word.note)
    _of_batch("refused", batch, question=word.question, decided_by=word.decided_by, note=note)


def reviewed(review: ReviewResult, again: ToBuyAgain) -> None:
    """`callsheet.batch.reviewed`: every stored file is marked, and so many jobs are to be bought again."""
    _of_batch(
        "reviewed",
        review.batch,
        kept=review.kept,
        rejected=review.rejected,
        to_buy_again=again.jobs,
        price=dollars(again.quoted),
    )


def low_balance(batch: str, balance: Decimal, cost: Decimal, message: str) -> None:
    """`callsheet.batch.warned`: the balance is below what the runs of the next day may cost."""
    _of_batch("warned", batch, setting=BALANCE, amount=dollars(balance), used=dollars(cost), message=message)


def approved(batch: str, word: Word) -> None:
    """`callsheet.batch.approved`: a person has said yes, to the quote or to the rest after the pilot."""
    limit = word.budget_limit
    _of_batch(
        "approved",
        batch,
        question=word.question,
        jobs=word.shown.jobs,
        quoted=dollars(word.shown.quoted),
        budget_limit=None if limit is None else dollars(limit),
        decided_by=word.decided_by,
        place=word.place,
        note=word.note and _short(word.note),
    )


def _of_batch(event: str, batch: str, **payload: Any) -> None:
    emit_event(f"callsheet.batch.{event}", resource=_batch(batch), payload=payload)


def _batch(name: str) -> dict[str, str]:
    return _resource(f"batch.{name}", name)


def _resource(resource_id: str, name: str) -> dict[str, str]:
    return {"prefect.resource.id": f"callsheet.{resource_id}", "prefect.resource.name": name}


def _short(text: str) -> str:
    return printable(text)[:_REASON]
