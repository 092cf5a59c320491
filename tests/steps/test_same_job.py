"""A job stays the same job, whatever its file, its columns and the catalogue look like next time."""

from __future__ import annotations

import json
import sqlite3
import unicodedata
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from PIL import Image

import callsheet
from callsheet.export.export import Kind
from callsheet.present.priced import facts, figures, shown, warnings
from callsheet.present.results import next_steps
from tests.conftest import Make, Project
from tests.export.test_export import exported
from tests.servers.backlots import Observed

IMAGE = {"prompt": "a vase", "model": "sketch-1"}


def rows(*ids: object, **cells: object) -> list[dict[str, Any]]:
    return [IMAGE | {"id": row_id} | cells for row_id in ids]


def notes(made: Project) -> str:
    return " ".join(text for name, text in facts(made.quote()) if name == "Note")


# ---- the catalogue


def test_a_catalogue_in_another_order_or_without_a_model_buys_nothing_again(project: Make) -> None:
    made = project([*rows("a", "b"), IMAGE | {"id": "c", "model": "still-1"}])
    assert made.run().stored == 3
    models = made.backlot.service.models
    ratios = models["sketch-1"].supported_aspect_ratios
    update = {"supported_aspect_ratios": tuple(reversed(ratios))}
    models["sketch-1"] = models["sketch-1"].model_copy(update=update)
    said = notes(made)
    assert f"the default aspect_ratio of sketch-1 was {ratios[0]} and is" in said
    assert "2 jobs bought with it stay as bought" in said
    done = made.run()
    assert (done.submissions, done.stored, done.outcome) == (0, 3, "complete")
    del models["sketch-1"]
    done = made.run()
    assert (done.jobs, done.stored, done.submissions) == (3, 3, 0)
    assert made.manifest()["current"].all()
    assert not any("nothing is bought twice" in step for step in next_steps(done))
    assert any("bought again if what it asks for changes" in step for step in next_steps(done))


def test_no_changed_default_goes_unsaid(project: Make) -> None:
    names = ("sketch-1", "still-1", "poster-1")
    made = project([IMAGE | {"id": name, "model": name} for name in names])
    assert made.run().stored == 3
    models = made.backlot.service.models
    for name in names:
        model = models[name]
        ratios, sizes = model.supported_aspect_ratios[::-1], model.supported_resolutions[::-1]
        update = {"supported_aspect_ratios": ratios, "supported_resolutions": sizes}
        models[name] = model.model_copy(update=update)
    said = notes(made)
    assert said.count("the default") == 5
    assert "1 other default has changed that bought jobs relied on" in said


# ---- how a row is written


def test_a_row_with_its_defaults_written_out_or_in_another_unicode_form_is_the_same(project: Make) -> None:
    batch = [*rows("a", "café", prompt="a café at dusk"), IMAGE, IMAGE | {"prompt": "a lamp"}]
    made = project(batch)
    assert made.run().stored == 4
    model = made.backlot.service.models["sketch-1"]
    default = {
        "aspect_ratio": model.supported_aspect_ratios[0],
        "resolution": model.supported_resolutions[0],
        "output_format": "jpeg",
    }
    in_nfd = [{name: unicodedata.normalize("NFD", text) for name, text in row.items()} for row in batch]
    for again in ([row | default for row in batch], in_nfd, [row | default for row in in_nfd], batch):
        made.rows(*again)
        done = made.run()
        assert (done.submissions, done.stored, done.jobs) == (0, 4, 4)


def test_a_column_of_any_type_has_the_same_ids(project: Make) -> None:
    made = project(rows(1, 2, 2**53, 2**53 + 1))
    assert made.run().stored == 4
    for ids in (
        pd.Series([1.0, 2.0]),
        pd.Series(["1", "2"], dtype="category"),
        pd.Series([1, 2], dtype="Int64"),
        pd.Series([2**53, 2**53 + 1]),  # the second is none of the integers of a float
    ):
        frame = pd.DataFrame({"id": ids, "prompt": "a vase", "model": "sketch-1"})
        quoted = callsheet.quote(made.config, frame)
        assert (quoted.to_buy, quoted.already_bought) == (0, 2), ids.dtype


def test_a_missing_value_among_numbers_changes_no_other(project: Make) -> None:
    """In pandas, and so in Parquet, a column of numbers with one missing is 1.0, 2.0, NaN."""
    made = project([row | {"year": 1967 + at} for at, row in enumerate(rows(1, 2, 3))])
    made.set(input={"template": "{prompt} of {year}"})
    assert made.run().stored == 3
    frame = pd.DataFrame(
        {
            "id": [1, 2, 3, None],
            "year": [1967, 1968, 1969, None],
            "prompt": "a vase",
            "model": "sketch-1",
        }
    )
    frame.to_parquet(made.folder / "shots.parquet")
    made.set(input={"path": "shots.parquet"})
    done = made.run()
    assert (done.submissions, done.rejected_rows) == (0, 1), "the row without a year has no prompt"
    assert "a vase of 1967" in made.manifest()["prompt"].to_list()


def test_line_ends_and_blanks_at_the_ends_of_a_prompt_make_no_other_job(project: Make) -> None:
    """CSV has one kind of line end; Parquet and JSON have those of the machine that wrote them."""
    made = project([*rows("a", prompt="a vase\nin blue"), IMAGE, IMAGE | {"prompt": "a jug"}])
    assert made.run().stored == 3
    again = [
        *rows("a", prompt=" a vase\r\nin blue \r\n"),
        IMAGE | {"id": None, "prompt": "a vase\u3000"},
        IMAGE | {"id": None, "prompt": "\ra jug"},
    ]
    for name, write in (
        ("shots.parquet", pl.DataFrame(again).write_parquet),
        ("shots.json", pl.DataFrame(again).write_json),
    ):
        write(made.folder / name)
        made.set(input={"path": name})
        done = made.run()
        assert (done.submissions, done.stored) == (0, 3), name
    made.set(input={"path": "prompts.csv"})
    made.rows(*rows("new", prompt=" a bowl"))
    assert made.run().submissions == 1
    assert " a bowl" in made.manifest()["prompt"].to_list(), "what is sent is what the file has"


def signed(row_id: str | None, signature: str) -> dict[str, Any]:
    address = f"https://files.example/mug.png?size=2&X-Amz-Date={signature}&X-Amz-Signature={signature}"
    return {"id": row_id, "prompt": "a mug", "model": "still-1", "reference_image": address}


def test_an_image_whose_address_is_signed_anew_is_the_same(project: Make) -> None:
    made = project([signed("mug", "monday"), signed(None, "monday")])
    assert made.run().stored == 2
    images = [{"url": signed("", "wednesday")["reference_image"], "role": "reference_image"}]
    listed = {"prompt": "a mug", "model": "still-1", "images": json.dumps(images)}
    made.rows(signed("mug", "tuesday"), listed)
    done = made.run()
    assert (done.submissions, done.stored) == (0, 2)
    assert notes(made) == ""
    made.rows(signed("mug", "tuesday") | {"reference_image": "https://files.example/mug.png?size=3"})
    assert made.run().submissions == 1, "another parameter is another image"


def test_what_an_older_ledger_has_with_blanks_and_signatures_is_not_bought_again(project: Make) -> None:
    """Its keys are hashes of these; nothing but the request says which job it is."""
    made = project([signed("mug", "monday") | {"prompt": "a mug "}, IMAGE | {"prompt": " a vase"}])
    assert made.run().stored == 2
    with closing(sqlite3.connect(made.folder / "out/ledger.db")) as ledger, ledger:
        ledger.execute("PRAGMA foreign_keys = OFF")
        for table in ("attempts", "media"):
            ledger.execute(f"UPDATE {table} SET job_key = 'older' || job_key")
    made.rows(signed("mug", "tuesday") | {"prompt": "a mug"}, IMAGE | {"prompt": "a vase"})
    done = made.run()
    assert (done.submissions, done.stored) == (0, 2)


# ---- rows without ids, and carried columns


def file_of(made: Project, shot: str) -> str:
    [found] = made.manifest().filter(pl.col("current"), pl.col("shot") == shot)["sha256"]
    return str(found)


def equal_rows(*shots: str) -> list[dict[str, Any]]:
    return [IMAGE | {"shot": shot} for shot in shots]


def test_of_equal_rows_each_keeps_its_file_when_some_are_removed_swap_or_come(project: Make) -> None:
    made = project(equal_rows("one", "two", "three"))
    assert made.run().stored == 3
    files = {shot: file_of(made, shot) for shot in ("one", "two", "three")}
    assert len({*made.manifest()["job_key"]}) == 3
    for left in (("three", "two", "one"), ("three",), ("one", "two", "three")):
        made.rows(*equal_rows(*left))
        assert made.run().submissions == 0
        assert {shot: file_of(made, shot) for shot in left} == {shot: files[shot] for shot in left}
    assert notes(made) == ""
    made.rows(*equal_rows("new", *files))
    assert made.run().submissions == 1, "a further equal row is a new job, and takes no file of another"
    assert {shot: file_of(made, shot) for shot in files} == files
    made.rows(*equal_rows("four", "five"))
    assert "cannot be told which file is whose" in notes(made)
    assert made.run().submissions == 0


def test_a_carried_column_is_the_one_of_the_file_as_it_is_now(project: Make) -> None:
    batch = [IMAGE | {"id": "a"}, IMAGE | {"prompt": "a jug"}]
    made = project([row | {"shot": "wrnog"} for row in batch])
    assert made.run().stored == 2
    made.rows(*(row | {"shot": "right"} for row in batch))
    done = made.run()
    assert (done.submissions, done.stored) == (0, 2)
    assert made.manifest()["shot"].to_list() == ["right"] * 2


# ---- a model is chosen


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_pilot_on_four_models_is_found_bought_when_one_of_them_is_the_default(
    project: Make, has_ids: bool
) -> None:
    """And the matrix is gone. Of the rows that the pilot had, the rest of the batch buys none again."""
    ids = [{"id": f"row {number}"} if has_ids else {} for number in range(5)]
    made = project([each | {"prompt": f"a vase {number}"} for number, each in enumerate(ids)])
    offered = made.backlot.service.models
    offered["still-2"] = offered["still-1"].model_copy(update={"id": "still-2"})
    models = ["sketch-1", "still-1", "still-2", "poster-1"]
    made.set(input={"matrix": {"model": models}}, budget={"pilot": 5})
    done = made.run()
    assert (done.stop_reason, done.submissions, done.stored) == ("approval", 8, 8)
    assert [*made.manifest()["prompt"].value_counts()["count"]] == [4, 4], "two rows, whole"
    made.set(input={"matrix": {}, "defaults": {"model": "still-1"}}, budget={"pilot": None})
    quote = made.quote()
    assert (quote.already_bought, quote.to_buy, quote.repeats) == (2, 3, 0)
    done = made.run()
    assert (done.outcome, done.submissions, done.stored) == ("complete", 3, 11)
    assert made.manifest().filter(model="still-1").height == 5
    assert [each.model for each in made.sold].count("still-1") == 5


# ---- looking changes nothing


def content(folder: Path) -> dict[Path, bytes]:
    looks = ("quote.parquet", "quote.rejects.parquet", "rejects.csv")
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("ledger.db"))
    return {path: path.read_bytes() for path in files if path.name not in looks}


def test_a_quote_of_another_file_changes_no_report_and_no_export(project: Make) -> None:
    made = project(rows("a", "b", "c"))
    assert made.run().stored == 3
    exported(made, "out/set", Kind.IMAGEFOLDER.value)
    before = content(made.folder / "out")
    made.rows(*rows("a"))
    callsheet.quote(made.config)
    del made.backlot.service.models["sketch-1"]
    callsheet.quote(made.config)
    assert content(made.folder / "out") == before
    exported(made, "out/set", Kind.IMAGEFOLDER.value)
    collected = made.collect()
    assert (collected.jobs, collected.stored) == (3, 3)
    assert len(list((made.folder / "out/set").rglob("*.jpeg"))) == 3


def test_a_run_that_somebody_refuses_changes_no_plan(project: Make) -> None:
    made = project(rows("a", "b"))
    assert made.run().stored == 2
    report = made.folder / "out/report"
    assert not (report / "quote.parquet").exists(), "it has bought its plan, which is written once"
    assert callsheet.plan(made.config)["row_id"].to_list() == ["a", "b"]
    made.rows(*rows("a", "c"))
    made.set(budget={"approve_above": "0"})
    assert made.run().stop_reason == "approval"
    assert callsheet.plan(made.config)["row_id"].to_list() == ["a", "c"], "what was asked about can be seen"
    assert pl.read_parquet(report / "plan.parquet")["row_id"].to_list() == ["a", "b"]
    assert made.collect().stored == 2


# ---- what is a new job, and asks for what was bought


def test_ids_that_are_given_later_make_new_jobs_and_the_quote_says_what_they_buy_again(project: Make) -> None:
    made = project([IMAGE, IMAGE | {"prompt": "a jug"}])
    made.run()
    assert notes(made) == ""
    made.rows(*rows("a"), IMAGE | {"id": "b", "prompt": "a jug"}, IMAGE | {"id": "c", "prompt": "a bowl"})
    assert made.quote().to_buy == 3
    assert "2 new jobs ask for the very request that this batch has bought" in notes(made)


def test_ids_that_a_spreadsheet_has_written_in_another_way_are_named_and_not_bought_unseen(
    project: Make,
) -> None:
    before = ["001", "true", "1e3", "2026-01-05", "123456789012", "lamp", "mug"]
    made = project(rows(*before))
    assert made.run().stored == 7
    made.rows(*(row | {"prompt": "a jug"} for row in rows("1", "TRUE", "1000.0", "5.1.26", "1.23457E+11")))
    said = notes(made)
    assert "5 rows have new ids that look like one that this batch has bought" in said
    for pair in ("1 for 001", "TRUE for true", "1000.0 for 1e3", "5.1.26 for 2026-01-05"):
        assert pair in said
    quoted = made.quote()
    [warning] = warnings(quoted)
    assert warning.startswith("5 of 5 jobs to buy look like some that this batch has bought under another id")
    assert figures(quoted).notes == list(quoted.plan.notes)
    done = made.run()
    assert (done.stop_reason, done.submissions, done.exit_code) == ("approval", 0, 4)
    assert made.run(approved=True).submissions == 5
    made.rows(*rows("lamp", "mug "), *rows("new", prompt="a bowl"))
    assert made.run().submissions == 1, "these are what was bought, and one is new"


def test_a_few_jobs_that_look_like_bought_ones_stop_no_run_and_are_said(project: Make) -> None:
    made = project(rows("a", "b"))
    assert made.run().stored == 2
    made.rows(*rows("A", "b"), *(IMAGE | {"id": f"new-{n}", "prompt": f"a jug, {n}"} for n in range(9)))
    assert "1 of 10 jobs to buy looks like one" in warnings(made.quote())[0]
    made.rows(*rows("A", "b"), *(IMAGE | {"id": f"new-{n}", "prompt": f"a jug, {n}"} for n in range(8)))
    assert made.run().stop_reason == "approval", "more than a tenth"
    assert made.run("budget.repeats=buy").submissions == 9


def test_a_batch_whose_prompts_have_all_changed_is_not_bought_again_unseen(project: Make) -> None:
    """So it is where the cells of a template are written in another way: by another format, say."""
    made = project([IMAGE | {"id": f"{n}", "prompt": f"a mug for {n}.50 USD"} for n in range(12)])
    assert made.run().stored == 12
    made.rows(*(IMAGE | {"id": f"{n}", "prompt": f"a mug for {n}.5 USD"} for n in range(12)))
    [warning] = warnings(made.quote())
    assert warning.startswith("12 of 12 jobs to buy look like some that this batch has bought")
    assert "12 new jobs have another prompt than what this batch has bought for the same row" in notes(made)
    done = made.run()
    assert (done.stop_reason, done.submissions, done.exit_code) == ("approval", 0, 4)
    rejected = [{"row_id": f"{n}", "sample": 1, "decision": "rejected"} for n in range(11)]
    callsheet.review(made.config, pd.DataFrame(rejected))
    assert made.run().submissions == 12, "a person wants others of eleven, and has corrected one"


def test_a_few_corrected_prompts_stop_no_run_and_are_said(project: Make) -> None:
    made = project(rows(*range(11)))
    assert made.run().stored == 11
    made.rows(IMAGE | {"id": "0", "prompt": "a vase, blue"}, *rows(*range(1, 11)))
    assert "1 new job has another prompt than what this batch has bought" in notes(made)
    assert (warnings(made.quote()), made.run().submissions) == ([], 1)


def test_an_image_that_was_saved_anew_is_said(project: Make) -> None:
    """It may have other metadata, or be another image: only a person knows."""
    made = project([row | {"model": "still-1"} for row in rows("mug", "cup", reference_image="mug.png")])
    image = made.folder / "mug.png"
    Image.new("RGB", (64, 64), "red").save(image)
    assert made.run().stored == 2
    assert notes(made) == ""
    Image.new("RGB", (64, 64), "red").save(image, dpi=(300, 300))
    assert "2 jobs ask for what was bought for the row, with another file of an image" in notes(made)


UNSEEN = (
    *("a red\u00a0fox", "a  red fox", "a red\u200b fox", "a re\u00add fox", "\u200ea red fox", "a red\nfox"),
    *("\uff41 red fox", "a red fox\ufe0e"),
)
"""The prompt `a red fox`, written in other ways."""


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_change_that_cannot_be_seen_is_not_bought_unseen_however_few_there_are(
    project: Make, has_ids: bool
) -> None:
    """It is sent as it is written, once a person has said yes."""
    batch = [IMAGE | {"prompt": prompt} for prompt in ("a red fox", *(f"a jug, {n}" for n in range(24)))]
    batch = [{"id": f"r{n}"} | row if has_ids else row for n, row in enumerate(batch)]
    made = project(batch[:1])
    made.backlot.service.faults = asked = Observed()
    assert made.run().stored == 1
    for written in UNSEEN:
        made.rows(batch[0] | {"prompt": written}, *batch[1:])
        quote = made.quote()
        assert (quote.to_buy, quote.repeats, bool(shown(quote).repeats)) == (25, 1, True), written
    assert "1 new job has a prompt that looks like what this batch has bought" in notes(made)
    stopped = made.run()
    assert (stopped.stop_reason, stopped.submissions) == ("approval", 0)
    made.rows(*batch)
    assert made.run().submissions == 24, "as it was, it is bought"
    made.rows(batch[0] | {"prompt": written}, *batch[1:])
    assert made.run("budget.repeats=buy").submissions == 1
    assert asked.prompts["images"].count(written) == 1


def test_a_change_that_can_be_seen_asks_nobody(project: Make) -> None:
    made = project(rows("a", prompt="a red fox") + rows("b", prompt="a hen"))
    assert made.run().stored == 2
    made.rows(*rows("a", prompt="a Red fox"), *rows("b", prompt="a\u00a0hen", model="still-1"))
    assert warnings(made.quote()) == []
    callsheet.review(made.config, pd.DataFrame([{"row_id": "b", "sample": 1, "decision": "rejected"}]))
    made.rows(*rows("a", prompt="a red fox"), *rows("b", prompt="a\u00a0hen"))
    assert made.run().submissions == 1, "it was rejected, and another is what the row needs"
