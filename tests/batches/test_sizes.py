"""Width and height that are a ratio, and columns of images in Parquet."""

from __future__ import annotations

import polars as pl
import pytest

from callsheet.batches.formats import read_tables
from callsheet.batches.read import original_rows, read_batch
from callsheet.errors import InputError
from tests.batches.conftest import settings

PAIR = {"aspect_ratio": ["width", "height"]}


@pytest.mark.parametrize(
    ("width", "height", "ratio"),
    [
        ("1024", "576", "16:9"),
        ("576", "1024", "9:16"),
        ("1024.0", " 1024 px", "1:1"),
        ("16", "9", "16:9"),
        ("21", "9", "21:9"),
        ("1344", "768", "1344x768"),  # of which the nearest offered ratio is taken
        ("", "", None),
    ],
)
def test_width_and_height_are_a_ratio(batch, width, height, ratio):
    read = batch(f"prompt,width,height\nx,{width},{height}\n", columns=PAIR)
    assert read.rows["aspect_ratio"].to_list() == [ratio]
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


def test_width_and_height_together_are_named_as_a_ratio(batch, tmp_path):
    read = batch("prompt,width,height,steps\nx,1024,576,30\n")
    assert read.columns.unused == {"[width, height]": "aspect_ratio", "steps": "steps"}
    (tmp_path / "x.csv").write_text("prompt,Width,Height\nx,1,2\n")
    for wanted in ("ratio", ["width", "Height"]):
        with pytest.raises(InputError, match=r"there is no column '(ratio|width)'") as caught:
            read_batch(settings(tmp_path / "x.csv", columns={"aspect_ratio": wanted}))
    with pytest.raises(InputError) as caught:
        read_batch(settings(tmp_path / "x.csv", columns={"aspect_ratio": "ratio"}))
    assert "{aspect_ratio: [Width, Height]}" in caught.value.hint


def test_rows_that_are_written_out_have_the_file_s_own_columns(tmp_path):
    (tmp_path / "x.csv").write_text("id,prompt,width,height\na,x,1024,576\n")
    rows = original_rows(settings(tmp_path / "x.csv", columns=PAIR), ["a"])
    assert rows.columns == ["id", "prompt", "width", "height"]


# ---- images in Parquet


@pytest.fixture
def pictures(tmp_path):
    path = tmp_path / "x.parquet"
    image = [{"bytes": b"\x89PNG", "path": "a.png"}, {"bytes": b"\x89PNG", "path": None}, None]
    kinds = {
        "image": pl.Struct({"bytes": pl.Binary, "path": pl.String}),
        "prompt": pl.String,
        "sku": pl.String,
    }
    more = {"prompt": ["x", "y", "z"], "sku": ["1", "2", "3"], "image": image}
    several = pl.Series("several", [image[:1], image[:2], []], pl.List(kinds["image"]))
    pl.DataFrame(more, schema_overrides=kinds).with_columns(several).write_parquet(path)
    return path


def test_a_column_of_images_is_carried_as_its_paths_and_named(pictures):
    read = read_batch(settings(pictures))
    assert [row["image"] for row in read.rows["carried"]] == ["a.png", None, None]
    assert [row["several"] for row in read.rows["carried"]] == [["a.png"], ["a.png", None], []]
    assert read.columns.unused == {"image": "reference_image", "several": "image"}
    [table] = read_tables(settings(pictures))
    assert table.images == {"image": {2}, "several": {2}}


@pytest.mark.parametrize(("column", "name"), [("reference_image", "image"), ("images", "several")])
def test_an_image_of_bytes_alone_is_rejected_where_it_is_used(pictures, column, name):
    read = read_batch(settings(pictures, columns={column: name}))
    assert read.rows["prompt"].to_list() == ["x", "z"]
    assert read.rows[column][0] in ("a.png", '["a.png"]')
    reason = "the file has the image's bytes only: write the images into files"
    assert read.rejects.rows() == [(2, name, "", reason)]


def test_a_field_of_a_column_of_images_has_its_dotted_name(pictures):
    read = read_batch(settings(pictures, columns={"reference_image": "image.path"}))
    assert read.rows["reference_image"].to_list() == ["a.png", None, None]
