"""May a job leave, and if not, why: the one place that decides it, in the ledger's own transactions.

A job may leave where a person, or the config where nobody has to be asked, has let its run begin
(`let_begin`), where no charge waits for a person (`charges.py`), and where it fits: the newest word about
`budget.limit`, what the batch may come to by all words (`words.allowed`), the purse by which its run buys,
what all batches may spend in a day and ever, and the balance. That is looked at when it is reserved, and
again in the transaction that says that it is about to be sent, for all runs of the batch together. Only
`budget.on_exceed: refuse` goes by the quote (`fitting`). `present/reasons.py` says it. Money is in dollars.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum, StrEnum, auto
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.config.settings import Budget
from callsheet.ledger import changes, charges, leases, purses, queries, sums, words, writing
from callsheet.ledger.charges import Charge
from callsheet.ledger.policy import Policy, to_buy
from callsheet.ledger.purses import BeyondPurse, Purse
from callsheet.ledger.tables import Values, attempts
from callsheet.ledger.words import Place, Reason, Shown, Word
from callsheet.records import Attempt, Job, State


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
    """Which reservations count besides what is spent, in flight and in doubt.

    What dead runs had reserved is free: where one only seemed dead, it is looked at again before it is sent.
    """

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
class Basis:
    """What a batch may buy by, at one moment: when it is quoted, its run is let begin, or its buying stops.

    Attributes:
        words: all words of the batch, the oldest first.
        sent_with_price: what was spent, in flight and in doubt, of the jobs with a price.
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
    sent_with_price: Decimal = Decimal(0)
    limit: Decimal | None = None
    room: Mapping[Obstacle, Decimal] = field(default_factory=dict)
    charged: charges.Charged = field(default_factory=charges.Charged)
    to_accept: tuple[Charge, ...] = ()
    known_rates: Mapping[str, Any] = field(default_factory=dict)
    used_today: Decimal = Decimal(0)
    used_ever: Decimal = Decimal(0)
    used_by: int = 0
    purse: Purse | None = None


def read_basis(connection: sa.Connection, batch: str, buyer: Buyer) -> Basis:
    """What a run of the batch may buy by."""
    all_words = words.all_of_batch(connection, batch)
    limit = _limit(connection, buyer, all_words)
    now = leases.time_by_database(connection)
    room, purse = room_within(connection, buyer, limit, now, Counting.QUOTE)
    return Basis(
        words=all_words,
        sent_with_price=sums.all_sent(connection, batch).with_price,
        limit=limit,
        room=room,
        charged=charges.of_batch(connection, batch),
        to_accept=_charges_to_accept(connection, batch, limit),
        known_rates=words.known_rates(connection, batch, all_words),
        used_today=used_today(connection, now, but_of=batch),
        used_ever=used_ever(connection, but_of=batch),
        used_by=used_by(connection, but_of=batch),
        purse=purse,
    )


# ---- whether a run may begin


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why a person must say yes before something is bought: the reasons, and what they are about.

    Attributes:
        reasons: in their order; empty where nobody has to be asked.
        guesses, unclear: those of what is shown to which nobody has said yes.
        approve_above: `budget.approve_above`; 0 without one.
        beyond_purse: why it is not within the purse by which the run buys.
        asked_before: the run's last question.
    """

    reasons: tuple[Reason, ...]
    shown: Shown
    guesses: tuple[str, ...]
    unclear: tuple[str, ...]
    approve_above: Decimal
    beyond_purse: BeyondPurse | None
    asked_before: Word | None


def let_begin(
    connection: sa.Connection,
    batch: str,
    buyer: Buyer,
    shown: Shown,
    draft: Word,
    *,
    in_words: Callable[[Grounds], str],
    also: Collection[Reason] = (),
) -> Word:
    """Lets a run begin to buy what is shown, or enters the question that a person must answer first.

    Args:
        buyer: the run; its budget has the limit of its config.
        draft: the word to enter, with `asked_at`, `id`, who runs it, and where nobody has to be asked.
        in_words: how a question is put; the ledger keeps it with the question.
        also: reasons to ask that the ledger does not know.

    Returns:
        The word: without a decision it is a question, and nothing may be bought before its answer.
    """
    basis = read_basis(connection, batch, buyer)
    if entered := _entered(basis, draft):
        return entered
    shown = replace(shown, charges=basis.to_accept)
    grounds = grounds_to_ask(shown, buyer, basis, also)
    if not grounds.reasons:
        return _begin(connection, buyer, shown, draft, basis)
    question = replace(draft, shown=shown, about=grounds.reasons, why=in_words(grounds))
    question = replace(question, decision=None, decided_at=None, decided_by=None, place=None)
    words.enter_word(connection, batch, question)
    return question


def let_join(connection: sa.Connection, batch: str, buyer: Buyer, shown: Shown, draft: Word) -> Word | None:
    """Lets a run begin with the plan with which another one was let begin. It asks nobody itself.

    Returns:
        The word, made of `draft`; None where no run was let begin with this plan.
    """
    basis = read_basis(connection, batch, buyer)
    if entered := _entered(basis, draft):
        return entered
    if not any(word.lets_begin and word.shown.plan == shown.plan for word in basis.words):
        return None
    return _begin(connection, buyer, replace(shown, charges=basis.to_accept), draft, basis)


def _entered(basis: Basis, draft: Word) -> Word | None:
    """The word that was entered already, by a commit that was not confirmed."""
    return next((word for word in basis.words if word.id == draft.id), None)


def _begin(connection: sa.Connection, buyer: Buyer, shown: Shown, draft: Word, basis: Basis) -> Word:
    """The run begins: enters the word by which it does, unless it has one, and the limit of its config."""
    word = replace(draft, shown=shown, about=(), why="")
    if basis.purse:  # what its giver has said, and no more than that
        within = replace(shown, at_most=min(shown.at_most, basis.room[Obstacle.PURSE]))
        word = replace(word, shown=within, decided_by=basis.purse.given_by, place=Place.PURSE)
    own_words = [word for word in basis.words if word.asker == buyer.asker]
    if own_words and own_words[-1].is_yes and covers(own_words[-1], shown):
        word = own_words[-1]
    else:
        words.enter_word(connection, buyer.batch, word)
    changes.say_limit(connection, buyer.batch, basis.limit, f"{draft.decided_by} (config)", buyer.run_id)
    return word


def answer(connection: sa.Connection, batch: str, buyer: Buyer, answered: Word) -> None:
    """Enters the answer to a question. A yes lets its run begin, and accepts the charges that it names.

    Raises:
        LedgerError: the question has another answer already.
    """
    all_words = words.all_of_batch(connection, batch)
    if answered in all_words:  # by a commit that was not confirmed
        return
    words.answer(connection, batch, answered)
    if not answered.is_yes:
        return
    if answered.shown.charges:
        charges.accept(connection, batch, answered.shown.charges)
    limit, by = _limit(connection, buyer, all_words), f"{answered.decided_by} (config)"
    if answered.budget_limit is not None:
        limit, by = answered.budget_limit, answered.decided_by or ""
    changes.say_limit(connection, batch, limit, by, buyer.run_id)


_OF_BATCH = (Obstacle.LIMIT, Obstacle.BALANCE)


def grounds_to_ask(shown: Shown, buyer: Buyer, basis: Basis, also: Collection[Reason]) -> Grounds:
    """Why a person must say yes before this is bought; `also`: reasons that the ledger does not know."""
    agreed = [word for word in basis.words if word.is_yes]
    covering = [word for word in agreed if covers(word, shown)]
    agreed_guesses = {guess for word in agreed for guess in word.shown.guesses.items()}
    new_guesses = [guess for guess in shown.guesses.items() if guess not in agreed_guesses]
    agreed_unclear = {sentence for word in agreed for sentence in word.shown.unclear}
    unclear = tuple(sentence for sentence in shown.unclear if sentence not in agreed_unclear)
    beyond_purse = None
    if buyer.purse is not None:
        left = basis.room[Obstacle.PURSE]
        is_wall = not shown.fits and shown.unpriced < shown.jobs and left == min(basis.room.values())
        beyond_purse = purses.beyond(basis.purse, buyer.purse, shown, left, is_wall=is_wall)
    above = None if covering else buyer.budget.approve_above
    of_batch = [basis.room[obstacle] for obstacle in _OF_BATCH if obstacle in basis.room]
    may_cost = max(shown.quoted, min([shown.at_most, *of_batch]))
    asks_of_pilot = shown.is_rest and not covers_rest(basis, shown)
    own_questions = [word for word in basis.words if word.asker == buyer.asker and word.about]
    asked_before = own_questions[-1] if own_questions else None
    applies = {
        Reason.CHARGES: bool(basis.to_accept),
        Reason.REPEATS: bool(shown.repeats) and not covering,
        Reason.GUESSES: bool(new_guesses),
        Reason.UNCLEAR: bool(unclear),
        Reason.PURSE: beyond_purse is not None,
        Reason.UNPRICED: above is not None and shown.unpriced > 0,
        Reason.PRICE: above is not None and may_cost > above and buyer.purse is None,
        Reason.RATE: above is not None and bool(shown.new_rates),
        Reason.PILOT: asks_of_pilot,
        Reason.ASKED: not asks_of_pilot and asked_before is not None and asked_before not in covering,
    }
    # A production asks its own person to look, whoever has looked before.
    own_covering = (word for word in covering if word.asker == buyer.asker)
    answered = {reason for word in own_covering for reason in word.about} - {Reason.SUSPENDED}
    reasons = [reason for reason, does_apply in applies.items() if does_apply]
    reasons += [reason for reason in also if reason not in answered]
    return Grounds(
        tuple(reasons),
        shown,
        tuple(text for _, text in new_guesses),
        unclear,
        approve_above=buyer.budget.approve_above or Decimal(0),
        beyond_purse=beyond_purse,
        asked_before=asked_before,
    )


def covers(word: Word, shown: Shown) -> bool:
    """Whether a person has said yes to this: to the same plan, and there is no more to pay."""
    among = word.shown.keys
    return (
        word.is_yes
        and word.shown.plan == shown.plan
        and (among is None or (shown.keys is not None and {*shown.keys} <= {*among}))
        and shown.unpriced <= word.shown.unpriced
        and shown.sent_with_price + shown.at_most <= word.up_to
    )


def covers_rest(basis: Basis, shown: Shown) -> bool:
    """Whether a person who was asked about the rest after a pilot has said yes to this."""
    return any(Reason.PILOT in word.about and covers(word, shown) for word in basis.words)


def _limit(connection: sa.Connection, buyer: Buyer, all_words: Sequence[Word]) -> Decimal | None:
    """The limit of the batch once the run is let begin; one that has begun before has said its config's."""
    if any(word.asker == buyer.asker and word.lets_begin for word in all_words):
        return changes.limit(connection, buyer.batch)
    return changes.limit_with(connection, buyer.batch, buyer.budget.limit, buyer.run_id)


def _charges_to_accept(connection: sa.Connection, batch: str, limit: Decimal | None) -> tuple[Charge, ...]:
    """The charges that a person must accept before more is bought; `limit`: what the batch may spend."""
    may_come_to = words.allowed(connection, batch) if limit is None else limit
    return charges.of_batch(connection, batch).to_accept(may_come_to)


# ---- whether a job may leave


class Gate:
    """What may leave at a moment; until the transaction ends, this stays true."""

    def __init__(self, connection: sa.Connection, buyer: Buyer, at: datetime, counting: Counting) -> None:
        limit = changes.limit(connection, buyer.batch)
        self._buyer = buyer
        self._room, self._purse = room_within(connection, buyer, limit, at, counting)
        self._closed: Obstacle | None = None
        if not words.may_buy(connection, buyer.asker):
            self._closed = Obstacle.QUESTION
        elif _charges_to_accept(connection, buyer.batch, limit):
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
    """Which of these jobs would leave, in their order, if the ledger stayed as it is: a quote's forecast.

    It looks at amounts alone. What a person must say yes to before the run begins is asked by `let_begin`,
    and after a yes it is not in the way: charges to accept, models that its purse is not for, and what was
    allowed, to which that yes adds. So none of it says which of the jobs fit.

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
    connection: sa.Connection, buyer: Buyer, limit: Decimal | None, at: datetime, counting: Counting
) -> tuple[dict[Obstacle, Decimal], Purse | None]:
    """What is left within each obstacle that there is; and the purse by which it buys, if that was given."""
    batch, budget = buyer.batch, buyer.budget
    of_batch = sums.all_sent(connection, batch)
    reserved: dict[str, Decimal] = {}  # by run
    if counting is Counting.RESERVE:
        reserved = _reserved(connection, leases.alive(connection, batch), attempts.c.run_id)
    taken = of_batch.amount + sum(reserved.values())
    room: dict[Obstacle, Decimal] = {}
    if limit is not None:
        room[Obstacle.LIMIT] = limit - taken
    allowed = words.allowed(connection, batch)
    if allowed is not None and counting is not Counting.QUOTE:  # then its own word is still to come
        room[Obstacle.ALLOWED] = allowed - reserved.get(buyer.run_id, Decimal(0)) - of_batch.with_price
    purse = None if buyer.purse is None else purses.newest(connection, batch, buyer.purse)
    if purse is not None:
        reserved_by_it = purses.reserved(connection, batch, purse) if counting is Counting.RESERVE else 0
        room[Obstacle.PURSE] = purse.left - reserved_by_it
    elif buyer.purse is not None:  # nobody has given it one
        room[Obstacle.PURSE] = Decimal(0)
    room[Obstacle.BALANCE] = buyer.affordable - taken
    is_sent, but_of = counting is Counting.SEND, batch if counting is Counting.QUOTE else None
    if budget.ledger is not None:
        used = sums.sent(connection) if is_sent else used_ever(connection, but_of=but_of)
        room[Obstacle.LEDGER] = budget.ledger - used
    if budget.per_day is not None:
        sent = sums.sent_since(connection, at)
        used = sent if is_sent else used_today(connection, at, but_of=but_of)
        room[Obstacle.DAY] = budget.per_day - used
    return room, purse


def used_today(connection: sa.Connection, now: datetime, *, but_of: str | None = None) -> Decimal:
    """What counts against `budget.per_day`, in dollars: what was sent today, and what runs have reserved.

    `but_of`: without what runs of this batch have reserved, because that is part of what it has to buy.
    """
    return sums.sent_since(connection, now) + sum(_reserved_by_batch(connection, but_of).values())


def used_ever(connection: sa.Connection, *, but_of: str | None = None) -> Decimal:
    """What counts against `budget.ledger`, in dollars: as `used_today`, of all days."""
    return sums.sent(connection) + sum(_reserved_by_batch(connection, but_of).values())


def used_by(connection: sa.Connection, *, but_of: str | None = None) -> int:
    """How many batches there are to which something of `used_ever` belongs."""
    reserved = {batch for batch, amount in _reserved_by_batch(connection, but_of).items() if amount}
    return len(sums.batches_sent(connection) | reserved)


def _reserved_by_batch(connection: sa.Connection, but_of: str | None) -> dict[str, Decimal]:
    """What living runs have reserved, in dollars by batch; without this batch."""
    living = [run for run in leases.alive(connection) if run.batch != but_of]
    return _reserved(connection, living, attempts.c.batch)


def _reserved(connection: sa.Connection, runs: Sequence[Any], by: sa.Column[str]) -> dict[str, Decimal]:
    """What these runs have reserved, in dollars by a column of the attempts."""
    batches = attempts.c.batch.in_({run.batch for run in runs})  # by which an index finds them
    theirs = sa.and_(batches, attempts.c.run_id.in_([run.id for run in runs]), sums.RESERVED)
    reserved = sa.select(by, sums.total(attempts.c.quoted)).where(theirs)
    return dict(connection.execute(reserved.group_by(by)).all())


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
    gate_now = Gate(connection, buyer, leases.time_by_database(connection), Counting.RESERVE)
    newest = _newest(connection, jobs, policy)
    result = Reservation()
    leaving: list[tuple[Job, Values | None]] = []
    for position, job in enumerate(jobs):
        last = newest.get(job.key)
        reserved_by = last["run_id"] if last and last["state"] == State.PLANNED else None
        if last and (not last["to_buy"] or reserved_by not in (None, buyer.run_id)):
            continue
        if reserved_by or (obstacle := gate_now.lets(job.quoted, job.model)) is None:
            leaving.append((job, last))
        else:
            if result.obstacle is None:
                result.obstacle, result.remaining = obstacle, gate_now.left(obstacle)
            if not skip:
                result.left += jobs[position:]
                break
            result.left.append(job)
    result.reserved = _write(connection, buyer.batch, buyer.run_id, leaving, gate_now.purse_id)
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
