"""Text files: every dialect and encoding, and lists of prompts; each prompt is read whole, or refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, example, given
from hypothesis import settings as quick
from hypothesis import strategies as st

from callsheet.batches.delimited import read_table
from callsheet.batches.read import read_batch
from callsheet.batches.texts import read_text, zstd
from callsheet.errors import InputError
from tests.batches.conftest import places, prompts, rows_of, settings


def test_a_line_is_the_file_s_line_also_after_quoted_newlines_and_blank_lines(batch):
    read = batch(
        '\n\nprompt,sound\n"one\ntwo\nthree",yes\n\n\nx,no\n'
        '"y\n",maybe\nz,\n,\n  \n"",""\n,,,\nlast,perhaps\n'
    )
    assert prompts(read) == [(4, "one\ntwo\nthree"), (9, "x"), (12, "z")]
    assert read.rejects.select("line", "value").rows() == [(10, "maybe"), (17, "perhaps")]
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
    assert line == 3
    assert reason.endswith(f"; {quoted}, or the file's name ends in .txt: then each line is a prompt")


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


@pytest.mark.parametrize("mark", ["|", "\t"])
def test_a_quote_is_text_in_a_file_that_no_spreadsheet_has_written_where_it_is_broken_otherwise(batch, mark):
    for text, found in (
        ('"G I G" on a wall\t1\nsay "hi"\t2\n', [(2, '"G I G" on a wall'), (3, 'say "hi"')]),
        ('"Hello, she said\t1\nand\t2\nbye"\t3\n', [(2, '"Hello, she said'), (3, "and"), (4, 'bye"')]),
        ('"a ""big""\ncat"\t1\n"x\ty"\t2\n', [(2, 'a "big"\ncat'), (4, f"x{mark}y")]),
        ('"all"\t1\n', [(2, "all")]),
        ('"one\ntwo"\t1\n', [(2, "one\ntwo")]),
    ):
        assert prompts(batch(f"prompt\tid\n{text}".replace("\t", mark), "shots.tsv")) == found


def test_a_delimiter_and_a_quote_may_be_any_character(batch):
    read = batch("prompt¦id\n«a¦b«¦1\nc é¦2\n", delimiter="¦", quote="«")
    assert rows_of(read, "prompt", "row_id") == [("a¦b", "1"), ("c é", "2")]


@pytest.mark.parametrize("written", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("declared", [None, "utf-8", "cp1252", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_byte_order_mark_overrides_the_config(batch, written, declared):
    read = batch("prompt,id\ncafé,1\n".encode(written), encoding=declared)
    assert prompts(read) == [(2, "café")]


def test_lines_of_one_file_may_end_differently(batch):
    read = batch("prompt\rone\r\ntwo\n\r\r\nthree\n\rfour\r")
    assert prompts(read) == [(2, "one"), (3, "two"), (6, "three"), (8, "four")]


def tables(path: Path, **given: Any) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Lines and cells of the rows, and the lines of the ragged ones."""
    text, _ = read_text(path, path.name, None)
    table = read_table(text, path.name, **{"needed": (), "expected": ()} | given)
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
            elif len(cells) != width and any(cells) and (len(cells) > 1 or cells[0].strip()):
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
    assume(path.read_bytes().count(0) * 4 <= path.stat().st_size)  # otherwise it looks like UTF-16
    expected = reference(written, delimiter)
    if expected is None:
        try:
            _, ragged = tables(path, delimiter=delimiter, quote='"')
        except InputError as error:
            assert "broken quoting" in error.message
        else:
            assert ragged
    else:
        rows, ragged = expected
        nameless = 3 if header.count(",") == 2 else None
        found = tables(path, delimiter=delimiter, quote='"')
        assert found == ([row[:nameless] for row in rows], ragged)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_compressed_file_may_have_any_encoding(tmp_path, ending):
    path = tmp_path / f"shots.csv{ending}"
    compress = {".gz": gzip.compress, ".zst": zstd.compress}[ending]
    path.write_bytes(compress("id,prompt\n1,café\n2,thé\n".encode("cp1252")))
    assert prompts(read_batch(settings(path, encoding="cp1252"))) == [(2, "café"), (3, "thé")]
    with pytest.raises(InputError, match=re.escape(f"{path}, line 2: is not UTF-8 (byte 0xE9)")):
        read_batch(settings(path))


def test_broken_quotes_are_said_with_the_setting_that_makes_them_text(batch, error_of):
    text = 'id,prompt\n1,"LOVE" on a piano\n'
    assert "line 2: broken quoting" in error_of(text).message
    assert r'set input.quote: "\u0001"' in error_of(text).hint
    assert prompts(batch(text, quote="\u0001")) == [(2, '"LOVE" on a piano')]


@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        ("cp949", "따뜻한 아침 햇빛 속의 등대"),
        ("cp932", "青い鳥が木に止まっている"),
        ("gb18030", "一只红色的猫坐在窗台上"),
        ("cp1251", "Красный дом, синяя птица"),
        ("cp1252", "Une église à l'aube, lumière dorée"),
    ],
)
def test_a_text_in_another_encoding_says_which_ones_are_likely_and_how_a_line_reads(error_of, encoding, line):
    error = error_of(f'prompt\na cat\n"{line}"\n'.encode(encoding))
    assert "line 3: is not UTF-8 (byte 0x" in error.message
    assert f'{encoding}: "{line}"' in error.hint.split("\n")


@pytest.mark.parametrize("declared", [None, "utf-8", "cp1252"])
@pytest.mark.parametrize("cell", ["a cat", "ein Kürbis", "코끼리"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_byte_order_mark_is_named(batch, error_of, encoding, cell, declared):
    text = f"prompt,id\n{cell},1\n".encode(encoding)
    error = error_of(text, encoding=declared)
    assert "looks like UTF-16 without a byte order mark" in error.message
    assert f"input.encoding: {encoding}. Line 1 would read: prompt,id" in error.hint
    assert prompts(batch(text, encoding=encoding)) == [(2, cell)]


def test_a_declared_encoding_that_does_not_fit_is_an_error_and_one_in_which_anything_can_be_read_is_doubted(
    batch, error_of
):
    assert "is not utf-16 text" in error_of("prompt\nx\n", encoding="utf-16").message
    korean = "prompt\n따뜻한 아침 햇빛\n".encode("cp949")
    (note,) = batch(korean, encoding="cp1252").notes
    assert "is read as cp1252: µû" in note
    assert "cp949: 따뜻한 아침 햇빛" in note
    assert not batch("prompt\nUne église à l'aube\n".encode("cp1252"), encoding="cp1252").notes


# ---- lists of prompts


def test_a_text_without_a_header_is_one_prompt_a_line_each_whole(batch):
    read = batch('In a still frame, a stop sign\n\n"a dog" said; the sign\t| x\n  a cat \n', "prompts.txt")
    assert prompts(read) == [
        (1, "In a still frame, a stop sign"),
        (3, '"a dog" said; the sign\t| x'),
        (4, "  a cat "),
    ]


@pytest.mark.parametrize("columns", [{"prompt": "a photo of a bench"}, {}])
def test_a_prompt_is_never_the_name_of_a_column(batch, columns):
    read = batch("a photo of a bench\na photo of a cow\n", "prompts.txt", columns=columns)
    assert [prompt for _, prompt in prompts(read)] == ["a photo of a bench", "a photo of a cow"]
    assert read.columns.used == {"prompt": "prompt"}


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("prompt\na cat, asleep\n", {}),
        ("PROMPT\na cat, asleep\n", {}),
        ("words|n\na cat, asleep|1\n", {"columns": {"prompt": "words"}}),
        ("product;season\ncat;spring\n", {"template": "a {product}, asleep"}),
    ],
)
def test_a_text_with_a_header_is_a_table(batch, text, given):
    assert prompts(batch(text, "prompts.txt", **given)) == [(2, "a cat, asleep")]


def test_rows_that_begin_as_comments_do_are_left_out_where_a_setting_says_so(batch):
    table = '# of mine\nprompt,n\na cat,1\n"# x",2\n'
    for text, name in (("# animals\na cat\n", "x.txt"), (table, "x.csv"), (table, "x.txt")):
        assert [prompt for _, prompt in prompts(batch(text, name, comments="#"))] == ["a cat"]
    assert len(prompts(batch("# animals\na cat\n", "x.txt"))) == 2


def test_a_glob_of_texts_is_a_row_for_each_file_with_the_file_s_name_as_its_id(tmp_path):
    (tmp_path / "harbour.txt").write_text("A harbour at dusk, the lamps lit\n")
    (tmp_path / "owl.txt").write_text("\nAn owl\n")
    read = read_batch(settings(tmp_path / "*.txt"))
    assert rows_of(read, "row_id", "prompt", "line") == [
        ("harbour", "A harbour at dusk, the lamps lit", 1),
        ("owl", "An owl", 2),
    ]
    (tmp_path / "owl.txt").write_text("# to be bought\nAn owl\n")
    assert prompts(read_batch(settings(tmp_path / "*.txt", comments="#")))[1] == (2, "An owl")
    (tmp_path / "owl.txt").write_text("An owl\non a fence post\n")
    with pytest.raises(InputError, match=r"owl\.txt: has 2 lines"):
        read_batch(settings(tmp_path / "*.txt"))


PARAGRAPHS = "\nA heron lands,\nat dawn.\n \t\n\nA fox crosses a road,\nseen from above.\n"


def test_paragraphs_are_prompts_where_a_setting_says_so(batch):
    read = batch(PARAGRAPHS, "x.txt", split="paragraphs")
    assert prompts(read) == [(2, "A heron lands,\nat dawn."), (6, "A fox crosses a road,\nseen from above.")]
    assert len(prompts(batch(PARAGRAPHS, "x.txt"))) == 4
    read = batch("# mine\nA heron\n# here too\nlands\n", "x.txt", split="paragraphs", comments="#")
    assert prompts(read) == [(2, "A heron\nlands")]


def test_each_line_is_a_name_and_a_prompt_where_a_setting_says_so_and_any_other_line_is_rejected(batch):
    read = batch(
        "clip_1.mov|A heron\n\n clip_2.mov | A fox | at night \nA lamp\n | A cup\nclip_3.mov |\n",
        "x.txt",
        split="named_lines",
    )
    assert rows_of(read, "line", "row_id", "prompt") == [
        (1, "clip_1.mov", "A heron"),
        (3, "clip_2.mov", "A fox | at night"),
    ]
    reason = "is not `name | prompt`, which input.split: named_lines reads"
    assert places(read) == [(line, "", reason) for line in (4, 5, 6)]
    assert read.total == 5
    read = batch("1 | A heron\n2 | A fox\n", "x.txt", split="named_lines", columns={"id": "nr"})
    assert read.rows["row_id"].to_list() == ["1", "2"]


def test_several_texts_are_each_one_paragraph_or_have_named_lines(tmp_path):
    (tmp_path / "heron.txt").write_text("A heron lands,\nat dawn.\n")
    (tmp_path / "owl.txt").write_text("owl|An owl\n")
    read = read_batch(settings(tmp_path / "*.txt", split="paragraphs"))
    assert rows_of(read, "row_id", "prompt")[0] == ("heron", "A heron lands,\nat dawn.")
    with pytest.raises(InputError, match=r"heron\.txt: has 2 lines") as caught:
        read_batch(settings(tmp_path / "*.txt"))
    assert "input.split: paragraphs" in caught.value.hint
    (tmp_path / "heron.txt").write_text("h-1|A heron\nh-2|Two herons\n")
    read = read_batch(settings(tmp_path / "*.txt", split="named_lines"))
    assert rows_of(read, "row_id", "prompt") == [
        ("h-1", "A heron"),
        ("h-2", "Two herons"),
        ("owl", "An owl"),
    ]
    (tmp_path / "owl.txt").write_text(PARAGRAPHS)
    with pytest.raises(InputError, match=r"owl\.txt: has 2 paragraphs"):
        read_batch(settings(tmp_path / "*.txt", split="paragraphs"))


@pytest.mark.parametrize(
    ("name", "delimiter"), [("x.csv", None), ("x.jsonl", None), ("x.txt", "|"), ("x.txt", None)]
)
def test_what_is_a_prompt_is_said_for_texts_without_a_header_alone(error_of, name, delimiter):
    error = error_of("id|prompt\n1|a cat\n", name, delimiter=delimiter, split="named_lines")
    assert "input.split is for a" in error.message


def test_the_first_line_of_a_text_is_a_prompt_where_a_setting_says_that_there_is_no_header(batch):
    read = batch("a still, prompt\na cat\n", "x.txt", header="none")
    assert [prompt for _, prompt in prompts(read)] == ["a still, prompt", "a cat"]
    read = batch("1|a cat\n2|a dog\n", "x.txt", header="none", columns={"id": 1, "prompt": 2})
    assert rows_of(read, "row_id", "prompt") == [("1", "a cat"), ("2", "a dog")]


def test_a_cell_that_takes_in_rows_is_named_with_its_lines(batch) -> None:
    rows = [f"r{number},A bird number {number}\n" for number in range(40)]
    rows[5] = rows[5].replace(",A", ',"A')
    rows[30] = rows[30].replace("\n", '"\n')
    read = batch("id,prompt\n" + "".join(rows))
    [unclear] = read.unclear
    assert "lines 7 to 32: are one row, and 24 of them look like rows" in unclear
    assert read.total == 15
    song = "First verse, and more\nSecond verse\nThird, and more\nFourth, and more\nEnd"
    for prompt in (song, "One, two\nThree, four\nFive", "Rain\n\nSnow"):
        assert not batch(f'id,prompt\na,"{prompt}"\nb,x\n').unclear
    semicolons = batch('id;prompt;model\na;"x\nb;y;m\nc;y;m\nd;y;m\ne;z";m\n')
    assert "lines 2 to 6" in semicolons.unclear[0]
