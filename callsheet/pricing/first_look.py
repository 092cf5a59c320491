"""What a person should see of a batch before it is bought: in words, as rows, and as requests.

What is bought, what was guessed, how the columns are read, what is left out of them, and what in the prompts
may be a mistake. It reads the plan alone, buys nothing, and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.batches import columns
from callsheet.batches.columns import Columns
from callsheet.cells import IMAGE_COLUMNS
from callsheet.config.settings import COLUMNS, Guessed
from callsheet.errors import InputError
from callsheet.plain_text import and_more, counted, printable, row_name
from callsheet.pricing.plan import Plan, row_id_of
from callsheet.records import ModelType, dollars

_LONGEST_TEXT = 5_000  # characters of a request's text that are shown; a prompt has at most 4,096
_SHORT = 60  # characters of a prompt in a table
_NAMED = 12  # columns
_FIRST = 3  # rows

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
        jobs.filter("to_buy").head(int(show))
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
        return {name: _cut(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_cut(each) for each in value]
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f"{value[:60]}… ({len(value):,} characters)"
    return value


def repeated(plan: Plan) -> tuple[int, Decimal]:
    """How many rows ask for what a row before them asks for, and the price of their jobs, in dollars."""
    jobs = plan.table.filter(pl.col("request").is_not_null()).select("row_id", "sample", "request", "price")
    again = jobs.filter(~pl.struct("request", "sample").is_first_distinct())
    return again["row_id"].n_unique(), Decimal(again["price"].sum() or 0)


def as_json(plan: Plan, jobs: pl.DataFrame) -> dict[str, Any]:
    """The fields of `quote --json` that say how the file was read; `jobs` as `requests` takes them."""
    first = requests(jobs, "1")
    return {
        "columns": dict(plan.columns.used),
        "carried": list(plan.columns.carried),
        "unused": [{"column": name, "looks_like": like} for name, like in plan.columns.unused.items()],
        "first_request": first[0][1] if first else None,
        "repeated": repeated(plan)[0],
    }


def media(jobs: pl.DataFrame) -> dict[str, int]:
    """How many images and videos are to be bought, of jobs with their standing."""
    types = jobs.filter("to_buy")["type"]
    made = (ModelType.IMAGE, ModelType.VIDEO)
    return {f"{each.value}s": int((types == each.value).sum()) for each in made}


def buys(jobs: pl.DataFrame) -> str:
    """What is bought, in words: `40 images (sketch-1, 16:9) of 40 rows`; empty where nothing is."""
    jobs = jobs.filter("to_buy").with_columns(ratio=_ratio())
    parts = []
    for of_type in (ModelType.IMAGE, ModelType.VIDEO):
        own = jobs.filter(type=of_type.value)
        if own.is_empty():
            continue
        seconds = own["duration"].drop_nulls().unique()
        models = own["model"].unique(maintain_order=True)
        what = [models[0] if models.len() == 1 else f"{models.len()} models"]
        what += [own["ratio"][0]] if own["ratio"].n_unique() == 1 and own["ratio"][0] else []
        what += [f"{seconds[0]} s"] if seconds.len() == 1 else []
        parts.append(f"{counted(own.height, of_type.value)} ({', '.join(what)})")
    rows = counted(jobs.select("line", "row_id").n_unique(), "row") if parts else ""
    return f"{' and '.join(parts)} of {rows}" if parts else ""


def _ratio() -> pl.Expr:
    return pl.col("request").str.extract(r'"aspect_ratio":"([^"]+)"')


def first_rows(jobs: pl.DataFrame) -> list[dict[str, str]]:
    """The first rows that are to be bought, as they would be sent, with every value as text."""
    jobs = jobs.filter("to_buy").unique(["line", "row_id"], keep="first", maintain_order=True).head(_FIRST)
    found = []
    for (row, request), inlined in zip(requests(jobs, str(_FIRST)), jobs["inlined"].to_list(), strict=True):
        places = {f"sha256:{each['sha256']}": each["source"] for each in inlined or ()}
        urls = [str(each.get("url", "")) for each in request.pop("images", ())]
        images = [places.get(url, url).rpartition("/")[2] for url in urls]
        prompt, model = str(request.pop("prompt", "")), str(request.pop("model", ""))
        cut = prompt if len(prompt) <= _SHORT else f"{prompt[: _SHORT - 1]}…"
        sent = [_in_words(name, value) for name, value in request.items()]
        shown = {"row": row, "prompt": printable(cut), "images": ", ".join(images)}
        found.append(shown | {"settings": ", ".join([model, *sent])})
    return found if any(each["images"] for each in found) else [_without(each, "images") for each in found]


def _in_words(name: str, value: Any) -> str:
    if name == "duration":
        return f"{value} s"
    return f"{name} {'on' if value else 'off'}" if isinstance(value, bool) else str(value)


def _without(row: dict[str, str], name: str) -> dict[str, str]:
    return {each: value for each, value in row.items() if each != name}


def facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """How the file was read, and what may be a mistake: names and texts."""
    found = plan.columns
    if found.used:
        used = [name if name == ours else f"{ours} from {name!r}" for ours, name in found.used.items()]
        carried = f"; carried: {_listed(found.carried)}" if found.carried else ""
        yield "Columns", ", ".join(used) + carried
    yield from _not_used(found)
    rows, price = repeated(plan)
    if rows:
        what = f"{counted(rows, 'row')} {'asks' if rows == 1 else 'ask'} for what another row asks for"
        yield "Repeated", f"{what}: {dollars(price)} USD; input.repeated: once buys each once"
    yield from _of_prompts(plan.table)


def _not_used(found: Columns) -> Iterator[tuple[str, str]]:
    unused = {name: columns.IMAGES if like in IMAGE_COLUMNS else like for name, like in found.unused.items()}
    ours = {repr(name): f"{like}: {name}" for name, like in unused.items() if like in COLUMNS}
    held = {name: like for name, like in unused.items() if like in columns.HELD}
    others = [repr(name) for name, like in unused.items() if like not in (*COLUMNS, *columns.HELD)]
    if ours:
        use = next(iter(ours.values()))
        yield "Not used", f"{_listed(ours)}; to use one, name it: input.columns {{{use}}}"
    for kind in dict.fromkeys(held.values()):
        names = [name for name, like in held.items() if like == kind]
        cells = [found.examples[name] for name in names if found.examples.get(name)]
        what = columns.HELD[kind] + (f" ({cells[0]})" if cells else "")
        to_do = (
            f"; to send one: input.columns {{reference_image: {names[0]}}}" if kind == columns.IMAGES else ""
        )
        to_do = f"; input.where {{{names[0]}: ...}} reads some" if kind == columns.STATES else to_do
        holds = "holds" if len(names) == 1 else "hold"
        yield "Not used", f"{_listed([*map(repr, names)])} {holds} {what}{to_do}"
    if others:
        yield "Not used", f"{_listed(others)}: the service has no such setting"


def _of_prompts(jobs: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """What in the prompts may be a mistake, counted, with the first line of each kind."""
    text = pl.col("request").str.extract(r'"prompt":"((?:[^"\\]|\\.)*)"')
    rows = jobs.select("row_id", "line", "duration", prompt=text, ratio=_ratio()).drop_nulls("prompt")
    rows = rows.unique("row_id", keep="first", maintain_order=True)
    for pattern, what, to_do in _ODD:
        lines = rows.filter(pl.col("prompt").str.contains(pattern))["line"]
        if lines.len():
            yield "Prompts", f"{counted(lines.len(), 'prompt')} {what} (line {lines[0]}): sent as text{to_do}"
    for named, pattern, sent in (
        ("", rf"(?:^|[^\d:])({_RATIOS})(?:[^\d:]|$)", pl.col("ratio")),
        (" s", r"(?i)\b(\d{1,3})[ -]?(?:s|secs?|seconds?)\b", pl.col("duration").cast(pl.String)),
    ):
        asked = rows.with_columns(asked=pl.col("prompt").str.extract(pattern), sent=sent)
        wrong = asked.filter(pl.col("asked").is_not_null() & pl.col("asked").ne_missing(pl.col("sent")))
        if wrong.height:
            line, words, instead = wrong.select("line", "asked", "sent").row(0)
            prompts = f"{counted(wrong.height, 'prompt')} {'asks' if wrong.height == 1 else 'ask'}"
            instead = "none" if instead is None else f"{instead}{named}"
            yield "Prompts", f"{prompts} in words for {words}{named} (line {line}), and {instead} is sent"


def guessed(guesses: Mapping[str, Guessed]) -> str:
    """What `callsheet init` has guessed, in one sentence; empty where it has guessed nothing."""
    return "; ".join(guess_in_words(name, each.taken, each.others) for name, each in guesses.items())


def guess_in_words(setting: str, taken: str, others: Sequence[str]) -> str:
    """What `callsheet init` has guessed of a setting, and what else it may be."""
    if setting == "media":
        return f"{taken}, not {' or '.join(others)}"
    names = ["no images" if (setting, each) == ("images", "none") else repr(each) for each in others]
    also = f" (also: {', '.join(names)})" if others else ""
    if setting in ("prompt", "images"):
        what = "no images are sent" if taken == "none" else f"{setting} from {taken!r}"
        return f"{what}{also}"
    return f"{setting} {taken}{also.replace(chr(39), '')}"


def _listed(names: Collection[str]) -> str:
    return and_more([*names][:_NAMED], len(names))
