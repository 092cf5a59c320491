"""What is said of a quote: prices, what it comes to, limits, the time, and what a person should look at.

How long the service takes for a generation is not known, and not part of that time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.cells import rejects_in_words
from callsheet.ledger.gate import Obstacle
from callsheet.ledger.origins import hanging_in_words
from callsheet.ledger.words import Shown
from callsheet.plain_text import IN_MINUTES, counted, minutes_in_words, row_name
from callsheet.present import amounts, as_read
from callsheet.present.page import Fact, Facts, Line, Page, Table, Tone
from callsheet.present.reasons import REFUSES, TOMORROW, of_charges
from callsheet.pricing.downstream import Downstream
from callsheet.pricing.quote import Quote
from callsheet.records import ModelType, Record, dollars

SLOWEST_RPM, FASTEST_RPM = 10, 600
"""Submissions a minute that are assumed while the account's limit is not known."""

_COSTLIEST = 5  # rows
_REJECTS_ON_SCREEN, _REJECTS = 10, 20  # reasons
_FIRST = ("Source", "Buys", "Guessed")  # facts that stand above the prices


@dataclass(frozen=True, slots=True)
class QuotedBatch(Record):
    """What the rest of a batch costs (docs/commands.md, "JSON"). Money is in US dollars.

    `budget_*` are None without such a limit, `at_most` where a job to buy has no price, `pilot_*` without a
    pilot, and `first_request` where nothing can be bought.
    """

    batch: str
    rows: int
    rejected_rows: int
    jobs: int
    already_bought: int
    to_buy: int
    unpriced: int
    quoted: Decimal
    at_most: Decimal | None
    budget_limit: Decimal | None
    budget_left: Decimal | None
    budget_per_day: Decimal | None
    budget_left_today: Decimal | None
    budget_ledger: Decimal | None
    budget_left_ledger: Decimal | None
    fits: int
    pilot_to_buy: int | None
    pilot_quoted: Decimal | None
    balance: Decimal | None
    currency: str
    plan: str
    rejects: str
    warnings: list[str]
    old_files: list[str]
    notes: list[str]
    media: dict[str, int]
    guessed: dict[str, dict[str, Any]]
    columns: dict[str, str]
    carried: list[str]
    unused: list[dict[str, str]]
    first_request: dict[str, Any] | None
    repeated: int


def figures(quote: Quote) -> QuotedBatch:
    """What `quote --json` prints."""
    plan, first = quote.plan, as_read.requests(quote.table, "1")
    return QuotedBatch(
        batch=plan.batch,
        rows=plan.rows,
        rejected_rows=plan.rejected_rows,
        jobs=plan.jobs,
        already_bought=quote.already_bought,
        to_buy=quote.to_buy,
        unpriced=plan.unpriced_rows,
        quoted=quote.quoted,
        at_most=None if quote.without_price else quote.at_most,
        budget_limit=quote.budget.limit,
        budget_left=quote.budget_left,
        budget_per_day=quote.budget.per_day,
        budget_left_today=quote.day_left,
        budget_ledger=quote.budget.ledger,
        budget_left_ledger=quote.ledger_left,
        fits=quote.fits,
        pilot_to_buy=quote.pilot.to_buy if quote.pilot else None,
        pilot_quoted=quote.pilot.quoted if quote.pilot else None,
        balance=quote.balance,
        currency="USD",
        plan=str(plan.path),
        rejects=quote.rejects,
        warnings=warnings(quote),
        old_files=list(quote.old_files),
        notes=list(plan.notes),
        media={f"{model_type.value}s": quote.to_buy_of(model_type) for model_type in ModelType},
        guessed={name: guess.model_dump() for name, guess in quote.guessed.items()},
        columns=dict(plan.columns.used),
        carried=list(plan.columns.carried),
        unused=[{"column": name, "looks_like": meaning} for name, meaning in plan.columns.unused.items()],
        first_request=first[0][1] if first else None,
        repeated=as_read.repeated(plan)[0],
    )


def line(quote: Quote) -> str:
    """The quote in one line."""
    fitting = f" ({quote.fits} fit into budget and balance)" if quote.fitting.obstacle else ""
    balance = "" if quote.balance is None else f"; balance {dollars(quote.balance)} USD"
    return (
        f"{quote.plan.jobs} jobs: {quote.to_buy} to buy for {dollars(quote.quoted)} USD{fitting}, "
        f"{quote.already_bought} already bought{balance}"
    )


def shown(quote: Quote) -> Shown:
    """What a person is shown of it before it is bought."""
    return Shown(
        plan=quote.plan.sha256(),
        jobs=quote.to_buy,
        quoted=quote.quoted,
        at_most=quote.at_most,
        sent_with_price=quote.basis.sent_with_price,
        unpriced=quote.without_price,
        repeats=_likely_repeats(quote) if quote.must_look_at_repeats else "",
        guesses=_guesses(quote),
        unclear=quote.plan.unclear,
        new_rates=tuple(quote.changes()),
        rates=tuple(quote.rates().values()),
        charges=quote.basis.to_accept,
        keys=quote.keys,
        part=quote.part,
        is_rest=quote.is_rest,
        fits=quote.fits,
    )


def warnings(quote: Quote) -> list[str]:
    """What a person should look at before anything is bought."""
    return [*filter(None, (_likely_repeats(quote), quote.warning))]


def _likely_repeats(quote: Quote) -> str:
    """How many of the jobs to buy look like what the batch has bought; empty if none."""
    if not quote.repeats:
        return ""
    looks = "looks like one" if quote.repeats == 1 else "look like some"
    of_jobs = f"{quote.repeats:,} of {counted(quote.to_buy, 'job')} to buy"
    return f"{of_jobs} {looks} that this batch has bought under another id, or with another prompt or image"


def _guesses(quote: Quote) -> dict[str, str]:
    """What `callsheet init` has guessed, in words by setting."""
    return {name: _guess(name, guess.taken, guess.others) for name, guess in quote.guessed.items()}


def _guess(setting: str, taken: str, others: Sequence[str]) -> str:
    """What is guessed of a setting, and what else it may be."""
    if setting == "media":
        return f"{taken}, not {' or '.join(others)}"
    names = ["no images" if (setting, name) == ("images", "none") else repr(name) for name in others]
    also = f" (also: {', '.join(names)})" if others else ""
    if setting in ("prompt", "images"):
        text = "no images are sent" if taken == "none" else f"{setting} from {taken!r}"
        return f"{text}{also}"
    return f"{setting} {taken}{also.replace(chr(39), '')}"


def screen(quote: Quote, show: str | None = None) -> Page:
    """Prices, sums, rejects, and the first rows, or in their place the requests that `show` names.

    Raises:
        InputError: see `as_read.requests`.
    """
    quote_facts, prices = facts(quote), in_few_columns(quote, "bought", "to buy", "each", "USD")
    page: Page = [Line(strong=quote.plan.batch)]
    if not quote.plan.jobs:
        why = "every row is rejected" if quote.plan.rejected_rows else "no row is left"
        page.append(Line(f"Nothing to buy: {why}.", tone=Tone.WARNING))
    page += [
        Facts(fact for fact in quote_facts if fact[0] in _FIRST),
        Table(prices, ("model", "what"), more="more prices"),
        Facts(fact for fact in quote_facts if fact[0] not in _FIRST),
        Table(costliest(quote), ("costliest row",)),
    ]
    if show is None:
        page.append(Table(as_read.first_rows(quote.table), ("row", "prompt", "images", "settings")))
    for row, request in as_read.requests(quote.table, show) if show is not None else ():
        page.append(Facts([("Request", f"{row}, as it would be sent:")]))
        page += [Line(text, tone=Tone.ASIDE, indent=4) for text in as_read.in_lines(request)]
    page += _rejects(quote)
    if quote.plan.jobs and not quote.to_buy and not quote.held:
        page.append(Line("Nothing to buy: everything is bought already.", tone=Tone.GOOD))
    return page


def _rejects(quote: Quote) -> Page:
    """What is wrong with which line, and where all of it is if some is left out."""
    rejects = rejects_in_words(quote.plan.rejects)
    first = rejects[:_REJECTS_ON_SCREEN]
    page: Page = [Line(reject, tone=Tone.WARNING, indent=2) for reject in first]
    if left_out := len(rejects) - len(first):
        page.append(Line(f"and {counted(left_out, 'more reason')}", indent=2))
    if quote.plan.rejects.height > len(first):
        page.append(Line(f"All are in {quote.rejects}.", indent=2))
    return page


def document(quote: Quote) -> Page:
    """The facts beside the table of prices; what comes first is what a card shows."""
    sum_first = Line(f" for {counted(quote.to_buy, 'job')}", strong=f"{dollars(quote.quoted)} USD")
    return [sum_first, *facts_in_order(quote, rejects_in_words(quote.plan.rejects))]


def facts_in_order(quote: Quote, rejects: list[str]) -> Page:
    """What is wrong and what would be sent come first: of a long text a dialog shows the beginning."""
    return [
        Facts(("Rejected", reject) for reject in rejects[:_REJECTS]),
        Table(as_read.first_rows(quote.table)),
        Facts(facts(quote)),
        Table(costliest(quote)),
    ]


def table(quote: Quote) -> list[dict[str, str]]:
    """`price_lines` of a quote, with every value as text."""
    return [
        {
            "model": line["model"],
            "resolution": line["resolution"] or "",
            "duration": f"{line['duration']} s" if line["duration"] else "",
            "sound": {True: "on", False: "off", None: ""}[line["sound"]],
            "jobs": f"{line['jobs']:,}",
            "bought": f"{line['already_bought']:,}",
            "to buy": f"{line['to_buy']:,}",
            "each": dollars(line["each"]) if line["each"] is not None else "unpriced",
            "USD": dollars(line["total"]) if line["total"] is not None else "",
        }
        for line in quote.price_lines.iter_rows(named=True)
    ]


def in_few_columns(quote: Quote, *numbers: str) -> list[dict[str, str]]:
    """The same with what a model makes in one column, and these columns of numbers."""
    lines = []
    for line in table(quote):
        output = (line["resolution"], line["duration"], line["sound"] and f"sound {line['sound']}")
        cells = {"model": line["model"], "what": ", ".join(filter(None, output))}
        lines.append(cells | {name: line[name] for name in numbers})
    return lines


def facts(quote: Quote) -> list[Fact]:
    """What a person needs to know of a quote besides its table: names and texts."""
    plan, pilot = quote.plan, quote.pilot
    unpriced = f", {plan.unpriced_rows:,} without a price" if plan.unpriced_rows else ""
    left_out = f", {plan.left_out:,} left out by input.where" if plan.left_out else ""
    rejected = rejected_in_words(plan.rejected_rows, plan.rejected_in_part)
    held = f", {quote.held:,} failed or in doubt and not bought again" if quote.held else ""
    left_for_later = quote.left_out.total()
    later = f"{counted(left_for_later, 'other job')} {'is' if left_for_later == 1 else 'are'} left for later"
    first = amounts.jobs_for(pilot.to_buy, pilot.quoted) if pilot and pilot.to_buy else ""
    types = quote.price_lines.group_by("type").agg(pl.col("to_buy").sum())
    all_facts = [
        *(("Source", old_file) for old_file in quote.old_files),
        ("Buys", as_read.buys(quote.table)),
        ("Guessed", "; ".join(_guesses(quote).values())),
        ("Rows", f"{plan.rows:,} read, {rejected}{unpriced}{left_out}"),
        *as_read.of_file(plan),
        ("Jobs", f"{plan.jobs:,}: {quote.to_buy:,} to buy, {quote.already_bought:,} already bought{held}"),
        ("Chosen", f"{quote.choice.line()}; {later}" if quote.choice else ""),
        ("Pilot", f"{first}; then somebody is asked whether to buy the rest" if first else ""),
        ("To pay", f"{dollars(quote.quoted)} USD"),
        ("At most", _at_most(quote)),
        ("Charges", of_charges(quote.basis.to_accept)),
        *_limits(quote),
        ("Balance", _balance(quote)),
        ("Fits", _fits(quote)),
        ("Time", submission_time(dict(types.iter_rows()), quote.rpm)),
        *(("Note", note) for note in plan.notes),
        *(("Changed", change) for change in quote.changes()),
        *(("Warning", warning) for warning in warnings(quote)),
    ]
    return [(name, text) for name, text in all_facts if text]


def rejected_in_words(rows: int, in_part: int) -> str:
    """How many rows are rejected, and how many of them in part: `3 rejected, 2 of them in part`."""
    return f"{rows:,} rejected{f', {in_part:,} of them in part' if in_part else ''}"


def _at_most(quote: Quote) -> str:
    unpriced = ""
    if quote.without_price:
        unpriced = f"not known: {amounts.have_no_price(quote.without_price, ' of those to buy')}; the others "
    elif quote.at_most <= quote.quoted:
        return ""
    again = f"; a job in doubt may be bought {quote.tries} times in all" if quote.tries > 1 else ""
    rejected = f"; what is rejected is bought again, up to {quote.samples} samples" if quote.samples else ""
    return f"{unpriced}{dollars(quote.at_most)} USD{again}{rejected}"


def _limits(quote: Quote) -> Iterator[Fact]:
    """Each limit of the config, and what is left of it."""
    budget = quote.budget
    spent = amounts.used(quote.totals.spent, quote.totals.sent)
    if budget.limit is None or quote.budget_left is None:
        yield "Budget", f"no limit: {spent}"
    else:
        left = f"{dollars(quote.budget_left)} left"
        yield "Budget", f"limit {dollars(budget.limit)} USD: {spent}, {left}"
    if budget.ledger is not None and quote.ledger_left is not None:
        used = f"{dollars(quote.basis.used_ever)} used by {counted(quote.basis.used_by, 'batch', 'batches')}"
        left = f"{dollars(quote.ledger_left)} left"
        yield "Ledger", f"budget.ledger is {dollars(budget.ledger)} USD over all batches: {used}, {left}"
    if budget.per_day is not None and quote.day_left is not None:
        left = f"{dollars(quote.basis.used_today)} used, {dollars(quote.day_left)} left until midnight UTC"
        yield "Today", f"budget.per_day is {dollars(budget.per_day)} USD over all batches: {left}"


def _balance(quote: Quote) -> str:
    if quote.balance is None:
        return ""
    missing = quote.quoted - quote.balance
    difference = "enough for the quote" if missing <= 0 else f"{dollars(missing)} USD less than the quote"
    return f"{dollars(quote.balance)} USD, {difference}"


def _fits(quote: Quote) -> str:
    limit = quote.fitting.obstacle
    if limit is None:
        return ""
    cause = {Obstacle.LEDGER: ", because of budget.ledger", Obstacle.DAY: " today, because of budget.per_day"}
    stop = f"then the {'balance' if limit is Obstacle.BALANCE else 'budget'} stops the buying"
    if limit is Obstacle.PURSE:
        stop = "then a person is asked, because of the purse"
    if limit is Obstacle.DAY:
        stop = f"the {TOMORROW}"
    outcome = {
        "stop": stop,
        "skip": "the others are left out",
        "refuse": f"nothing is bought, {REFUSES}",
    }
    priced_jobs = quote.to_buy - quote.without_price
    return f"{quote.fits:,} of {priced_jobs:,} jobs{cause.get(limit, '')}; {outcome[quote.budget.on_exceed]}"


def downstream_screen(downstream: Downstream) -> Page:
    """What hangs on a kept file, and what it would cost to choose another."""
    made_from, images, videos = downstream.made_from, 0, 0
    lines = []
    for of_batch in downstream.batches:
        images, videos = images + of_batch.images, videos + of_batch.videos
        numbers = {"stills": of_batch.images, "films": of_batch.videos, "bought": of_batch.bought}
        counts = {name: f"{number:,}" for name, number in numbers.items()}
        line = {"batch": of_batch.batch, "config": of_batch.config, **counts}
        lines.append(line | {"USD": dollars(of_batch.price), "USD again": dollars(of_batch.quoted)})
    hang = hanging_in_words(images, videos)
    file = f" ({made_from['row']} of {made_from['batch']})"
    again = amounts.jobs_for(downstream.bought, downstream.quoted)
    in_its_place = f"{again}, if another file were kept in its place"
    facts = [("To buy again", in_its_place if downstream.bought else "")]
    facts += [("Left out", f"{config}: {reason}") for config, reason in downstream.left_out.items()]
    return [
        Line(f"{file}: {hang} on it", strong=downstream.file),
        Table(lines, ("batch", "config"), limit=len(lines)),
        Facts(facts),
    ]


def costliest(quote: Quote) -> list[dict[str, str]]:
    """The rows that cost most, with every value as text; none where all have one price."""
    if quote.price_lines.height < 2:
        return []
    sums = [pl.col("line").min(), pl.len().alias("jobs"), pl.col("price").sum().alias("total")]
    rows = quote.table.filter("to_buy").group_by("row_id").agg(sums)
    rows = rows.sort("total", "line", descending=[True, False]).head(_COSTLIEST)
    return [
        {"costliest row": row_name(row_id, line=line), "line": str(line)}
        | {"jobs": f"{jobs:,}", "USD": dollars(total)}
        for row_id, line, jobs, total in rows.iter_rows()
    ]


def submission_time(to_buy: Mapping[str, int], rpm: Mapping[str, int]) -> str:
    """The time that the submissions take, in words; by model type, jobs to buy and submissions a minute.

    Images and videos are submitted at the same time. A type whose limit is not known has no `rpm`.
    """
    jobs = {model_type: count for model_type, count in to_buy.items() if count}
    if not jobs:
        return "0 min: nothing to buy"
    # The first window opens at once, each later one after a minute.
    shortest, longest = (
        max(max(1, -(-count // rpm.get(model_type, assumed)) - 1) for model_type, count in jobs.items())
        for assumed in (FASTEST_RPM, SLOWEST_RPM)
    )
    if longest == 1:
        return "about 1 min"
    if shortest == longest:
        return f"at least {minutes_in_words(shortest)}, by the limits a minute"
    unknown = " and ".join(f"{model_type}s" for model_type in sorted(jobs.keys() - rpm.keys()))
    first = str(shortest) if longest < IN_MINUTES else minutes_in_words(shortest)
    return (
        f"{first} to {minutes_in_words(longest)}; the account's limit of {unknown} a minute is not known "
        f"yet, {SLOWEST_RPM} to {FASTEST_RPM} is assumed"
    )
