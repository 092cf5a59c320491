"""Texts without a header: paragraphs, and prompts with a part for each column."""

from __future__ import annotations

import pytest

from callsheet.batches.read import read_batch
from callsheet.errors import InputError
from tests.batches.conftest import places, prompts, settings

BY_ID = r"^(?P<id>.+?)\|(?P<prompt>.+)$"
PARAGRAPHS = "\nA heron lands,\nat dawn.\n \t\n\nA fox crosses a road,\nseen from above.\n"


def test_paragraphs_are_prompts_where_a_setting_says_so(batch):
    read = batch(PARAGRAPHS, "x.txt", split="paragraphs")
    assert prompts(read) == [(2, "A heron lands,\nat dawn."), (6, "A fox crosses a road,\nseen from above.")]
    assert len(prompts(batch(PARAGRAPHS, "x.txt"))) == 4
    read = batch("# mine\nA heron\n# here too\nlands\n", "x.txt", split="paragraphs", comments="#")
    assert prompts(read) == [(2, "A heron\nlands")]


def test_the_groups_of_a_pattern_are_columns_and_what_does_not_match_is_rejected(batch):
    read = batch("clip_1.mov|A heron\n\n clip_2.mov | A fox | at night \nA lamp\n", "x.txt", pattern=BY_ID)
    assert read.rows.select("line", "row_id", "prompt").rows() == [
        (1, "clip_1.mov", "A heron"),
        (3, "clip_2.mov", "A fox | at night"),
    ]
    assert places(read) == [(4, "", "does not match input.pattern")]
    assert read.total == 3


def test_a_pattern_is_for_the_whole_of_a_paragraph_and_its_groups_may_be_mapped(batch):
    read = batch(
        "shot 1, 5 s\nA heron lands,\nat dawn.\n\nshot 2\nA fox\n",
        "x.txt",
        split="paragraphs",
        pattern=r"shot (?P<nr>\d+)(, (?P<secs>\d+) s)?\n(?P<prompt>.+)",
        columns={"id": "nr", "duration": "secs"},
    )
    assert read.rows.select("row_id", "prompt", "duration").rows() == [
        ("1", "A heron lands,\nat dawn.", 5),
        ("2", "A fox", None),
    ]


def test_several_texts_are_each_one_paragraph_or_one_match(tmp_path):
    (tmp_path / "heron.txt").write_text("A heron lands,\nat dawn.\n")
    (tmp_path / "owl.txt").write_text("owl|An owl\n")
    read = read_batch(settings(tmp_path / "*.txt", split="paragraphs"))
    assert read.rows.select("row_id", "prompt").rows()[0] == ("heron", "A heron lands,\nat dawn.")
    with pytest.raises(InputError, match=r"heron\.txt: has 2 lines") as caught:
        read_batch(settings(tmp_path / "*.txt"))
    assert "input.split: paragraphs" in caught.value.hint
    (tmp_path / "heron.txt").write_text("h-1|A heron\n")
    read = read_batch(settings(tmp_path / "*.txt", pattern=BY_ID))
    assert read.rows.select("row_id", "prompt").rows() == [("h-1", "A heron"), ("owl", "An owl")]
    read = read_batch(settings(tmp_path / "*.txt", pattern=r"\w+(-\d)?\|(?P<prompt>.+)"))
    assert read.rows["row_id"].to_list() == ["heron", "owl"]
    (tmp_path / "owl.txt").write_text(PARAGRAPHS)
    with pytest.raises(InputError, match=r"owl\.txt: has 2 paragraphs"):
        read_batch(settings(tmp_path / "*.txt", split="paragraphs"))


@pytest.mark.parametrize("given", [{"split": "paragraphs"}, {"pattern": BY_ID}])
@pytest.mark.parametrize(
    ("name", "delimiter"), [("x.csv", None), ("x.jsonl", None), ("x.txt", "|"), ("x.txt", None)]
)
def test_paragraphs_and_patterns_are_for_texts_without_a_header(error_of, given, name, delimiter):
    said = error_of("id|prompt\n1|a cat\n", name, delimiter=delimiter, **given)
    assert f"input.{next(iter(given))} is for a" in said


def test_the_first_line_of_a_text_is_a_prompt_where_a_setting_says_that_there_is_no_header(batch):
    read = batch("a still, prompt\na cat\n", "x.txt", header="none")
    assert [prompt for _, prompt in prompts(read)] == ["a still, prompt", "a cat"]
    read = batch("1|a cat\n2|a dog\n", "x.txt", header="none", columns={"id": 1, "prompt": 2})
    assert read.rows.select("row_id", "prompt").rows() == [("1", "a cat"), ("2", "a dog")]
