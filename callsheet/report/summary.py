"""What `--json` prints of a batch: the result of a run, with the exit code, of `status` and of `review`.

The counts in them are those of the standing (`standing.py`). A run's result is made in `report.py`, with the
parts that are for people.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from callsheet.config.settings import BatchSettings
from callsheet.errors import LedgerError
from callsheet.ledger import changes, leases, marks, queries, sums, words
from callsheet.ledger.changes import PAUSED, Setting
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import policy_of
from callsheet.ledger.words import Word
from callsheet.pricing.plan import Plan, ToBuyAgain, last_plan, to_buy_again
from callsheet.records import ModelType, OtherRun, Record, State
from callsheet.report.plots import Figures
from callsheet.standing import ASKED_FOR, MODEL, Share, Shares, Standing, read_standing


def outcome_of(standing: Standing, plan: Plan | None) -> str:
    """`complete` where all of the batch's jobs are stored, otherwise `partial`. That is also a plan of which
    every row is rejected.
    """
    is_stored = standing.states[State.STORED] >= standing.counting.height
    nothing_planned = plan is not None and plan.rejected_rows and not plan.jobs
    return "complete" if is_stored and not nothing_planned else "partial"


PARTICULARS = r"req-[\w-]+|\d[\d:.TZ+-]*"
"""Ids, times and numbers in a reason: they differ from job to job, and do not make another reason."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Jobs in one state for one reason: failed, in doubt, lost, or pending with a status that is not known.

    `reason` is the message of the first of them, `code` its error code, empty where there is none; `rows` are
    the names of the first ones.
    """

    state: State
    reason: str
    code: str
    jobs: int
    rows: tuple[str, ...]


DIFFERENCE = r"^(model|length|still|sound|format|size): (.*)"
"""A flag of a file that is not as it was ordered: what is not, and how, in words."""


@dataclass(frozen=True, slots=True)
class Difference(Record):
    """Stored files that are not as they were ordered, by the flag of a check.

    Attributes:
        flag: `model`, `length`, `still`, `sound`, `format` or `size`.
        type: of the files.
        files: how many have the flag.
        of: how many files of the type are stored.
        details: of how many what was ordered, came and is said, by that in words; the most frequent first.
    """

    flag: str
    type: ModelType
    files: int
    of: int
    details: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Did:
    """What a run has done itself, before and after it was suspended.

    Attributes:
        buys: whether it was to buy, and not only to collect.
        bought: the jobs that it has sent and that were accepted.
        cost: what they cost, or are quoted at while that is not known.
        fetched: the jobs of earlier runs of which it has stored the files.
    """

    buys: bool
    bought: int
    cost: Decimal
    fetched: int


@dataclass(frozen=True, slots=True)
class Surcharge:
    """Jobs that cost more than quoted, roundings aside (`charges.is_dearer`).

    Attributes:
        jobs: how many.
        amount: what they cost more, all together.
        named: of the first of them the row in words, the cost and the quote.
    """

    jobs: int
    amount: Decimal
    named: tuple[tuple[str, Decimal, Decimal], ...]


@dataclass(frozen=True, slots=True)
class Details:
    """The parts of a summary that are for people only.

    Attributes:
        stop_message: what stopped the buying, or the collecting of what is bought, or why jobs were not sent;
            None without such.
        stop_hint: what to do about it.
        rows: how many the batch file has; None where the run knows no plan.
        rejects: where `rejects.csv` is.
        rejected: what is wrong with the rejected rows, a line for each reason.
        rejected_in_part: those of them of which other values of a matrix can be bought.
        surcharge: the jobs that cost more than quoted; None where there are none.
        other_problems: the number of jobs with other reasons than those of `problems`.
        not_offered: bought jobs of rows that are rejected now, because the catalogue no longer offers them.
        others: how many of the jobs are of rows that the batch file does not have, or has changed.
        dearest: row, model and cost of the jobs that cost most, the first most.
        contact_sheet: where the page is; None where there is none.
        figures: what the plots show; None where nothing was submitted.
        all_chosen_stored: whether all jobs are stored that the run was for; None where it was for all jobs.
        differences: the files that are not as they were ordered.
        did: what the run has done; None where none was at work.
        done_at: the batch's revision (`queries.revision`) by which nothing is left to do; empty where some
            is, or where the links of the page may end before their time.
    """

    stop_message: str | None = None
    stop_hint: str = ""
    rows: int | None = None
    rejects: str = ""
    rejected: tuple[str, ...] = ()
    rejected_in_part: int = 0
    problems: tuple[Problem, ...] = ()
    other_problems: int = 0
    surcharge: Surcharge | None = None
    not_offered: int = 0
    others: int = 0
    models: tuple[Share, ...] = ()
    dearest: tuple[tuple[str, str, Decimal], ...] = ()
    contact_sheet: str | None = None
    figures: Figures | None = field(default=None, repr=False)
    all_chosen_stored: bool | None = None
    differences: tuple[Difference, ...] = ()
    did: Did | None = None
    done_at: str = ""


class Reviewed(Record):
    """A record with the counts of the review."""

    __slots__ = ()
    kept: int
    rejected: int
    to_review: int
    cost_per_kept: Decimal | None


_EXIT_CODES = {"complete": 0, "partial": 3, "stopped": 4}


@dataclass(frozen=True, slots=True)
class Summary(Reviewed):
    """A batch after a run, with the names that `run --json` prints (`docs/commands.md, "JSON"`).

    The counts, and `quoted`, are of the jobs of the batch file as it is now, and of all others of the batch
    that have cost money or may have. `spent` and `in_doubt_exposure` are of the whole batch. `submissions`,
    `rate_limited` and `seconds` are of this run.
    `other_runs` are the runs of the batch that are still at work, and have jobs in hand. `approvals` are what
    persons were asked about the batch, and what they said, the oldest first. `ledger_id` and `paid_jobs` (of
    the whole batch) say which ledger it is from, and how far that was, at `written_at`. `estimated_costs` are
    the jobs of which the cost is not the service's word. Of the stored files of the whole batch, `kept`,
    `rejected` and `to_review` are counted by what was decided about them; `cost_per_kept` is all that was
    spent, less the `credits` (money that came back), over the files kept, None without one. Money is in
    dollars.
    """

    batch: str
    outcome: str
    stop_reason: str | None
    jobs: int
    stored: int
    failed: int
    in_doubt: int
    lost: int
    pending: int
    rejected_rows: int
    quoted: Decimal
    spent: Decimal
    in_doubt_exposure: Decimal
    currency: str
    seconds: float
    submissions: int
    rate_limited: int
    manifest: str
    costs: str
    report: str
    ledger_id: str
    paid_jobs: int
    written_at: datetime
    estimated_costs: int = 0
    credits: Decimal = Decimal(0)
    kept: int = 0
    rejected: int = 0
    to_review: int = 0
    cost_per_kept: Decimal | None = None
    other_runs: tuple[OtherRun, ...] = ()
    approvals: tuple[Word, ...] = ()
    details: Details = field(default_factory=Details)

    @property
    def exit_code(self) -> int:
        """0 all stored that the run was for, 4 stopped before everything was tried, 3 otherwise."""
        if self.outcome == "partial" and self.details.all_chosen_stored:
            return 0
        return _EXIT_CODES[self.outcome]

    @property
    def models(self) -> tuple[Share, ...]:
        """The jobs and the stored files by model."""
        return self.details.models

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The files that are not as they were ordered."""
        return self.details.differences

    @property
    def stop_message(self) -> str | None:
        """What stopped the buying, or the collecting of what is bought, in words."""
        return self.details.stop_message

    @property
    def states(self) -> dict[State, int]:
        """How many jobs are in each state, in the order to say it; those under way are all `pending` here."""
        in_order = (State.STORED, State.FAILED, State.IN_DOUBT, State.LOST, State.PENDING)
        return {state: self[state] for state in in_order}

    @property
    def not_bought(self) -> int:
        """Jobs that were never sent, or not accepted."""
        return self.jobs - sum(self.states.values())

    def keys(self) -> Iterable[str]:
        """The names of the fields that `--json` prints."""
        return [*(name for name in Record.keys(self) if name != "details"), "models", "differences"]


@dataclass(frozen=True, slots=True)
class Pause(Record):
    """A person holds the buying of the runs of a batch that are at work."""

    who: str
    when: datetime


@dataclass(frozen=True, slots=True)
class Status(Reviewed):
    """A batch with the names that `status --json` prints: jobs by state, and money in US dollars.

    `other_runs` are the runs of the batch that are at work, `approvals` what persons were asked about it,
    `paused` says who holds their buying, `last_run` is when a run last began, and `changes` what persons have
    changed since then for the runs at work.
    The counts of the review are those of `Summary`, `by_model` and `by_setting` those of `ReviewResult`.
    `to_buy_again` is what `quote --again` would buy for rejected rows. `outdated` has the flag of each file
    that is made from an old one, by its row and sample.
    """

    batch: str
    planned: int
    submitting: int
    pending: int
    generated: int
    stored: int
    failed: int
    in_doubt: int
    lost: int
    spent: Decimal
    in_flight_exposure: Decimal
    in_doubt_exposure: Decimal
    currency: str
    other_runs: tuple[OtherRun, ...]
    credits: Decimal = Decimal(0)
    approvals: tuple[Word, ...] = ()
    kept: int = 0
    rejected: int = 0
    to_review: int = 0
    cost_per_kept: Decimal | None = None
    by_model: tuple[Share, ...] = ()
    by_setting: Shares = field(default_factory=dict)
    paused: Pause | None = None
    last_run: datetime | None = None
    changes: tuple[Setting, ...] = ()
    to_buy_again: ToBuyAgain = field(default_factory=ToBuyAgain)
    outdated: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReviewResult(Reviewed):
    """How far a batch is reviewed, with the names that `review --json` prints (see `Summary`).

    `by_model` says it for each model, `by_setting` for each value of a setting of which rows have asked for
    several; both are empty where there is one.
    """

    batch: str
    kept: int
    rejected: int
    to_review: int
    cost_per_kept: Decimal | None
    by_model: tuple[Share, ...] = ()
    by_setting: Shares = field(default_factory=dict)


async def read_result(ledger: Ledger, settings: BatchSettings) -> ReviewResult:
    """How far the batch of an open ledger is reviewed: counted in the ledger, where nothing is compared.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    plan = await asyncio.to_thread(last_plan, settings)
    planned = plan.table if plan else None

    def read(connection: sa.Connection, batch: str) -> ReviewResult:
        models, rows, tries = queries.models_and_rows(connection, batch)
        if planned is not None:
            models |= {*planned["model"].unique()}
        if len(models) > 1 or rows < tries:
            requests = ["request"] if rows < tries else []
            return _result(batch, read_standing(connection, batch, planned, of_attempts=requests))
        review, cost = marks.counts(connection, batch), sums.of_batch(connection, batch).net
        return ReviewResult(batch, *review, review.cost_per_kept(cost))

    return await ledger.read(read)


async def read_review(ledger: Ledger, settings: BatchSettings) -> tuple[ReviewResult, ToBuyAgain]:
    """How far the batch of an open ledger is reviewed, and what is to be bought again.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    plan = await asyncio.to_thread(last_plan, settings)
    standing = await ledger.read(_standing, plan, settings)
    return _result(ledger.batch, standing), to_buy_again(standing, plan, settings)


def _result(batch: str, standing: Standing) -> ReviewResult:
    by_setting = standing.compared
    by_model = by_setting.pop(MODEL, ())
    return ReviewResult(batch, *standing.review, standing.cost_per_kept, by_model, by_setting)


async def read_status(ledger: Ledger, settings: BatchSettings) -> Status:
    """The status of the ledger's batch, which has these settings.

    Raises:
        LedgerError: the ledger cannot be read, or its running totals are wrong.
    """
    plan = await asyncio.to_thread(last_plan, settings)
    standing, wrong_batches, totals, other_runs, asked, last_run, changed = await ledger.read(
        lambda connection, batch: (
            _standing(connection, batch, plan, settings),
            sums.differences(connection, batch),
            sums.of_batch(connection, batch),
            leases.others(connection, batch, ledger.run_id),
            words.of_batch(connection, batch),
            leases.last_run(connection, batch),
            changes.since(connection, batch, 0),
        )
    )
    check_totals(wrong_batches)
    by_setting = standing.compared
    counts: dict[str, Any] = {state.value: standing.states[state] for state in State}
    return Status(
        batch=ledger.batch,
        **counts,
        spent=totals.spent,
        credits=totals.credits,
        in_flight_exposure=totals.in_flight_exposure,
        in_doubt_exposure=totals.in_doubt_exposure,
        currency="USD",
        other_runs=tuple(other_runs),
        approvals=asked,
        **standing.review._asdict(),
        cost_per_kept=standing.cost_per_kept,
        by_model=by_setting.pop(MODEL, ()),
        by_setting=by_setting,
        paused=_paused(changed, other_runs),
        last_run=last_run and last_run.replace(microsecond=0),
        changes=tuple(
            setting
            for setting in changed
            if last_run and setting.changed_at >= last_run and not setting.run_id
        ),
        to_buy_again=to_buy_again(standing, plan, settings),
        outdated=standing.outdated,
    )


def _standing(connection: sa.Connection, batch: str, plan: Plan | None, settings: BatchSettings) -> Standing:
    """How the batch stands, by the last plan on this machine."""
    jobs, policy = plan.table if plan else None, policy_of(settings)
    columns = ASKED_FOR if marks.has_rejected(connection, batch) else ["request"]
    # With the files comes what is said of them.
    return read_standing(connection, batch, jobs, policy, of_attempts=columns, of_files=["sha256"])


def _paused(changed: Iterable[Setting], at_work: Iterable[OtherRun]) -> Pause | None:
    """Who holds the buying of the runs at work; those that began later buy, and None of these is held."""
    pauses = [setting for setting in changed if setting.setting == PAUSED]
    if not pauses or not pauses[-1].value or all(run.started_at > pauses[-1].changed_at for run in at_work):
        return None
    return Pause(pauses[-1].changed_by, pauses[-1].changed_at.replace(microsecond=0))


def check_totals(wrong_batches: list[str]) -> None:
    """Refuses a ledger in which the running totals of these batches are not the sums of their attempts.

    Raises:
        LedgerError: there are such batches.
    """
    if wrong_batches:
        raise LedgerError(
            f"the ledger's totals of {', '.join(wrong_batches)} are not the sums of its attempts",
            hint="Something other than Callsheet has written to the ledger. Go back to a backup of it.",
        )
