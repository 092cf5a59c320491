"""Columns of a width and a height -> one column of aspect ratios."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import gcd

import polars as pl

from callsheet.batches.formats import with_fields
from callsheet.batches.tables import Table
from callsheet.cells import WRONG, wrong_cells
from callsheet.config.settings import Input

_PIXELS = r"^([0-9]{1,6})(?:\.0*)?\s*(?:px)?$"
_COMMON = {(1, 1), (5, 4), (4, 3), (3, 2), (16, 9), (2, 1)}
_FEWEST = 64  # pixels; smaller numbers are a ratio themselves


def names(config: Input) -> tuple[str, str] | None:
    """The columns of width and height that the config makes a ratio of."""
    name = config.columns.get("aspect_ratio")
    return name if isinstance(name, tuple) else None


def together(columns: Iterable[str]) -> tuple[str, str] | None:
    """Those of a file's columns that are the width and the height of what is wanted, by their names."""
    found = {name.strip().lower().rpartition(".")[2]: name for name in reversed([*columns])}
    for width, height in (("width", "height"), ("w", "h"), ("image_width", "image_height")):
        if width in found and height in found:
            return found[width], found[height]
    return None


def with_ratios(source: Table, config: Input) -> Table:
    """A table with a column of ratios as `input.columns` makes it: `1024` and `576` are `16:9`.

    Where no common ratio is exactly that, it is the size itself, of which `pricing` finds the nearest ratio.
    """
    pair = names(config)
    if pair is None:
        return source
    cells = with_fields(source.cells, pair)
    if not {*pair} <= {*cells.columns}:
        return source
    pairs = zip(*(_texts(cells, name).str.extract(_PIXELS) for name in pair), strict=True)
    made = pl.Series(config.names["aspect_ratio"], [_ratio(*each) for each in pairs], pl.String)
    return replace(source, cells=cells.with_columns(made))


def wrong_sizes(source: Table, rows: pl.DataFrame, config: Input) -> pl.DataFrame:
    """The cells of width and height of which no ratio can be made, with the schema `WRONG`. Where both are
    empty, there is none. `rows` has the `line` and the `file` of the table's rows.
    """
    pair = names(config)
    found = [pl.DataFrame(schema=WRONG)]
    for name, other in (pair, pair[::-1]) if pair else ():
        text, beside = _texts(source.cells, name), _texts(source.cells, other)
        is_wrong = (text != "") & (text.str.extract(_PIXELS).cast(pl.Int64).fill_null(0) == 0)
        is_lacking = (text == "") & (beside != "")
        cells = rows.select("line", "file").with_columns(text.alias(name))
        found.append(wrong_cells(cells.filter(is_wrong), name, "is not a whole number of pixels"))
        found.append(wrong_cells(cells.filter(is_lacking), name, f"is empty, and {other} is not"))
    return pl.concat(found)


def _texts(cells: pl.DataFrame, name: str) -> pl.Series:
    """A column as text; of a nested one its type, which is no number."""
    column = cells[name]
    if column.dtype.is_nested():
        return pl.repeat(str(column.dtype), column.len(), eager=True)
    return column.cast(pl.String).fill_null("").str.strip_chars()


@lru_cache
def _ratio(width: str | None, height: str | None) -> str | None:
    if width is None or height is None or not (int(width) and int(height)):
        return None
    wide, high = int(width), int(height)
    divisor = gcd(wide, high)
    parts = wide // divisor, high // divisor
    if parts in _COMMON or parts[::-1] in _COMMON:
        return f"{parts[0]}:{parts[1]}"
    return f"{wide}x{high}" if min(wide, high) >= _FEWEST else f"{wide}:{high}"
