"""Marks as people write them -> marks of files in the ledger: from the command line, `marks.csv` or Python.

All of a call is taken, or nothing: a mark of a row that is not there is an error that names its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from sqlalchemy import Connection

from callsheet.batches.delimited import read_table
from callsheet.batches.texts import read_text
from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError
from callsheet.ledger import marks
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import FileKey, Mark, MediaDecision
from callsheet.plain_text import printable, row_in_words
from callsheet.processes import user_name
from callsheet.report.contact_sheet.sheet import write_news
from callsheet.report.sidecars import mark_sidecars
from callsheet.report.summary import ReviewResult, read_result

COLUMNS = ["row_id", "sample", "index", "decision", "note"]
"""The columns of `marks.csv`."""

_NEEDED = ["row_id", "decision"]
_DECISIONS = {"": None, "kept": MediaDecision.KEPT, "rejected": MediaDecision.REJECTED}
_OPTIONAL = ("file_number", "job_key", "by")  # columns that few files need
LONGEST_NOTE = 2_000
"""Characters."""
LONGEST_NAME = 100
"""Characters of the name of who marks."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a person says of a row, or of some of its files."""

    place: str  # where it was said, for messages: `marks.csv, line 3`
    row_id: str
    sample: int | None  # None for all samples of the row
    index: int | None  # None for all files of a generation
    decision: MediaDecision | None
    note: str | None
    number: int | None = None  # which of the row's files, whatever the row has asked for; None for all
    job_key: str = ""  # how the job's key begins, as 0.1.0 wrote it into its files; empty for all
    is_exception: bool = False  # it counts where another mark is of its whole row
    by: str = ""  # who says so, as a client has typed it; empty for the user of this system


def of_row(text: str, decision: MediaDecision | None, note: str | None, option: str) -> Said:
    """`ROW` or `ROW/NUMBER`, as it is typed after an option. To an id with a slash, add the number.

    With the row rejected and a file kept, the others of the row are rejected.
    """
    row, slash, number = text.rpartition("/")
    place = f"{option} {text}"
    if slash and number.isascii() and number.isdigit():
        return Said(place, row, None, None, decision, note, number=int(number), is_exception=True)
    return Said(place, text, None, None, decision, note)


def read_marks(path: Path) -> list[Said]:
    """The marks of `marks.csv`.

    Raises:
        InputError: the file cannot be read, or a cell is wrong; the message names its line.
    """
    text, _ = read_text(path, str(path), None)
    table = read_table(text, str(path), needed=_NEEDED, expected=COLUMNS)
    if table.ragged:
        line, _, reason = table.ragged[0]
        raise InputError(f"{path}, line {line}: {reason}")
    places = [f"{path}, line {line}" for line in table.lines]
    return from_table(table.cells, places, str(path))


def from_table(table: pl.DataFrame, places: Sequence[str], name: str) -> list[Said]:
    """The marks of a table with the columns `COLUMNS`; only `row_id` and `decision` must be there.

    Of its other columns only `file_number`, `job_key` and `by` are looked at. `places` (of each row) and
    `name` are for messages.

    Raises:
        InputError: a column is missing, or a cell is wrong.
    """
    if missing := [column for column in _NEEDED if column not in table.columns]:
        raise InputError(f"{name}: has no column {missing[0]}", hint=f"The columns are {','.join(COLUMNS)}.")
    columns = [column for column in (*COLUMNS, *_OPTIONAL) if column in table.columns]
    if nested := [column for column in columns if table.schema[column].is_nested()]:
        raise InputError(f"{name}: a cell of {nested[0]} has several values; one is expected")
    rows = table.select(pl.col(columns).cast(pl.String)).iter_rows(named=True)
    return [_from_row(row, place) for row, place in zip(rows, places, strict=True)]


def _from_row(row: dict[str, Any], place: str) -> Said:
    decision = (row["decision"] or "").strip().lower()
    if decision not in _DECISIONS:
        raise InputError(
            f"{place}: decision is {printable(decision)!r}; kept, rejected or nothing is expected"
        )
    if not row["row_id"]:
        raise InputError(f"{place}: row_id is empty")
    note = (row.get("note") or "").strip() or None
    if note and len(note) > LONGEST_NOTE:
        raise InputError(f"{place}: the note has {len(note):,} characters; at most {LONGEST_NOTE:,} are kept")
    by = (row.get("by") or "").strip()
    if len(by) > LONGEST_NAME:
        raise InputError(f"{place}: by has {len(by):,} characters; a name has at most {LONGEST_NAME}")
    return Said(
        place=place,
        row_id=row["row_id"],
        sample=_number(row.get("sample"), "sample", place),
        index=_number(row.get("index"), "index", place),
        decision=_DECISIONS[decision],
        note=note,
        number=_number(row.get("file_number"), "file_number", place),
        job_key=row.get("job_key") or "",
        by=by,
    )


def _said(row_mark: Said) -> str:
    return row_mark.decision.value if row_mark.decision else "nothing"


def _number(text: str | None, name: str, place: str) -> int | None:
    digits = (text or "").strip().removesuffix(".0")  # as a column with empty cells becomes in a DataFrame
    if digits and not (digits.isascii() and digits.isdigit()):
        raise InputError(f"{place}: {name} is {printable(text or '')!r}; a number is expected")
    return int(digits) if digits else None


async def enter_marks(settings: BatchSettings, row_marks: Sequence[Said]) -> tuple[int, ReviewResult]:
    """Enters marks, all or none, and brings the page under `report.url` and the sidecars of their files up to
    date.

    Returns:
        How many files have another mark now, and how far the batch is reviewed.

    Raises:
        InputError: a row, sample or file is not there; the message names its place.
        LedgerError: there is no ledger, or it cannot be read.
        StorageError: a sidecar or the page cannot be written.
    """
    check_exists(settings.ledger.url)
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        before = await ledger.read(marks.newest)
        changed = await _take(ledger, row_marks, user_name())
        await mark_sidecars(settings, ledger, before)
        await write_news(settings, ledger)
        return changed, await read_result(ledger, settings)


async def _take(ledger: Ledger, row_marks: Sequence[Said], by: str) -> int:
    rows = {row_mark.row_id for row_mark in row_marks}
    rows |= {f"{row_mark.row_id}/{row_mark.number}" for row_mark in row_marks if row_mark.is_exception}
    stored = await ledger.read(marks.files, rows)
    said_of: dict[FileKey, Said] = {}
    files_of_row: dict[str, list[tuple[FileKey, int, int]]] = {}
    for *key, row_id, sample, number in stored.iter_rows():
        files_of_row.setdefault(row_id, []).append((FileKey(*key), sample, number))
    for row_mark in sorted(row_marks, key=lambda row_mark: row_mark.is_exception):
        files = [
            file
            for file, sample, number in files_of_row.get(row_mark.row_id, ())
            if row_mark.sample in (None, sample)
            and row_mark.number in (None, number)
            and row_mark.index in (None, file.index)
            and file.job_key.startswith(row_mark.job_key)
        ]
        if not files:
            hint = "No mark was taken."
            if (row := f"{row_mark.row_id}/{row_mark.number}") in files_of_row:
                hint += f" To an id with a slash, add the number of the file: {row}/1."
            elif numbers := sorted({number for *_, number in files_of_row.get(row_mark.row_id, ())}):
                hint += f" The row has {', '.join(f'{row_mark.row_id}/{number}' for number in numbers)}."
            target = f"row {printable(row_mark.row_id)!r}"
            target += f", file {row_mark.number}" if row_mark.number is not None else ""
            target += f", sample {row_mark.sample}" if row_mark.sample is not None else ""
            target += f", index {row_mark.index}" if row_mark.index is not None else ""
            raise InputError(f"{row_mark.place}: the batch has no stored file of {target}", hint=hint)
        for file in files:
            earlier, said_of[file] = said_of.get(file, row_mark), row_mark
            if earlier.decision != row_mark.decision and earlier.is_exception == row_mark.is_exception:
                row = row_in_words(row_mark.row_id)
                raise InputError(
                    f"{row_mark.place}: says {_said(row_mark)} of {row}, and {earlier.place} says "
                    f"{_said(earlier)} of the same file",
                    hint="Leave one of them. To mark the files of a row differently, name each. "
                    "No mark was taken.",
                )
    marks_by: dict[str, list[Mark]] = {}
    for file, row_mark in said_of.items():
        marks_by.setdefault(row_mark.by or by, []).append(Mark(file, row_mark.decision, row_mark.note))
    return await ledger.write(_enter, marks_by)


def _enter(connection: Connection, batch: str, marks_by: Mapping[str, Sequence[Mark]]) -> int:
    """Enters the marks of each person. Returns how many were new."""
    return sum(marks.mark(connection, batch, person_marks, by) for by, person_marks in marks_by.items())
