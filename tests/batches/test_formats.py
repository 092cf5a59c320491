"""Files as people have them: lists, JSON, titles, no header; each prompt is read whole, or refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import settings as quick
from hypothesis import strategies as st
from pyarrow import parquet

from callsheet.batches.read import read_batch
from callsheet.cells import FAILED_FORMULAS, NOTHING
from callsheet.errors import InputError
from tests.batches.conftest import places, prompts, settings

TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t"), min_size=1, max_size=30
).filter(lambda text: text.strip().lower() not in NOTHING and text.strip() not in FAILED_FORMULAS)


# ---- prompt lists


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
    assert read.rows.select("row_id", "prompt", "line").rows() == [
        ("harbour", "A harbour at dusk, the lamps lit", 1),
        ("owl", "An owl", 2),
    ]
    (tmp_path / "owl.txt").write_text("# to be bought\nAn owl\n")
    assert prompts(read_batch(settings(tmp_path / "*.txt", comments="#")))[1] == (2, "An owl")
    (tmp_path / "owl.txt").write_text("An owl\non a fence post\n")
    with pytest.raises(InputError, match=r"owl\.txt: has 2 lines"):
        read_batch(settings(tmp_path / "*.txt"))


# ---- JSON


def test_json_lines_are_rows_and_a_broken_one_is_rejected_with_its_line(batch):
    read = batch(
        '{"prompt": "a bench", "include": [{"class": "bench", "count": 1}]}\n\n{"prompt": \n'
        '{"prompt": "a cat", "late": true, "id": 12345678901234567890}\n7\n"an owl"\n{"prompt": "\\ud83d"}\n',
        "x.jsonl",
    )
    assert prompts(read) == [(1, "a bench"), (4, "a cat"), (6, "an owl")]
    assert read.rows["row_id"][1] == "12345678901234567890"
    assert read.rows["carried"].to_list()[:2] == [
        {"include": '[{"class": "bench", "count": 1}]', "late": None},
        {"include": None, "late": "true"},
    ]
    assert [(line, reason) for line, _, reason in places(read)] == [
        (3, "is not JSON: Expecting value at character 12"),
        (5, "is neither an object nor a text"),
        (7, "has half a character: a \\ud... without its other half"),
    ]


@pytest.mark.parametrize(
    ("document", "rows"),
    [
        ('[{"prompt": "a"},\n {"prompt": "b", "id": "x"}]', [(1, "a"), (2, "b")]),
        ('["a",\n\n"b"]', [(1, "a"), (3, "b")]),
        ('{\n"k1": {"prompt": "a"},\n"k2": "b"}', [(2, "a"), (3, "b")]),
    ],
)
def test_a_json_file_is_a_list_or_an_object_of_rows_whose_keys_are_their_ids(batch, document, rows):
    assert prompts(batch(document, "x.json")) == rows
    read = batch('{"k1": {"prompt": "a"}, "k2": {"prompt": "b", "id": "own"}}', "x.json")
    assert read.rows["row_id"].to_list() == ["k1", "own"]


def test_the_request_lines_of_another_provider_are_read_by_dotted_names(batch):
    line = {"custom_id": "r-1", "url": "/v1/images", "body": {"prompt": "a cat", "n": 1, "size": "1024x1024"}}
    read = batch(json.dumps(line), "x.jsonl", columns={"id": "custom_id", "prompt": "body.prompt"})
    assert read.rows.select("row_id", "prompt").rows() == [("r-1", "a cat")]
    assert read.columns.unused == {"body.n": "samples", "body.size": "aspect_ratio"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('[{"prompt": "a"}\n {"prompt": "b"}]', "line 2: is not JSON: Expecting ',' delimiter"),
        ('[{"prompt": "a"}', "line 2: is not JSON: Expecting ',' delimiter"),
        ('[{"prompt": "a"}] x', "line 1: is not JSON: Extra data"),
        ('{"prompts": [{"prompt": "a"}]}', "has no rows"),
        ('{a: "b"}', "line 1: is not JSON"),
        ("[1, 2]", "has no rows"),
        ("7", "is neither a list nor an object"),
        ("[]", "has no rows"),
        ("", "line 1: is not JSON"),
        ('[{"prompt": NaN}]', "NaN is no number of JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_what_is_no_rows_is_refused_with_its_place(error_of, document, message):
    assert message in error_of(document, "x.json")


@quick(max_examples=20, deadline=None)
@given(found=st.lists(TEXT, min_size=1, max_size=6), as_list=st.booleans())
def test_each_prompt_of_a_json_file_or_a_list_is_sent_whole_or_refused(tmp_path_factory, found, as_list):
    folder = tmp_path_factory.mktemp("files")
    (folder / "x.jsonl").write_text("".join(json.dumps({"prompt": each}) + "\n" for each in found))
    (folder / "x.json").write_text(json.dumps(found if as_list else [{"prompt": each} for each in found]))
    whole = [each for each in found if each.strip()]
    for name in ("x.jsonl", "x.json"):
        read = read_batch(settings(folder / name))
        assert [prompt for _, prompt in prompts(read)] == whole
        assert read.rejects.height == len(found) - len(whole)
    lines = [each for each in found if each.strip() and not set(each) & set("\n\r")]
    (folder / "x.txt").write_text(
        "a first prompt of five words\n" + "".join(f"{each}\n" for each in lines), newline=""
    )
    assert [prompt for _, prompt in prompts(read_batch(settings(folder / "x.txt")))][1:] == lines


# ---- headers and hints


def test_a_header_is_found_below_a_title(batch):
    text = "Spring campaign - shot list,,\n,,\n\nid,prompt,aspect_ratio\n1,A lighthouse at dawn,16:9\n"
    assert batch(text).rows.select("line", "row_id", "prompt").rows() == [(5, "1", "A lighthouse at dawn")]
    titled = Path(__file__).parents[1] / "data" / "titled.xlsx"  # its title is on line 1, and line 2 is blank
    read = read_batch(settings(titled, sheet="Plan B"))
    assert read.rows.select("line", "row_id", "prompt").rows() == [(4, "1", "A lighthouse")]
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
def test_the_hint_names_the_column_that_has_the_prompts(tmp_path, text, name):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_batch(settings(tmp_path / "x.csv"))
    assert caught.value.hint == f"Name the file's column in input.columns, for example {{prompt: {name}}}."


def test_a_file_without_a_header_is_said_with_the_line_that_it_lacks(tmp_path):
    (tmp_path / "x.csv").write_text("1,A lighthouse at dawn,16:9\n2,A harbour at dusk,16:9\n")
    with pytest.raises(InputError, match="line 1: is no header") as caught:
        read_batch(settings(tmp_path / "x.csv"))
    assert caught.value.hint.endswith("perhaps: id,prompt,aspect_ratio")


def test_a_prompt_column_in_other_capitals_is_taken_and_said(batch):
    read = batch("Prompt,Model\na cat,x\n")
    assert read.columns.used == {"prompt": "Prompt"}
    assert read.rows["model"].to_list() == ["still-1"], "the default is the config's own word"


# ---- columns and rows


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
    assert read.rows.select("prompt", "model", "resolution").rows() == [
        ("a", "sketch-1", "2K"),
        ("c", "sketch-1", None),
    ]
    assert (read.total, read.left_out) == (2, 1)


# ---- encodings


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
def test_a_text_in_another_encoding_says_which_ones_are_likely_and_how_a_line_reads(tmp_path, encoding, line):
    (tmp_path / "x.csv").write_bytes(f'prompt\na cat\n"{line}"\n'.encode(encoding))
    with pytest.raises(InputError, match=r"line 3: is not UTF-8 \(byte 0x") as caught:
        read_batch(settings(tmp_path / "x.csv"))
    assert f'{encoding}: "{line}"' in caught.value.hint.split("\n")


@pytest.mark.parametrize("declared", [None, "utf-8", "cp1252"])
@pytest.mark.parametrize("cell", ["a cat", "ein Kürbis", "코끼리"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_byte_order_mark_is_named(tmp_path, encoding, cell, declared):
    path = tmp_path / "shots.csv"
    path.write_bytes(f"prompt,id\n{cell},1\n".encode(encoding))
    with pytest.raises(InputError, match="looks like UTF-16 without a byte order mark") as caught:
        read_batch(settings(path, encoding=declared))
    assert f"input.encoding: {encoding}. Line 1 would read: prompt,id" in caught.value.hint
    assert prompts(read_batch(settings(path, encoding=encoding))) == [(2, cell)]


def test_a_declared_encoding_that_does_not_fit_is_an_error_and_one_in_which_anything_can_be_read_is_doubted(
    batch, error_of
):
    assert "is not utf-16 text" in error_of("prompt\nx\n", encoding="utf-16")
    korean = "prompt\n따뜻한 아침 햇빛\n".encode("cp949")
    (note,) = batch(korean, encoding="cp1252").notes
    assert "is read as cp1252: µû" in note
    assert "cp949: 따뜻한 아침 햇빛" in note
    assert not batch("prompt\nUne église à l'aube\n".encode("cp1252"), encoding="cp1252").notes


def test_a_file_of_an_unknown_type_says_what_to_do(tmp_path):
    Path(tmp_path / "x.ods").write_bytes(b"")
    with pytest.raises(InputError, match="is not of a known type") as caught:
        read_batch(settings(tmp_path / "x.ods"))
    assert "(.xls, .ods) as .xlsx" in caught.value.hint
    assert "DATAFRAME" in caught.value.hint


# ---- Parquet of other programs


def test_bytes_fields_and_uuids_of_parquet_are_text(tmp_path):
    pytest.importorskip("pyarrow", "18")  # an older one cannot write a column of UUIDs
    path = tmp_path / "shots.parquet"
    table = pyarrow.table(
        {
            "id": pyarrow.array([bytes(15) + b"\x01", None], pyarrow.uuid()),
            "body": [{"text": b"a cat", "more": {"size": "1:1"}}, {"text": b"a dog", "more": None}],
            "prompt": ["한국".encode(), b"old"],
            "raw": [b"\xff", b""],
        }
    )
    parquet.write_table(table, path)
    read = read_batch(settings(path))
    assert read.rows["row_id"][0] == "00000000-0000-0000-0000-000000000001"
    assert read.rows["prompt"].to_list() == ["한국", "old"]
    assert read.rows["carried"].struct.field("raw").to_list() == ["/w==", ""]
    fields = {"prompt": "body.text", "aspect_ratio": "body.more.size"}
    read = read_batch(settings(path, columns=fields, where={"body.more.size": "1:1"}))
    assert read.rows.select("prompt", "aspect_ratio").rows() == [("a cat", "1:1")]
    with pytest.raises(
        InputError, match=re.escape("the columns are id, body.text, body.more.size")
    ) as caught:
        read_batch(settings(path, columns={"prompt": "caption"}))
    assert "for example {prompt: " in caught.value.hint


# ---- files that were joined


@pytest.mark.parametrize("name", ["shots.csv", "shots.tsv", "shots.txt"])
def test_a_header_that_comes_again_is_no_row_and_is_said(batch, name):
    text = "id,prompt\n1,a cat\n id,prompt \n2,a dog\n\ufeffid,prompt\n3,a bird\n"
    read = batch(text.replace(",", "\t") if name.endswith(".tsv") else text, name)
    assert prompts(read) == [(2, "a cat"), (4, "a dog"), (6, "a bird")]
    assert (read.total, read.rejects.height) == (3, 0)
    assert read.notes == (
        f"{read.notes[0].partition(':')[0]}: the header comes again on line 3 and on 1 more line; that is no "
        "row, and left out",
    )
