"""What is said of how a batch stands, how far it is reviewed, and of all batches of a ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from callsheet.cells import as_text
from callsheet.ledger.marks import Counts
from callsheet.plain_text import counted, moment_in_words
from callsheet.present import priced
from callsheet.present.accounts import doubts_table
from callsheet.present.page import Facts, Line, Listed, Page, Table
from callsheet.records import ENDED, Doubt, State, Totals, dollars
from callsheet.report.remedies import command, remedies
from callsheet.report.shares import MODEL, Share, Shares
from callsheet.report.summary import ModelLine, Pause, Reviewed, ReviewResult, Status

_APPROVALS = 5  # the last ones


def counts(jobs: Mapping[State, int]) -> str:
    """The number of jobs in each state that has any: `7 stored, 1 failed`."""
    return ", ".join(f"{count:,} {state.in_words}" for state, count in jobs.items() if count)


def counts_of(status: Status) -> str:
    """The number of jobs in each state; empty where there is none."""
    return counts({state: status[state] for state in State})


def screen(status: Status, config: str, doubts: Sequence[Doubt]) -> Page:
    """The state of a batch, the runs that are at work, these jobs in doubt, and what to do next."""
    states = [{"state": state.in_words, "jobs": f"{status[state]:,}"} for state in State if status[state]]
    in_flight = f"{dollars(status.in_flight_exposure)} USD, sent and not answered yet"
    again = status.to_buy_again
    page: Page = [Line(strong=status.batch), Table(states, ("state",))]
    if not states:
        page.append(Line("The ledger has no job of this batch: nothing was bought yet.", indent=2))
    facts = [
        ("Spent", f"{dollars(status.spent)} USD"),
        ("In flight", in_flight if status.in_flight_exposure else ""),
        ("In doubt", in_doubt(status.in_doubt_exposure)),
        ("Reviewed", reviewed(status)),
        ("To buy again", priced.topic(again.jobs, again.quoted) if again.jobs else ""),
        ("Last run", f"began {moment_in_words(status.last_run)}" if status.last_run else ""),
        ("Paused", _paused(status.paused) if status.paused else ""),
        *(("At work", run.line()) for run in status.other_runs),
        *(("Changed", change.line()) for change in status.changes),
        *(("Asked", approval.line()) for approval in status.approvals[-_APPROVALS:]),
    ]
    page += [Facts(facts), *reviewed_in_parts(status.by_model, status.by_setting)]
    page += doubts_table(doubts, {}) if doubts else []
    return [*page, Listed("Next", next_steps(status, config))]


def in_doubt(exposure: Decimal) -> str:
    """What the batch may have cost besides what is spent."""
    return f"at most {dollars(exposure)} USD more"


def _paused(pause: Pause) -> str:
    return f"by {pause.who}, since {moment_in_words(pause.when)}"


def next_steps(status: Status, config: str) -> Iterator[str]:
    """What a person can do next; `config` as it is typed in a command."""
    if status.paused:
        yield f"{command('resume', config)} lets the runs at work buy on."
    if (unsent := status.planned + status.submitting) and not status.other_runs:
        yield f"{command('run', config)} goes on: {counted(unsent, 'job')} not bought yet."
    for state in (State.IN_DOUBT, State.LOST):
        if status[state]:
            yield from remedies(state, config=config)
    if (status.pending or status.generated) and not status.other_runs:
        yield from remedies(State.PENDING, config=config)
    if status.failed:
        yield f"{command('failed', config)} lists the failed jobs by reason."
    yield from review_steps(status, config)


# ---- the review


def reviewed(record: Reviewed) -> str:
    """How far a batch is reviewed; empty where nothing is decided."""
    decided = record.kept + record.rejected
    if not decided:
        return ""
    cost = f", {dollars(record.cost_per_kept)} USD a kept file" if record.cost_per_kept is not None else ""
    files = counted(decided + record.to_review, "file")
    return f"{decided:,} of {files}: {record.kept:,} kept, {record.rejected:,} rejected{cost}"


def review_screen(review: ReviewResult, config: str) -> Page:
    """How far a batch is reviewed, in all and in parts, and what to do next."""
    steps = [*review_steps(review, config)]
    if review.rejected:
        again = "--again prices one more sample of each row whose files are all rejected."
        steps.append(f"{command('quote', config)} {again}")
    return [
        Facts([("Reviewed", reviewed(review) or "nothing yet"), ("To review", f"{review.to_review:,}")]),
        *reviewed_in_parts(review.by_model, review.by_setting),
        Listed("Next", steps),
    ]


def review_steps(record: Reviewed, config: str) -> Iterator[str]:
    """What a person can do next about the stored files."""
    if record.to_review:
        yield f"{command('review', config)} shows every job on one page, to keep or reject each."
    elif record.kept:
        yield f"{command('export', config)} --to FOLDER --as imagefolder --kept hands on what is kept."


# ---- each model, or each value of a setting


def bought_by_model(model_lines: Iterable[ModelLine]) -> Table:
    """A line for each model, the dearest first; a state that no job is in has no column."""
    models = sorted(model_lines, key=lambda line: -line.quoted)
    states = [state for state in ENDED if any(line.states[state] for line in models)]
    is_reviewed = any(line.review.kept or line.review.rejected for line in models)
    has_open = any(line.open for line in models)
    lines = []
    for line in models:
        numbers = {"jobs": line.jobs} | {state.in_words: line.states[state] for state in states}
        numbers |= {"open": line.open} if has_open else {}
        quoted, cost = {"USD quoted": dollars(line.quoted)}, {"USD spent": dollars(line.spent)}
        if is_reviewed:
            numbers |= {"kept": line.review.kept, "rejected": line.review.rejected}
            quoted, cost = {}, cost | _cost_per_kept(line.cost_per_kept)
        counts = {name: f"{number:,}" for name, number in numbers.items()}
        lines.append({"model": line.model, **counts, **quoted, **cost})
    return Table(lines, ("model",), more="more models", is_narrow=True)


def reviewed_in_parts(by_model: tuple[Share, ...], by_setting: Shares) -> list[Table]:
    """How far the batch is reviewed and what it cost, by model and by each setting with several values."""
    tables = []
    for name, shares in {MODEL: by_model, **by_setting}.items():
        if any(share.files for share in shares):
            head = name.replace("_", " ")
            lines = [{head: as_text(share.value) or ""} | _of_share(share) for share in shares]
            tables.append(Table(lines, (head,), more="more", is_narrow=True))
    return tables


def _of_share(share: Share) -> dict[str, str]:
    counts = {"files": share.files} | dict(zip(Counts._fields, share.review, strict=True))
    numbers = {name.replace("_", " "): f"{count:,}" for name, count in counts.items()}
    return numbers | {"USD spent": dollars(share.spent)} | _cost_per_kept(share.cost_per_kept)


def _cost_per_kept(amount: Decimal | None) -> dict[str, str]:
    return {"USD a kept": "" if amount is None else dollars(amount)}


# ---- all batches of a ledger


def batches_screen(batches: Mapping[str, Totals]) -> Page:
    """A line for every batch of a ledger, and the sums of what they cost and may have cost."""
    states = [state for state in State if any(totals.states.get(state) for totals in batches.values())]
    lines = [
        {"batch": batch}
        | {state.in_words: f"{totals.states.get(state, 0):,}" for state in states}
        | {"USD spent": dollars(totals.spent), "USD in doubt": dollars(totals.in_doubt_exposure)}
        for batch, totals in batches.items()
    ]
    spent = sum((totals.spent for totals in batches.values()), Decimal(0))
    sent = sum((totals.sent for totals in batches.values()), Decimal(0))
    used = f"{dollars(spent)} USD spent, {dollars(sent - spent)} in flight or in doubt"
    sums = Line(f"{counted(len(batches), 'batch', 'batches')}, {used}")
    return [Table(lines, ("batch",), limit=len(lines)), sums]


def figures(batch: str, totals: Totals) -> dict[str, Any]:
    """A batch as `status --json` lists it without a config."""
    return {
        "batch": batch,
        **{state.value: totals.states.get(state, 0) for state in State},
        "spent": totals.spent,
        "in_flight_exposure": totals.in_flight_exposure,
        "in_doubt_exposure": totals.in_doubt_exposure,
        "currency": "USD",
    }
