"""Approve: the quote is shown, and a person is asked where `budget.approve_above` wants it.

A plain function, not a step: it takes no time, and its quote belongs to the page of the whole run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError, Stop
from callsheet.ledger.approvals import Approval, Decision, Place, Question
from callsheet.ledger.doubts import login
from callsheet.ledger.ledger import Ledger
from callsheet.pricing import approval
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.plan import Plan
from callsheet.pricing.quote import Quote, quote_plan
from callsheet.report.contact_sheet.page import INDEX
from callsheet.report.pilot import bought_pilot
from callsheet.report.summary import Summary
from callsheet.service.client import Client
from callsheet.storage.store import Store
from callsheet.watch import WATCHER, Asked
from tasks import artifacts, events, suspend
from tasks.pressed import Pressed, pressed


async def show(plan: Plan, settings: Settings, client: Client, choice: Choice = ALL) -> Quote:
    """Makes the quote, and shows it.

    Raises:
        InputError: rows were rejected, and `input.strict` wants none; or a chosen row is not in the batch.
    """
    quote = await quote_plan(plan, settings, client, choice)
    WATCHER.get().quoted(quote)
    await artifacts.name_run(settings.batch, quote)
    await artifacts.show_quote(quote)
    events.quoted(quote)
    return quote


async def approve(
    plan: Plan,
    settings: Settings,
    client: Client,
    approved: bool,
    *,
    choice: Choice = ALL,
    pilot: Summary | None = None,
) -> tuple[Quote, Stop | None]:
    """Shows the quote, and asks a person where one must approve it; the ledger keeps the answer.

    Args:
        plan: what the batch would buy.
        settings: the config.
        client: for the balance.
        approved: somebody has said yes already, whatever the price.
        choice: which jobs of the plan it is about.
        pilot: the summary of the pilot, where this run has bought it.

    Returns:
        The quote of what may be bought now (the pilot, or all), and the reason to buy nothing, or None.

    Raises:
        InputError: rows were rejected, and `input.strict` wants none; or a chosen row is not in the batch.
        Pause: (Prefect's) the run waits for a person; it begins again with the answer.
    """
    quote = await show(plan, settings, client, choice)
    answer = await _answer_in_the_ui(quote, settings)
    if answer and not answer.is_approved:
        return quote, approval.refused(answer)
    own = [*_of_this_run(quote), *([answer] if answer else [])]
    limits = [one.budget_limit for one in own if one.is_approved and one.budget_limit is not None]
    quote = quote.with_limit(limits[-1] if limits else None)
    if stop := approval.objection(quote):
        return quote, stop
    part, question = approval.next_part(quote, [*quote.approvals, *own], piloted=pilot is not None)
    if question is None or approval.is_covered(part, question, own):
        return replace(part, is_approved=True), None
    is_rest = question is Question.PILOT
    stop = approval.pilot_to_look_at(part) if is_rest else approval.needed(part, settings.budget)
    if stop is None:
        return part, None
    if await _is_approved(await _asked(part, question, stop, settings), settings, approved):
        return replace(part, is_approved=True), None
    return part, stop


async def ask_to_go_on(quote: Quote, summary: Summary, settings: Settings, client: Client) -> None:
    """Where a person has suspended this run of a deployment, asks in the UI whether to buy what is left.

    It is the question about the quote, which Resume shows; whoever answers may set another limit.

    Raises:
        Pause: (Prefect's) the run waits for a person; it begins again with the answer.
    """
    if await pressed() is not Pressed.SUSPEND:
        return
    try:
        left = await quote_plan(quote.plan, settings, client, quote.choice)
    except CallsheetError:  # then Resume asks nothing
        return
    if not left.to_buy:
        return
    left = left.with_limit(quote.budget.limit)  # another one that was set before
    question = approval.question_about(left, Question.QUOTE, suspend.flow_run_id())
    async with _ledger(settings) as ledger:
        await ledger.ask(question)
    shown = artifacts.question_in_markdown(Asked(Question.QUOTE, left, "the run was suspended"))
    await suspend.stay(summary.line(), question, shown)


async def _asked(quote: Quote, question: Question, needed: Stop, settings: Settings) -> Asked:
    if question is not Question.PILOT:
        return Asked(question, quote, needed.message)
    sheet = Store(settings.report.url).url_of(INDEX) if settings.report.contact_sheet else None
    return Asked(question, quote, needed.message, await bought_pilot(quote, settings), sheet)


def _of_this_run(quote: Quote) -> list[Approval]:
    """What this flow run has asked; outside of Prefect nothing, because each command asks anew."""
    flow_run = suspend.flow_run_id()
    return [one for one in quote.approvals if flow_run and one.flow_run == flow_run]


async def _answer_in_the_ui(quote: Quote, settings: Settings) -> Approval | None:
    """The answer to the question for which this flow run was suspended; from now on it is in the ledger."""
    asked = [one for one in _of_this_run(quote) if one.decision is None]
    if not asked or not (answer := await suspend.answer_to(asked[-1])):
        return None
    async with _ledger(settings) as ledger:
        await ledger.answer(answer)
    if answer.is_approved:
        events.approved(settings.batch, answer)
    return answer


async def _is_approved(asked: Asked, settings: Settings, approved: bool) -> bool:
    """Whether a person says yes, or has said so; the ledger keeps what was asked, and the answer.

    A run that waits for the UI does not return from here.
    """
    watcher = WATCHER.get()
    question = approval.question_about(asked.quote, asked.question, suspend.flow_run_id())
    async with _ledger(settings) as ledger:
        await ledger.ask(question)  # before it is asked: who is interrupted at it has not answered
        if not approved and suspend.can_suspend():
            within = settings.budget.approve_within
            await suspend.ask(question, artifacts.question_in_markdown(asked), within)
            return False
        says, place = (True, watcher.yes) if approved else (watcher.approves(asked), Place.TERMINAL)
        if says is not None:
            decision = Decision.APPROVED if says else Decision.REFUSED
            question = approval.answered(question, decision, by=login(), place=place)
            await ledger.answer(question)
    if question.is_approved:
        events.approved(settings.batch, question)
    return question.is_approved


@asynccontextmanager
async def _ledger(settings: Settings) -> AsyncIterator[Ledger]:
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        yield ledger
    finally:
        await ledger.close()
