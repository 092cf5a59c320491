"""What is said of a run at work: how far it is, and each job that comes into another state."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from callsheet.plain_text import counted, row_in_words, time_in_words
from callsheet.present import amounts, status
from callsheet.records import Change, Progress, State, dollars, refuses

_LONG = 2.0  # seconds of a wait that is worth saying


def line(progress: Progress) -> str:
    """The progress in one line: `12 of 36 done: 10 stored, 2 pending; 0.4000 USD spent`."""
    return f"{progress.done:,} of {progress.jobs:,} done: {'; '.join(lines(progress))}"


def lines(progress: Progress) -> list[str]:
    """The jobs by state, the money, the limits and the time left."""
    parts = (counts(progress), money(progress), *_submissions(progress), _time_left(progress))
    return [part for part in parts if part]


def counts(progress: Progress) -> str:
    """How many jobs are in each state: `10 stored, 2 pending`."""
    return status.counts({state: progress.states.get(state, 0) for state in State}) or "nothing yet"


def money(progress: Progress) -> str:
    """What was spent of the budget: `0.4000 of 5.0000 USD spent`."""
    return amounts.spent(progress.spent, progress.limit)


def _submissions(progress: Progress) -> list[str]:
    """Submissions against the limits, by type: `9 of 10 videos this minute, the next in 23 s`."""
    parts = []
    for model_type, pace in progress.pacing.items():
        of_limit = f"{pace.in_window:,} of {counted(pace.limit, model_type)}" if pace.limit else ""
        wait = f", the next in {time_in_words(pace.next_in)}" if pace.next_in >= _LONG else ""
        parts.append(f"{of_limit or counted(pace.in_window, model_type)} this minute{wait}")
    return parts


def _time_left(progress: Progress) -> str:
    """Until every job is submitted: `about 5 min left`; empty while that is not known."""
    if progress.paused:
        return "the buying is paused"
    if progress.refused:
        return refuses(progress.refused)
    return f"about {time_in_words(progress.seconds_left)} left" if progress.seconds_left else ""


def waits(refusal: str) -> str:
    """That a run waits because the service refuses every submission in these words."""
    return f"{refuses(refusal)}; the run waits"


def of_job(change: Change, line: int | None = None) -> str:
    """A job that has come into another state, after the state: `row a  0.0015 USD  out/media/a.png`.

    `line` is its line in the batch file, where that is known.
    """
    attempt = change.attempt
    cost = "" if change.cost is None else f"{dollars(change.cost)} USD"
    row = row_in_words(attempt.row_id, attempt.sample, line)
    return "  ".join(filter(None, (row, cost, change.detail)))


def figures(progress: Progress) -> dict[str, Any]:
    """What `--progress jsonl` prints of it."""
    return {
        "jobs": progress.jobs,
        "done": progress.done,
        "states": {state.value: progress.states.get(state, 0) for state in State},
        "spent": progress.spent,
        "budget_limit": progress.limit,
        "steps": {name: {"done": done, "total": total} for name, (done, total) in progress.steps().items()},
        "submissions": {model_type.value: asdict(pace) for model_type, pace in progress.pacing.items()},
        "seconds_left": None if progress.seconds_left is None else round(progress.seconds_left),
    }


def figures_of_job(change: Change) -> dict[str, Any]:
    """What `--progress jsonl` prints of a job."""
    return {
        "job_key": change.attempt.job_key,
        "row_id": change.attempt.row_id,
        "sample": change.attempt.sample,
        "attempt": change.attempt.number,
        "model": change.attempt.model,
        "state": change.state.value,
        "detail": change.detail,
        "cost": change.cost,
    }
