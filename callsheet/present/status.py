"""What is said of how a batch stands, how far it is reviewed, and of all batches of a ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from callsheet.cells import as_text
from callsheet.plain_text import and_more, counted, moment_in_words
from callsheet.present import allowances, amounts, reasons
from callsheet.present.accounts import doubts_table
from callsheet.present.page import MOST_LISTED, Facts, Line, Listed, Page, Table
from callsheet.records import ENDED, FOR_A_PERSON, Doubt, State, Totals, dollars, six_decimals
from callsheet.report.production import Production
from callsheet.report.remedies import command, remedies
from callsheet.report.summary import Pause, Reviewed, ReviewResult, Status
from callsheet.report.tidy import Tidying
from callsheet.standing import MODEL, Share

_APPROVALS = 5  # the last ones
_NAMED = 5  # files


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
    again, exposure = status.to_buy_again, status.in_doubt_exposure
    page: Page = [Line(strong=status.batch), Table(states, ("state",))]
    if not states:
        page.append(Line("The ledger has no job of this batch: nothing was bought yet.", indent=2))
    facts = [
        ("Spent", f"{dollars(status.spent)} USD"),
        ("Came back", came_back(status.credits)),
        ("In flight", in_flight if status.in_flight_exposure else ""),
        ("In doubt", f"{amounts.at_most(exposure)} more" if exposure else ""),
        ("Reviewed", reviewed(status)),
        ("To buy again", amounts.jobs_for(again.jobs, again.quoted) if again.jobs else ""),
        ("Source", outdated(status.outdated)),
        ("Last run", f"began {moment_in_words(status.last_run)}" if status.last_run else ""),
        ("Paused", _paused(status.paused) if status.paused else ""),
        *(("At work", run.line()) for run in status.other_runs),
        *(("Changed", allowances.of_change(change)) for change in status.changes),
        *(("Asked", reasons.asked_and_answered(approval)) for approval in status.approvals[-_APPROVALS:]),
    ]
    page += [Facts(facts), *_compared(status)]
    page += doubts_table(doubts, {}) if doubts else []
    return [*page, Listed("Next", next_steps(status, config))]


def outdated(files: Mapping[str, str]) -> str:
    """How many files are made from what is not kept any more, and which; empty without any."""
    if not files:
        return ""
    are = "file is" if len(files) == 1 else "files are"
    named = and_more([*files][:_NAMED], len(files))
    return f"{len(files):,} {are} made from what is not kept any more, or was replaced: {named}"


def came_back(amount: Decimal) -> str:
    """The money that came back; empty where none did."""
    return f"{dollars(amount)} USD, by credits" if amount else ""


def _paused(pause: Pause) -> str:
    return f"by {pause.who}, since {moment_in_words(pause.when)}"


def next_steps(status: Status, config: str) -> Iterator[str]:
    """What a person can do next; `config` as it is typed in a command."""
    if status.paused:
        yield f"{command('resume', config)} lets the runs at work buy on."
    if status.planned and not status.other_runs:  # so none is on the wire
        yield f"{command('run', config)} goes on: {counted(status.planned, 'job')} not bought yet."
    for state in FOR_A_PERSON:
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
    cost = amounts.a_kept_file(record.cost_per_kept)
    files = counted(decided + record.to_review, "file")
    return f"{decided:,} of {files}: {record.kept:,} kept, {record.rejected:,} rejected{cost}"


def tidy_screen(batch: str, tidying: Tidying, *, days: int, removed: bool = False) -> Page:
    """The files of a batch that nobody wants any more, or that were removed."""
    files = tidying.files
    if not files:
        return [Line(f": no file that nobody has wanted for {counted(days, 'day')}", strong=batch)]
    verb = "removed" if removed else "that nobody wants any more"
    total = f"{counted(len(files), 'file')} {verb}: {tidying.bytes:,} bytes, {dollars(tidying.cost)} USD paid"
    lines = [
        {
            "file": f"{file.row_id}/{file.file_number}",
            "model": file.model,
            "why": file.why,
            "since": f"{file.since:%Y-%m-%d}",
            "bytes": f"{file.bytes:,}",
            "USD": "" if file.cost is None else dollars(file.cost),
        }
        for file in ([] if removed else files[:MOST_LISTED])
    ]
    return [Line(f": {total}", strong=batch), Table(lines, ("file", "model", "why"), more="more files")]


def review_screen(review: ReviewResult, config: str) -> Page:
    """How far a batch is reviewed, in all and in parts, and what to do next."""
    steps = [*review_steps(review, config)]
    if review.rejected:
        again = "--again prices one more sample of each row whose files are all rejected."
        steps.append(f"{command('quote', config)} {again}")
    return [
        Facts([("Reviewed", reviewed(review) or "nothing yet"), ("To review", f"{review.to_review:,}")]),
        *_compared(review),
        Listed("Next", steps),
    ]


def _compared(record: Status | ReviewResult) -> list[Table]:
    """Tables by model and by each setting, where there are several."""
    by_setting = [by_value(name, shares) for name, shares in record.by_setting.items()]
    return [by_model(record.by_model), *by_setting] if record.by_model else by_setting


def review_steps(record: Reviewed, config: str) -> Iterator[str]:
    """What a person can do next about the stored files."""
    if record.to_review:
        yield f"{command('review', config)} shows every job on one page, to keep or reject each."
    elif record.kept:
        yield f"{command('export', config)} --to FOLDER --as imagefolder --kept hands on what is kept."


# ---- each model, or each value of a setting


def by_model(shares: Sequence[Share]) -> Table:
    """What there is of each model, the dearest first."""
    return by_value(MODEL, sorted(shares, key=lambda share: -share.quoted))


def by_value(name: str, shares: Sequence[Share]) -> Table:
    """A line for each model, or each value of a setting; a state that no job is in has no column."""
    states = [state for state in ENDED if any(share.states[state] for share in shares)]
    is_reviewed = any(share.review.kept or share.review.rejected for share in shares)
    has_open = any(share.open for share in shares)
    head, lines = name.replace("_", " "), []
    for share in shares:
        numbers = {"jobs": share.jobs} | {state.in_words: share.states[state] for state in states}
        numbers |= {"open": share.open} if has_open else {}
        quoted, cost = {"USD quoted": dollars(share.quoted)}, {"USD spent": dollars(share.spent)}
        if is_reviewed:
            numbers |= {"kept": share.review.kept, "rejected": share.review.rejected}
            a_kept = "" if share.cost_per_kept is None else dollars(share.cost_per_kept)
            quoted, cost = {}, cost | {"USD a kept": a_kept}
        counts = {name: f"{number:,}" for name, number in numbers.items()}
        lines.append({head: _value(share), **counts, **quoted, **cost})
    return Table(lines, (head,), more="more")


def _value(share: Share) -> str:
    """A value as text; of a model also as which others its jobs were ordered: `b (3 ordered as a)`."""
    ordered = ", ".join(f"{jobs:,} ordered as {model}" for model, jobs in share.ordered_as.items())
    return f"{as_text(share.value) or ''}{f' ({ordered})' if ordered else ''}"


# ---- the shots of a production


def production_screen(production: Production) -> Page:
    """A line for each shot with what it has cost by batch, and what a finished one has cost."""
    batches = [status.batch for status in production.batches]
    lines = [
        {"shot": shot.shot}
        | {f"USD {batch}": dollars(shot.costs.get(batch, Decimal(0))) for batch in batches}
        | {"USD in all": dollars(shot.spent), "kept": f"{shot.kept:,}"}
        for shot in production.shots
    ]
    finished, cost = production.finished, production.cost_per_finished
    a_shot = ""
    if cost is not None:
        own = dollars(six_decimals(production.spent_on_finished / finished))
        a_shot = f"{own} USD for a finished shot, and {dollars(cost)} USD with what the others have cost"
    facts = [
        ("Finished", f"{finished:,} of {counted(len(lines), 'shot')}, by what is kept in {batches[-1]}"),
        ("Spent", f"{dollars(production.spent)} USD in {counted(len(batches), 'batch', 'batches')}"),
        ("Cost", a_shot),
    ]
    facts += [("Source", said) for status in production.batches if (said := outdated(status.outdated))]
    return [Table(lines, ("shot",), more="more shots"), Facts(facts)]


# ---- all batches of a ledger


def batches_screen(batches: Mapping[str, Totals]) -> Page:
    """A line for every batch of a ledger, and the sums of what they cost and may have cost."""
    states = [state for state in State if any(totals.states.get(state) for totals in batches.values())]
    has_credits = any(totals.credits for totals in batches.values())
    lines = [
        {"batch": batch}
        | {state.in_words: f"{totals.states.get(state, 0):,}" for state in states}
        | {"USD spent": dollars(totals.spent), "USD in doubt": dollars(totals.in_doubt_exposure)}
        | ({"USD back": dollars(totals.credits)} if has_credits else {})
        for batch, totals in batches.items()
    ]
    spent = sum((totals.spent for totals in batches.values()), Decimal(0))
    sent = sum((totals.sent for totals in batches.values()), Decimal(0))
    sums = Line(f"{counted(len(batches), 'batch', 'batches')}, {amounts.used(spent, sent)}")
    return [Table(lines, ("batch",), limit=len(lines)), sums]


def figures(batch: str, totals: Totals) -> dict[str, Any]:
    """A batch as `status --json` lists it without a config."""
    return {
        "batch": batch,
        **{state.value: totals.states.get(state, 0) for state in State},
        "spent": totals.spent,
        "credits": totals.credits,
        "in_flight_exposure": totals.in_flight_exposure,
        "in_doubt_exposure": totals.in_doubt_exposure,
        "currency": "USD",
    }
