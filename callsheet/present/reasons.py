"""Why a run asks a person, what was answered, and why the gate stops the buying: what it decides, in words.

`ledger/gate.py` gives grounds and obstacles, with their amounts. Here is the sentence for each, and what a
person can do about it. Other stops are failures (a key, a service, a storage): these say themselves what they
are, where they are found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from callsheet.config.settings import Budget
from callsheet.errors import (
    ApprovalNeeded,
    ApprovalRefused,
    BalanceTooLow,
    BudgetReached,
    PriceChanged,
    Stop,
)
from callsheet.ledger.charges import Charge, is_dearer
from callsheet.ledger.gate import Basis, Grounds, Obstacle
from callsheet.ledger.marks import Counts
from callsheet.ledger.words import Reason, Shown, Word
from callsheet.plain_text import and_more, counted, printable, row_name
from callsheet.present.allowances import why_not
from callsheet.present.amounts import above_quote, amount_left, have_no_price, jobs_for, of_limit, price
from callsheet.pricing.quote import Quote
from callsheet.records import Job, dollars

TOMORROW = "same command goes on after midnight UTC"
REFUSES = "because budget.on_exceed is 'refuse'"


# ---- why a person is asked, and what was answered


def why(grounds: Grounds, *, also: Mapping[Reason, str] | None = None) -> str:
    """The reasons to ask, with a sentence for each; `also` has those that only the caller knows."""
    sentences = also or {}
    return "; ".join(sentences.get(reason) or _SENTENCES[reason](grounds) for reason in grounds.reasons)


def _unpriced(grounds: Grounds) -> str:
    return f"{have_no_price(grounds.shown.unpriced)}, and a person is asked above {_approve_above(grounds)}"


def _price(grounds: Grounds) -> str:
    shown = grounds.shown
    if shown.quoted > grounds.approve_above:
        return f"{_the_quote(shown.quoted)} is above {_approve_above(grounds)}"
    return f"the quote may come to {dollars(shown.at_most)} USD, above {_approve_above(grounds)}"


def _approve_above(grounds: Grounds) -> str:
    return f"budget.approve_above, {dollars(grounds.approve_above)} USD"


def _rate(grounds: Grounds) -> str:
    rates = grounds.shown.new_rates
    return f"a rate has changed: {and_more(list(map(printable, rates[:1])), len(rates))}"


def _pilot(grounds: Grounds) -> str:
    rest = jobs_for(grounds.shown.jobs, grounds.shown.quoted)
    return f"the pilot is bought; the other {rest} must be approved"


def of_charges(to_accept: Sequence[Charge]) -> str:
    """The charges that nobody has accepted; empty without any."""
    dearer = [
        above_quote(f"row {row_name(charge.row_id, charge.sample)}", charge.cost, charge.quoted)
        for charge in to_accept
        if is_dearer(charge.cost, charge.quoted)
    ]
    others = [
        f"row {row_name(charge.row_id, charge.sample)}: {charge.delivered}, ordered {charge.model}"
        for charge in to_accept
        if charge.delivered
    ]
    what_is_wrong = {
        "the service charges more than was quoted": dearer,
        "the service delivers another model than was ordered": others,
    }
    return "; ".join(f"{wrong}: {'; '.join(listed)}" for wrong, listed in what_is_wrong.items() if listed)


def _purse(grounds: Grounds) -> str:
    beyond, shown = grounds.beyond_purse, grounds.shown
    assert beyond  # noqa: S101 - it is the reason
    name, purse = printable(beyond.name), beyond.purse
    if purse is None:
        return f"nobody has given {name} a purse for this batch"
    if purse.shut:
        return f"the purse of {name} is {why_not(purse)}"
    if beyond.is_used_up:
        return f"the purse of {name} has {amount_left(beyond.left, purse.amount)}, and {_jobs(shown)} to buy"
    if beyond.other_model:
        models = f"not for {beyond.other_model}, but for {', '.join(purse.models)}"
        return printable(f"the purse of {name} is {models}")
    return f"a purse pays no job without a price, and {have_no_price(shown.unpriced, ' to buy')}"


def _asked_before(grounds: Grounds) -> str:
    question = grounds.asked_before
    assert question  # noqa: S101 - it is the reason
    if not question.is_yes:
        return f"this run has asked about {asked(question)}, and nobody has said yes"
    return f"{asked(question)} was approved, and now it is {_jobs(grounds.shown)}"


_SENTENCES: Mapping[Reason, Callable[[Grounds], str]] = {
    Reason.CHARGES: lambda grounds: of_charges(grounds.shown.charges),
    Reason.REPEATS: lambda grounds: grounds.shown.repeats,
    Reason.GUESSES: lambda grounds: f"`callsheet init` has guessed: {'; '.join(grounds.guesses)}",
    Reason.UNCLEAR: lambda grounds: "; ".join(grounds.unclear),
    Reason.PURSE: _purse,
    Reason.UNPRICED: _unpriced,
    Reason.PRICE: _price,
    Reason.RATE: _rate,
    Reason.PILOT: _pilot,
    Reason.ASKED: _asked_before,
    Reason.SUSPENDED: lambda _: "the run was suspended",
}


def made_of_kept(previous: str, review: Counts, old_files: str, unpriced: str) -> str:
    """Why a production asks before the batch that is made of what is kept of another one.

    `old_files` are what `status.outdated` says; `unpriced`: the batch, where nothing is kept yet of which it
    could be made; otherwise empty.
    """
    sentences = [
        f"{previous} is bought: {counted(review.kept, 'file')} kept, {review.rejected:,} rejected, "
        f"{review.to_review:,} to review; it goes on with what is kept",
        old_files,
        f"Nothing is kept yet, so {unpriced} has no price: keep what is good first" if unpriced else "",
    ]
    return ". ".join(filter(None, sentences))


def asked(word: Word) -> str:
    """What was asked: `the quote, 3 jobs for 0.1200 USD`."""
    if not word.shown.plan:
        return "a batch that had nothing to buy yet"
    subject = "the rest after the pilot" if word.question == "pilot" else "the quote"
    return f"{subject}, {_jobs(word.shown)}"


def asked_and_answered(word: Word) -> str:
    """A question and its answer in one line."""
    if word.decision is None or word.decided_at is None:
        return f"{asked(word)}: asked {word.asked_at:%Y-%m-%d %H:%M} UTC, not answered"
    limit = "" if word.budget_limit is None else f", up to {dollars(word.budget_limit)} USD"
    note = f": {word.note}" if word.note else ""
    decided = f"by {word.decided_by} ({word.place}), {word.decided_at:%Y-%m-%d %H:%M} UTC"
    return f"{asked(word)}: {word.decision}{limit} {decided}{note}"


def price_of(shown: Shown) -> str:
    """What is to pay for what is shown, with the most that it can come to."""
    return price(shown.quoted, shown.at_most, shown.unpriced)


def _jobs(shown: Shown) -> str:
    return jobs_for(shown.jobs, shown.quoted, shown.at_most, shown.unpriced)


def _the_quote(quoted: Decimal) -> str:
    return f"the quote of {dollars(quoted)} USD"


# ---- why the buying stops


_APPROVE = "Look at `callsheet quote`, then approve with `callsheet run --yes`"
_NO_YES = "nobody has said yes to what is left to buy"
_BY_A_PERSON = "A person goes on from here: `callsheet run`, or another `callsheet purse`."
_HINTS = {
    Reason.CHARGES: "Nothing more is bought until somebody approves that: run it again with --yes, or answer "
    "its question.",
    Reason.REPEATS: "`callsheet quote` says why. With the ids and prompts as they were they are not bought "
    "again; to buy them, approve with `callsheet run --yes`, or set budget.repeats to buy.",
    Reason.GUESSES: f"{_APPROVE}, or correct the config and remove input.guessed from it.",
    Reason.UNCLEAR: "Correct the batch file, or approve with `callsheet run --yes` what is meant so.",
    Reason.PURSE: _BY_A_PERSON,
    Reason.PILOT: "Look at the pilot, then go on with the same command and `--yes`.",
}


def not_answered(question: Word) -> Stop:
    """The stop where nobody has answered a question."""
    first = question.about[0]
    kind = PriceChanged if first is Reason.CHARGES else ApprovalNeeded
    return kind(question.why, hint=_HINTS.get(first, f"{_APPROVE}."))


def refused(word: Word) -> ApprovalRefused:
    """The stop that a person's no is."""
    note = f": {printable(word.note)}" if word.note else ""
    return ApprovalRefused(
        f"{printable(word.decided_by or 'somebody')} has refused {asked(word)}{note}",
        hint="Run the batch again to be asked again.",
    )


def not_let_join() -> ApprovalNeeded:
    """The stop of a run that is given a plan with which no run was let begin."""
    return ApprovalNeeded("nobody has approved this plan", hint="Run the batch again.")


def not_reviewed(sentence: str, next_batch: str) -> ApprovalNeeded:
    """The stop of a production in which nobody can be asked, with why it asks (`made_of_kept`)."""
    hint = "Keep what is good with callsheet review, then run the next config."
    return ApprovalNeeded(f"{sentence}; the next batch is {next_batch}", hint=hint)


def at_wall(
    obstacle: Obstacle, jobs: Sequence[Job], left: Decimal, budget: Budget, basis: Basis, *, skips: bool
) -> Stop:
    """The stop where the first of these jobs does not fit; `skips`: none of them does, and others did.

    `left` is what is left within the obstacle, in dollars.
    """
    first = f"row {jobs[0].row_id}, {dollars(jobs[0].quoted)} USD"
    does_not_fit = f"{first}, does not fit"
    if skips:
        does_not_fit = f"skipped {counted(len(jobs), 'job')} (the first: {first}), which cost more than"
    return _at(obstacle, does_not_fit, left, budget, basis)


def at_closed_gate(obstacle: Obstacle, basis: Basis) -> Stop:
    """The stop where a person must say yes before any job leaves."""
    if obstacle is Obstacle.PRICE:
        return PriceChanged(of_charges(basis.charged.unaccepted), hint=_HINTS[Reason.CHARGES])
    return ApprovalNeeded(_NO_YES, hint=f"{_APPROVE}.")


def too_much(quote: Quote, obstacle: Obstacle) -> Stop:
    """The stop of a quote that does not fit, with `budget.on_exceed: refuse`."""
    budget, basis = quote.budget, quote.basis
    left = max(Decimal(0), basis.room[obstacle])
    stop = _at(obstacle, f"{_the_quote(quote.quoted)} does not fit", left, budget, basis)
    if obstacle is Obstacle.DAY and budget.per_day is not None and quote.quoted > budget.per_day:
        stop.hint = (
            "It is more than the limit of a whole day: raise budget.per_day, or set budget.on_exceed to "
            "'stop' to buy a part each day."
        )
    stop.hint = f"Nothing was bought, {REFUSES}. {stop.hint}"
    return stop


def with_listed_rates(stop: PriceChanged, changes: Sequence[str]) -> PriceChanged:
    """The stop, with how what the catalogue lists has changed since the quote."""
    listed = ["the catalogue has changed", *changes[:3]] if changes else ["the catalogue is the same"]
    return PriceChanged(printable("; ".join([stop.message, *listed])), hint=stop.hint)


def _at(obstacle: Obstacle, does_not_fit: str, left: Decimal, budget: Budget, basis: Basis) -> Stop:
    """The stop at an obstacle; `does_not_fit` is such as `row 7, 0.0400 USD, does not fit`."""
    match obstacle:
        case Obstacle.PRICE | Obstacle.QUESTION:
            return at_closed_gate(obstacle, basis)
        case Obstacle.ALLOWED | Obstacle.PURSE:
            return ApprovalNeeded(_NO_YES, hint=_BY_A_PERSON)
        case Obstacle.BALANCE:
            message = f"{does_not_fit} what is left of the balance: {of_limit(left, None)}"
            return BalanceTooLow(message, hint=_with_higher("balance"))
        case Obstacle.LIMIT:
            message = f"{does_not_fit} what is left of the budget: {of_limit(left, budget.limit)}"
            return BudgetReached(message, hint=_with_higher("budget.limit"))
        case Obstacle.DAY:
            room = of_limit(left, budget.per_day)
            message = f"{does_not_fit} what is left of budget.per_day for today: {room}"
            return BudgetReached(message, hint=f"The {TOMORROW}, or with a higher budget.per_day.")
        case Obstacle.LEDGER:
            used = f"{dollars(basis.used_ever)} USD are used by {counted(basis.used_by, 'batch', 'batches')}"
            room = of_limit(left, budget.ledger)
            lists = "`callsheet status` without a config lists the batches."
            return BudgetReached(
                f"{does_not_fit} what is left of budget.ledger: {room}; {used}",
                hint=f"{_with_higher('budget.ledger')} {lists}",
            )


def _with_higher(what: str) -> str:
    return f"With a higher {what} the same command goes on from here."
