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
from callsheet.places import claim
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.plan import Plan, adopt, is_outdated, price_batch
from callsheet.pricing.quote import Quote, quote_plan
from callsheet.pricing.sources import read_rows
from callsheet.report.summary import Summary
from callsheet.service.client import Client
from callsheet.session import Bounds, Run, open_ledger, open_run
from callsheet.steps import approve
from callsheet.steps.connect import connect
from callsheet.steps.download import download
from callsheet.steps.poll import poll
from callsheet.steps.record import record
from callsheet.steps.submit import submit
from callsheet.watch import WATCHER


@dataclass(frozen=True, slots=True)
class Steps:
    """What carries out each step."""

    connect: Callable[[Settings], Awaitable[Client]] = connect
    read: Callable[[Settings], Awaitable[Batch]] = read_rows
    price: Callable[[Batch, Settings, Client, Ledger], Awaitable[Plan]] = price_batch
    shown: Callable[[Quote], Awaitable[None]] | None = None  # besides, to the watcher's `quoted`
    ui: Callable[[Settings], approve.InTheUI | None] = lambda _: None  # where a run in the Prefect UI asks
    submit: Callable[[Run], Coroutine[Any, Any, None]] = submit
    poll: Callable[[Run], Coroutine[Any, Any, None]] = poll
    download: Callable[[Run], Coroutine[Any, Any, None]] = download
    record: Callable[[Run], Coroutine[Any, Any, Summary]] = record
    # what is open beside the run
    beside: Callable[[Run], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
    # before a portion is bought; and after all is, whether to look once more at what is left
    before: Callable[[Run], Awaitable[None]] | None = None
    after: Callable[[Run], Awaitable[bool]] | None = None
    bounds: Bounds = field(default_factory=Bounds)


async def generate(
    settings: Settings,
    *,
    approved: bool,
    choice: Choice = ALL,
    plan: str | None = None,
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
        steps: what carries them out.
        began: when a person began to wait, in monotonic seconds; None for now.

    Raises:
        InputError: rows were rejected, and `input.strict` wants none; or a chosen row is not in the batch.
        CallsheetError: what broke the run off; `exit_code` says whether it may have bought anything.
        Interrupted: a signal came before the buying began, or a second one.
        Pause: (Prefect's) the run waits for a person, who is asked in the UI or has suspended it there.
    """
    began, ui = began or time.monotonic(), steps.ui(settings)
    with signals.cancelled_by_signals():
        async with await steps.connect(settings) as client:
            rows = await steps.read(settings)
            async with open_ledger(settings, client, ui.flow_run if ui else None) as ledger:
                priced_plan = await steps.price(rows, settings, client, ledger)
                if plan is not None and await asyncio.to_thread(priced_plan.sha256) != plan:
                    raise InputError(
                        "the batch or its prices are not those that were approved, so this run buys nothing",
                        hint="Run the batch again; it quotes what it would buy now.",
                    )
                opening = open_run(
                    settings,
                    client,
                    ledger,
                    plan=priced_plan,
                    choice=choice,
                    bounds=steps.bounds,
                )
                async with opening as run, steps.beside(run):
                    run.began = began
                    buying = _Buying(run, rows, steps, approved, choice, plan)
                    summary = await buying.in_portions(priced_plan)
                    signals.done()
    WATCHER.get().finished(summary)
    return summary


@dataclass
class _Buying:
    """What a run buys, a portion after the other."""

    run: Run
    rows: Batch
    steps: Steps
    approved: bool
    choice: Choice
    plan: str | None

    async def in_portions(self, plan: Plan) -> Summary:
        """Buys until nothing is left to buy, or something stops the run; returns the last summary."""
        run, steps = self.run, self.steps
        summary: Summary | None = None
        next_plan: Plan | None = plan
        pilot = False  # it is bought
        while next_plan:
            plan = next_plan
            quote = await self._approved(plan, pilot=pilot)
            if quote is None or (run.signalled and not summary):  # nothing was bought yet, or all is said
                break
            summary = await _carry_out(run, steps, quote)
            if run.stop:
                break
            pilot = quote.is_pilot and not run.asks_anew
            next_plan = plan if pilot or run.asks_anew else await self._next_plan(plan)
        if summary is None:
            assert run.stop is not None  # noqa: S101 - otherwise a portion was carried out
            raise run.stop
        if run.stop and not summary.stop_reason and next_plan and self._may_go_on(quote):
            # It was stopped when the portion's report was written, or after that: what is left must be said.
            summary = await _carry_out(run, steps, await self._left())
        return summary

    def _may_go_on(self, quote: Quote | None) -> bool:
        """Whether something may be left to buy after the portion that was carried out last."""
        return quote is None or self.run.asks_anew or self._goes_on(quote)

    def _goes_on(self, quote: Quote) -> bool:
        """Whether another portion can follow."""
        # Another round has another plan, and would choose other jobs as the first.
        has_rounds = self.run.settings.review.buy_again and self.plan is None and self.choice.first is None
        return quote.is_pilot or has_rounds

    async def _left(self) -> Quote | None:
        """What is left to buy of a run that was stopped; what was rejected meanwhile is a part of it."""
        run = self.run
        with suppress(CallsheetError):  # then the report has what was known before
            plan = await self.steps.price(self.rows, run.settings, run.client, run.ledger)
            return await quote_plan(plan, run.settings, run.client, run.ledger, self.choice)
        return run.quote

    async def _approved(self, plan: Plan, *, pilot: bool) -> Quote | None:
        """What may be bought next of a plan; None where the run was stopped before that was known."""
        run, steps = self.run, self.steps
        quote = None
        with run.deciding():
            while True:
                ledger, client, ui = run.ledger, run.client, steps.ui(run.settings)
                stop: Stop | None = await approve.take_answer(ledger, run.buyer(), ui)
                balance, run.balance = run.balance, None  # asked for once where it was just now
                quote = await quote_plan(plan, run.settings, client, ledger, self.choice, balance=balance)
                WATCHER.get().quoted(quote)
                if steps.shown:
                    await steps.shown(quote)
                if not stop:
                    quote, stop = await approve.approve(
                        run, quote, self.approved, pilot=pilot, of_plan=self.plan is not None, ui=ui
                    )
                if stop:
                    run.halt(stop)
                elif quote.to_buy and await is_outdated(plan, run.settings, client):
                    plan = await steps.price(self.rows, run.settings, client, ledger)
                    continue
                else:
                    quote = replace(quote, plan=await adopt(quote.plan, quote.standing, run.settings, ledger))
                break
        return quote

    async def _next_plan(self, bought_plan: Plan) -> Plan | None:
        """The plan of another portion, after all of a plan was bought; None where nothing is left to buy."""
        run, steps = self.run, self.steps
        with run.deciding():
            goes_on = await steps.after(run) if steps.after else False
            if not (goes_on or (run.quote and self._goes_on(run.quote))):
                return None
            plan = await steps.price(self.rows, run.settings, run.client, run.ledger)
            for note in plan.notes:  # what is bought again, and of which rows all samples are used up
                if note not in bought_plan.notes:
                    WATCHER.get().note(note)
            new_jobs = plan.table.join(bought_plan.table, on="key", how="anti")
            return None if new_jobs.is_empty() and not goes_on else plan
        return bought_plan  # the run was stopped meanwhile


async def collect(settings: Settings, *, steps: Steps = Steps(), began: float | None = None) -> Summary:
    """Polls and downloads what is paid for and not stored yet. Never buys; otherwise as `generate`."""
    began, ui = began or time.monotonic(), steps.ui(settings)
    with signals.cancelled_by_signals():
        flow_run = ui.flow_run if ui else None
        async with (
            await steps.connect(settings) as client,
            open_ledger(settings, client, flow_run) as ledger,
            open_run(settings, client, ledger, bounds=steps.bounds) as run,
            steps.beside(run),
        ):
            run.began = began
            summary = await _carry_out(run, steps, None)
            signals.done()
    WATCHER.get().finished(summary)
    return summary


async def _carry_out(run: Run, steps: Steps, quote: Quote | None) -> Summary:
    """Carries out the steps that run side by side for a portion; without a quote nobody submits."""
    if quote and quote.to_buy and not run.stop and not run.has_claimed:
        await asyncio.to_thread(run.spool.probe)
        if note := await run.store.probe():
            WATCHER.get().note(note)
        await claim(run.ledger, run.settings)
        run.has_claimed = True
    run.begin(quote)
    if run.portions > 1:
        await run.take_up_again()
    if steps.before:
        await steps.before(run)
    if quote is None:
        with run.videos.filling(), run.files.filling():
            pass
    async with asyncio.TaskGroup() as group:
        for step in (*([steps.submit] if quote else []), steps.poll, steps.download):
            group.create_task(step(run))
        recorded = group.create_task(steps.record(run))
    return recorded.result()
