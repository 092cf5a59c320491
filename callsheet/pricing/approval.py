"""Whether what is quoted may be bought: when nothing may, when a person must approve it, and who has.

Decides by the quote, the config and the ledger's approvals, and asks nobody.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from callsheet.errors import ApprovalNeeded, ApprovalRefused, BudgetReached, PriceChanged, Stop
from callsheet.ledger.approvals import APPROVE, PILOT, Approval, Decision, Question
from callsheet.plain_text import counted, printable
from callsheet.pricing.bought import are_too_many, likely_repeats
from callsheet.pricing.facts import guessed
from callsheet.pricing.quote import Quote
from callsheet.records import dollars

_HINT = "Look at `callsheet quote`, then approve with `callsheet run --yes`."

_GUESSED_HINT = (
    "Look at `callsheet quote`, then approve with `callsheet run --yes`, or correct the config and remove "
    "input.guessed from it."
)
_REPEATS_HINT = (
    "`callsheet quote` says why. With the ids and prompts as they were they are not bought again; to buy "
    "them, approve with `callsheet run --yes`, or set budget.repeats to buy."
)


def objection(quote: Quote) -> Stop | None:
    """Why nothing may be bought, apart from a missing approval; None where buying may begin."""
    if quote.budget.on_exceed != "refuse":
        return None
    limit, stop = quote.exposure_limit
    sent, per_day, left = quote.totals.sent, quote.budget.per_day, quote.day_left
    hint = "Nothing was bought, because budget.on_exceed is 'refuse'."
    if sent + quote.quoted > limit:
        together = f" and the {dollars(sent)} USD spent, in flight or in doubt" if sent else ""
        return stop(
            f"the quote of {dollars(quote.quoted)} USD{together} "
            f"{'do' if sent else 'does'} not fit into the {stop.reason} of {dollars(limit)} USD",
            hint=hint,
        )
    does_not_fit = f"the quote of {dollars(quote.quoted)} USD does not fit into what is left of"
    in_all, left_in_all = quote.budget.ledger, quote.ledger_left
    if in_all is not None and left_in_all is not None and quote.quoted > left_in_all:
        used = f"{dollars(quote.used_ever)} USD are used by {counted(quote.used_by, 'batch', 'batches')}"
        return BudgetReached(
            f"{does_not_fit} budget.ledger, {dollars(left_in_all)} of {dollars(in_all)} USD; {used}",
            hint=f"{hint} Run again with a higher budget.ledger.",
        )
    if per_day is None or left is None or quote.quoted <= left:
        return None
    advice = "Run again after midnight UTC, or with a higher budget.per_day."
    if quote.quoted > per_day:
        advice = (
            "It is more than the limit of a whole day: raise budget.per_day, or set budget.on_exceed to "
            "'stop' to buy a part each day."
        )
    return BudgetReached(
        f"{does_not_fit} budget.per_day for today, {dollars(left)} of {dollars(per_day)} USD",
        hint=f"{hint} {advice}",
    )


def needed(quote: Quote) -> Stop | None:
    """Why a person must approve the quote first; None where nobody has to.

    That is above `budget.approve_above`, where a rate has changed, where the service charges more than was
    quoted, where many jobs look like what is bought, and where nothing of the batch was bought yet and
    something was guessed.
    """
    if not quote.to_buy:
        return None
    if quote.dearer:
        return PriceChanged(quote.charged.in_words(), hint=APPROVE)
    if quote.budget.repeats == "ask" and are_too_many(quote.repeats, quote.to_buy):
        return ApprovalNeeded(likely_repeats(quote.repeats, quote.to_buy), hint=_REPEATS_HINT)
    if quote.guessed and not quote.totals.states and not any(one.is_approved for one in quote.approvals):
        return ApprovalNeeded(f"`callsheet init` has guessed: {guessed(quote.guessed)}", hint=_GUESSED_HINT)
    above = quote.budget.approve_above
    reason = _reason(quote, above) if above is not None else ""
    return ApprovalNeeded(reason, hint=_HINT) if reason else None


def _reason(quote: Quote, above: Decimal) -> str:
    """Why a quote is above `budget.approve_above`, or which rate nobody has agreed to; otherwise empty."""
    too_much = f"above budget.approve_above, {dollars(above)} USD"
    if quote.quoted > above:
        return f"the quote of {dollars(quote.quoted)} USD is {too_much}"
    if min(quote.at_most, quote.exposure_limit[0] - quote.totals.sent) > above:
        return f"the quote may come to {dollars(quote.at_most)} USD, {too_much}"
    if not (changes := quote.changes()):
        return ""
    more = f", and {len(changes) - 1:,} more" if len(changes) > 1 else ""
    return f"a rate has changed: {printable(changes[0])}{more}"


def next_part(quote: Quote, answers: Iterable[Approval], *, piloted: bool) -> tuple[Quote, Question]:
    """What may be bought next, a part of the quote or all of it, and what is asked about it: first the pilot,
    then the rest; all of it where a person has said yes already to the rest of this very plan.

    `piloted` says that this run has tried every job of the pilot.
    """
    if quote.pilot is None:
        return quote, Question.QUOTE
    if quote.pilot.to_buy and not piloted and not covering(quote, Question.PILOT, answers):
        return quote.pilot, Question.QUOTE
    return quote, Question.PILOT


def pilot_to_look_at(quote: Quote) -> ApprovalNeeded:
    """Why the rest of the batch is not bought yet: somebody must look at the pilot."""
    return ApprovalNeeded(
        f"the pilot is bought; the other {counted(quote.to_buy, 'job')} for {dollars(quote.quoted)} USD must "
        "be approved",
        hint="Look at the pilot, then go on with the same command and `--yes`.",
    )


def refused(approval: Approval) -> ApprovalRefused:
    """The stop that a person's no is."""
    what = "the rest after the pilot" if approval.question is Question.PILOT else "the quote"
    note = f": {printable(approval.note)}" if approval.note else ""
    return ApprovalRefused(
        f"{printable(approval.decided_by or 'somebody')} has refused {what} of "
        f"{dollars(approval.quoted)} USD{note}",
        hint="Run the batch again to be asked again.",
    )


def question_about(quote: Quote, question: Question, flow_run: str | None) -> Approval:
    """A question to a person about what is to be bought, without an answer; `flow_run` is the id of the flow
    run that asks.
    """
    return Approval(
        id=uuid.uuid4().hex,
        question=question,
        plan=quote.plan.sha256(),
        jobs=quote.to_buy,
        quoted=quote.quoted,
        at_most=quote.at_most,
        rates=list(quote.rates().values()),
        asked_at=datetime.now(UTC),
        flow_run=flow_run,
        charges=quote.dearer,
        part=quote.part,
    )


def not_asked(quote: Quote) -> Approval:
    """What is entered in place of an approval where nobody has to be asked (`approvals.enter`)."""
    return replace(question_about(quote, Question.QUOTE, None), decision=Decision.NOT_ASKED)


def covering(
    quote: Quote, question: Question, among: Iterable[Approval], *, own: Approval | None = None
) -> Approval | None:
    """The approval among these by which a quote may be bought: it is of the same plan, and has enough left.

    None where there is none, and where somebody must accept what was charged. `own`: the answer to the run's
    own question. Of another run's the words do not say which jobs of the plan were chosen.
    """
    parts = ("", PILOT) if quote.is_pilot else ("",)
    among = [one for one in among if one.part in parts or (one == own and one.part == quote.part)]
    found = [one for one in among if one.is_approved and one.question is question]
    enough = [one for one in found if quote.left.get(one.id, Decimal(0)) >= quote.at_most]
    return enough[-1] if enough and not quote.dearer else None
