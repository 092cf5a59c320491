"""The steps of a batch, in their order and side by side.

`Steps()` are the library's own; a flow run of Prefect puts tasks in their place, which do the same. Nothing
here decides about money.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from callsheet import signals
from callsheet.batches.read import Batch, read_batch
from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError, InputError, Interrupted, Stop
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.not_in_ledger import check_ledger
from callsheet.pricing.plan import Plan, adopt, is_outdated, price_batch
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from callsheet.service.client import Client
from callsheet.session import Bounds, Run, may_have_bought, open_run
from callsheet.steps import approve
from callsheet.steps.connect import connect
from callsheet.steps.download import download
from callsheet.steps.poll import poll
from callsheet.steps.record import record
from callsheet.steps.submit import submit
from callsheet.watch import WATCHER


async def read(settings: Settings) -> Batch:
    """Reads and checks the config's batch, off the event loop."""
    return await asyncio.to_thread(read_batch, settings)


@dataclass(frozen=True, slots=True)
class Steps:
    """What carries out each step."""

    connect: Callable[[Settings], Awaitable[Client]] = connect
    read: Callable[[Settings], Awaitable[Batch]] = read
    price: Callable[[Batch, Settings, Client], Awaitable[Plan]] = price_batch
    show: Callable[[Plan, Settings, Client, Choice], Awaitable[Quote]] = approve.show
    approve: Callable[..., Awaitable[tuple[Quote, Stop | None]]] = approve.approve
    submit: Callable[[Run], Coroutine[Any, Any, None]] = submit
    poll: Callable[[Run], Coroutine[Any, Any, None]] = poll
    download: Callable[[Run], Coroutine[Any, Any, None]] = download
    record: Callable[[Run], Coroutine[Any, Any, Summary]] = record
    # what is open beside the four that run side by side
    beside: Callable[[Run], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
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

    With `review.buy_again`, what is rejected meanwhile, by checks or a person, is bought again in another
    round: until each row has a file that is not rejected, or its samples are used up, or something stops it.

    Args:
        settings: the config.
        approved: somebody has said yes already to whatever a person must approve.
        choice: which jobs of the batch to buy.
        plan: the `sha256` of the plan that was approved: nothing is bought of another.
        steps: what carries them out.
        began: when a person began to wait, in monotonic seconds; None for now.

    Raises:
        CallsheetError: what broke the run off; `exit_code` says whether it may have bought anything.
        Interrupted: a signal came before the buying began, or a second one.
        Pause: (Prefect's) the run waits for a person, who is asked in the UI or has suspended it there.
    """
    began = began or time.monotonic()
    # Another round has another plan, and would choose other jobs as the first.
    more_rounds = settings.review.buy_again and plan is None and choice.first is None
    with signals.cancelled_by_signals():
        await check_ledger(settings)
        async with await steps.connect(settings) as client:
            rows = await steps.read(settings)
            made = await steps.price(rows, settings, client)
            last: Summary | None = None  # of what this command has bought so far
            pilot: Summary | None = None  # of this round
            while True:
                with _between(last):
                    await _check_plan(made, plan)
                    shown = await steps.show(made, settings, client, choice)
                    quote, stop = await steps.approve(shown, settings, approved, pilot=pilot)
                    if not stop and await is_outdated(made, settings, client):
                        made = await steps.price(rows, settings, client)
                        continue
                if not stop:
                    quote = replace(quote, plan=await adopt(quote.plan, settings))
                opening = open_run(settings, client, quote=quote, stop=stop, bounds=steps.bounds)
                run, last = await _carry_out(opening, steps, began=began, last=last, is_last=not more_rounds)
                settings = run.settings  # a person may have changed some for this command
                if quote.is_pilot and not last.stop_reason:
                    pilot = last
                    continue
                if last.stop_message or not more_rounds or not run.may_buy.is_set():
                    break
                with _between(last):
                    before, made = made, await steps.price(rows, settings, client)
                if not _goes_on(before, made):
                    break
                pilot = None
            signals.done()
    WATCHER.get().finished(last)
    return last


def _goes_on(before: Plan, made: Plan) -> bool:
    """Whether there is another round: the plan has jobs that the one of the last round did not have.

    A person is told what is bought again, and of which rows all samples are used up.
    """
    for note in made.notes:
        if note not in before.notes:
            WATCHER.get().note(note)
    return not made.table.join(before.table, on="key", how="anti").is_empty()


async def collect(settings: Settings, *, steps: Steps = Steps(), began: float | None = None) -> Summary:
    """Polls and downloads what is paid for and not stored yet. Never buys; otherwise as `generate`."""
    began = began or time.monotonic()
    with signals.cancelled_by_signals():
        await check_ledger(settings)
        async with await steps.connect(settings) as client:
            opening = open_run(settings, client, bounds=steps.bounds)
            _, summary = await _carry_out(opening, steps, began=began)
    WATCHER.get().finished(summary)
    return summary


@contextmanager
def _between(last: Summary | None) -> Iterator[None]:
    """What ends a run after its pilot or a round does not leave as if nothing was bought."""
    try:
        with signals.cancelled_by_signals():
            yield
    except CallsheetError as error:
        if last and isinstance(error, Interrupted):
            error.exit_code = Stop.exit_code
        elif last:
            may_have_bought(error)
        raise


async def _check_plan(made: Plan, approved: str | None) -> None:
    if approved is not None and await asyncio.to_thread(made.sha256) != approved:
        raise InputError(
            "the batch or its prices are not those that were approved, so this run buys nothing",
            hint="Run the batch again; it quotes what it would buy now.",
        )


async def _carry_out(
    opening: AbstractAsyncContextManager[Run],
    steps: Steps,
    *,
    began: float,
    last: Summary | None = None,
    is_last: bool = True,
) -> tuple[Run, Summary]:
    """Carries out the steps that run side by side; without a quote nobody submits.

    `last` is of what the command has bought before, `is_last` whether no other round can follow.
    """
    async with opening as run, steps.beside(run):
        run.began = began
        if last:
            run.limits.submissions, run.limits.rate_limited = last.submissions, last.rate_limited
        if run.quote is None:
            with run.videos.filling(), run.files.filling():
                pass
        async with asyncio.TaskGroup() as group:
            for step in (*([steps.submit] if run.quote else []), steps.poll, steps.download):
                group.create_task(step(run))
            recorded = group.create_task(steps.record(run))
        if run.stop or (is_last and not run.is_pilot):
            signals.done()
    return run, recorded.result()
