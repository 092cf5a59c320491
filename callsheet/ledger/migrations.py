"""A ledger of another version: an older one is upgraded, in one transaction and after a backup; a newer one
says which Callsheet it needs.

What each schema changed is a function here, a migration. Alembic carries out its operations, which are the
same for SQLite and PostgreSQL. A migration says what it means in words of its own, because `tables.py` goes
on. The ledger itself says which schema it has (`about`), so Alembic keeps no record.
"""

from __future__ import annotations

import filecmp
import itertools
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from importlib.metadata import version as version_of_package
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from callsheet import failpoints
from callsheet.errors import LedgerError, LedgerMoved, OtherVersion
from callsheet.files import PRIVATE, PartialFile, sync_folder
from callsheet.ledger import leases, tables
from callsheet.ledger.tables import about, moved_to

if TYPE_CHECKING:
    from alembic.operations import Operations


def _to_16(op: Operations) -> None:
    """0.1.0: the ledger says which Callsheet it needs; and the indexes of marks, which not each 15 has."""
    op.add_column("about", sa.Column("needs", sa.Text()))
    op.execute("UPDATE about SET needs = '0.1.0'")
    with op.batch_alter_table("about") as table:
        table.alter_column("needs", existing_type=sa.Text(), nullable=False)
    op.create_index("marks_of_batch", "marks", ["batch", "number"], if_not_exists=True)
    of_file = ["job_key", "attempt", "index", "number"]
    op.create_index("marks_of_file", "marks", of_file, if_not_exists=True)


def _to_17(op: Operations) -> None:
    """0.2.0: words in the place of approvals, and nothing is counted by approval any more; what a person has
    decided is beside the service's code; only dead runs leave anything on the wire; the ledger says which
    jobs the batch file still asks for, and which files the user's program has judged.
    """
    money, moment = sa.BigInteger(), sa.String(27)  # as they are stored
    amounts = ("quoted", "reserved", "in_flight", "in_doubt", "spent")
    connection = op.get_bind()
    op.create_table(
        "words",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("batch", sa.Text(), nullable=False, index=True),
        sa.Column("asker", sa.String(36), nullable=False, index=True),
        sa.Column("flow_run", sa.Text()),
        sa.Column("about", sa.JSON(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("plan", sa.String(64), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        *(sa.Column(name, money, nullable=False) for name in ("quoted", "at_most")),
        sa.Column("unpriced", sa.BigInteger(), nullable=False),
        sa.Column("shown", sa.JSON(), nullable=False),
        *(sa.Column(name, money, nullable=False) for name in ("exposure", "up_to")),
        sa.Column("asked_at", moment, nullable=False),
        sa.Column("decision", sa.String(16)),
        sa.Column("decided_at", moment),
        sa.Column("decided_by", sa.Text()),
        sa.Column("place", sa.String(16)),
        sa.Column("budget_limit", money),
        sa.Column("note", sa.Text()),
    )
    old = sa.table("totals", *map(sa.column, ("batch", "day", "approval", *amounts)))
    sent = sa.func.sum(old.c.in_flight + old.c.in_doubt + old.c.spent)
    of_batch = dict(connection.execute(sa.select(old.c.batch, sent).group_by(old.c.batch)).all())
    by = dict(connection.execute(sa.select(old.c.approval, sent).group_by(old.c.approval)).all())
    # An approval was a pot of its own: what was left of it is what the batch may still come to by the word.
    approvals = sa.table(
        "approvals",
        *map(sa.column, ("id", "batch", "question", "plan", "jobs", "quoted", "at_most", "part", "asked_at")),
        *map(
            sa.column, ("flow_run", "decision", "decided_at", "decided_by", "place", "budget_limit", "note")
        ),
        *(sa.column(name, sa.JSON()) for name in ("rates", "charges")),
    )
    rows = []
    for number, row in enumerate(
        connection.execute(sa.select(approvals).order_by(approvals.c.asked_at, approvals.c.id)), 1
    ):
        values = row._asdict()
        exposure = int(of_batch.get(row.batch) or 0) - int(by.get(row.id) or 0)
        shown = {
            "repeats": "",
            "guesses": {},
            "new_rates": [],
            # Of a part nobody knows any more which jobs it was: that yes is one to no other job.
            "keys": [] if row.part else None,
            "is_rest": row.question == "pilot",
        }
        shown |= {name: values.pop(name) for name in ("rates", "charges", "part")}
        reasons = (
            [] if row.decision == "not_asked" else ["pilot" if values.pop("question") == "pilot" else "price"]
        )
        values.pop("question", None)
        added = {
            "number": number,
            "asker": row.flow_run or row.id,
            "about": reasons,
            "why": "",
            "unpriced": 0,
        }
        rows.append(values | added | {"shown": shown, "exposure": exposure, "up_to": exposure + row.at_most})
    if rows:
        words = sa.Table("words", sa.MetaData(), autoload_with=connection)
        connection.execute(words.insert(), rows)
    op.drop_table("approvals")
    op.create_table(
        "sums",
        sa.Column("batch", sa.Text(), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        *(sa.Column(name, money, nullable=False) for name in (*amounts, "unpriced")),
    )
    new = sa.table("sums", *map(sa.column, ("batch", "day", *amounts, "unpriced")))
    attempts = sa.table("attempts", *map(sa.column, ("batch", "quoted", "cost", "submitted_at")))
    day = sa.func.coalesce(sa.func.substr(attempts.c.submitted_at, 1, 10), "")
    of_day = sa.and_(attempts.c.batch == old.c.batch, day == old.c.day, attempts.c.quoted.is_(None))
    unpriced = sa.select(sa.func.coalesce(sa.func.sum(attempts.c.cost), 0)).where(of_day).scalar_subquery()
    summed = [sa.func.sum(old.c[name]) for name in amounts]
    by_day = sa.select(old.c.batch, old.c.day, *summed, unpriced).group_by(old.c.batch, old.c.day)
    connection.execute(new.insert().from_select([column.name for column in new.c], by_day))
    op.drop_table("totals")
    op.rename_table("sums", "totals")
    op.drop_column("attempts", "approval")
    op.drop_column("runs", "approval")
    op.add_column("changes", sa.Column("said_to", sa.JSON()))
    op.add_column("attempts", sa.Column("current", sa.Boolean()))
    # Whether the user's program has judged a file: of older ones nobody knows.
    op.add_column("checks", sa.Column("judged", sa.Boolean()))
    op.execute(sa.text("UPDATE checks SET judged = :judged").bindparams(judged=True))
    with op.batch_alter_table("checks") as table:
        table.alter_column("judged", existing_type=sa.Boolean(), nullable=False)
    op.add_column("attempts", sa.Column("settled", sa.String(16)))
    op.execute(
        "UPDATE attempts SET settled = error_code, error_code = 'in_doubt' "
        "WHERE error_code IN ('charged', 'not_charged') AND EXISTS (SELECT 1 FROM settlements WHERE "
        "settlements.job_key = attempts.job_key AND settlements.attempt = attempts.attempt)"
    )
    # A run left at its end what was still on the wire. It is dead now, for the next run to take over.
    op.execute(
        "UPDATE runs SET host = '', lease_until = ended_at, ended_at = NULL WHERE ended_at IS NOT NULL AND "
        "id IN (SELECT run_id FROM attempts WHERE state = 'submitting')"
    )


def _to_18(op: Operations) -> None:
    """0.2.0: a batch has a revision, and its rows are found by an index."""
    op.add_column("batches", sa.Column("revision", sa.String(32)))
    batches, connection = sa.table("batches", sa.column("batch"), sa.column("revision")), op.get_bind()
    for batch in connection.scalars(sa.select(batches.c.batch)).all():
        connection.execute(batches.update().where(batches.c.batch == batch).values(revision=uuid.uuid4().hex))
    with op.batch_alter_table("batches") as table:
        table.alter_column("revision", existing_type=sa.String(32), nullable=False)
    op.create_index("attempts_of_row", "attempts", ["batch", "row_id"])


def _to_19(op: Operations) -> None:
    """0.2.0: what was delivered, as the answer and as the bytes say it, of which nobody knows of older files;
    and charges for another model than ordered need a yes, too.
    """
    op.add_column("attempts", sa.Column("model_delivered", sa.Text()))
    op.add_column("media", sa.Column("mime_type_said", sa.Text()))
    for name in ("width", "height"):
        op.add_column("media", sa.Column(f"{name}_measured", sa.Integer()))
    for name in ("duration", "fps"):
        op.add_column("media", sa.Column(f"{name}_measured", sa.Float()))
    op.add_column("media", sa.Column("has_sound_measured", sa.Boolean()))
    op.execute("ALTER TABLE charges RENAME COLUMN dearer TO unaccepted")


def _to_20(op: Operations) -> None:
    """0.2.0: what persons have said of claims, and the money that came back."""
    op.create_table(
        "claims",
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("batch", sa.Text(), nullable=False, index=True),
        sa.Column("credit", sa.BigInteger()),
        sa.Column("attempts", sa.JSON(), nullable=False),
        sa.Column("note", sa.Text()),
        sa.Column("said_by", sa.Text(), nullable=False),
        sa.Column("said_at", sa.String(27), nullable=False),
    )


def _to_21(op: Operations) -> None:
    """0.2.0: purses; an attempt says by which it was bought, and so do the sums."""
    money, moment = sa.BigInteger(), sa.String(27)  # as they are stored
    op.create_table(
        "purses",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("batch", sa.Text(), nullable=False, index=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("amount", money, nullable=False),
        sa.Column("models", sa.JSON(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("place", "given_by")),
        *(sa.Column(name, moment, nullable=False) for name in ("given_at", "until")),
        sa.Column("closed_by", sa.Text()),
        sa.Column("closed_at", moment),
    )
    op.add_column("attempts", sa.Column("purse", sa.String(32)))
    op.execute("UPDATE attempts SET purse = ''")
    with op.batch_alter_table("attempts") as table:
        table.alter_column("purse", existing_type=sa.String(32), nullable=False)
    amounts = ("quoted", "reserved", "in_flight", "in_doubt", "spent", "unpriced")
    op.create_table(
        "sums",
        sa.Column("batch", sa.Text(), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("purse", sa.String(32), primary_key=True),
        *(sa.Column(name, money, nullable=False) for name in amounts),
    )
    columns = ", ".join(amounts)
    op.execute(
        f"INSERT INTO sums (batch, day, purse, {columns}) SELECT batch, day, '', {columns} FROM totals"  # noqa: S608 - our names
    )
    op.drop_table("totals")
    op.rename_table("sums", "totals")


def _to_22(op: Operations) -> None:
    """0.2.0: each job has a number of its own in its row. That is its sample; of several jobs of the row with
    that sample, the first one's. The others have the next numbers, by what they ask for. And stored files may
    be removed.
    """
    op.add_column("media", sa.Column("removed_at", sa.String(27)))
    op.add_column("attempts", sa.Column("file_number", sa.Integer()))
    op.execute("UPDATE attempts SET file_number = sample")
    names = ("batch", "row_id", "job_key", "sample", "request", "submitted_at", "file_number")
    attempts, connection = sa.table("attempts", *map(sa.column, names)), op.get_bind()
    of_row = (attempts.c.batch, attempts.c.row_id)
    count = sa.func.count(attempts.c.job_key.distinct())
    ambiguous = sa.select(*of_row).group_by(*of_row, attempts.c.sample).having(count > 1)
    first_sent = sa.func.min(attempts.c.submitted_at).label("first_sent")
    request = sa.func.min(attempts.c.request).label("request")
    query = (
        sa.select(*of_row, attempts.c.job_key, attempts.c.sample, request, first_sent)
        .where(sa.tuple_(*of_row).in_(ambiguous))
        .group_by(*of_row, attempts.c.job_key, attempts.c.sample)
        .order_by(*of_row, sa.func.coalesce(first_sent, "~"), attempts.c.job_key)
    )
    changed = attempts.update().where(attempts.c.job_key == sa.bindparam("the_job"))
    jobs = connection.execute(query).all()
    for _, row_jobs in itertools.groupby(jobs, lambda job: (job.batch, job.row_id)):
        requests: dict[str, None] = {}
        first_of_sample: dict[int, str] = {}
        others = []
        for job in row_jobs:
            requests.setdefault(job.request)
            if first_of_sample.setdefault(job.sample, job.job_key) != job.job_key:
                others.append(job)
        places = {request: place for place, request in enumerate(requests)}
        others.sort(key=lambda job: (places[job.request], job.sample))
        numbers = [
            {"the_job": job.job_key, "file_number": number}
            for number, job in enumerate(others, max(first_of_sample) + 1)
        ]
        connection.execute(changed, numbers)
    with op.batch_alter_table("attempts") as table:
        table.alter_column("file_number", existing_type=sa.Integer(), nullable=False)


MIGRATIONS: dict[int, Callable[[Operations], None]] = {
    16: _to_16,
    17: _to_17,
    18: _to_18,
    19: _to_19,
    20: _to_20,
    21: _to_21,
    22: _to_22,
}
"""By the schema that they make of the one before it."""


MOVED = 1_000_000
"""What is added to the schema's version of a ledger that was moved: an older Callsheet refuses it too."""

MOVING = 2 * MOVED
"""As `MOVED`, while it is not known whether the copy was kept."""


def check_version(connection: sa.Connection, name: str, *, looks: bool = False) -> int:
    """The version of the ledger's schema; 0 where there are no tables yet.

    Args:
        name: the ledger, as a person knows it.
        looks: it will not be upgraded.

    Raises:
        OtherVersion: it is of a newer Callsheet, or of an older one and is not upgraded.
        LedgerMoved: the ledger was moved, or that has not ended.
    """
    newest, version = tables.SCHEMA_VERSION, 0
    if sa.inspect(connection).has_table("about"):
        version = connection.scalar(sa.select(about.c.schema_version)) or 0
    if version > MOVED:
        url = connection.scalar(sa.select(moved_to.c.url))
        if version > MOVING:
            raise LedgerMoved(
                f"the ledger {name} is being moved to {url}, and that has not ended",
                hint="The same command goes on with it: callsheet ledger move CONFIG --to URL",
            )
        raise LedgerMoved(
            f"the ledger {name} was moved to {url}",
            hint="Set ledger.url to that address; here nobody knows what was bought since.",
        )
    if version > newest:
        needs = connection.scalar(sa.select(about.c.needs))
        raise OtherVersion(
            f"the ledger {name} needs Callsheet {needs} or newer, for its schema {version}; this is "
            f"{version_of_package('callsheet')}, with schema {newest}",
            hint="Install it. A copy from before the upgrade does not know what was bought since.",
        )
    if 0 < version < min(MIGRATIONS) - 1:
        raise OtherVersion(
            f"the ledger {name} has schema {version}; this Callsheet upgrades from {min(MIGRATIONS) - 1} on",
            hint="Finish its batches with the Callsheet that made it; for new ones, set another ledger.url.",
        )
    if looks and 0 < version < newest:
        raise OtherVersion(
            f"the ledger {name} is of an older Callsheet, with schema {version}; this one has {newest}",
            hint="Upgrade it: callsheet ledger upgrade CONFIG. callsheet run does so by itself.",
        )
    return version


def upgrade(connection: sa.Connection, name: str, version: int, file: Path | None) -> str:
    """Upgrades a ledger from an older schema; within the transaction of a writer, which commits it.

    Args:
        name: the ledger, as a person knows it.
        version: its schema.
        file: of a SQLite ledger; of another there is no backup.

    Returns:
        What a person should know of it, in a sentence.

    Raises:
        LedgerError: a run is at work, or there can be no backup. Nothing was changed.
    """
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    if working := sorted({run.batch for run in leases.alive(connection)}):
        raise LedgerError(
            f"the ledger {name} must be upgraded, and a run of an older Callsheet is at work on "
            f"{', '.join(working)}; nothing was changed",
            hint="Wait until it has ended, or end it; then run the same command again.",
        )
    backup = f"as it was: {_back_up(file, name)}" if file else "in PostgreSQL it has no copy as it was"
    operations = Operations(MigrationContext.configure(connection))
    for schema in range(version + 1, tables.SCHEMA_VERSION + 1):
        MIGRATIONS[schema](operations)
    new = {"schema_version": tables.SCHEMA_VERSION, "needs": tables.SINCE}
    connection.execute(about.update().values(new))
    failpoints.passed("before ledger.upgrade")
    return (
        f"the ledger {name} was upgraded from schema {version} to {tables.SCHEMA_VERSION}, which needs "
        f"Callsheet {tables.SINCE} or newer; {backup}"
    )


def _back_up(file: Path, name: str) -> Path:
    """Copies a SQLite ledger beside it, while this process alone may write it; returns the copy.

    One that is there already stays: it may be of a time before more was bought. The same is not made twice.

    Raises:
        LedgerError: the copy cannot be made.
    """
    file = file.resolve()
    first = file.with_name(f"{file.name}.before-{tables.SINCE}")
    names = itertools.chain([first], (first.with_name(f"{first.name}-{n}") for n in itertools.count(2)))
    try:
        with ExitStack() as stack:
            copy = stack.enter_context(PartialFile(first, Path(f"{first}.part"), rights=PRIVATE))
            for end in ("-wal", "-shm", "-journal"):
                stack.callback(Path(f"{copy.partial}{end}").unlink, missing_ok=True)
            with (
                closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy.partial)) as target,
            ):
                source.backup(target)
            path = next(
                candidate
                for candidate in names
                if not candidate.exists() or filecmp.cmp(copy.partial, candidate, shallow=False)
            )
            if not path.exists():
                copy.commit(path=path, overwrite=False)
                sync_folder(path.parent)
    except (sqlite3.Error, OSError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise LedgerError(
            f"the ledger {name} must be upgraded, and {first}, the copy of it, cannot be written: {reason}; "
            "nothing was changed",
            hint="Free some space there, or give this user the right to write in the folder.",
        ) from error
    return path
