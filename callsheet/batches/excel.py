"""The first sheet of an Excel workbook -> a table of text, with each row's number in the sheet.

Needs the `xlsx` extra. Reads the whole sheet at once: Excel allows 1,048,576 rows at most.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from callsheet.batches.delimited import Table, column_names
from callsheet.errors import InputError

_ROW = "\0row"  # cannot be the name of a column in a workbook


def read_sheet(path: Path, name: str) -> Table:
    """Reads a workbook's first sheet. Blank rows are left out; the first other row is the header.

    Args:
        path: the local file.
        name: the file's name in messages.

    Raises:
        InputError: the extra is not installed; unreadable, empty, or two columns have one name.
    """
    try:
        import fastexcel
    except ImportError:
        raise InputError(
            f"{name}: cannot be read: .xlsx needs one more package",
            hint="Install it with `pip install 'callsheet[xlsx]'`, or save the sheet as CSV.",
        ) from None
    try:
        workbook = fastexcel.read_excel(path.read_bytes())
        # `skip_rows=0` keeps blank rows above the header, so that row numbers are the sheet's.
        cells = workbook.load_sheet(0, header_row=None, skip_rows=0, dtypes="string").to_polars()
    except (fastexcel.FastExcelError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise InputError(f"{name}: cannot be read as a workbook: {reason}") from None
    rows = cells.fill_null("").with_row_index(_ROW, offset=1).cast({_ROW: pl.Int64})
    rows = rows.filter(pl.any_horizontal(pl.exclude(_ROW).str.strip_chars() != ""))
    if rows.is_empty():
        raise InputError(f"{name}: is empty")
    number, *header_cells = rows.row(0)
    header = f"{name}, line {number}"
    names = column_names(header_cells, header)
    named = [pl.col(old).alias(new) for old, new in zip(cells.columns, names, strict=True) if new]
    return Table(rows[1:].select(named), rows[_ROW][1:], header)
