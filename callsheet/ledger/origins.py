"""From which files of other batches jobs are made, what hangs on a file, and what is made from an old one.

What is asked here is about batches of one ledger: of a file of another ledger, nothing is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import queries
from callsheet.ledger.queries import StoredCopy, Story
from callsheet.ledger.tables import attempts, marks, media
from callsheet.plain_text import counted
from callsheet.records import MADE_FROM, MADE_FROM_FIELDS, MAY_COST, ModelType

SOURCE = "source"
"""How the flag of a file begins that is made from what is not kept any more, or was replaced."""

_FILE = ["job_key", "attempt", "index"]
_JOB = ["batch", "job_key", "attempt", "row_id", "sample", "type", "state", "current"]
_ORIGIN = [f"from_{name}" for name in MADE_FROM_FIELDS]
_ORIGINS = pl.List(
    pl.Struct({name: pl.Int64 if name == "sample" else pl.String for name in MADE_FROM_FIELDS})
)
_IS_NO_TEXT = rf'"{MADE_FROM}":\s*[\[{{]'  # but a list or an object
_TEXT = r'"(?:[^"\\]|\\.)*"'  # of JSON
_IS_ORIGIN = rf'^\[?\{{"batch":{_TEXT},"row":{_TEXT},"sample":\d+,"sha256":{_TEXT}\}}'
_NAMES_ONE = sa.cast(attempts.c.carried, sa.Text).contains(f'"{MADE_FROM}"')


class Origin(NamedTuple):
    """A file of a batch: its row, its sample, and its bytes, as samples of several models have one number."""

    batch: str
    row: str
    sample: int
    sha256: str


def with_origins(jobs: pl.DataFrame, carried: pl.Series) -> pl.DataFrame:
    """Jobs with the files that they are made from by what they carry, as JSON: a row for each file, with the
    columns `from_batch`, `from_row`, `from_sample` and `from_sha256`. What is made from none is left out.

    It finds what `records.origins` finds, by columns: a batch may have 100,000 of them.
    """
    cell = carried.str.json_path_match(f"$.{MADE_FROM}")
    is_ours = carried.str.contains(_IS_NO_TEXT) & cell.str.contains(_IS_ORIGIN)
    derived = jobs.with_columns(cell.alias("origin")).filter(is_ours.fill_null(value=False))
    is_one = pl.col("origin").str.starts_with("{")
    listed = pl.when(is_one).then(pl.format("[{}]", "origin")).otherwise("origin")
    derived = derived.with_columns(listed.str.json_decode(_ORIGINS).alias("origin")).explode("origin")
    return derived.with_columns(pl.col("origin").struct.rename_fields(_ORIGIN)).unnest("origin")


def read(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> pl.DataFrame:
    """Those of these attempts that are made from files of other batches, as `with_origins` has them."""
    columns = [attempts.c[name] for name in (*_JOB, "carried")]
    rows = queries.read(connection, sa.select(*columns).where(_NAMES_ONE, condition))
    return with_origins(rows.drop("carried"), rows["carried"])


def flags(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> pl.DataFrame:
    """`job_key`, `attempt` and `flag`, in words, of each of these attempts that is made from a file which is
    not kept any more, or of whose row another one is.
    """
    derived = _outdated(connection, read(connection, condition))
    flag = pl.format(f"{SOURCE}: {{}}", _in_words())
    return derived.group_by("job_key", "attempt", maintain_order=True).agg(flag=flag.str.join("; "))


def flagged(connection: sa.Connection, stories: Sequence[Story]) -> list[Story]:
    """Stories, whose files have these flags among theirs."""
    flag_of: dict[tuple[str, int], list[str]] = defaultdict(list)
    for of_some in queries.of_jobs([story.job_key for story in stories]):
        for key, attempt, flag in flags(connection, of_some).iter_rows():
            flag_of[key, attempt].append(flag)
    return [
        replace(story, files=_with(story.files, flag_of[story.job_key, story.attempt])) for story in stories
    ]


def _with(files: Sequence[StoredCopy], more_flags: Sequence[str]) -> tuple[StoredCopy, ...]:
    return tuple(replace(file, flags=(*file.flags, *more_flags)) for file in files)


def changes(connection: sa.Connection, batch: str) -> list[str]:
    """Of each old file that jobs of the batch were bought with: what became of it, and what hangs on it in
    all batches of the ledger, in words.
    """
    counts = attempts.c.state.in_(MAY_COST) & ~attempts.c.superseded & attempts.c.current.is_not(False)
    derived = _outdated(connection, read(connection, sa.and_(attempts.c.batch == batch, counts)))
    if derived.is_empty():
        return []
    ledger_jobs = read(connection, counts)
    files = derived.select(*_ORIGIN, text=_in_words()).unique(maintain_order=True)
    sentences = []
    for *origin, text in files.iter_rows():
        hanging = hanging_on(ledger_jobs, Origin(*origin))
        images = hanging.filter(type=ModelType.IMAGE.value).height
        sentences.append(f"{text}: {hanging_in_words(images, hanging.height - images)} on it")
    return sentences


def hanging_on(jobs: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Those of these jobs (`with_origins`) that are made from a file, or from what is made from it, and so
    on; each once.
    """
    job, place = ["batch", "job_key"], ["batch", "row_id", "sample"]
    new = jobs.filter(*(pl.col(name) == value for name, value in zip(_ORIGIN, origin, strict=True)))
    reached = new = new.unique(job, maintain_order=True)
    while new.height:
        derived = jobs.join(new.select(place).unique(), left_on=_ORIGIN[:3], right_on=place, how="semi")
        derived = derived.unique(job, maintain_order=True)
        new = derived.join(reached, on=job, how="anti", maintain_order="left")
        reached = pl.concat([reached, new])
    return reached


def hanging_in_words(images: int, videos: int) -> str:
    """How many jobs hang on a file: `12 stills and 9 films hang`."""
    counts = {"still": images, "film": videos}
    text = " and ".join(counted(count, name) for name, count in counts.items() if count)
    return f"{text or 'nothing'} {'hang' if images + videos > 1 else 'hangs'}"


def _in_words() -> pl.Expr:
    """What became of the file of an outdated job."""
    is_kept = pl.when(pl.col("kept") != "").then(pl.format(" (kept: {})", "kept")).otherwise(pl.lit(""))
    file = pl.format("{} of {} {}", "id", "from_batch", "why")
    return pl.concat_str(file, is_kept)


def _outdated(connection: sa.Connection, derived: pl.DataFrame) -> pl.DataFrame:
    """Those of these jobs (`with_origins`) that are made from an old file, with its `id`, `why` in words, and
    `kept`, the ids of the row's files that are kept in its place.
    """
    parts = [derived.clear().with_columns(id=pl.lit(""), why=pl.lit(""), kept=pl.lit(""))]
    for (batch,), of_batch in derived.group_by("from_batch"):
        rows = of_batch["from_row"].unique().to_list()
        for of_rows in queries.any_of(attempts.c.row_id, rows):
            files = _files(connection, sa.and_(attempts.c.batch == batch, of_rows))
            parts.append(of_batch.join(files, on=_ORIGIN[1:], maintain_order="left").drop_nulls("why"))
    return pl.concat(parts)


def _files(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> pl.DataFrame:
    """Each stored file of these attempts by `from_row`, `from_sample` and `from_sha256`: its `id`, `why` it
    is old (null: it is not), and the ids of those of its row that are `kept`.
    """
    names = (*_FILE, "row_id", "sample", "file_number", "sha256", "current")
    columns = [media.c[name] if name in ("index", "sha256") else attempts.c[name] for name in names]
    stored = sa.select(*columns).join_from(attempts, media, queries.FILES_OF)
    files = queries.read(connection, stored.where(condition, media.c.stored_at.is_not(None)))
    of_attempt = sa.and_(marks.c.job_key == attempts.c.job_key, marks.c.attempt == attempts.c.attempt)
    query = sa.select(*(marks.c[name] for name in (*_FILE, "decision"))).join_from(
        attempts, marks, of_attempt
    )
    decisions = queries.read(connection, query.where(condition).order_by(marks.c.number))
    decision = pl.col("decision")
    decisions = decisions.group_by(_FILE).agg(decision.last(), was_kept=decision.eq_missing("kept").any())
    files = files.join(decisions, on=_FILE, how="left", maintain_order="left")
    is_kept, is_current = decision.eq_missing("kept"), pl.col("current").fill_null(value=True)
    files = files.with_columns(is_kept=is_kept, is_new=is_kept & is_current).sort(
        "row_id", "file_number", "index"
    )
    id_, none = pl.format("{}/{}", "row_id", "file_number"), pl.lit(None, pl.String)
    reason = (
        pl.when(decision == "rejected")
        .then(pl.lit("is rejected"))
        .when(pl.col("was_kept") & ~pl.col("is_kept"))
        .then(pl.lit("is not kept any more"))
        .when(~is_current & pl.col("is_new").any().over("row_id"))
        .then(pl.lit("is of an earlier request"))
        .otherwise(none)
    )
    kept = id_.filter("is_new").unique(maintain_order=True).str.join(", ").over("row_id")
    origin = {"from_row": "row_id", "from_sample": "sample", "from_sha256": "sha256"}
    files = files.select(**origin, id=id_, why=reason, kept=kept)
    return files.group_by(_ORIGIN[1:], maintain_order=True).agg(
        id=pl.col("id").first(),
        why=pl.when(pl.col("why").is_null().any()).then(none).otherwise(pl.col("why").first()),
        kept=pl.col("kept").first(),
    )
