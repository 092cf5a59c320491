"""Submit: each planned job becomes an accepted generation, once.

`_Submitter._buy_in_order` is the loop: it reserves a few jobs, and sends each in its turn. A job that loses
its room comes back into the queue that the loop reads. Around it, `_buy` has the jobs tried once more that
runs have left which died meanwhile.

The intent is durable before the POST leaves, and the answer before anything relies on it. A POST is sent
again only where the verdict is that nothing happened, and with `on_doubt: retry` in doubt. What an answer
means (`service.verdicts`), when to send (`limits`) and what may leave (`gate.py`, by `ledger.reserve` and
`ledger.intend`) is decided there; here it is carried out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from heapq import heappop, heappush
from itertools import islice
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
from callsheet.ledger.gate import Basis, Obstacle, Reservation
from callsheet.ledger.policy import policy_of
from callsheet.ledger.states import End
from callsheet.limits.breaker import Breaker
from callsheet.limits.limits import Turn
from callsheet.present import reasons, under_way
from callsheet.pricing import references
from callsheet.pricing.quote import Quote
from callsheet.pricing.rates import changed_rates
from callsheet.pricing.references import reading_of
from callsheet.records import Attempt, Generation, Job, ModelType, State
from callsheet.service import verdicts
from callsheet.service.verdicts import Verdict
from callsheet.session import Run
from callsheet.steps.download import record_generation
from callsheet.watch import WATCHER

BLOCK = 50  # jobs that are reserved in one transaction
AHEAD = 200  # reserved jobs of a type that wait for their turn at once; another run cannot buy them
_TOLD = 5  # jobs without their image of which a person is told at once; the summary counts all


async def submit(run: Run) -> None:
    """Buys what is quoted as fast as the limits allow, until all of it is tried or the buying stops."""
    with run.videos.filling(), run.files.filling():
        with run.buying:
            await _buy(run)
        if isinstance(run.stop, PriceChanged):
            # The same stop in more words; `halt` would keep the first ones.
            run.stop = await _with_listed_prices(run, run.stop)


async def _buy(run: Run) -> None:
    """Buys what is quoted, and what of it other runs had reserved which die meanwhile."""

    async def take_over_again_and_again() -> None:
        while True:
            await anyio.sleep(run.ledger.lease / 8)
            await _take_over(run)

    submitter = _Submitter(run)
    free = 0  # jobs that were free when all had been tried
    while True:
        async with anyio.create_task_group() as watching:
            watching.start_soon(take_over_again_and_again)
            await submitter.buy()
            watching.cancel_scope.cancel()
        if run.stop or run.asks_anew:
            break
        await _take_over(run)
        free_before, free = free, await run.ledger.read(queries.free_jobs)
        if free in (0, free_before):  # others have left nothing that this run can buy
            break
    for stop in (*run.breaker.stopped().values(), submitter.left_by_gateway):
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
    return reasons.with_listed_rates(stop, changes)


class _Queue:
    """The jobs that are still to try, in the file's order: one that comes back has its old place in it.

    Attributes:
        came_back: with their places, those that were taken and are to be taken again; a heap.
    """

    def __init__(self, jobs: Iterator[Job], breaker: Breaker) -> None:
        self._jobs = enumerate(jobs)
        self.came_back: list[tuple[int, Job]] = []
        self._breaker = breaker

    def take(self) -> dict[str, tuple[int, Job]]:
        """The next few jobs by key, each with its place; none where all are taken.

        Those of a model of which nothing more is bought are left out.
        """
        block: dict[str, tuple[int, Job]] = {}
        while len(block) < BLOCK and (
            placed_job := heappop(self.came_back) if self.came_back else next(self._jobs, None)
        ):
            _, job = placed_job
            if not self._breaker.of(job.model).stop:
                block[job.key] = placed_job
        return block

    def put_back(self, place: int, job: Job) -> None:
        """A job that was taken is to be taken again."""
        heappush(self.came_back, (place, job))


class _Outcome(Enum):
    """What has become of a job that was reserved."""

    ACCEPTED = auto()  # bought: paid for, or a video that is being made
    FAILED = auto()  # refused, or failed, for good
    IN_DOUBT = auto()  # sent, and no answer says whether it was accepted
    NO_ROOM = auto()  # not sent: it does not fit the budget any more, and is not reserved any more
    LEFT = auto()  # for a later run: buying ends, also of its model; a gateway refuses it; no image


@dataclass(frozen=True, slots=True)
class _Again:
    """Nothing has happened: the job is to be sent again, after so many seconds."""

    seconds: float = 0.0


class _Submitter:
    """Buys the jobs of one portion of a run. What is bought is given to the next step."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rates = self._quote.rates()
        self._room_ahead = {model_type: asyncio.Semaphore(AHEAD) for model_type in ModelType}
        self._skips = run.settings.budget.on_exceed == "skip"
        self._policy = policy_of(run.settings, run.ledger.run_id)
        self.left_by_gateway: CallsheetError | None = None  # the answer that a job got whenever it was sent
        self._told: set[str] = set()  # models that are stopped, of which a person knows

    @property
    def _quote(self) -> Quote:
        """What is bought: with another budget once a person has changed it."""
        assert self._run.quote is not None  # noqa: S101 - there is something to buy
        return self._run.quote

    async def buy(self) -> None:
        """Buys what is quoted; ends when each job has ended here, or when buying stops.

        Where all of it fits the budget, images and videos are bought side by side, so that neither waits for
        the other's limits. Where it does not, the file's order says what is bought.
        """
        in_order = self._quote.jobs_in_order
        if self._quote.fitting.obstacle:
            await self._buy_in_order(in_order())
            return
        type_of_first = [job.type for job in islice(in_order(), 1)]  # the file's first job leaves first
        async with anyio.create_task_group() as group:
            for model_type in dict.fromkeys([*type_of_first, *ModelType]):
                group.start_soon(self._buy_in_order, in_order(model_type))

    async def _buy_in_order(self, jobs: Iterator[Job]) -> None:
        """Buys jobs in their order, until all are tried, or none fits of those that are left.

        Nothing goes past the first job that does not fit; with `on_exceed: skip` all those do that fit.
        """
        run, queue = self._run, _Queue(jobs, self._run.breaker)
        while True:
            ended = run.awaited_costs.ended  # before anything is reserved: what ends from here on makes room
            does_not_fit, short = list[tuple[int, Job]](), Reservation()
            async with anyio.create_task_group() as sending:
                while (self._skips or not does_not_fit) and (block := queue.take()):
                    reservation = await self._reserve([job for _, job in block.values()])
                    for job, attempt in reservation.reserved:
                        await self._room_ahead[job.type].acquire()
                        put_back = partial(queue.put_back, *block[job.key])
                        sending.start_soon(self._buy_one, job, attempt, put_back)
                    short = short if short.obstacle else reservation
                    does_not_fit += [block[job.key] for job in reservation.left]
            for place, job in does_not_fit:
                queue.put_back(place, job)
            if not queue.came_back:
                return
            if does_not_fit and not await self._has_made_room(ended):
                await self._stop_at_wall([job for _, job in does_not_fit], short)
                return

    async def _reserve(self, jobs: list[Job]) -> Reservation:
        run = self._run
        buyer = run.buyer(self._quote)
        reservation = await run.ledger.reserve(jobs, self._policy, buyer, skip=self._skips)
        run.awaited_costs.begin(len(reservation.reserved))
        return reservation

    async def _has_made_room(self, ended_before: int) -> bool:
        """Waits for a job under way, which may fail or cost less than its quote; False where none is left.

        Those that were skipped wait for all of them: there may be many, and each look at them takes its time.
        """
        awaited_costs = self._run.awaited_costs
        while self._skips or awaited_costs.ended == ended_before:
            if not await awaited_costs.next_end():
                break
        return awaited_costs.ended > ended_before

    async def _stop_at_wall(self, jobs: list[Job], short: Reservation) -> None:
        """Ends the buying: the first of these jobs does not fit, for the reason of `short`.

        A person may allow more, so beyond what is allowed the run does not stop, but asks anew.
        """
        assert short.obstacle  # noqa: S101 - something does not fit
        if short.obstacle in (Obstacle.ALLOWED, Obstacle.PURSE):
            self._run.asks_anew = True
            return
        budget, basis = self._quote.budget, await self._basis()
        stop = reasons.at_wall(short.obstacle, jobs, short.remaining, budget, basis, skips=self._skips)
        self._run.halt(stop)

    async def _basis(self) -> Basis:
        return await self._run.ledger.read(gate.read_basis, self._run.buyer(self._quote))

    async def _buy_one(self, job: Job, attempt: Attempt, put_back: Callable[[], None]) -> None:
        """Sends a reserved job until something has become of it, and does what follows from that."""
        run, tries = self._run, Counter[Verdict]()  # without 429s
        while isinstance(outcome := await self._send_in_turn(job, attempt, tries), _Again):  # noqa: ASYNC110 - it backs off
            await anyio.sleep(outcome.seconds)
        self._room_ahead[job.type].release()
        if outcome is not _Outcome.ACCEPTED or job.type is ModelType.IMAGE:  # a video's end is the poll's
            run.awaited_costs.end()
        match outcome:
            case _Outcome.NO_ROOM:
                put_back()
            case _Outcome.IN_DOUBT if self._policy.retry_doubt:
                put_back()  # whether it is bought once more, the ledger says when it is reserved
            case _Outcome.ACCEPTED | _Outcome.FAILED | _Outcome.IN_DOUBT:
                run.tried[job.type] += 1
            case _Outcome.LEFT:
                pass

    async def _send_in_turn(self, job: Job, attempt: Attempt, tries: Counter[Verdict]) -> _Outcome | _Again:
        """Waits for the job's turn, and sends it once."""
        run, breaker = self._run, self._run.breaker.of(job.model)
        while run.downloads.late():  # noqa: ASYNC110 - it is the passing of time that ends it, not an event
            await anyio.sleep(1)
        await run.may_buy.wait()
        async with run.limits.turn(job.type) as turn, breaker.passing():
            if run.breaker.stop:
                run.halt(run.breaker.stop)
            if run.stop:
                return _Outcome.LEFT
            if breaker.stop:
                self._tell_stopped(job.model, breaker.stop)
                await run.ledger.transition(leases.unreserve, attempt)
                return _Outcome.LEFT
            if run.downloads.late() or not run.may_buy.is_set():  # the turn may have been long in coming
                return _Again()
            try:
                body = await references.fill(job, reading=reading_of(run.settings))
            except InputError as error:  # an image is gone, or has changed, since the job was priced
                self._tell_without_image(job, error)
                await run.ledger.transition(leases.unreserve, attempt)
                return _Outcome.LEFT
            with anyio.CancelScope(shield=True):  # an answer is recorded, whatever happens meanwhile
                outcome = await self._send(job, attempt, body, turn, tries)
        return outcome

    def _tell_stopped(self, model: str, stop: Stop) -> None:
        """Of a model nothing more is bought; the other models go on, if there are others."""
        if {*self._quote.models} <= self._run.breaker.stopped().keys():
            self._run.halt(stop)
        elif model not in self._told:
            self._told.add(model)
            WATCHER.get().note(f"of {model} nothing more is bought, of the other models it is: {stop}")

    def _tell_without_image(self, job: Job, error: InputError) -> None:
        without_image = self._run.without_image
        if job.key not in without_image:
            without_image[job.key] = error
            if len(without_image) <= _TOLD:
                WATCHER.get().note(f"not bought: {error}")

    async def _send(
        self, job: Job, attempt: Attempt, body: Mapping[str, Any], turn: Turn, tries: Counter[Verdict]
    ) -> _Outcome | _Again:
        """Sends one POST, and makes its answer durable."""
        run = self._run
        # The gate's last word, and the intent to send, in one transaction: durable before the POST leaves.
        obstacle = await run.ledger.intend(attempt, run.buyer(self._quote), self._rates)
        if obstacle in (Obstacle.PRICE, Obstacle.QUESTION):
            run.halt(reasons.at_closed_gate(obstacle, await self._basis()))
            return _Outcome.LEFT
        if obstacle:
            return _Outcome.NO_ROOM
        if run.ended:  # while that was written; nothing has left yet
            await run.ledger.transition(states.planned_again, attempt)
            return _Outcome.LEFT
        turn.leaves()
        failpoints.passed("before submit")
        answer: Generation | str
        try:
            with run.unless_ended() as waiting:
                if attempt.type is ModelType.VIDEO:
                    answer, rate = await run.client.create_video(body)
                else:
                    answer, rate = await run.client.create_image(body)
        except ServiceError as error:
            return await self._not_accepted(attempt, error, turn, tries)
        if waiting.cancelled_caught:
            with suppress(LedgerError):  # it stays as it was, and the next run says that it is in doubt
                await run.ledger.transition(states.in_doubt, End(attempt, leases.NO_ANSWER))
                run.tell(attempt, State.IN_DOUBT, leases.NO_ANSWER)
            return _Outcome.LEFT
        failpoints.passed("after submit")
        run.breaker.of(attempt.model).worked()
        turn.answered(rate)
        return await self._accepted(job, attempt, answer, turn)

    async def _accepted(self, job: Job, attempt: Attempt, answer: Generation | str, turn: Turn) -> _Outcome:
        """Makes the answer durable, an image or the id of a video, before the next step gets it."""
        run = self._run
        if isinstance(answer, Generation):
            is_own = await record_generation(run, attempt, answer, job.carried)
        elif same_generation := await run.ledger.pending(attempt, answer):
            is_own = False
            run.count_doubt(attempt, same_generation.what)
        else:
            is_own = True
            turn.keep_lane()
            run.knows_videos = True
            run.tell(attempt, State.PENDING, answer)
            run.videos.put(replace(attempt, generation_id=answer))
        if run.refused:
            run.refused = ""
            await run.ledger.write(leases.note_refusal, run.ledger.run_id, "")
        return _Outcome.ACCEPTED if is_own else _Outcome.IN_DOUBT

    async def _not_accepted(
        self, attempt: Attempt, error: ServiceError, turn: Turn, tries: Counter[Verdict]
    ) -> _Outcome | _Again:
        """Carries out the verdict on a POST that was not accepted."""
        run, reason, breaker = self._run, str(error), self._run.breaker.of(attempt.model)
        if error.rate:  # otherwise it may be a gateway's word
            turn.answered(error.rate)
        verdict = verdicts.submit(error)
        is_full = verdict in (Verdict.WINDOW_FULL, Verdict.LANES_FULL)
        tries[verdict] += not is_full
        is_last_try = tries[verdict] >= run.settings.attempts
        retry_after = error.retry_after or 0.0
        match verdict:
            case Verdict.IN_DOUBT:
                attempt = replace(attempt, generation_id=error.generation_id)
                await run.ledger.transition(states.in_doubt, End(attempt, reason))
                run.count_doubt(attempt, reason)
                return _Outcome.IN_DOUBT
            case Verdict.REFUSED | Verdict.SAYS_NO if verdict is Verdict.REFUSED or is_last_try:
                breaker.worked() if verdict is Verdict.REFUSED else breaker.wrong("failure", reason)
                code = error.code if isinstance(error, Refusal) else "server_error"
                await run.ledger.transition(states.failed, End(attempt, reason, code))
                run.tell(attempt, State.FAILED, reason)
                return _Outcome.FAILED
            case Verdict.WINDOW_FULL:
                turn.window_full(retry_after)
            case Verdict.LANES_FULL:
                turn.lanes_full()  # before the write: until then requests leave that will be refused too
            case Verdict.NOT_SENT:
                turn.unsent()
                breaker.wrong("unsent", reason)
            case Verdict.GATEWAY:
                breaker.wrong("gateway", reason, hint=error.hint, retry_after=retry_after)
        await run.ledger.transition(states.planned_again, attempt)
        if verdict in (Verdict.STOP_KEY, Verdict.STOP_BALANCE):
            run.halt(error)
            return _Outcome.LEFT
        if verdict is Verdict.GATEWAY and is_last_try:  # others are accepted, or the breaker ends it first
            self.left_by_gateway = self.left_by_gateway or error
            return _Outcome.LEFT
        if is_full:
            await self._note_refusal(reason)
            return _Again()
        return _Again(max(retry_after, run.client.backoff(tries.total())))

    async def _note_refusal(self, reason: str) -> None:
        """Submissions are answered 429: says so where that goes on, and ends the buying after `patience`."""
        run, seconds = self._run, self._run.limits.refused_for()
        if seconds >= run.settings.limits.patience:
            message = f"for {seconds:.0f} s the service has refused every submission: {reason}"
            hint = "The quota of the key may be used up. The same command goes on later (limits.patience)."
            run.halt(ServiceDown(message, hint=hint))
        elif seconds >= run.bounds.refusals and reason != run.refused:
            if not run.refused:
                WATCHER.get().note(under_way.waits(reason))
            run.refused = reason
            await run.ledger.write(leases.note_refusal, run.ledger.run_id, reason)
