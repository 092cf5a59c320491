"""Submit: each planned job becomes an accepted generation, once.

The intent is durable before the POST leaves, and the answer before anything relies on it. A POST is sent
again only where the verdict is that nothing happened. What an answer means (`service.verdicts`), when to send
(`limits`) and what still fits the budget (`ledger.reserve`) is decided there; here it is carried out.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from callsheet import failpoints
from callsheet.errors import (
    BalanceTooLow,
    CallsheetError,
    KeyRefused,
    RateLimit,
    Refusal,
    ServiceDown,
    ServiceError,
    Stop,
)
from callsheet.limits.turns import Turn
from callsheet.pricing import references
from callsheet.pricing.quote import policy_of
from callsheet.records import Attempt, File, Job, ModelType
from callsheet.service import verdicts
from callsheet.service.verdicts import Verdict
from callsheet.session import Run
from tasks.step import step

BLOCK = 50  # jobs that are reserved in one transaction
AHEAD = 500  # jobs that wait for their turn at once: how far images and videos may overtake each other
UNREACHABLE_TRIES = 8  # times that one job's request may fail to leave before the run stops buying
_UNSAID = (None, None, None)  # an answer without X-RateLimit-*


@step
async def submit(run: Run) -> None:
    """Buys the plan's jobs, in its order, as fast as the limits allow, until the budget's wall."""
    with run.videos.end() as videos, run.files.end() as files:
        room = asyncio.Semaphore(AHEAD)

        async def one(job: Job, attempt: Attempt) -> None:
            try:
                await _buy(run, job, attempt, videos, files)
            finally:
                room.release()

        async with anyio.create_task_group() as run.buying:
            async for job, attempt in _reserved(run):
                await room.acquire()
                run.buying.start_soon(one, job, attempt)


async def _reserved(run: Run) -> AsyncIterator[tuple[Job, Attempt]]:
    """The jobs to buy, in the plan's order, each reserved against the budget."""
    skipped, first = 0, ""
    jobs = run.plan.jobs_in_order() if run.plan else iter(())
    while not run.stop and (block := list(itertools.islice(jobs, BLOCK))):
        while block and not run.stop:
            run.settled.clear()
            reserved, block = await _reserve(run, block)
            for pair in reserved:
                yield pair
            if not block or run.settled.is_set():
                continue  # what has settled meanwhile may have made room
            if run.unsettled:
                await run.settled.wait()
            elif run.settings.budget.on_exceed == "skip":
                skipped, first = skipped + len(block), first or block[0].row_id
                break
            else:
                run.halt(_does_not_fit(run, f"row {block[0].row_id} does not fit"))
    while skipped and run.unsettled and not run.stop:
        run.settled.clear()
        await run.settled.wait()
    if skipped:
        counted = f"{skipped} job{'s' if skipped > 1 else ''}"
        run.halt(_does_not_fit(run, f"skipped {counted} (the first: row {first}): dearer than"))


def _does_not_fit(run: Run, what: str) -> Stop:
    return run.wall_stop(f"{what} what is left of the {run.wall_stop.reason}")


async def _reserve(run: Run, jobs: list[Job]) -> tuple[list[tuple[Job, Attempt]], list[Job]]:
    skip = run.settings.budget.on_exceed == "skip"
    reserved, left = await run.ledger.reserve(jobs, policy_of(run.settings), limit=run.wall, skip=skip)
    run.unsettled += len(reserved)
    return reserved, left


@dataclass(frozen=True, slots=True)
class _Again:
    """Nothing happened: try again after so many seconds. `failed` says whether that counts as a try."""

    seconds: float
    failed: bool


@dataclass(frozen=True, slots=True)
class _InDoubt:
    """It may have been bought."""


async def _buy(
    run: Run,
    job: Job,
    attempt: Attempt,
    videos: MemoryObjectSendStream[Attempt],
    files: MemoryObjectSendStream[File],
) -> None:
    """Buys one job. It ends accepted, failed or in doubt; or planned as before, when buying stops first."""
    tries = 1
    try:
        body = await references.fill(job, endpoint_url=run.settings.storage.endpoint_url)
    except CallsheetError as error:
        run.halt(error)
        return
    while True:
        while run.late():  # noqa: ASYNC110 - it is the passing of time that ends it, not an event
            await anyio.sleep(1)
        async with run.limits.turn(job.type) as turn, run.breaker.passing():
            if run.breaker.given_up_on:
                run.halt(
                    ServiceDown("the service fails for every job", hint="The same command goes on later.")
                )
            if run.stop:
                turn.unsent()
                return
            if run.late():  # the turn may have been long in coming
                turn.unsent()
                continue
            with anyio.CancelScope(shield=True):  # what is on the wire still gets its answer
                outcome = await _send(run, attempt, body, turn, tries)
        if isinstance(outcome, Attempt | list):
            await _hand_on(outcome, videos, files)
        if isinstance(outcome, Attempt):
            return  # poll settles it
        if isinstance(outcome, _Again):
            tries += outcome.failed
            await anyio.sleep(outcome.seconds)
            continue
        run.settle()
        if not isinstance(outcome, _InDoubt) or run.settings.on_doubt != "retry":
            return
        again, _ = await _reserve(run, [job])
        if not again:
            return
        attempt = again[0][1]


async def _hand_on(
    bought: Attempt | list[File],
    videos: MemoryObjectSendStream[Attempt],
    files: MemoryObjectSendStream[File],
) -> None:
    """Gives what is bought to the next step, also when buying has just stopped."""
    with anyio.CancelScope(shield=True):
        if isinstance(bought, Attempt):
            await videos.send(bought)
        else:
            for file in bought:
                await files.send(file)


async def _send(
    run: Run, attempt: Attempt, body: Mapping[str, Any], turn: Turn, tries: int
) -> Attempt | list[File] | _Again | _InDoubt | None:
    """Sends one POST. None means that the job has failed for good."""
    await run.ledger.intend(attempt)
    failpoints.passed("before submit")
    try:
        if attempt.type is ModelType.VIDEO:
            accepted = await run.client.create_video(body)
        else:
            answered = await run.client.create_image(body)
    except ServiceError as error:
        return await _not_bought(run, attempt, error, turn, tries)
    failpoints.passed("after submit")
    run.breaker.worked()
    if attempt.type is ModelType.VIDEO:
        turn.answered(*(accepted.rate or _UNSAID))
        turn.keep()
        await run.ledger.pending(attempt, accepted.value.id)
        return replace(attempt, generation_id=accepted.value.id)
    turn.answered(*(answered.rate or _UNSAID))
    return await run.keep(attempt, answered.value)


async def _not_bought(
    run: Run, attempt: Attempt, error: ServiceError, turn: Turn, tries: int
) -> _Again | _InDoubt | None:
    """Carries out the verdict on a POST that was not accepted."""
    if isinstance(error, Refusal):
        turn.answered(*(error.rate or _UNSAID))
    verdict = verdicts.submit(error)
    if verdict is Verdict.IN_DOUBT:
        await run.ledger.doubt(attempt, str(error))
        return _InDoubt()
    if verdict is Verdict.REFUSED or (verdict is Verdict.SAYS_NO and tries >= run.settings.attempts):
        if verdict is Verdict.SAYS_NO:
            run.breaker.given_up()
        code = error.code if isinstance(error, Refusal) else "server_error"
        await run.ledger.failed(attempt, code, str(error))
        return None
    await run.ledger.release(attempt)
    match verdict:
        case Verdict.WINDOW_FULL if isinstance(error, RateLimit) and error.retry_after is not None:
            turn.window_full(error.retry_after)
            return _Again(0, failed=False)
        case Verdict.LANES_FULL:
            turn.lanes_full()
            return _Again(0, failed=False)
        case Verdict.STOP_KEY:
            run.halt(KeyRefused(str(error), hint=error.hint))
        case Verdict.STOP_BALANCE:
            run.halt(BalanceTooLow(str(error), hint=error.hint))
        case Verdict.NOT_SENT:
            turn.unsent()
            if tries >= UNREACHABLE_TRIES:
                run.halt(error)
    return _Again(verdicts.backoff(tries, run.jitter), failed=True)
