"""Where batch files and images are: on disk or on S3, what is not a file, and Parquet of other programs."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow
import pytest
from pyarrow import parquet

from callsheet.batches import formats
from callsheet.batches.formats import read_tables
from callsheet.batches.read import Batch, original_rows, read_batch
from callsheet.errors import InputError
from callsheet.pricing import references
from tests.batches.conftest import places, prompts, rows_of, settings
from tests.pictures import picture
from tests.servers import s3 as servers
from tests.servers.sockets import raw, serve


def test_a_path_that_is_not_a_file_says_why(tmp_path):
    (tmp_path / "shots").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for path, expected in [
        ("shots", "shots: is a folder"),
        ("none.csv", "none.csv: there is no such file"),
        ("none-*.csv", "none-*.csv: no file matches"),
        ("sho?s", "sho?s: no file matches"),
        ("x" * 300 + ".csv", "cannot be read: File name too long"),
        ("loop", "cannot be read: Too many levels"),
        ("a\0b", "is not a file name"),
    ]:
        with pytest.raises(InputError) as caught:
            read_batch(settings(tmp_path / path))
        assert expected in caught.value.message
        assert (f"{tmp_path / 'shots/*.csv'}." in caught.value.hint) == (path == "shots")
    with pytest.raises(InputError, match="gs:// is not supported") as caught:
        read_batch(settings("gs://bucket/p.csv"))
    assert "s3://bucket/key" in caught.value.hint


def test_several_files_are_read_in_the_order_of_their_names(tmp_path):
    (tmp_path / "b.csv").write_text("prompt,id,note\nthird,3,\nagain,1,n\n,4,\n")
    (tmp_path / "a.tsv").write_text("id\tprompt\tsize\n1\tfirst\t9\n2\tsecond\n")
    (tmp_path / "c.md").write_text("not a batch")
    found = read_batch(settings(tmp_path / "[ab].?sv"))
    assert prompts(found) == [(2, "first"), (2, "third")]
    assert found.rows["carried"].to_list() == [{"size": "9", "note": None}, {"size": None, "note": ""}]
    assert [(line, reason.split(str(tmp_path))[0]) for line, _, _, reason in found.rejects.rows()] == [
        (3, "the line has 2 cells, and the header has 3 (in "),
        (3, "line 2 of "),
        (4, "the prompt is empty (in "),
    ]
    assert found.total == 5


@pytest.fixture
def bucket(s3: servers.Server, monkeypatch: pytest.MonkeyPatch) -> servers.Server:
    """The server, found by the standard environment variables."""
    for variable, value in s3.environment("reader").items():
        monkeypatch.setenv(variable, value)
    return s3


def put(server: servers.Server, key: str, content: bytes) -> str:
    server.client().put_object(Bucket=server.bucket, Key=key, Body=content)
    return f"s3://{server.bucket}/{key}"


def test_batch_files_are_read_from_s3(bucket, tmp_path, monkeypatch):
    put(bucket, "batch-files/b.csv.gz", gzip.compress(b"id,prompt\n3,z\n"))
    url = put(bucket, "batch-files/a.csv", b"id,prompt\n1,x\n2,\n")
    put(bucket, "batch-files/deeper/c.csv", b"id,prompt\n4,w\n")
    pl.DataFrame({"prompt": ["p"]}).write_parquet(tmp_path / "p.parquet")
    parquet = put(bucket, "batch-files/p.parquet", (tmp_path / "p.parquet").read_bytes())
    assert prompts(read_batch(settings(url))) == [(2, "x")]
    assert prompts(read_batch(settings(parquet))) == [(1, "p")]
    found = read_batch(settings(f"s3://{bucket.bucket}/batch-files/*.csv*"))
    assert found.rows["row_id"].to_list() == ["1", "3"]
    assert found.rejects["reason"].to_list() == [f"the prompt is empty (in {url})"]
    named = put(bucket, "batch-files/shots [1].csv", b"prompt\nin brackets\n")
    assert prompts(read_batch(settings(named))) == [(2, "in brackets")]
    monkeypatch.delenv("AWS_ENDPOINT_URL")  # then it comes from the config
    given = settings(url)
    storage = given.storage.model_copy(update={"endpoint_url": bucket.endpoint_url})
    assert prompts(read_batch(given.model_copy(update={"storage": storage}))) == [(2, "x")]


def test_an_object_that_cannot_be_read_is_named(bucket, monkeypatch):
    for url, expected in [
        (f"s3://{bucket.bucket}/none.csv", "there is no such object"),
        (f"s3://{bucket.bucket}/none-*.csv", "no file matches"),
        (f"s3://{bucket.bucket}/batch-files/", "is a folder"),
        ("s3://nobody/none.csv", "there is no such bucket (NoSuchBucket)"),
        ("s3://nobod?/none.csv", "S3 "),
        ("s3://nobody", "must look like s3://bucket/key"),
    ]:
        with pytest.raises(InputError) as caught:
            read_batch(settings(url))
        assert caught.value.message.startswith(url)
        assert expected in caught.value.message
        assert "Relative paths" not in caught.value.hint
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(InputError, match="S3 refused the request"):
        read_batch(settings(f"s3://{bucket.bucket}/none.csv"))


def test_reference_images_are_read_from_s3(bucket):
    content = picture()
    url = put(bucket, "look.png", content)
    assert isinstance(references.examine(url), references.RequestImage)
    assert formats.read_file(url, 200) == content
    assert "there is no such object" in str(references.examine(url + "x"))
    with pytest.raises(InputError, match="has 125 bytes; at most 100 are allowed"):
        formats.read_file(url, 100)


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a link to a device", "a folder"])
def test_an_image_or_a_batch_that_is_not_a_regular_file_is_an_error(tmp_path, kind):
    path = tmp_path / "x.csv"
    match kind:
        case "a pipe":
            os.mkfifo(path)
        case "a device":
            path = Path("/dev/zero")
        case "a link to a device":
            path.symlink_to("/dev/zero")
        case "a folder":
            path.mkdir()
    with pytest.raises(InputError, match="cannot be read: it is not a regular file"):
        formats.read_file(str(path), 100)
    with pytest.raises(InputError, match=rf"{path}: (is not a regular file|is a folder)"):
        read_batch(settings(path))


def test_a_file_is_read_to_its_limit_and_not_beyond(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(b"x" * 100)
    assert formats.read_file(str(path), 100) == b"x" * 100
    with pytest.raises(InputError, match="has 100 bytes; at most 99 are allowed"):
        formats.read_file(str(path), 99)
    with pytest.raises(InputError, match="has more than 10 bytes; at most 10 are allowed"):
        formats.read_file("/proc/self/maps", 10)  # a regular file whose declared size is 0


def test_an_object_of_unknown_length_is_read_to_its_limit_and_not_beyond(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    chunk = b"40\r\n" + b"x" * 64 + b"\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serve(raw(head + chunk + b"0\r\n\r\n")) as server:
        assert formats.read_file("s3://b/x.png", 64, server.url) == b"x" * 64
    too_large = pytest.raises(InputError, match="has more than 64 bytes; at most 64 are allowed")
    with serve(raw(head + 100_000 * chunk)) as server, too_large:
        formats.read_file("s3://b/x.png", 64, server.url)


def test_a_file_of_an_unknown_type_says_what_to_do(error_of):
    error = error_of("", "x.ods")
    assert "is not of a known type; expected .csv" in error.message
    assert "(.xls, .ods) as .xlsx" in error.hint
    assert "DATAFRAME" in error.hint


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
    assert rows_of(read, "prompt", "aspect_ratio") == [("a cat", "1:1")]
    with pytest.raises(InputError, match=r"the columns are id, body\.text, body\.more\.size") as caught:
        read_batch(settings(path, columns={"prompt": "caption"}))
    assert "for example {prompt: " in caught.value.hint


@pytest.fixture
def pictures(tmp_path):
    path = tmp_path / "x.parquet"
    image = [{"bytes": b"\x89PNG", "path": "a.png"}, {"bytes": b"\x89PNG", "path": None}, None]
    kind = pl.Struct({"bytes": pl.Binary, "path": pl.String})
    table = {"prompt": ["x", "y", "z"], "image": image, "several": [image[:1], image[:2], []]}
    pl.DataFrame(table, schema_overrides={"image": kind, "several": pl.List(kind)}).write_parquet(path)
    return path


def test_a_column_of_images_is_carried_as_its_paths_and_named(pictures):
    read = read_batch(settings(pictures))
    assert [row["image"] for row in read.rows["carried"]] == ["a.png", None, None]
    assert [row["several"] for row in read.rows["carried"]] == [["a.png"], ["a.png", None], []]
    assert read.columns.unused == {"image": "image", "several": "image"}
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


MOVES = {"model": "reel-1", "prompt": "A slow push in"}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for number, name in enumerate(("vase.png", "cup.jpg", "shoes/left.webp", ".hidden.png", "Lamp.JPEG")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    (folder / "cup.txt").write_bytes("Steam rises\r\nfrom the cup\n".encode("utf-8-sig"))
    for name in ("notes.md", "shoes/prices.pdf", "alone.txt"):
        (folder / name).write_text("x")
    return folder


def images(batch: Batch) -> list[dict[str, str]]:
    return [json.loads(cell)[0] for cell in batch.rows["images"]]


def read(path: Path | str, **given: Any) -> Batch:
    return read_batch(settings(path, **given))


def test_each_image_of_a_folder_is_a_row_by_its_name_with_the_prompt_beside_it(photos: Path) -> None:
    found = read(f"{photos}/", defaults=MOVES)
    assert rows_of(found, "row_id", "prompt") == [
        ("Lamp", "A slow push in"),
        ("cup", "Steam rises\nfrom the cup"),
        ("shoes/left", "A slow push in"),
        ("vase", "A slow push in"),
    ]
    assert images(found)[2] == {"role": "by_model", "url": f"{photos}/shoes/left.webp"}
    [note] = found.notes
    assert note.endswith(
        "3 files of " + f"{photos} are no images, and left out: alone.txt, notes.md, shoes/prices.pdf"
    )
    assert found.columns.used == {"id": "id", "prompt": "prompt", "images": "file"}
    assert rows_of(read(photos, defaults=MOVES), "row_id", "prompt") == rows_of(found, "row_id", "prompt"), (
        "with a slash or without"
    )


def test_an_image_without_a_prompt_is_rejected_by_its_name(photos: Path) -> None:
    found = read(photos)
    assert rows_of(found, "row_id", "prompt") == [("cup", "Steam rises\nfrom the cup")]
    assert (found.total, found.rejects.height) == (4, 3)
    reason = f"{photos}/Lamp.JPEG has no prompt: there is no text in Lamp.txt, and none in the config"
    assert places(found)[0] == (1, "", reason)
    (photos / "cup.txt").unlink()
    with pytest.raises(InputError, match="4 images, and no prompt") as caught:
        read(photos)
    assert "input.template" in caught.value.hint
    assert rows_of(read(photos, template="Around {id}"), "row_id", "prompt")[0] == ("Lamp", "Around Lamp")
    assert rows_of(read(photos, columns={"prompt": "id"}), "row_id", "prompt")[2] == (
        "shoes/left",
        "shoes/left",
    )


def test_a_glob_of_images_is_one_too_and_a_glob_of_batch_files_is_none(photos: Path) -> None:
    assert rows_of(read(photos / "*.jpg"), "row_id", "prompt") == [("cup", "Steam rises\nfrom the cup")]
    ids = [row for row, _ in rows_of(read(photos / "**/*.[jw]*", defaults=MOVES), "row_id", "prompt")]
    assert ids == ["cup", "shoes/left"]
    assert rows_of(read(photos / "vase.png", defaults=MOVES), "row_id", "prompt") == [
        ("vase", "A slow push in")
    ]
    (photos / "cup.csv").write_text("prompt\nx\n")
    with pytest.raises(InputError, match="is not of a known type"):
        read(photos / "*")
    with pytest.raises(InputError, match="no file matches"):
        read(photos / "*.gif")


def test_the_config_says_what_the_images_are_and_may_name_them_itself(photos: Path) -> None:
    as_role = read(photos, defaults=MOVES, role="reference_image")
    assert {each["role"] for each in images(as_role)} == {"reference_image"}
    named = read(photos, defaults=MOVES, columns={"last_frame": "file"})
    assert named.rows["images"].null_count() == 4
    assert named.rows["last_frame"][3] == f"{photos}/vase.png"
    both = read(photos, defaults=MOVES | {"first_frame": "open.png"}, role="last_frame")
    assert images(both)[3] == {"role": "last_frame", "url": f"{photos}/vase.png"}
    assert both.rows["first_frame"].unique().to_list() == ["open.png"]


def test_what_the_batch_has_stored_and_an_image_of_the_same_name_are_no_rows(
    photos: Path, monkeypatch
) -> None:
    monkeypatch.chdir(photos)
    for name in ("out/media/b/cup-1-0.png", "cup.png"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(picture(9))
    found = read(".", defaults=MOVES)
    assert [row for row, _ in rows_of(found, "row_id", "prompt")] == ["Lamp", "cup", "shoes/left", "vase"]
    assert places(found)[0][:2] == (3, "id")


def test_what_systems_keep_is_left_out_as_what_is_hidden_is_and_counted(photos: Path) -> None:
    folders = ("@eaDir/cup.jpg", "#recycle", "$RECYCLE.BIN/S-1-5", "__MACOSX/photos", "shoes/lost+found")
    for folder in (*folders, ".Trash-1000", "shoes/.thumbnails"):
        (photos / folder).mkdir(parents=True)
        (photos / folder / "old.jpg").write_bytes(picture(7))
    (photos / "@eaDir/cup.jpg/SYNO@.fileindexdb").write_bytes(b"x")
    expected = ["Lamp", "cup", "shoes/left", "vase"]
    for path in (photos, photos / "**/*.[jJwp]*"):
        found = read(path, defaults=MOVES)
        assert found.rows["row_id"].to_list() == expected
        note = f"5 files of {photos} are kept by a system, and left out: #recycle, $RECYCLE.BIN, @eaDir and"
        assert f"{note} 2 more" in found.notes[0]
    assert "SYNO" not in found.notes[0]
    assert rows_of(read(photos / "#recycle", defaults=MOVES), "row_id") == [("old",)], "it is named"
    for name in ("Lamp.JPEG", "cup.jpg", "shoes/left.webp", "vase.png"):
        (photos / name).unlink()
    with pytest.raises(InputError, match="there is no other"):
        read(photos, defaults=MOVES)


def test_a_report_and_an_export_among_batch_files_are_no_batch_files(tmp_path: Path) -> None:
    for name, mark in (("exported", "callsheet-export.json"), ("report", ".callsheet-ledger"), ("a", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / mark).write_text("{}")
        (tmp_path / name / "rows.csv").write_text(f"prompt\n{name}\n")
    found = read(tmp_path / "**/*.csv")
    assert prompts(found) == [(2, "a")]
    assert f"2 files of {tmp_path} are made by Callsheet, and left out: {tmp_path}/exported" in found.notes[0]
    assert prompts(read(tmp_path / "exported/rows.csv")) == [(2, "exported")], "it is named"
    assert prompts(read(tmp_path / "exported/*.csv")) == [(2, "exported")]
    with pytest.raises(InputError, match=r"1 file of .*/report is made by Callsheet"):
        read(tmp_path / "report/*.csv")


def test_rows_that_are_images_are_not_written_into_a_file(photos: Path) -> None:
    with pytest.raises(InputError, match="has files, and no rows"):
        original_rows(settings(photos, defaults=MOVES), ["cup"])


def test_a_folder_and_a_glob_on_s3_are_read(bucket: servers.Server) -> None:
    for key, content in (
        ("cup.jpg", picture(1)),
        ("cup.txt", b"Steam rises"),
        ("shoes/left.png", picture(2)),
    ):
        put(bucket, f"shoot/{key}", content)
    put(bucket, "shoot/notes.md", b"x")
    found = read(f"s3://{bucket.bucket}/shoot/", defaults=MOVES)
    assert rows_of(found, "row_id", "prompt") == [("cup", "Steam rises"), ("shoes/left", "A slow push in")]
    assert images(found)[1]["url"] == f"s3://{bucket.bucket}/shoot/shoes/left.png"
    assert "notes.md" in found.notes[0]
    assert rows_of(read(f"s3://{bucket.bucket}/shoot/*.jpg"), "row_id", "prompt") == [("cup", "Steam rises")]
    with pytest.raises(InputError, match="is a folder"):
        read(f"s3://{bucket.bucket}/nothing/")
