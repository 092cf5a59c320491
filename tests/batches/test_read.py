"""Any batch file becomes checked rows, and each reject has its line in the file."""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest

from callsheet.batches.identities import THIS_ID, without_signature, written_alike
from callsheet.batches.read import read_batch
from callsheet.cells import REJECTS, rejects_csv
from callsheet.errors import InputError
from tests.batches.conftest import places, prompts, rows_of, settings


def test_every_column_is_read_and_the_others_are_carried(batch):
    read = batch(
        "id,model,prompt,aspect_ratio,resolution,output_format,duration,sound,samples,first_frame,sku\n"
        " a1 , reel-1 ,  a cat ,16:9,720p,,5.0,TRUE,3,start.png,K-7\n"
    )
    row = {"line": 2, "row_id": "a1", "model": "reel-1", "prompt": "  a cat ", "aspect_ratio": "16:9"}
    row |= {"resolution": "720p", "duration": 5, "sound": True, "samples": 3, "first_frame": "start.png"}
    found = {name: cell for name, cell in read.rows.row(0, named=True).items() if cell is not None}
    assert found == row | {"carried": {"sku": "K-7"}}
    empty = {"file", "output_format", "images", "last_frame", "reference_image"}
    assert {*read.rows.columns} == {*found} | empty
    assert (read.total, read.rejects.height) == (1, 0)


def test_columns_are_mapped_and_defaults_fill_what_is_empty(batch):
    read = batch(
        "text,engine,prompt\na cat,,old\na dog,poster-1,older\n",
        columns={"prompt": "text", "model": "engine"},
        defaults={"model": "still-1", "resolution": "1K", "duration": 5},
    )
    assert rows_of(read, "prompt", "model", "resolution") == [
        ("a cat", "still-1", "1K"),
        ("a dog", "poster-1", "1K"),
    ]
    assert read.rows["carried"].to_list() == [{"prompt": "old"}, {"prompt": "older"}]
    assert read.rows["duration"].to_list() == [None, None], "the type of model decides whether it applies"
    read = batch("text,secs\n,x\n", columns={"prompt": "text", "duration": "secs"})
    assert read.rejects.select("line", "column").rows() == [(2, "text"), (2, "secs")]


def test_the_apostrophes_of_another_program_s_export_for_spreadsheets_are_named_and_sent(batch):
    text = "prompt,tone,shot\n'=A fox,red,1\na fox,'-7 degrees,2\n'tis a fox,'90s,'=3\n"
    read = batch(text)
    [note] = read.notes
    assert "shots.csv, line 2: 1 row has an apostrophe before =, +, - or @" in note
    assert [prompt for _, prompt in prompts(read)] == ["'=A fox", "a fox", "'tis a fox"]
    [note] = batch(text, template="{prompt}, {tone}").notes
    assert "shots.csv, line 2: 2 rows have an apostrophe" in note
    assert not batch("prompt\n=A fox\n'tis\n").notes, "what no program has written so"


@pytest.mark.parametrize(
    ("header", "given", "missing", "hint"),
    [
        ("id,text", {}, "'prompt'; the columns are id, text", "{prompt: text}"),
        ("id,prompt", {"defaults": {}}, "'model'", "{model: still-1}"),
        ("prompt,secs", {"columns": {"duration": "seconds"}}, "'seconds'", "{duration: secs}"),
        ("a,b", {"template": "{a} {c}"}, "'c'", "input.template"),
    ],
)
def test_a_missing_column_is_an_error_with_the_file_s_columns_and_a_hint(
    error_of, header, given, missing, hint
):
    error = error_of(f"{header}\n1,2\n", **given)
    assert f"there is no column {missing}" in error.message
    assert hint in error.hint


def test_booleans_and_whole_numbers_are_read_as_people_and_spreadsheets_write_them(batch):
    cells = [("TRUE", "5"), ("Yes", "5.0"), ("1", "+5"), ("off", " 5 "), ("No", "5."), ("0.0", ""), ("", "")]
    read = batch("prompt,sound,duration\n" + "".join(f"x,{sound},{number}\n" for sound, number in cells))
    assert read.rows["sound"].to_list() == [True, True, True, False, False, False, None]
    assert read.rows["duration"].to_list() == [5, 5, 5, 5, 5, None, None]


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        ("duration", {"5,0": 5, "10,00": 10, "1:30": 90, "0:05": 5, "00:01:30": 90}),
        ("samples", {"3,0": 3}),
        ("duration", {"5s": 5, "10 sec": 10, "5.0 Seconds": 5}),
        ("duration", dict.fromkeys(["1,000", "5,5", "1:75", "5,5 s", "5-6 s"])),  # a thousand, or one
        ("samples", dict.fromkeys(["1,000", "0:05"])),
    ],
)
def test_a_decimal_comma_and_minutes_with_seconds_are_whole_numbers(batch, column, numbers):
    read = batch(f"prompt;{column}\n" + "".join(f"x;{text}\n" for text in numbers))
    wrong = [column for number in numbers.values() if number is None]
    assert read.rows[column].to_list() == [number for number in numbers.values() if number is not None]
    assert [each for _, each, _ in places(read)] == wrong


def test_a_ratio_may_have_its_word_behind_it(batch):
    cells = {"2:3 (portrait)": "2:3", "16:9 wide": "16:9", "16:09:00": "16:9", "wide": "wide"}
    read = batch("prompt;aspect_ratio\n" + "".join(f"x;{cell}\n" for cell in cells))
    assert read.rows["aspect_ratio"].to_list() == [*cells.values()]


def test_a_wrong_cell_is_rejected_with_column_value_and_reason(batch):
    reasons = {
        "duration": "is not a whole number of seconds",
        "sound": "is not a boolean; expected true, false, yes, no, 1 or 0",
        "samples": "is not a whole number from 1 to 10,000",
    }
    wrong = [("duration", text) for text in ("5.5", "five", "99999999999999999999", "1e1")]
    wrong += [("sound", "loud"), *(("samples", text) for text in ("0", "-1", "10001", "two"))]
    rows = [",".join(text if column == name else "" for name in reasons) for column, text in wrong]
    read = batch("prompt,duration,sound,samples\n" + "".join(f"x,{row}\n" for row in rows))
    assert sorted(read.rejects.rows()) == [
        (line, column, text, reasons[column]) for line, (column, text) in enumerate(wrong, 2)
    ]
    assert read.rows.height == 0


def test_a_prompt_has_1_to_4096_characters_and_no_nul_because_postgresql_cannot_store_it(batch):
    read = batch(f"prompt,id,note\n{'é' * 4096},1,a\0b\n{'é' * 4097},2,\n   ,3,\n,4,\nx\0y,5,\nx,6\0,\n")
    assert read.rows["row_id"].to_list() == ["1"]
    assert places(read) == [
        (3, "prompt", "has 4097 characters; at most 4096 are allowed"),
        (4, "prompt", "the prompt is empty"),
        (5, "prompt", "the prompt is empty"),
        (6, "prompt", "contains a NUL character"),
        (7, "id", "contains a NUL character"),
    ]
    assert read.rejects["value"][0] == "é" * 79 + "…"


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


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        ("", "shots.csv", "is empty"),
        ("\n\n", "shots.csv", "is empty"),
        ("prompt\n", "shots.csv", "has no rows"),
        ("prompt,prompt\nx,y\n", "shots.csv", "line 1: two columns are named 'prompt'"),
        ('prompt,id\n"y"z,2\n', "shots.csv", "line 2: broken quoting"),
        ('prompt,id\nx,1\n"y,2\nz,3\n', "shots.csv", "line 3: broken quoting"),
        (b"prompt,id\nx,1\ncaf\xe9,2\n", "shots.csv", "line 3: is not UTF-8 (byte 0xE9)"),
        (gzip.compress(b"prompt,id\nx,1\ncaf\xe9,2\n", mtime=0), "shots.csv.gz", "line 3: is not UTF-8"),
        (b"prompt\nx\n", "shots.csv.gz", "cannot be decompressed"),
        (gzip.compress(b"prompt\nxyz\n" * 99, mtime=0)[:40], "shots.csv.gz", "cannot be decompressed"),
        (b"\x28\xb5\x2f\xfdno", "shots.csv.zst", "shots.csv.zst: cannot be decompressed"),
        (b"PK\x03\x04", "shots.xlsx", "cannot be read as a workbook"),
        ('{"id":\n{"x"\n', "shots.jsonl", "has no rows; line 1 is not JSON: Expecting value at character 7"),
        (b"PAR1, or not", "shots.parquet", "cannot be read as Parquet"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "x.xlsx", "it has a password, or is another document"),
        (b"prompt\na cat\n", "x.xlsx", "it is none"),
        (b"\x1f\x8b\x08 and so on", "x.xlsx", "it is compressed (.gz)"),
        (b"", "x.xlsx", "is empty"),
        (b"", "x.parquet", "is empty"),
        (b"PK\x03\x04\xff", "x.parquet", "is not Parquet, but a workbook (.xlsx) or another archive"),
        (b"PK\x03\x04\xff", "x.csv", "is not text, but a workbook (.xlsx) or another archive"),
        (b"PAR1\x15\xff", "x.jsonl", "is not text, but Parquet (.parquet)"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(error_of, tmp_path, content, name, expected):
    message = error_of(content, name).message
    assert expected in message
    assert message.startswith(str(tmp_path / name))


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
    assert rows_of(found, "line", "row_id", "prompt", "duration", "sound") == [
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


@pytest.mark.parametrize(
    ("column", "cell"),
    [("images", [b"PNG"]), ("images", [{"bytes": b"PNG"}]), ("prompt", ["a"]), ("prompt", timedelta(1))],
)
def test_a_column_of_a_type_that_cannot_be_what_it_is_for_is_an_error(tmp_path, column, cell):
    table = pl.DataFrame({"prompt": ["x"]}).with_columns(pl.Series(column, [cell]))
    table.write_parquet(tmp_path / "shots.parquet")
    with pytest.raises(InputError, match=f"the column '{column}' has the type .*; expected"):
        read_batch(settings(tmp_path / "shots.parquet"))


def test_a_repeated_id_is_rejected_and_its_first_line_named(batch):
    read = batch("id,prompt\nA,x\nB,y\n A ,z\na,w\nA,v\n")
    assert read.rows["row_id"].to_list() == ["A", "B", "a"]
    assert places(read) == [(4, "id", f"line 2 has{THIS_ID}"), (6, "id", f"line 2 has{THIS_ID}")]


def test_an_id_made_from_content_counts_the_occurrences_of_that_content(batch):
    """Order, carried columns and samples have no part in it."""
    ids = batch("id,prompt,note,samples\n,x,1,1\n,y,2,1\nown,x,3,1\n,x,4,1\n").rows["row_id"]
    contents, counts = zip(*(row_id.partition("-")[::2] for row_id in ids), strict=True)
    assert counts == ("1", "1", "", "2")
    assert contents[0] == contents[3] != contents[1]
    after = batch("samples,note,prompt\n5,b,y\n2,c,x\n9,d,z\n2,a,x\n").rows["row_id"]
    assert [after[0], after[1], after[3]] == [ids[1], ids[0], ids[3]]


def test_an_id_made_from_content_does_not_depend_on_the_matrix(batch):
    text = "prompt,model\nx,still-1\n"
    one = batch(text, matrix={"aspect_ratio": ["1:1"]}).rows["row_id"].to_list()
    assert batch(text, matrix={"aspect_ratio": ["16:9", "1:1"]}).rows["row_id"].to_list() == one
    assert batch(text).rows["row_id"].to_list() == one, "a first matrix over an empty column"
    two = {"aspect_ratio": ["1:1"], "sound": [True], "duration": [5]}
    assert batch(text, matrix=two).rows["row_id"].to_list() == one
    other = batch("prompt,model,aspect_ratio\nx,still-1,1:1\n")
    assert other.rows["row_id"].to_list() != one, "a value of the row is part of its content"


def test_ids_and_occurrences_are_told_apart_over_all_files(tmp_path):
    for name in ("a", "b"):
        text = f"id,prompt,{name}\nsame,x,1\n,x,2\n,x,3\n,y,4\n{name},z,5\n,,6\n"
        (tmp_path / f"{name}.csv").write_text(text)
    found = read_batch(settings(tmp_path / "*.csv"))
    listed = found.rejects.select("line", "column", "reason").rows()
    assert [(line, column) for line, column, _ in listed] == [(2, "id"), (7, "prompt"), (7, "prompt")]
    assert "line 2 of" in listed[0][2]
    assert (found.total, found.rows.height) == (12, 9)
    of_x = found.rows.filter(pl.col("prompt") == "x", pl.col("row_id") != "same")["row_id"].to_list()
    assert [row_id.partition("-")[2] for row_id in of_x] == ["1", "2", "3", "4"]
    assert found.rows["carried"].to_list()[0] == {"a": "1", "b": None}


def test_a_file_with_fewer_columns_or_narrower_types_than_the_first_has_its_rows(tmp_path):
    for name, cells in {"a": {"sku": ["x"], "n": [1.5]}, "b": {"sku": ["y"]}, "c": {"n": [2]}}.items():
        pl.DataFrame({"prompt": [name], **cells}).write_parquet(tmp_path / f"{name}.parquet")
    carried = read_batch(settings(tmp_path / "*.parquet")).rows["carried"].to_list()
    assert carried == [{"sku": "x", "n": 1.5}, {"sku": "y", "n": None}, {"sku": None, "n": 2.0}]
    pl.DataFrame({"prompt": ["d"], "sku": [["x"]]}).write_parquet(tmp_path / "d.parquet")
    with pytest.raises(InputError, match="a column has different types in different files"):
        read_batch(settings(tmp_path / "*.parquet"))


def test_rejects_as_csv_have_a_header_and_no_formula_that_a_spreadsheet_would_run():
    assert rejects_csv(pl.DataFrame(schema=REJECTS)) == b"line,column,value,reason\n"
    formulas = ['=HYPERLINK("http://x","y")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]
    formulas += ["\uff1d1+1", "\uff20SUM(A1)", "  =1+1", "\xa0=1", "\n=1"]
    texts = ["a=b", "-1", "+5", "-1.5", "+", "", "'=1"]
    columns = {"line": range(18), "column": ["=c", *["duration"] * 17], "value": formulas + texts}
    table = pl.DataFrame(columns).with_columns(reason=pl.lit("is wrong"))
    found = list(csv.DictReader(io.StringIO(rejects_csv(table).decode(), newline="")))
    harmless = ["a=b", "-1", "+5", "-1.5", "'+", "", "'=1"]
    assert [row["value"] for row in found] == [*(f"'{formula}" for formula in formulas), *harmless]
    assert [row["column"] for row in found[:2]] == ["'=c", "duration"]
    assert [row["line"] for row in found[:2]] == ["0", "1"]


@pytest.mark.parametrize(
    ("address", "bare"),
    [
        ("?expires=1&token=t", "?expires=1&token=t"),
        ("?v=2&X-Amz-Expires=7200&x-amz-signature=a%2F#top", "?v=2#top"),
        ("?AWSAccessKeyId=A&Signature=b&Expires=1&versionId=3", "?versionId=3"),
        ("?X-Goog-Date=1&X-Goog-Signature=b", ""),
        ("?Policy=p&Signature=s&Key-Pair-Id=k&w=100", "?w=100"),
        ("?sp=r&st=1&se=2&spr=https&sv=2022-11-02&sr=b&sig=x%3D&snapshot=7", "?snapshot=7"),
        ("?x-oss-process=image/resize,w_9&x-oss-date=1&x-oss-signature=s", "?x-oss-process=image/resize,w_9"),
        ("?x-oss-signature=s&x-oss-access-key-id=k&x-oss-additional-headers=host&sv=1", "?sv=1"),
        ("?ex=1&is=2&hm=3&", ""),
        *((query, query) for query in ("?sp=r&se=2", "?Expires=1&w=2", "?token=t", "?sig=1", "?s=9&v=2", "")),
    ],
)
def test_an_address_is_told_apart_without_its_signature_where_it_is_signed(address, bare):
    image = "https://files.example/a.png"
    assert without_signature(image + address) == image + bare


def test_an_id_with_a_character_that_nobody_sees_is_like_the_one_without():
    alike = {"\u200bcup": "cup", "mug\ufeff": "MUG"}
    assert written_alike([*alike, "hat"], [*alike.values()]) == alike


def test_a_column_is_released_and_an_id_is_made_of_columns(batch):
    text = "category,id,prompt\nanime,000,A nun\nportrait,000,A sailor\n,001,An owl\n"
    assert len(batch(text, columns={"id": None}).rows) == 3
    read = batch(text, id="{category}-{id}")
    assert read.rows["row_id"].to_list() == ["anime-000", "portrait-000"]
    assert read.rows["carried"].to_list()[0] == {"category": "anime", "id": "000"}
    assert places(read) == [(4, "category", "is empty, and input.id needs it")]


def test_values_of_cells_are_replaced_and_rows_are_chosen(batch):
    text = "prompt,model,status,resolution\na,fast,new,hd\nb,slow,done,\nc,fast,redo,any\n"
    meant = {"model": {"fast": "sketch-1"}, "resolution": {"hd": "2K", "any": None}}
    read = batch(text, values=meant, where={"status": ["new", "redo"]})
    assert rows_of(read, "prompt", "model", "resolution") == [
        ("a", "sketch-1", "2K"),
        ("c", "sketch-1", None),
    ]
    assert (read.total, read.left_out) == (2, 1)
