"""`tidy`: what nobody wants any more is removed from storage, and nothing else forgets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from callsheet import failpoints
from tests.cli.test_rows import printed, refusal
from tests.conftest import Project
from tests.servers import s3 as servers

Make = Callable[..., Project]
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
NOW = ("--older-than", "0")


@pytest.fixture
def made(project: Make) -> Project:
    """Of a mug one file is kept and one rejected; a lamp has another prompt now; a chair is gone."""
    rows = [{"id": name, "prompt": f"a {name}", "samples": 1, **IMAGE} for name in ("lamp", "chair", "vase")]
    mug = {"id": "mug", "prompt": "a mug", "samples": 2, **IMAGE}
    batch = project([mug, *rows])
    batch.set(report={"contact_sheet": 10}, storage={"sidecar": True})
    batch.run()
    batch.rows(mug, rows[0] | {"prompt": "a lamp at night"}, rows[2])
    batch.run()
    printed("review", "batch.yaml", "--keep", "mug/2", "--reject", "mug/1")
    return batch


def stored(made: Project) -> list[str]:
    return sorted(path.name for path in (made.folder / "out/media").rglob("*.jpeg"))


def thumbnails(made: Project) -> int:
    return len([*(made.folder / "out/report/contact-sheet/thumbs").iterdir()])


def listed(*options: str) -> list[tuple[str, int, str]]:
    told = json.loads(printed("tidy", "batch.yaml", "--json", *options))
    return [(file["row_id"], file["file_number"], file["why"]) for file in told["files"]]


UNWANTED = [("chair", 1, "not current"), ("lamp", 1, "replaced"), ("mug", 1, "rejected")]


def test_what_nobody_wants_is_listed_and_removed_on_a_yes_and_everything_else_goes_on(made: Project) -> None:
    assert listed() == [], "nothing is old enough"
    assert sorted(listed(*NOW)) == UNWANTED
    shown = printed("tidy", "batch.yaml", *NOW)
    assert "3 files that nobody wants any more" in shown
    assert "0.0045 USD" in shown
    assert (len(stored(made)), thumbnails(made)) == (6, 6), "without a yes nothing is removed"

    assert "3 files removed" in printed("tidy", "batch.yaml", *NOW, "--yes")
    assert stored(made) == ["lamp-1-0-" + stored(made)[0][9:], "mug-2-0.jpeg", "vase-1-0.jpeg"]
    assert len([*(made.folder / "out/media").rglob("*.json")]) == 3, "a sidecar goes with its file"
    assert thumbnails(made) == 3
    assert listed(*NOW) == []

    files = made.manifest()
    assert files.height == 6
    removed = files.filter(pl.col("removed_at").is_not_null())
    assert sorted(removed.select("row_id", "file_number").rows()) == [unwanted[:2] for unwanted in UNWANTED]
    assert made.quote().to_buy == 0, "what is removed is not bought again"
    assert "removed 2" in " ".join(printed("show", "batch.yaml", "mug").split())
    for command in ("report", "status"):
        printed(command, "batch.yaml")
    assert made.run().stored == 6
    told = json.loads(printed("export", "batch.yaml", "--to", "handed-on", "--json"))
    assert (told["files"], [Path(url).name for url in told["not_there"]]) == (4, ["mug-1-0.jpeg"])


def test_an_interrupted_tidying_is_ended_by_the_same_command(
    made: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(point: str) -> None:
        if point == "after tidy.remove":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "observer", kill)
        with pytest.raises(Killed):
            printed("tidy", "batch.yaml", *NOW, "--yes")
    assert len(stored(made)) == 3
    printed("export", "batch.yaml", "--to", "handed-on")
    assert sorted(listed(*NOW)) == UNWANTED
    printed("tidy", "batch.yaml", *NOW, "--yes")
    assert (listed(*NOW), thumbnails(made)) == ([], 3)


def test_where_the_disk_is_not_there_nothing_is_entered_as_removed(made: Project) -> None:
    media = made.folder / "out/media"
    media.rename(made.folder / "elsewhere")
    down = refusal("tidy", "batch.yaml", *NOW, code=4)
    assert "is not the place in which the ledger has stored" in down.message
    (made.folder / "elsewhere").rename(media)
    assert sorted(listed(*NOW)) == UNWANTED


def test_a_rejected_file_that_was_deleted_by_hand_is_left_out_of_an_export_and_one_that_is_wanted_is_missed(
    made: Project,
) -> None:
    rejected, kept = sorted((made.folder / "out/media").rglob("mug-*.jpeg"))
    rejected.unlink()
    said = printed("export", "batch.yaml", "--to", "handed-on")
    assert "1 file that nobody wants" in said
    assert rejected.name in said
    kept.unlink()
    for options in ((), ("--kept",)):
        wrong = refusal("export", "batch.yaml", "--to", "kept", *options)
        assert f"{kept.name}: the file of row mug cannot be read" in wrong.message


def test_files_in_a_bucket_are_removed_too(
    project: Make, s3: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.sign_in(monkeypatch)
    made = project([{"id": "mug", "prompt": "a mug", "samples": 2, **IMAGE}])
    made.set(storage={"url": f"s3://{s3.bucket}/tidied", "sidecar": True})
    made.run()
    printed("review", "batch.yaml", "--reject", "mug/1")
    printed("tidy", "batch.yaml", *NOW, "--yes")
    there = s3.client().list_objects_v2(Bucket=s3.bucket, Prefix="tidied/test/")["Contents"]
    assert [Path(entry["Key"]).name for entry in there] == ["mug-2-0.jpeg", "mug-2-0.jpeg.json"]
    told = json.loads(printed("export", "batch.yaml", "--to", "handed-on", "--json"))
    assert (told["files"], len(told["not_there"])) == (2, 1)
