"""Approvals: what a person was asked before money was spent, and what they said. Nothing here decides.

An approval is kept once. What is bought by it refers to it: by the run that has asked, by others that buy the
same at the same time, by a later run that finishes it. Where nobody had to be asked, what a run was about to
buy is entered as if it was approved, for the case that no limit bounds the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import charges, leases, running_totals
from callsheet.ledger.charges import Charge
from callsheet.ledger.tables import approvals, batches, runs
from callsheet.plain_text import counted
from callsheet.records import dollars


class Question(StrEnum):
    """What was asked."""

    QUOTE = "quote"
    """Whether to buy what is quoted."""

    PILOT = "pilot"
    """Whether to buy the rest, now that the pilot is there to look at."""


class Decision(StrEnum):
    """What was said."""

    APPROVED = "approved"
    REFUSED = "refused"
    NOT_ASKED = "not_asked"
    """Nobody had to be asked."""


class Place(StrEnum):
    """Where it was said."""

    TERMINAL = "terminal"
    YES = "--yes"
    PARAMETER = "parameter"
    UI = "ui"
    PYTHON = "python"


PILOT = "the pilot"
"""The part of a plan that is its pilot."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A question that a run has asked, and its answer. Money is in dollars.

    Attributes:
        id: 32 hex digits.
        plan: the sha256 of the plan that the person saw (`Plan.sha256`).
        jobs: how many jobs were to buy.
        quoted: their price.
        at_most: what may be spent by it: more than quoted where the service charges more, or where doubts or
            rejected files are bought again.
        rates: the catalogue's entry of each model that the person saw the price of, as JSON objects.
        charges: what was charged above its quote, and the question has named.
        part: which part of the plan, in words; empty where it is all of it.
        flow_run: the id of the flow run in Prefect; None outside of Prefect.
        decision: None where nobody has answered.
        decided_by: who: the user of the system, or the name that was typed into the UI.
        place: where it was answered.
        budget_limit: the limit that the person set for the run in place of `budget.limit`, or None.
    """

    id: str
    question: Question
    plan: str
    jobs: int
    quoted: Decimal
    at_most: Decimal
    rates: list[dict[str, Any]]
    asked_at: datetime
    flow_run: str | None = None
    decision: Decision | None = None
    decided_at: datetime | None = None
    decided_by: str | None = None
    place: Place | None = None
    budget_limit: Decimal | None = None
    note: str | None = None
    charges: tuple[Charge, ...] = ()
    part: str = ""

    @property
    def is_approved(self) -> bool:
        """Whether a person has said yes."""
        return self.decision is Decision.APPROVED

    def line(self) -> str:
        """The question and its answer in one line."""
        asked = "the rest after the pilot" if self.question is Question.PILOT else "the quote"
        at_most = f", {dollars(self.at_most)} at most" if self.at_most > self.quoted else ""
        what = f"{asked}, {counted(self.jobs, 'job')} for {dollars(self.quoted)} USD{at_most}"
        if self.decision is None or self.decided_at is None:
            return f"{what}: asked {self.asked_at:%Y-%m-%d %H:%M} UTC, not answered"
        limit = "" if self.budget_limit is None else f", up to {dollars(self.budget_limit)} USD"
        note = f": {self.note}" if self.note else ""
        when = f"{self.decided_at:%Y-%m-%d %H:%M} UTC"
        return f"{what}: {self.decision}{limit} by {self.decided_by} ({self.place}), {when}{note}"

    def as_json(self) -> dict[str, Any]:
        """The JSON object in the `approvals` of `run --json` and `status --json`; money is a string."""
        hidden = ("id", "rates", "charges", "part")
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in hidden}
        return fields | {
            "quoted": dollars(self.quoted),
            "at_most": dollars(self.at_most),
            "budget_limit": None if self.budget_limit is None else dollars(self.budget_limit),
            "asked_at": self.asked_at.isoformat(),
            "decided_at": self.decided_at.isoformat() if self.decided_at else None,
        }


def of_batch(connection: sa.Connection, batch: str) -> tuple[Approval, ...]:
    """The batch's questions, the oldest first."""
    columns = [approvals.c[name] for name in Approval.__slots__]
    asked = approvals.c.decision.is_distinct_from(Decision.NOT_ASKED)
    query = sa.select(*columns).where(approvals.c.batch == batch, asked)
    rows = connection.execute(query.order_by(approvals.c.asked_at, approvals.c.id))
    return tuple(_approval(row._asdict()) for row in rows)


def bound(connection: sa.Connection, approval: str, *, is_limited: bool) -> Decimal | None:
    """What may be spent by an approval, in dollars; None where nothing bounds it.

    `is_limited`: the batch has a limit. Then what nobody had to be asked about is bounded by that alone.
    """
    row = connection.execute(
        sa.select(approvals.c.at_most, approvals.c.decision).where(approvals.c.id == approval)
    ).first()
    if row is None or (is_limited and row.decision == Decision.NOT_ASKED):
        return None
    return Decimal(row.at_most)


def left(connection: sa.Connection, approval: str) -> Decimal:
    """What may still be spent by an approval, in dollars, whether the batch has a limit or not."""
    allowed = bound(connection, approval, is_limited=False) or Decimal(0)
    return allowed - running_totals.exposure_by(connection, approval, reserved=False)


def of_plan(connection: sa.Connection, batch: str, plan: str) -> str | None:
    """The id of the approval by which all of a plan is bought; None where it is not."""
    query = sa.select(approvals.c.id).where(
        approvals.c.batch == batch,
        *(approvals.c.plan == plan, approvals.c.part == ""),
        approvals.c.decision.in_((Decision.APPROVED, Decision.NOT_ASKED)),
    )
    found: str | None = connection.scalar(query.order_by(approvals.c.asked_at.desc()).limit(1))
    return found


def enter(connection: sa.Connection, batch: str, run_id: str, approval: Approval) -> str:
    """Enters what a run is about to buy where nobody has to be asked; returns the id that it buys by.

    That is another run's where that is at work and buys the same. What the batch was charged above its quotes
    is not to be spent once more.
    """
    is_one = approval.part in ("", PILOT)  # of other parts the words do not say which jobs they are
    at_work = [run.approval for run in leases.alive(connection, batch) if run.id != run_id and run.approval]
    same = sa.and_(
        approvals.c.id.in_(at_work if is_one else ()),
        approvals.c.plan == approval.plan,
        approvals.c.part == approval.part,
    )
    entered = approvals.c.id == approval.id  # by a commit that was not confirmed
    known = sa.select(approvals.c.id).where(sa.or_(entered, same)).order_by(approvals.c.asked_at)
    shared: str | None = connection.scalar(known.limit(1))
    if shared is None:
        above = charges.of_batch(connection, batch).above
        at_most = max(Decimal(0), approval.at_most - above)
        connection.execute(approvals.insert(), _values(replace(approval, at_most=at_most)) | {"batch": batch})
    return shared or approval.id


def buys_by(connection: sa.Connection, _: str, run_id: str, approval: str) -> None:
    """A run buys by an approval from now on."""
    connection.execute(runs.update().where(runs.c.id == run_id).values(approval=approval))


def in_use(connection: sa.Connection, batch: str) -> list[Decimal]:
    """What the runs of the batch at work may spend by their approvals in all, in dollars, each once."""
    ids = sorted({run.approval for run in leases.alive(connection, batch) if run.approval})
    return [allowed for one in ids if (allowed := bound(connection, one, is_limited=False)) is not None]


def buys_at(connection: sa.Connection, batch: str, rates: Mapping[str, Any]) -> None:
    """Remembers the rates at which the batch is bought: the catalogue's entries of models, by id."""
    of_batch = batches.c.batch == batch
    before = connection.scalar(sa.select(batches.c.rates).where(of_batch)) or {}
    if any(before.get(name) != entry for name, entry in rates.items()):
        now = {"rates": before | dict(rates), "bought_at": datetime.now(UTC)}
        connection.execute(batches.update().where(of_batch).values(now))


def known_rates(connection: sa.Connection, batch: str) -> dict[str, Any]:
    """The catalogue's entries of models, by id, at which the batch last bought or was approved.

    A rate that differs from these is one that nobody has agreed to.
    """
    bought = sa.select(batches.c.bought_at, batches.c.rates)
    rows = connection.execute(bought.where(batches.c.batch == batch, batches.c.bought_at.is_not(None)))
    known = [(at, rates) for at, rates in rows]
    for one in of_batch(connection, batch):
        if one.is_approved and one.decided_at:
            known.append((one.decided_at, {entry["id"]: entry for entry in one.rates}))
    return {model: entry for _, rates in sorted(known, key=itemgetter(0)) for model, entry in rates.items()}


def ask(connection: sa.Connection, batch: str, approval: Approval) -> None:
    """Enters a question that has no answer yet; once, however often it is entered."""
    if approval not in of_batch(connection, batch):
        connection.execute(approvals.insert(), _values(approval) | {"batch": batch})


def answer(connection: sa.Connection, batch: str, approval: Approval) -> None:
    """Enters the answer to a question of the batch that had none. A yes accepts the charges that it names.

    Raises:
        LedgerError: it has one.
    """
    [known] = (one for one in of_batch(connection, batch) if one.id == approval.id)
    if known.decision is not None and known != approval:
        raise LedgerError("the question was answered already", hint="Run the batch again.")
    if known == approval:
        return
    connection.execute(approvals.update().where(approvals.c.id == approval.id), _values(approval))
    if approval.is_approved and approval.charges:
        charges.accept(connection, batch, approval.charges)


def _values(approval: Approval) -> dict[str, Any]:
    values = {name: getattr(approval, name) for name in Approval.__slots__}
    return values | {"charges": [charge.as_json() for charge in approval.charges]}


def _approval(values: dict[str, Any]) -> Approval:
    types = {"question": Question, "decision": Decision, "place": Place}
    known = {name: kind(values[name]) for name, kind in types.items() if values[name] is not None}
    return Approval(**values | known | {"charges": tuple(map(charges.charge_of, values["charges"]))})
