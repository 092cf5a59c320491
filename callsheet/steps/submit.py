"""Submit: each planned job becomes an accepted generation, once.

The intent is durable before the POST leaves, and the answer before anything relies on it. A POST is sent
again only where the verdict is that nothing happened. What an answer means (`service.verdicts`), when to send
(`limits`) and what still fits the budget (`ledger.reserve`) is decided there; here it is carried out.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from callsheet import failpoints
from callsheet.errors import (
    BalanceTooLow,
    BudgetReached,
    InputError,
    KeyRefused,
    MaybeSent,
    PriceChanged,
    Refusal,
    ServiceError,
    Stop,
)
from callsheet.ledger.budgets import Wall
from callsheet.ledger.claims import Reservation
from callsheet.limits.turns import Turn
from callsheet.plain_text import counted, printable
from callsheet.pricing import references
from callsheet.pricing.quote import policy_of
from callsheet.pricing.rates import changed_rates
from callsheet.records import Attempt, File, Job, ModelType, State
from callsheet.service import verdicts
from callsheet.service.verdicts import Verdict
from callsheet.session import Run
from callsheet.steps.takeover import TakeOver

BLOCK = 50  # jobs that are reserved in one transaction
AHEAD = 200  # reserved jobs of a type that wait for their turn at once; another run cannot buy them


async def submit(run: Run) -> None:
    """Buys the plan's jobs as fast as the limits allow, in the file's order, until the budget's wall."""
    with run.videos.end() as videos, run.files.end() as files, run.buying:
        buyer, take_over = _Buyer(run, videos, files), TakeOver(run, videos, files)
        more = run.quote is not None
        while more:
            async with anyio.create_task_group() as watching:
                watching.start_soon(take_over.again_and_again)
                async with anyio.create_task_group() as group:
                    for jobs in _sequences(run):
                        group.start_soon(buyer.buy_all, jobs)
                watching.cancel_scope.cancel()
            more = await take_over.has_freed_jobs()
    if run.left_by_gateway:
        run.halt(run.left_by_gateway)
    if isinstance(run.stop, PriceChanged):
        run.stop = await _with_listed_prices(run, run.stop)


async def _with_listed_prices(run: Run, stop: PriceChanged) -> PriceChanged:
    """The stop, with what the catalogue lists now next to what was quoted and charged."""
    assert run.quote is not None  # noqa: S101 - nothing is bought without a quote
    try:
        catalogue = await run.client.models()
    except ServiceError:
        return stop
    changes = changed_rates(run.quote.plan.catalogue, catalogue, run.quote.models)
    listed = ["the catalogue has changed", *changes[:3]] if changes else ["the catalogue is the same"]
    return PriceChanged(printable("; ".join([stop.message, *listed])), hint=stop.hint)


def _sequences(run: Run) -> list[Callable[[], Iterator[Job]]]:
    """What is to be bought, each sequence in the file's order.

    Where the whole plan fits the budget, images and videos are sequences of their own, so that neither waits
    for the other's limits. Where it does not, the file's order says what is bought.
    """
    quote = run.quote
    assert quote is not None  # noqa: S101 - nothing is bought without a quote
    if quote.fits < quote.to_buy:
        return [quote.jobs_in_order]
    first = next(quote.jobs_in_order(), None)
    types = sorted(ModelType, key=lambda model_type: first is not None and model_type is not first.type)
    return [partial(quote.jobs_in_order, model_type) for model_type in types]


@dataclass(frozen=True, slots=True)
class _Bought:
    """Accepted: a video to poll, or the files of an image."""

    video: Attempt | None = None
    files: Sequence[File] = ()


@dataclass(frozen=True, slots=True)
class _Again:
    """Nothing happened: try again after so many seconds."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Failed:
    """The service refused it for good."""


@dataclass(frozen=True, slots=True)
class _InDoubt:
    """It may have been bought."""


@dataclass(frozen=True, slots=True)
class _NoRoom:
    """It does not fit the budget any more, and is no longer reserved."""


@dataclass(frozen=True, slots=True)
class _Stopped:
    """Buying has ended; the job stays as it was."""


@dataclass(frozen=True, slots=True)
class _Left:
    """A gateway always refuses it; the job stays planned, for another run."""


@dataclass(slots=True)
class _Tries:
    """What has become of a job so far: refusals of the service's own, of a gateway, and how often it waited.

    A 429 and a request that could not leave are none of its tries.
    """

    failed: int = 0
    by_gateway: int = 0
    waits: int = 0


_Outcome = _Bought | _Again | _Failed | _InDoubt | _NoRoom | _Stopped | _Left


class _Buyer:
    """Buys the jobs of one run and hands on what was accepted."""

    def __init__(
        self, run: Run, videos: MemoryObjectSendStream[Attempt], files: MemoryObjectSendStream[File]
    ) -> None:
        self._run = run
        self._videos = videos
        self._files = files
        self._room = {model_type: asyncio.Semaphore(AHEAD) for model_type in ModelType}

    async def buy_all(self, jobs: Callable[[], Iterator[Job]]) -> None:
        """Buys a sequence of jobs; ends when each is accepted, failed or in doubt, or when buying stops.

        Those that no longer fitted the budget when it was their turn are reserved again, after the others.
        """
        waiting: Iterable[Job] = jobs()
        while waiting:
            without_room: list[Job] = []
            async with anyio.create_task_group() as group:
                async for job, attempt in _reserved(self._run, waiting):
                    await self._room[job.type].acquire()
                    group.start_soon(self._buy, job, attempt, without_room)
            waiting = without_room

    async def _buy(self, job: Job, attempt: Attempt, without_room: list[Job]) -> None:
        try:
            while True:
                outcome = await self._until_it_ends(job, attempt)
                await self._hand_on(outcome)
                if isinstance(outcome, _NoRoom):
                    without_room.append(job)
                if not isinstance(outcome, _Bought) or outcome.video is None:  # a video's end is the poll's
                    self._run.open_jobs.end()
                self._run.tried[job.type] += isinstance(outcome, _Bought | _Failed)
                if not isinstance(outcome, _InDoubt):
                    return
                again = (await _reserve(self._run, [job])).reserved  # where `on_doubt` allows another attempt
                if not again:
                    self._run.tried[job.type] += 1
                    return
                attempt = again[0][1]
        finally:
            self._room[job.type].release()

    async def _until_it_ends(self, job: Job, attempt: Attempt) -> _Outcome:
        tries = _Tries()
        while True:
            outcome = await self._try(job, attempt, tries)
            if not isinstance(outcome, _Again):
                return outcome
            await anyio.sleep(outcome.seconds)

    async def _try(self, job: Job, attempt: Attempt, tries: _Tries) -> _Outcome:
        """Waits for the job's turn and sends it once."""
        run = self._run
        while run.downloads.late():  # noqa: ASYNC110 - it is the passing of time that ends it, not an event
            await anyio.sleep(1)
        outcome: _Outcome = _Stopped()
        async with run.limits.turn(job.type) as turn, run.breaker.passing():
            if run.breaker.stop:
                run.halt(run.breaker.stop)
            if not run.stop and run.downloads.late():  # the turn may have been long in coming
                outcome = _Again()
            elif not run.stop:
                outcome = await _filled_and_sent(run, job, attempt, turn, tries)
        return outcome

    async def _hand_on(self, outcome: _Outcome) -> None:
        """Gives what is bought to the next step."""
        if not isinstance(outcome, _Bought):
            return
        if outcome.video:
            await self._run.hand_on(self._videos, outcome.video)
        for file in outcome.files:
            await self._run.hand_on(self._files, file)


def _reserved(run: Run, jobs: Iterable[Job]) -> AsyncIterator[tuple[Job, Attempt]]:
    """The jobs of a sequence that are to be bought, in its order, each reserved against the budget."""
    return (_all_that_fit if run.settings.budget.on_exceed == "skip" else _in_order)(run, jobs)


async def _in_order(run: Run, jobs: Iterable[Job]) -> AsyncIterator[tuple[Job, Attempt]]:
    """Up to the first job that does not fit; it waits for those under way, of which one may fail."""
    rest, left = iter(jobs), list[Job]()
    while not run.stop and (block := left or list(itertools.islice(rest, BLOCK))):
        ended = run.open_jobs.ended
        result = await _reserve(run, block)
        for pair in result.reserved:
            yield pair
        left = result.left
        if left and run.open_jobs.ended == ended and not await run.open_jobs.next_end():
            run.halt(_does_not_fit(run, result.wall, f"row {left[0].row_id} does not fit"))


async def _all_that_fit(run: Run, jobs: Iterable[Job]) -> AsyncIterator[tuple[Job, Attempt]]:
    """All that fit; the others are looked at again when those under way have ended."""
    while not run.stop:
        ended, left, wall, rest = run.open_jobs.ended, list[Job](), None, iter(jobs)
        while not run.stop and (block := list(itertools.islice(rest, BLOCK))):
            result = await _reserve(run, block)
            for pair in result.reserved:
                yield pair
            left, wall = left + result.left, wall or result.wall
        if not left or run.stop:
            return
        while await run.open_jobs.next_end():
            pass
        if run.open_jobs.ended == ended:
            first = f"(the first: row {left[0].row_id})"
            what = f"skipped {counted(len(left), 'job')} {first}: they cost more than"
            run.halt(_does_not_fit(run, wall, what))
        jobs = left


def _does_not_fit(run: Run, wall: Wall | None, what: str) -> Stop:
    if wall is Wall.DAY:
        hint = "The same command goes on after midnight UTC, or with a higher budget.per_day."
        return BudgetReached(f"{what} what is left of budget.per_day for today", hint=hint)
    assert run.quote is not None  # noqa: S101 - nothing is bought without a quote
    _, stop = run.quote.exposure_limit
    return stop(f"{what} what is left of the {stop.reason}")


async def _reserve(run: Run, jobs: list[Job]) -> Reservation:
    assert run.quote is not None  # noqa: S101 - nothing is bought without a quote
    budget = run.settings.budget
    result = await run.ledger.reserve(
        jobs,
        policy_of(run.settings),
        limit=run.quote.exposure_limit[0],
        per_day=budget.per_day,
        skip=budget.on_exceed == "skip",
    )
    run.open_jobs.begin(len(result.reserved))
    return result


async def _filled_and_sent(run: Run, job: Job, attempt: Attempt, turn: Turn, tries: _Tries) -> _Outcome:
    """Puts the reference images into the request, and sends it."""
    outcome: _Outcome = _Stopped()
    try:
        body = await references.fill(job, endpoint_url=run.settings.storage.endpoint_url)
        with anyio.CancelScope(shield=True):  # an answer is recorded, whatever happens meanwhile
            outcome = await _send(run, attempt, body, turn, tries)
    except InputError as error:  # of an image
        run.halt(error)
    return outcome


async def _send(run: Run, attempt: Attempt, body: Mapping[str, Any], turn: Turn, tries: _Tries) -> _Outcome:
    """Sends one POST, and makes its answer durable."""
    if kept_back := await _kept_back(run, attempt):
        return kept_back
    turn.leaves()
    failpoints.passed("before submit")
    try:
        with run.unless_ended() as request:
            if attempt.type is ModelType.VIDEO:
                accepted = await run.client.create_video(body)
            else:
                answered = await run.client.create_image(body)
    except ServiceError as error:
        return await _not_accepted(run, attempt, error, turn, tries)
    if request.cancelled_caught:  # in doubt: it stays as it was, and the next run says so
        return _Stopped()
    failpoints.passed("after submit")
    run.breaker.accepted()
    turn.accepted()
    if attempt.type is ModelType.VIDEO:
        turn.answered(accepted.rate)
        if same := await run.ledger.pending(attempt, accepted.value.id):
            run.doubts(attempt, same.what)
            return _InDoubt()
        turn.keep()
        run.tell(attempt, State.PENDING, accepted.value.id)
        return _Bought(video=replace(attempt, generation_id=accepted.value.id))
    turn.answered(answered.rate)
    files = await run.keep(attempt, answered.value)
    return _InDoubt() if files is None else _Bought(files=files)


async def _kept_back(run: Run, attempt: Attempt) -> _NoRoom | _Stopped | None:
    """Records the intent to send a job; or says why it must not leave."""
    quote, charges = run.quote, run.charges
    assert quote is not None and charges is not None  # noqa: S101 - nothing is bought without them
    charges.sends(attempt)
    if charges.stop:
        run.halt(charges.stop)
        return _Stopped()
    limit, per_day = quote.exposure_limit[0], quote.budget.per_day
    if await run.ledger.intend(attempt, limit=limit, per_day=per_day, rates=run.rates):
        charges.is_free(attempt)
        return _NoRoom()
    if run.ended:
        await run.ledger.release(attempt)
        return _Stopped()
    return None


async def _not_accepted(
    run: Run, attempt: Attempt, error: ServiceError, turn: Turn, tries: _Tries
) -> _Again | _Failed | _InDoubt | _Left:
    """Carries out the verdict on a POST that was not accepted."""
    assert run.charges is not None  # noqa: S101 - something is bought
    if isinstance(error, Refusal):
        turn.answered(error.rate)
    verdict = verdicts.submit(error)
    told = (error.retry_after if isinstance(error, Refusal) else None) or 0.0
    tries.failed += verdict is Verdict.SAYS_NO
    tries.by_gateway += verdict is Verdict.GATEWAY
    if verdict is Verdict.IN_DOUBT:
        if isinstance(error, MaybeSent):
            attempt = replace(attempt, generation_id=error.generation_id)
        await run.ledger.doubt(attempt, str(error))
        run.doubts(attempt, str(error))
        return _InDoubt()
    if verdict is Verdict.REFUSED or (verdict is Verdict.SAYS_NO and tries.failed >= run.settings.attempts):
        run.breaker.wrong("failure", str(error)) if verdict is Verdict.SAYS_NO else run.breaker.accepted()
        code = error.code if isinstance(error, Refusal) else "server_error"
        await run.ledger.failed(attempt, code, str(error))
        run.charges.is_free(attempt)
        run.tell(attempt, State.FAILED, str(error))
        return _Failed()
    if verdict is Verdict.WINDOW_FULL:
        turn.window_full(told)
    elif verdict is Verdict.LANES_FULL:
        turn.lanes_full()  # told before the ledger: until then requests leave that will be refused too
    await run.ledger.release(attempt)
    run.charges.is_free(attempt)
    match verdict:
        case Verdict.WINDOW_FULL | Verdict.LANES_FULL:
            return _Again()
        case Verdict.STOP_KEY:
            run.halt(KeyRefused(str(error), hint=error.hint))
        case Verdict.STOP_BALANCE:
            run.halt(BalanceTooLow(str(error), hint=error.hint))
        case Verdict.NOT_SENT:
            turn.unsent()
            run.breaker.wrong("unsent", str(error))
        case Verdict.GATEWAY:
            run.breaker.wrong("gateway", str(error), hint=error.hint, told=told)
            if tries.by_gateway >= run.settings.attempts:  # others are accepted, or the breaker ends it first
                run.left_by_gateway = run.left_by_gateway or error
                return _Left()
    tries.waits += 1
    return _Again(max(told, run.client.backoff(tries.waits)))
