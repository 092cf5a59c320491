"""Which column is which, and which line is the header; rows that are none."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest

from callsheet.batches.columns import is_no_header
from callsheet.batches.delimited import written
from callsheet.batches.read import original_rows, read_batch
from callsheet.errors import InputError
from tests.batches.conftest import places, prompts, rows_of, settings
from tests.batches.test_workbooks import text, workbook


def test_a_header_is_found_below_a_title(batch):
    text = "Spring campaign - shot list,,\n,,\n\nid,prompt,aspect_ratio\n1,A lighthouse at dawn,16:9\n"
    assert rows_of(batch(text), "line", "row_id", "prompt") == [(5, "1", "A lighthouse at dawn")]
    titled = Path(__file__).parents[1] / "data" / "titled.xlsx"  # its title is on line 1, and line 2 is blank
    read = read_batch(settings(titled, sheet="Plan B"))
    assert rows_of(read, "line", "row_id", "prompt") == [(4, "1", "A lighthouse")]
    with pytest.raises(InputError, match="there is no sheet 'Plan A'; the sheets are Plan B"):
        read_batch(settings(titled, sheet="Plan A"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("category,prompt_en\nAnime,A nun on a white background\nAnime,A girl at sea\n", "prompt_en"),
        ("n°,Bild\n1,A nun on a white background\n2,A girl at sea\n", "Bild"),
        ("k,negative_prompt,caption\na,blurry text everywhere and more of it,b\n", "caption"),
        ("url,words\nhttps://example.com/a/very/long/address/of/a/picture,a cat\n", "words"),
        ("번호,문구: 하나\nx,따뜻한 아침\n", '"문구: 하나"'),
    ],
)
def test_the_hint_names_the_column_that_has_the_prompts(error_of, text, name):
    assert error_of(text).hint == f"Name the file's column in input.columns, for example {{prompt: {name}}}."


def test_a_prompt_column_in_other_capitals_is_taken_and_said(batch):
    read = batch("Prompt,Model\na cat,x\n")
    assert read.columns.used == {"prompt": "Prompt"}
    assert read.rows["model"].to_list() == ["still-1"], "the default is the config's own word"


ACTIONS = "Koala,Riding a bicycle,Rainforest\nHedgehog,Cooking a meal,Forest\n"


def sheet_of(csv: str, path: Path) -> Path:
    """The cells of a CSV text as a workbook."""
    return workbook(path, A=[[cell and text(cell) for cell in line.split(",")] for line in csv.splitlines()])


def test_columns_of_a_file_without_a_header_are_named_by_their_numbers(batch, tmp_path):
    read = batch(ACTIONS, header="none", columns={"prompt": 2, "id": 1})
    assert rows_of(read, "line", "row_id", "prompt") == [
        (1, "Koala", "Riding a bicycle"),
        (2, "Hedgehog", "Cooking a meal"),
    ]
    assert read.columns.carried == ["3"]
    path = sheet_of(ACTIONS, tmp_path / "x.xlsx")
    sheet = read_batch(settings(path, header="none", columns={"prompt": 2, "id": 1}))
    assert sheet.rows.equals(read.rows)
    assert batch(ACTIONS, header="none", template="{1}, {2}").rows["prompt"][0] == "Koala, Riding a bicycle"


def test_rows_that_were_written_out_with_their_numbers_are_read_with_the_same_config(tmp_path):
    given = {"header": "none", "columns": {"id": 1, "prompt": 2}}
    (tmp_path / "x.csv").write_text(ACTIONS)
    rows = original_rows(settings(tmp_path / "x.csv", **given), ["Koala"])
    (tmp_path / "y.csv").write_bytes(written(rows, delimiter=None, quote=None, encoding=None))
    again = read_batch(settings(tmp_path / "y.csv", **given))
    assert rows_of(again, "row_id", "prompt") == [("Koala", "Riding a bicycle")]


def test_the_hint_names_the_number_of_the_column_that_has_the_prompts(error_of):
    error = error_of(ACTIONS, header="none")
    assert "the columns are 1, 2, 3" in error.message
    assert error.hint.endswith("{prompt: 2}.")


def test_the_only_column_of_a_file_without_a_header_is_the_prompt(batch, error_of):
    read = batch("1 cat\n2\n\n1\n", header="none")
    assert prompts(read) == [(1, "1 cat"), (2, "2"), (4, "1")]
    assert prompts(batch("A cat, asleep\nAn owl, at night, awake\n", header="none"))[1][1].endswith("awake")
    assert "there is no column 'prompt'; the columns are 1, 2" in error_of("a,b\n", header="none").message


@pytest.mark.parametrize("text", ["1;A heron, at dawn;16:9\n2;A fox;9:16\n", '1\t"A heron, at dawn"\t16:9\n'])
def test_the_delimiter_of_a_file_without_a_header_is_that_of_all_its_lines(batch, text):
    read = batch(text, header="none", columns={"prompt": 2, "aspect_ratio": 3})
    assert read.rows["prompt"][0] == "A heron, at dawn"
    assert read.rows["aspect_ratio"][0] == "16:9"


def test_a_line_with_other_cells_is_rejected_where_there_is_no_header(batch):
    read = batch("a,b\nc,d,e\n", header="none", columns={"prompt": 2})
    assert prompts(read) == [(1, "b")]
    assert "the line has 3 cells, and the first line has 2;" in places(read)[0][2]


def test_that_a_file_has_no_header_is_for_tables(error_of):
    error = error_of('{"prompt": "a"}\n', "x.jsonl", header="none")
    assert "input.header is for tables" in error.message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (ACTIONS, "Set input.header: none with input.columns: {prompt: 2}; "),
        ("Catching salmon\nCrossing a village\nExploring a cave\n", "Set input.header: none; "),
        ("1,A lighthouse at dawn,16:9\n2,A harbour,1:1\n", "perhaps: id,prompt,aspect_ratio"),
        ("1,A lighthouse at dawn,16:9\n2,A harbour,1:1\n", "input.columns: {prompt: 2, aspect_ratio: 3}; "),
        ("a,b\na,c\n", None),
        ("Shot,Description\n1,A fox crosses a road\n", None),
    ],
)
def test_a_first_line_that_is_a_row_is_said_with_the_setting_for_it(error_of, text, hint):
    error = error_of(text)
    assert (hint or "Name the file's column") in error.hint
    assert ("line 1: is no header" in error.message) == (hint is not None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ACTIONS, True),
        ("A red fox,dawn\nA grey owl,dusk\n", True),
        ("1,Heron\n2,Fox\n", True),
        ("Ein Reiher landet,Teich\nEin Fuchs läuft,Straße\n", True),
        ("Handle,Title,Body (HTML)\nduck,Rubber duck,<p>A duck</p>\n", False),
        ("Nr;Bild;Länge\n1;Ein Fuchs;5\n", False),
        ("Timestamp,Describe a scene\n2026,A fox on a road\n2027,An owl in a barn\n", False),
        ("Number of images,Idea of a scene\n3,A fox runs\n", False),
        ("Descripción de la escena,Plano\nUn zorro cruza la carretera,1\n", False),
        ("product,2024,2025\nlamp,1,2\n", False),
        ("Animal,Where a fox runs\nA fox,A road\n", False),
        ("Opening line,Animal\nRunning man,fox\nSitting cat,cat\n", False),
        ("Idea\nA fox runs\n", False),
        ("Fox\nOwl\nHeron\n", False),
        ("A red fox,\nA grey owl,x\n", False),
        ("Koala,Riding a bicycle\n", False),
    ],
)
def test_a_header_is_taken_for_a_row_only_where_it_reads_like_those_below_it(text, expected):
    separator = ";" if ";" in text else ","
    rows = pl.read_csv(io.StringIO(text), has_header=False, separator=separator, infer_schema=False)
    names = [name or "" for name in rows.row(0)]
    assert is_no_header(names, rows[1:]) is expected


GROUPED = "Shot,,Generation,,\nid,prompt,aspect_ratio,duration,notes\ns1,A heron,16:9,5,ok\n"


def test_names_of_groups_above_the_header_are_left_out_and_said(batch, tmp_path):
    path = sheet_of(GROUPED, tmp_path / "x.xlsx")
    titled = GROUPED.replace("Shot,,Generation,,", "Spring,,,,\n\nShot,Shot,Generation,Generation,Generation")
    in_capitals = GROUPED.replace("pro", "Pro")
    for read in (*map(batch, (GROUPED, titled, in_capitals)), read_batch(settings(path))):
        assert rows_of(read, "row_id", "prompt", "aspect_ratio", "duration") == [("s1", "A heron", "16:9", 5)]
        [note] = read.notes
        assert "has names of groups of columns (Shot, Generation), and is left out" in note


@pytest.mark.parametrize(
    "text", ["id,text,\na,prompt,x\n", "what,kind\nprompt,1\n", "a,b\nc,prompt\n", "model,,x\nid,prompt,y\n"]
)
def test_a_row_with_a_cell_like_a_column_s_name_is_no_header(error_of, text):
    assert "line 1: there is no column 'prompt'" in error_of(text).message


def test_a_row_of_types_below_the_header_is_left_out_and_said(batch):
    read = batch("id,prompt,n\nint,string,\na,text,\nb,string,7\n")
    assert prompts(read) == [(3, "text"), (4, "string")]
    assert "line 2 has the types of the columns" in read.notes[0]
    assert len(prompts(batch("prompt\ntext\n"))) == 1


FOOTED = "prompt,aspect_ratio\nTotal: the first,16:9\nA fox,9:16\nTOTAL: 2,\nExported 2026-03-02 by us,\n"


def test_what_stands_below_the_rows_is_left_out_and_said(batch, tmp_path):
    for read in (batch(FOOTED), read_batch(settings(sheet_of(FOOTED, tmp_path / "x.xlsx")))):
        assert prompts(read) == [(2, "Total: the first"), (3, "A fox")]
        assert read.total == 2
        [note] = read.notes
        assert note.endswith("left out: line 4 (TOTAL: 2), line 5 (Exported 2026-03-02 by us)")
    for below in ("Summe 12", "Gesamt: 2", "Exporté le 3 mars", "Fuente: archivo", "© 2026 Studio", "total"):
        assert batch(f"id,prompt,n\na,A fox,1\n{below},,\n").total == 1, below


@pytest.mark.parametrize(
    "text",
    [
        "prompt,n\nA fox,1\nTotal eclipse over a desert,\n",
        "prompt,n\nA fox,1\nGenerated landscape of sand,\n",
        "prompt,n\nA fox,1\nTotal: 2,1\n",
        "prompt,n\nA fox,\nTotal: 2,\n",
        "prompt,n\nTotal: 2,\nA fox,1\n",
        "prompt\nA fox\nTotal: 2\n",
        "prompt,n\nTotal: 2,\n",
    ],
)
def test_a_row_that_may_be_a_prompt_is_no_footer(batch, text):
    read = batch(text)
    assert len(prompts(read)) == text.count("\n") - 1
    assert read.notes == ()


@pytest.mark.parametrize("name", ["shots.csv", "shots.tsv", "shots.txt"])
def test_a_header_that_comes_again_is_no_row_and_is_said(batch, name):
    text = "id,prompt\n1,a cat\n id,prompt \n2,a dog\n\ufeffid,prompt\n3,a bird\n"
    read = batch(text.replace(",", "\t") if name.endswith(".tsv") else text, name)
    assert prompts(read) == [(2, "a cat"), (4, "a dog"), (6, "a bird")]
    assert (read.total, read.rejects.height) == (3, 0)
    [note] = read.notes
    assert "the header comes again on line 3 and on 1 more line; that is no row, and left out" in note


# ---- a width and a height

PAIR = {"aspect_ratio": ["width", "height"]}


def test_width_and_height_are_a_ratio(batch):
    sizes = {"1024,576": "16:9", "576,1024": "9:16", "1024.0, 1024 px": "1:1", "16,9": "16:9", "21,9": "21:9"}
    sizes |= {"1344,768": "1344x768", ",": None}  # of the first the nearest offered ratio is taken
    read = batch("prompt,width,height\n" + "".join(f"x,{size}\n" for size in sizes), columns=PAIR)
    assert read.rows["aspect_ratio"].to_list() == [*sizes.values()]
    assert read.columns.used == {"prompt": "prompt", "aspect_ratio": "width x height"}
    assert (read.columns.carried, read.columns.unused) == (["width", "height"], {})


def test_an_empty_pair_has_the_default_and_numbers_may_be_typed(tmp_path):
    path = tmp_path / "x.parquet"
    size = {"width": [1024, None, 100], "height": [576.0, None, 0.0]}
    pl.DataFrame({"prompt": ["x", "y", "z"], "size": pl.DataFrame(size).to_struct()}).write_parquet(path)
    columns = {"aspect_ratio": ["size.width", "size.height"]}
    read = read_batch(settings(path, columns=columns, defaults={"model": "m", "aspect_ratio": "1:1"}))
    assert read.rows["aspect_ratio"].to_list() == ["16:9", "1:1"]
    assert read.rejects.rows() == [(3, "size.height", "0.0", "is not a whole number of pixels")]


def test_a_size_that_is_none_is_rejected_by_its_column(batch):
    read = batch("prompt,width,height\na,wide,576\nb,1024,\nc,,576\nd,0,5.5\ne,5,4\n", columns=PAIR)
    assert read.rows["line"].to_list() == [6]
    assert read.rejects.rows() == [
        (2, "width", "wide", "is not a whole number of pixels"),
        (3, "height", "", "is empty, and width is not"),
        (4, "width", "", "is empty, and height is not"),
        (5, "width", "0", "is not a whole number of pixels"),
        (5, "height", "5.5", "is not a whole number of pixels"),
    ]


def test_width_and_height_together_are_named_as_a_ratio(batch, error_of):
    read = batch("prompt,width,height,steps\nx,1024,576,30\n")
    assert read.columns.unused == {"[width, height]": "aspect_ratio", "steps": "steps"}
    in_capitals = "prompt,Width,Height\nx,1,2\n"
    error = error_of(in_capitals, columns={"aspect_ratio": ["width", "Height"]})
    assert "there is no column 'width'" in error.message
    error = error_of(in_capitals, columns={"aspect_ratio": "ratio"})
    assert "there is no column 'ratio'" in error.message
    assert "{aspect_ratio: [Width, Height]}" in error.hint


def test_rows_that_are_written_out_have_the_file_s_own_columns(tmp_path):
    (tmp_path / "x.csv").write_text("id,prompt,width,height\na,x,1024,576\n")
    rows = original_rows(settings(tmp_path / "x.csv", columns=PAIR), ["a"])
    assert rows.columns == ["id", "prompt", "width", "height"]
