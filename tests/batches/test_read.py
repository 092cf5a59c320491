"""Reading: any batch file becomes checked rows, and each reject knows its line in the file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as quick
from hypothesis import strategies as st

from callsheet.batches import delimited, sources
from callsheet.batches.dialects import zstd
from callsheet.batches.read import Batch, read_batch
from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError, ConfigError, InputError
from callsheet.pricing import references
from tests.servers import s3 as servers

PARTI = Path(__file__).parents[3] / "shared/data/PartiPrompts.tsv"


def settings(path: Path | str, **given: Any) -> Settings:
    return Settings.model_validate(
        {
            "batch": "b",
            "service": {"base_url": "http://127.0.0.1:1"},
            "input": {"path": str(path), "defaults": {"model": "still-1"}, **given},
        }
    )


@pytest.fixture
def batch(tmp_path: Path):
    def batch(content: str | bytes, name: str = "shots.csv", **given: Any) -> Batch:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_batch(settings(path, **given))

    return batch


@pytest.fixture
def refusal(batch):
    def refusal(content: str | bytes, name: str = "shots.csv", **given: Any) -> str:
        with pytest.raises(CallsheetError) as caught:
            batch(content, name, **given)
        assert isinstance(caught.value, InputError | ConfigError)
        return caught.value.message

    return refusal


def places(batch: Batch) -> list[tuple[int, str, str]]:
    return batch.rejects.select("line", "column", "reason").rows()


def prompts(batch: Batch) -> list[tuple[int, str]]:
    return batch.rows.select("line", "prompt").rows()


def test_every_column_is_read_and_the_others_are_carried(batch):
    read = batch(
        "id,model,prompt,aspect_ratio,resolution,output_format,duration,sound,samples,first_frame,sku\n"
        " a1 , reel-1 ,  a cat ,16:9,720p,,5.0,TRUE,3,start.png,K-7\n"
    )
    row = read.rows.row(0, named=True)
    assert row == {
        "line": 2,
        "file": None,
        "row_id": "a1",
        "model": "reel-1",
        "prompt": "  a cat ",
        "aspect_ratio": "16:9",
        "resolution": "720p",
        "output_format": None,
        "duration": 5,
        "sound": True,
        "samples": 3,
        "images": None,
        "first_frame": "start.png",
        "last_frame": None,
        "reference_image": None,
        "carried": {"sku": "K-7"},
    }
    assert (read.total, read.rejects.height) == (1, 0)


def test_columns_are_mapped_and_defaults_fill_what_is_empty(batch):
    read = batch(
        "text,engine,prompt\na cat,,old\na dog,poster-1,older\n",
        columns={"prompt": "text", "model": "engine"},
        defaults={"model": "still-1", "resolution": "1K", "duration": 5},
    )
    assert read.rows.select("prompt", "model", "resolution").rows() == [
        ("a cat", "still-1", "1K"),
        ("a dog", "poster-1", "1K"),
    ]
    assert read.rows["carried"].to_list() == [{"prompt": "old"}, {"prompt": "older"}]
    assert read.rows["duration"].to_list() == [None, None], "the type of model decides whether it applies"


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
    assert places(read) == [
        (5, "", "the line has 2 cells, and the header has 3"),
        (6, "", "the line has 4 cells, and the header has 3"),
    ]
    assert read.total == 4


def test_a_surplus_cell_at_the_end_of_the_file_does_not_make_up_for_one_that_is_missing(batch):
    read = batch("prompt,a,b\none,1,2\ntwo,1\nthree,1,2,")
    assert prompts(read) == [(2, "one")]
    assert read.rejects["line"].to_list() == [3, 4]


DIALECTS = {
    "commas": b"prompt,id\nsaid,a\ncaf\xc3\xa9,b\n",
    "semicolons": b"prompt;id\nsaid;a\ncaf\xc3\xa9;b\n",
    "tabs": b"prompt\tid\nsaid\ta\ncaf\xc3\xa9\tb\n",
    "bars": b"prompt|id\nsaid|a\ncaf\xc3\xa9|b\n",
    "byte order mark": b"\xef\xbb\xbfprompt,id\nsaid,a\ncaf\xc3\xa9,b\n",
    "crlf": b"prompt,id\r\nsaid,a\r\ncaf\xc3\xa9,b\r\n",
    "cr": b"prompt,id\rsaid,a\rcaf\xc3\xa9,b\r",
    "no last line end": b"prompt,id\nsaid,a\ncaf\xc3\xa9,b",
    "all quoted": b'"prompt","id"\n"said","a"\n"caf\xc3\xa9","b"\n',
    "utf-16": "prompt\tid\r\nsaid\ta\r\ncafé\tb\r\n".encode("utf-16"),
    "commas in a header of semicolons": 'prompt;id;"a,b,c,d"\nsaid;a;1\ncafé;b;2\n'.encode(),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_is_detected(batch, name):
    read = batch(DIALECTS[name], "shots.txt")
    assert read.rows.select("row_id", "prompt", "line").rows() == [("a", "said", 2), ("b", "café", 3)]


GOLDEN = Path(__file__).parents[1] / "data"
FILES = json.loads((GOLDEN / "dialects.json").read_text())


@pytest.mark.parametrize("name", FILES)
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


def test_every_file_in_the_folder_of_dialects_is_tested():
    assert {each.name for each in (GOLDEN / "dialects").iterdir()} - {".gitattributes"} == set(FILES)


def test_the_hint_for_a_missing_column_names_that_column(tmp_path):
    def hint(header: str, **given: Any) -> str:
        (tmp_path / "x.csv").write_text(f"{header}\n1,2\n")
        with pytest.raises(InputError) as caught:
            read_batch(settings(tmp_path / "x.csv", **given))
        return caught.value.hint

    assert "{prompt: text}" in hint("id,text")
    assert "{prompt: Prompt}" in hint("id,Prompt")
    assert "{model: still-1}" in hint("id,prompt", defaults={})
    assert "{model: Model}" in hint("prompt,Model", defaults={})
    assert "{duration: secs}" in hint("prompt,secs", columns={"duration": "seconds"})
    assert "input.template" in hint("a,b", template="{a} {c}")


def test_a_workbook_without_the_extra_is_an_error_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(InputError) as caught:
        read_batch(settings(GOLDEN / "dialects/workbook.xlsx"))
    assert "callsheet[xlsx]" in caught.value.hint


def test_quotes_are_read_as_spreadsheets_write_them(batch):
    read = batch('prompt,id\r\n"a ""big"", red cat\r\nasleep",1\r\n5" nail,2\r\n')
    assert prompts(read) == [(2, 'a "big", red cat\nasleep'), (4, '5" nail')]


def test_a_quote_in_a_file_of_tabs_is_text_where_no_spreadsheet_can_have_written_it(batch):
    plain = batch('prompt\tid\n"G I G" on a wall\t1\nsay "hi"\t2\n', "shots.tsv")
    assert prompts(plain) == [(2, '"G I G" on a wall'), (3, 'say "hi"')]
    melting = batch('prompt\tid\n"Hello, she said\t1\nand\t2\nbye"\t3\n', "shots.tsv")
    assert prompts(melting) == [(2, '"Hello, she said'), (3, "and"), (4, 'bye"')]
    spreadsheet = batch('"prompt"\tid\n"a ""big""\ncat"\t1\n"x\ty"\t2\n', "shots.tsv")
    assert prompts(spreadsheet) == [(2, 'a "big"\ncat'), (4, "x\ty")]
    assert prompts(batch('prompt\tid\n"all"\t1\n', "shots.tsv")) == [(2, "all")]
    assert prompts(batch('prompt\tid\n"one\ntwo"\t1\n', "shots.tsv")) == [(2, "one\ntwo")]


def test_prompts_in_a_text_file_of_one_column_may_contain_commas(batch):
    assert prompts(batch("prompt\na red, round thing\n", "shots.txt")) == [(2, "a red, round thing")]


def test_an_encoding_and_a_delimiter_can_be_declared(batch):
    read = batch("prompt~id\ncafé, fort~1\n".encode("cp1252"), encoding="cp1252", delimiter="~")
    assert prompts(read) == [(2, "café, fort")]


@pytest.mark.parametrize("written", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("declared", [None, "utf-8", "cp1252", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_byte_order_mark_overrides_the_config(batch, written, declared):
    read = batch("prompt,id\ncafé,1\n".encode(written), encoding=declared)
    assert prompts(read) == [(2, "café")]


def packed(content: bytes, ending: str) -> bytes:
    if ending.endswith(".zst"):
        return zstd.compress(content)
    return gzip.compress(content) if ending.endswith(".gz") else content


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".csv.zst"])
def test_compressed_files_are_read_like_uncompressed_ones(tmp_path, ending):
    text = 'prompt,id\r\n"one\r\ntwo",1\r\n\r\nthree,2\r\nfour,2\r\n'
    path = tmp_path / f"shots{ending}"
    path.write_bytes(packed(text.encode(), ending))
    packed_batch = read_batch(settings(path))
    assert prompts(packed_batch) == [(2, "one\ntwo"), (5, "three")]
    assert places(packed_batch) == [(6, "id", "line 5 has this id already")]


def tables(path: Path, **given: Any) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Lines and cells of the rows, and the lines of the ragged ones."""
    declared = {"delimiter": None, "encoding": None, "expected": ()} | given
    found = list(delimited.read_tables(path, path.name, **declared))
    rows = [row for each in found for row in each.cells.select(each.lines.alias("line"), pl.all()).rows()]
    return rows, [line for each in found for line, _, _ in each.ragged]


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


BLOCKS = [1, 10, 1 << 22]


@given(
    st.lists(
        st.lists(st.text('ab",;|\t\n ', max_size=6), min_size=3, max_size=3) | st.just([]),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([",", ";", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(BLOCKS),
)
@quick(max_examples=100, deadline=None)
def test_what_csv_writes_is_read_back_with_its_lines(tmp_path_factory, rows, delimiter, ends, block):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow("xyz")
    expected = []
    for row in rows:
        line = text.getvalue().count("\n") + 1
        writer.writerow(row)
        if any(row):
            expected.append((line, *row))
    path = tmp_path_factory.mktemp("dialect") / "x.csv"
    path.write_bytes(text.getvalue().replace("\n", ends).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_BLOCK", block)
        assert tables(path, delimiter=delimiter) == (expected, [])


PIECES = [
    " ",
    "a",
    "\u00e9 ",
    "\ufeff",
    "#",
    "\\",
    "\0",
    '"',
    '""',
    ",",
    ",",
    "\n",
    "\n",
    '"a,\n"',
    ',"b",',
    '\n"',
]


@given(
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
    st.sampled_from(["x\n", "x,y\n", 'x,"y\nz",\n']),
    st.sampled_from(BLOCKS),
)
@quick(max_examples=200, deadline=None)
def test_any_text_is_read_as_csv_reads_it(tmp_path_factory, text, header, block):
    path = tmp_path_factory.mktemp("text") / "x.csv"
    path.write_bytes((header + text).encode())
    expected = reference(header + text, ",")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_BLOCK", block)
        if expected is None:
            with pytest.raises(InputError, match="broken quoting"):
                tables(path, delimiter=",", quote='"')
        else:
            rows, ragged = expected
            nameless = 3 if header.count(",") == 2 else None
            found = tables(path, delimiter=",", quote='"')
            assert found == ([row[:nameless] for row in rows], ragged)


def test_csv_parses_only_the_blocks_that_are_not_regular(tmp_path, monkeypatch):
    lines = [f'{at},"one, ""two""\nthree {at}",x\n' for at in range(3000)]
    slow = []
    real = delimited._parse_any

    def counted(*given: Any) -> Any:
        table, last = real(*given)
        slow.append(table.cells.height)
        return table, last

    monkeypatch.setattr(delimited, "_BLOCK", 10_000)
    monkeypatch.setattr(delimited, "_parse_any", counted)
    path = tmp_path / "x.csv"
    path.write_text("id,prompt,c\n" + "".join(lines))
    rows, _ = tables(path)
    assert rows[2999] == (2 + 2 * 2999, "2999", 'one, "two"\nthree 2999', "x")
    assert slow == []
    lines[1500] = '1500,5" nail\n'
    path.write_text("id,prompt,c\n" + "".join(lines))
    rows, ragged = tables(path)
    assert ragged == [2 + 2 * 1500]
    assert rows[2998] == (2 + 2 * 2999 - 1, "2999", 'one, "two"\nthree 2999', "x")
    assert 0 < sum(slow) < 1000


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("TRUE", True),
        ("Yes", True),
        ("1", True),
        ("on", True),
        ("false", False),
        ("No", False),
        ("0", False),
        ("", None),
    ],
)
def test_booleans_are_read_as_people_write_them(batch, said, meant):
    assert batch(f"prompt,sound\nx,{said}\n").rows["sound"].to_list() == [meant]


@pytest.mark.parametrize(
    ("said", "meant"), [("5", 5), ("5.0", 5), ("+5", 5), (" 5 ", 5), ("5.", 5), ("", None)]
)
def test_whole_numbers_are_read_as_spreadsheets_write_them(batch, said, meant):
    assert batch(f"prompt,duration\nx,{said}\n").rows["duration"].to_list() == [meant]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("duration", "5.5", "is not a whole number of seconds"),
        ("duration", "five", "is not a whole number of seconds"),
        ("duration", "99999999999999999999", "is not a whole number of seconds"),
        ("duration", "1e1", "is not a whole number of seconds"),
        ("sound", "loud", "is not a boolean; expected true, false, yes, no, 1 or 0"),
        ("samples", "0", "is not a whole number from 1 to 10,000"),
        ("samples", "-1", "is not a whole number from 1 to 10,000"),
        ("samples", "10001", "is not a whole number from 1 to 10,000"),
        ("samples", "two", "is not a whole number from 1 to 10,000"),
    ],
)
def test_a_wrong_cell_is_rejected_with_column_value_and_reason(batch, column, value, reason):
    read = batch(f"prompt,id,{column}\nx,1,{value}\n")
    assert read.rejects.rows() == [(2, column, value, reason)]
    assert read.rows.height == 0


def test_a_reject_names_the_column_as_the_file_does(batch):
    read = batch("text,secs\n,x\n", columns={"prompt": "text", "duration": "secs"})
    assert read.rejects.select("line", "column").rows() == [(2, "text"), (2, "secs")]


def test_a_prompt_has_1_to_4096_characters(batch):
    read = batch(f"prompt,id\n{'é' * 4096},1\n{'é' * 4097},2\n   ,3\n,4\n")
    assert read.rows["row_id"].to_list() == ["1"]
    assert places(read) == [
        (3, "prompt", "is longer than 4,096 characters"),
        (4, "prompt", "the prompt is empty"),
        (5, "prompt", "the prompt is empty"),
    ]
    assert read.rejects["value"][0] == "é" * 79 + "…"


def test_a_nul_character_is_rejected_because_postgresql_cannot_store_it(batch):
    read = batch("prompt,id,note\nx\0y,1,\nx,2\0,\nx,3,a\0b\n,4,\nno id,,\n")
    assert read.rows["prompt"].to_list() == ["x", "no id"]
    assert places(read) == [
        (2, "prompt", "contains a NUL character"),
        (3, "id", "contains a NUL character"),
        (5, "prompt", "the prompt is empty"),
    ]


def test_a_repeated_id_is_rejected_and_its_first_line_named(batch):
    read = batch("id,prompt\nA,x\nB,y\n A ,z\na,w\nA,v\n")
    assert read.rows["row_id"].to_list() == ["A", "B", "a"]
    assert places(read) == [(4, "id", "line 2 has this id already"), (6, "id", "line 2 has this id already")]


def test_an_id_made_from_content_does_not_depend_on_order_carried_columns_and_samples(batch):
    before = batch("prompt,note,samples\nx,1,1\ny,2,1\nx,3,1\n").rows.select("prompt", "row_id")
    after = batch("samples,note,prompt\n2,c,x\n5,b,y\n2,a,x\n9,d,z\n").rows.select("prompt", "row_id")
    assert after.rows()[:3] == [before.row(0), before.row(1), before.row(2)]
    assert before["row_id"].n_unique() == 3
    assert before["row_id"][0].rsplit("-", 1)[0] == before["row_id"][2].rsplit("-", 1)[0]


def test_an_id_made_from_content_counts_the_occurrences_of_that_content(batch, monkeypatch):
    monkeypatch.setattr(delimited, "_BLOCK", 20)
    ids = batch("id,prompt\n,x\n,y\nown,x\n,x\n,y\n,x\n").rows["row_id"]
    contents = [each.rsplit("-", 1)[0] for each in ids]
    assert [each.rsplit("-", 1)[-1] for each in ids] == ["1", "1", "own", "2", "2", "3"]
    assert contents[0] == contents[3] == contents[5] != contents[1] == contents[4]


def test_an_id_made_from_content_does_not_depend_on_the_matrix(batch):
    text = "prompt,model\nx,still-1\n"
    one = batch(text, matrix={"aspect_ratio": ["1:1"]}).rows["row_id"].to_list()
    assert batch(text, matrix={"aspect_ratio": ["16:9", "1:1"]}).rows["row_id"].to_list() == one
    assert batch(text).rows["row_id"].to_list() == one, "a first axis over a column that says nothing"
    two = {"aspect_ratio": ["1:1"], "sound": [True], "duration": [5]}
    assert batch(text, matrix=two).rows["row_id"].to_list() == one
    other = batch("prompt,model,aspect_ratio\nx,still-1,1:1\n")
    assert other.rows["row_id"].to_list() != one, "what a row says is its content"


def test_a_template_makes_the_prompt(batch):
    read = batch(
        'adjective,product,model\nred,shoe,\n,hat,\nblue,"cap\n{x}",\n',
        template="a {adjective} {{studio}} photo of {product}, {adjective}",
    )
    assert prompts(read) == [
        (2, "a red {studio} photo of shoe, red"),
        (4, "a blue {studio} photo of cap\n{x}, blue"),
    ]
    assert places(read) == [(3, "adjective", "is empty, and input.template needs it")]
    assert read.rows["carried"].to_list()[0] == {"adjective": "red", "product": "shoe"}


def test_a_template_without_columns_is_every_row_s_prompt(batch):
    read = batch("prompt,model\nold,\nolder,\nshort\n", template='a "{{x}}"')
    assert prompts(read) == [(2, 'a "{x}"'), (3, 'a "{x}"')]
    assert batch("a,b\nshort\n", template="x").total == 1


@pytest.mark.parametrize(
    "kind", [pl.List(pl.String), pl.Array(pl.String, 1), pl.Struct({"a": pl.Int8}), pl.Binary]
)
def test_a_template_column_must_be_text_or_numbers(tmp_path, kind):
    pl.DataFrame({"a": [None]}, schema={"a": kind}).write_parquet(tmp_path / "shots.parquet")
    with pytest.raises(InputError, match=r"'a' has the type .*; expected text or numbers for input.template"):
        read_batch(settings(tmp_path / "shots.parquet", template="a {a}"))


def test_a_template_with_a_missing_column_lists_the_columns_of_the_file(refusal):
    said = refusal("a,b\n1,2\n", template="{a} of {c}")
    assert said.endswith("line 1: there is no column 'c'; the columns are a, b")


def test_a_missing_column_is_an_error_that_lists_the_columns_of_the_file(refusal, batch):
    assert refusal("text,b\n1,2\n").endswith("there is no column 'prompt'; the columns are text, b")
    assert "no column 'secs'" in refusal("prompt\nx\n", columns={"duration": "secs"})
    assert "no column 'model'" in refusal("prompt\nx\n", defaults={})
    assert batch("prompt\nx\n", defaults={}, matrix={"model": ["a", "b"]}).rows.height == 1


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        ("", "shots.csv", "is empty"),
        ("\n\n", "shots.csv", "is empty"),
        ("prompt\n", "shots.csv", "has no rows"),
        ("prompt,prompt\nx,y\n", "shots.csv", "line 1: two columns are named 'prompt'"),
        ('prompt,id\nx,1\n"y"z,2\n', "shots.csv", "line 3: broken quoting"),
        ('prompt,id\nx,1\n"y,2\nz,3\n', "shots.csv", "line 3: broken quoting"),
        (b"prompt,id\nx,1\ncaf\xe9,2\n", "shots.csv", "line 3: is not UTF-8 (byte 0xE9)"),
        (gzip.compress(b"prompt,id\nx,1\ncaf\xe9,2\n", mtime=0), "shots.csv.gz", "line 3: is not UTF-8"),
        (b"prompt\nx\n", "shots.csv.gz", "cannot be decompressed"),
        (gzip.compress(b"prompt\nxyz\n" * 99, mtime=0)[:40], "shots.csv.gz", "cannot be decompressed"),
        (b"\x28\xb5\x2f\xfdno", "shots.csv.zst", "shots.csv.zst: cannot be"),
        (b"PK\x03\x04", "shots.ods", "is not of a known type; expected .csv"),
        (b"PK\x03\x04", "shots.xlsx", "cannot be read as a workbook"),
        (b"PAR1, or not", "shots.parquet", "cannot be read as Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(refusal, tmp_path, content, name, says):
    said = refusal(content, name)
    assert says in said
    assert said.startswith(str(tmp_path / name))


def test_the_error_of_the_first_file_is_raised_although_files_are_read_ahead(tmp_path):
    (tmp_path / "a.csv").write_text("text,id\nx,1\n")
    (tmp_path / "b.csv").write_bytes(b"prompt,id\ncaf\xe9,1\n")
    with pytest.raises(InputError, match=r"a\.csv, line 1: there is no column 'prompt'"):
        read_batch(settings(tmp_path / "*.csv"))
    with pytest.raises(InputError, match=r"b\.csv, line 2: is not UTF-8"):
        read_batch(settings(tmp_path / "*.csv", columns={"prompt": "id"}))


def test_a_path_that_is_not_a_file_says_why(tmp_path):
    (tmp_path / "shots").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for path, says in [
        ("shots", "shots: is a folder"),
        ("none.csv", "none.csv: there is no such file"),
        ("none-*.csv", "none-*.csv: no file matches"),
        ("sho?s", "sho?s: no file matches"),
        ("x" * 300 + ".csv", "cannot be read: File name too long"),
        ("loop", "cannot be read: Too many levels"),
        ("a\0b", "is not a file name"),
    ]:
        with pytest.raises(InputError) as caught:
            read_batch(settings(tmp_path / path))
        assert says in caught.value.message
        assert (f"{tmp_path / 'shots/*.csv'}." in caught.value.hint) == (path == "shots")


@pytest.mark.skipif(os.geteuid() == 0, reason="root has access to everything")
def test_a_file_in_a_folder_without_access_is_named(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(InputError, match=r"closed/x\.csv: cannot be read: Permission denied"):
        read_batch(settings(tmp_path / "closed/x.csv"))


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


def test_an_encoding_that_does_not_fit_is_named(refusal):
    assert "is not utf-16 text" in refusal("prompt\nx\n", encoding="utf-16")


def test_files_with_incompatible_column_types_are_an_error(tmp_path):
    for at, value in enumerate(["x", [1]]):
        pl.DataFrame({"prompt": ["p"], "note": [value]}).write_parquet(tmp_path / f"{at}.parquet")
    with pytest.raises(InputError, match="a column has different types in different files"):
        read_batch(settings(tmp_path / "*.parquet"))


def test_a_missing_file_is_named(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path / "none-*.csv"):
        with pytest.raises(InputError, match=r"no such file|no file matches") as caught:
            read_batch(settings(path))
        assert str(path) in caught.value.message


def test_several_files_are_read_in_the_order_of_their_names(tmp_path):
    (tmp_path / "b.csv").write_text("prompt,id,note\nthird,3,\nagain,1,n\n,4,\n")
    (tmp_path / "a.tsv").write_text("id\tprompt\tsize\n1\tfirst\t9\n2\tsecond\n")
    (tmp_path / "c.md").write_text("not a batch")
    found = read_batch(settings(tmp_path / "[ab].?sv"))
    assert prompts(found) == [(2, "first"), (2, "third")]
    assert found.rows["carried"].to_list() == [{"size": "9", "note": None}, {"size": None, "note": ""}]
    assert [(line, reason.split(str(tmp_path))[0]) for line, _, _, reason in found.rejects.rows()] == [
        (3, "the line has 2 cells, and the header has 3 (in "),
        (3, "line 2 of "),
        (4, "the prompt is empty (in "),
    ]
    assert found.total == 5


def test_parquet_is_read_with_its_types(tmp_path):
    table = pl.DataFrame(
        {
            "id": [1, 2, 3, 4],
            "prompt": pl.Series(["a", "b", None, "d"], dtype=pl.Categorical),
            "duration": [5.0, None, 5.0, 5.5],
            "sound": [True, False, None, None],
            "images": [[{"url": "https://h/x.png", "role": "first_frame"}], [], None, None],
            "price": [Decimal("1.10"), None, None, None],
            "tags": [["x", "y"], [], None, None],
        }
    )
    table.write_parquet(tmp_path / "shots.parquet", compression="gzip")
    found = read_batch(settings(tmp_path / "shots.parquet"))
    assert found.rows.select("line", "row_id", "prompt", "duration", "sound").rows() == [
        (1, "1", "a", 5, True),
        (2, "2", "b", None, False),
    ]
    assert json.loads(found.rows["images"][0]) == [{"url": "https://h/x.png", "role": "first_frame"}]
    assert found.rows["carried"][0] == {"price": "1.10", "tags": ["x", "y"]}
    assert found.rejects.select("line", "column", "value").rows() == [
        (3, "prompt", ""),
        (4, "duration", "5.5"),
    ]


def test_a_carried_value_of_any_type_can_be_stored_in_the_ledger(tmp_path):
    utc = datetime(2026, 5, 1, 12, tzinfo=UTC)
    noon = utc.replace(tzinfo=None)
    carried = {
        "day": (noon.date(), "2026-05-01"),
        "local": (noon, "2026-05-01T12:00:00.000000"),
        "utc": (utc, "2026-05-01T12:00:00.000000+00:00"),
        "clock": (noon.time(), "12:00:00"),
        "took": (timedelta(hours=1, seconds=5), "PT1H5S"),
        "cost": (Decimal("12345678901234567890.10"), "12345678901234567890.10"),
        "bytes": (b"\x00\xff", "AP8="),
        "score": (float("nan"), None),
        "low": (float("-inf"), None),
        "weight": (1.5, 1.5),
        "days": ([noon.date(), None], ["2026-05-01", None]),
        "nested": (
            [{"at": [utc], "f": 0.5}, None],
            [{"at": ["2026-05-01T12:00:00.000000+00:00"], "f": 0.5}, None],
        ),
    }
    row = {name: given for name, (given, _) in carried.items()}
    table = pl.DataFrame([row | {"prompt": "x"}, dict.fromkeys(row) | {"prompt": "y"}])
    pair = pl.Series("pair", [[1.0, float("inf")], None], dtype=pl.Array(pl.Float64, 2))
    table.with_columns(pair).write_parquet(tmp_path / "shots.parquet")
    first, second = read_batch(settings(tmp_path / "shots.parquet")).rows["carried"].to_list()
    assert first == {name: kept for name, (_, kept) in carried.items()} | {"pair": [1.0, None]}
    assert set(second.values()) == {None}
    assert json.loads(json.dumps(first, allow_nan=False)) == first


def test_a_nested_column_as_prompt_is_an_error(tmp_path):
    for cell in (["a"], timedelta(1)):
        pl.DataFrame({"prompt": [cell]}).write_parquet(tmp_path / "shots.parquet")
        with pytest.raises(InputError, match="the column 'prompt' has the type"):
            read_batch(settings(tmp_path / "shots.parquet"))


@pytest.fixture
def bucket(s3: servers.Server, monkeypatch: pytest.MonkeyPatch) -> servers.Server:
    """The server, found by the standard environment variables."""
    for variable, value in s3.environment("reader").items():
        monkeypatch.setenv(variable, value)
    return s3


def put(server: servers.Server, key: str, content: bytes) -> str:
    server.client().put_object(Bucket=server.bucket, Key=key, Body=content)
    return f"s3://{server.bucket}/{key}"


def test_batch_files_are_read_from_s3(bucket, tmp_path):
    put(bucket, "in/b.csv.gz", gzip.compress(b"id,prompt\n3,z\n"))
    url = put(bucket, "in/a.csv", b"id,prompt\n1,x\n2,\n")
    put(bucket, "in/deeper/c.csv", b"id,prompt\n4,w\n")
    pl.DataFrame({"prompt": ["p"]}).write_parquet(tmp_path / "p.parquet")
    parquet = put(bucket, "in/p.parquet", (tmp_path / "p.parquet").read_bytes())
    assert prompts(read_batch(settings(url))) == [(2, "x")]
    assert prompts(read_batch(settings(parquet))) == [(1, "p")]
    found = read_batch(settings(f"s3://{bucket.bucket}/in/*.csv*"))
    assert found.rows["row_id"].to_list() == ["1", "3"]
    assert found.rejects["reason"].to_list() == [f"the prompt is empty (in {url})"]


def test_the_endpoint_of_s3_may_come_from_the_config(bucket, monkeypatch):
    url = put(bucket, "one.csv", b"prompt\nx\n")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    given = settings(url)
    storage = given.storage.model_copy(update={"endpoint_url": bucket.endpoint_url})
    assert prompts(read_batch(given.model_copy(update={"storage": storage}))) == [(2, "x")]


def test_an_object_that_cannot_be_read_is_named(bucket, monkeypatch):
    for url, says in [
        (f"s3://{bucket.bucket}/none.csv", "there is no such object"),
        (f"s3://{bucket.bucket}/none-*.csv", "no file matches"),
        ("s3://nobody/none.csv", "there is no such bucket (NoSuchBucket)"),
        ("s3://nobod?/none.csv", "S3 "),
        ("s3://nobody", "must look like s3://bucket/key"),
    ]:
        with pytest.raises(InputError) as caught:
            read_batch(settings(url))
        assert caught.value.message.startswith(url)
        assert says in caught.value.message
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(InputError, match="S3 refused the request"):
        read_batch(settings(f"s3://{bucket.bucket}/none.csv"))


def test_reference_images_are_read_from_s3(bucket):
    content = b"\x89PNG\r\n\x1a\n" + b"p" * 100
    url = put(bucket, "look.png", content)
    assert isinstance(references.examine(url), references.RequestImage)
    assert sources.read_file(url, 200) == content
    assert "there is no such object" in str(references.examine(url + "x"))
    with pytest.raises(InputError, match="has 108 bytes; at most 100 are allowed"):
        sources.read_file(url, 100)


@pytest.mark.skipif(not PARTI.exists(), reason="PartiPrompts.tsv is not part of the project")
def test_a_real_batch_file_is_read_whole():
    found = read_batch(settings(PARTI, columns={"prompt": "Prompt"}))
    assert (found.total, found.rows.height, found.rejects.height) == (1632, 1632, 0)
    assert found.rows["row_id"].n_unique() == 1632
    assert '"G I G G L E" painted in thick' in found.rows["prompt"].str.join("\n").item()
    assert found.rows.row(0, named=True)["carried"] == {
        "Category": "Abstract",
        "Challenge": "Basic",
        "Note": "Biology-inspired concepts with multiple meanings",
    }
