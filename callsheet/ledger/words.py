"""What a person was shown and has said about money: the words of a batch. Money is in dollars.

A word begins as a question, and is answered once. Where nobody has to be asked, what a run was about to buy
is entered as a word of its config. What follows from words is decided in `gate.py`; here they are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger.charges import Charge, charge_of
from callsheet.ledger.tables import batches, words
from callsheet.records import Record, as_json


class Reason(StrEnum):
    """Why a person is asked; in the order in which they are said."""

    CHARGES = "charges"
    """The service charges more than was quoted, or delivers another model than was ordered."""

    REPEATS = "repeats"
    """Many of the jobs look like what the batch has bought."""

    GUESSES = "guesses"
    """`callsheet init` has guessed settings that nobody has seen."""

    UNCLEAR = "unclear"
    """Something in the batch file may not be meant so: a cell has taken in rows, or rows are hidden."""

    PURSE = "purse"
    """The run buys by a purse, and it is not within it."""

    UNPRICED = "unpriced"
    """Jobs have no price, and a person wants to be asked above an amount."""

    PRICE = "price"
    """It is above `budget.approve_above`."""

    RATE = "rate"
    """A rate is not the one at which the batch was bought or approved last."""

    ASKED = "asked"
    """The run has asked before, and has no yes to what it would buy now."""

    PILOT = "pilot"
    """The pilot is there to look at; it is about the rest."""

    NEXT = "next"
    """It is the next batch of a production; it is about what was made before."""

    SUSPENDED = "suspended"
    """A person has suspended the run, and resumes it."""


class Decision(StrEnum):
    """What was said."""

    APPROVED = "approved"
    REFUSED = "refused"
    NOT_ASKED = "not_asked"
    """Nobody had to be asked."""


_LET_BEGIN = (Decision.APPROVED, Decision.NOT_ASKED)


class Place(StrEnum):
    """Where it was said."""

    TERMINAL = "terminal"
    YES = "--yes"
    PARAMETER = "parameter"
    UI = "ui"
    PYTHON = "python"
    CONFIG = "config"
    PURSE = "purse"
    """Nobody had to be asked: the word is of who has given the purse by which the run buys."""


PILOT = "the pilot"
"""The part of a plan that is its pilot."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a person is shown before it is bought.

    Attributes:
        plan: the sha256 of the plan (`Plan.sha256`); empty where nothing is there yet to plan.
        jobs: how many jobs are to buy.
        quoted: their price.
        sent_with_price: what was spent, in flight and in doubt at that moment, of the jobs with a price.
        at_most: what they may come to: more where the service charges more, or where doubts or rejected files
            are bought again. Jobs without a price are not in it.
        unpriced: how many of the jobs have no price.
        repeats: how many look like what the batch has bought, in words, if a person must look at them.
        guesses: what `callsheet init` has guessed and the config still says, by setting.
        unclear: what of the batch file may not be meant so, each in words.
        new_rates: the rates at which the batch was neither bought nor approved before, a line each.
        rates: the catalogue's entry of each model, as JSON objects.
        charges: what was charged above its quote or for another model, and nobody has accepted.
        keys: the keys of the jobs that were chosen; None where all of the plan is meant.
        part: which part of the plan, in words; empty where it is all of it.
        is_rest: the pilot is bought, and this is the rest.
        fits: how many of the jobs fit what may be spent, as `budget.on_exceed` chooses them.
    """

    plan: str
    jobs: int = 0
    quoted: Decimal = Decimal(0)
    at_most: Decimal = Decimal(0)
    sent_with_price: Decimal = Decimal(0)
    unpriced: int = 0
    repeats: str = ""
    guesses: Mapping[str, str] = field(default_factory=dict)
    unclear: tuple[str, ...] = ()
    new_rates: tuple[str, ...] = ()
    rates: tuple[dict[str, Any], ...] = ()
    charges: tuple[Charge, ...] = ()
    keys: tuple[str, ...] | None = None
    part: str = ""
    is_rest: bool = False
    fits: int = 0


@dataclass(frozen=True, slots=True)
class Word(Record):
    """What a run has shown to a person, and the answer.

    Attributes:
        id: 32 hex digits.
        asker: the flow run of Prefect that has asked, or outside of Prefect the run.
        about: why a person is asked; empty where nobody has to be.
        why: the reasons in words.
        flow_run: the id of the flow run in Prefect; None outside of Prefect.
        decision: None where nobody has answered.
        decided_by: who: the user of the system, or the name that was typed into the UI.
        place: where it was answered.
        budget_limit: the limit that the person set for the run in place of `budget.limit`, or None.
    """

    id: str
    asker: str
    shown: Shown
    about: tuple[Reason, ...]
    why: str
    asked_at: datetime
    flow_run: str | None = None
    decision: Decision | None = None
    decided_at: datetime | None = None
    decided_by: str | None = None
    place: Place | None = None
    budget_limit: Decimal | None = None
    note: str | None = None

    @property
    def is_yes(self) -> bool:
        """Whether a person has said yes."""
        return self.decision is Decision.APPROVED

    @property
    def lets_begin(self) -> bool:
        """Whether a run may buy by it."""
        return self.decision in _LET_BEGIN

    @property
    def question(self) -> str:
        """`pilot` where it is about the rest after the pilot, otherwise `quote`."""
        return "pilot" if Reason.PILOT in self.about else "quote"

    @property
    def up_to(self) -> Decimal:
        """What the batch may come to by it."""
        return self.shown.sent_with_price + self.shown.at_most

    def as_json(self) -> dict[str, Any]:
        """The JSON object in the `approvals` of `run --json` and `status --json`."""
        of_question = {
            "question": self.question,
            "plan": self.shown.plan,
            "jobs": self.shown.jobs,
            "quoted": self.shown.quoted,
            "at_most": self.shown.at_most,
            "why": self.why,
        }
        of_answer = ("decision", "decided_at", "decided_by", "place", "budget_limit", "note")
        others = {name: getattr(self, name) for name in ("asked_at", "flow_run", *of_answer)}
        fields: dict[str, Any] = as_json(of_question | others)
        return fields


_COLUMNS = {  # by field of what is shown; the other fields are JSON
    **{name: name for name in ("plan", "jobs", "quoted", "at_most", "unpriced")},
    "sent_with_price": "exposure",
}


def of_batch(connection: sa.Connection, batch: str) -> tuple[Word, ...]:
    """What persons were asked about the batch, the oldest first."""
    return tuple(word for word in all_of_batch(connection, batch) if word.decision is not Decision.NOT_ASKED)


def all_of_batch(connection: sa.Connection, batch: str) -> tuple[Word, ...]:
    """Every word of the batch, also of configs, the oldest first."""
    rows = connection.execute(sa.select(words).where(words.c.batch == batch).order_by(words.c.number))
    return tuple(map(_word, rows))


def last_of(connection: sa.Connection, asker: str, batch: str | None = None) -> Word | None:
    """The newest word of a run or a flow run, about this batch or about whichever; None without any."""
    query = sa.select(words).where(words.c.asker == asker).order_by(words.c.number.desc()).limit(1)
    row = connection.execute(query if batch is None else query.where(words.c.batch == batch)).first()
    return _word(row) if row else None


_LAST_DECISION = (
    sa.select(words.c.decision)
    .where(words.c.asker == sa.bindparam("the_asker"))
    .order_by(words.c.number.desc())
    .limit(1)
)
_ALLOWED = sa.select(sa.func.max(words.c.up_to, type_=words.c.up_to.type)).where(
    words.c.batch == sa.bindparam("the_batch"),
    sa.or_(*(words.c.decision == decision for decision in _LET_BEGIN)),
)
_RATES = sa.select(batches.c.rates).where(batches.c.batch == sa.bindparam("the_batch"))


def may_buy(connection: sa.Connection, asker: str) -> bool:
    """Whether a run or a flow run may buy by its newest word."""
    return connection.scalar(_LAST_DECISION, {"the_asker": asker}) in _LET_BEGIN


def allowed(connection: sa.Connection, batch: str) -> Decimal | None:
    """The most that the batch may come to, by all words; None without any.

    A job without a price is none of it: what it costs is known when it is charged.
    """
    most: Decimal | None = connection.scalar(_ALLOWED, {"the_batch": batch})
    return most


def enter_word(connection: sa.Connection, batch: str, word: Word) -> None:
    """Enters a word."""
    number = (connection.scalar(sa.select(sa.func.max(words.c.number))) or 0) + 1
    shown = asdict(word.shown)
    values = {column: shown.pop(name) for name, column in _COLUMNS.items()}
    shown["charges"] = [charge.as_json() for charge in word.shown.charges]
    row = values | {"number": number, "batch": batch, "shown": shown, "up_to": word.up_to}
    row |= {"about": list(word.about)} | _of_answer(word)
    row |= {name: getattr(word, name) for name in ("id", "asker", "why", "asked_at", "flow_run")}
    connection.execute(words.insert(), row)


def answer(connection: sa.Connection, batch: str, word: Word) -> None:
    """Enters the answer to a question.

    Raises:
        LedgerError: it has an answer already.
    """
    is_open = sa.and_(words.c.id == word.id, words.c.batch == batch, words.c.decision.is_(None))
    if not connection.execute(words.update().where(is_open), _of_answer(word)).rowcount:
        raise LedgerError("the question was answered already", hint="Run the batch again.")


def _of_answer(word: Word) -> dict[str, Any]:
    names = ("decision", "decided_at", "decided_by", "place", "budget_limit", "note")
    return {name: getattr(word, name) for name in names}


def _word(row: Any) -> Word:
    shown = {name: getattr(row, column) for name, column in _COLUMNS.items()} | row.shown
    shown["charges"] = tuple(map(charge_of, shown["charges"]))
    for name in ("new_rates", "rates", "keys", "unclear"):
        if shown.get(name) is not None:  # older words have no `unclear`
            shown[name] = tuple(shown[name])
    return Word(
        **{name: getattr(row, name) for name in ("id", "asker", "why", "asked_at", "flow_run")},
        **{name: getattr(row, name) for name in ("decided_at", "decided_by", "budget_limit", "note")},
        shown=Shown(**shown),
        about=tuple(map(Reason, row.about)),
        decision=None if row.decision is None else Decision(row.decision),
        place=None if row.place is None else Place(row.place),
    )


def buys_at(connection: sa.Connection, batch: str, rates: Mapping[str, Any], at: datetime) -> None:
    """Remembers the rates at which the batch is bought: the catalogue's entries of models, by id."""
    rates_before = connection.scalar(_RATES, {"the_batch": batch}) or {}
    if any(rates_before.get(name) != entry for name, entry in rates.items()):
        now = {"rates": rates_before | dict(rates), "bought_at": at}
        connection.execute(batches.update().where(batches.c.batch == batch).values(now))


def known_rates(connection: sa.Connection, batch: str, all_words: tuple[Word, ...]) -> dict[str, Any]:
    """The catalogue's entries of models, by id, at which the batch last bought or was approved.

    A rate that differs from these is one that nobody has agreed to.
    """
    bought = sa.select(batches.c.bought_at, batches.c.rates)
    rows = connection.execute(bought.where(batches.c.batch == batch, batches.c.bought_at.is_not(None)))
    agreed = [(at, rates) for at, rates in rows]
    for word in all_words:
        if word.is_yes and word.decided_at:
            agreed.append((word.decided_at, {entry["id"]: entry for entry in word.shown.rates}))
    return {model: entry for _, rates in sorted(agreed, key=itemgetter(0)) for model, entry in rates.items()}
