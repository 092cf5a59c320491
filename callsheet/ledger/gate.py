"""May a job leave, and if not, why: the one place that decides it, in the ledger's own transactions.

A job may leave where a person, or the config where nobody has to be asked, has let its run begin
(`let_begin`), where no charge waits for a person (`charges.py`), and where it fits: the newest word about
`budget.limit`, what the batch may come to by all words (`words.allowed`), the purse by which its run buys,
what all batches may spend in a day and ever, and the balance. That is looked at when it is reserved, and
again in the transaction that says that it is about to be sent, for all runs of the batch together. Money is
in dollars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum, StrEnum, auto
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.config.settings import Budget
from callsheet.errors import (
    ApprovalNeeded,
    BalanceTooLow,
    BudgetReached,
    LedgerError,
    PriceChanged,
    Stop,
)
from callsheet.ledger import changes, charges, leases, purses, queries, sums, words, writing
from callsheet.ledger.charges import Charge
from callsheet.ledger.purses import Purse
from callsheet.ledger.queries import Policy, to_buy
from callsheet.ledger.tables import Values, attempts
from callsheet.ledger.words import Place, Reason, Shown, Word
from callsheet.plain_text import and_more, counted, printable
from callsheet.records import NOT_CHARGED, Attempt, Job, State, dollars


class Obstacle(StrEnum):
    """Why a job may not leave."""

    QUESTION = "question"
    """Its run was not let begin, or has a question that is not answered with yes."""

    PRICE = "price"
    """Jobs were charged more than was quoted, or for another model, and nobody has accepted that."""

    LIMIT = "limit"
    """It does not fit what the batch may spend: `budget.limit`, as it was said last."""

    ALLOWED = "allowed"
    """It does not fit what was approved, or quoted where nobody had to approve it."""

    PURSE = "purse"
    """It does not fit the purse by which its run buys."""

    BALANCE = "balance"
    """It does not fit what the workspace can pay."""

    LEDGER = "ledger"
    """It does not fit what the whole ledger may spend, ever."""

    DAY = "day"
    """It does not fit what the whole ledger may spend in a UTC day."""


class Counting(Enum):
    """Which reservations count besides what is spent, in flight and in doubt."""

    QUOTE = auto()
    """Those of the ledger's other batches: its own are part of what the batch has to buy."""

    RESERVE = auto()
    """All of living runs. For what was approved only the run's own: another's may go back."""

    SEND = auto()
    """None: each is looked at in its turn."""


@dataclass(frozen=True, slots=True)
class Buyer:
    """A run that wants to buy.

    Attributes:
        asker: the flow run of Prefect, or outside of Prefect the run: whose questions are its own.
        budget: what its config says now.
        affordable: what the batch may come to before the workspace cannot pay: spent, reserved, in flight and
            in doubt.
        purse: the name in which it buys, and is not asked within what a person has given for that; None where
            it buys as the person who has started it.
    """

    batch: str
    run_id: str
    asker: str
    budget: Budget
    affordable: Decimal
    purse: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What counts when a batch is quoted, and when its run is let begin, at one moment.

    Attributes:
        words: all words of the batch, the oldest first.
        exposure: what was spent, in flight and in doubt, of the jobs with a price.
        limit: what the batch may spend once the run is let begin; None for no limit.
        room: what is left for the batch within each obstacle that there is.
        charged: how the batch is charged.
        to_accept: the charges, above their quotes or for other models, that a person must accept first.
        known_rates: the catalogue's entries, by model, at which the batch last bought or was approved.
        used_today, used_ever: what counts against `budget.per_day` and `budget.ledger`.
        used_by: how many batches that belongs to.
        purse: the newest of the name in which the run buys; None without one.
    """

    words: tuple[Word, ...] = ()
    exposure: Decimal = Decimal(0)
    limit: Decimal | None = None
    room: Mapping[Obstacle, Decimal] = field(default_factory=dict)
    charged: charges.Charged = field(default_factory=charges.Charged)
    to_accept: tuple[Charge, ...] = ()
    known_rates: Mapping[str, Any] = field(default_factory=dict)
    used_today: Decimal = Decimal(0)
    used_ever: Decimal = Decimal(0)
    used_by: int = 0
    purse: Purse | None = None


def said(connection: sa.Connection, batch: str, buyer: Buyer, limit: Decimal | None) -> Said:
    """What counts for a run of the batch whose config says this `limit`."""
    all_words = words.all_of_batch(connection, batch)
    limit = _limit(connection, buyer, limit, all_words)
    charged, allowed = charges.of_batch(connection, batch), words.allowed(connection, batch)
    now, purse = leases.time_by_database(connection), _purse(connection, buyer)
    return Said(
        words=all_words,
        exposure=sums.exposure(connection, batch).priced,
        limit=limit,
        room=room_within(connection, buyer, limit, now, Counting.QUOTE, purse=purse),
        charged=charged,
        to_accept=charged.to_accept(allowed if limit is None else limit),
        known_rates=words.known_rates(connection, batch, all_words),
        used_today=used_today(connection, now, but_of=batch),
        used_ever=used_ever(connection, but_of=batch),
        used_by=used_by(connection, but_of=batch),
        purse=purse,
    )


# ---- whether a run may begin


def let_begin(
    connection: sa.Connection,
    batch: str,
    buyer: Buyer,
    shown: Shown,
    asked: Word,
    *,
    also: Mapping[Reason, str] | None = None,
    of_plan: bool = False,
) -> Word:
    """Lets a run begin to buy what is shown, or enters the question that a person must answer first.

    Args:
        buyer: the run; its budget has the limit of its config.
        asked: the word to enter, with `asked_at`, `id`, who runs it, and where nobody has to be asked.
        also: reasons to ask that the ledger does not know.
        of_plan: the run is given a plan that another one was let begin with, and asks nobody itself.

    Returns:
        The word: without a decision it is a question, and nothing may be bought before its answer.

    Raises:
        ApprovalNeeded: nobody has let another run begin with this plan.
    """
    basis = said(connection, batch, buyer, buyer.budget.limit)
    if entered := next((word for word in basis.words if word.id == asked.id), None):
        return entered  # by a commit that was not confirmed
    shown = replace(shown, charges=basis.to_accept)
    sentences = reasons(shown, buyer, basis, also or {})
    if of_plan:
        if not any(word.lets_begin and word.shown.plan == shown.plan for word in basis.words):
            raise ApprovalNeeded("nobody has approved this plan", hint="Run the batch again.")
        sentences = {}
    word = replace(asked, shown=shown, about=tuple(sentences), why="; ".join(sentences.values()))
    if sentences:
        word = replace(word, decision=None, decided_at=None, decided_by=None, place=None)
        words.enter_word(connection, batch, word)
        return word
    if basis.purse:  # what its giver has said, and no more than that
        within = replace(shown, at_most=min(shown.at_most, basis.room[Obstacle.PURSE]))
        word = replace(word, shown=within, decided_by=basis.purse.given_by, place=Place.PURSE)
    own_words = [word for word in basis.words if word.asker == buyer.asker]
    if own_words and own_words[-1].is_yes and covers(own_words[-1], shown):
        word = own_words[-1]
    else:
        words.enter_word(connection, batch, word)
    changes.say_limit(connection, batch, basis.limit, f"{asked.decided_by} (config)", buyer.run_id)
    return word


def answer(connection: sa.Connection, batch: str, buyer: Buyer, answered: Word) -> None:
    """Enters the answer to a question. A yes lets its run begin, and accepts the charges that it names.

    Raises:
        LedgerError: the question has another answer already.
    """
    all_words = words.all_of_batch(connection, batch)
    [asked] = (word for word in all_words if word.id == answered.id)
    if asked == answered:
        return
    if asked.decision is not None:
        raise LedgerError("the question was answered already", hint="Run the batch again.")
    words.answer(connection, answered)
    if not answered.is_yes:
        return
    if answered.shown.charges:
        charges.accept(connection, batch, answered.shown.charges)
    limit, by = _limit(connection, buyer, buyer.budget.limit, all_words), f"{answered.decided_by} (config)"
    if answered.budget_limit is not None:
        limit, by = answered.budget_limit, answered.decided_by or ""
    changes.say_limit(connection, batch, limit, by, buyer.run_id)


def reasons(shown: Shown, buyer: Buyer, basis: Said, also: Mapping[Reason, str]) -> dict[Reason, str]:
    """Every reason why a person must say yes before this is bought, with a sentence; empty without any."""
    sentences: dict[Reason, str] = {}
    covering = [word for word in basis.words if covers(word, shown)]
    if basis.to_accept:
        sentences[Reason.CHARGES] = charges.in_words(basis.to_accept)
    if shown.repeats and not covering:
        sentences[Reason.REPEATS] = shown.repeats
    agreed_guesses = {guess for word in basis.words if word.is_yes for guess in word.shown.guesses.items()}
    if new := [guess[1] for guess in shown.guesses.items() if guess not in agreed_guesses]:
        sentences[Reason.GUESSES] = f"`callsheet init` has guessed: {'; '.join(new)}"
    agreed = {sentence for word in basis.words if word.is_yes for sentence in word.shown.unclear}
    if new := [sentence for sentence in shown.unclear if sentence not in agreed]:
        sentences[Reason.UNCLEAR] = "; ".join(new)
    if buyer.purse is not None:
        left = basis.room[Obstacle.PURSE]
        is_wall = not shown.fits and left == min(basis.room.values())
        if beyond := purses.beyond(basis.purse, buyer.purse, shown, left, is_wall=is_wall):
            sentences[Reason.PURSE] = beyond
    if buyer.budget.approve_above is not None and not covering:
        sentences |= _of_price(shown, buyer, basis, buyer.budget.approve_above)
    own_questions = [word for word in basis.words if word.asker == buyer.asker and word.about]
    if shown.is_rest and not any(Reason.PILOT in word.about for word in covering):
        jobs = f"the other {counted(shown.jobs, 'job')} for {dollars(shown.quoted)} USD"
        sentences[Reason.PILOT] = f"the pilot is bought; {jobs} must be approved"
    elif own_questions and own_questions[-1] not in covering:
        sentences[Reason.ASKED] = _asked_before(own_questions[-1], shown)
    # A production asks its own person to look, whoever has looked before.
    own_covering = (word for word in covering if word.asker == buyer.asker)
    answered = {reason for word in own_covering for reason in word.about} - {Reason.SUSPENDED}
    return sentences | {reason: sentence for reason, sentence in also.items() if reason not in answered}


_OF_BATCH = (Obstacle.LIMIT, Obstacle.BALANCE)


def _of_price(shown: Shown, buyer: Buyer, basis: Said, above: Decimal) -> dict[Reason, str]:
    """The reasons of a config that asks a person above an amount; a purse has its own."""
    sentences: dict[Reason, str] = {}
    limits = f"budget.approve_above, {dollars(above)} USD"
    at_most = min(shown.at_most, *(basis.room[obstacle] for obstacle in _OF_BATCH if obstacle in basis.room))
    if shown.unpriced:
        are = "job has" if shown.unpriced == 1 else "jobs have"
        sentences[Reason.UNPRICED] = (
            f"{shown.unpriced:,} {are} no price, and a person is asked above {limits}"
        )
    if shown.quoted > above and buyer.purse is None:
        sentences[Reason.PRICE] = f"the quote of {dollars(shown.quoted)} USD is above {limits}"
    elif at_most > above and buyer.purse is None:
        sentences[Reason.PRICE] = f"the quote may come to {dollars(shown.at_most)} USD, above {limits}"
    if shown.new_rates:
        rates = and_more(list(map(printable, shown.new_rates[:1])), len(shown.new_rates))
        sentences[Reason.RATE] = f"a rate has changed: {rates}"
    return sentences


def _asked_before(asked: Word, shown: Shown) -> str:
    if not asked.is_yes:
        return f"this run has asked about {asked.asked()}, and nobody has said yes"
    now = f"{counted(shown.jobs, 'job')} for {shown.price()}"
    return f"{asked.asked()} was approved, and now it is {now}"


def covers(word: Word, shown: Shown) -> bool:
    """Whether a person has said yes to this: to the same plan, and there is no more to pay."""
    among = word.shown.keys
    return (
        word.is_yes
        and word.shown.plan == shown.plan
        and (among is None or (shown.keys is not None and {*shown.keys} <= {*among}))
        and shown.unpriced <= word.shown.unpriced
        and shown.exposure + shown.at_most <= word.up_to
    )


def _limit(
    connection: sa.Connection, buyer: Buyer, of_config: Decimal | None, all_words: Sequence[Word]
) -> Decimal | None:
    """The limit of the batch once the run is let begin; one that has begun before has said its config's."""
    if any(word.asker == buyer.asker and word.lets_begin for word in all_words):
        return changes.limit(connection, buyer.batch)
    return changes.limit_with(connection, buyer.batch, of_config, buyer.run_id)


_HINTS = {
    Reason.CHARGES: "Nothing more is bought until somebody approves that: run it again with --yes, or answer "
    "its question.",
    Reason.REPEATS: "`callsheet quote` says why. With the ids and prompts as they were they are not bought "
    "again; to buy them, approve with `callsheet run --yes`, or set budget.repeats to buy.",
    Reason.GUESSES: "Look at `callsheet quote`, then approve with `callsheet run --yes`, or correct the "
    "config and remove input.guessed from it.",
    Reason.UNCLEAR: "Correct the batch file, or approve with `callsheet run --yes` what is meant so.",
    Reason.PURSE: "A person goes on from here: `callsheet run`, or another `callsheet purse`.",
    Reason.PILOT: "Look at the pilot, then go on with the same command and `--yes`.",
}
_HINT = "Look at `callsheet quote`, then approve with `callsheet run --yes`."


def stop_of(question: Word) -> Stop:
    """The stop where nobody has answered a question."""
    first = question.about[0]
    kind = PriceChanged if first is Reason.CHARGES else ApprovalNeeded
    return kind(question.why, hint=_HINTS.get(first, _HINT))


# ---- whether a job may leave


class Gate:
    """What may leave at a moment; until the transaction ends, this stays true."""

    def __init__(self, connection: sa.Connection, buyer: Buyer, at: datetime, counting: Counting) -> None:
        limit = changes.limit(connection, buyer.batch)
        self._buyer, self._purse = buyer, _purse(connection, buyer)
        self._room = room_within(connection, buyer, limit, at, counting, purse=self._purse)
        self._closed: Obstacle | None = None
        if not words.may_buy(connection, buyer.asker):
            self._closed = Obstacle.QUESTION
        elif charges.of_batch(connection, buyer.batch).to_accept(
            words.allowed(connection, buyer.batch) if limit is None else limit
        ):
            self._closed = Obstacle.PRICE

    def lets(self, amount: Decimal, model: str) -> Obstacle | None:
        """Lets an amount leave for a job of a model; or returns the obstacle."""
        if self._closed:
            return self._closed
        if self._buyer.purse is not None and not (self._purse and self._purse.takes(model)):
            return Obstacle.PURSE
        if obstacle := obstacle_to(amount, self._room):
            return obstacle
        self._room = {obstacle: left - amount for obstacle, left in self._room.items()}
        return None

    @property
    def purse_id(self) -> str:
        """The purse that pays for what leaves; empty where it is none."""
        return self._purse.id if self._purse else ""

    def left(self, obstacle: Obstacle) -> Decimal:
        """What is left within an obstacle."""
        return max(Decimal(0), self._room.get(obstacle, Decimal(0)))


_LASTING = (Obstacle.LIMIT, Obstacle.BALANCE, Obstacle.LEDGER)


def obstacle_to(amount: Decimal, room: Mapping[Obstacle, Decimal]) -> Obstacle | None:
    """What an amount does not fit: the tightest, by which all speak of one shortage; None where it fits.

    It is not the day where a limit or the balance is too small as well: midnight alone would not help.
    """
    in_the_way = sorted((obstacle for obstacle, left in room.items() if amount > left), key=room.__getitem__)
    lasting = [obstacle for obstacle in in_the_way if obstacle in _LASTING]
    if in_the_way[:1] == [Obstacle.DAY]:
        in_the_way = lasting or in_the_way
    return next(iter(in_the_way), None)


@dataclass(frozen=True, slots=True)
class Fitting:
    """Which jobs of a quote would leave, by `budget.on_exceed`.

    Attributes:
        jobs: how many.
        obstacle: what the first that would not, with those before it, does not fit; where all or nothing is
            bought, what all of them do not fit. None where all fit.
        is_refused: nothing is bought, because not all of them fit.
    """

    jobs: int
    obstacle: Obstacle | None = None
    is_refused: bool = False


def fitting(prices: pl.Series, room: Mapping[Obstacle, Decimal], on_exceed: str) -> Fitting:
    """Which of these jobs would leave, in their order, if the ledger stayed as it is.

    `prices`: decimals, without those of jobs that have none: nobody knows whether these fit.
    """
    total, left = sum(prices, Decimal(0)), min(room.values())
    if total <= left:
        return Fitting(prices.len())
    if on_exceed == "refuse":
        return Fitting(0, obstacle_to(total, room), is_refused=True)
    prices_so_far = prices.cum_sum()
    jobs = int((prices_so_far <= left).sum())
    obstacle = obstacle_to(prices_so_far[jobs], room)
    if on_exceed == "skip":
        jobs, micros = 0, int(left * 10**6)
        for price in prices.to_physical():  # millionths of a dollar
            if price <= micros:
                jobs, micros = jobs + 1, micros - price
    return Fitting(jobs, obstacle)


def room_within(
    connection: sa.Connection,
    buyer: Buyer,
    limit: Decimal | None,
    at: datetime,
    counting: Counting,
    *,
    purse: Purse | None = None,
) -> dict[Obstacle, Decimal]:
    """What is left within each obstacle that there is."""
    batch, budget = buyer.batch, buyer.budget
    exposure = sums.exposure(connection, batch)
    taken = exposure.sent + (exposure.reserved if counting is Counting.RESERVE else 0)
    room: dict[Obstacle, Decimal] = {}
    if limit is not None:
        room[Obstacle.LIMIT] = limit - taken
    allowed = words.allowed(connection, batch)
    if allowed is not None and counting is not Counting.QUOTE:  # then its own word is still to come
        reserved = _reserved_by(connection, batch, buyer.run_id) if counting is Counting.RESERVE else 0
        room[Obstacle.ALLOWED] = allowed - reserved - exposure.priced
    if buyer.purse is not None:
        room[Obstacle.PURSE] = Decimal(0)
        if purse is not None:
            reserved_by_it = 0 if counting is Counting.SEND else purses.reserved(connection, batch, purse)
            room[Obstacle.PURSE] = purse.left - reserved_by_it
    room[Obstacle.BALANCE] = buyer.affordable - taken
    is_sent, but_of = counting is Counting.SEND, batch if counting is Counting.QUOTE else None
    if budget.ledger is not None:
        used = sums.sent(connection) if is_sent else used_ever(connection, but_of=but_of)
        room[Obstacle.LEDGER] = budget.ledger - used
    if budget.per_day is not None:
        sent = sums.sent_since(connection, at)
        used = sent if is_sent else used_today(connection, at, but_of=but_of)
        room[Obstacle.DAY] = budget.per_day - used
    return room


def _purse(connection: sa.Connection, buyer: Buyer) -> Purse | None:
    """The purse by which it buys."""
    return None if buyer.purse is None else purses.newest(connection, buyer.batch, buyer.purse)


def used_today(connection: sa.Connection, now: datetime, *, but_of: str | None = None) -> Decimal:
    """What counts against `budget.per_day`, in dollars: what was sent today, and what runs have reserved.

    What dead runs had reserved is free: where one only seemed dead, it is looked at again before it is sent.
    `but_of`: without what runs of this batch have reserved, because that is part of what it has to buy.
    """
    return sums.sent_since(connection, now) + sum(_reserved(connection, but_of).values())


def used_ever(connection: sa.Connection, *, but_of: str | None = None) -> Decimal:
    """What counts against `budget.ledger`, in dollars: as `used_today`, of all days."""
    return sums.sent(connection) + sum(_reserved(connection, but_of).values())


def used_by(connection: sa.Connection, *, but_of: str | None = None) -> int:
    """How many batches there are to which something of `used_ever` belongs."""
    reserved = {batch for batch, amount in _reserved(connection, but_of).items() if amount}
    return len(sums.batches_sent(connection) | reserved)


def _reserved(connection: sa.Connection, but_of: str | None) -> dict[str, Decimal]:
    """What living runs have reserved, in dollars by batch; without this batch."""
    living = [run for run in leases.alive(connection) if run.batch != but_of]
    theirs = sa.and_(
        attempts.c.batch.in_({run.batch for run in living}), attempts.c.run_id.in_([run.id for run in living])
    )
    reserved = sa.select(attempts.c.batch, sums.total(attempts.c.quoted)).where(theirs, leases.RESERVED)
    return dict(connection.execute(reserved.group_by(attempts.c.batch)).all())


def _reserved_by(connection: sa.Connection, batch: str, run_id: str) -> Decimal:
    """What a run of the batch has reserved, in dollars."""
    its_own = sa.and_(attempts.c.batch == batch, attempts.c.run_id == run_id, leases.RESERVED)
    return connection.scalar(sa.select(sums.total(attempts.c.quoted)).where(its_own)) or Decimal(0)


def stop_at(obstacle: Obstacle, does_not_fit: str, left: Decimal, budget: Budget, basis: Said) -> Stop:
    """The stop at an obstacle; `does_not_fit` is in words such as `row 7, 0.0400 USD, does not fit`."""
    if obstacle is Obstacle.PRICE:
        return PriceChanged(charges.in_words(basis.charged.unaccepted), hint=_HINTS[Reason.CHARGES])
    if obstacle in (Obstacle.QUESTION, Obstacle.ALLOWED, Obstacle.PURSE):
        hint = _HINTS[Reason.PURSE] if obstacle is Obstacle.PURSE else _HINT
        return ApprovalNeeded("nobody has said yes to what is left to buy", hint=hint)
    if obstacle is Obstacle.BALANCE:
        hint = "With a higher balance the same command goes on from here."
        return BalanceTooLow(f"{does_not_fit} what is left of the balance: {dollars(left)} USD", hint=hint)
    limits = {Obstacle.LIMIT: budget.limit, Obstacle.LEDGER: budget.ledger, Obstacle.DAY: budget.per_day}
    limit = limits[obstacle]
    room = f"{dollars(left)}{'' if limit is None else f' of {dollars(limit)}'} USD"
    if obstacle is Obstacle.LIMIT:
        hint = "With a higher budget.limit the same command goes on from here."
        return BudgetReached(f"{does_not_fit} what is left of the budget: {room}", hint=hint)
    if obstacle is Obstacle.DAY:
        hint = "The same command goes on after midnight UTC, or with a higher budget.per_day."
        return BudgetReached(f"{does_not_fit} what is left of budget.per_day for today: {room}", hint=hint)
    used, by = dollars(basis.used_ever), counted(basis.used_by, "batch", "batches")
    return BudgetReached(
        f"{does_not_fit} what is left of budget.ledger: {room}; {used} USD are used by {by}",
        hint="With a higher budget.ledger the same command goes on from here. `callsheet status` without a "
        "config lists the batches.",
    )


# ---- reservations


@dataclass(slots=True)
class Reservation:
    """What `Ledger.reserve` did.

    Attributes:
        reserved: in their order.
        left: the first job that does not fit and all after it; with `skip` all that do not fit.
        obstacle: why the first of them may not leave; None where none is left.
        remaining: what was left within that obstacle then.
    """

    reserved: list[tuple[Job, Attempt]] = field(default_factory=list)
    left: list[Job] = field(default_factory=list)
    obstacle: Obstacle | None = None
    remaining: Decimal = Decimal(0)


def reserve(
    connection: sa.Connection, buyer: Buyer, jobs: Sequence[Job], policy: Policy, *, skip: bool
) -> Reservation:
    """Reserves jobs in their order for a run, as far as they may leave (`Ledger.reserve`).

    The run gets again what it has reserved before, which counts already: the commit of an earlier try may
    have been made without being confirmed.
    """
    gate = Gate(connection, buyer, leases.time_by_database(connection), Counting.RESERVE)
    newest = _newest(connection, jobs, policy)
    result = Reservation()
    fitting: list[tuple[Job, Values | None]] = []
    for position, job in enumerate(jobs):
        last = newest.get(job.key)
        reserved_by = last["run_id"] if last and last["state"] == State.PLANNED else None
        if last and (not last["to_buy"] or reserved_by not in (None, buyer.run_id)):
            continue
        has_failed = last and last["state"] == State.FAILED and last["settled"] != NOT_CHARGED
        if last and has_failed and last["run_id"] == buyer.run_id:  # the same run does not try it again
            continue
        if reserved_by or (obstacle := gate.lets(job.quoted, job.model)) is None:
            fitting.append((job, last))
        else:
            if result.obstacle is None:
                result.obstacle, result.remaining = obstacle, gate.left(obstacle)
            if not skip:
                result.left += jobs[position:]
                break
            result.left.append(job)
    result.reserved = _write(connection, buyer.batch, buyer.run_id, fitting, gate.purse_id)
    return result


def enter_attempt(connection: sa.Connection, batch: str, run_id: str, job: Job) -> Attempt:
    """Enters an attempt at a job for a run, whatever the gate and the policy say: it was sent already.

    That is a planned attempt, or a new one that supersedes the last.
    """
    last = _newest(connection, [job], Policy()).get(job.key)
    [(_, attempt)] = _write(connection, batch, run_id, [(job, last)])
    return attempt


def _newest(connection: sa.Connection, jobs: Sequence[Job], policy: Policy) -> dict[str, Values]:
    """By key, the newest attempt at each job that has one, and whether it is `to_buy`."""
    newest = sa.and_(attempts.c.job_key.in_([job.key for job in jobs]), ~attempts.c.superseded)
    rows = writing.which(connection, newest, also=[to_buy(policy).label("to_buy")])
    return {row["job_key"]: row for row in rows}


def _write(
    connection: sa.Connection,
    batch: str,
    run_id: str,
    jobs: Sequence[tuple[Job, Values | None]],
    purse: str | None = None,
) -> list[tuple[Job, Attempt]]:
    """Reserves jobs, each given with the newest attempt at it: that one, or a new one that supersedes it.

    `purse`: the id of that by which they are bought, empty for none; None for that of the last attempt.
    A planned attempt was never sent, so it gets today's price.
    """
    new: list[Values] = []
    reserved: list[tuple[Job, Attempt]] = []
    numbers = queries.highest_numbers(connection, batch, {job.row_id for job, last in jobs if last is None})
    for job, last in jobs:
        values = writing.values_of(job) | {"batch": batch, "run_id": run_id, "state": State.PLANNED}
        values["purse"] = purse if purse is not None else last["purse"] if last else ""
        number = 1 if last is None else last["attempt"]
        if last is not None and last["state"] == State.PLANNED:
            writing.change_attempt(connection, last, values)
        else:
            if last is not None:
                writing.change_attempt(connection, last, {"superseded": True})
                number += 1
                file_number = last["file_number"]
            else:
                file_number = numbers[job.row_id] = numbers.get(job.row_id, 0) + 1
            new.append(values | {"attempt": number, "file_number": file_number})
        fields = (job.key, number, job.type, job.row_id, job.sample, job.model, values["quoted"])
        reserved.append((job, Attempt(*fields, request_key=job.request_key)))
    writing.insert_attempts(connection, new)
    return reserved
