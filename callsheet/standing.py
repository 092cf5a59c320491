"""How a batch stands: its plan and its ledger as one table, a row for each job, as the next run finds it.

Whatever is counted or listed of a batch is a projection of it: what a quote has to buy, the status, the
summary, the files of the report, the tables by model, the page with the cards, what is to be bought again.
The whole batch's money has running totals in the ledger (`sums.of_batch`): a quote, a status and a summary
read them in the transaction of the standing. What must be quick beside a large batch has one query of its
own, and says so there: how far a run is, the head of the page and the list of all batches (`sums.of_batch`,
too, which knows no plan), a mark (`marks.py`), a row's story (`queries.stories`), a part of the page
(`cards.py`), what a time has cost or brought (`costs.py`, `spending.py`), and what is in doubt
(`queries.doubts`: a few attempts that an index finds, those with newer attempts too).

Nothing here writes, and nothing here makes prices, pages or words: a `price` is the plan's or the ledger's.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.ledger import marks, origins, queries, sums
from callsheet.ledger.marks import Counts, MediaDecision
from callsheet.ledger.origins import SOURCE
from callsheet.ledger.policy import ONLY_NEW, Policy
from callsheet.ledger.tables import attempts as ledger_attempts
from callsheet.records import ALREADY_BOUGHT, COST_UNKNOWN, ENDED, MAY_COST, Record, State, as_json

_OF_ATTEMPT = (
    *("job_key", "attempt", "superseded", "row_id", "sample", "file_number", "model", "model_delivered"),
    *("state", "quoted", "cost", "current", "submitted_at"),
)
_OF_FILE = (*marks.FILE, "row_id", "sample", "file_number", "model", "model_delivered")

ASKED_FOR = ("type", "request_key", "request", "carried")
"""More columns of the attempts: those by which a plan finds what was bought."""

_MADE_BY = pl.coalesce("model_delivered", "model").alias("made_by")

SUBMITTED = pl.col("submitted_at").is_not_null() & (pl.col("state") != State.PLANNED)
"""Attempts that were submitted: in the table what `services.IS_SUBMITTED` is in SQL."""

MODEL = "model"
SETTINGS = ("aspect_ratio", "resolution", "duration", "sound", "output_format")
"""What a request may set besides the model, the prompt and the images."""


@dataclass(frozen=True)
class Standing:
    """A batch at one moment. Money is decimal, in dollars.

    Attributes:
        jobs: a row for each job: those of the plan, with all of its columns, in its order; then those that
            only the ledger has, in order of submission. Besides:
            `position` in the plan, null where only the ledger has it;
            `state`, `submitted_at` of the newest attempt; `planned` without one;
            `file_number` in its row, null before it is first reserved;
            `made_by`: the model that was delivered, by the answer; otherwise the one that was ordered;
            `price`: the plan's, or what was quoted;
            `quoted`: at what it was bought, or may have been; the price of any other;
            `cost` of all its attempts;
            `files`, `kept`, `rejected`: how many of its files are stored, and what was decided;
            `current`: the batch file asks for it;
            `counts`: it is one of the batch's jobs: the batch file asks for it, it is bought or may be, or
            one of its attempts has cost money, whatever became of it (`sums.of_batch` counts the same);
            `to_buy`: a run buys it;
            `already_bought`: it is bought, or on the wire, and no run sends it;
            `may_be_bought`: a run has to look at it when it buys: to buy, or not decided yet.
        attempts: a row for each attempt that the ledger has, in order of submission; with `made_by`, too.
        files: a row for each stored file, with `made_by` and the newest `decision` about it.
        has_plan: whether there is a plan; otherwise the ledger alone says what the batch is.
        credits: the money that came back.
    """

    jobs: pl.DataFrame
    attempts: pl.DataFrame
    files: pl.DataFrame
    has_plan: bool
    credits: Decimal = Decimal(0)

    @property
    def planned(self) -> pl.DataFrame:
        """The jobs of the plan, in its order."""
        return self.jobs.filter(pl.col("position").is_not_null())

    @property
    def counting(self) -> pl.DataFrame:
        """The batch's jobs."""
        return self.jobs.filter("counts")

    @property
    def newest(self) -> pl.DataFrame:
        """The newest attempt at each job that the ledger has."""
        return self.attempts.filter(~pl.col("superseded"))

    @property
    def failed(self) -> pl.DataFrame:
        """Those of the batch's jobs that have failed, in order of submission."""
        return self.counting.filter(state=State.FAILED).sort("submitted_at", "key")

    @cached_property
    def submitted(self) -> pl.DataFrame:
        """The attempts at the batch's jobs that were submitted, each with its row's `line`, if known."""
        lines = self.counting.select("line", job_key="key")
        return self.attempts.filter(SUBMITTED).join(lines, on="job_key", maintain_order="left")

    @cached_property
    def states(self) -> Counter[State]:
        """How many of the batch's jobs are in each state."""
        return Counter({State(state): count for state, count in self.counting["state"].value_counts().rows()})

    @property
    def quoted(self) -> Decimal:
        """What all of the batch's jobs were quoted at."""
        return Decimal(self.counting["quoted"].sum() or 0)

    @property
    def spent(self) -> Decimal:
        """What the batch has cost so far."""
        return Decimal(self.attempts["cost"].sum() or 0)

    @property
    def review(self) -> Counts:
        """The stored files by what was decided about them."""
        decisions = self.files["decision"].value_counts()
        counts = Counter(dict(decisions.iter_rows()))
        return Counts(*(counts[decision] for decision in (*MediaDecision, None)))

    @property
    def outdated(self) -> dict[str, str]:
        """By row and number, the flag of each file that is made from an old one (`origins.flags`), and is not
        rejected. The files have `flags`.
        """
        is_old = pl.col("flags").list.eval(pl.element().str.starts_with(SOURCE)).list.any()
        files = self.files.filter(is_old, pl.col("decision").ne_missing(MediaDecision.REJECTED))
        return {
            f"{row_id}/{number}": flags[-1]
            for row_id, number, flags in files.select("row_id", "file_number", "flags").iter_rows()
        }

    @property
    def cost_per_kept(self) -> Decimal | None:
        """What a kept file costs, less what came back, in dollars; None without one."""
        return self.review.cost_per_kept(self.spent - self.credits)

    @property
    def rejected_rows(self) -> pl.Series:
        """The id of each row that has stored files, all of them rejected, whatever it was bought for."""
        is_rejected = pl.col("decision").eq_missing(MediaDecision.REJECTED).all()
        return self.files.group_by("row_id").agg(is_rejected).filter("decision")["row_id"]

    def left_to_buy(self, run_id: str, chosen: pl.Series | None) -> int:
        """How many jobs of the plan a run leaves that it has not tried, and that the next one would buy.

        The attempts have their `run_id`. `chosen` says for every job of the plan whether the run was to buy
        it; None: all of them.
        """
        jobs = self.planned if chosen is None else self.planned.filter(chosen)
        own = self.newest.filter(pl.col("run_id") == run_id)["job_key"].implode()
        is_planned = pl.col("state") == State.PLANNED
        return jobs.filter(is_planned | (pl.col("to_buy") & ~pl.col("key").is_in(own))).height

    @cached_property
    def shares(self) -> Shares:
        """What the batch has of each model, and of each value of each setting that is compared.

        A model is the one that was delivered, which may be another than was ordered. A setting is compared
        where a row has asked for several of its values, as `input.matrix` does, and where it is not one value
        for each model: its table would be that of the models. It is what was sent that counts: the config and
        the batch file may have changed since. Where a row has several attempts, these have their `request`.
        """
        sent, compared = self.submitted, []
        if sent["row_id"].is_duplicated().any():
            sent = _with_settings(sent)
            compared = [name for name in SETTINGS if _is_compared(name, sent.drop_nulls(name))]
        return {name: self._shares(name, sent) for name in (MODEL, *compared)}

    @property
    def compared(self) -> Shares:
        """The shares of which there are several, models and values of a setting; or another model came."""
        return {
            name: shares
            for name, shares in self.shares.items()
            if len(shares) > 1 or any(share.ordered_as for share in shares)
        }

    def _shares(self, name: str, sent: pl.DataFrame) -> tuple[Share, ...]:
        """A share for each value of a setting; of a model also with the jobs that were not sent."""
        of_attempt = ["job_key", "attempt"]
        column = "made_by" if name == MODEL else name
        newest = sent.filter(~pl.col("superseded")).select(column, "state", key="job_key")
        jobs, files = self.counting, self.files
        if name != MODEL:
            jobs = jobs.drop(name, strict=False).join(newest.select(name, "key"), on="key")
            files = files.join(sent.select(*of_attempt, name), on=of_attempt)
        of_jobs = jobs.group_by(column).agg(pl.len(), pl.col("quoted").sum())
        costs = dict(sent.group_by(column).agg(pl.col("cost").sum()).iter_rows())
        states, decisions = _counted(newest, column, "state"), _counted(files, column, "decision")
        ordered: defaultdict[Any, Counter[str]] = defaultdict(Counter)
        if name == MODEL:
            ordered = _counted(jobs.filter(pl.col(MODEL) != pl.col(column)), column, MODEL)
        shares = [
            Share(
                setting=name,
                value=_typed(name, value),
                jobs=jobs_of_value,
                states=Counter({State(state): count for state, count in states[value].items()}),
                quoted=price,
                spent=costs.get(value, Decimal(0)),
                review=Counts(*(decisions[value][decision] for decision in (*MediaDecision, None))),
                ordered_as=dict(sorted(ordered[value].items())),
            )
            for value, jobs_of_value, price in of_jobs.drop_nulls(column).iter_rows()
        ]
        return tuple(sorted(shares, key=lambda share: _in_order(share.value)))


@dataclass(frozen=True, slots=True)
class Share(Record):
    """What a batch has of a model, or of a value of a setting, as `models` and `by_setting` have it in JSON.

    `jobs` are the batch's; `states` has those that were submitted. `quoted` is the price of all of them, in
    dollars; jobs without a price count as free. `spent` is what they have cost so far. `ordered_as` has of a
    model how many of the jobs were ordered as another one, by that.
    """

    setting: str
    value: str | int | bool
    jobs: int
    states: Counter[State]
    quoted: Decimal
    spent: Decimal
    review: Counts
    ordered_as: Mapping[str, int] = field(default_factory=dict)

    @property
    def files(self) -> int:
        """How many are stored."""
        return sum(self.review)

    @property
    def open(self) -> int:
        """Jobs that have not ended: those to buy, too."""
        return self.jobs - sum(self.states[state] for state in ENDED)

    @property
    def cost_per_kept(self) -> Decimal | None:
        """What a kept file costs, in dollars; None without one. No credit counts: it is the whole batch's."""
        return self.review.cost_per_kept(self.spent)

    def as_json(self) -> dict[str, Any]:
        """The JSON object."""
        fields = {
            MODEL if self.setting == MODEL else "value": self.value,
            "jobs": self.jobs,
            "stored": self.states[State.STORED],
            "files": self.files,
            **self.review._asdict(),
            "quoted": self.quoted,
            "spent": self.spent,
            "cost_per_kept": self.cost_per_kept,
            **({"ordered_as": self.ordered_as} if self.ordered_as else {}),
        }
        return {name: as_json(value) for name, value in fields.items()}


Shares = dict[str, tuple[Share, ...]]
"""Of `model`, and of each setting that is compared, its values in order."""


def read_standing(
    connection: sa.Connection,
    batch: str,
    plan: pl.DataFrame | None = None,
    policy: Policy = ONLY_NEW,
    *,
    of_attempts: Collection[str] = (),
    of_files: Collection[str] = (),
) -> Standing:
    """Reads how a batch stands; for `Ledger.read`, which finds the ledger as the next run will.

    Args:
        plan: the jobs of its plan (`Plan.table`); None where there is none, or none yet.
        policy: what a run does with jobs that were tried before.
        of_attempts: more columns of the ledger's `attempts`.
        of_files: more columns of files, or of their attempts; with them come `stored_at`, by which they are
            in order, and what persons and checks have said: `note`, `decided_by`, `decided_at`, `flags` (a
            list of texts) and `score`. One of the flags is that of `origins.flags`.
    """
    of_attempt = dict.fromkeys((*_OF_ATTEMPT, *of_attempts))
    of_file = dict.fromkeys((*_OF_FILE, *of_files, *(["stored_at"] if of_files else [])))
    attempts, files = queries.attempts_and_files(connection, batch, of_attempt, of_file, policy)
    attempts, files = attempts.with_columns(_MADE_BY), files.with_columns(_MADE_BY)
    decisions = marks.decisions(connection, batch).drop("number")
    if not of_files:
        decisions = decisions.select(*marks.FILE, "decision")
    files = files.join(decisions, on=marks.FILE, how="left", maintain_order="left")
    if of_files:
        flags = pl.col("flags").str.json_decode(pl.List(pl.String))
        findings = marks.findings(connection, batch).select(*marks.FILE, flags, "score")
        files = files.join(findings, on=marks.FILE, how="left", maintain_order="left")
        files = with_source_flags(files, origins.flags(connection, ledger_attempts.c.batch == batch))
    jobs = _jobs(plan, attempts.filter(~pl.col("superseded")))
    jobs = _with_sums(jobs, attempts, files)
    jobs, came_back = _flagged(jobs, has_plan=plan is not None), sums.credits_of(connection, batch)
    return Standing(jobs, attempts, files, plan is not None, came_back)


def with_source_flags(files: pl.DataFrame, source_flags: pl.DataFrame) -> pl.DataFrame:
    """Files with `origins.flags` among their `flags`."""
    if source_flags.is_empty():
        return files
    files = files.join(source_flags, on=["job_key", "attempt"], how="left", maintain_order="left")
    flags = pl.col("flags")
    added = pl.concat_list(flags.fill_null(pl.lit([], pl.List(pl.String))), "flag")
    return files.with_columns(pl.when(pl.col("flag").is_null()).then(flags).otherwise(added)).drop("flag")


def _jobs(plan: pl.DataFrame | None, newest: pl.DataFrame) -> pl.DataFrame:
    """The jobs of a plan, then those that only the ledger has, each with its newest attempt."""
    facts = ("file_number", "state", "quoted", "current", "submitted_at", "made_by", "to_buy")
    in_ledger = newest.select("row_id", "sample", "model", *facts, key="job_key", price="quoted")
    if plan is None:
        return in_ledger.with_columns(line=pl.lit(None, pl.Int64), position=pl.lit(None, pl.UInt32))
    of_plan = plan.with_row_index("position").join(
        in_ledger.select("key", *facts), on="key", how="left", maintain_order="left"
    )
    others = in_ledger.join(plan.select("key"), on="key", how="anti", maintain_order="left")
    return pl.concat([of_plan, others], how="diagonal_relaxed") if others.height else of_plan


def _with_sums(jobs: pl.DataFrame, attempts: pl.DataFrame, files: pl.DataFrame) -> pl.DataFrame:
    """The jobs with what all of their attempts have cost, and the number of their files."""
    costs = attempts.group_by(key="job_key").agg(pl.col("cost").sum())
    decided = [pl.col("decision").eq_missing(decision).sum().alias(decision) for decision in MediaDecision]
    counts = files.group_by(key="job_key").agg(pl.len().alias("files"), *decided)
    for of_jobs in (costs, counts):
        jobs = jobs.join(of_jobs, on="key", how="left", maintain_order="left")
    return jobs.with_columns(pl.col("cost", "files", *MediaDecision).fill_null(0))


def _flagged(jobs: pl.DataFrame, *, has_plan: bool) -> pl.DataFrame:
    """The jobs with what follows for the next run."""
    is_planned, state = pl.col("position").is_not_null(), pl.col("state")
    is_offered = pl.col("request").is_not_null() if has_plan else pl.lit(True)
    jobs = jobs.with_columns(
        to_buy=pl.col("to_buy").fill_null(state.is_null()) & is_offered,
        already_bought=state.is_in(ALREADY_BOUGHT).fill_null(value=False),
        may_be_bought=(pl.col("to_buy") | state.is_in(COST_UNKNOWN)).fill_null(value=True) & is_offered,
        current=pl.coalesce("current", is_planned if has_plan else pl.lit(True)),
        state=state.fill_null(State.PLANNED),
        made_by=pl.coalesce("made_by", MODEL),
    )
    may_cost = pl.col("state").is_in(MAY_COST)
    return jobs.with_columns(
        quoted=pl.when(may_cost).then("quoted").otherwise("price"),
        counts=is_planned | pl.col("current") | may_cost | (pl.col("cost") > 0),
    )


def _counted(rows: pl.DataFrame, by: str, name: str) -> defaultdict[Any, Counter[Any]]:
    """How many rows have each value of a column, by each value of another one."""
    counts: defaultdict[Any, Counter[Any]] = defaultdict(Counter)
    for value, counted_value, count in rows.group_by(by, name).len().iter_rows():
        counts[value][counted_value] += count
    return counts


def _with_settings(attempts: pl.DataFrame) -> pl.DataFrame:
    """Attempts with what their requests say, by setting; null where they say nothing of it."""
    # Requests are canonical JSON: within a text every quote has a backslash before it.
    values = (pl.col("request").str.extract(rf'"{name}":"?([^",}}]+)').alias(name) for name in SETTINGS)
    return attempts.with_columns(values)


def _is_compared(name: str, sent: pl.DataFrame) -> bool:
    """Whether some row has asked for several values of a setting, and some model has several."""
    several = [(sent.group_by(of).agg(pl.col(name).n_unique())[name] > 1).any() for of in ("row_id", MODEL)]
    return all(several)


def _typed(name: str, value: str) -> str | int | bool:
    """A value of a setting, as its request has it."""
    value_of_json: str | int | bool = json.loads(value) if name in ("duration", "sound") else value
    return value_of_json


def _in_order(value: Any) -> list[Any]:
    """`720p` is before `1080p`: texts and numbers take turns."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(value))]
