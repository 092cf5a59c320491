"""Text files without a header -> tables: one prompt a line, or one prompt a file. Each prompt is whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePath

import polars as pl

from callsheet.batches.delimited import Table
from callsheet.config.settings import FileColumn
from callsheet.errors import InputError

_WORDS = 4  # of a line that is a prompt and not a column's name


def prompt_name(columns: Mapping[FileColumn, str | None]) -> str:
    """The name of the column with the prompts, by the config's columns; never a prompt itself."""
    name = columns.get("prompt")
    return "prompt" if name is None or is_a_prompt(name) else name


def has_header(text: bytes, names: Collection[str]) -> bool:
    """Whether the first line of a text names a column, and is not a prompt itself.

    Args:
        text: the file, as UTF-8.
        names: the columns that the config names, and `prompt`.
    """
    first = next((line for line in text.decode().split("\n") if line.strip()), "")
    cells = {cell.strip().strip("\"'") for mark in ("\0", ",", ";", "\t", "|") for cell in first.split(mark)}
    return "prompt" in {cell.lower() for cell in cells} or any(
        name in cells for name in names if not is_a_prompt(name)
    )


def is_a_prompt(name: str) -> bool:
    """Whether a text is a prompt rather than a column's name."""
    return len(name.split()) >= _WORDS and "prompt" not in name.lower()


def by_line(text: bytes, name: str, column: str) -> Table:
    """A row for each line that is not blank."""
    lines = [(number, line) for number, line in enumerate(text.decode().split("\n"), 1) if line.strip()]
    cells = pl.DataFrame({column: [line for _, line in lines]}, schema={column: pl.String})
    return Table(cells, pl.Series([number for number, _ in lines], dtype=pl.Int64), name)


def by_file(text: bytes, name: str, column: str, ids: str) -> Table:
    """One row: the prompt that a file of several has, and the file's name as its id.

    Raises:
        InputError: it has several lines, so it may be several prompts.
    """
    lines = [(number, line) for number, line in enumerate(text.decode().split("\n"), 1) if line.strip()]
    if len(lines) > 1:
        raise InputError(
            f"{name}: has {len(lines)} lines; of several .txt files without a header, each is one prompt",
            hint="Put a prompt of several lines on one line; or join lists of prompts into one file.",
        )
    number, prompt = lines[0] if lines else (1, "")
    stem = PurePath(name.removesuffix(".gz").removesuffix(".zst")).stem
    cells = pl.DataFrame({column: [prompt], ids: [stem]})
    return Table(cells, pl.Series([number], dtype=pl.Int64), name)
