"""The steps of a batch, in their order and side by side.

`Steps()` are the library's own; a flow run of Prefect puts tasks in their place, which do the same. Nothing
here decides about money.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from callsheet import signals
from callsheet.batches.read import Batch
from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError, InputError, Stop
from callsheet.ledger.ledger import Ledger
from callsheet.places import stop_for_storage, take
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.plan import Plan, adopt, is_outdated, price_batch
from callsheet.pricing.quote import Quote, quote_plan
from callsheet.pricing.sources import read_rows
from callsheet.report.summary import Summary
from callsheet.service.client import Client
from callsheet.session import Bounds, Run, open_ledger, open_run, until_answered
from callsheet.steps import approve
from callsheet.steps.connect import connect
from callsheet.steps.download import download
from callsheet.steps.poll import poll
from callsheet.steps.record import record
from callsheet.steps.submit import submit
from callsheet.steps.unchanged import Unchanged
from callsheet.watch import WATCHER


async def price(batch: Batch, settings: Settings, client: Client, ledger: Ledger) -> Plan:
    """As `price_batch`; a service that is down is waited for: nothing is bought yet."""
    return await until_answered(lambda: price_batch(batch, settings, client, ledger), settings, client)


@dataclass(frozen=True, slots=True)
class Steps:
    """What carries out each step."""

    connect: Callable[[Settings], Awaitable[Client]] = connect
    read: Callable[[Settings], Awaitable[Batch]] = read_rows
    price: Callable[[Batch, Settings, Client, Ledger], Awaitable[Plan]] = price
    show_quote: Callable[[Quote], Awaitable[None]] | None = None  # besides, to the watcher's `quoted`
    show_unchanged: Callable[[Summary, Settings], Awaitable[None]] | None = None  # in place of the steps
    ui: Callable[[Settings], approve.InTheUI | None] = lambda _: None  # where a run in the Prefect UI asks
    submit: Callable[[Run], Coroutine[Any, Any, None]] = submit
    poll: Callable[[Run], Coroutine[Any, Any, None]] = poll
    download: Callable[[Run], Coroutine[Any, Any, None]] = download
    record: Callable[[Run], Coroutine[Any, Any, Summary]] = record
    # what is open beside the run
    beside: Callable[[Run], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
    before_portion: Callable[[Run], Awaitable[None]] | None = None
    # after the last portion: whether to look once more at what is left
    after_portions: Callable[[Run], Awaitable[bool]] | None = None
    bounds: Bounds = field(default_factory=Bounds)


async def generate(
    settings: Settings,
    *,
    approved: bool,
    choice: Choice = ALL,
    plan: str | None = None,
    purse: str | None = None,
    steps: Steps = Steps(),
    began: float | None = None,
) -> Summary:
    """Buys every job of a batch that is not bought yet, and stores its media.

    It is one run, which buys in portions: the pilot, the rest, and with `review.buy_again` a round for what
    is rejected meanwhile, by checks or a person: until each row has a file that is not rejected, or its
    samples are used up. A signal, a pause or a changed limit counts wherever the run is.

    Args:
        settings: the config.
        approved: somebody has said yes already to whatever a person must approve.
        choice: which jobs of the batch to buy.
        plan: the `sha256` of the plan that was approved for another run: nothing is bought of another.
        purse: the name in which it buys: without a question within the purse that a person has given, and
            nothing beyond it, whoever is there to be asked.
        steps: what carries them out.
        began: when a person began to wait, in monotonic seconds; None for now.

    Raises:
        InputError: rows were rejected, and `input.strict` wants none; or a chosen row is not in the batch.
        CallsheetError: what broke the run off; `exit_code` says whether it may have bought anything.
        Interrupted: a signal came before the buying began, or a second one.
        Pause: (Prefect's) the run waits for a person, who is asked in the UI or has suspended it there.
    """
    began, ui = began or time.monotonic(), steps.ui(settings)
    flow_run = ui.flow_run if ui else None
    with signals.cancelled_by_signals():
        async with await steps.connect(settings) as client:
            is_whole = choice == ALL and plan is None and steps.after_portions is None
            unchanged = Unchanged(settings, flow_run) if is_whole else None
            if unchanged and (as_before := await unchanged.summary(client, began, buys=True)):
                return await _finished_at_once(as_before, settings, steps)
            rows = await steps.read(settings)
            async with open_ledger(settings, client, flow_run, purse) as ledger:
                priced_plan = await steps.price(rows, settings, client, ledger)
                await _check_approved(priced_plan, plan)
                async with (
                    open_run(settings, client, ledger, priced_plan, choice, bounds=steps.bounds) as run,
                    steps.beside(run),
                ):
                    run.began = began
                    buying = _Buying(run, rows, steps, approved, choice, plan)
                    summary = await buying.in_portions(priced_plan)
                    signals.done()
            if unchanged and run.plan:
                await asyncio.to_thread(unchanged.keep, summary, run.plan)
    WATCHER.get().finished(summary)
    return summary


async def _check_approved(plan: Plan, sha256: str | None) -> None:
    """Makes sure that the plan is the one that was approved for another run, if one was.

    Raises:
        InputError: it is another one.
    """
    if sha256 is not None and await asyncio.to_thread(plan.sha256) != sha256:
        raise InputError(
            "the batch or its prices are not those that were approved, so this run buys nothing",
            hint="Run the batch again; it quotes what it would buy now.",
        )


@dataclass
class _Buying:
    """What a run buys, a portion after the other: it is quoted, approved, and bought.

    Attributes:
        quote: what was quoted last, while it is not bought.
        summary: that of the last portion's report.
        has_pilot: the last portion was the pilot, and is bought.
    """

    run: Run
    rows: Batch
    steps: Steps
    approved: bool
    choice: Choice
    plan_sha256: str | None
    quote: Quote | None = None
    summary: Summary | None = None
    has_pilot: bool = False

    async def in_portions(self, plan: Plan) -> Summary:
        """Buys until nothing is left to buy, or something stops the run; returns the last summary."""
        run = self.run
        left: Plan | None = plan
        while left and not run.stop:
            portion = await self._approved(left)
            if portion and not run.stop:
                self.summary = await self._bought(portion)
                left = await self._left_after(portion)
        if left and run.stop:
            self.summary = await self._stopped(run.stop)
        assert self.summary  # noqa: S101 - without a stop, a portion was bought
        return self.summary

    async def _approved(self, plan: Plan) -> Quote | None:
        """What may be bought next of a plan; None where the run is stopped, or nobody has said yes."""
        run, steps = self.run, self.steps
        with run.deciding():
            while True:
                ledger, client, ui = run.ledger, run.client, steps.ui(run.settings)
                stop: Stop | None = await approve.take_answer(ledger, run.buyer(), ui)
                balance, run.balance = run.balance, None  # asked for once where it was just now
                quote = await quote_plan(plan, run.settings, client, ledger, self.choice, balance=balance)
                self.quote = quote
                WATCHER.get().quoted(quote)
                if steps.show_quote:
                    await steps.show_quote(quote)
                if not stop and quote.to_buy and not run.has_places:
                    stop = await stop_for_storage(ledger, run.settings)
                if not stop:
                    of_plan = self.plan_sha256 is not None
                    quote, stop = await approve.approve(
                        run, quote, self.approved, pilot=self.has_pilot, of_plan=of_plan, ui=ui
                    )
                if stop:
                    run.halt(stop)
                    return None
                if not quote.to_buy or not await is_outdated(plan, run.settings, client):
                    plan = await adopt(quote.plan, quote.standing, run.settings, ledger)
                    return replace(quote, plan=plan)
                plan = await steps.price(self.rows, run.settings, client, ledger)
        return None

    async def _bought(self, quote: Quote) -> Summary:
        """Buys a portion, stores it, and writes the report."""
        run, steps = self.run, self.steps
        if quote.to_buy and not run.has_places:
            await asyncio.to_thread(run.spool.probe)
            if note := await run.store.probe():
                WATCHER.get().note(note)
            await take(run.ledger, run.settings)
            run.has_places = True
        await run.begin(quote)
        self.quote = None
        if steps.before_portion:
            await steps.before_portion(run)
        return await _side_by_side(run, steps.record, steps.submit, steps.poll, steps.download)

    async def _left_after(self, portion: Quote) -> Plan | None:
        """The plan of what may be left to buy after a portion; None where no other can follow."""
        run, steps = self.run, self.steps
        self.has_pilot = portion.is_pilot and not run.asks_anew
        # Another round has another plan, and would choose other jobs as the first.
        has_rounds = run.settings.review.buy_again and self.plan_sha256 is None and self.choice.first is None
        if portion.is_pilot or run.asks_anew or (has_rounds and run.stop):
            return portion.plan
        with run.deciding():
            looks_again = await steps.after_portions(run) if steps.after_portions else False
            if not (looks_again or has_rounds):
                return None
            plan = await steps.price(self.rows, run.settings, run.client, run.ledger)
            for note in plan.notes:  # what is bought again, and of which rows all samples are used up
                if note not in portion.plan.notes:
                    WATCHER.get().note(note)
            new_jobs = plan.table.join(portion.plan.table, on="key", how="anti")
            return None if new_jobs.is_empty() and not looks_again else plan
        return portion.plan  # the run was stopped meanwhile

    async def _stopped(self, stop: Stop) -> Summary:
        """The summary of a run that was stopped before all was bought: what is left is said in it.

        Raises:
            Stop: the run was interrupted before it began to buy, so there is nothing to report.
        """
        if self.summary is None and self.run.interrupted:
            raise stop
        if self.summary and self.summary.stop_reason:  # it was stopped before that report was written
            return self.summary
        return await _collected(self.run, self.steps, self.quote or await self._quoted_anew())

    async def _quoted_anew(self) -> Quote | None:
        """What is left to buy now; what was rejected meanwhile is a part of it."""
        run = self.run
        with suppress(CallsheetError):  # then the report has what was known before
            plan = await price_batch(self.rows, run.settings, run.client, run.ledger)  # nothing is waited for
            return await quote_plan(plan, run.settings, run.client, run.ledger, self.choice)
        return run.quote


async def collect(settings: Settings, *, steps: Steps = Steps(), began: float | None = None) -> Summary:
    """Polls and downloads what is paid for and not stored yet. Never buys; otherwise as `generate`."""
    began, ui = began or time.monotonic(), steps.ui(settings)
    flow_run = ui.flow_run if ui else None
    with signals.cancelled_by_signals():
        async with await steps.connect(settings) as client:
            unchanged = Unchanged(settings, flow_run)
            if as_before := await unchanged.summary(client, began, buys=False):
                return await _finished_at_once(as_before, settings, steps)
            async with (
                open_ledger(settings, client, flow_run) as ledger,
                open_run(settings, client, ledger, bounds=steps.bounds) as run,
                steps.beside(run),
            ):
                run.began = began
                summary = await _collected(run, steps)
                signals.done()
    WATCHER.get().finished(summary)
    return summary


async def _finished_at_once(summary: Summary, settings: Settings, steps: Steps) -> Summary:
    """The summary of a run in which nothing has changed, when a person has been told."""
    report_of = f"{summary.written_at:%Y-%m-%d %H:%M} UTC"
    WATCHER.get().note(f"nothing has changed since the report of {report_of}")
    if steps.show_unchanged:
        await steps.show_unchanged(summary, settings)
    signals.done()
    WATCHER.get().finished(summary)
    return summary


async def _collected(run: Run, steps: Steps, quote: Quote | None = None) -> Summary:
    """Stores what is paid for, and writes the report. Nobody submits; `quote` is what is left to buy."""
    await run.begin(quote)
    with run.videos.filling(), run.files.filling():
        pass
    return await _side_by_side(run, steps.record, steps.poll, steps.download)


async def _side_by_side(
    run: Run,
    record: Callable[[Run], Coroutine[Any, Any, Summary]],
    *steps: Callable[[Run], Coroutine[Any, Any, None]],
) -> Summary:
    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(step(run))
        recorded = group.create_task(record(run))
    return recorded.result()
