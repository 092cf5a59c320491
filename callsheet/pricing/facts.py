"""A quote as people and programs read it: its table, what is bought, how the file was read, and the time.

How long the service takes for a generation is not known, and not part of that time. It buys nothing, and
writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.batches import columns
from callsheet.batches.columns import Columns
from callsheet.cells import IMAGE_COLUMNS
from callsheet.config.settings import COLUMNS
from callsheet.errors import InputError
from callsheet.ledger.charges import in_words as in_words_of_charges
from callsheet.ledger.gate import Obstacle
from callsheet.plain_text import and_more, counted, printable, row_name
from callsheet.pricing.choice import row_id_of
from callsheet.pricing.plan import Plan
from callsheet.pricing.quote import Quote
from callsheet.records import ModelType, Record, dollars

SLOWEST_RPM, FASTEST_RPM = 10, 600
"""Submissions a minute that are assumed while the account's limit is not known."""

_COSTLIEST = 5  # rows
_IN_MINUTES = 90  # a time below is said in minutes alone
_PARTICULARS = r"\d+|did you mean .*"  # differ from line to line, and do not make another reason

_LONGEST_TEXT = 5_000  # characters of a request's text that are shown; a prompt has at most 4,096
_SHORT = 60  # characters of a prompt in a table
_NAMED = 12  # columns
_FIRST = 3  # rows
_MADE = (ModelType.IMAGE, ModelType.VIDEO)

_RATIOS = "1:1|16:9|9:16|4:3|3:4|3:2|2:3|4:5|5:4|21:9"
_TAG = r"(?i)</?(?:p|br|ul|ol|li|div|span|strong|em|b|i|h[1-6]|a|img|table|tr|td)(?:\s[^>]*)?/?>"
_NO_PROMPT = (
    r"^[\s=_*#~.+-]+$|"  # a rule
    r"^[^\p{Ll}\p{Lo}]{0,40}\p{Lu}[^\p{Ll}\p{Lo}]{0,40}$|"  # all in capitals: a heading
    r"(?i)^(?:paragraph|scene|shot|clip|part|chapter|page|slide|szene|scène|escena)\s*\d+\s*[:.]?$|"
    r"(?i)^(?:total|sum|date|title|author|project|exported|generated|summe|gesamt|datum)\b[^.!?]{0,40}$"
)
_ODD = (
    (r"\s--[A-Za-z]", "with flags such as --ar 16:9", ""),
    (r"^(?:#|//)", "with # or // first", '; input.comments: "#" leaves them out'),
    (r"(?i)^/imagine\b", "with /imagine", ""),
    (_TAG, "with HTML tags", ""),
    (r"\{\{?\s*[A-Za-z_][\w ]*\}?\}", "with a placeholder such as {name}", "; input.template fills them"),
    (_NO_PROMPT, "that look like headings, rules or labels", ""),
)
"""What in a prompt may be a mistake: a pattern, what it is, and what to do."""


@dataclass(frozen=True, slots=True)
class QuotedBatch(Record):
    """What the rest of a batch costs (docs/commands.md, "JSON"). Money is in US dollars.

    `budget_*` are None without such a limit, `at_most` where a job to buy has no price, `pilot_*` without a
    pilot, and `first_request` where nothing
    can be bought.
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
    plan, first = quote.plan, requests(quote.table, "1")
    return QuotedBatch(
        batch=plan.batch,
        rows=plan.rows,
        rejected_rows=plan.rejected_rows,
        jobs=plan.jobs,
        already_bought=quote.already_bought,
        to_buy=quote.to_buy,
        unpriced=plan.unpriced,
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
        warnings=list(quote.warnings),
        notes=list(plan.notes),
        media={f"{model_type.value}s": quote.to_buy_of(model_type) for model_type in _MADE},
        guessed={name: guess.model_dump() for name, guess in quote.guessed.items()},
        columns=dict(plan.columns.used),
        carried=list(plan.columns.carried),
        unused=[{"column": name, "looks_like": meaning} for name, meaning in plan.columns.unused.items()],
        first_request=first[0][1] if first else None,
        repeated=_repeated(plan)[0],
    )


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
    lines = []
    for line in as_table(quote):
        output = (line["resolution"], line["duration"], line["sound"] and f"sound {line['sound']}")
        cells = {"model": line["model"], "what": ", ".join(filter(None, output))}
        lines.append(cells | {name: line[name] for name in numbers})
    return lines


def as_facts(quote: Quote) -> list[tuple[str, str]]:
    """What a person needs to know of a quote besides its table: names and texts."""
    plan, pilot = quote.plan, quote.pilot
    unpriced = f", {plan.unpriced:,} without a price" if plan.unpriced else ""
    left_out = f", {plan.left_out:,} left out by input.where" if plan.left_out else ""
    held = f", {quote.held:,} failed or in doubt and not bought again" if quote.held else ""
    later = f"{counted(quote.left_out, 'other job')} {'is' if quote.left_out == 1 else 'are'} left for later"
    first = (
        f"{counted(pilot.to_buy, 'job')} for {dollars(pilot.quoted)} USD" if pilot and pilot.to_buy else ""
    )
    types = quote.lines.group_by("type").agg(pl.col("to_buy").sum())
    facts = [
        ("Buys", _buys(quote.table)),
        ("Guessed", "; ".join(quote.shown_guesses().values())),
        ("Rows", f"{plan.rows:,} read, {plan.rejected_rows:,} rejected{unpriced}{left_out}"),
        *_of_file(plan),
        ("Jobs", f"{plan.jobs:,}: {quote.to_buy:,} to buy, {quote.already_bought:,} already bought{held}"),
        ("Chosen", f"{quote.choice.line()}; {later}" if quote.choice else ""),
        ("Pilot", f"{first}; then somebody is asked whether to buy the rest" if first else ""),
        ("To pay", f"{dollars(quote.quoted)} USD"),
        ("At most", _at_most(quote)),
        *_limits(quote),
        ("Balance", _balance(quote)),
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


def _at_most(quote: Quote) -> str:
    unpriced = ""
    if quote.without_price:
        unpriced = (
            f"not known: {counted(quote.without_price, 'job')} of those to buy have no price; the others "
        )
    elif quote.at_most <= quote.quoted:
        return ""
    again = f"; a job in doubt may be bought {quote.tries} times in all" if quote.tries > 1 else ""
    rejected = f"; what is rejected is bought again, up to {quote.samples} samples" if quote.samples else ""
    dearer = f"; {in_words_of_charges(quote.said.to_accept)}" if quote.said.to_accept else ""
    return f"{unpriced}{dollars(quote.at_most)} USD{again}{rejected}{dearer}"


def _limits(quote: Quote) -> Iterator[tuple[str, str]]:
    """Each limit of the config, and what is left of it."""
    budget, spent = quote.budget, quote.totals.spent
    amounts = f"{dollars(spent)} spent, {dollars(quote.totals.sent - spent)} in flight or in doubt"
    if budget.limit is None or quote.budget_left is None:
        yield "Budget", f"no limit: {amounts}"
    else:
        left = f"{dollars(quote.budget_left)} left"
        yield "Budget", f"limit {dollars(budget.limit)} USD: {amounts}, {left}"
    if budget.ledger is not None and quote.ledger_left is not None:
        used = f"{dollars(quote.said.used_ever)} used by {counted(quote.said.used_by, 'batch', 'batches')}"
        left = f"{dollars(quote.ledger_left)} left"
        yield "Ledger", f"budget.ledger is {dollars(budget.ledger)} USD over all batches: {used}, {left}"
    if budget.per_day is not None and quote.day_left is not None:
        left = f"{dollars(quote.said.used_today)} used, {dollars(quote.day_left)} left until midnight UTC"
        yield "Today", f"budget.per_day is {dollars(budget.per_day)} USD over all batches: {left}"


def _balance(quote: Quote) -> str:
    if quote.balance is None:
        return ""
    missing = quote.quoted - quote.balance
    difference = "enough for the quote" if missing <= 0 else f"{dollars(missing)} USD less than the quote"
    return f"{dollars(quote.balance)} USD, {difference}"


def _fits(quote: Quote) -> str:
    if quote.fits >= quote.to_buy - quote.without_price:
        return ""
    room = quote.said.room
    limit = min(room, key=lambda obstacle: room[obstacle])
    cause = {Obstacle.LEDGER: ", because of budget.ledger", Obstacle.DAY: " today, because of budget.per_day"}
    stop = f"then the {'balance' if limit is Obstacle.BALANCE else 'budget'} stops the buying"
    if limit is Obstacle.DAY:
        stop = "the same command goes on after midnight UTC"
    outcome = {
        "stop": stop,
        "skip": "the others are left out",
        "refuse": "nothing is bought, because budget.on_exceed is 'refuse'",
    }
    return f"{quote.fits:,} of {quote.to_buy:,} jobs{cause.get(limit, '')}; {outcome[quote.budget.on_exceed]}"


def costliest(quote: Quote) -> list[dict[str, str]]:
    """The rows that cost most, with every value as text; none where all have one price."""
    if quote.lines.height < 2:
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
        return f"at least {_long(shortest)}, by the limits a minute"
    unknown = " and ".join(f"{model_type}s" for model_type in sorted(jobs.keys() - rpm.keys()))
    first = str(shortest) if longest < _IN_MINUTES else _long(shortest)
    return (
        f"{first} to {_long(longest)}; the account's limit of {unknown} a minute is not known yet, "
        f"{SLOWEST_RPM} to {FASTEST_RPM} is assumed"
    )


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


# ---- what is bought, and how the file was read


def requests(jobs: pl.DataFrame, show: str) -> list[tuple[str, dict[str, Any]]]:
    """Requests as they would be sent, each with its row's name; images that are inlined later as their hash.

    Args:
        jobs: those of a plan, with their standing (`Quote.table`).
        show: how many of the first that are to buy, or which row's (`plan.row_id_of`).

    Raises:
        InputError: the plan has no such row, or several on a line.
    """
    jobs = jobs.filter(pl.col("request").is_not_null())
    first = (
        jobs.filter("to_buy").head(min(int(show), jobs.height))
        if show.isdecimal()
        else jobs.filter(row_id=row_id_of(show, jobs))
    )
    if first.is_empty() and not show.isdecimal():
        raise InputError(
            f"the batch has no row {show} that can be bought", hint="Give a row's id, or a number."
        )
    return [
        (row_name(row_id, sample, line), _cut(json.loads(request)))
        for row_id, sample, line, request in first.select("row_id", "sample", "line", "request").iter_rows()
    ]


def in_lines(request: dict[str, Any]) -> list[str]:
    """A request as JSON on several lines, for people."""
    return [printable(line) for line in json.dumps(request, indent=2, ensure_ascii=False).split("\n")]


def _cut(value: Any) -> Any:
    """JSON in which no text is longer than a prompt: an image as a data URL has millions of characters."""
    if isinstance(value, dict):
        return {name: _cut(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_cut(entry) for entry in value]
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f"{value[:60]}… ({len(value):,} characters)"
    return value


def _repeated(plan: Plan) -> tuple[int, Decimal]:
    """How many rows ask for what a row before them asks for, and the price of their jobs, in dollars."""
    jobs = plan.table.filter(pl.col("request").is_not_null()).select("row_id", "sample", "request", "price")
    again = jobs.filter(~pl.struct("request", "sample").is_first_distinct())
    return again["row_id"].n_unique(), Decimal(again["price"].sum() or 0)


def _buys(jobs: pl.DataFrame) -> str:
    """What is bought, in words: `40 images (sketch-1, 16:9) of 40 rows`; empty where nothing is."""
    jobs = jobs.filter("to_buy").with_columns(ratio=_ratio())
    parts = []
    for of_type in _MADE:
        to_buy = jobs.filter(type=of_type.value)
        if to_buy.is_empty():
            continue
        seconds = to_buy["duration"].drop_nulls().unique()
        models = to_buy["model"].unique(maintain_order=True)
        details = [models[0] if models.len() == 1 else f"{models.len()} models"]
        details += [to_buy["ratio"][0]] if to_buy["ratio"].n_unique() == 1 and to_buy["ratio"][0] else []
        details += [f"{seconds[0]} s"] if seconds.len() == 1 else []
        parts.append(f"{counted(to_buy.height, of_type.value)} ({', '.join(details)})")
    rows = counted(jobs.select("line", "row_id").n_unique(), "row") if parts else ""
    return f"{' and '.join(parts)} of {rows}" if parts else ""


def _ratio() -> pl.Expr:
    return pl.col("request").str.extract(r'"aspect_ratio":"([^"]+)"')


def first_rows(jobs: pl.DataFrame) -> list[dict[str, str]]:
    """The first rows that are to be bought, as they would be sent, with every value as text."""
    jobs = jobs.filter("to_buy").unique(["line", "row_id"], keep="first", maintain_order=True).head(_FIRST)
    shown_rows = []
    for (row, request), inlined in zip(requests(jobs, str(_FIRST)), jobs["inlined"].to_list(), strict=True):
        places = {f"sha256:{image['sha256']}": image["source"] for image in inlined or ()}
        urls = [str(image.get("url", "")) for image in request.pop("images", ())]
        images = [places.get(url, url).rpartition("/")[2] for url in urls]
        prompt, sent = str(request.pop("prompt", "")), [str(request.pop("model", ""))]
        cut = prompt if len(prompt) <= _SHORT else f"{prompt[: _SHORT - 1]}…"
        for name, value in request.items():
            setting = f"{name} {'on' if value else 'off'}" if isinstance(value, bool) else str(value)
            sent.append(f"{value} s" if name == "duration" else setting)
        shown_row = {"row": row, "prompt": printable(cut), "images": ", ".join(images)}
        shown_rows.append(shown_row | {"settings": ", ".join(sent)})
    has_images = any(row["images"] for row in shown_rows)
    return [{name: row[name] for name in row if name != "images" or has_images} for row in shown_rows]


def _of_file(plan: Plan) -> Iterator[tuple[str, str]]:
    """How the file was read, and what may be a mistake: names and texts."""
    file_columns = plan.columns
    if file_columns.used:
        used = [name if name == ours else f"{ours} from {name!r}" for ours, name in file_columns.used.items()]
        carried = f"; carried: {_first_of(file_columns.carried)}" if file_columns.carried else ""
        yield "Columns", ", ".join(used) + carried
    yield from _not_used(file_columns)
    rows, price = _repeated(plan)
    if rows:
        sentence = f"{counted(rows, 'row')} {'asks' if rows == 1 else 'ask'} for what another row asks for"
        yield "Repeated", f"{sentence}: {dollars(price)} USD; input.repeated: once buys each once"
    yield from _of_prompts(plan.table)


def _first_of(names: Collection[str]) -> str:
    return and_more([*names][:_NAMED], len(names))


def _not_used(file_columns: Columns) -> Iterator[tuple[str, str]]:
    unused = {
        name: columns.IMAGES if meaning in IMAGE_COLUMNS else meaning
        for name, meaning in file_columns.unused.items()
    }
    ours = {repr(name): f"{meaning}: {name}" for name, meaning in unused.items() if meaning in COLUMNS}
    held = {name: meaning for name, meaning in unused.items() if meaning in columns.HELD}
    unknown = [repr(name) for name, meaning in unused.items() if meaning not in (*COLUMNS, *columns.HELD)]
    if ours:
        use = next(iter(ours.values()))
        yield "Not used", f"{_first_of(ours)}; to use one, name it: input.columns {{{use}}}"
    for kind in dict.fromkeys(held.values()):
        names = [name for name, meaning in held.items() if meaning == kind]
        cells = [file_columns.examples[name] for name in names if file_columns.examples.get(name)]
        content = columns.HELD[kind] + (f" ({cells[0]})" if cells else "")
        to_do = (
            f"; to send one: input.columns {{reference_image: {names[0]}}}" if kind == columns.IMAGES else ""
        )
        to_do = f"; input.where {{{names[0]}: ...}} reads some" if kind == columns.STATES else to_do
        holds = "holds" if len(names) == 1 else "hold"
        yield "Not used", f"{_first_of([*map(repr, names)])} {holds} {content}{to_do}"
    if unknown:
        yield "Not used", f"{_first_of(unknown)}: the service has no such setting"


def _of_prompts(jobs: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """What in the prompts may be a mistake, counted, with the first line of each kind."""
    text = pl.col("request").str.extract(r'"prompt":"((?:[^"\\]|\\.)*)"')
    rows = jobs.select("row_id", "line", "duration", prompt=text, ratio=_ratio()).drop_nulls("prompt")
    rows = rows.unique("row_id", keep="first", maintain_order=True)
    for pattern, odd, to_do in _ODD:
        lines = rows.filter(pl.col("prompt").str.contains(pattern))["line"]
        if lines.len():
            yield "Prompts", f"{counted(lines.len(), 'prompt')} {odd} (line {lines[0]}): sent as text{to_do}"
    for unit, pattern, sent in (
        ("", rf"(?:^|[^\d:])({_RATIOS})(?:[^\d:]|$)", pl.col("ratio")),
        (" s", r"(?i)\b(\d{1,3})[ -]?(?:s|secs?|seconds?)\b", pl.col("duration").cast(pl.String)),
    ):
        asked = rows.with_columns(asked=pl.col("prompt").str.extract(pattern), sent=sent)
        differing = asked.filter(pl.col("asked").is_not_null() & pl.col("asked").ne_missing(pl.col("sent")))
        if differing.height:
            line, words, instead = differing.select("line", "asked", "sent").row(0)
            prompts = f"{counted(differing.height, 'prompt')} {'asks' if differing.height == 1 else 'ask'}"
            instead = "none" if instead is None else f"{instead}{unit}"
            yield "Prompts", f"{prompts} in words for {words}{unit} (line {line}), and {instead} is sent"
