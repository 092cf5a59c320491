"""JSON: rows, rows in lists inside a document, and lines under another name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import settings as quick
from hypothesis import strategies as st

from callsheet.batches.json_files import lists_of_rows
from callsheet.batches.read import read_batch
from callsheet.cells import FAILED_FORMULAS, NOTHING
from tests.batches.conftest import places, prompts, rows_of, settings

TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t"), min_size=1, max_size=30
).filter(lambda text: text.strip().lower() not in NOTHING and text.strip() not in FAILED_FORMULAS)


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
    assert rows_of(read, "row_id", "prompt") == [("r-1", "a cat")]
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
    assert message in error_of(document, "x.json").message


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


FILM = """\
{
 "title": "Two days", "duration": 60,
 "scenes": [
  {"location": "pond", "camera": {"lens": "35mm"}, "tags": ["dawn"], "duration": 30, "shots": [
   {"id": "1a", "prompt": "A heron lands", "duration": 5},
   {"id": "1b", "prompt": "Ripples, close up", "duration": 5}
  ]},
  {"location": "road", "shots": [{"id": "2a", "prompt": "A fox crosses", "duration": 10}]},
  {"location": "hill", "shots": []}
 ]
}
"""


def test_rows_are_the_objects_of_a_list_inside_the_document(batch):
    document = '{"made": "2026-01-01", "n": 2, "prompts": [\n {"id": "a", "prompt": "x"},\n"y"]}'
    read = batch(document, "x.json", rows="prompts")
    assert prompts(read) == [(2, "x"), (3, "y")]
    assert (read.rows["row_id"][0], read.columns.carried) == ("a", []), "what is outside is no row's"
    assert prompts(batch(f'{{"data": {document}}}', "x.json", rows="data.prompts")) == prompts(read)
    assert prompts(batch('{"data": {"all.prompts": ["x"]}}', "x.json", rows="data.all.prompts")) == [(1, "x")]
    by_id = batch('{"n": 1, "prompts": {"k": {"prompt": "x"}, "l": "y"}}', "x.json", rows="prompts")
    assert rows_of(by_id, "row_id", "prompt")[0] == ("k", "x")


def test_lists_in_lists_are_unfolded_and_each_row_has_what_is_around_it(batch):
    read = batch(FILM, "x.json", rows="scenes.shots")
    assert rows_of(read, "line", "row_id", "prompt", "duration") == [
        (5, "1a", "A heron lands", 5),
        (6, "1b", "Ripples, close up", 5),
        (8, "2a", "A fox crosses", 10),
    ]
    outer = {"scenes.location": "pond", "scenes.camera.lens": "35mm", "scenes.duration": "30"}
    assert read.rows["carried"][0] == outer
    assert read.columns.unused == {"scenes.duration": "duration"}


def test_a_list_of_texts_in_a_row_is_a_row_of_each(batch):
    first = '{"id": "s", "model": "m", "mood": "calm", "prompts": ["x",\n"y"]}'
    read = batch(f'[{first}, {{"id": "t", "prompts": null}}]', "x.json", rows="prompts")
    assert prompts(read) == [(1, "x"), (2, "y")]
    assert read.rows["model"].to_list() == ["still-1"] * 2, "a row's settings are its own"
    assert read.rows["carried"][0] == {"outer.id": "s", "outer.model": "m", "mood": "calm"}


def test_lists_in_the_lines_of_a_file_are_unfolded_too(batch):
    read = batch('{"mood": "calm", "prompts": ["x", "y"]}\n{"prompts": ["z"]}\n', "x.jsonl", rows="prompts")
    assert prompts(read) == [(1, "x"), (1, "y"), (2, "z")]


def test_what_has_no_rows_at_their_place_is_rejected_with_its_line(batch):
    document = '[{"prompts": ["x", 7]},\n{"prompt": ["y"]},\n{"prompts": "z"},\n3]'
    read = batch(document, "x.json", rows="prompts")
    assert prompts(read) == [(1, "x")]
    assert [(line, reason) for line, _, reason in places(read)] == [
        (1, "is neither an object nor a text"),
        (2, "has no 'prompts', and input.rows is prompts"),
        (3, "is no list, and input.rows is prompts"),
        (4, "is no object, and input.rows is prompts"),
    ]


@pytest.mark.parametrize(
    ("document", "given", "message", "hint"),
    [
        (FILM, {"rows": "shots"}, "has no list shots", "The lists are: scenes.shots, scenes."),
        ('{"a": 1}', {"rows": "b"}, "has no list b", "It has no list of objects."),
        (FILM, {}, "has no rows itself", "Set input.rows: scenes.shots. Other lists: scenes."),
        ('{"n": "x", "prompts": [{"prompt": "a"}]}', {}, "has no rows itself", "Set input.rows: prompts."),
        ('{"n": "x", "prompts": ["a", "b"]}', {}, "has no rows itself", "Set input.rows: prompts."),
        ('{"data": {"list": [{"text": "a"}]}}', {}, "has no rows itself", "Set input.rows: data.list."),
        ('[{"n": 1, "shots": [{"prompt": "a"}]}]', {}, "no column 'prompt'", "Set input.rows: shots."),
        ('{"n": 1, "prompts": []}', {"rows": "prompts"}, "has no rows", ""),
    ],
)
def test_the_lists_of_a_document_are_named_where_it_has_no_rows_itself(
    error_of, document, given, message, hint
):
    error = error_of(document, "x.json", **given)
    assert message in error.message
    assert error.hint == hint


def test_an_object_of_rows_may_have_lists_in_them(batch):
    document = '{"k": {"prompt": "a", "uses": [{"text": "x"}]}, "l": "b", "m": [{"prompt": "c"}]}'
    read = batch(document, "x.json")
    assert prompts(read) == [(1, "a"), (1, "b")]
    assert read.rejects.height == 1


def test_the_lists_of_rows_of_a_document_are_named_the_likeliest_first():
    assert [*lists_of_rows(json.loads(FILM))] == ["scenes.shots", "scenes"]
    rows = {
        "uses": [{"url": "x"}],
        "list": [{"caption": "a cat"}],
        "long": [{"caption": "a cat asleep on it"}],
    }
    assert [*lists_of_rows(rows | {"n": [1], "tags": ["x"], "none": []})] == ["long", "list", "uses"]
    texts = [{"prompts": ["a"], "words": ["b"]}, {"body": {"items": [{"prompt": "a cat asleep on it"}]}}]
    assert [*lists_of_rows(texts)] == ["body.items", "prompts"]
    assert [*lists_of_rows([{"prompt": "a"}])] == [""], "the document itself"
    assert lists_of_rows("a") == {}


ROWS_INSIDE = {
    "a text beside the list": {
        "master_prompt": "A story of two foxes.",
        "scenes": [{"prompt": "A fox wakes"}],
    },
    "an object of rows": {
        "_doc": "For a book",
        "images": {"k": {"prompt": "A fox wakes"}, "l": {"prompt": "y"}},
    },
    "objects of objects": {"sizes": {"s": {"w": 1}}, "images": {"k": {"prompt": "A fox wakes"}}},
}


@pytest.mark.parametrize("document", ROWS_INSIDE.values(), ids=ROWS_INSIDE)
def test_the_only_list_or_object_with_prompts_is_the_rows_whatever_else_is_there(batch, document):
    path = next(iter(lists_of_rows(document)))
    assert batch(json.dumps(document), "x.json", rows=path).rows["prompt"][0] == "A fox wakes"


def test_groups_of_texts_are_rows_with_the_name_of_their_group(batch):
    document = {"animals": ["a fox wakes up", "an owl"], "plants": ["a tree in the rain"]}
    assert next(iter(lists_of_rows(document))) == ""
    read = batch(json.dumps(document), "x.json")
    assert prompts(read) == [(1, "a fox wakes up"), (1, "an owl"), (1, "a tree in the rain")]
    assert read.rows["carried"].to_list()[2] == {"group": "plants"}


def test_json_lines_under_the_name_of_a_document_are_read_as_lines(batch, error_of):
    read = batch('\n{"prompt": "a"}\n\n{"prompt": "b"}\n{"prompt"\n', "x.json")
    assert prompts(read) == [(2, "a"), (4, "b")]
    assert places(read)[0][0] == 5
    assert "line 2: is not JSON" in error_of('{"prompt": "a"}\n"b"\n', "x.json").message


def test_rows_that_were_written_out_as_a_table_are_read_with_the_same_config(batch):
    assert prompts(batch("prompt,scenes.location\na,pond\n", "x.csv", rows="scenes.shots")) == [(2, "a")]
