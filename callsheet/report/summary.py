"""How a batch stands: after a run, with the exit code, and from the ledger alone (`status`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from callsheet.errors import SERVICE_CODES, LedgerError
from callsheet.ledger import approvals, leases, marks, writing
from callsheet.ledger.approvals import Approval, Setting
from callsheet.ledger.ledger import Ledger
from callsheet.plain_text import counted
from callsheet.records import OtherRun, Record, State, dollars
from callsheet.report.details import Details, ModelLine


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
        each = f", {dollars(self.cost_per_kept)} USD a kept file" if self.cost_per_kept is not None else ""
        of = counted(decided + self.to_review, "file")
        return f"{decided:,} of {of}: {self.kept:,} kept, {self.rejected:,} rejected{each}"

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
    approvals: tuple[Approval, ...] = ()
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
        names = ("stored", "failed", "in_doubt", "lost", "pending")
        counts = ((getattr(self, name), name.replace("_", " ")) for name in names)
        return ", ".join(f"{count:,} {name}" for count, name in counts if count) or "nothing bought"

    def estimated(self) -> str:
        """For how many jobs the cost is not the service's word; empty where it is for all."""
        jobs = counted(self.estimated_costs, "job")
        what = f"the cost of {jobs} is not the service's word: computed, or as quoted"
        return what if self.estimated_costs else ""

    def line(self) -> str:
        """The summary in one line."""
        rejected = f"; {counted(self.rejected_rows, 'row')} rejected" if self.rejected_rows else ""
        stopped = "stopped: " if self.stop_reason else ""
        stop = f"; {stopped}{self.stop_message}" if self.stop_message else ""
        spent = f"{dollars(self.spent)} {self.currency} spent"
        spent += f"; {self.estimated()}" if self.estimated_costs else ""
        others = "".join(f"; another run is at work: {other.line()}" for other in self.other_runs)
        return f"{counted(self.jobs, 'job')}: {self.counts()}; {spent}{rejected}{stop}{others}"

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
        for other in self.other_runs:
            where = f"{other.host}, pid {other.pid}"
            yield f"Another run is at work ({where}): it finishes its jobs; wait for it, or run again later."
        if self.outcome == "stopped":
            yield f"{run} goes on from here."
        elif self.details.all_chosen_stored is not None and self.not_bought:
            yield f"{run} buys the other jobs."
        elif self.pending and not self.other_runs:
            yield from mending(State.PENDING, config=config, deployments=deployments)
        if any(problem.state is State.PENDING for problem in self.details.problems):
            yield f"callsheet resolve {config} lists videos that stay pending; --give-up settles one."
        if self.failed:
            codes = {each.code for each in self.details.problems if each.state is State.FAILED}
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
    how = "with the override" if "run" in deployments else "--set"
    command = f"{_command('run', config, deployments)} {how} retry_failed="
    return [f"{command}{kind} buys again what was no fault of the prompt." for kind in sorted(kinds)]


@dataclass(frozen=True, slots=True)
class Status(Reviewed):
    """A batch with the names that `status --json` prints: jobs by state, and money in US dollars.

    `other_runs` are the runs of the batch that are at work, `approvals` what persons were asked about it,
    `last_run` is when a run last began, `changes` what persons have changed since then for the runs at work.
    The counts of the review are those of `Summary`.
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
    in_doubt_exposure: Decimal
    currency: str
    other_runs: tuple[OtherRun, ...]
    approvals: tuple[Approval, ...] = ()
    kept: int = 0
    rejected: int = 0
    to_review: int = 0
    cost_per_kept: Decimal | None = None
    last_run: datetime | None = None
    changes: tuple[Setting, ...] = ()

    def counts(self) -> str:
        """The number of jobs in each state: `7 stored, 1 failed`; empty where there is none."""
        counts = ((self[state.value], state.value.replace("_", " ")) for state in State)
        return ", ".join(f"{count:,} {name}" for count, name in counts if count)

    def next_steps(self, config: str) -> Iterator[str]:
        """What a person can do next, a sentence each; `config` as it is typed in a command."""
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
    """How far a batch is reviewed, with the names that `review --json` prints (see `Summary`)."""

    batch: str
    kept: int
    rejected: int
    to_review: int
    cost_per_kept: Decimal | None


async def read_review(ledger: Ledger) -> ReviewResult:
    """How far the ledger's batch is reviewed. Raises LedgerError where the ledger cannot be read."""
    counts, totals = await ledger.read(
        lambda connection, batch: (
            marks.counts(connection, batch),
            writing.of_batch(connection, batch),
        )
    )
    return ReviewResult(ledger.batch, *counts, counts.cost_per_kept(totals.spent))


async def read_status(ledger: Ledger) -> Status:
    """The status of the ledger's batch.

    Raises:
        LedgerError: the ledger cannot be read, or its running totals are wrong.
    """
    wrong, totals, others, asked, review, last_run, changed = await ledger.read(
        lambda connection, batch: (
            writing.differences(connection, batch),
            writing.of_batch(connection, batch),
            leases.others(connection, batch, ledger.run_id),
            approvals.of_batch(connection, batch),
            marks.counts(connection, batch),
            leases.last_run(connection, batch),
            approvals.since(connection, batch, 0),
        )
    )
    check_totals(wrong)
    counts: dict[str, Any] = {state.value: totals.states.get(state, 0) for state in State}
    return Status(
        batch=ledger.batch,
        **counts,
        spent=totals.spent,
        in_doubt_exposure=totals.in_doubt_exposure,
        currency="USD",
        other_runs=tuple(others),
        approvals=asked,
        **review._asdict(),
        cost_per_kept=review.cost_per_kept(totals.spent),
        last_run=last_run,
        changes=tuple(
            each for each in changed if last_run and each.changed_at >= last_run and not each.run_id
        ),
    )


def check_totals(wrong: list[str]) -> None:
    """Refuses a ledger in which the running totals of these batches are not the sums of their attempts.

    Raises:
        LedgerError: there are such batches.
    """
    if wrong:
        raise LedgerError(
            f"the ledger's totals of {', '.join(wrong)} are not the sums of its attempts",
            hint="Something other than Callsheet has written to the ledger. Go back to a backup of it.",
        )
