"""Each row has an identity of its own: its id, or its content and a count of equal rows."""

from __future__ import annotations

import polars as pl

from callsheet.batches.identities import THIS_ID
from callsheet.batches.read import read_batch
from tests.batches.conftest import places, settings


def test_a_repeated_id_is_rejected_and_its_first_line_named(batch):
    read = batch("id,prompt\nA,x\nB,y\n A ,z\na,w\nA,v\n")
    assert read.rows["row_id"].to_list() == ["A", "B", "a"]
    assert places(read) == [(4, "id", f"line 2 has{THIS_ID}"), (6, "id", f"line 2 has{THIS_ID}")]


def test_an_id_made_from_content_does_not_depend_on_order_carried_columns_and_samples(batch):
    before = batch("prompt,note,samples\nx,1,1\ny,2,1\nx,3,1\n").rows.select("prompt", "row_id")
    after = batch("samples,note,prompt\n2,c,x\n5,b,y\n2,a,x\n9,d,z\n").rows.select("prompt", "row_id")
    assert after.rows()[:3] == [before.row(0), before.row(1), before.row(2)]
    assert before["row_id"].n_unique() == 3
    assert before["row_id"][0].rsplit("-", 1)[0] == before["row_id"][2].rsplit("-", 1)[0]


def test_an_id_made_from_content_counts_the_occurrences_of_that_content(batch):
    ids = batch("id,prompt\n,x\n,y\nown,x\n,x\n,y\n,x\n").rows["row_id"]
    contents = [row_id.rsplit("-", 1)[0] for row_id in ids]
    assert [row_id.rsplit("-", 1)[-1] for row_id in ids] == ["1", "1", "own", "2", "2", "3"]
    assert contents[0] == contents[3] == contents[5] != contents[1] == contents[4]


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
        (tmp_path / f"{name}.csv").write_text(
            f"id,prompt,{name}\nsame,x,1\n,x,2\n,x,3\n,y,4\n{name},z,5\n,,6\n"
        )
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
    (tmp_path / "c.parquet").unlink()
    carried = read_batch(settings(tmp_path / "*.parquet")).rows["carried"].to_list()
    assert carried == [{"sku": "x", "n": 1.5}, {"sku": "y", "n": None}]
