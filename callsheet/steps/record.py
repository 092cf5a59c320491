"""Record: shows the progress of a run while it is under way, and writes its report at the end.

What is bought is written by the other steps, as things happen; here it is read, and a wall that was told of
is noted (`ledger/walls.py`). Plots and contact sheet are for looking: where they cannot be written, a person
is told so, and the run goes on as if there were none.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from functools import partial

import anyio

from callsheet import places
from callsheet.config.settings import BatchSettings
from callsheet.errors import LedgerError, Stop, StorageError
from callsheet.ledger import marks, sums, walls
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import ONLY_NEW, Policy, policy_of
from callsheet.plain_text import counted, time_in_words
from callsheet.present import results, under_way
from callsheet.pricing.plan import Plan, last_plan
from callsheet.records import ENDED, ModelType, Pacing, Progress, State, Totals
from callsheet.report.contact_sheet.sheet import INDEX, ContactSheet, Header, open_sheet
from callsheet.report.plots import PLOTS, write_plots
from callsheet.report.report import OfRun, write_report, write_summary
from callsheet.report.sidecars import update_sidecars
from callsheet.report.summary import Summary
from callsheet.reviewing.checks import check_files, is_wanted, may_reject
from callsheet.session import Run
from callsheet.standing import read_standing
from callsheet.storage.store import Store
from callsheet.watch import WATCHER

TICK = 0.5  # seconds between two looks at the ledger
_LOOK = 0.5  # seconds between two looks at how far the checks or thumbnails of a report are
_SAID_AFTER, _SAID_EVERY = 3.0, 10.0  # seconds, when a person is told


async def record(run: Run, display: AbstractAsyncContextManager[None] | None = None) -> Summary:
    """Shows the progress until no file is left to store; then writes report, plots and contact sheet.

    `display` is open while the progress is shown.
    """
    store, note = Store.of(run.settings.report.url, run.settings.storage), WATCHER.get().note
    async with open_sheet(run.ledger, run.settings, run.plan) as page, asyncio.TaskGroup() as background:
        keeping = page and background.create_task(
            _is_written(page.update_until(partial(_header, run), run.collected))
        )
        checking = background.create_task(_check(run, page))
        if page:
            WATCHER.get().sheet(store.url_of(INDEX))
        async with display or nullcontext():
            await _show_progress(run)
        while not (checking.done() or run.interrupted):
            await asyncio.wait({checking}, timeout=TICK)
        checking.cancel()
        async with _nothing_lost(run):
            summary = await write_report(run.ledger, store, run.plan, _of_run(run))
            await update_sidecars(run.settings, run.ledger)
        has_plots = False
        if not run.interrupted:  # otherwise it was told to end soon
            may_draw = time.monotonic() - run.began >= run.bounds.plots
            has_plots = await write_plots(run.settings, summary.details.figures, note, may_draw=may_draw)
        if page and keeping and await keeping:
            header = _final_header(summary, run.plan, run.settings, has_plots=has_plots)
            wait_for = 0 if run.interrupted else run.bounds.thumbnails
            async with _progress_told("thumbnails", lambda: page.thumbnails.waiting, note):
                if await _is_written(page.finish(header, note, wait_for=wait_for)):
                    summary = _with_page(summary, store)
        is_checked = not is_wanted(run.settings.checks) or (await run.ledger.read(marks.unchecked)).is_empty()
        if not is_checked or (page and page.links.may_end_early):  # the next run has something to do
            summary = replace(summary, details=replace(summary.details, done_at=""))
        summary = replace(summary, seconds=round(time.monotonic() - run.began, 3))
        async with _nothing_lost(run):
            await write_summary(store, summary)
    return summary


async def report_anew(settings: BatchSettings, note: Callable[[str], None]) -> Summary:
    """Checks the stored files that are not checked yet, and writes report, plots and contact sheet anew.

    It asks the service nothing. `note` is called with what a person should know.

    Raises:
        OtherLedger: it is not the batch's ledger, or an older copy of it.
        LedgerError: the ledger cannot be read.
        StorageError: `report.url` cannot be written.
    """
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        if warning := await places.check(ledger, settings):
            note(warning)
        store = Store.of(settings.report.url, settings.storage)
        plan = await asyncio.to_thread(last_plan, settings)
        async with open_sheet(ledger, settings, plan) as page:
            left = 0

            def count(files: int) -> bool:
                nonlocal left
                left = files
                return False  # none is left for later

            async with _progress_told("checks", lambda: left, note):
                await check_files(
                    ledger, settings, page.thumbnails if page else None, note=note, may_leave=count
                )
            summary = await write_report(ledger, store, plan, OfRun())
            has_plots = await write_plots(settings, summary.details.figures, note)
            if page:
                thumbnails = page.thumbnails
                async with _progress_told("thumbnails", lambda: thumbnails.waiting, note):
                    header = _final_header(summary, plan, settings, has_plots=has_plots)
                    await page.finish(header, note, wait_for=None)
                summary = _with_page(summary, store)
        await update_sidecars(settings, ledger)
        await write_summary(store, summary)
        return summary


@asynccontextmanager
async def _progress_told(
    subject: str, left: Callable[[], int], note: Callable[[str], None]
) -> AsyncIterator[None]:
    """Within it, a person is told now and then how many files are done, and how long the others take."""

    async def tell() -> None:
        total, began, told_at = 0, 0.0, 0.0
        while True:
            now = left()
            if now and not total:
                began = time.monotonic()
                told_at = began + _SAID_AFTER - _SAID_EVERY
            total, seconds = max(total, now), time.monotonic() - began
            if now and time.monotonic() - told_at >= _SAID_EVERY:
                told_at = time.monotonic()
                done = total - now
                time_left = f", about {time_in_words(seconds * now / done)} left" if done else ""
                note(f"{subject}: {done:,} of {counted(total, 'file')}{time_left}")
            await asyncio.sleep(_LOOK)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()


def _with_page(summary: Summary, store: Store) -> Summary:
    """The summary, which says where the contact sheet is."""
    return replace(summary, details=replace(summary.details, contact_sheet=store.url_of(INDEX)))


async def _check(run: Run, page: ContactSheet | None) -> None:
    """Checks the stored files of the batch while the run is at work, and at its end those that are left.

    Where so many are left that the run does not wait for them, a later one or `callsheet report` checks them.
    A run that buys again what is rejected waits for all of them: when `record` has returned, each stored file
    of the batch is checked, but for those that could not be looked at or judged (`check_files`).
    """
    decides = run.settings.review.buy_again and may_reject(run.settings.checks)
    watcher, left = WATCHER.get(), 0

    def may_leave(files: int) -> bool:
        nonlocal left
        left = files
        return not decides and left > run.bounds.thumbnails

    async with _progress_told("checks", lambda: left, watcher.note):
        await check_files(
            run.ledger,
            run.settings,
            page.thumbnails if page else None,
            note=watcher.note,
            rejected=watcher.rejected,
            over=run.collected,
            may_leave=may_leave,
            patience=run.bounds.judging,
        )


async def _is_written(writing: Awaitable[None]) -> bool:
    """Waits until the contact sheet is written; tells a person where it cannot be."""
    try:
        await writing
    except (StorageError, LedgerError) as error:
        WATCHER.get().note(f"the contact sheet is not written: {error}. {error.hint}".strip())
        return False
    return True


def _header(run: Run) -> Header:
    """What the contact sheet says of a run that is under way."""
    now, rejected = run.progress, run.plan.rejected_rows if run.plan else 0
    return Header(
        jobs=now.jobs,
        states=now.states,
        spent=now.spent,
        in_doubt=now.in_doubt,
        credits=now.credits,
        quoted=now.quoted,
        rejected_rows=rejected,
        stop=under_way.waits(run.refused) if run.refused else None,
    )


def _final_header(summary: Summary, plan: Plan | None, settings: BatchSettings, *, has_plots: bool) -> Header:
    """What it says when no run is at work, with what the plots show in words."""
    figures = summary.details.figures
    plots = {PLOTS: results.plotted(figures, settings.budget.limit)} if has_plots and figures else {}
    return Header.of(summary, plan, plots)


def _of_run(run: Run) -> OfRun:
    """What its summary says of the run itself."""
    return OfRun(
        stop=run.stop,
        without_image=tuple(run.without_image.values()),
        seconds=time.monotonic() - run.began,
        submissions=run.limits.submissions,
        rate_limited=run.limits.rate_limited,
        to_buy=run.quote.table["to_buy"] if run.quote else None,
        policy=_policy(run),
        buys=run.quote is not None,
        chosen=run.quote.chosen if run.quote else None,
    )


def _policy(run: Run) -> Policy:
    """What the next run like it does with jobs that were tried before; one that only collects buys none."""
    return policy_of(run.settings) if run.quote else ONLY_NEW


async def _left_to_buy(run: Run) -> int:
    """Jobs that a run which has stopped leaves untried; what it could not collect is none of them."""
    if run.stop is None or run.plan is None:
        return 0
    standing = await run.ledger.read(read_standing, run.plan.table, _policy(run), of_attempts=["run_id"])
    return standing.left_to_buy(run.ledger.run_id, run.quote.table["to_buy"] if run.quote else None)


@asynccontextmanager
async def _nothing_lost(run: Run) -> AsyncIterator[None]:
    """Where the report cannot be written, says that what was bought is safe.

    A run that has stopped early ends as stopped all the same: something is left to try.
    """
    try:
        yield
    except StorageError as error:
        safe = "Nothing that was bought is lost: the same command writes the report."
        error.hint = f"{error.hint} {safe}".strip()
        if run.stop is None or not (run.interrupted or await _left_to_buy(run)):
            raise
        message = f"stopped: {run.stop}; and the report is not written: {error}"
        stopped = type(run.stop)(message, hint=error.hint)
        stopped.exit_code = Stop.exit_code
        raise stopped from error


async def _show_progress(run: Run) -> None:
    """Shows it until everything of this run is collected."""
    begun = await run.ledger.read(read_standing, run.plan.table if run.plan else None)
    left_out = run.quote.left_out if run.quote else Counter[State]()  # jobs that this run is not for
    tried_before = Counter({state: left_out[state] for state in ENDED})
    over, sent = False, Decimal(0)
    while not over:
        with anyio.move_on_after(TICK):
            await run.collected.wait()
        over = run.collected.is_set()
        totals = await run.ledger.read(sums.of_batch)
        if totals.sent != sent:
            sent = totals.sent
            await _tell_of_walls(run)
        # While jobs are bought, what the batch's jobs are does not change.
        states = Counter(totals.states) - tried_before
        jobs = begun.counting.height - left_out.total() if run.plan else states.total()
        run.progress = _progress(run, jobs, states, begun.quoted, totals)
        WATCHER.get().progress(run.progress)


async def _tell_of_walls(run: Run) -> None:
    """Tells a person of limits that are nearly used up."""
    if await run.ledger.read(walls.not_told, run.buyer()):
        for wall in await run.ledger.write(walls.tell, run.buyer()):
            WATCHER.get().nears(wall)


def _progress(run: Run, jobs: int, states: Mapping[State, int], quoted: Decimal, totals: Totals) -> Progress:
    limits = run.limits
    now = limits.now()
    return Progress(
        jobs=jobs,
        states=states,
        spent=totals.spent,
        in_doubt=totals.in_doubt_exposure,
        credits=totals.credits,
        limit=run.settings.budget.limit,
        videos=run.adopted + (run.quote.to_buy_of(ModelType.VIDEO) if run.quote else 0),
        videos_ended=run.videos_ended,
        pacing={
            model_type: Pacing(pace.in_window(now), pace.known_limit(), wait)
            for model_type, pace in limits.paces.items()
            if (wait := _wait(run, model_type, now)) or pace.in_window(now)
        },
        seconds_left=_left(run),
        quoted=quoted if run.plan else None,
        paused=not run.may_buy.is_set(),
        refused=run.refused,
    )


def _wait(run: Run, model_type: ModelType, now: float) -> float:
    """Seconds until the next submission of a type may leave; 0 where none is left or nothing tells."""
    wait = run.limits.paces[model_type].wait(now)
    has_more = run.quote is not None and run.quote.to_buy_of(model_type) > run.tried[model_type]
    return round(wait, 1) if has_more and not run.stop and wait < math.inf else 0.0


def _left(run: Run) -> float | None:
    """Seconds until the last job is sent, by the windows of each type; None while a limit is not known."""
    if run.stop or not run.may_buy.is_set() or not run.quote or not run.quote.to_buy:
        return None
    now, share = run.limits.now(), 1.0
    if run.quote.fitting.obstacle:
        share = run.quote.fits / run.quote.to_buy
    longest = 0.0
    for model_type, pace in run.limits.paces.items():
        left = math.ceil(run.quote.to_buy_of(model_type) * share) - run.tried[model_type]
        seconds = pace.seconds_for(left, now) if left > 0 else 0.0
        if seconds is None:
            return None
        longest = max(longest, seconds)
    return longest
