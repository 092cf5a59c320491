"""The ledger's tables and column types. It decides nothing, and opens no database (`databases.py` does).

Money is stored as whole millionths of a dollar, so that SQL sums are exact on every database. Times are
stored as UTC text of one fixed width, so that text order is time order.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

Values = dict[str, Any]
"""Columns of a row, by name."""

SCHEMA_VERSION = 22
SINCE = "0.2.0"
"""The first Callsheet that knows this schema. Who changes a table raises both, and writes a migration."""

_MICRO = Decimal(1_000_000)


class Money(sa.types.TypeDecorator[Decimal]):
    """`Decimal` dollars in Python, millionths in the database. More than six decimals is a bug."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> int | None:
        """Dollars to millionths, exactly."""
        if value is None:
            return None
        micros = value * _MICRO
        if micros != micros.to_integral_value():
            raise ValueError(f"{value} has more than six decimals")
        return int(micros)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        """Millionths to dollars, exactly. (PostgreSQL sums integers to a Decimal.)"""
        return None if value is None else Decimal(int(value)) / _MICRO


class Moment(sa.types.TypeDecorator[datetime]):
    """An aware `datetime` in Python, `2026-01-31T12:00:00.000000Z` in the database."""

    impl = sa.String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        """To UTC text of one fixed width."""
        if value is None:
            return None
        return f"{value.astimezone(UTC).isoformat(timespec='microseconds').removesuffix('+00:00')}Z"

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Back to an aware datetime."""
        return None if value is None else datetime.fromisoformat(value)


def new_revision() -> str:
    """A revision that no batch has had (`group_commit.py`)."""
    return uuid.uuid4().hex


metadata = sa.MetaData()

# Every Callsheet from 0.1.0 on reads version and `needs`, also where it does not know the other tables.
about = sa.Table(
    "about",
    metadata,
    sa.Column("schema_version", sa.Integer, primary_key=True),
    sa.Column("needs", sa.Text, nullable=False),  # the first Callsheet that knows the schema
    # Which ledger this is. A copy has the id of the original: it is the same ledger at an earlier time.
    sa.Column("ledger_id", sa.String(36), nullable=False, default=lambda: str(uuid.uuid4())),
)

# Only in a ledger that was moved: where to.
moved_to = sa.Table("moved_to", sa.MetaData(), sa.Column("url", sa.Text, nullable=False))

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("batch", sa.Text, nullable=False, index=True),
    # Where it runs: the machine (and the container), its start, the process and its start. Both starts are
    # empty where the system does not tell them.
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("boot", sa.Text),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("process_start", sa.Text),
    sa.Column("started_at", Moment, nullable=False),
    sa.Column("lease_until", Moment, nullable=False),
    sa.Column("ended_at", Moment),
    # Evidence for doubts: what the workspace had, and what the ledger had spent at its service, when the run
    # began.
    sa.Column("balance_at_start", Money),
    sa.Column("spent_at_start", Money),
    sa.Column("flow_run", sa.Text),  # its id in Prefect, where it is one
    sa.Column("refused", sa.Text),  # the service's words, while it refuses every submission of the run
    sa.Column("taken", sa.BigInteger, nullable=False, default=0),  # the last of `changes` that it goes by
)

# A row for every attempt at a job; the job's state is that of its newest attempt, the one not superseded.
attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("job_key", sa.String(64), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("superseded", sa.Boolean, nullable=False, default=False),
    sa.Column("batch", sa.Text, nullable=False),
    sa.Column("run_id", sa.String(36)),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("row_id", sa.Text, nullable=False),
    sa.Column("sample", sa.Integer, nullable=False),
    # Which of its row's jobs it is, whatever they ask for: given when the job is first reserved, from 1.
    sa.Column("file_number", sa.Integer, nullable=False),
    sa.Column("type", sa.String(16), nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("model_delivered", sa.Text),  # as the answer names it; empty where it names none
    sa.Column("prompt", sa.Text, nullable=False),
    # As sent, as canonical JSON, with `sha256:<hex>` in place of each inlined image.
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("carried", sa.JSON, nullable=False),
    sa.Column("quoted", Money),  # by the catalogue; empty where it has no price
    sa.Column("cost", Money),
    sa.Column("cost_source", sa.String(16)),  # whose word the cost is (`records.CostSource`)
    sa.Column("currency", sa.String(8), nullable=False),
    sa.Column("billable_unit", sa.Text),
    sa.Column("unit_price", Money),
    sa.Column("quantity", Money),  # seconds may come with a fraction: six decimals, like money
    sa.Column("generation_id", sa.Text),
    sa.Column("error_code", sa.Text),  # as the service has answered it, or a word of ours
    sa.Column("error_message", sa.Text),
    # What a person has decided of it: `records.CHARGED`, `NOT_CHARGED`; empty: nothing.
    sa.Column("settled", sa.String(16)),
    sa.Column("submitted_at", Moment, index=True),
    sa.Column("finished_at", Moment),
    # The sha256 of the request as sent and the sample's number.
    sa.Column("request_key", sa.String(64), nullable=False, index=True),
    # Whether the plan that a run has adopted last has the job. Empty: none was adopted since 0.2.0.
    sa.Column("current", sa.Boolean),
    sa.Column("purse", sa.String(32), nullable=False, default=""),  # by which it was bought; empty: by none
    sa.Index("attempts_by_state", "batch", "state", "superseded", "run_id"),
    sa.Index("attempts_of_row", "batch", "row_id"),
)
# A service may give ids of any length, which only this kind of index takes in PostgreSQL.
sa.Index("attempts_by_generation", attempts.c.generation_id, postgresql_using="hash")

media = sa.Table(
    "media",
    metadata,
    sa.Column("job_key", sa.String(64), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("index", sa.Integer, primary_key=True),
    sa.Column("storage", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # `name` as file systems compare it that ignore case.
    sa.Column("folded_name", sa.Text, nullable=False),
    sa.Column("source_url", sa.Text, nullable=False),
    sa.Column("mime_type", sa.Text, nullable=False),  # of what is stored, by its bytes
    # As the answer says; empty where it does not.
    sa.Column("mime_type_said", sa.Text),
    sa.Column("width", sa.Integer),
    sa.Column("height", sa.Integer),
    sa.Column("duration", sa.Float),
    sa.Column("fps", sa.Float),
    sa.Column("has_sound", sa.Boolean),
    # By the bytes of what is stored; empty where nobody has looked yet, or no decoder can show it.
    sa.Column("width_measured", sa.Integer),
    sa.Column("height_measured", sa.Integer),
    sa.Column("duration_measured", sa.Float),
    sa.Column("fps_measured", sa.Float),
    sa.Column("has_sound_measured", sa.Boolean),
    sa.Column("deletes_at", Moment),  # empty where the service does not say
    sa.Column("url", sa.Text),
    sa.Column("sha256", sa.String(64)),
    sa.Column("bytes", sa.BigInteger),
    sa.Column("stored_at", Moment),
    sa.Column("lost_at", Moment),
    sa.Column("removed_at", Moment),  # from storage, by `callsheet tidy`
    sa.Index("media_by_folded_name", "storage", "folded_name", unique=True),
)

AMOUNTS = ("quoted", "reserved", "in_flight", "in_doubt", "spent", "unpriced")
"""What a row of `totals` adds up: the quotes of all jobs, whatever became of them; the quotes of the attempts
that are reserved, in flight or in doubt; the costs of the others, and of these the costs of jobs without a
price.
"""

# What the attempts of a batch come to that were sent on one day, by one purse or none (`sums.py` keeps it).
totals = sa.Table(
    "totals",
    metadata,
    sa.Column("batch", sa.Text, primary_key=True),
    sa.Column("day", sa.String(10), primary_key=True),  # the UTC day of submission; empty before it
    sa.Column("purse", sa.String(32), primary_key=True),
    *(sa.Column(name, Money, nullable=False) for name in AMOUNTS),
)

# The service that a batch belongs to, and the catalogue's entries of the models that it bought last, by id.
batches = sa.Table(
    "batches",
    metadata,
    sa.Column("batch", sa.Text, primary_key=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("bound_at", Moment, nullable=False),
    sa.Column("rates", sa.JSON, nullable=False, default=dict),
    sa.Column("bought_at", Moment),
    sa.Column("revision", sa.String(32), nullable=False, default=new_revision),
)

# A row for every attempt that was in doubt and that a person has settled.
settlements = sa.Table(
    "settlements",
    metadata,
    sa.Column("job_key", sa.String(64), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("charged", sa.Boolean, nullable=False),
    sa.Column("settled_by", sa.Text, nullable=False),
    sa.Column("settled_at", Moment, nullable=False),
    sa.Column("why", sa.Text),
)

# What persons were shown and have said about money, in order; and what a run was about to buy where nobody
# had to be asked (`words.py`).
words = sa.Table(
    "words",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("batch", sa.Text, nullable=False, index=True),
    sa.Column("asker", sa.String(36), nullable=False, index=True),  # the flow run, or the run without one
    sa.Column("flow_run", sa.Text),
    sa.Column("about", sa.JSON, nullable=False),  # the `words.Reason`s to ask
    sa.Column("why", sa.Text, nullable=False),
    # What the person saw: the sha256 of the plan, the jobs that were to buy, their price, and the rest.
    sa.Column("plan", sa.String(64), nullable=False),
    sa.Column("jobs", sa.BigInteger, nullable=False),
    sa.Column("quoted", Money, nullable=False),
    sa.Column("at_most", Money, nullable=False),
    sa.Column("unpriced", sa.BigInteger, nullable=False),
    sa.Column("shown", sa.JSON, nullable=False),
    sa.Column("exposure", Money, nullable=False),  # spent, in flight and in doubt at that moment
    sa.Column("up_to", Money, nullable=False),  # what the batch may come to by it
    sa.Column("asked_at", Moment, nullable=False),
    # Empty while nobody has answered.
    sa.Column("decision", sa.String(16)),
    sa.Column("decided_at", Moment),
    sa.Column("decided_by", sa.Text),
    sa.Column("place", sa.String(16)),
    sa.Column("budget_limit", Money),
    sa.Column("note", sa.Text),
)

# What persons have given others to spend without a question, in order (`purses.py`).
purses = sa.Table(
    "purses",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("batch", sa.Text, nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),  # who may buy by it
    sa.Column("amount", Money, nullable=False),
    sa.Column("models", sa.JSON, nullable=False),  # the ids of those that it is for; an empty list: all
    sa.Column("place", sa.Text, nullable=False),  # the database in which it was given
    sa.Column("given_by", sa.Text, nullable=False),
    sa.Column("given_at", Moment, nullable=False),
    sa.Column("until", Moment, nullable=False),
    sa.Column("closed_by", sa.Text),
    sa.Column("closed_at", Moment),
)

# What was said of stored files, in order; the last row of a file counts. The number is not made by the
# database, which would not know those of a copy.
marks = sa.Table(
    "marks",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("batch", sa.Text, nullable=False),
    sa.Column("job_key", sa.String(64), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("index", sa.Integer, nullable=False),
    sa.Column("decision", sa.String(16)),  # `marks.MediaDecision`; empty: no longer decided
    sa.Column("note", sa.Text),
    sa.Column("decided_by", sa.Text, nullable=False),
    sa.Column("decided_at", Moment, nullable=False),
    sa.Index("marks_of_batch", "batch", "number"),
    sa.Index("marks_of_file", "job_key", "attempt", "index", "number"),
)

# What the automatic checks found in stored files; a row for each file that was checked.
checks = sa.Table(
    "checks",
    metadata,
    sa.Column("job_key", sa.String(64), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("index", sa.Integer, primary_key=True),
    sa.Column("batch", sa.Text, nullable=False, index=True),
    sa.Column("flags", sa.JSON, nullable=False),  # a list of texts
    sa.Column("score", sa.Float),  # of the user's program
    sa.Column("hash", sa.String(16)),  # a perceptual hash, in hex; empty where there is none
    sa.Column("checked_at", Moment, nullable=False),
    sa.Column("judged", sa.Boolean, nullable=False),  # false: the user's program could not say anything yet
)

# What a batch was charged lately next to its quotes (`charges.py` keeps it).
charges = sa.Table(
    "charges",
    metadata,
    sa.Column("batch", sa.Text, primary_key=True),
    sa.Column("last", sa.JSON, nullable=False),  # the last ones, as `charges.Charge`
    # The dearest of each model, as ordered and as delivered, and quote: of those above their quotes or for
    # another model that nobody has accepted, and of those that a person has.
    sa.Column("unaccepted", sa.JSON, nullable=False),
    sa.Column("accepted", sa.JSON, nullable=False),
    sa.Column("above", Money, nullable=False),  # by how much what nobody has accepted is above the quotes
)

# What persons have changed for the runs of a batch that were at work, in order; and each limit that the
# config of a run, or the answer to its question, has said anew.
changes = sa.Table(
    "changes",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("batch", sa.Text, nullable=False, index=True),
    sa.Column("setting", sa.Text, nullable=False),  # by its dotted name, or `changes.PAUSED`
    sa.Column("value", sa.JSON),
    sa.Column("run_id", sa.String(36)),  # whose config or question has said it; empty: it was changed for all
    sa.Column("said_to", sa.JSON),  # the runs at work, where it was changed for all
    sa.Column("changed_by", sa.Text, nullable=False),
    sa.Column("changed_at", Moment, nullable=False),
)

# What persons have said of claims to the service, in order: that one was sent, or that money came back.
claims = sa.Table(
    "claims",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("batch", sa.Text, nullable=False, index=True),
    sa.Column("credit", Money),  # what came back; empty: a claim was sent
    sa.Column("attempts", sa.JSON, nullable=False),  # that the claim names, as lists of job_key and attempt
    sa.Column("note", sa.Text),
    sa.Column("said_by", sa.Text, nullable=False),
    sa.Column("said_at", Moment, nullable=False),
)

# What pace and lanes have learned of an account, to start the next run with.
learned = sa.Table(
    "learned",
    metadata,
    sa.Column("service", sa.Text, primary_key=True),
    sa.Column("limits", sa.JSON, nullable=False),
)
