"""A quote as people read it: its table, what is to be known besides, and how long the submissions take.

How long the service takes for a generation is not known, and not part of that time.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from callsheet.plain_text import counted, row_name
from callsheet.pricing import first_look
from callsheet.pricing.quote import Quote
from callsheet.records import dollars

SLOWEST_RPM, FASTEST_RPM = 10, 600
"""Submissions a minute that are assumed while the account's limit is not known."""

_IN_MINUTES = 90  # a time below is said in minutes alone
_PARTICULARS = r"\d+|did you mean .*"  # differ from line to line, and do not make another reason


def as_table(quote: Quote) -> list[dict[str, str]]:
    """`lines` of a quote, with every value as text."""
    return [
        {
            "model": line["model"],
            "resolution": line["resolution"] or "",
            "duration": f"{line['duration']} s" if line["duration"] else "",
            "sound": {True: "on", False: "off", None: ""}[line["sound"]],
            "jobs": f"{line['jobs']:,}",
            "bought": f"{line['bought']:,}",
            "to buy": f"{line['to_buy']:,}",
            "each": dollars(line["each"]) if line["each"] is not None else "unpriced",
            "USD": dollars(line["total"]) if line["total"] is not None else "",
        }
        for line in quote.lines.iter_rows(named=True)
    ]


def in_few_columns(quote: Quote, *numbers: str) -> list[dict[str, str]]:
    """The same with what a model makes in one column, and these columns of numbers."""
    return [
        {
            "model": line["model"],
            "what": ", ".join(
                filter(
                    None, (line["resolution"], line["duration"], line["sound"] and f"sound {line['sound']}")
                )
            ),
            **{name: line[name] for name in numbers},
        }
        for line in as_table(quote)
    ]


def as_facts(quote: Quote) -> list[tuple[str, str]]:
    """What a person needs to know of a quote besides its table: names and texts."""
    plan = quote.plan
    unpriced = f", {plan.unpriced:,} without a price" if plan.unpriced else ""
    left_out = f", {plan.left_out:,} left out by input.where" if plan.left_out else ""
    held = f", {quote.held:,} failed or in doubt and not bought again" if quote.held else ""
    others = f"{counted(quote.left_out, 'other job')} {'is' if quote.left_out == 1 else 'are'} left for later"
    missing = quote.quoted - quote.balance
    enough = "enough for the quote" if missing <= 0 else f"{dollars(missing)} USD less than the quote"
    types = quote.lines.group_by("type").agg(pl.col("to_buy").sum())
    facts = [
        ("Buys", first_look.buys(quote.table)),
        ("Guessed", first_look.guessed(quote.guessed)),
        ("Rows", f"{plan.rows:,} read, {plan.rejected_rows:,} rejected{unpriced}{left_out}"),
        *first_look.facts(plan),
        ("Jobs", f"{plan.jobs:,}: {quote.to_buy:,} to buy, {quote.already_bought:,} already bought{held}"),
        ("Chosen", f"{quote.choice.line()}; {others}" if quote.choice else ""),
        ("Pilot", _pilot(quote)),
        ("To pay", f"{dollars(quote.quoted)} USD"),
        ("At most", _at_most(quote)),
        ("Budget", _budget(quote)),
        ("Ledger", _ledger(quote)),
        ("Today", _today(quote)),
        ("Balance", f"{dollars(quote.balance)} USD, {enough}"),
        ("Fits", _fits(quote)),
        ("Time", submission_time(dict(types.iter_rows()), quote.rpm)),
        *(("Note", note) for note in plan.notes),
        *(("Changed", change) for change in quote.changes()),
        *(("Warning", warning) for warning in quote.warnings),
    ]
    return [(name, fact) for name, fact in facts if fact]


def rejects_in_words(rejects: pl.DataFrame) -> list[str]:
    """The rejects of a plan by column and reason, the first line of each, and how many more there are."""
    alike = pl.col("reason").str.replace_all(_PARTICULARS, "#")
    groups = rejects.group_by("column", alike.alias("alike"), maintain_order=True).agg(
        pl.col("line").first(), pl.col("reason").first(), pl.len().alias("rows")
    )
    return [
        ", ".join(filter(None, (f"line {line}", column)))
        + f": {reason}"
        + (f" (and {counted(rows - 1, 'line')} more)" if rows > 1 else "")
        for column, _, line, reason, rows in groups.iter_rows()
    ]


def _pilot(quote: Quote) -> str:
    if not quote.pilot or not quote.pilot.to_buy:
        return ""
    first = f"{counted(quote.pilot.to_buy, 'job')} for {dollars(quote.pilot.quoted)} USD"
    return f"{first}; then somebody is asked whether to buy the rest"


def _at_most(quote: Quote) -> str:
    if quote.at_most <= quote.quoted:
        return ""
    again = f"; a job in doubt may be bought {quote.tries} times in all" if quote.tries > 1 else ""
    rejected = f"; what is rejected is bought again, up to {quote.samples} samples" if quote.samples else ""
    dearer = f"; {quote.charged.in_words()}" if quote.dearer else ""
    return f"{dollars(quote.at_most)} USD{again}{rejected}{dearer}"


def _budget(quote: Quote) -> str:
    sent, spent = quote.totals.sent, quote.totals.spent
    amounts = f"{dollars(spent)} spent, {dollars(sent - spent)} in flight or in doubt"
    if quote.budget.limit is None or quote.budget_left is None:
        return f"no limit: {amounts}"
    return f"limit {dollars(quote.budget.limit)} USD: {amounts}, {dollars(quote.budget_left)} left"


def _ledger(quote: Quote) -> str:
    if quote.budget.ledger is None or quote.ledger_left is None:
        return ""
    used = f"{dollars(quote.used_ever)} used by {counted(quote.used_by, 'batch', 'batches')}"
    limit = f"budget.ledger is {dollars(quote.budget.ledger)} USD over all batches"
    return f"{limit}: {used}, {dollars(quote.ledger_left)} left"


def _today(quote: Quote) -> str:
    if quote.budget.per_day is None or quote.day_left is None:
        return ""
    left = f"{dollars(quote.used_today)} used, {dollars(quote.day_left)} left until midnight UTC"
    return f"budget.per_day is {dollars(quote.budget.per_day)} USD over all batches: {left}"


def _fits(quote: Quote) -> str:
    if quote.fits >= quote.to_buy:
        return ""
    limit, stop = quote.exposure_limit
    why, then, left = "", f"then the {stop.reason} stops the buying", limit - quote.totals.sent
    if quote.ledger_left is not None and quote.ledger_left < left:
        why, then, left = ", because of budget.ledger", "then the budget stops the buying", quote.ledger_left
    if quote.day_left is not None and quote.day_left < left:
        why, then = " today, because of budget.per_day", "the same command goes on after midnight UTC"
    outcome = {
        "stop": then,
        "skip": "the others are left out",
        "refuse": "nothing is bought, because budget.on_exceed is 'refuse'",
    }
    return f"{quote.fits:,} of {quote.to_buy:,} jobs{why}; {outcome[quote.budget.on_exceed]}"


def costliest(quote: Quote) -> list[dict[str, str]]:
    """The rows that cost most, with every value as text; none where all have one price."""
    if quote.lines.height < 2:
        return []
    return [
        {
            "costliest row": row_name(row_id, line=line),
            "line": str(line),
            "jobs": f"{jobs:,}",
            "USD": dollars(total),
        }
        for row_id, line, jobs, total in quote.most_expensive.iter_rows()
    ]


def submission_time(to_buy: Mapping[str, int], rpm: Mapping[str, int]) -> str:
    """The time that the submissions take, in words; by model type, jobs to buy and submissions a minute.

    Images and videos are submitted at the same time. A type whose limit is not known has no `rpm`.
    """
    jobs = {model_type: count for model_type, count in to_buy.items() if count}
    if not jobs:
        return "0 min: nothing to buy"
    shortest = max(_minutes(count, rpm.get(model_type, FASTEST_RPM)) for model_type, count in jobs.items())
    longest = max(_minutes(count, rpm.get(model_type, SLOWEST_RPM)) for model_type, count in jobs.items())
    if longest == 1:
        return "about 1 min"
    if shortest == longest:
        return f"at least {_long(shortest)}, by the limits a minute"
    unknown = " and ".join(f"{model_type}s" for model_type in sorted(jobs.keys() - rpm.keys()))
    first = str(shortest) if longest < _IN_MINUTES else _long(shortest)
    return (
        f"{first} to {_long(longest)}; the account's limit of {unknown} a minute is not known yet, "
        f"{SLOWEST_RPM} to {FASTEST_RPM} is assumed"
    )


def _minutes(jobs: int, rpm: int) -> int:
    """Minutes until the last submission: the first window opens at once, each later one after a minute."""
    return max(1, -(-jobs // rpm) - 1)


def in_words(seconds: float) -> str:
    """A time that people read: `40 s`, `12 min`, `3 h 5 min`, `1 day 9 h`."""
    return f"{seconds:.0f} s" if seconds < 90 else _long(round(seconds / 60))


def _long(minutes: int) -> str:
    """A time of whole minutes; in days and hours where it is more than a day."""
    if minutes < _IN_MINUTES:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return counted(days, "day") + (f" {hours} h" if hours else "")
