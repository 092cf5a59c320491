"""`export`: what a batch has stored, handed on whole, once, and to an empty place."""

from __future__ import annotations

import asyncio
import codecs
import csv
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import opentimelineio
import polars as pl
import pytest
from PIL import Image
from typer.testing import CliRunner
from webdataset import WebDataset

from callsheet.cli.main import app
from callsheet.config.load import load
from callsheet.errors import InputError, StorageError
from callsheet.export import shards
from callsheet.export.export import Kind, export
from callsheet.export.files import Exported
from tests.cli.test_rows import printed, refusal
from tests.conftest import Make, Project
from tests.servers.s3 import Server

ROWS = [
    {"id": "a.b", "prompt": "=SUM(A1)", "model": "sketch-1", "shelf": "-7", "label": "@one"},
    {"id": "مصباح", "prompt": "苹果", "model": "sketch-1", "shelf": "+x", "label": "two"},
    {"id": "c", "prompt": "three", "model": "sketch-1", "shelf": "9", "label": "three"},
]
VIDEO = {"id": "waves", "prompt": "waves", "model": "dailies-1", "duration": 1}


def exported(made: Project, to: str, kind: str) -> Exported:
    return asyncio.run(export(load(made.config), to, Kind(kind)))


def content(folder: Path) -> dict[str, bytes]:
    """Every file of an export."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def described(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "train/metadata.jsonl").read_text().splitlines()]


def members(tar: Path | io.BytesIO) -> dict[str, bytes]:
    with tarfile.open(tar) if isinstance(tar, Path) else tarfile.open(fileobj=tar) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]  # files only


@pytest.fixture
def small_shards() -> Iterator[None]:
    most, shards._MOST_FILES = shards._MOST_FILES, 2
    yield
    shards._MOST_FILES = most


# ---- tables


def test_csv_tables_have_what_parquet_has_no_formula_and_a_place_of_their_own(project: Make) -> None:
    made = project(ROWS)
    made.run()
    assert exported(made, "out/tables", "csv").files == 2
    with (made.folder / "out/tables/manifest.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    manifest = made.manifest()
    assert list(rows[0]) == manifest.columns
    for name in ("manifest.csv", "costs.csv"):
        printed("export", str(made.config), "--to", "out/excel", "--as", "csv", "--bom")
        plain = (made.folder / "out/tables" / name).read_bytes()
        assert (made.folder / "out/excel" / name).read_bytes() == codecs.BOM_UTF8 + plain
    refused = ("export", str(made.config), "--to", "out/x", "--as", "webdataset", "--bom")
    assert refusal(*refused).message == "--bom cannot be combined with --as webdataset"
    assert [row["sha256"] for row in rows] == manifest["sha256"].to_list()
    assert [row["prompt"] for row in rows] == ["'=SUM(A1)", "苹果", "three"]
    assert [(row["shelf"], row["label"]) for row in rows] == [("-7", "'@one"), ("'+x", "two"), ("9", "three")]
    costs = pl.read_csv(made.folder / "out/tables/costs.csv", schema_overrides={"cost": pl.Decimal(18, 6)})
    assert costs["cost"].sum() == Decimal("0.0045")
    refused_in_words(made)


def test_an_exported_csv_is_read_again_as_it_was_before_its_formulas_were_made_harmless(
    project: Make,
) -> None:
    """An apostrophe that was there stays, in the manifest and in a file of somebody's own."""
    prompts = ["=A fox", "-- a heron --", "+1 cat", "@home, a dog", "'=quoted", "''-7", "'tis", "-7 degrees"]
    rows = [{"id": f"r{n}", "prompt": prompt, "model": "sketch-1"} for n, prompt in enumerate(prompts)]
    made = project(rows)
    made.run()
    exported(made, "out/tables", "csv")
    again = ("batch=again", "report.url=out/again", "input.path=out/tables/manifest.csv")
    bought = made.quote(*again).plan.table
    requests = bought["request"].to_list()
    assert [json.loads(request)["prompt"] for request in requests] == prompts
    own = made.quote("batch=own", "report.url=out/own").plan.table["request"].to_list()
    assert [json.loads(request)["prompt"] for request in own] == prompts


def refused_in_words(made: Project) -> None:
    """A place that has something else is refused, and left as it is."""
    for to, kind, words in (
        ("out/media", "imagefolder", "out/media: has other files already"),
        ("out/tables", "imagefolder", "has an export of the batch test as csv"),
        ("batch.yaml", "csv", r"batch\.yaml: is a file"),
    ):
        with pytest.raises(InputError, match=words):
            exported(made, to, kind)
    with pytest.raises(InputError, match="--to is empty"):
        exported(made, "", "csv")
    for to, hint in (("batch.yaml/set", "another --to"), ("n" * 300, "Check --to")):
        with pytest.raises(StorageError) as refused:
            exported(made, to, "csv")
        assert hint in refused.value.hint
    assert content(made.folder / "out/tables").keys() == {
        "callsheet-export.json",
        "manifest.csv",
        "costs.csv",
    }


# ---- a folder for people


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "callsheet-export.json")


def test_a_folder_has_each_file_under_the_name_of_its_row_and_a_list_of_them(project: Make) -> None:
    """Videos, too; several files of a row have the numbers that the contact sheet shows."""
    made = project(
        [
            {"id": "Kännchen grün", "prompt": "a jug", "model": "sketch-1", "samples": 3},
            {"id": "lamps/lamp 1", "prompt": "a lamp", "model": "sketch-1"},
            VIDEO,
        ]
    )
    made.run()
    printed("export", str(made.config), "--to", "out/all")
    files = ["Kännchen grün-1.jpeg", "Kännchen grün-2.jpeg", "Kännchen grün-3.jpeg", "lamps,lamp 1.jpeg"]
    assert names_in(made.folder / "out/all") == sorted([*files, "files.csv", "waves.mp4"])
    with (made.folder / "out/all/files.csv").open(newline="") as file:
        listed = {row["file"]: row["sha256"] for row in csv.DictReader(file)}
    assert listed == {
        name: hashlib.sha256((made.folder / "out/all" / name).read_bytes()).hexdigest()
        for name in [*files, "waves.mp4"]
    }
    printed("review", str(made.config), "--keep", "Kännchen grün/2")
    printed("export", str(made.config), "--to", "out/kept", "--kept")
    assert names_in(made.folder / "out/kept") == ["Kännchen grün.jpeg", "files.csv"], "it is the only one"
    printed("review", str(made.config), "--keep", "Kännchen grün/3")
    again = json.loads(printed("export", str(made.config), "--to", "out/kept", "--kept", "--json"))
    assert (again["as"], again["copied"], again["removed"]) == ("folder", 2, 1)
    assert names_in(made.folder / "out/kept") == [*files[1:3], "files.csv"]


def test_a_person_names_the_files_and_no_two_share_a_name(project: Make) -> None:
    prompts = {"id": ["a?b", "A?B", "x-2", "x", "y"], "colour": ["red", "red", "blue", None, "-7"]}
    rows = [
        {"id": row_id, "colour": colour, "prompt": f"a cup {row_id}", "model": "sketch-1", "samples": 2}
        for row_id, colour in zip(*prompts.values(), strict=True)
    ]
    made = project(rows)
    made.run()
    assert exported(made, "out/ids", "folder").copied == 10
    assert len({name.casefold() for name in names_in(made.folder / "out/ids")}) == 11
    names = ("export", str(made.config), "--to", "out/names", "--name")
    printed(*names, "{colour} by {model}")
    by_colour = names_in(made.folder / "out/names")
    assert by_colour[-4:] == [f"red by sketch-1-{number}.jpeg" for number in (1, 2, 3, 4)]
    assert refusal(*names, "{color}").message == "--name: {color} is no column of the manifest"
    for template in ("cup", "{row_id", "{row_id}/{colour}"):
        assert refusal(*names, template).message == f"--name {template}: is no name with a column in braces"


def test_a_folder_is_brought_up_to_date_where_names_have_other_files_now(project: Make) -> None:
    """Also where its list was edited, or it broke off between the list and the files."""
    made = project(ROWS[2:])
    made.run()
    exported(made, "out/set", "folder")
    first = (made.folder / "out/set/c.jpeg").read_bytes()
    made.rows(ROWS[2] | {"prompt": "another"})
    made.run()
    assert exported(made, "out/set", "folder").copied == 1
    assert (made.folder / "out/set/c.jpeg").read_bytes() != first
    (made.folder / "out/set/c.jpeg").unlink()
    (made.folder / "out/set/files.csv").write_text("somebody\nhas edited it\n")
    assert exported(made, "out/set", "folder").copied == 1
    assert exported(made, "out/set", "folder").copied == 0


# ---- a cut for editors


def test_a_cut_has_the_kept_take_of_each_shot_and_the_others_above_it_disabled(project: Make) -> None:
    """Read by the library that editing programs read it with."""
    made = project(
        [
            VIDEO | {"id": "sea", "samples": 3, "mood": "calm"},
            VIDEO | {"id": "kite", "duration": 2, "samples": 2},
            {"id": "title", "prompt": "a title", "model": "sketch-1"},
        ]
    )
    made.run()
    printed("review", str(made.config), "--keep", "sea/2", "--reject", "kite/1")
    done = printed("export", str(made.config), "--to", "out/cut", "--as", "otio", "--still-seconds", "1.5")
    assert "7 files" in done, "five takes, their list and the timeline"
    timeline = opentimelineio.adapters.read_from_file(str(made.folder / "out/cut/cut.otio"))
    cut, *above = timeline.video_tracks()
    assert [clip.name for clip in cut.find_clips()] == ["sea-2.mp4", "kite.mp4", "title.jpeg"]
    seconds = [clip.duration().to_seconds() for clip in cut.find_clips()]
    assert seconds == pytest.approx([1, 2, 1.5], abs=0.05)
    others = [clip for track in above for clip in track.find_clips()]
    assert [clip.name for clip in others] == ["sea-1.mp4", "sea-3.mp4"], "the rejected take is not there"
    assert not any(clip.enabled for clip in others)
    assert all(clip.range_in_parent().start_time.to_seconds() == 0 for clip in others)
    for clip in timeline.find_clips():
        assert (made.folder / "out/cut" / unquote(clip.media_reference.target_url)).is_file()
        assert clip.source_range == clip.available_range()
    first = next(iter(cut.find_clips())).metadata["callsheet"]
    assert (first["row_id"], first["sample"], first["model"], first["decision"]) == (
        "sea",
        2,
        "dailies-1",
        "kept",
    )
    assert Decimal(first["cost"]) > 0


# ---- an image folder


def test_an_image_folder_has_every_image_and_a_line_for_each_and_follows_the_batch(project: Make) -> None:
    made = project([*(row | {"name": f"the {row['id']}"} for row in ROWS), VIDEO])
    made.run()
    words = ["export", str(made.config), "--to", "out/set", "--as", "imagefolder"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "4 files" in done.stdout and "3 stored files by this export" in done.stdout, done.output
    answer = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)
    assert (answer["to"], answer["as"]) == ("out/set", "imagefolder")
    assert (answer["files"], answer["copied"], answer["left_out"]) == (4, 0, 1)
    lines = described(made.folder / "out/set")
    assert [line["row_id"] for line in lines] == ["a.b", "مصباح", "c"]
    stored = {row["sha256"]: Path(row["url"]) for row in made.manifest().iter_rows(named=True)}
    for line in lines:
        image = made.folder / "out/set/train" / line["file_name"]
        assert not image.samefile(stored[line["sha256"]]), "it is a copy"
        assert hashlib.sha256(image.read_bytes()).hexdigest() == line["sha256"]
        with Image.open(image) as opened:
            assert opened.size == (line["width"], line["height"])
        assert line["cost"] == "0.001500"
    assert [line["name"] for line in lines] == ["the a.b", "the مصباح", "the c"]
    assert lines[1]["prompt"] == "苹果"
    assert lines[0]["label_column"] == "@one", "a loader makes a column `label` of its own"
    before = {path: path.stat().st_mtime_ns for path in (made.folder / "out/set").rglob("*.jpeg")}
    made.rows(*ROWS[1:], {"id": "d", "prompt": "four", "model": "sketch-1"})
    made.run()
    changed = exported(made, "out/set", "imagefolder")
    assert (changed.copied, changed.removed, changed.files) == (1, 1, 4)
    assert sorted(line["row_id"] for line in described(made.folder / "out/set")) == ["c", "d", "مصباح"]
    after = {path: path.stat().st_mtime_ns for path in (made.folder / "out/set").rglob("*.jpeg")}
    assert len(after.items() & before.items()) == 2, "what was there is not written again"


@pytest.mark.parametrize("kind", ["imagefolder", "webdataset"])
def test_an_export_that_broke_off_goes_on_and_is_as_if_it_had_not(
    project: Make, monkeypatch: pytest.MonkeyPatch, small_shards: None, kind: str
) -> None:
    made = project([*ROWS, {"id": "d", "prompt": "four", "model": "sketch-1"}])
    made.run()
    exported(made, "out/whole", kind)
    module = "image_folder" if kind == "imagefolder" else "shards"
    monkeypatch.setattr(f"callsheet.export.{module}.AT_ONCE", 2)

    def end(_: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(export(load(made.config), "out/part", Kind(kind), end))
    (made.folder / "out/part/.x.jpeg.1234.part").write_bytes(b"what a kill leaves")
    done = exported(made, "out/part", kind)
    assert done.copied == (2 if kind == "imagefolder" else 4)  # a shard is whole or absent
    assert content(made.folder / "out/part") == content(made.folder / "out/whole")


# ---- shards


def test_shards_have_each_file_with_its_description_and_those_that_are_full_are_not_written_again(
    project: Make, small_shards: None
) -> None:
    made = project([*ROWS, VIDEO])
    made.run()
    done = exported(made, "out/shards", "webdataset")
    assert (done.files, done.copied) == (3, 4)
    index = json.loads((made.folder / "out/shards/shards.json").read_text())
    assert [shard["nsamples"] for shard in index["shardlist"]] == [2, 2]
    data = WebDataset(str(made.folder / "out/shards/test-{000000..000001}.tar"), shardshuffle=False)
    loaded = {json.loads(sample["json"])["row_id"]: sample for sample in data}
    stored = {row["row_id"]: row["sha256"] for row in made.manifest().iter_rows(named=True)}
    assert loaded.keys() == stored.keys() == {"a.b", "مصباح", "c", "waves"}
    for row_id, sample in loaded.items():
        content = sample["mp4" if row_id == "waves" else "jpeg"]
        assert hashlib.sha256(content).hexdigest() == json.loads(sample["json"])["sha256"] == stored[row_id]
    assert json.loads(loaded["مصباح"]["json"])["prompt"] == "苹果"

    tars = [made.folder / f"out/shards/test-{number:06d}.tar" for number in range(3)]
    before = [tar.stat().st_mtime_ns for tar in tars[:2]]
    assert exported(made, "out/shards", "webdataset").copied == 0
    new = {"id": "new", "prompt": "new", "model": "sketch-1"}
    made.rows(new, *ROWS, VIDEO)
    made.run()
    assert exported(made, "out/shards", "webdataset").copied == 1, "a shard of its own"
    assert [tar.stat().st_mtime_ns for tar in tars[:2]] == before
    made.rows(new, ROWS[0] | {"prompt": "another"}, *ROWS[1:], VIDEO)
    made.run()
    exported(made, "out/shards", "webdataset")
    found = [json.loads(data) for tar in tars for name, data in members(tar).items() if name[-5:] == ".json"]
    prompts = {each["prompt"] for each in found}
    assert prompts == {"new", "苹果", "three", "another", "waves"}, "as many files, of about the same size"
    made.rows(ROWS[1])
    made.run()
    assert exported(made, "out/shards", "webdataset").removed == 2
    assert not tars[1].exists()


# ---- places


def test_an_export_to_a_bucket_goes_on_there_too(
    project: Make, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.sign_in(monkeypatch)
    made = project(ROWS)
    made.set(storage={"url": f"s3://{s3.bucket}/export-media"})
    made.run()
    for kind, again in (("folder", 0), ("page", 0), ("imagefolder", 0), ("webdataset", 0), ("csv", 2)):
        to = f"s3://{s3.bucket}/exports/{kind}"
        first = exported(made, to, kind)
        assert first.copied == (2 if kind == "csv" else 3)
        assert exported(made, to, kind).copied == again
    tar = s3.client().get_object(Bucket=s3.bucket, Key="exports/webdataset/test-000000.tar")["Body"].read()
    assert len(members(io.BytesIO(tar))) == 6
    with pytest.raises(InputError, match="has other files already"):
        exported(made, f"s3://{s3.bucket}/export-media", "csv")


def test_a_file_that_was_changed_or_removed_is_named_and_not_exported(project: Make) -> None:
    made = project(ROWS[2:])
    made.run()
    [stored] = (made.folder / "out/media").rglob("*.jpeg")
    whole = stored.read_bytes()
    stored.write_bytes(whole[:-1] + b"x")
    with pytest.raises(InputError, match=r"c-1-0\.jpeg: the file of row c was changed"):
        exported(made, "out/set", "imagefolder")
    stored.unlink()
    with pytest.raises(InputError, match=r"c-1-0\.jpeg: the file of row c cannot be read"):
        exported(made, "out/shards", "webdataset")
    stored.write_bytes(whole)
    assert exported(made, "out/set", "imagefolder").copied == 1


def test_a_batch_without_images_or_files_is_an_error_that_says_so(project: Make) -> None:
    made = project([VIDEO])
    made.run()
    with pytest.raises(InputError, match="no image to export, and an image folder has no videos"):
        exported(made, "out/set", "imagefolder")
    made.set(batch="other")
    with pytest.raises(InputError, match="no stored file to export"):
        exported(made, "out/shards", "webdataset")
