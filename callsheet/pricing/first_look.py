"""What a person should see of a batch before it is bought: requests, columns, and what may be a mistake.

It reads a plan, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import Any

import polars as pl

from callsheet.config.settings import COLUMNS
from callsheet.errors import InputError
from callsheet.plain_text import and_more, counted, printable, row_name
from callsheet.pricing.plan import Plan
from callsheet.records import dollars

_FLAG = r"\s--[A-Za-z]"  # of other generators: --ar 16:9
_REMARK = r'"prompt":"(#|//)'
_LEAVE_OUT = '; input.comments: "#" leaves them out'
_LONGEST_TEXT = 5_000  # characters of a request's text that are shown; a prompt has at most 4,096
_NAMED = 12  # columns


def requests(jobs: pl.DataFrame, show: str = "1") -> list[tuple[str, dict[str, Any]]]:
    """Requests as they would be sent, each with its row's name; images that are inlined later as their hash.

    Args:
        jobs: those of a plan, with their standing (`Quote.table`).
        show: how many of the first that are to buy, or which row's.

    Raises:
        InputError: the plan has no such row.
    """
    jobs = jobs.filter(pl.col("request").is_not_null())
    first = jobs.filter("to_buy").head(int(show)) if show.isdecimal() else jobs.filter(row_id=show)
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
    first = requests(jobs)
    return {
        "columns": dict(plan.columns.used),
        "carried": list(plan.columns.carried),
        "unused": [{"column": name, "looks_like": like} for name, like in plan.columns.unused.items()],
        "first_request": first[0][1] if first else None,
        "repeated": repeated(plan)[0],
    }


def facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """The same for people, and what may be a mistake: names and texts."""
    columns = plan.columns
    if columns.used:
        used = [name if name == ours else f"{ours} from {name!r}" for ours, name in columns.used.items()]
        yield (
            "Columns",
            ", ".join(used) + (f"; carried: {_listed(columns.carried)}" if columns.carried else ""),
        )
    if columns.unused:
        ours = {repr(name): f"{like}: {name}" for name, like in columns.unused.items() if like in COLUMNS}
        others = [repr(name) for name, like in columns.unused.items() if like not in COLUMNS]
        if ours:
            use = next(iter(ours.values()))
            yield "Not used", f"{_listed(ours)}; to use one, name it: input.columns {{{use}}}"
        if others:
            yield "Not used", f"{_listed(others)}: the service has no such setting"
    rows, price = repeated(plan)
    if rows:
        what = f"{counted(rows, 'row')} {'asks' if rows == 1 else 'ask'} for what another row asks for"
        yield "Repeated", f"{what}: {dollars(price)} USD"
    odd = ((_FLAG, "with flags such as --ar 16:9", ""), (_REMARK, "with # or // first", _LEAVE_OUT))
    for pattern, what, to_do in odd:
        lines = plan.table.filter(pl.col("request").str.contains(pattern))["line"].unique(maintain_order=True)
        if lines.len():
            prompts = f"{counted(lines.len(), 'prompt')} {what} (line {lines[0]})"
            yield "Prompts", f"{prompts}: sent as text{to_do}"


def _listed(names: Collection[str]) -> str:
    return and_more([*names][:_NAMED], len(names))
