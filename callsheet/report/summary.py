"""How a batch stands: after a run, with the exit code, and from the ledger alone (`status`).

The jobs that count are those of the plan, and all others of the batch that have cost money or may have: a
batch file may have some rows of a batch only. The parts that are for people are made in `report.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.config.settings import BatchSettings
from callsheet.errors import SERVICE_CODES, Interrupted, LedgerError
from callsheet.ledger import changes, leases, marks, queries, sums, words
from callsheet.ledger.changes import PAUSED, Setting
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import Counts
from callsheet.ledger.queries import Policy
from callsheet.ledger.words import Word
from callsheet.plain_text import and_more, counted
from callsheet.pricing.plan import Plan, ToBuyAgain, is_current, to_buy_again
from callsheet.records import MAY_COST, OtherRun, Record, State, dollars
from callsheet.report import shares
from callsheet.report.plots import Figures
from callsheet.report.shares import MODEL, Share, Shares

_OF_JOB = ("job_key", "state", "quoted", "current")
ENDED = (State.STORED, State.FAILED, State.LOST, State.IN_DOUBT)
"""The states in which a job needs nothing more from a run."""

OPEN = (State.SUBMITTING, State.PENDING, State.GENERATED)
"""The states in which a job is sent, and a run has something to do with it."""


async def other_jobs(ledger: Ledger, plan: Plan | None) -> pl.DataFrame:
    """`job_key`, `state` and `quoted` of each job that the ledger knows and the plan does not have; without a
    plan, of each of which the batch file no longer has the row.
    """
    jobs = await ledger.read(queries.jobs, _OF_JOB)
    if plan is None:
        return jobs.filter(~is_current(None))
    return jobs.join(plan.table, left_on="job_key", right_on="key", how="anti")


async def left_to_buy(ledger: Ledger, plan: Plan, policy: Policy, chosen: pl.Series | None) -> int:
    """How many jobs the run of an open ledger would still have to send.

    `policy` is what the run does with jobs that were tried before. `chosen` says for every job of the plan
    whether the run was to buy it; None: all of them.
    """
    run_id = ledger.run_id

    def read(connection: sa.Connection, batch: str) -> pl.DataFrame:
        return queries.jobs(connection, batch, ["job_key", "state", "run_id"], policy=policy)

    ledger_jobs = await ledger.read(read)
    # What this run has sent, it does not send again, whatever its policy says.
    is_left = (pl.col("state") == State.PLANNED) | (pl.col("to_buy") & pl.col("run_id").ne_missing(run_id))
    jobs = plan.table if chosen is None else plan.table.filter(chosen)
    return jobs.join(ledger_jobs.filter(~is_left), left_on="key", right_on="job_key", how="anti").height


def counted_states(states: Mapping[State, int], extra_jobs: pl.DataFrame) -> Counter[State]:
    """The jobs that count by state: all jobs of the batch, but those of `other_jobs` that cost nothing."""
    counted = Counter(states)
    counted.subtract(map(State, extra_jobs.filter(~pl.col("state").is_in(MAY_COST))["state"]))
    return +counted


def is_complete(states: Mapping[State, int], jobs: int, plan: Plan | None) -> bool:
    """Whether all jobs that count are stored; a plan of which every row is rejected is not complete."""
    return states.get(State.STORED, 0) >= jobs and not (plan and plan.rejected_rows and not plan.jobs)


PARTICULARS = r"req-[\w-]+|\d[\d:.TZ+-]*"
"""Ids, times and numbers in a reason: they differ from job to job, and do not make another reason."""


@dataclass(frozen=True, slots=True)
class ModelLine:
    """The jobs of one model; `states` has those that were submitted.

    `quoted` is the price of all of them, in dollars; jobs without a price count as free. `spent` is what they
    have cost so far.
    """

    model: str
    jobs: int
    states: Counter[State]
    quoted: Decimal
    spent: Decimal
    review: Counts

    @property
    def cost_per_kept(self) -> Decimal | None:
        """What a kept file of the model costs, in dollars; None without one."""
        return self.review.cost_per_kept(self.spent)

    def as_json(self) -> dict[str, Any]:
        """The JSON object in the `models` of `run --json`; money is a string."""
        cost_per_kept = self.cost_per_kept
        return {
            "model": self.model,
            "jobs": self.jobs,
            "stored": self.states[State.STORED],
            "quoted": dollars(self.quoted),
            "spent": dollars(self.spent),
            **self.review._asdict(),
            "cost_per_kept": None if cost_per_kept is None else dollars(cost_per_kept),
        }

    @property
    def open(self) -> int:
        """Jobs that are not bought, or not stored yet."""
        return self.jobs - sum(self.states[state] for state in ENDED)


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

    def line(self) -> str:
        """The problem in one line: `3 jobs failed (row a, row b, row c): ...`."""
        state = self.state.replace("_", " ")
        if self.jobs == 1:
            return f"{self.rows[0]} {state}: {self.reason}"
        return f"{self.jobs} jobs {state} ({and_more(self.rows, self.jobs)}): {self.reason}"


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
        surcharge: the jobs that cost more than quoted; empty where there are none.
        other_problems: the number of jobs with other reasons than those of `problems`.
        kept: bought jobs of rows that are rejected now, because the catalogue no longer offers them.
        others: how many of the jobs are of rows that the batch file does not have, or has changed.
        dearest: row, model and cost of the jobs that cost most, the first most.
        contact_sheet: where the page is; None where there is none.
        figures: what the plots show; None where nothing was submitted.
        all_chosen_stored: whether all jobs are stored that the run was for; None where it was for all jobs.
    """

    stop_message: str | None = None
    stop_hint: str = ""
    rows: int | None = None
    rejects: str = ""
    rejected: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    other_problems: int = 0
    surcharge: str = ""
    kept: int = 0
    others: int = 0
    models: tuple[ModelLine, ...] = ()
    dearest: tuple[tuple[str, str, Decimal], ...] = ()
    contact_sheet: str | None = None
    figures: Figures | None = field(default=None, repr=False)
    all_chosen_stored: bool | None = None


def _counts(record: Record, *names: str) -> str:
    """The number of jobs in each of these states that has any: `7 stored, 1 failed`."""
    counts = ((record[name], name.replace("_", " ")) for name in names)
    return ", ".join(f"{count:,} {name}" for count, name in counts if count)


class Reviewed(Record):
    """A record with the counts of the review."""

    __slots__ = ()
    kept: int
    rejected: int
    to_review: int
    cost_per_kept: Decimal | None

    def reviewed(self) -> str:
        """How far the batch is reviewed, in words; empty where nothing is decided."""
        decided = self.kept + self.rejected
        if not decided:
            return ""
        cost = f", {dollars(self.cost_per_kept)} USD a kept file" if self.cost_per_kept is not None else ""
        files = counted(decided + self.to_review, "file")
        return f"{decided:,} of {files}: {self.kept:,} kept, {self.rejected:,} rejected{cost}"

    def review_steps(self, config: str) -> Iterator[str]:
        """What a person can do next about the stored files, a sentence each."""
        if self.to_review:
            yield f"callsheet review {config} shows every job on one page, to keep or reject each."
        elif self.kept:
            yield f"callsheet export {config} --to FOLDER --as imagefolder --kept hands on what is kept."


_COLLECT = ("collect", "fetches the pending media, and buys nothing.")
_MENDS = {  # the command, and what it does
    State.IN_DOUBT: ("resolve", "shows the jobs in doubt with the evidence, and settles them."),
    State.LOST: ("show", "ROW tells what was tried; with another id its row is bought again."),
    State.PENDING: _COLLECT,
    State.GENERATED: _COLLECT,
    State.FAILED: ("failed", "--csv prints the failed rows, to correct and run again."),
}
_NO_DEPLOYMENTS: Mapping[str, str] = MappingProxyType({})
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
    spent over the files kept, None without one. Money is in dollars.
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
    def models(self) -> tuple[ModelLine, ...]:
        """The jobs and the stored files by model."""
        return self.details.models

    @property
    def stop_message(self) -> str | None:
        """What stopped the buying, or the collecting of what is bought, in words."""
        return self.details.stop_message

    def counts(self) -> str:
        """The number of jobs in each state: `7 stored, 1 failed`."""
        return _counts(self, "stored", "failed", "in_doubt", "lost", "pending") or "nothing bought"

    def estimated(self) -> str:
        """For how many jobs the cost is not the service's word; empty where it is for all."""
        jobs = counted(self.estimated_costs, "job")
        text = f"the cost of {jobs} is not the service's word: computed, or as quoted"
        return text if self.estimated_costs else ""

    def stopped(self) -> list[tuple[str, str]]:
        """How many jobs were not bought and why, or what went wrong otherwise, and what to do about it."""
        left = self.not_bought
        count = f"{left:,} of {counted(self.jobs, 'job')}" if left else ""
        name = "Not bought" if left else "Stopped" if self.stop_reason else "Problem"
        reason = ": ".join(filter(None, (count, self.stop_message)))
        return [fact for fact in ((name, reason), ("", self.details.stop_hint)) if fact[1]]

    def facts(self) -> list[tuple[str, str]]:
        """What a person needs to know besides: names and texts."""
        details, currency, rejected = self.details, self.currency, self.rejected_rows
        rejects = f"{rejected:,} rejected: see {details.rejects}" if rejected else "none rejected"
        outdated = f"{details.others:,} of them {'is' if details.others == 1 else 'are'} of rows that"
        sent = f"{counted(self.submissions, 'submission')}, {self.rate_limited:,} rate limited"
        in_doubt = f"at most {dollars(self.in_doubt_exposure)} {currency} more"
        facts = [
            ("Rows", "" if details.rows is None else f"{details.rows:,} read, {rejects}"),
            ("Jobs", f"{self.jobs:,}: {self.counts()}"),
            ("", f"{outdated} this batch file does not have, or has changed" if details.others else ""),
            ("Quoted", f"{dollars(self.quoted)} {currency}"),
            ("Spent", f"{dollars(self.spent)} {currency}"),
            ("Reviewed", self.reviewed()),
            *(("Other run", run.line()) for run in self.other_runs),
            ("Estimated", self.estimated()),
            ("Surcharge", details.surcharge),
            ("In doubt", in_doubt if self.in_doubt_exposure else ""),
            ("This run", f"{sent}, {self.seconds:.1f} s" if self.submissions or self.seconds else ""),
        ]
        return [(name, fact) for name, fact in facts if fact]

    def by_model(self) -> list[dict[str, str]]:
        """A line for each model, the dearest first, as text; a state that no job is in has no column."""
        lines = sorted(self.models, key=lambda line: -line.quoted)
        states = [state for state in ENDED if any(line.states[state] for line in lines)]
        is_reviewed = any(line.review.kept or line.review.rejected for line in lines)
        rows = []
        for line in lines:
            counts = {"jobs": line.jobs} | {state.replace("_", " "): line.states[state] for state in states}
            if any(model_line.open for model_line in lines):
                counts["open"] = line.open
            money = {"quoted USD": dollars(line.quoted), "spent USD": dollars(line.spent)}
            if is_reviewed:
                kept = {"kept": f"{line.review.kept:,}", "rejected": f"{line.review.rejected:,}"}
                cost_per_kept = "" if line.cost_per_kept is None else dollars(line.cost_per_kept)
                money = {"spent USD": money["spent USD"]} | kept | {"USD a kept": cost_per_kept}
            rows.append({"model": line.model} | {name: f"{n:,}" for name, n in counts.items()} | money)
        return rows

    def line(self) -> str:
        """The summary in one line."""
        rejected = f"; {counted(self.rejected_rows, 'row')} rejected" if self.rejected_rows else ""
        stopped = "stopped: " if self.stop_reason else ""
        stop = f"; {stopped}{self.stop_message}" if self.stop_message else ""
        spent = f"{dollars(self.spent)} {self.currency} spent"
        spent += f"; {self.estimated()}" if self.estimated_costs else ""
        runs = "".join(f"; another run is at work: {run.line()}" for run in self.other_runs)
        return f"{counted(self.jobs, 'job')}: {self.counts()}; {spent}{rejected}{stop}{runs}"

    @property
    def not_bought(self) -> int:
        """Jobs that were never sent, or not accepted."""
        return self.jobs - self.stored - self.failed - self.in_doubt - self.lost - self.pending

    def next_steps(
        self, config: str = "CONFIG", deployments: Mapping[str, str] = _NO_DEPLOYMENTS
    ) -> Iterator[str]:
        """What a person can do next, a sentence each; `config` as it is typed in a command.

        `deployments` are the names of those whose runs do what a command does, by the command: `resolve`.
        """
        run = _command("run", config, deployments)
        if self.rejected_rows:
            bought = self.details.others or self.details.kept
            changed = "a row that was bought already is bought again if what it asks for changes."
            twice = changed if bought else "nothing is bought twice."
            yield f"Correct the rejected rows and run the batch again; {twice}"
        for state in (State.IN_DOUBT, State.LOST):
            if self[state.value]:
                yield from mending(state, config=config, deployments=deployments)
        for other_run in self.other_runs:
            place = f"{other_run.host}, pid {other_run.pid}"
            yield f"Another run is at work ({place}): it finishes its jobs; wait for it, or run again later."
        if self.outcome == "stopped":
            by_itself = self.stop_reason in (None, Interrupted.reason)  # otherwise it would stop there again
            condition = "" if by_itself else ", once what stopped it is dealt with"
            yield f"{run} goes on from here{condition}."
        elif self.details.all_chosen_stored is not None and self.not_bought:
            yield f"{run} buys the other jobs."
        elif self.pending and not self.other_runs:
            yield from mending(State.PENDING, config=config, deployments=deployments)
        if any(problem.state is State.PENDING for problem in self.details.problems):
            yield f"callsheet resolve {config} lists videos that stay pending; --give-up settles one."
        if self.failed:
            codes = {problem.code for problem in self.details.problems if problem.state is State.FAILED}
            yield from mending(State.FAILED, codes, config, deployments)
        yield from self.review_steps(config)

    def keys(self) -> Iterable[str]:
        """The names of the fields that `--json` prints."""
        return [*(name for name in Record.keys(self) if name != "details"), "models"]


def _command(name: str, config: str, deployments: Mapping[str, str]) -> str:
    """A command, or the deployment whose runs do the same, as the beginning of a sentence."""
    return (
        f"A run of the deployment {deployments[name]}"
        if name in deployments
        else f"callsheet {name} {config}"
    )


def mending(
    state: State,
    codes: Iterable[str] = (),
    config: str = "CONFIG",
    deployments: Mapping[str, str] = _NO_DEPLOYMENTS,
) -> list[str]:
    """What to do about jobs in a state, a sentence each that begins with the command; empty where nothing is.

    `codes` are those of the jobs, where they have failed; the others are as in `Summary.next_steps`.
    """
    first = []
    if state in _MENDS:
        name, does = _MENDS[state]
        first = [f"{_command(name, config, deployments)} {does}"]
    return [*first, *retries(codes, config, deployments)]


def retries(codes: Iterable[str], config: str, deployments: Mapping[str, str] = _NO_DEPLOYMENTS) -> list[str]:
    """How to buy failed jobs again, by their codes, a sentence each; nothing for refused prompts."""
    kinds = set()
    for code in codes:
        if code == "server_error" or code.startswith("http_5"):
            kinds.add("server_error")
        elif code not in SERVICE_CODES:
            kinds.add("gateway")
    option = "with the override" if "run" in deployments else "--set"
    command = f"{_command('run', config, deployments)} {option} retry_failed="
    return [f"{command}{kind} buys again what was no fault of the prompt." for kind in sorted(kinds)]


@dataclass(frozen=True, slots=True)
class Pause(Record):
    """A person holds the buying of the runs of a batch that are at work."""

    who: str
    when: datetime

    def line(self) -> str:
        """Who has paused it, and since when, in one line."""
        return f"by {self.who}, since {self.when:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class Status(Reviewed):
    """A batch with the names that `status --json` prints: jobs by state, and money in US dollars.

    `other_runs` are the runs of the batch that are at work, `approvals` what persons were asked about it,
    `paused` says who holds their buying, `last_run` is when a run last began, and `changes` what persons have
    changed since then for the runs at work.
    The counts of the review are those of `Summary`, `by_model` and `by_setting` those of `ReviewResult`.
    `to_buy_again` is what `quote --again` would buy for rejected rows.
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

    def counts(self) -> str:
        """The number of jobs in each state: `7 stored, 1 failed`; empty where there is none."""
        return _counts(self, *State)

    def next_steps(self, config: str) -> Iterator[str]:
        """What a person can do next, a sentence each; `config` as it is typed in a command."""
        if self.paused:
            yield f"callsheet resume {config} lets the runs at work buy on."
        if (unsent := self.planned + self.submitting) and not self.other_runs:
            yield f"callsheet run {config} goes on: {counted(unsent, 'job')} not bought yet."
        for state in (State.IN_DOUBT, State.LOST):
            if self[state.value]:
                yield from mending(state, config=config)
        if (self.pending or self.generated) and not self.other_runs:
            yield from mending(State.PENDING, config=config)
        if self.failed:
            yield f"callsheet failed {config} lists the failed jobs by reason."
        yield from self.review_steps(config)


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


async def read_review(ledger: Ledger, *, in_parts: bool = True) -> ReviewResult:
    """How far the ledger's batch is reviewed. Raises LedgerError where the ledger cannot be read.

    `in_parts`: also by model and by setting, which takes longer.
    """
    counts, totals, shares_by_name = await ledger.read(
        lambda connection, batch: (
            marks.counts(connection, batch),
            sums.of_batch(connection, batch),
            shares.shares(connection, batch) if in_parts else {},
        )
    )
    cost_per_kept = counts.cost_per_kept(totals.spent)
    return ReviewResult(ledger.batch, *counts, cost_per_kept, shares_by_name.pop(MODEL, ()), shares_by_name)


async def read_status(ledger: Ledger, settings: BatchSettings) -> Status:
    """The status of the ledger's batch, which has these settings.

    Raises:
        LedgerError: the ledger cannot be read, or its running totals are wrong.
    """
    wrong_batches, totals, other_runs, asked, review, shares_by_name, last_run, changed = await ledger.read(
        lambda connection, batch: (
            sums.differences(connection, batch),
            sums.of_batch(connection, batch),
            leases.others(connection, batch, ledger.run_id),
            words.of_batch(connection, batch),
            marks.counts(connection, batch),
            shares.shares(connection, batch),
            leases.last_run(connection, batch),
            changes.since(connection, batch, 0),
        )
    )
    check_totals(wrong_batches)
    counts: dict[str, Any] = {state.value: totals.states.get(state, 0) for state in State}
    return Status(
        batch=ledger.batch,
        **counts,
        spent=totals.spent,
        in_flight_exposure=totals.in_flight_exposure,
        in_doubt_exposure=totals.in_doubt_exposure,
        currency="USD",
        other_runs=tuple(other_runs),
        approvals=asked,
        **review._asdict(),
        cost_per_kept=review.cost_per_kept(totals.spent),
        by_model=shares_by_name.pop(MODEL, ()),
        by_setting=shares_by_name,
        paused=_paused(changed, other_runs),
        last_run=last_run,
        changes=tuple(
            setting
            for setting in changed
            if last_run and setting.changed_at >= last_run and not setting.run_id
        ),
        to_buy_again=await to_buy_again(ledger, settings) if review.rejected else ToBuyAgain(),
    )


def _paused(changed: Iterable[Setting], at_work: Iterable[OtherRun]) -> Pause | None:
    """Who holds the buying of the runs at work; those that began later buy, and None of these is held."""
    pauses = [setting for setting in changed if setting.setting == PAUSED]
    if not pauses or not pauses[-1].value or all(run.started_at > pauses[-1].changed_at for run in at_work):
        return None
    return Pause(pauses[-1].changed_by, pauses[-1].changed_at)


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
