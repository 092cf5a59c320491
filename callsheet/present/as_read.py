"""What is said of how a batch file was read: columns, first rows, requests, and what may be a mistake."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.batches import columns
from callsheet.batches.columns import Columns
from callsheet.cells import IMAGE_COLUMNS
from callsheet.config.settings import COLUMNS
from callsheet.errors import InputError
from callsheet.plain_text import and_more, counted, printable, row_name
from callsheet.present.page import Fact
from callsheet.pricing.choice import row_id_of
from callsheet.pricing.plan import Plan
from callsheet.records import ModelType, dollars

_LONGEST_TEXT = 5_000  # characters of a request's text that are shown; a prompt has at most 4,096
_SHORT = 60  # characters of a prompt in a table
_NAMED = 12  # columns
_FIRST = 3  # rows
_OF_VIDEOS = ("duration", "sound")

_RATIOS = "1:1|16:9|9:16|4:3|3:4|3:2|2:3|4:5|5:4|21:9"
_SECONDS = r"(?i)\b(\d{1,3})[ -]?(?:secs?|seconds?|s[ -](?:video|clip|shot|loop|long))\b"  # not `in his 30s`
_TAG = r"(?i)</?(?:p|br|ul|ol|li|div|span|strong|em|b|i|h[1-6]|a|img|table|tr|td)(?:\s[^>]*)?/?>"
_NO_PROMPT = (
    r"^[\s=_*#~.+-]+$|"  # a rule
    r"^[^\p{Ll}\p{Lo}]{0,40}\p{Lu}[^\p{Ll}\p{Lo}]{0,40}$|"  # all in capitals: a heading
    r"^\p{L}+\s*#?\d+\s*[:.]?$|"
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
        show: how many of the first that are to buy, or which row's (`choice.row_id_of`).

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


def repeated(plan: Plan) -> tuple[int, Decimal]:
    """How many rows ask for what a row before them asks for, and the price of their jobs, in dollars."""
    jobs = plan.table.filter(pl.col("request").is_not_null()).select("row_id", "sample", "request", "price")
    again = jobs.filter(~pl.struct("request", "sample").is_first_distinct())
    return again["row_id"].n_unique(), Decimal(again["price"].sum() or 0)


def buys(jobs: pl.DataFrame) -> str:
    """What is bought, in words: `40 images (sketch-1, 16:9) of 40 rows`; empty where nothing is."""
    jobs = jobs.filter("to_buy").with_columns(ratio=_ratio())
    parts = []
    for of_type in ModelType:
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


def of_file(plan: Plan) -> Iterator[Fact]:
    """How the file was read, and what may be a mistake: names and texts."""
    file_columns = plan.columns
    if file_columns.used:
        used = [name if name == ours else f"{ours} from {name!r}" for ours, name in file_columns.used.items()]
        carried = f"; carried: {_first_of(file_columns.carried)}" if file_columns.carried else ""
        yield "Columns", ", ".join(used) + carried
    yield from _not_used(file_columns, {*plan.table["type"]})
    rows, price = repeated(plan)
    if rows:
        sentence = f"{counted(rows, 'row')} {'asks' if rows == 1 else 'ask'} for what another row asks for"
        yield "Repeated", f"{sentence}: {dollars(price)} USD; input.repeated: once buys each once"
    if "aspect_ratio" not in file_columns.used and (ratios := _own_ratios(plan.table)):
        yield "Ratios", f"{', '.join(ratios)}, as no aspect_ratio is given; input.defaults sets one for all"
    yield from of_prompts(plan.table)


def _own_ratios(jobs: pl.DataFrame) -> list[str]:
    """Of models of one type that make another ratio each, where none is asked for: `still-1 1:1`."""
    models = jobs.group_by("type", "model", maintain_order=True).agg(ratio=_ratio().drop_nulls().unique())
    ratios = pl.col("ratio").list
    models = models.filter((ratios.len() == 1).all().over("type")).with_columns(ratio=ratios.first())
    models = models.filter(pl.col("ratio").n_unique().over("type") > 1)
    return [f"{model} {ratio}" for model, ratio in models.select("model", "ratio").iter_rows()]


def _first_of(names: Collection[str]) -> str:
    return and_more([*names][:_NAMED], len(names))


def _not_used(file_columns: Columns, types: Collection[str]) -> Iterator[Fact]:
    """Columns that are not used, where models of these types are."""
    unused = {
        name: columns.IMAGES if meaning in IMAGE_COLUMNS else meaning
        for name, meaning in file_columns.unused.items()
    }
    of_videos = [name for name, meaning in unused.items() if meaning in _OF_VIDEOS]
    if ModelType.VIDEO not in types and of_videos:
        unused = {name: meaning for name, meaning in unused.items() if name not in of_videos}
        are, bought = "is" if len(of_videos) == 1 else "are", ", and images are bought" if types else ""
        yield "Not used", f"{_first_of([*map(repr, of_videos)])} {are} for videos{bought}"
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


def of_prompts(jobs: pl.DataFrame) -> Iterator[Fact]:
    """What in the prompts of jobs may be a mistake, counted, with the first line of each kind."""
    text = pl.col("request").str.extract(r'"prompt":"((?:[^"\\]|\\.)*)"')
    rows = jobs.select("row_id", "line", "duration", prompt=text, ratio=_ratio()).drop_nulls("prompt")
    rows = rows.unique("row_id", keep="first", maintain_order=True)
    for pattern, odd, to_do in _ODD:
        lines = rows.filter(pl.col("prompt").str.contains(pattern))["line"]
        if lines.len():
            yield "Prompts", f"{counted(lines.len(), 'prompt')} {odd} (line {lines[0]}): sent as text{to_do}"
    for unit, pattern, sent in (
        ("", rf"(?:^|[^\d:])({_RATIOS})(?:[^\d:]|$)", pl.col("ratio")),
        (" s", _SECONDS, pl.col("duration").cast(pl.String)),
    ):
        asked = rows.with_columns(asked=pl.col("prompt").str.extract(pattern), sent=sent)
        differing = asked.filter(pl.col("asked").is_not_null() & pl.col("asked").ne_missing(pl.col("sent")))
        if differing.height:
            line, words, instead = differing.select("line", "asked", "sent").row(0)
            prompts = f"{counted(differing.height, 'prompt')} {'asks' if differing.height == 1 else 'ask'}"
            instead = "none" if instead is None else f"{instead}{unit}"
            yield "Prompts", f"{prompts} in words for {words}{unit} (line {line}), and {instead} is sent"
