"""Watching a run: the events that a person wants to see, and the one question that a run may ask.

The library calls the watcher in `WATCHER`. Unless another one is set there, events go to the log, and the
answer to the question is no. Nothing here depends on terminals or Prefect.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from callsheet.ledger.words import Place, Word
from callsheet.plain_text import counted, printable
from callsheet.pricing.facts import in_words, rejects_in_words
from callsheet.pricing.quote import Quote
from callsheet.records import Attempt, ModelType, RejectedFile, State, dollars
from callsheet.report.summary import Summary
from callsheet.standing import ENDED

if TYPE_CHECKING:
    from callsheet.report.pilot import PilotJob

logger = logging.getLogger("callsheet")
logger.setLevel(logging.INFO)  # Prefect shows the log of other libraries, but does not set their level


_REASONS = 20  # of rejected rows that are logged
_LONG = 2.0  # seconds of a wait that is worth saying
_ANSWERED = tuple(state for state in State if state not in (State.PLANNED, State.SUBMITTING))


@dataclass(frozen=True, slots=True)
class Pacing:
    """Submissions of one model type: those that count now, of the last minute or since the last reset; their
    limit, None while it is not known; and the seconds until the next may leave, where some are left.
    """

    in_window: int
    limit: int | None
    next_in: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch while a run is under way.

    Attributes:
        jobs: the jobs that count (`report/summary.py`), without those that the run is not for.
        states: how many of them are in each state.
        spent: what the whole batch has cost so far, in dollars.
        limit: `budget.limit`.
        videos: those that this run follows, or will follow once they are submitted.
        videos_ended: those of them whose end is known.
        pacing: by model type; a type of which nothing was submitted is absent.
        seconds_left: until every job is submitted, at the account's limits; None while they are not known.
        quoted: the price of the jobs that count, in dollars; None where there is no plan.
        paused: a person holds the buying.
        refused: the service's words, while it refuses every submission.
    """

    jobs: int
    states: Mapping[State, int]
    spent: Decimal
    limit: Decimal | None = None
    videos: int = 0
    videos_ended: int = 0
    pacing: Mapping[ModelType, Pacing] = field(default_factory=dict)
    seconds_left: float | None = None
    quoted: Decimal | None = None
    paused: bool = False
    refused: str = ""

    @property
    def done(self) -> int:
        """Jobs that need nothing more."""
        return self._count(*ENDED)

    def _count(self, *states: State) -> int:
        return sum(self.states.get(state, 0) for state in states)

    def steps(self) -> dict[str, tuple[int, int]]:
        """How many jobs each step has done, and of how many; in the order in which a job passes them."""
        to_store = self.jobs - self._count(State.FAILED, State.IN_DOUBT)
        poll = {"poll": (self.videos_ended, self.videos)} if self.videos else {}
        return {
            "submit": (self._count(*_ANSWERED), self.jobs),
            **poll,
            "download": (self._count(State.STORED, State.LOST), to_store),
        }

    def line(self) -> str:
        """The progress in one line: `12 of 36 done: 10 stored, 2 pending; 0.4000 USD spent`."""
        facts = (self.money(), *self.submissions(), self.time_left())
        return f"{self.done:,} of {self.jobs:,} done: {self.counts()}; {'; '.join(filter(None, facts))}"

    def counts(self) -> str:
        """How many jobs are in each state: `10 stored, 2 pending`."""
        counts = ((state.replace("_", " "), self._count(state)) for state in State)
        return ", ".join(f"{count:,} {state}" for state, count in counts if count) or "nothing yet"

    def money(self) -> str:
        """What was spent of the budget: `0.4000 of 5.0000 USD spent`."""
        of_limit = "" if self.limit is None else f" of {dollars(self.limit)}"
        return f"{dollars(self.spent)}{of_limit} USD spent"

    def submissions(self) -> list[str]:
        """Submissions against the limits, by type: `9 of 10 videos this minute, the next in 23 s`."""
        parts = []
        for model_type, pace in self.pacing.items():
            of_limit = f"{pace.in_window:,} of {counted(pace.limit, model_type)}" if pace.limit else ""
            wait = f", the next in {pace.next_in:.0f} s" if pace.next_in >= _LONG else ""
            parts.append(f"{of_limit or counted(pace.in_window, model_type)} this minute{wait}")
        return parts

    def time_left(self) -> str:
        """Until every job is submitted: `about 5 min left`; empty while that is not known."""
        if self.paused:
            return "the buying is paused"
        if self.refused:
            return f"the service refuses every submission: {self.refused}"
        return f"about {in_words(self.seconds_left)} left" if self.seconds_left else ""

    def as_json(self) -> dict[str, Any]:
        """The JSON object of `--progress jsonl`; money is a string."""
        return {
            "jobs": self.jobs,
            "done": self.done,
            "states": {state.value: self._count(state) for state in State},
            "spent": dollars(self.spent),
            "budget_limit": None if self.limit is None else dollars(self.limit),
            "steps": {name: {"done": done, "total": total} for name, (done, total) in self.steps().items()},
            "submissions": {model_type.value: asdict(pace) for model_type, pace in self.pacing.items()},
            "seconds_left": None if self.seconds_left is None else round(self.seconds_left),
        }


@dataclass(frozen=True, slots=True)
class Change:
    """A job has come into another state: `pending` (a video was accepted), `generated`, `stored`, `failed`,
    `in_doubt` or `lost`.

    `detail` is the id at the service, the place in storage, or the reason; `cost` is that of a job that is
    generated, in dollars, and None otherwise.
    """

    attempt: Attempt
    state: State
    detail: str
    cost: Decimal | None = None

    def as_json(self) -> dict[str, Any]:
        """The JSON object of `--progress jsonl`; money is a string."""
        return {
            "job_key": self.attempt.job_key,
            "row_id": self.attempt.row_id,
            "sample": self.attempt.sample,
            "attempt": self.attempt.number,
            "model": self.attempt.model,
            "state": self.state.value,
            "detail": self.detail,
            "cost": None if self.cost is None else dollars(self.cost),
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a person, with what it is about.

    Attributes:
        word: the question, and why it is asked.
        quote: what would be bought; None where that has no price yet.
        pilot: the jobs to look at, where it is about what comes after them.
        contact_sheet: where the page with all jobs is; None where there is none.
    """

    word: Word
    quote: Quote | None
    pilot: Sequence[PilotJob] = ()
    contact_sheet: str | None = None


class Watcher:
    """What a run calls; each method is one event. This one shows nothing, and has nobody to ask."""

    yes = Place.PARAMETER
    """Where somebody has said yes before the run began; of a call from Python that is `Place.PYTHON`."""

    def quoted(self, quote: Quote) -> None:
        """The batch is priced; nothing is bought yet."""

    def begun(self, left: Mapping[str, State]) -> None:
        """A flow run has opened the ledger. `left`: what it left in doubt or lost before it was suspended, by
        job key.
        """

    async def approves(self, asked: Asked) -> bool | None:
        """Whether to buy what a person must approve first; None where there is nobody to ask."""
        return None

    def sheet(self, url: str) -> None:
        """The contact sheet is there within seconds, and follows the run."""

    def progress(self, progress: Progress) -> None:
        """Called about twice a second while a run is under way."""

    def changed(self, change: Change) -> None:
        """A job has come into another state; called once it is in the ledger."""

    def rejected(self, file: RejectedFile) -> None:
        """A check has rejected a stored file; called once it is in the ledger."""

    def note(self, text: str) -> None:
        """Something happened that a person should know; the run goes on."""

    def finished(self, summary: Summary) -> None:
        """The run is over and its report is written."""


class LogWatcher(Watcher):
    """Writes events to the log: not the progress, which the progress artifact shows, nor each job."""

    def quoted(self, quote: Quote) -> None:
        """Logs the quote in one line, what is rejected and why, each rate that has changed, and warnings."""
        logger.info("%s", printable(quote.line()))
        for reject in rejects_in_words(quote.plan.rejects)[:_REASONS]:
            logger.warning("rejected: %s", printable(reject))
        if quote.plan.rejected_rows:
            logger.warning("%s rejected: see %s", counted(quote.plan.rejected_rows, "row"), quote.rejects)
        for change in quote.changes():
            logger.warning("rate changed: %s", printable(change))
        for warning in quote.warnings:
            logger.warning("%s", printable(warning))

    def note(self, text: str) -> None:
        """Logs a warning."""
        logger.warning("%s", printable(text))

    def finished(self, summary: Summary) -> None:
        """Logs the summary in one line, and each reason why jobs failed, are in doubt or lost."""
        for problem in summary.details.problems:
            logger.warning("%s", printable(problem.line()))
        logger.info("%s", printable(summary.line()))


WATCHER: ContextVar[Watcher] = ContextVar("watcher", default=LogWatcher())  # noqa: B039 - it has no state
