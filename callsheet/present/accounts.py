"""What is said of doubts, the evidence about them, and the ledger beside the service's own account."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

from callsheet.plain_text import and_more, counted, moment_in_words, row_name
from callsheet.present.page import MOST_LISTED, Fact, Facts, Line, Listed, Page, Table, Tone
from callsheet.records import Doubt, dollars
from callsheet.report.against_account import Judgement, OpenDoubt, Reconciliation
from callsheet.report.evidence import Evidence

_UNCERTAIN = "Other buyers in this workspace, and late costs, make these figures less certain."
_EVENTS = 10  # that left jobs in doubt
_ACCEPTED = "accepted video"
_DOUBTS_LISTED = 30
_BOOKS = ("quoted", "usage", "in_doubt", "billed", "difference")


# ---- doubts


def doubts_screen(
    batch: str, doubts: Sequence[Doubt], evidence: Evidence, lines: Mapping[str, int], config: str
) -> Page:
    """The jobs in doubt, and the evidence whether they were charged; `lines` as in `doubts_table`."""
    resolve = f"callsheet resolve {config}"
    page: Page = [Line(f": {len(doubts):,} in doubt", strong=batch), *doubts_table(doubts, lines), Line()]
    page += [Facts(evidence_facts(evidence)), Line(_UNCERTAIN, tone=Tone.ASIDE, indent=2), Line()]
    if proposed := _proposed(doubts, evidence):
        page.append(Line("To settle by this evidence:"))
        page += [Line(f"{resolve} {options} --why 'by the balance'", indent=2) for options in proposed]
    to_settle = f"To settle: {resolve} KEY... (or --all) --charged | --not-charged --why ..."
    return [*page, Line(to_settle)]


def accepted_screen(batch: str, accepted: Sequence[Doubt], lines: Mapping[str, int], config: str) -> Page:
    """The videos that the service has accepted, and what can be done about them."""
    resolve = f"callsheet resolve {config}"
    note = "The service has accepted them. A run with the key that bought them asks for them again."
    return [
        Line(f": {counted(len(accepted), _ACCEPTED)}, no doubt about money", strong=batch),
        *doubts_table(accepted, lines),
        Line(),
        Line(note, indent=2),
        Facts(
            [
                ("Ask now", f"callsheet collect {config}"),
                (
                    "Give up",
                    f"{resolve} KEY... --give-up --charged | --not-charged --why ...",
                ),
                ("", "--charged: its price is spent, and the video is lost"),
                ("", "--not-charged: the next run buys it again, and it may be paid for twice"),
            ]
        ),
    ]


def doubts_table(doubts: Sequence[Doubt], lines: Mapping[str, int]) -> Page:
    """The first of these jobs, with their ids where they have any, and what has happened to them.

    `lines` are those of the batch file, by key, where the last plan has them.
    """
    has_ids = any(doubt.generation_id for doubt in doubts)
    jobs: list[dict[str, str]] = []
    rows_by_event: dict[str, dict[str, None]] = {}
    for doubt in doubts:
        row = row_name(doubt.row_id, doubt.sample, lines.get(doubt.job_key))
        rows_by_event.setdefault(doubt.what, {})[row] = None
        if len(jobs) < MOST_LISTED:
            job = {"key": doubt.job_key[:12], "row": row, "model": doubt.model}
            job["submitted (UTC)"] = f"{doubt.submitted_at:%Y-%m-%d %H:%M:%S}"
            job["USD"] = "unpriced" if doubt.price is None else dollars(doubt.price)
            jobs.append(job | ({"id": doubt.generation_id or ""} if has_ids else {}))
    page: Page = [Table(jobs, ("row", "model", "submitted (UTC)", "id"), limit=MOST_LISTED)]
    if (left_out := len(doubts) - MOST_LISTED) > 0:
        page += [Line(f"and {left_out:,} more: --json and costs.parquet have all", indent=2), Line()]
    events = islice(rows_by_event.items(), _EVENTS)
    page += [Line(f": {event}", strong=_first_ten([*rows]), indent=2) for event, rows in events]
    if (left_out := len(rows_by_event) - _EVENTS) > 0:
        page.append(Line(f"and {left_out:,} more of what happened: see --json", indent=2))
    return page


def _proposed(doubts: Sequence[Doubt], evidence: Evidence) -> list[str]:
    """What to add to `resolve` to settle all doubts, where it is plain which were charged."""
    if evidence.charged is None:
        return []
    is_charged = {doubt.job_key for doubt in evidence.charged}
    keys: dict[str, list[str]] = {"--charged": [], "--not-charged": []}
    for key in dict.fromkeys(doubt.job_key for doubt in doubts):
        keys["--charged" if key in is_charged else "--not-charged"].append(key[:12])
    (named_option, named_keys), (all_option, all_keys) = sorted(keys.items(), key=lambda group: len(group[1]))
    if len(named_keys) > MOST_LISTED:
        return []
    return [
        *([f"{' '.join(named_keys)} {named_option}"] if named_keys else []),
        *([f"--all {all_option}"] if all_keys else []),
    ]


def settled_screen(
    batch: str, doubts: Sequence[Doubt], *, charged: bool, left: int, left_out: Sequence[Doubt]
) -> Page:
    """The doubts that were settled, and how many are left, some of them accepted videos."""
    page: Page = [Line(": nothing is in doubt about money, so nothing was settled.", strong=batch)]
    if doubts:
        price = sum((doubt.price or Decimal(0) for doubt in doubts), Decimal(0))
        decision = "paid for, and lost" if charged else "free: the next run buys them again"
        rows = _first_ten([doubt.row_id for doubt in doubts])
        page = [
            Line(f": {len(doubts)} settled ({_usd(price)}), {decision}", strong=batch),
            Facts([("Rows", rows), ("In doubt", f"{left} left")]),
        ]
    if given_up := [doubt.generation_id for doubt in doubts if doubt.generation_id]:
        twice = "" if charged else ". The service may charge for them: then they are paid for twice"
        generations = f"{counted(len(given_up), 'accepted generation')}, {_first_ten(given_up)}"
        page.append(Line(f"Given up: {generations}{twice}.", tone=Tone.WARNING, indent=2))
    if ids := [doubt.generation_id for doubt in left_out if doubt.generation_id]:
        asked = "a run with the key that bought them asks for them again"
        videos = f"{counted(len(ids), _ACCEPTED)}, {_first_ten(ids)}"
        page.append(Line(f"Left out: {videos}: {asked}.", indent=2))
    return page


def _first_ten(names: Sequence[str]) -> str:
    return and_more(names[:10], len(names))


def doubts_dialog(batch: str, jobs: int, evidence: Evidence) -> Page:
    """What stands above the fields in which to settle doubts about so many jobs."""
    facts = sorted(evidence_facts(evidence), key=lambda fact: fact[0] != "So")  # a dialog shows the beginning
    hint = "The fields below are filled in by what is gone; change what you know better."
    return [
        Line(
            " No answer says whether the service has accepted what was sent.",
            strong=f"{counted(jobs, 'job')} of {batch} may have been paid for.",
        ),
        Facts(facts),
        Line(hint if evidence.charged is not None else ""),
        Line("Charged: it was paid for, and is lost. Not charged: the next run buys it again."),
        Line(_UNCERTAIN),
    ]


def doubts_of_job(doubts: Sequence[Doubt]) -> str:
    """The model of a job, the price of all its attempts in doubt, and when the first was sent."""
    prices = [doubt.price for doubt in doubts if doubt.price is not None]
    price = _usd(sum(prices, Decimal(0))) if len(prices) == len(doubts) else "unpriced"
    return f"{doubts[0].model}, {price}, sent {moment_in_words(doubts[0].submitted_at)}"


# ---- the evidence about doubts


def evidence_facts(evidence: Evidence) -> Iterator[Fact]:
    """What the evidence is about, and what it says."""
    expected, gone = evidence.expected, evidence.gone
    if expected:
        spent = f"{_usd(expected.spent_since)} spent since then, by the ledger"
        balance_then = f"{_usd(expected.balance_then)} on {moment_in_words(expected.since)}"
        yield "Expected", f"{_usd(expected.balance_now)}: {balance_then}, less {spent}"
    else:
        yield "Expected", "unknown: no run before these doubts read the balance"
    if evidence.missing:
        yield "Balance", f"this evidence is missing: {evidence.missing}"
    elif evidence.balance is not None:
        yield "Balance", f"{_usd(evidence.balance)} now"
    if expected and gone is not None:
        in_doubt = f"; in doubt since then: {_usd(expected.in_doubt)}"
        in_flight = f"; in flight now: {_usd(expected.in_flight)}" if expected.in_flight else ""
        shortfall = f"{_usd(gone)} more than the ledger has{in_doubt}{in_flight}"
        yield "Gone", f"{_paid_in(gone)}{in_doubt}" if gone < 0 else shortfall
    if expected and expected.credits:
        yield "Came back", f"{_usd(expected.credits)} since then, by credits"
    for day, service, ledger in evidence.days:
        yield f"{day}", f"{_usd(service)} by the service, {dollars(ledger)} by the ledger"
    if conclusion := _conclusion(evidence):
        yield "So", conclusion


def _paid_in(gone: Decimal) -> str:
    return f"nothing: there are {_usd(-gone)} more, so money was paid in"


def _conclusion(evidence: Evidence) -> str:
    """What follows from the figures; empty where nothing can yet."""
    expected, gone = evidence.expected, evidence.gone
    if expected is None or gone is None or gone < 0 or expected.in_flight:
        return ""
    if expected.credits:
        return "what came back may hide what was charged: nothing is proposed"
    if not gone:
        return "nothing is gone: none of it seems to have been charged"
    if gone == expected.in_doubt:
        return "exactly what is in doubt is gone: all of it seems to have been charged"
    if evidence.charged:
        row = row_name(evidence.charged[0].row_id, evidence.charged[0].sample)
        return f"row {row}: {_usd(gone)}. It seems to have been charged, and the others not"
    return f"it is not plain which jobs are {_usd(gone)}: nothing is proposed"


def evidence_figures(evidence: Evidence) -> dict[str, Any]:
    """What `resolve --json` prints as `evidence`."""
    expected, charged = evidence.expected, evidence.charged
    return {
        "since": expected and expected.since,
        "balance_then": expected and expected.balance_then,
        "spent_since": expected and expected.spent_since,
        "balance_expected": expected and expected.balance_now,
        "balance": evidence.balance,
        "gone": evidence.gone,
        "in_doubt_since": expected and expected.in_doubt,
        "in_flight": expected and expected.in_flight,
        "credits": expected and expected.credits,
        "days": [
            {"date": day, "service": service, "ledger": ledger} for day, service, ledger in evidence.days
        ],
        "missing": evidence.missing,
        "fits": None if charged is None else [list(dict.fromkeys(doubt.job_key for doubt in charged))],
    }


# ---- the reconciliation


def line(result: Reconciliation) -> str:
    """The result in one line."""
    usage, billed, unexplained = (_usd(result.total(book)) for book in ("usage", "billed", "unexplained"))
    limit = f", above reconcile.threshold {dollars(result.threshold)}" if result.is_over else ""
    return f"{result.range()}: {usage} by the answers, {billed} billed; {unexplained} unexplained{limit}"


def topic(result: Reconciliation) -> str:
    """The result in a few words: `a difference of 0.0400 USD, 0.0100 unexplained`."""
    return f"a difference of {_usd(result.total('difference'))}{_unexplained(result)}"


def _unexplained(result: Reconciliation) -> str:
    unexplained = result.total("unexplained")
    return f", {dollars(unexplained)} unexplained" if unexplained else ""


def screen(result: Reconciliation, config: str) -> Page:
    """The days, the balances, the doubts with their verdicts, and the commands that settle these."""
    ending = "not reconciled" if result.is_over else "reconciled"
    lines = days(result)
    table = [{name: cell for name, cell in day.items() if name != "reason"} for day in lines]
    tone = Tone.BAD if result.is_over else Tone.GOOD
    page: Page = [Line(f", {result.range()}", strong=f"{result.batch}: {ending}", tone=tone)]
    page.append(Table(table, ("UTC day",), limit=len(table)))
    page += [Line(f"{day['UTC day']}: {day['reason']}", indent=2) for day in lines if day["reason"]]
    page.append(Facts(facts(result)))
    if result.is_over:
        limit = f"reconcile.threshold is {dollars(result.threshold)}"
        page.append(Facts([("Over", f"{_usd(result.total('unexplained'))} unexplained, and {limit}")]))
    page += _listed_doubts(result)
    page.append(Facts([("File", result.file)]))
    page.append(Listed("Next", resolving(result, config), are_commands=True))
    note = "Costs are of all keys of the project, and lag; the balance is of the whole workspace."
    return [*page, Line(note, tone=Tone.ASIDE, indent=2)]


def document(result: Reconciliation, config: str) -> Page:
    """The facts and the doubts beside the table of days; what comes first is what a card shows."""
    first = Line(f" between the accounts{_unexplained(result)}", strong=_usd(result.total("difference")))
    next_steps = Listed("Next", resolving(result, config), are_commands=True)
    return [first, Line(line(result)), Facts(facts(result)), *_listed_doubts(result), next_steps]


def days(result: Reconciliation) -> list[dict[str, str]]:
    """The days on which anything was quoted, answered or billed, as text; the last line is the total."""
    heads = {book: book.replace("_", " ") for book in _BOOKS}
    lines = [
        {"UTC day": f"{day.date}{' so far' if day.partial else ''}"}
        | {head: dollars(getattr(day, book)) for book, head in heads.items()}
        | {"reason": day.reason}
        for day in result.days
        if day.quoted or day.usage or day.billed
    ]
    unexplained = result.total("unexplained")
    reason = f"unexplained {dollars(unexplained)}" if unexplained else ""
    sums = {head: dollars(result.total(book)) for book, head in heads.items()}
    return [*lines, {"UTC day": "total"} | sums | {"reason": reason}]


def facts(result: Reconciliation) -> Iterator[Fact]:
    """The balances and the other batches."""
    if other_batches := result.total("other_batches"):
        yield "Others", f"other batches of this ledger: {_usd(other_batches)} of the usage"
    if result.beyond:
        difference = f"{_usd(abs(result.beyond))} {'more' if result.beyond > 0 else 'less'}"
        yield "Total", f"the service's own total is {difference} than the sum of its days"
    if result.credits:
        yield "Came back", f"{_usd(result.credits)}, by credits of this ledger's batches"
    balances = result.balances
    if balances is None:
        yield "Balance", "unknown before: no run has read it yet"
        return
    read_balances = (balances.before, balances.after)
    yield (
        "Balance",
        "; ".join(f"{_usd(balance.balance)} on {moment_in_words(balance.at)}" for balance in read_balances),
    )
    spent = f"{dollars(balances.usage)} by the answers, {dollars(balances.billed)} billed"
    amount = _paid_in(balances.gone) if balances.gone < 0 else _usd(balances.gone)
    yield "Gone", f"{amount}; in that time: {spent}"


def _listed_doubts(result: Reconciliation) -> Iterator[Listed]:
    """How many doubts there are of each verdict, and accepted videos; then the first of both, a line each."""
    doubts, accepted = result.doubts, result.accepted
    counts = Counter(open_doubt.verdict for open_doubt in doubts)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Judgement if counts[verdict])
    lines = [_line(doubt, doubt.verdict, result.batch) for doubt in doubts]
    yield Listed("Doubts", _first_of(f"{counted(len(doubts), 'doubt')}: {verdicts}", lines))
    head = "no doubt about money: a run with the right key asks the service again"
    lines = [_line(video, f"accepted as {video.doubt.generation_id}", result.batch) for video in accepted]
    yield Listed("Accepted", _first_of(f"{counted(len(accepted), 'video')}, {head}", lines))


def _line(open_doubt: OpenDoubt, status: str, own_batch: str) -> str:
    doubt = open_doubt.doubt
    batch = "" if open_doubt.batch == own_batch else f" of the batch {open_doubt.batch}"
    row = f"{status}: row {row_name(doubt.row_id, doubt.sample)}{batch}"
    return f"{open_doubt.day}  {doubt.job_key[:12]}  {_usd(doubt.price)}  {row}"


def _first_of(head: str, lines: list[str]) -> list[str]:
    """The first lines under their head; nothing where there are none."""
    tail = [f"and {len(lines) - _DOUBTS_LISTED:,} more: see --json"] if len(lines) > _DOUBTS_LISTED else []
    return [head, *lines[:_DOUBTS_LISTED], *tail] if lines else []


def resolving(result: Reconciliation, config: str) -> list[str]:
    """The commands with which a person can settle this batch's doubts; `config` is the config's path.

    Where the accounts do not decide, the command that lists the doubts with more evidence.
    """
    keys: defaultdict[Judgement, list[str]] = defaultdict(list)
    for open_doubt in result.doubts:
        if open_doubt.batch == result.batch:
            keys[open_doubt.verdict].append(open_doubt.doubt.job_key[:12])
    resolve = f"callsheet resolve {shlex.quote(config)}"
    reason = f"--why 'reconciled with billing/costs on {result.at:%Y-%m-%d}'"
    decided = [
        f"{resolve} {' '.join(dict.fromkeys(keys[verdict]))} --{verdict.replace(' ', '-')} {reason}"
        for verdict in (Judgement.CHARGED, Judgement.NOT_CHARGED)
        if keys[verdict]
    ]
    return [*decided, resolve] if keys[Judgement.UNCLEAR] else decided


def figures(result: Reconciliation, config: str) -> dict[str, Any]:
    """What `reconcile --json` prints, for the config with this path."""
    books, balances = (*_BOOKS, "unexplained"), result.balances

    def listed(open_doubt: OpenDoubt) -> dict[str, Any]:
        doubt = open_doubt.doubt
        return {
            "date": open_doubt.day,
            "batch": open_doubt.batch,
            "job_key": doubt.job_key,
            "row_id": doubt.row_id,
            "sample": doubt.sample,
            "quoted": doubt.price,
        }

    accepted = [listed(video) | {"generation_id": video.doubt.generation_id} for video in result.accepted]
    return {
        "batch": result.batch,
        "start": result.days[0].date,
        "end": result.days[-1].date,
        "currency": "USD",
        "days": [
            {name: getattr(day, name) for name in ("date", *books, "other_batches", "reason", "partial")}
            for day in result.days
        ],
        **{book: result.total(book) for book in books},
        "credits": result.credits,
        "beyond": result.beyond,
        "threshold": result.threshold,
        "is_over": result.is_over,
        "balance": balances
        and {
            "before": balances.before.balance,
            "before_at": balances.before.at,
            "after": balances.after.balance,
            "after_at": balances.after.at,
            "gone": balances.gone,
            "usage": balances.usage,
            "billed": balances.billed,
        },
        "doubts": [listed(open_doubt) | {"verdict": open_doubt.verdict} for open_doubt in result.doubts],
        "accepted": accepted,
        "resolve": resolving(result, config),
        "file": result.file,
    }


def _usd(amount: Decimal | None) -> str:
    """An amount with its currency, or that there is none."""
    return "unpriced" if amount is None else f"{dollars(amount)} USD"
