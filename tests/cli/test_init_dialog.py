"""`init` on a terminal: a question for each doubt, with an example of each answer."""

from __future__ import annotations

import pytest

from tests.cli.proposed import Make, asked, config


def test_a_terminal_is_asked_for_each_doubt_with_an_example_of_each_answer(project: Make) -> None:
    made = project()
    said = asked(made, "2\n", "id,prompt_de,prompt_en\na,Ein Reiher,A heron\n")
    at = 0
    for words in (
        "Which column has the prompts?",
        "1  prompt_de  Ein Reiher",
        "2  prompt_en  A heron",
        'a: "A heron"; sketch-1',
        "Wrote x.yaml: 1 image of 1 row on sketch-1, the cheapest; 0.0015 USD",
        "callsheet run x.yaml",
    ):
        assert words in said[at:], said
        at = said.index(words, at) + len(words)
    wrote = config(made, "x.yaml")
    assert wrote["columns"] == {"prompt": "prompt_en"}
    assert "guessed" not in wrote, "a person has said it"


def test_a_question_takes_a_name_or_a_template_says_what_is_wrong_and_goes_back(project: Make) -> None:
    made = project()
    text = "id,kind,prompt_de,prompt_en,seconds\na,owl,Ein Reiher,A heron,5\n"
    said = asked(made, "7\n\nback\nA photo of a {king}\nA photo of a {kind}\nmovies\nimages\n", text)
    assert "there is no column '7'; the columns are id, kind, prompt_de" in said
    assert "there is no column 'king'" in said
    assert said.count("Which column has the prompts?") == 2, "back asks again"
    assert "'movies' is none of the answers. Type a number from 1 to 2, or back." in said
    assert "pydantic" not in said
    wrote = config(made, "x.yaml")
    assert (wrote["template"], wrote["defaults"]) == ("A photo of a {kind}", {"model": "sketch-1"})


@pytest.mark.parametrize("end", ["\x04", "\x03"])
def test_the_end_of_the_input_and_the_first_interrupt_end_the_questions_and_nothing_is_written(
    project: Make, end: str
) -> None:
    made = project()
    said = asked(made, end)
    assert "ended; nothing was written" in said
    assert "Traceback" not in said
    assert not (made.folder / "x.yaml").exists()


def test_the_first_rows_are_cut_to_the_screen_however_many_columns_there_are(project: Make) -> None:
    names = ["prompt_de", "prompt_en", *(f"note{number}" for number in range(42))]
    text = "\n".join([",".join(names), *[",".join(["A heron lands on a pond " * 9] * 44)] * 3])
    said = asked(project(), "\n", text).replace("\r", "")
    shown = said[: said.index("Which column")].splitlines()
    assert len(shown) == 6
    assert "and 34 more columns: note8" in said
    assert all(len(line) <= 120 for line in shown)


def test_a_terminal_is_asked_which_model_is_meant_by_a_name_that_the_catalogue_does_not_have(
    project: Make,
) -> None:
    made = project()
    said = asked(made, "reel-9\n2\n", "id,prompt,model\na,A heron,postr-1\n")
    assert "Which model is meant? The catalogue has no postr-1." in said
    assert "1  sketch-1  the cheapest" in said
    assert "2  poster-1  like postr-1" in said
    assert "the catalogue has no model 'reel-9'. Type a number from 1 to" in said
    wrote = config(made, "x.yaml")
    assert wrote["defaults"] == {"model": "poster-1"}
    assert "guessed" not in wrote
