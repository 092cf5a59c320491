"""Approve: a person is asked where `budget.approve_above` wants it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from callsheet.errors import ApprovalNeeded, Stop
from callsheet.ledger import approvals
from callsheet.ledger.approvals import Approval, Decision, Place, Question
from callsheet.ledger.spending import user_name
from callsheet.pricing import approval
from callsheet.pricing.claim import check_names
from callsheet.pricing.quote import Quote
from callsheet.report.contact_sheet.sheet import INDEX
from callsheet.report.pilot import bought_pilot
from callsheet.session import Run
from callsheet.storage.store import Store
from callsheet.watch import WATCHER, Asked


class InTheUI(Protocol):
    """How a run is approved in the Prefect UI; `tasks/suspend.py` has it."""

    @property
    def flow_run(self) -> str: ...  # noqa: D102
    async def answer_to(self, asked: Approval) -> Approval | None: ...  # noqa: D102
    async def ask(self, asked: Asked, question: Approval, within: float) -> None: ...  # noqa: D102
    def approved(self, approval: Approval) -> None: ...  # noqa: D102


async def approve(
    run: Run,
    quote: Quote,
    approved: bool,
    *,
    pilot: bool,
    plan: str | None,
    ui: InTheUI | None,
) -> tuple[Quote, Stop | None]:
    """Asks a person where one must approve the quote; the ledger keeps the answer.

    An approval is a bound, and is given once. What it covers is not asked again: the rounds of a run, a later
    run that finishes it, the other runs of a crew.

    Args:
        run: the open run.
        quote: what the batch would buy.
        approved: somebody has said yes already, whatever the price.
        pilot: this run has bought the pilot.
        plan: the hash of a plan that was approved for another run: this one buys by that approval.
        ui: where a run in the Prefect UI asks; without it, the watcher is asked.

    Returns:
        The quote of what may be bought now (the pilot, or all), and the reason to buy nothing, or None.
    """
    answer = await _answer_in_the_ui(run, quote, ui)
    if answer and not answer.is_approved:
        return quote, approval.refused(answer)
    if answer and answer.plan == quote.plan.sha256():  # the batch and its prices are the same
        quote = replace(quote, left={**quote.left, answer.id: answer.at_most}, budget=run.settings.budget)
    if stop := approval.objection(quote):
        return quote, stop
    answers = [*quote.approvals, *([answer] if answer else [])]
    part, question = approval.next_part(quote, answers, piloted=pilot)
    is_rest = question is Question.PILOT
    stop = approval.pilot_to_look_at(part) if is_rest else approval.needed(part)
    if not part.to_buy:
        return part, None
    given = await _known(run, part, question, answers, own=answer, plan=plan)
    if given is None and plan is not None:
        stop = ApprovalNeeded("nobody has approved this plan", hint="Run the batch again.")
    elif given is None and stop is None:
        check_names(quote.taken, run.settings)
        entered = approval.not_asked(part)
        given = await run.ledger.write(approvals.enter, run.ledger.run_id, entered)
    elif given is None and stop is not None:
        asked = Asked(question, part, stop.message)
        said = await _asked(run, asked, approved, ui)
        given = said.id if said.is_approved else None
    if given is None:
        return part, stop
    await run.ledger.write(approvals.buys_by, run.ledger.run_id, given)
    run.approval = "" if part.is_pilot else given
    return replace(part, approval=given), None


async def _known(
    run: Run,
    quote: Quote,
    question: Question,
    answers: Sequence[Approval],
    *,
    own: Approval | None,
    plan: str | None,
) -> str | None:
    """The id of an approval by which the quote may be bought unasked; None where there is none.

    `own`: the answer to this flow run's own question.
    """
    if plan is not None:
        return await run.ledger.read(approvals.of_plan, plan)
    if given := approval.covering(quote, question, answers, own=own):
        return given.id
    if run.approval and not quote.dearer:  # another round
        left = await run.ledger.read(lambda connection, _: approvals.left(connection, run.approval))
        return run.approval if left >= quote.at_most else None
    return None


async def _answer_in_the_ui(run: Run, quote: Quote, ui: InTheUI | None) -> Approval | None:
    """The answer to the question for which this flow run was suspended; from now on it is in the ledger."""
    asked = [one for one in quote.approvals if ui and one.flow_run == ui.flow_run and one.decision is None]
    if not ui or not asked or not (answer := await ui.answer_to(asked[-1])):
        return None
    await run.ledger.write(approvals.answer, answer)
    if answer.is_approved:
        if answer.budget_limit is not None:
            by, limit = answer.decided_by or "", answer.budget_limit
            await run.ledger.write(approvals.says_limit, limit, by, run.ledger.run_id)
            run.change(approvals.LIMIT, str(limit))
        ui.approved(answer)
    return answer


async def _asked(run: Run, asked: Asked, approved: bool, ui: InTheUI | None) -> Approval:
    """What a person was asked, with the answer; the ledger keeps both.

    A run that waits for the UI does not return from here.
    """
    watcher, settings = WATCHER.get(), run.settings
    if asked.question is Question.PILOT:
        sheet = Store(settings.report.url).url_of(INDEX) if settings.report.contact_sheet else None
        asked = replace(asked, pilot=await bought_pilot(asked.quote, settings), contact_sheet=sheet)
    said = approval.question_about(asked.quote, asked.question, ui.flow_run if ui else None)
    # Before it is asked: who is interrupted at it has not answered.
    await run.ledger.write(approvals.ask, said)
    if ui and not approved:
        run.asking = True
        await ui.ask(asked, said, settings.budget.approve_within)
        run.asking = False
    says, place = (True, watcher.yes) if approved else (await watcher.approves(asked), Place.TERMINAL)
    if says is not None:
        decision = Decision.APPROVED if says else Decision.REFUSED
        said = replace(
            said, decision=decision, decided_at=datetime.now(UTC), decided_by=user_name(), place=place
        )
        await run.ledger.write(approvals.answer, said)
    if ui and said.is_approved:
        ui.approved(said)
    return said
