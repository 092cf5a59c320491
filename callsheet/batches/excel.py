"""The first sheet of an Excel workbook -> a table of text, with each row's number in the sheet.

Needs the `xlsx` extra. Excel's own limit of 1,048,576 rows is why the sheet is read whole.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from callsheet.batches.delimited import Table, columns_of
from callsheet.errors import InputError


def read(path: Path, name: str) -> Table:
    """Reads a workbook's first sheet; its first row that is not blank is the header. Blank rows are no rows.

    Raises:
        InputError: the extra is not installed; unreadable, empty, a column named twice.
    """
    try:
        import fastexcel
    except ImportError:
        raise InputError(
            f"{name}: reading .xlsx takes one more package",
            hint="Install it with `pip install 'callsheet[xlsx]'`, or save the sheet as CSV.",
        ) from None
    try:
        workbook = fastexcel.read_excel(path.read_bytes())
        # With `skip_rows` a blank row above the header counts, so that numbers are the sheet's.
        cells = workbook.load_sheet(0, header_row=None, skip_rows=0, dtypes="string").to_polars()
    except (fastexcel.FastExcelError, OSError) as error:
        why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise InputError(f"{name}: cannot be read as a workbook: {why}") from None
    rows = cells.fill_null("").with_row_index("\0row", offset=1).cast({"\0row": pl.Int64})
    rows = rows.filter(pl.any_horizontal(pl.exclude("\0row").str.strip_chars() != ""))
    if rows.is_empty():
        raise InputError(f"{name}: is empty")
    at, *header = rows.row(0)
    where = f"{name}, line {at}"
    columns = columns_of(header, where)
    named = [pl.col(old).alias(new) for old, new in zip(cells.columns, columns, strict=True) if new]
    return Table(rows[1:].select(named), rows["\0row"][1:], where)
