"""Text files in every dialect: each cell as `csv` reads it, and each row with its line in the file."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import settings as quick
from hypothesis import strategies as st

from callsheet.batches import texts
from callsheet.batches.read import read_batch
from callsheet.batches.texts import read_text
from callsheet.errors import InputError
from tests.batches.conftest import packed, places, prompts, settings


def test_a_line_is_the_file_s_line_also_after_quoted_newlines_and_blank_lines(batch):
    read = batch(
        '\n\nprompt,sound\n"one\ntwo\nthree",yes\n\n\nx,no\n"y\n",maybe\nz,\n,\n  \n"",""\nlast,perhaps\n'
    )
    assert prompts(read) == [(4, "one\ntwo\nthree"), (9, "x"), (12, "z")]
    assert read.rejects.select("line", "value").rows() == [(10, "maybe"), (16, "perhaps")]
    assert read.total == 5


def test_ragged_lines_are_rejected_with_their_line(batch):
    read = batch('prompt,a,b\n"x\n\ny",1,2\none,1\ntwo,1,2,3\nthree,1,2\n')
    assert prompts(read) == [(2, "x\n\ny"), (7, "three")]
    quoted = "a cell with a delimiter in it stands in quotes"
    assert places(read) == [
        (5, "", "the line has 2 cells, and the header has 3"),
        (6, "", f"the line has 4 cells, and the header has 3; {quoted}"),
    ]
    assert read.total == 4
    ((line, _, reason),) = places(batch("prompt\nA dragon\nIn a forest, a dragon woke up.\n"))
    assert (line, reason.partition("; ")[2]) == (
        3,
        f"{quoted}, or the file's name ends in .txt: then each line is a prompt",
    )


GOLDEN = Path(__file__).parents[1] / "data"
FILES = json.loads((GOLDEN / "dialects.json").read_text())


@pytest.mark.parametrize("name", [each.name for each in (GOLDEN / "dialects").glob("[!.]*")])
def test_files_of_all_dialects_are_read_as_the_same_rows(name):
    """The same three rows, as spreadsheets, databases and people save them."""
    found = read_batch(settings(GOLDEN / "dialects" / name, **FILES[name]["input"]))
    cells = found.rows.with_columns(note=pl.col("carried").struct.field("note").fill_null(""))
    assert cells.select("row_id", "prompt", "duration", "sound", "note").rows() == [
        ("a", 'She said, "hi"; then | left', 5, True, "x"),
        ("b", "café\nau lait", 5, True, ""),
        ("c", "plain", None, None, "last"),
    ]
    assert found.rows["line"].to_list() == FILES[name]["lines"]
    assert found.rejects["line"].to_list() == ([6] if name.startswith("blank-and-ragged") else [])


def test_a_quote_in_a_file_of_tabs_is_text_where_no_spreadsheet_can_have_written_it(batch):
    for text, found in (
        ('"G I G" on a wall\t1\nsay "hi"\t2\n', [(2, '"G I G" on a wall'), (3, 'say "hi"')]),
        ('"Hello, she said\t1\nand\t2\nbye"\t3\n', [(2, '"Hello, she said'), (3, "and"), (4, 'bye"')]),
        ('"a ""big""\ncat"\t1\n"x\ty"\t2\n', [(2, 'a "big"\ncat'), (4, "x\ty")]),
        ('"all"\t1\n', [(2, "all")]),
        ('"one\ntwo"\t1\n', [(2, "one\ntwo")]),
    ):
        assert prompts(batch(f"prompt\tid\n{text}", "shots.tsv")) == found


def test_a_delimiter_and_a_quote_may_be_any_character(batch):
    read = batch("prompt¦id\n«a¦b«¦1\nc é¦2\n", delimiter="¦", quote="«")
    assert read.rows.select("prompt", "row_id").rows() == [("a¦b", "1"), ("c é", "2")]


@pytest.mark.parametrize("written", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("declared", [None, "utf-8", "cp1252", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_byte_order_mark_overrides_the_config(batch, written, declared):
    read = batch("prompt,id\ncafé,1\n".encode(written), encoding=declared)
    assert prompts(read) == [(2, "café")]


def test_lines_of_one_file_may_end_differently(batch):
    assert prompts(batch("prompt\rone\r\ntwo\n\r\r\nthree\n\rfour\r")) == [
        (2, "one"),
        (3, "two"),
        (6, "three"),
        (8, "four"),
    ]


def tables(path: Path, **given: Any) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Lines and cells of the rows, and the lines of the ragged ones."""
    text, _ = read_text(path, path.name, None)
    table = texts.read_table(text, path.name, **{"needed": (), "expected": ()} | given)
    rows = table.cells.select(table.lines.alias("line"), pl.all()).rows()
    return rows, [line for line, _, _ in table.ragged]


def reference(text: str, delimiter: str) -> tuple[list[tuple[Any, ...]], list[int]] | None:
    """The same, by `csv` alone; None where the quoting is broken."""
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter, strict=True)
    rows, ragged, begins = [], [], 1
    try:
        width = len(next(reader))
        while True:
            begins = reader.line_num + 1
            cells = next(reader, None)
            if cells is None:
                return rows, ragged
            if len(cells) == width and any(cells) and (width > 1 or cells[0].strip()):
                rows.append((begins, *cells))
            elif len(cells) != width and (len(cells) > 1 or (cells and cells[0].strip())):
                ragged.append(begins)
    except csv.Error:
        return None


PIECES = [*' a#\\\0",', "\u00e9 ", "\ufeff", '""', ",", "\n", "\n", '"a,\n"', ',"b",', '\n"']


@given(
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
    st.sampled_from(["x\n", "x,y\n", 'x,"y\nz",\n']),
    st.sampled_from([",", ";", "|", "\t"]),
    st.sampled_from(["\n", "\r\n"]),
)
@example('""","b",\n,"b",\n",\\""a ', "x,y\n", ",", "\n")  # polars drops as many quotes as it keeps too many
@quick(max_examples=200, deadline=None)
def test_any_text_is_read_as_csv_reads_it_with_its_lines(tmp_path_factory, text, header, delimiter, ends):
    path = tmp_path_factory.mktemp("text") / "x.csv"
    written = (header + text).replace(",", delimiter)
    path.write_bytes(written.replace("\n", ends).encode())
    expected = reference(written, delimiter)
    if expected is None:
        with pytest.raises(InputError, match="broken quoting"):
            tables(path, delimiter=delimiter, quote='"')
    else:
        rows, ragged = expected
        nameless = 3 if header.count(",") == 2 else None
        found = tables(path, delimiter=delimiter, quote='"')
        assert found == ([row[:nameless] for row in rows], ragged)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_compressed_file_may_have_any_encoding(tmp_path, ending):
    path = tmp_path / f"shots.csv{ending}"
    path.write_bytes(packed("id,prompt\n1,café\n2,thé\n".encode("cp1252"), ending))
    assert prompts(read_batch(settings(path, encoding="cp1252"))) == [(2, "café"), (3, "thé")]
    with pytest.raises(InputError, match=re.escape(f"{path}, line 2: is not UTF-8 (byte 0xE9)")):
        read_batch(settings(path))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match="cannot be decompressed"):
        read_batch(settings(path, encoding="cp1252"))
