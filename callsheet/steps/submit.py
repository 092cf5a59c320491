"""Submit: each planned job becomes an accepted generation, once.

The intent is durable before the POST leaves, and the answer before anything relies on it. A POST is sent
again only where the verdict is that nothing happened. What an answer means (`service.verdicts`), when to send
(`limits`) and what still fits the budget (`ledger.reserve`) is decided there; here it is carried out.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from enum import Enum, auto
from functools import partial
from typing import Any

import anyio

from callsheet import failpoints
from callsheet.errors import (
    CallsheetError,
    InputError,
    LedgerError,
    PriceChanged,
    Refusal,
    ServiceDown,
    ServiceError,
    Stop,
)
from callsheet.ledger import gate, leases, queries, states
from callsheet.ledger.gate import Obstacle, Reservation
from callsheet.ledger.queries import policy_of
from callsheet.ledger.states import End
from callsheet.limits.limits import Turn
from callsheet.plain_text import counted, printable
from callsheet.pricing import references
from callsheet.pricing.quote import Quote
from callsheet.pricing.rates import changed_rates
from callsheet.pricing.references import reading_of
from callsheet.records import Attempt, Job, ModelType, State, dollars
from callsheet.service import verdicts
from callsheet.service.verdicts import Verdict
from callsheet.session import Run
from callsheet.steps.download import keep
from callsheet.watch import WATCHER

BLOCK = 50  # jobs that are reserved in one transaction
AHEAD = 200  # reserved jobs of a type that wait for their turn at once; another run cannot buy them


_TOLD = 5  # jobs without their image of which a person is told at once; the summary counts all


async def submit(run: Run) -> None:
    """Buys the plan's jobs as fast as the limits allow, in the file's order, until the budget's wall."""
    with run.videos.filling(), run.files.filling():
        with run.buying:
            await _buy(run)
        if isinstance(run.stop, PriceChanged):
            run.stop = await _with_listed_prices(run, run.stop)


async def _buy(run: Run) -> None:
    async def take_over_again_and_again() -> None:
        while True:
            await anyio.sleep(run.ledger.lease / 8)
            await _take_over(run)

    buyer = _Buyer(run)
    free = 0  # jobs that were free when all had been tried
    while True:
        async with anyio.create_task_group() as watching:
            watching.start_soon(take_over_again_and_again)
            await buyer.buy()
            watching.cancel_scope.cancel()
        if run.stop or run.asks_anew:
            break
        await _take_over(run)
        free_before, free = free, await run.ledger.read(queries.free_jobs)
        if free in (0, free_before):  # others have left nothing that this run can buy
            break
    for stop in (*run.breaker.stopped().values(), buyer.left_by_gateway):
        if stop:
            run.halt(stop)


async def _take_over(run: Run) -> None:
    """Goes on with what runs of the batch have left that have died since this one began."""
    if await run.ledger.read(leases.have_left_work):
        with run.unless_ended():
            run.take_up(*await run.ledger.take_over())


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


class _End(Enum):
    """What has become of a job that was reserved."""

    BOUGHT = auto()
    FAILED = auto()
    IN_DOUBT = auto()
    NO_ROOM = auto()  # it does not fit the budget any more, and is no longer reserved
    LEFT = auto()  # as it was: the buying has ended, a gateway always refuses the job, or an image is missing


class _Buyer:
    """Buys the jobs of one run. What is bought is given to the next step."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rates = self._quote.rates()
        self._room = {model_type: asyncio.Semaphore(AHEAD) for model_type in ModelType}
        self._skips = run.settings.budget.on_exceed == "skip"
        self.left_by_gateway: CallsheetError | None = None  # the answer that a job got whenever it was sent
        self._told: set[str] = set()  # models that are stopped, of which a person knows

    @property
    def _quote(self) -> Quote:
        """What is bought: with another budget once a person has changed it."""
        assert self._run.quote is not None  # noqa: S101 - there is something to buy
        return self._run.quote

    async def buy(self) -> None:
        """Buys all that is to be bought; ends when each job has ended here, or when buying stops.

        Where the whole plan fits the budget, images and videos are bought side by side, so that neither waits
        for the other's limits. Where it does not, the file's order says what is bought.
        """
        in_order = self._quote.jobs_in_order
        if self._quote.fits < self._quote.to_buy:
            await self._buy_all(in_order)
            return
        first = next(in_order(), None)
        types = sorted(ModelType, key=lambda model_type: first is not None and model_type is not first.type)
        async with anyio.create_task_group() as group:
            for model_type in types:
                group.start_soon(self._buy_all, partial(in_order, model_type))

    async def _buy_all(self, jobs: Callable[[], Iterator[Job]]) -> None:
        """Buys jobs in their order. Those that lose their room are reserved again, after the others."""
        waiting: Iterable[Job] = jobs()
        while waiting:
            without_room: list[Job] = []
            async with anyio.create_task_group() as group:
                async for job, attempt in self._reserved(waiting):
                    await self._room[job.type].acquire()
                    group.start_soon(self._buy, job, attempt, without_room)
            waiting = without_room

    async def _reserved(self, jobs: Iterable[Job]) -> AsyncIterator[tuple[Job, Attempt]]:
        """The jobs, in their order, each reserved against the budget.

        Jobs under way may fail or cost less. So the first one that does not fit waits until one of them has
        ended, and nothing goes past it; with `on_exceed: skip` the others are reserved before it waits, and
        all those that do not fit wait for all that are under way.
        """
        run = self._run
        queue: Iterator[Job] = (job for job in jobs if not run.breaker.of(job.model).stop)
        while True:
            ended, left, short = run.open_jobs.ended, list[Job](), Reservation()
            while not run.stop and (self._skips or not left) and (block := [*itertools.islice(queue, BLOCK)]):
                result = await self._reserve(block)
                for pair in result.reserved:
                    yield pair
                left, short = left + result.left, short if short.obstacle else result
            if run.stop or not left:
                return
            if self._skips:
                while await run.open_jobs.next_end():
                    pass
            elif run.open_jobs.ended == ended:
                await run.open_jobs.next_end()
            if run.open_jobs.ended == ended:
                if short.obstacle is Obstacle.ALLOWED:
                    run.asks_anew = True
                else:
                    run.halt(await self._does_not_fit(left, short))
                return
            queue = itertools.chain(left, queue)

    async def _does_not_fit(self, left: list[Job], short: Reservation) -> Stop:
        first = f"row {left[0].row_id}, {dollars(left[0].quoted)} USD"
        does_not_fit = f"{first}, does not fit"
        if self._skips:
            does_not_fit = f"skipped {counted(len(left), 'job')} (the first: {first}), which cost more than"
        assert short.obstacle  # noqa: S101 - something is left
        return await self._stop_at(short.obstacle, does_not_fit, short.remaining)

    async def _stop_at(self, obstacle: Obstacle, does_not_fit: str = "", left: Decimal = Decimal(0)) -> Stop:
        run, budget = self._run, self._quote.budget
        basis = await run.ledger.read(gate.said, run.buyer(self._quote), budget.limit)
        return gate.stop_at(obstacle, does_not_fit, left, budget, basis)

    async def _reserve(self, jobs: list[Job]) -> Reservation:
        policy = policy_of(self._run.settings)
        buyer = self._run.buyer(self._quote)
        result = await self._run.ledger.reserve(jobs, policy, buyer, skip=self._skips)
        self._run.open_jobs.begin(len(result.reserved))
        return result

    async def _buy(self, job: Job, attempt: Attempt, without_room: list[Job]) -> None:
        """Sends a job until it has ended; where `on_doubt` allows another attempt, also that."""
        run = self._run
        try:
            while True:
                tries: Counter[Verdict] = Counter()  # without 429s
                while not isinstance(end := await self._try(job, attempt, tries), _End):  # noqa: ASYNC110 - it backs off
                    await anyio.sleep(end)
                if end is _End.NO_ROOM:
                    without_room.append(job)
                if end is not _End.BOUGHT or job.type is ModelType.IMAGE:  # a video's end is the poll's
                    run.open_jobs.end()
                again = (await self._reserve([job])).reserved if end is _End.IN_DOUBT else []
                if not again:
                    run.tried[job.type] += end in (_End.BOUGHT, _End.FAILED, _End.IN_DOUBT)
                    return
                attempt = again[0][1]
        finally:
            self._room[job.type].release()

    async def _try(self, job: Job, attempt: Attempt, tries: Counter[Verdict]) -> _End | float:
        """Waits for the job's turn and sends it once; returns its end, or seconds until the next try."""
        run = self._run
        while run.downloads.late():  # noqa: ASYNC110 - it is the passing of time that ends it, not an event
            await anyio.sleep(1)
        await run.may_buy.wait()
        outcome: _End | float = _End.LEFT
        breaker = run.breaker.of(job.model)
        if breaker.stop:  # of this model nothing more is bought
            await run.ledger.transition(leases.free, attempt)
            return outcome
        async with run.limits.turn(job.type) as turn, breaker.passing():
            if run.breaker.stop:
                run.halt(run.breaker.stop)
            if run.stop:
                return outcome
            if breaker.stop:  # the other models go on, if there are others
                if {*self._quote.models} <= run.breaker.stopped().keys():
                    run.halt(breaker.stop)
                elif job.model not in self._told:
                    self._told.add(job.model)
                    note = f"of {job.model} nothing more is bought, of the other models it is: {breaker.stop}"
                    WATCHER.get().note(note)
                return 0.0
            if run.downloads.late() or not run.may_buy.is_set():  # the turn may have been long in coming
                return 0.0
            try:
                body = await references.fill(job, reading=reading_of(run.settings))
            except InputError as error:  # of an image
                await self._has_no_image(attempt, error)
                return outcome
            with anyio.CancelScope(shield=True):  # an answer is recorded, whatever happens meanwhile
                outcome = await self._send(job, attempt, body, turn, tries)
        if outcome is _End.BOUGHT and run.refused:
            run.refused = ""
            await run.ledger.write(leases.is_refused, run.ledger.run_id, "")
        return outcome

    async def _has_no_image(self, attempt: Attempt, error: InputError) -> None:
        """An image of a job is gone, or has changed, since it was priced: the job is not sent."""
        run = self._run
        await run.ledger.transition(leases.free, attempt)
        if attempt.job_key not in run.without_image:
            run.without_image[attempt.job_key] = error
            if len(run.without_image) <= _TOLD:
                WATCHER.get().note(f"not bought: {error}")

    async def _send(
        self, job: Job, attempt: Attempt, body: Mapping[str, Any], turn: Turn, tries: Counter[Verdict]
    ) -> _End | float:
        """Sends one POST, and makes its answer durable."""
        run = self._run
        if kept_back := await self._kept_back(attempt):
            return kept_back
        turn.leaves()
        failpoints.passed("before submit")
        try:
            with run.unless_ended() as request:
                if attempt.type is ModelType.VIDEO:
                    video_id, rate = await run.client.create_video(body)
                else:
                    image, rate = await run.client.create_image(body)
        except ServiceError as error:
            return await self._not_accepted(attempt, error, turn, tries)
        if request.cancelled_caught:
            with suppress(LedgerError):  # it stays as it was, and the next run says that it is in doubt
                await run.ledger.transition(states.in_doubt, End(attempt, leases.NO_ANSWER))
                run.tell(attempt, State.IN_DOUBT, leases.NO_ANSWER)
            return _End.LEFT
        failpoints.passed("after submit")
        run.breaker.of(attempt.model).accepted()
        turn.answered(rate)
        if attempt.type is ModelType.IMAGE:
            is_own = await keep(run, attempt, image, job.carried)
            return _End.BOUGHT if is_own else _End.IN_DOUBT
        if same_generation := await run.ledger.pending(attempt, video_id):
            run.doubts(attempt, same_generation.what)
            return _End.IN_DOUBT
        turn.keep()
        run.knows_videos = True
        run.tell(attempt, State.PENDING, video_id)
        run.videos.put(replace(attempt, generation_id=video_id))
        return _End.BOUGHT

    async def _refused(self, reason: str) -> None:
        """Submissions are answered 429: says so where that goes on, and ends the buying after `patience`."""
        run, seconds = self._run, self._run.limits.refused_for()
        if seconds >= run.settings.limits.patience:
            message = f"for {seconds:.0f} s the service has refused every submission: {reason}"
            hint = "The quota of the key may be used up. The same command goes on later (limits.patience)."
            run.halt(ServiceDown(message, hint=hint))
        elif seconds >= run.bounds.refusals and reason != run.refused:
            if not run.refused:
                WATCHER.get().note(f"the service refuses every submission, and the run waits: {reason}")
            run.refused = reason
            await run.ledger.write(leases.is_refused, run.ledger.run_id, reason)

    async def _kept_back(self, attempt: Attempt) -> _End | None:
        """Records the intent to send a job; or says why it must not leave."""
        run = self._run
        obstacle = await run.ledger.intend(attempt, run.buyer(self._quote), self._rates)
        if obstacle in (Obstacle.PRICE, Obstacle.QUESTION):
            run.halt(await self._stop_at(obstacle))
            return _End.LEFT
        if obstacle:
            return _End.NO_ROOM
        if run.ended:
            await run.ledger.transition(states.release, attempt)
            return _End.LEFT
        return None

    async def _not_accepted(
        self, attempt: Attempt, error: ServiceError, turn: Turn, tries: Counter[Verdict]
    ) -> _End | float:
        """Carries out the verdict on a POST that was not accepted."""
        run, reason, max_attempts = self._run, str(error), self._run.settings.attempts
        breaker = run.breaker.of(attempt.model)
        if error.rate:  # otherwise it may be a gateway's word
            turn.answered(error.rate)
        verdict = verdicts.submit(error)
        retry_after = error.retry_after or 0.0
        if verdict is Verdict.IN_DOUBT:
            attempt = replace(attempt, generation_id=error.generation_id)
            await run.ledger.transition(states.in_doubt, End(attempt, reason))
            run.doubts(attempt, reason)
            return _End.IN_DOUBT
        if verdict is Verdict.WINDOW_FULL:
            turn.window_full(retry_after)
        elif verdict is Verdict.LANES_FULL:
            turn.lanes_full()  # told before the ledger: until then requests leave that will be refused too
        else:
            tries[verdict] += 1
        if verdict is Verdict.REFUSED or tries[Verdict.SAYS_NO] >= max_attempts:
            breaker.wrong("failure", reason) if verdict is Verdict.SAYS_NO else breaker.accepted()
            code = error.code if isinstance(error, Refusal) else "server_error"
            await run.ledger.transition(states.failed, End(attempt, reason, code))
            run.tell(attempt, State.FAILED, reason)
            return _End.FAILED
        await run.ledger.transition(states.release, attempt)
        match verdict:
            case Verdict.WINDOW_FULL | Verdict.LANES_FULL:
                await self._refused(reason)
                return 0.0
            case Verdict.STOP_KEY | Verdict.STOP_BALANCE:
                run.halt(error)
            case Verdict.NOT_SENT:
                turn.unsent()
                breaker.wrong("unsent", reason)
            case Verdict.GATEWAY:
                breaker.wrong("gateway", reason, hint=error.hint, retry_after=retry_after)
                if tries[verdict] >= max_attempts:  # others are accepted, or the breaker ends it first
                    self.left_by_gateway = self.left_by_gateway or error
                    return _End.LEFT
        return max(retry_after, run.client.backoff(tries.total()))
