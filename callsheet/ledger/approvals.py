"""What persons say about money: approvals, changes for the runs at work, and charges above their quotes.

An approval is kept once. What is bought by it refers to it: by the run that has asked, by others that buy
the same at the same time, by a later run that finishes it. Where nobody had to be asked, what a run was
about to buy is entered as if it was approved, for the case that no limit bounds the batch.

Runs look again and again for changes (`session.py`), and say what they go by. The next run has the settings
of its config. Of `budget.limit` the newest word counts, for all runs of the batch: so what the config of a
run says, or the answer to its question, is a change, too.

A service that charges more than it lists stops the buying of every run, before that costs a whole batch,
until a person has approved it by name. Charges are counted over all runs of a batch. Nothing here decides
whether a job is sent: that is `budget.py`. Money is in dollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger import leases, writing
from callsheet.ledger.tables import approvals, batches, changes, charges, runs
from callsheet.plain_text import counted, row_name
from callsheet.records import OtherRun, dollars


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
    types = {"question": Question, "decision": Decision, "place": Place}
    listed = []
    for row in connection.execute(query.order_by(approvals.c.asked_at, approvals.c.id)):
        values = row._asdict() | {"charges": tuple(map(charge_of, row.charges))}
        values |= {name: kind(values[name]) for name, kind in types.items() if values[name] is not None}
        listed.append(Approval(**values))
    return tuple(listed)


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
    return allowed - writing.exposure_by(connection, approval, reserved=False)


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
        above = charges_of(connection, batch).above
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
        accept(connection, batch, approval.charges)


def _values(approval: Approval) -> dict[str, Any]:
    values = {name: getattr(approval, name) for name in Approval.__slots__}
    return values | {"charges": [charge.as_json() for charge in approval.charges]}


ROUNDING = Decimal("1.01")  # a charge of at most this many times its quote is a rounding, and not dearer
LAST = 3  # charges that are looked at
DEARER = 2  # of these that stop the buying
SHARE = Decimal("0.1")  # of the bound: so much above the quotes stops the buying, too
APPROVE = (
    "Nothing more is bought until somebody approves that: run it again with --yes, or answer its question."
)


@dataclass(frozen=True, slots=True)
class Charge:
    """What a job was charged, next to its quote; `is_dearer`: than a person has accepted for such a job."""

    row_id: str
    sample: int
    model: str
    quoted: Decimal
    cost: Decimal
    is_dearer: bool = False

    @property
    def pair(self) -> tuple[str, Decimal]:
        """What says which jobs are such jobs: the model and the quote."""
        return self.model, self.quoted

    def as_json(self) -> list[Any]:
        """As the ledger has it."""
        return [self.row_id, self.sample, self.model, str(self.quoted), str(self.cost), self.is_dearer]


def charge_of(value: Sequence[Any]) -> Charge:
    """A charge as the ledger has it."""
    row_id, sample, model, quoted, cost, is_dearer = value
    return Charge(row_id, sample, model, Decimal(quoted), Decimal(cost), is_dearer)


@dataclass(frozen=True, slots=True)
class Charged:
    """How a batch is charged.

    Attributes:
        last: the last charges, the newest last.
        dearer: the dearest charge of each model and quote that nobody has accepted.
        accepted: what a person has accepted.
        above: by how much all charges that nobody has accepted are above their quotes.
    """

    last: tuple[Charge, ...] = ()
    dearer: tuple[Charge, ...] = ()
    accepted: tuple[Charge, ...] = ()
    above: Decimal = Decimal(0)

    def stops(self, bound: Decimal | None) -> bool:
        """Whether nothing more may be bought within a bound of the whole batch; None where it has none."""
        in_a_row = sum(charge.is_dearer for charge in self.last) >= DEARER
        return in_a_row or (bound is not None and self.above > bound * SHARE)

    def in_words(self) -> str:
        """What nobody has accepted, in a sentence."""
        each = (
            f"row {row_name(one.row_id, one.sample)}: {dollars(one.cost)} USD, quoted {dollars(one.quoted)}"
            for one in self.dearer
        )
        return f"the service charges more than was quoted: {'; '.join(each)}"


def pairs(listed: Iterable[Charge]) -> dict[tuple[str, Decimal], Decimal]:
    """The dearest of these charges, by model and quote."""
    return {one.pair: one.cost for one in sorted(listed, key=lambda one: one.cost)}


def charges_of(connection: sa.Connection, batch: str) -> Charged:
    """How the batch is charged."""
    row = connection.execute(sa.select(charges).where(charges.c.batch == batch)).first()
    if row is None:
        return Charged()
    last, dearer, accepted = (tuple(map(charge_of, each)) for each in (row.last, row.dearer, row.accepted))
    return Charged(last, dearer, accepted, row.above)


def charged(connection: sa.Connection, batch: str, new: Iterable[Charge]) -> None:
    """The service has charged jobs, in this order."""
    known = before = charges_of(connection, batch)
    for charge in new:
        most = max(pairs(known.accepted).get(charge.pair, charge.quoted), charge.quoted)
        is_dearer = charge.cost > most * ROUNDING
        said = replace(charge, is_dearer=is_dearer)
        known = replace(known, last=(*known.last, said)[-LAST:])
        if is_dearer:
            known = replace(known, dearer=_with(known.dearer, said), above=known.above + charge.cost - most)
    if known != before:
        _write(connection, batch, known)


def accept(connection: sa.Connection, batch: str, named: Iterable[Charge]) -> None:
    """A person has accepted these charges, and that they are above their quotes; others are not accepted."""
    known, accepted = charges_of(connection, batch), tuple(named)
    for charge in accepted:
        known = replace(known, accepted=_with(known.accepted, charge))
    left = tuple(one for one in known.dearer if one.cost > pairs(known.accepted).get(one.pair, one.quoted))
    above = known.above if left else Decimal(0)
    _write(connection, batch, replace(known, last=() if not left else known.last, dearer=left, above=above))


def _with(listed: Sequence[Charge], charge: Charge) -> tuple[Charge, ...]:
    """The list, with a charge in the place of a lower one of the same model and quote."""
    dearest = {one.pair: one for one in sorted([*listed, charge], key=lambda one: one.cost)}
    return tuple(dearest.values())


def _write(connection: sa.Connection, batch: str, known: Charged) -> None:
    values = {
        name: [each.as_json() for each in getattr(known, name)] for name in ("last", "dearer", "accepted")
    }
    row: dict[str, Any] = {**values, "above": known.above}
    if connection.execute(charges.update().where(charges.c.batch == batch), row).rowcount == 0:
        connection.execute(charges.insert(), row | {"batch": batch})


LIMIT = "budget.limit"
PAUSED = "paused"
"""In place of a setting: whether the runs hold their buying."""


class Setting(NamedTuple):
    """A setting that somebody has changed; `value` as JSON has it, money as text.

    `run_id`: the run whose config or question has said it; None where it was changed for all at work.
    """

    number: int
    setting: str
    value: Any
    changed_by: str
    changed_at: datetime
    run_id: str | None = None

    def line(self) -> str:
        """The change in one line."""
        what, how = in_words(self.setting, self.value), " for another run" if self.run_id else ""
        return f"{what}: by {self.changed_by}{how}, {self.changed_at:%Y-%m-%d %H:%M:%S} UTC"

    def as_json(self) -> dict[str, Any]:
        """The JSON object in the `changes` of `status --json`."""
        fields = self._asdict() | {"changed_at": self.changed_at.isoformat()}
        return {name: value for name, value in fields.items() if name != "run_id"}


def in_words(setting: str, value: Any) -> str:
    """What is so from now on: `budget.limit is 4.00`."""
    if setting == PAUSED:
        return "the buying is paused" if value else "the buying goes on"
    return f"{setting} is {'null' if value is None else value}"


def change(
    connection: sa.Connection, batch: str, values: Mapping[str, Any], by: str
) -> tuple[int, Sequence[OtherRun]]:
    """Enters changes, by the settings' dotted names; nothing where no run of the batch is at work.

    Returns:
        The number of the last one, and the runs that are at work.
    """
    at_work = leases.others(connection, batch, None)
    if at_work:
        _enter(connection, batch, values, by)
    return newest(connection), at_work


def says_limit(connection: sa.Connection, batch: str, limit: Decimal | None, by: str, run_id: str) -> None:
    """The config of a run says what the batch may spend, or the answer to its question."""
    if limit != said_limit(connection, batch):
        _enter(connection, batch, {LIMIT: None if limit is None else str(limit)}, by, run_id)


def _enter(
    connection: sa.Connection, batch: str, values: Mapping[str, Any], by: str, run_id: str | None = None
) -> None:
    number, now = newest(connection), datetime.now(UTC)
    rows = [
        {"number": number + nth, "batch": batch, "setting": name, "value": value}
        | {"run_id": run_id, "changed_by": by, "changed_at": now}
        for nth, (name, value) in enumerate(values.items(), start=1)
    ]
    connection.execute(changes.insert(), rows)


def said_limit(connection: sa.Connection, batch: str) -> Decimal | None:
    """What the batch may spend by the newest word of a person, in dollars; None where that is no limit."""
    said = sa.select(changes.c.value).where(changes.c.batch == batch, changes.c.setting == LIMIT)
    value = connection.scalar(said.order_by(changes.c.number.desc()).limit(1))
    return None if value is None else Decimal(value)


def goes_by(connection: sa.Connection, _: str, run_id: str, number: int) -> None:
    """The run goes by all changes up to this one."""
    connection.execute(runs.update().where(runs.c.id == run_id).values(taken=number))


def taken_by(connection: sa.Connection, run_id: str) -> int:
    """The number of the last change that the run goes by."""
    return connection.scalar(sa.select(runs.c.taken).where(runs.c.id == run_id)) or 0


def not_taken(connection: sa.Connection, batch: str, number: int) -> list[OtherRun]:
    """The runs of the batch at work that do not go by this change yet."""
    known = sa.select(runs.c.id).where(runs.c.batch == batch, runs.c.taken >= number)
    taken = set(connection.scalars(known))
    return [run for run in leases.others(connection, batch, None) if run.run_id not in taken]


def since(connection: sa.Connection, batch: str, number: int) -> list[Setting]:
    """The changes of the batch with a higher number, in order."""
    columns = [changes.c[name] for name in Setting._fields]
    query = sa.select(*columns).where(changes.c.batch == batch, changes.c.number > number)
    return [Setting(*row) for row in connection.execute(query.order_by(changes.c.number))]


def newest(connection: sa.Connection) -> int:
    """The number of the last change; 0 without any."""
    return connection.scalar(sa.select(sa.func.max(changes.c.number))) or 0
