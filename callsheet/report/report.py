"""Writes the report of a batch under `report.url`, and makes the summary of a run.

    manifest.parquet   a row for each stored file   costs.parquet   a row for each attempt that was submitted
    rejects.csv        a row for each reject        report.json     the summary, as `run --json` prints it

It changes nothing in the ledger.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import NamedTuple

import polars as pl
import sqlalchemy as sa

from callsheet.cells import rejects_csv, rejects_in_words
from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError, Interrupted, OtherLedger, Stop
from callsheet.ledger import leases, queries, sums, words
from callsheet.ledger.charges import is_dearer
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import ONLY_NEW, Policy
from callsheet.ledger.words import Word
from callsheet.places import warning_of
from callsheet.plain_text import and_more, row_in_words, row_name
from callsheet.pricing.plan import Plan, last_plan
from callsheet.records import (
    ACCEPTED,
    ENDED,
    ENDED_BADLY,
    ESTIMATED,
    MADE_FROM,
    MADE_FROM_FIELDS,
    UNDER_WAY,
    ModelType,
    OtherRun,
    State,
    Totals,
    made_from,
)
from callsheet.report.plots import figures_of
from callsheet.report.summary import (
    DIFFERENCE,
    PARTICULARS,
    Details,
    Did,
    Difference,
    Problem,
    Summary,
    Surcharge,
    outcome_of,
)
from callsheet.standing import MODEL, SUBMITTED, Standing, read_standing
from callsheet.storage.store import Store

MANIFEST, COSTS_FILE, REPORT = "manifest.parquet", "costs.parquet", "report.json"
_REJECTS = "rejects.csv"
_REVISION = "callsheet.revision"  # of the batch, in the metadata of the manifest
_TIMES = 4  # that the manifest is written at the most, where it changes meanwhile
_ROWS_NAMED = 5  # for each reason; the others are counted
_REASONS_NAMED = 10  # the jobs with others are counted
_DEAREST = 10

_OF_MEDIA = (
    *("job_key", "row_id", "sample", "file_number", "generation_id", "index", "model", "model_delivered"),
    *("prompt", "url", "sha256", "bytes", "mime_type", "width", "height", "duration", "fps", "has_sound"),
    *("duration_measured", "has_sound_measured", "cost", "deletes_at", "stored_at", "removed_at"),
)
_CURRENT = "current"
_MADE_FROM_TYPE = pl.Struct({name: pl.Int64 if name == "sample" else pl.String for name in MADE_FROM_FIELDS})
_POSITION = "\0position"  # no column of a batch file has such a name

REVIEW = ("decision", "decided_by", "decided_at", "note", "flags")
"""The columns of files in `manifest.parquet` that say what persons and checks have said of them."""

OF_MANIFEST = (*_OF_MEDIA, "carried")
"""The columns of files that `manifest` needs besides those that each standing has."""

COSTS = (
    *("job_key", "row_id", "sample", "generation_id", "model", "type", "state", "error_code"),
    *("error_message", "quoted", "cost", "cost_source", "currency", "billable_unit", "unit_price"),
    *("quantity", "submitted_at", "finished_at"),
)
"""The columns of `costs.parquet`, which are those of the ledger's attempts."""

PARQUET_TYPE = "application/vnd.apache.parquet"


def costs(standing: Standing) -> pl.DataFrame:
    """`costs.parquet`: a row for each attempt that was submitted; the attempts have the columns `COSTS`."""
    return standing.attempts.filter(SUBMITTED).select(COSTS)


def manifest(standing: Standing, files: pl.DataFrame | None = None, *, in_order: bool = True) -> pl.DataFrame:
    """`manifest.parquet`: a row for each stored file, with the batch file's carried columns after its own.

    It is in the batch file's order. `current` is false for rows that the batch file no longer has or has
    changed; they come last, in the order of storage. Without a plan, and where it is not `in_order`, all stay
    in that order. `files`: some of the stored ones; they have the columns `OF_MANIFEST`.
    """
    files = standing.files if files is None else files
    carried = _carried(files["carried"])
    places = standing.jobs.select(_CURRENT, job_key="key", **{_POSITION: "position"})
    table = files.join(places, on="job_key", how="left", maintain_order="left")
    table = table.select(*_OF_MEDIA, _CURRENT, *REVIEW, _POSITION).with_columns(carried)
    names = [column.name for column in carried if column.name != MADE_FROM]
    columns = (*_OF_MEDIA, _CURRENT, MADE_FROM, *REVIEW, *names)
    if not (in_order and standing.has_plan):
        return table.select(columns)
    order = (_POSITION, "index", "stored_at")
    asked_for = table.filter(_CURRENT).sort(order, nulls_last=True, maintain_order=True)
    return pl.concat([asked_for, table.filter(~pl.col(_CURRENT))]).select(columns)


def parquet(table: pl.DataFrame, revision: str = "") -> bytes:
    """The table as a Parquet file, which says by which revision of the batch it is."""
    file = BytesIO()
    table.write_parquet(file, metadata={_REVISION: revision} if revision else None)
    return file.getvalue()


def _carried(texts: pl.Series) -> list[pl.Series]:
    """`MADE_FROM`, and then the carried columns, from the JSON object of each row."""
    if (texts == "{}").all():
        return [pl.Series(MADE_FROM, [None] * texts.len(), _MADE_FROM_TYPE)]
    pairs = [made_from(row) for row in json.loads(f"[{','.join(texts)}]")]
    origins, rows = [origin for origin, _ in pairs], [row for _, row in pairs]
    names = dict.fromkeys(name for row in rows for name in row)
    return [
        pl.Series(MADE_FROM, origins, _MADE_FROM_TYPE),
        *(pl.Series(_column(name, names), [row.get(name) for row in rows], strict=False) for name in names),
    ]


def _column(name: str, carried: Collection[str]) -> str:
    """The manifest's name for a carried column: the batch file's, unless it is taken."""
    column = name
    while column in (*_OF_MEDIA, _CURRENT, *REVIEW, MADE_FROM) or (column != name and column in carried):
        column = f"input_{column}"
    return column


@dataclass(frozen=True, slots=True)
class OfRun:
    """What a summary says of one run, which took so many seconds.

    Attributes:
        stop: why it stopped early, if it did.
        without_image: why jobs were not sent of which an image is gone or has changed, one for each.
        submissions: its POSTs, of which `rate_limited` were answered 429.
        to_buy: whether it was to buy a job, for every job of the plan; None where that is for all.
        chosen: whether the run was for a job, for every job of the plan; None where it was for all.
        policy: what the next run like it does with jobs that were tried before.
        buys: whether it buys, and does not only collect.
    """

    stop: Stop | None = None
    without_image: tuple[InputError, ...] = ()
    seconds: float = 0.0
    submissions: int = 0
    rate_limited: int = 0
    to_buy: pl.Series | None = None
    chosen: pl.Series | None = None
    policy: Policy = ONLY_NEW
    buys: bool = False


class _Moment(NamedTuple):
    """What the ledger says of a batch at one moment: another run may buy while the report is written.

    `own_runs`, `began`: as `leases.same_flow_run` has them.
    """

    standing: Standing
    revision: str
    totals: Totals
    own_runs: list[str]
    began: datetime | None
    other_runs: list[OtherRun]
    approvals: tuple[Word, ...]


async def write_report(ledger: Ledger, store: Store, plan: Plan | None, of_run: OfRun) -> Summary:
    """Writes the report and returns the summary, which `write_summary` writes at the end.

    Args:
        store: that of `report.url`.
        plan: None where `collect` finds none, and knows the batch only from the ledger.
        of_run: the run; one that did nothing where there was none.

    Raises:
        StorageError: `report.url` cannot be written.
        LedgerError: the ledger cannot be read.
    """

    def read(connection: sa.Connection, batch: str) -> _Moment:
        standing = read_standing(
            connection,
            batch,
            plan.table if plan else None,
            of_run.policy,
            of_attempts=(*COSTS, "request", "run_id"),
            of_files=OF_MANIFEST,
        )
        return _Moment(
            standing,
            queries.revision(connection, batch),
            sums.of_batch(connection, batch),
            *leases.same_flow_run(connection, batch, ledger.run_id),
            leases.others(connection, batch, ledger.run_id),
            words.of_batch(connection, batch),
        )

    moment = await ledger.read(read)
    standing, revision = moment.standing, moment.revision
    files = await asyncio.to_thread(manifest, standing)
    await store.write(COSTS_FILE, await asyncio.to_thread(parquet, costs(standing)), PARQUET_TYPE)
    await store.write(MANIFEST, await asyncio.to_thread(parquet, files, revision), PARQUET_TYPE)
    if plan:
        await store.write(_REJECTS, await asyncio.to_thread(rejects_csv, plan.rejects), "text/csv")
    did = _did(standing, moment.own_runs, moment.began, buys=of_run.buys) if moment.began else None
    details = await asyncio.to_thread(_details, standing, plan, of_run, store.url_of(_REJECTS))
    is_done = not (of_run.stop or of_run.without_image or any(standing.states[state] for state in UNDER_WAY))
    is_done = is_done and not standing.planned["to_buy"].any()
    details = replace(details, did=did, done_at=revision if is_done else "")
    return _summary(ledger, store, moment, plan, of_run=of_run, details=details)


def _revision_of(manifest_file: bytes) -> str | None:
    """The revision of the batch by which a manifest was written; None where it does not say."""
    try:
        return pl.read_parquet_metadata(manifest_file).get(_REVISION)
    except pl.exceptions.PolarsError:  # it is damaged
        return None


async def update_manifest(settings: BatchSettings, ledger: Ledger) -> None:
    """Brings the manifest up to date with what is said of files, where there is one and it is this ledger's.

    A run may write it at the same time, and knows more at its end: so what it is by is read again then.

    Raises:
        StorageError: it cannot be written.
        LedgerError: the ledger cannot be read.
    """
    store = Store.of(settings.report.url, settings.storage)
    content, revision = await store.read(MANIFEST), await ledger.read(queries.revision)
    if content is None or revision in ("", _revision_of(content)):
        return
    try:
        if await warning_of(ledger, settings):
            return
    except OtherLedger:
        return
    plan = await asyncio.to_thread(last_plan, settings)
    jobs = plan.table if plan else None

    def read(connection: sa.Connection, batch: str) -> tuple[Standing, str]:
        standing = read_standing(connection, batch, jobs, of_files=OF_MANIFEST)
        return standing, queries.revision(connection, batch)

    for _ in range(_TIMES):
        standing, revision = await ledger.read(read)
        files = await asyncio.to_thread(manifest, standing)
        await store.write(MANIFEST, await asyncio.to_thread(parquet, files, revision), PARQUET_TYPE)
        if await ledger.read(queries.revision) == revision:
            return


async def write_summary(store: Store, summary: Summary) -> None:
    """Writes `report.json`, as the last of all: its `seconds` are those of the whole run.

    Raises:
        StorageError: `report.url` cannot be written.
    """
    await store.write(REPORT, report_json(summary), "application/json")


def report_json(summary: Summary) -> bytes:
    """The content of `report.json`."""
    return (json.dumps(summary.as_json(), ensure_ascii=False, indent=2) + "\n").encode()


def _summary(
    ledger: Ledger, store: Store, moment: _Moment, plan: Plan | None, *, of_run: OfRun, details: Details
) -> Summary:
    """How the batch stands after a run."""
    standing, totals = moment.standing, moment.totals
    states, jobs, stop = standing.states, standing.counting.height, of_run.stop
    ended = sum(states[state] for state in ENDED) >= jobs
    left_to_buy = standing.left_to_buy(ledger.run_id, of_run.to_buy) if plan else 0
    stopped = stop and (left_to_buy or (isinstance(stop, Interrupted) and not ended))
    review = standing.review
    return Summary(
        batch=ledger.batch,
        ledger_id=ledger.id,
        paid_jobs=totals.paid_jobs,
        written_at=datetime.now(UTC).replace(microsecond=0),
        outcome="stopped" if stopped else outcome_of(standing, plan),
        stop_reason=stop.reason if stop and stopped else None,
        jobs=jobs,
        stored=states[State.STORED],
        failed=states[State.FAILED],
        in_doubt=states[State.IN_DOUBT],
        lost=states[State.LOST],
        pending=sum(states[state] for state in UNDER_WAY),
        rejected_rows=plan.rejected_rows if plan else 0,
        quoted=standing.quoted,
        spent=totals.spent,
        in_doubt_exposure=totals.in_doubt_exposure,
        currency="USD",
        seconds=round(of_run.seconds, 3),
        submissions=of_run.submissions,
        rate_limited=of_run.rate_limited,
        manifest=store.url_of(MANIFEST),
        costs=store.url_of(COSTS_FILE),
        report=store.url_of(REPORT),
        estimated_costs=standing.attempts.filter(pl.col("cost_source").is_in(ESTIMATED))[
            "job_key"
        ].n_unique(),
        **review._asdict(),
        credits=totals.credits,
        cost_per_kept=standing.cost_per_kept,
        other_runs=tuple(run for run in moment.other_runs if run.jobs),
        approvals=moment.approvals,
        details=details,
    )


def _details(standing: Standing, plan: Plan | None, of_run: OfRun, rejects: str) -> Details:
    """What is told of the run, and of how the batch stands; `rejects` is where `rejects.csv` is."""
    problems, other_problems = _problems_of(standing.submitted)
    reason = of_run.stop or _missing(of_run.without_image)
    all_chosen_stored = None
    if of_run.chosen is not None:
        all_chosen_stored = (standing.planned.filter(of_run.chosen)["state"] == State.STORED).all()
    return Details(
        stop_message=str(reason) if reason else None,
        stop_hint=reason.hint if reason else "",
        rows=plan.rows if plan else None,
        rejects=rejects,
        rejected=tuple(rejects_in_words(plan.rejects)) if plan else (),
        rejected_in_part=plan.rejected_in_part if plan else 0,
        problems=problems,
        other_problems=other_problems,
        surcharge=_surcharge_of(standing.submitted),
        not_offered=plan.not_offered() if plan else 0,
        others=standing.counting.filter(~pl.col("current")).height,
        models=standing.shares[MODEL],
        dearest=_most_expensive(standing.submitted),
        figures=figures_of(standing.submitted, standing.shares[MODEL]),
        differences=_differences_of(standing.files),
        all_chosen_stored=all_chosen_stored,
    )


def _did(standing: Standing, own_runs: Sequence[str], began: datetime, *, buys: bool) -> Did:
    """What these runs have done since the first of them began; what was submitted before was taken over.

    What all batches have bought since a moment is counted by the same rule in SQL (`spending.bought_since`).
    """
    own = standing.attempts.filter(pl.col("run_id").is_in(own_runs), pl.col("state").is_in(ACCEPTED))
    bought = own.filter(pl.col("submitted_at") >= began)
    fetched = own.filter(pl.col("submitted_at") < began, state=State.STORED)
    cost = bought.select(pl.coalesce("cost", "quoted"))["cost"].sum()
    return Did(buys, bought.height, Decimal(cost or 0), fetched.height)


def _missing(errors: Sequence[InputError]) -> InputError | None:
    """Why jobs were not sent of which an image is missing, with the first ones named; None without any."""
    if not errors:
        return None
    message = and_more([str(error) for error in errors[:_ROWS_NAMED]], len(errors))
    hint = "The same command buys them once their images are there, as the batch file names them."
    return InputError(message, hint=hint)


def _most_expensive(attempts: pl.DataFrame) -> tuple[tuple[str, str, Decimal], ...]:
    """Row, model and cost of the ten jobs that cost most, the first most."""
    paid = attempts.filter(pl.col("cost") > 0).select("row_id", "sample", "line", "model", "cost")
    dearest = paid.sort("cost", "row_id", "sample", descending=[True, False, False]).head(_DEAREST)
    return tuple((row_name(*row), model, cost) for *row, model, cost in dearest.iter_rows())


def _problems_of(attempts: pl.DataFrame) -> tuple[tuple[Problem, ...], int]:
    """The most common problems, and the number of jobs with others."""
    is_unknown_status = (pl.col("state") == State.PENDING) & pl.col("error_message").is_not_null()
    messages = [pl.when(pl.col(name) != "").then(name) for name in ("error_message", "error_code")]
    reason = pl.col("message").str.replace_all(PARTICULARS, "#").alias("reason")
    groups = (
        attempts.filter(pl.col("state").is_in(ENDED_BADLY) | is_unknown_status, ~pl.col("superseded"))
        .with_columns(message=pl.coalesce(*messages, pl.lit("no reason is known")))
        .group_by("state", reason, maintain_order=True)
        .agg(
            pl.col("message", "error_code").first(),
            pl.len().alias("jobs"),
            pl.struct("row_id", "sample", "line").head(_ROWS_NAMED).alias("rows"),
        )
        .sort("jobs", "state", descending=True, maintain_order=True)  # of states, what is open first
        .drop("reason")
    )
    problems = tuple(
        Problem(State(state), message, code or "", jobs, tuple(row_in_words(**row) for row in rows))
        for state, message, code, jobs, rows in groups.head(_REASONS_NAMED).iter_rows()
    )
    return problems, int(groups["jobs"].slice(_REASONS_NAMED).sum())


def _differences_of(files: pl.DataFrame) -> tuple[Difference, ...]:
    """The files that are not as they were ordered: how many of each type and flag, the most first."""
    is_video = pl.col("mime_type").str.starts_with("video/")
    files = files.select("flags", type=pl.when(is_video).then(pl.lit("video")).otherwise(pl.lit("image")))
    stored = dict(files.group_by("type").len().iter_rows())
    parts = [pl.col("flags").str.extract(DIFFERENCE, place).alias(f"part{place}") for place in (1, 2)]
    counts = files.explode("flags").with_columns(parts).drop_nulls("part1").group_by("type", "^part.*$").len()
    details: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for kind, flag, detail, count in counts.sort("len", "part2", descending=[True, False]).iter_rows():
        details[kind, flag][detail] = count
    differences = (
        Difference(flag, ModelType(kind), sum(of_flag.values()), stored[kind], of_flag)
        for (kind, flag), of_flag in details.items()
    )
    return tuple(sorted(differences, key=lambda difference: (-difference.files, difference.flag)))


def _surcharge_of(attempts: pl.DataFrame) -> Surcharge | None:
    """The jobs that cost more than quoted, the first ones by name; None where there are none."""
    dearer = attempts.filter(is_dearer(pl.col("cost"), pl.col("quoted")))
    if dearer.is_empty():
        return None
    first = dearer.select("row_id", "sample", "line", "cost", "quoted").head(_ROWS_NAMED)
    named = tuple((row_in_words(*row), cost, quoted) for *row, cost, quoted in first.iter_rows())
    return Surcharge(dearer.height, sum(dearer["cost"] - dearer["quoted"], Decimal(0)), named)
