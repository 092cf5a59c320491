"""Approve: the quote is shown, and a person is asked where `budget.approve_above` wants it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Protocol

from callsheet.config.settings import Settings
from callsheet.errors import Stop
from callsheet.ledger import approvals
from callsheet.ledger.approvals import Approval, Decision, Place, Question
from callsheet.ledger.doubts import login
from callsheet.ledger.ledger import Ledger
from callsheet.pricing import approval
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.not_in_ledger import check_names
from callsheet.pricing.plan import Plan
from callsheet.pricing.quote import Quote, quote_plan
from callsheet.report.contact_sheet.page import INDEX
from callsheet.report.pilot import bought_pilot
from callsheet.report.summary import Summary
from callsheet.service.client import Client
from callsheet.storage.store import Store
from callsheet.watch import WATCHER, Asked


class InTheUI(Protocol):
    """How a run is approved in the Prefect UI; `tasks/suspend.py` has it."""

    @property
    def flow_run(self) -> str:
        """The flow run's id."""

    async def answer_to(self, asked: Approval) -> Approval | None:
        """The question with the answer that a person has given; None where nobody has."""

    async def ask(self, asked: Asked, question: Approval, within: float) -> None:
        """Suspends the run until a person has answered, and ends this process.

        It returns where nobody can be asked in the UI.
        """

    def approved(self, approval: Approval) -> None:
        """A person has said yes; the ledger has it."""


async def show(plan: Plan, settings: Settings, client: Client, choice: Choice = ALL) -> Quote:
    """Makes the quote, and shows it.

    Raises:
        InputError: rows were rejected, and `input.strict` wants none; or a chosen row is not in the batch.
    """
    quote = await quote_plan(plan, settings, client, choice)
    WATCHER.get().quoted(quote)
    return quote


async def approve(
    quote: Quote,
    settings: Settings,
    approved: bool,
    *,
    pilot: Summary | None = None,
    ui: InTheUI | None = None,
) -> tuple[Quote, Stop | None]:
    """Asks a person where one must approve the quote; the ledger keeps the answer.

    Args:
        quote: what the batch would buy.
        settings: the config.
        approved: somebody has said yes already, whatever the price.
        pilot: the summary of the pilot, where this run has bought it.
        ui: where a run in the Prefect UI asks; without it, the watcher is asked.

    Returns:
        The quote of what may be bought now (the pilot, or all), and the reason to buy nothing, or None.
    """
    answer = await _answer_in_the_ui(quote, settings, ui)
    if answer and not answer.is_approved:
        return quote, approval.refused(answer)
    quote = quote.with_limit(limit_set(quote, ui, answer))
    if stop := approval.objection(quote):
        return quote, stop
    own = _of_this_run(quote, ui, answer)
    part, question = approval.next_part(quote, [*quote.approvals, *own], piloted=pilot is not None)
    if question is None or approval.is_covered(part, question, own):
        return replace(part, is_approved=True), None
    is_rest = question is Question.PILOT
    stop = approval.pilot_to_look_at(part) if is_rest else approval.needed(part)
    if stop is None:
        check_names(quote.taken, settings)
        return part, None
    if await _is_approved(await _asked(part, question, stop, settings), settings, approved, ui):
        return replace(part, is_approved=True), None
    return part, stop


async def _asked(quote: Quote, question: Question, needed: Stop, settings: Settings) -> Asked:
    if question is not Question.PILOT:
        return Asked(question, quote, needed.message)
    sheet = Store(settings.report.url).url_of(INDEX) if settings.report.contact_sheet else None
    return Asked(question, quote, needed.message, await bought_pilot(quote, settings), sheet)


def limit_set(quote: Quote, ui: InTheUI | None, answer: Approval | None = None) -> Decimal | None:
    """The limit that a person has set for this flow run in an answer, in dollars; None where nobody has."""
    own = _of_this_run(quote, ui, answer)
    limits = [one.budget_limit for one in own if one.is_approved and one.budget_limit is not None]
    return limits[-1] if limits else None


def _of_this_run(quote: Quote, ui: InTheUI | None, answer: Approval | None = None) -> list[Approval]:
    """What this flow run has asked; outside of Prefect nothing, because each command asks anew."""
    asked = [one for one in quote.approvals if ui and one.flow_run == ui.flow_run]
    return [*asked, answer] if answer else asked


async def _answer_in_the_ui(quote: Quote, settings: Settings, ui: InTheUI | None) -> Approval | None:
    """The answer to the question for which this flow run was suspended; from now on it is in the ledger."""
    asked = [one for one in _of_this_run(quote, ui) if one.decision is None]
    if not ui or not asked or not (answer := await ui.answer_to(asked[-1])):
        return None
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        await ledger.write(approvals.answer, answer)
    if answer.is_approved:
        ui.approved(answer)
    return answer


async def _is_approved(asked: Asked, settings: Settings, approved: bool, ui: InTheUI | None) -> bool:
    """Whether a person says yes, or has said so; the ledger keeps what was asked, and the answer.

    A run that waits for the UI does not return from here.
    """
    watcher = WATCHER.get()
    question = approval.question_about(asked.quote, asked.question, ui.flow_run if ui else None)
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        # Before it is asked: who is interrupted at it has not answered.
        await ledger.write(approvals.ask, question)
        if ui and not approved:
            await ui.ask(asked, question, settings.budget.approve_within)
        says, place = (True, watcher.yes) if approved else (await watcher.approves(asked), Place.TERMINAL)
        if says is not None:
            decision = Decision.APPROVED if says else Decision.REFUSED
            question = replace(
                question, decision=decision, decided_at=datetime.now(UTC), decided_by=login(), place=place
            )
            await ledger.write(approvals.answer, question)
    if ui and question.is_approved:
        ui.approved(question)
    return question.is_approved
