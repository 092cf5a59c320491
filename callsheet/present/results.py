"""What is said of a batch after a run: what is wrong, what to do next, what it cost, where the files are."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal

from callsheet.errors import CallsheetError, Interrupted, ends_as
from callsheet.plain_text import and_more, counted
from callsheet.present import amounts, priced, reasons, status
from callsheet.present.asked import to_sheet
from callsheet.present.page import Fact, Facts, Line, Link, Listed, Page, Table, Tone
from callsheet.pricing.plan import ToBuyAgain
from callsheet.records import FOR_A_PERSON, State, dollars
from callsheet.report.contact_sheet.cards import browser_address
from callsheet.report.plots import QUANTILES, Figures
from callsheet.report.remedies import NO_DEPLOYMENTS, command, remedies
from callsheet.report.summary import Problem, Summary, Surcharge

_TONES = {"complete": Tone.GOOD, "partial": Tone.WARNING, "stopped": Tone.BAD}
_PROBLEMS = (*FOR_A_PERSON, State.FAILED, State.PENDING)  # in the order in which they are shown
_DETAILS = 3  # of files that are not as ordered
_LENGTHS = re.compile(r"([\d.]+) s ordered, ([\d.]+) s came")  # what is wrong is named first
_APPROVALS = 20  # the last ones
_REJECTS = 20  # reasons
_PLOTTED = 3  # models of the plots that are said in words


def screen(summary: Summary, config: str | None, *, media: str) -> Page:
    """The result of a run: by model, in money, what went wrong, where the files are, what to do next.

    `config` is the file, for the commands that can be typed next; None shows none. `media` is `storage.url`.
    """
    details = summary.details
    page: Page = [
        Line(),
        Line(strong=f"{summary.batch}: {summary.outcome}", tone=_TONES[summary.outcome], level=1),
        status.by_model(summary.models),
        Facts([*stopped(summary), *facts(summary), ("Media", media), *_places(summary)]),
        *(Line(problem(entry), tone=Tone.WARNING, indent=2) for entry in details.problems),
    ]
    if details.other_problems:
        page.append(Line(_other_problems(summary), tone=Tone.WARNING, indent=2))
    page += [Line(text, tone=Tone.WARNING, indent=2) for text in differences(summary)]
    return [*page, Listed("Next", next_steps(summary, config))] if config else page


def document(
    summary: Summary,
    config: str,
    sheet: str | None,
    again: ToBuyAgain,
    deployments: Mapping[str, str],
    *,
    of_this_run: Collection[State],
    settling: str | None = None,
) -> Page:
    """What is wrong and what to do about it, then the figures; where the files are comes last.

    Args:
        sheet: where the contact sheet is served.
        again: what is to be bought again.
        deployments: as in `next_steps`.
        of_this_run: the states, in doubt or lost, in which this run has left jobs, and not an earlier one.
        settling: where a person settles what is in doubt; None where no page does.
    """
    details = summary.details
    from_earlier = [state for state in FOR_A_PERSON if state not in of_this_run]
    steps: list[str | Link] = [*to_sheet(sheet)]
    if summary.in_doubt and settling:
        steps.insert(0, Link("Settle the jobs in doubt", settling))
    if again.jobs:  # what was rejected is bought again, priced and approved as anything else
        to_buy = amounts.jobs_for(again.jobs, again.quoted)
        steps.append(
            f"To buy again {to_buy}: a run of the deployment buy-again, or {command('run', config)} --again."
        )
    page: Page = [
        Line(strong=f"{summary.batch}: {summary.outcome}", level=1),
        Facts(stopped(summary)),
        *_problems(summary, [state for state in _PROBLEMS if state not in from_earlier]),
        Line(_other_problems(summary)),
        Listed("Not as ordered", differences(summary)),
    ]
    if summary.rejected_rows:
        page.append(Listed(f"{counted(summary.rejected_rows, 'row')} rejected", details.rejected[:_REJECTS]))
        page.append(Line(f"All are in {details.rejects}." if details.rejects else ""))
    return [
        *page,
        Listed("Next", [*steps, *next_steps(summary, config, deployments)]),
        Line(strong="The batch", level=2),
        Facts(facts(summary)),
        status.by_model(summary.models),
        *_problems(summary, from_earlier, " by earlier runs"),
        Listed("Approvals", map(reasons.asked_and_answered, summary.approvals[-_APPROVALS:])),
        *_dearest(summary),
        Listed("Files", [Link(name, place) for name, place in _places(summary) if place]),
    ]


def broken_off(error: CallsheetError, batch: str, config: str, deployments: Mapping[str, str]) -> Page:
    """The result of a run that an error has ended before it could write a report; as `document`."""
    stop = ends_as(error)
    goes_on = [_goes_on(command("run", config, deployments), stop.reason)] if stop else []
    return [
        Line(strong=f"{batch}: {'stopped' if stop else 'failed'}", level=1),
        Facts([("Stopped" if stop else "Problem", error.message), ("", error.hint)]),
        Listed("Next", goes_on),
    ]


def did(summary: Summary) -> str:
    """What the run has done, before how the batch stands: `3 bought, 0.1200 USD; `; empty without a run."""
    run = summary.details.did
    if run is None:
        return ""
    bought = amounts.bought(run.bought, run.cost) if run.bought else ""
    fetched = f"{run.fetched:,} fetched" if run.fetched else ""
    is_over = summary.outcome != "stopped" and not summary.not_bought
    nothing = "nothing to buy" if is_over else amounts.NOTHING_BOUGHT
    if not run.buys:
        nothing = "nothing fetched" if summary.pending else "nothing to fetch"
    return f"{', '.join(filter(None, (bought, fetched))) or nothing}; "


def line(summary: Summary, *, missing_first: bool = False) -> str:
    """The summary in one line; where it is green, what is missing of the batch comes first."""
    rejected = f"; {counted(summary.rejected_rows, 'row')} rejected" if summary.rejected_rows else ""
    stop = f"; {'stopped: ' if summary.stop_reason else ''}{summary.stop_message}"
    stop = stop if summary.stop_message else ""
    cost = spent(summary) + (f"; {_estimated(summary)}" if summary.estimated_costs else "")
    runs = "".join(f"; another run is at work: {run.line()}" for run in summary.other_runs)
    jobs = counted(summary.jobs, "job")
    jobs = f"{summary.not_bought:,} of {jobs} not bought" if missing_first else jobs
    done = "" if counts(summary) == amounts.NOTHING_BOUGHT else did(summary)  # it is said once
    return f"{done}{jobs}: {counts(summary)}; {cost}{rejected}{stop}{runs}"


def counts(summary: Summary) -> str:
    """The number of jobs in each state: `7 stored, 1 failed`."""
    return status.counts(summary.states) or amounts.NOTHING_BOUGHT


def spent(summary: Summary) -> str:
    """What the batch has cost so far."""
    return amounts.spent(summary.spent)


def topic(summary: Summary, before: str = "") -> str:
    """The result in a few words, after others: `refused, nothing bought; 7 of 9 stored, 0.4000 USD`."""
    in_doubt = f", {summary.in_doubt:,} in doubt" if summary.in_doubt else ""
    stored = f"{summary.stored:,} of {summary.jobs:,} stored"
    return f"{before}{did(summary)}{stored}{in_doubt}, {dollars(summary.spent)} USD"


def problem(entry: Problem) -> str:
    """A problem in one line: `3 jobs failed (row a, row b, row c): ...`."""
    state = entry.state.in_words
    if entry.jobs == 1:
        return f"{entry.rows[0]} {state}: {entry.reason}"
    rows = [*dict.fromkeys(entry.rows)]  # one may have several of the jobs
    named = and_more(rows, len(rows) + entry.jobs - len(entry.rows))
    return f"{entry.jobs} jobs {state} ({named}): {entry.reason}"


def differences(summary: Summary) -> list[str]:
    """What is not as it was ordered: `12 of 40 videos are shorter than ordered: 10 s ordered, 2 s came`."""
    lines = []
    for entry in summary.differences:
        by_words: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for detail, files in entry.details.items():
            by_words[_not_as_ordered(entry.flag, detail)][detail] = files
        for words, details in by_words.items():
            files = sum(details.values())
            are, first = "is" if files == 1 else "are", [*details][:_DETAILS]
            more = f" and {len(details) - _DETAILS:,} more" if len(details) > _DETAILS else ""
            of = counted(entry.of, entry.type)
            lines.append(f"{files:,} of {of} {are} {words}: {'; '.join(first)}{more}")
    return lines


def _not_as_ordered(flag: str, detail: str) -> str:
    """What is wrong, in words: the flag is of a check, and the detail what it says."""
    if flag == "length" and (lengths := _LENGTHS.match(detail)):
        ordered, came = float(lengths[1]), float(lengths[2])
        return f"{'shorter' if came < ordered else 'longer'} than ordered"
    of = {"model": "of another model than ordered", "still": "of one still picture"}
    return of.get(flag, f"not as ordered in {flag}")


def stopped(summary: Summary) -> list[Fact]:
    """How many jobs were not bought and why, or what went wrong otherwise, and what to do about it."""
    left = summary.not_bought
    count = f"{left:,} of {counted(summary.jobs, 'job')}" if left else ""
    name = "Not bought" if left else "Stopped" if summary.stop_reason else "Problem"
    reason = ": ".join(filter(None, (count, summary.stop_message)))
    return [fact for fact in ((name, reason), ("", summary.details.stop_hint)) if fact[1]]


def facts(summary: Summary) -> list[Fact]:
    """What a person needs to know besides."""
    details, rejected, exposure = summary.details, summary.rejected_rows, summary.in_doubt_exposure
    said = priced.rejected_in_words(rejected, details.rejected_in_part)
    rejects = f"{said}: see {details.rejects}" if rejected else "none rejected"
    outdated = f"{details.others:,} of them {'is' if details.others == 1 else 'are'} of rows that"
    sent = f"{counted(summary.submissions, 'submission')}, {summary.rate_limited:,} rate limited"
    return [
        ("Rows", "" if details.rows is None else f"{details.rows:,} read, {rejects}"),
        ("Jobs", f"{summary.jobs:,}: {counts(summary)}"),
        ("", f"{outdated} this batch file does not have, or has changed" if details.others else ""),
        ("Quoted", f"{dollars(summary.quoted)} USD"),
        ("Spent", f"{dollars(summary.spent)} USD"),
        ("Came back", status.came_back(summary.credits)),
        ("Reviewed", status.reviewed(summary)),
        *(("Other run", run.line()) for run in summary.other_runs),
        ("Estimated", _estimated(summary) if summary.estimated_costs else ""),
        ("Surcharge", _surcharge(details.surcharge) if details.surcharge else ""),
        ("In doubt", f"{amounts.at_most(exposure)} more" if exposure else ""),
        ("This run", f"{sent}, {summary.seconds:.1f} s" if summary.submissions or summary.seconds else ""),
    ]


def _surcharge(surcharge: Surcharge) -> str:
    """How many jobs cost more than quoted, by how much, and the first of them."""
    named = "; ".join(amounts.above_quote(*job) for job in surcharge.named)
    left_out = surcharge.jobs - len(surcharge.named)
    more = f" and {left_out:,} more" if left_out else ""
    dearer = f"{counted(surcharge.jobs, 'job')} cost {dollars(surcharge.amount)} USD more than quoted"
    return f"{dearer}: {named}{more}"


def plotted(figures: Figures, limit: Decimal | None) -> str:
    """What the plots show, for who does not see them."""
    spent_in_all = figures.spent[-1][1] if figures.spent else Decimal(0)
    of_budget = f" of a budget of {dollars(limit)} USD" if limit is not None else ""
    costs = [f"{model} {dollars(cost)} USD" for model, cost in figures.by_model.items()]
    kept = [f"{model} {counts[0]:,} of {sum(counts):,}" for model, counts in figures.kept.items()]
    middle = len(QUANTILES) // 2
    seconds = [f"{model} {quantiles[middle]:.1f} s" for model, (_, quantiles) in figures.seconds.items()]
    parts = (("by model", costs), ("kept", kept), ("median time to store", seconds))
    listed = (f"{title}: {and_more(texts[:_PLOTTED], len(texts))}" for title, texts in parts if texts)
    return "; ".join([f"Spent over time: {dollars(spent_in_all)} USD{of_budget}", *listed])


def _estimated(summary: Summary) -> str:
    """For how many jobs the cost is not the service's word."""
    jobs = counted(summary.estimated_costs, "job")
    return f"the cost of {jobs} is not the service's word: computed, or as quoted"


def next_steps(
    summary: Summary, config: str = "CONFIG", deployments: Mapping[str, str] = NO_DEPLOYMENTS
) -> Iterator[str]:
    """What a person can do next; `config` as it is typed in a command.

    `deployments` are the names of those whose runs do what a command does, by the command: `resolve`.
    """
    run, details = command("run", config, deployments), summary.details
    if summary.rejected_rows:
        changed = "a row that was bought already is bought again if what it asks for changes."
        twice = changed if details.others or details.not_offered else "nothing is bought twice."
        yield f"Correct the rejected rows and run the batch again; {twice}"
    for state in FOR_A_PERSON:
        if summary[state]:
            yield from remedies(state, config=config, deployments=deployments)
    if summary.lost or details.surcharge or summary.differences:
        yield f"{command('claim', config)} writes what the service owes, to be sent to it."
    for other_run in summary.other_runs:
        place = f"{other_run.host}, pid {other_run.pid}"
        yield f"Another run is at work ({place}): it finishes its jobs; wait for it, or run again later."
    if summary.outcome == "stopped":
        yield _goes_on(run, summary.stop_reason)
    elif details.all_chosen_stored is not None and summary.not_bought:
        yield f"{run} buys the other jobs."
    elif summary.pending and not summary.other_runs:
        yield from remedies(State.PENDING, config=config, deployments=deployments)
    if any(entry.state is State.PENDING for entry in details.problems):
        yield f"{command('resolve', config)} lists videos that stay pending; --give-up settles one."
    if summary.failed:
        codes = {entry.code for entry in details.problems if entry.state is State.FAILED}
        yield from remedies(State.FAILED, codes, config, deployments)
    yield from status.review_steps(summary, config)


def _goes_on(run: str, reason: str | None) -> str:
    """How a run that has stopped goes on: while its reason lasts, it would stop there again."""
    condition = "" if reason in (None, Interrupted.reason) else ", once what stopped it is dealt with"
    return f"{run} goes on from here{condition}."


def _problems(summary: Summary, states: Collection[State], by_whom: str = "") -> Iterator[Listed]:
    """What went wrong, a list for each of these states."""
    for state in states:
        lines = [problem(entry) for entry in summary.details.problems if entry.state is state]
        yield Listed(f"{state.in_words.capitalize()}{by_whom}", lines)


def _other_problems(summary: Summary) -> str:
    count = summary.details.other_problems
    return f"{counted(count, 'job')} with other reasons: see the costs file" if count else ""


def _dearest(summary: Summary) -> Page:
    """The jobs that cost most; nothing where all cost the same."""
    costs = summary.details.dearest
    if len({cost for *_, cost in costs}) < 2:
        return []
    lines = [{"row": row, "model": model, "USD": dollars(cost)} for row, model, cost in costs]
    return [Line(strong="The dearest jobs", level=2), Table(lines)]


def _places(summary: Summary) -> list[Fact]:
    sheet = summary.details.contact_sheet
    files = [("Manifest", summary.manifest), ("Costs", summary.costs), ("Report", summary.report)]
    return [*files, ("Sheet", browser_address(sheet) if sheet else "")]
