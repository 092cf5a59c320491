"""One run's open parts: client, limits, ledger, storage, and the channels between its steps.

It opens and closes; what is done with the parts, and in what order, is in `steps/`.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any, TypeVar

import anyio

from callsheet import places, signals
from callsheet.channels import AwaitedCosts, Channel, Downloads
from callsheet.config.load import with_value
from callsheet.config.settings import Settings
from callsheet.errors import (
    CallsheetError,
    ConfigError,
    InputError,
    Interrupted,
    LedgerError,
    NoLane,
    ServiceError,
    Stop,
    as_stop,
)
from callsheet.ledger import changes, leases, queries, services
from callsheet.ledger.changes import PAUSED
from callsheet.ledger.databases import exists
from callsheet.ledger.gate import Buyer
from callsheet.ledger.leases import NO_ANSWER
from callsheet.ledger.ledger import Ledger
from callsheet.limits.breaker import Breaker
from callsheet.limits.limits import AccountLimits, Learned
from callsheet.plain_text import time_in_words
from callsheet.present import allowances
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.plan import Plan, last_plan
from callsheet.pricing.quote import Quote, has_to_buy
from callsheet.records import Attempt, Change, File, ModelType, Progress, State
from callsheet.reviewing.checks import PATIENCE
from callsheet.service.client import Client
from callsheet.service.verdicts import may_pass
from callsheet.storage.spool import Spool, work_folder
from callsheet.storage.store import Store
from callsheet.watch import WATCHER

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a run waits, in seconds, and how much it does at once. Tests set others.

    Attributes:
        grace: that an interrupted run has to store what was answered; Prefect kills after 30.
        closing: that it has after those, to write its report.
        lanes: at the least, for the lanes that others hold.
        plots: that a run must have taken before its plots, which take a second or two, are worth drawing.
        thumbnails: some ten seconds' worth; where more are missing at its end, a run does not wait for them.
        downloads: files that are downloaded at once.
        changes: between two looks at what persons have changed for the runs at work.
        refusals: for which submissions are refused alone, before that is said.
        judging: that the user's program may take for a file (`checks.command`).
    """

    grace: float = 25.0
    closing: float = 3.5
    lanes: float = 20.0
    plots: float = 10.0
    thumbnails: int = 500
    downloads: int = 24
    changes: float = 2.0
    refusals: float = 15.0
    judging: float = PATIENCE


@dataclass
class Run:
    """The open parts of one run, and what the steps that share it know of each other.

    A command opens one run, and buys in portions: the pilot, the rest, each round of what is bought again.

    Attributes:
        plan: the one that reports go by: the newest that was priced, or where nothing is bought (`collect`)
            the batch's last one, or None.
        knows_videos: the service knows a video under this key, which is the right one then.
        poll_errors: what polls were answered in place of a status, as a person was told.
        interrupted: a person or the system wants the run to end.
        signalled: by a signal.
        refused: the service's words, while it refuses every submission.
        ended: it ends at once: what is not answered yet is left to the next run.
        may_buy: is clear while a person holds the buying.
        asking: it waits for a person in the Prefect UI, which suspends the flow run.
        stop: why nothing more is bought; None while buying goes on.
        balance: what the workspace had when the run began, until the first quote goes by it; None where
            nothing was to buy.
        began: when a person began to wait for it, in monotonic seconds.
        has_begun: the gate has let it begin to buy, so the batch's limit is its own.
        progress: how the batch stood when it was last looked at.
        portions: how many it has begun with.
        has_places: the places are taken for the batch and its ledger, and its store takes a write.
        left_in_doubt: what dead runs were sending, of which a person is told with the first portion.

    Attributes of the portion that is bought now, which `_prepare` makes anew for each:
        quote: what to buy; None where nothing is bought.
        asks_anew: what is left is more than was approved or quoted, so it is quoted once more.
        videos: accepted videos, from submit to poll.
        files: paid files, from submit and poll to download.
        downloads: the files that wait to be downloaded.
        awaited_costs: how many of the reserved jobs have a cost that is not known yet.
        buying: is cancelled when the run stops buying; a request on the wire still gets its answer.
        polling: is cancelled when the run is interrupted.
        adopted: how many videos of earlier runs and portions it follows.
        videos_ended: how many of the videos that it follows have ended.
        tried: how many jobs of each type were accepted, failed or are in doubt, and are not sent again.
        without_image: why jobs were not sent of which an image is gone or has changed, by key.
        collected: set when every file is dealt with.
    """

    settings: Settings
    bounds: Bounds
    client: Client
    ledger: Ledger
    store: Store
    limits: AccountLimits
    spool: Spool
    breaker: Breaker
    plan: Plan | None = None
    knows_videos: bool = False
    poll_errors: set[str] = field(default_factory=set)
    interrupted: bool = False
    signalled: bool = False
    refused: str = ""
    ended: bool = False
    may_buy: asyncio.Event = field(default_factory=asyncio.Event)
    asking: bool = False
    stop: Stop | None = None
    balance: Decimal | None = None
    began: float = field(default_factory=time.monotonic)
    has_begun: bool = False
    progress: Progress = field(default_factory=lambda: Progress(0, {}, Decimal(0)))
    portions: int = 0
    has_places: bool = False
    left_in_doubt: Sequence[Attempt] = ()
    _begun: set[anyio.CancelScope] = field(default_factory=set)
    _deciding: anyio.CancelScope | None = None

    def __post_init__(self) -> None:
        self._prepare(None)

    @property
    def is_pilot(self) -> bool:
        """Whether it buys the pilot, and nothing stops it: the rest of the batch is asked about next."""
        return self.quote is not None and self.quote.is_pilot and self.stop is None

    async def begin(self, quote: Quote | None) -> None:
        """Begins with a portion: what is quoted, or without a quote what is only to be collected.

        It goes on with what dead runs and the portions before have left: pending videos, and files.
        """
        self.portions += 1
        self._prepare(quote)
        videos, files = await self.ledger.read(queries.unfinished, self.ledger.run_id)
        if self.portions == 1:
            self.take_up(videos, files, self.left_in_doubt)
        else:
            self.limits.take_back(len(videos))
            self._follow(videos, files)

    def _prepare(self, quote: Quote | None) -> None:
        self.quote = quote
        self.asks_anew = False
        if quote:
            self.plan = quote.plan
        self.videos: Channel[Attempt] = Channel(1)  # submit fills it
        self.files: Channel[File] = Channel(2)  # submit and poll fill it
        self.downloads = Downloads(self.bounds.downloads)
        self.awaited_costs = AwaitedCosts()
        self.buying, self.polling = anyio.CancelScope(), anyio.CancelScope()
        self.adopted = self.videos_ended = 0
        self.tried: Counter[ModelType] = Counter()
        self.without_image: dict[str, InputError] = {}
        self.collected = asyncio.Event()
        if self.stop:
            self.buying.cancel()
        if self.interrupted:
            self.polling.cancel()

    def buyer(self, quote: Quote | None = None) -> Buyer:
        """Who buys a quote, as the gate knows it."""
        return self.ledger.buyer(self.settings.budget, quote.affordable if quote else Decimal(0))

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """What comes between two portions, such as a price or a question. It ends where the run stops."""
        with anyio.CancelScope() as self._deciding:
            if self.stop:
                self._deciding.cancel()
            yield

    def halt(self, stop: CallsheetError) -> None:
        """Buys nothing more, for the first reason given; what is bought is still collected."""
        if self.stop is None:
            self.stop = as_stop(stop)
            self.buying.cancel()
            if self._deciding:
                self._deciding.cancel()

    def interrupt(self, reason: str, hint: str = "The same command goes on from here.") -> None:
        """Ends politely: buys no more, leaves videos pending, and stores what was answered."""
        self.interrupted = True
        stop = Interrupted(reason, hint=hint)
        if isinstance(self.stop, Interrupted):  # a signal, and now it is known what has sent it
            self.stop = stop
        self.halt(stop)
        self.polling.cancel()

    def apply_change(self, setting: str, value: Any) -> None:
        """A person has changed a setting of the runs at work (`ledger/changes.py`); it counts now."""
        if setting == PAUSED:
            self.may_buy.clear() if value else self.may_buy.set()
            return
        self.settings = with_value(self.settings, setting, value)
        if self.quote:
            self.quote = replace(self.quote, budget=self.settings.budget)
        limits = self.settings.limits
        self.limits.allow(limits.image_rpm, limits.video_rpm, limits.concurrency)
        self.breaker.stop_after = self.settings.stop_after

    def end(self) -> None:
        """Ends at once: waits for no answer, and no longer than a moment for a ledger that fails.

        What is answered already is still recorded.
        """
        self.ended = True
        self.ledger.hurry()
        for scope in self._begun:
            scope.cancel()

    @contextmanager
    def unless_ended(self) -> Iterator[anyio.CancelScope]:
        """A request on the wire, for instance: a polite end lets it go on, and `end` cancels it."""
        with anyio.CancelScope(shield=True) as scope:
            self._begun.add(scope)
            try:
                if self.ended:
                    scope.cancel()
                yield scope
            finally:
                self._begun.discard(scope)

    def take_up(self, videos: Sequence[Attempt], files: Sequence[File], doubts: Sequence[Attempt]) -> None:
        """Goes on with what dead runs have left: videos to poll, files to download, and what is in doubt."""
        for attempt in doubts:
            self.tell(attempt, State.IN_DOUBT, NO_ANSWER)
        self.limits.adopt(len(videos))
        self._follow(videos, files)

    def _follow(self, videos: Sequence[Attempt], files: Sequence[File]) -> None:
        self.awaited_costs.begin(len(videos))
        self.adopted += len(videos)
        for video in videos:
            self.videos.put(video)
        for file in files:
            self.files.put(file)

    def count_doubt(self, attempt: Attempt, reason: str) -> None:
        """Tells that a job is in doubt, which the ledger has, and counts that for the breaker."""
        self.tell(attempt, State.IN_DOUBT, reason)
        self.breaker.of(attempt.model).wrong("doubt", reason)

    def tell(self, attempt: Attempt, state: State, detail: str, cost: Decimal | None = None) -> None:
        """Tells the watcher that a job has come into another state; see `records.Change`."""
        WATCHER.get().changed(Change(attempt, state, detail, cost))


async def until_answered(
    request: Callable[[], Awaitable[T]],
    settings: Settings,
    client: Client,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] | None = None,
) -> T:
    """What `request` returns; a service that is down is waited for, as long as for its refusals.

    Nothing is bought yet, so a signal ends it at once, and so does what a person presses in the Prefect UI.

    Raises:
        Interrupted: a person has pressed it.
        ServiceError: what it was answered last, or would be answered again and again.
    """
    until, tries = clock() + settings.limits.patience, 0
    while True:
        try:
            answer = await request()
        except ServiceError as error:
            tries += 1
            wait = max(client.backoff(tries), error.retry_after or 0.0)
            if not may_pass(error) or clock() + wait > until:
                raise
            if tries == 1:
                most = time_in_words(settings.limits.patience)
                await WATCHER.get().waits(f"the run waits for the service, at most {most}: {error}")
            await (sleep or WATCHER.get().pause)(wait)
        else:
            if tries:
                await WATCHER.get().waits("the service answers again; the run goes on")
            return answer


@asynccontextmanager
async def open_ledger(
    settings: Settings, client: Client, flow_run: str | None = None, purse: str | None = None
) -> AsyncIterator[Ledger]:
    """The batch's ledger, for a run; `flow_run`: its id in Prefect, where it is one; `purse`: the name in
    which it buys.

    Raises:
        OtherLedger: it is not the batch's ledger, or an older copy of it (`places.check`).
        ConfigError: it would buy by a purse, and `ledger.new` is set.
        LedgerError: it cannot be opened.
    """
    if purse is not None and settings.ledger.new:  # an older copy does not know what was spent of the purse
        raise ConfigError(
            "a run by a purse cannot put a ledger in the place of another (ledger.new)",
            hint="A person can: callsheet run CONFIG --new-ledger",
        )
    url, note = settings.ledger.url, WATCHER.get().note
    is_there = await asyncio.to_thread(exists, url)
    if not is_there:  # none is made where it may not begin
        warning = await places.check(None, settings)
    async with await Ledger.open(
        url,
        settings.batch,
        service=client.base_url,
        flow_run=flow_run,
        purse=purse,
        journal=work_folder(settings) / "spool",
        note=note,
    ) as ledger:
        if is_there:
            warning = await places.check(ledger, settings)
        if warning:
            note(warning)
        yield ledger


@asynccontextmanager
async def open_run(
    settings: Settings,
    client: Client,
    ledger: Ledger,
    plan: Plan | None = None,
    choice: Choice = ALL,
    *,
    bounds: Bounds = Bounds(),
) -> AsyncIterator[Run]:
    """Opens a run and takes over what dead runs left; closes it in any case.

    Args:
        settings, client, ledger: the config, and the open parts that a run shares with what comes before it.
        plan: what is priced; None to only collect.
        choice: which of its jobs are to buy.
        bounds: how long it waits.

    Raises:
        LedgerError: the ledger cannot be written, or does not know what a journal has; nothing was bought.
        OtherService: the batch belongs to another service; nothing was bought.
        CallsheetError: what breaks off a portion ends the command with 3, not 2: it may have bought.
    """
    await ledger.read(services.check, client.base_url)
    buys = plan is not None and await has_to_buy(plan, ledger, settings, choice)
    balance = await until_answered(client.balance, settings, client) if buys else None
    reports = plan or await asyncio.to_thread(last_plan, settings)
    find = reports.jobs_of if reports else lambda _: {}
    doubts = await ledger.begin_run(balance, find=find, buys=buys, replaces=settings.ledger.new)
    run: Run | None = None
    try:
        if ledger.flow_run:
            WATCHER.get().begun(await ledger.read(leases.left_by, ledger.flow_run))
        for other_run in await ledger.read(leases.others, ledger.run_id):
            WATCHER.get().note(f"another run of this batch is at work: {other_run.line()}")
        run = await _run(settings, bounds, client, ledger, reports)
        run.balance, run.left_in_doubt = balance, doubts
        async with _watched(run):
            yield run
        await ledger.write(services.learn, client.base_url, asdict(run.limits.learned()))
    except (CallsheetError, BaseExceptionGroup) as error:
        if run and run.portions:
            may_have_bought(error)
        raise
    finally:
        with suppress(LedgerError):  # the next run takes over from one that could not leave
            await ledger.end_run()


@asynccontextmanager
async def _watched(run: Run) -> AsyncIterator[None]:
    """Beside the run its lease is renewed, its lanes are watched, and what persons change is taken over."""
    ended_by: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as background:
            watching = (_keep_lease(run.ledger), _watch_lanes(run), _follow_changes(run))
            watches = [background.create_task(coroutine) for coroutine in watching]
            try:
                with _listening(run):
                    yield
            except BaseException as error:
                ended_by = error
                raise
            finally:
                for watch in watches:
                    watch.cancel()
    except BaseExceptionGroup as group:
        if ended_by and group.exceptions == (ended_by,):
            raise ended_by from None  # as it was, without the group of those that watch beside it
        raise


async def _run(settings: Settings, bounds: Bounds, client: Client, ledger: Ledger, plan: Plan | None) -> Run:
    """A run whose parts are open."""
    learned = await ledger.read(services.learned, client.base_url)
    limits = AccountLimits(
        image_rpm=settings.limits.image_rpm,
        video_rpm=settings.limits.video_rpm,
        concurrency=settings.limits.concurrency,
        remembered=Learned(**learned) if learned else None,
    )
    run = Run(
        settings,
        bounds,
        client,
        ledger,
        Store.of(settings.storage.url, settings.storage),
        limits,
        Spool(work_folder(settings) / "spool"),
        Breaker(settings.stop_after, client.balance, WATCHER.get().note, client.backoff),
        plan,
    )
    run.may_buy.set()
    return run


def may_have_bought(error: BaseException) -> None:
    """What breaks off an open run ends the command with 3: 2 would say that nothing is spent."""
    if isinstance(error, BaseExceptionGroup):
        for inner_error in error.exceptions:
            may_have_bought(inner_error)
    elif isinstance(error, CallsheetError) and error.exit_code == 2:
        error.exit_code = 3


async def _keep_lease(ledger: Ledger) -> None:
    while True:
        await asyncio.sleep(ledger.lease / 4)
        await ledger.renew()


async def _follow_changes(run: Run) -> None:
    """Takes over what persons change while the run is at work, and says so in the ledger.

    What the configs of other runs say counts for it once it is let begin: before that its own says more.
    """
    while True:
        await asyncio.sleep(run.bounds.changes)
        new = await run.ledger.read(changes.to_take, run.ledger.run_id)
        for change in new:
            if run.has_begun or change.run_id is None:
                run.apply_change(change.setting, change.value)
            if change.run_id != run.ledger.run_id:
                WATCHER.get().note(allowances.of_change(change))
        if new:
            await run.ledger.write(changes.goes_by, run.ledger.run_id, new[-1].number)


async def _watch_lanes(run: Run) -> None:
    """Ends buying that would wait for ever: for lanes that nothing of this run can free."""
    patience = max(run.settings.poll.timeout, run.bounds.lanes)
    while not run.limits.blocked(patience):  # noqa: ASYNC110 - it is the passing of time that ends it
        await asyncio.sleep(1)
    run.halt(
        NoLane(
            "no lane comes free: every one is held by videos that are not done yet, or by others",
            hint="The same command goes on when they are done.",
        )
    )


@contextmanager
def _listening(run: Run) -> Iterator[None]:
    """The first signal ends the run politely; at the end of its grace it waits for no answer any more.

    What is not answered then is in doubt (`Run.end`), and the report says so. A second signal, or a report
    that takes too long, ends it as it is.
    """
    timers: list[asyncio.TimerHandle] = []  # of the first signal; what is pressed in the Prefect UI is none

    def end(number: signal.Signals) -> None:
        run.end()
        cancel(number)

    def hear(number: signal.Signals) -> None:
        if timers:
            end(number)
        else:
            run.signalled = True
            run.interrupt(f"stopped by {number.name}")
            later, grace = asyncio.get_running_loop().call_later, run.bounds.grace
            timers.extend((later(grace, run.end), later(grace + run.bounds.closing, end, number)))

    try:
        with signals.listening(hear) as cancel:
            yield
    finally:
        for timer in timers:
            timer.cancel()
