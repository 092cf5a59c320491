"""Approve: the gate lets a run begin to buy, or a person is asked first. The ledger keeps what is said."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Protocol

from callsheet.config.settings import Settings
from callsheet.errors import ApprovalRefused, Stop
from callsheet.ledger import changes, gate, words
from callsheet.ledger.gate import Buyer
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.words import Decision, Place, Reason, Word
from callsheet.present import priced, reasons
from callsheet.pricing.plan import write_plan
from callsheet.pricing.quote import Quote
from callsheet.processes import user_name
from callsheet.report.contact_sheet.sheet import INDEX
from callsheet.report.pilot import bought_pilot
from callsheet.session import Run
from callsheet.storage.store import Store
from callsheet.watch import WATCHER, Asked


class InTheUI(Protocol):
    """How a run is approved in the Prefect UI; `tasks/suspend.py` has it."""

    @property
    def flow_run(self) -> str: ...  # noqa: D102
    async def answer_to(self, question: Word) -> Word | None: ...  # noqa: D102
    async def ask(self, asked: Asked, within: float) -> None: ...  # noqa: D102
    def approved(self, word: Word) -> None: ...  # noqa: D102


async def take_answer(ledger: Ledger, buyer: Buyer, ui: InTheUI | None) -> ApprovalRefused | None:
    """Enters the answer for which this flow run was suspended; returns the stop that a no is, or None."""
    last = await ledger.read(lambda connection, batch: words.last_of(connection, ledger.asker, batch))
    if not ui or not last or last.decision is not None or not (answered := await ui.answer_to(last)):
        return None
    await ledger.write(gate.answer, buyer, answered)
    if not answered.is_yes:
        return reasons.refused(answered)
    ui.approved(answered)
    return None


async def approve(
    run: Run,
    quote: Quote,
    approved: bool,
    *,
    pilot: bool,
    of_plan: bool,
    ui: InTheUI | None,
) -> tuple[Quote, Stop | None]:
    """Lets the run begin with what may be bought now, and asks a person where one must say yes first.

    Args:
        run: the open run.
        quote: what the batch would buy.
        approved: somebody has said yes already, whatever the price.
        pilot: this run has bought the pilot.
        of_plan: the run is given the plan that another run was let begin with.
        ui: where a run in the Prefect UI asks; without it, the watcher is asked.

    Returns:
        The quote of what may be bought now (the pilot, or all), and the reason to buy nothing, or None.
    """
    if stop := objection(quote):
        await asyncio.to_thread(write_plan, quote.plan)
        return quote, stop
    part = quote
    if quote.pilot is not None:
        is_first = quote.pilot.to_buy and not pilot
        buys_pilot = is_first and not gate.covers_rest(quote.basis, priced.shown(quote))
        part = quote.pilot if buys_pilot else replace(quote, is_rest=True)
    if not part.to_buy:
        return part, None
    buyer, shown = run.buyer(quote), priced.shown(part)
    draft = new_word(run.ledger)
    if of_plan:
        word = await run.ledger.write(gate.let_join, buyer, shown, draft)
        if word is None:
            raise reasons.not_let_join()
    else:
        word = await run.ledger.write(gate.let_begin, buyer, shown, draft, in_words=reasons.why)
    if word.decision is None:
        word = await _asked(run, part, word, approved, ui)
    if word.decision is None or word.decision is Decision.REFUSED:
        return part, reasons.refused(word) if word.decision else reasons.not_answered(word)
    run.has_begun = True
    limit = await run.ledger.read(changes.limit)
    run.apply_change(changes.LIMIT, None if limit is None else str(limit))
    return part, None


async def ask_about(
    ledger: Ledger, settings: Settings, quote: Quote | None, reason: Reason, sentence: str = ""
) -> Word:
    """The word about what a batch would buy (`gate.let_begin`), where there is a reason of its own to ask.

    Args:
        quote: what it would buy; None where nothing is there yet to buy.
        sentence: the reason in words, where `present/reasons.py` cannot know them.
    """
    buyer = ledger.buyer(settings.budget, quote.affordable if quote else Decimal(0))
    shown = priced.shown(quote) if quote else words.Shown(plan="")
    in_words = partial(reasons.why, also={reason: sentence})
    return await ledger.write(
        gate.let_begin, buyer, shown, new_word(ledger), in_words=in_words, also=[reason]
    )


def new_word(ledger: Ledger) -> Word:
    """A word of the config, to enter where nobody has to be asked, or as a question (`gate.let_begin`)."""
    now = datetime.now(UTC)
    nothing = words.Shown(plan="")
    return Word(
        *(uuid.uuid4().hex, ledger.asker, nothing, (), "", now, ledger.flow_run),
        decision=Decision.NOT_ASKED,
        decided_at=now,
        decided_by=user_name(),
        place=Place.CONFIG,
    )


def objection(quote: Quote) -> Stop | None:
    """Why nothing may be bought, whoever approves it: `budget.on_exceed: refuse`, and it does not fit."""
    obstacle = quote.fitting.obstacle
    if obstacle is None or not quote.fitting.is_refused:
        return None
    return reasons.too_much(quote, obstacle)


async def _asked(run: Run, quote: Quote, question: Word, approved: bool, ui: InTheUI | None) -> Word:
    """The question with its answer, which the ledger keeps; without one where nobody has answered.

    A run of a deployment is suspended here until it is answered in the UI, and does not return. Where one
    buys by a purse, whoever has started it answers nothing: that is for a run of a person.
    """
    watcher, settings = WATCHER.get(), run.settings
    await asyncio.to_thread(write_plan, quote.plan)  # whoever is asked can look at all of it
    if run.ledger.purse is not None:
        return question
    asked = Asked(question, quote)
    if quote.is_rest:
        sheet = Store(settings.report.url).url_of(INDEX) if settings.report.contact_sheet else None
        asked = replace(asked, pilot=await bought_pilot(quote, settings, run.ledger), contact_sheet=sheet)
    if ui and not approved:
        run.asking = True
        await ui.ask(asked, settings.budget.approve_within)
        run.asking = False
    says, place = (True, watcher.yes) if approved else (await watcher.approves(asked), Place.TERMINAL)
    if says is None:
        return question
    decision = Decision.APPROVED if says else Decision.REFUSED
    answered = replace(
        question, decision=decision, decided_at=datetime.now(UTC), decided_by=user_name(), place=place
    )
    await run.ledger.write(gate.answer, run.buyer(quote), answered)
    if ui and answered.is_yes:
        ui.approved(answered)
    return answered
