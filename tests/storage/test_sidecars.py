"""Sidecars: with `storage.sidecar`, a JSON file beside each stored file says what it is and what it cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from callsheet.cli.main import app
from tests.conftest import Make
from tests.servers.backlots import finish_videos

ROWS = [
    {"id": "apple", "prompt": "an apple, 苹果", "model": "sketch-1", "shelf": "7"},
    {"id": "waves", "prompt": "waves", "model": "dailies-1", "duration": 1},
]


def sidecars(folder: Path) -> dict[str, dict[str, Any]]:
    """The sidecars by row, each beside the file that it is about."""
    found = {}
    for path in folder.rglob("*.json"):
        assert path.with_suffix("").is_file()
        found[path.name.partition("-")[0]] = json.loads(path.read_text())
    return found


def test_a_sidecar_has_the_prompt_the_request_the_cost_and_the_hash(project: Make) -> None:
    made = project(ROWS)
    made.run("storage.sidecar=true")
    found = sidecars(made.folder / "out/media")
    assert found.keys() == {"apple", "waves"}
    for row in made.manifest().iter_rows(named=True):
        sidecar = found[row["row_id"]]
        for name in ("job_key", "prompt", "model", "generation_id", "url", "sha256", "bytes", "duration"):
            assert sidecar[name] == row[name], name
    apple = found["apple"]
    assert (apple["cost"], apple["quoted"], apple["carried"]) == ("0.0015", "0.0015", {"shelf": "7"})
    assert apple["request"] == {"model": "sketch-1", "prompt": "an apple, 苹果"} | apple["request"]
    assert "苹果" in next(made.folder.glob("out/media/test/apple*.json")).read_text()


def test_a_later_run_that_fetches_a_file_writes_its_sidecar(project: Make) -> None:
    """The video is not ready when the first run ends, which writes none; the second one buys nothing."""
    made = project(ROWS, video_seconds=3600)
    assert made.run("poll.timeout=0.1").pending == 1
    assert not sidecars(made.folder / "out/media")
    finish_videos(made.backlot.service)
    assert made.collect("storage.sidecar=true").stored == 2
    assert sidecars(made.folder / "out/media")["waves"]["request"]["duration"] == 1


def test_a_file_of_somebody_else_is_not_overwritten(project: Make) -> None:
    made = project(ROWS[:1])
    other = made.folder / "out/media/test/apple-1-0.jpeg.json"
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    assert made.run("storage.sidecar=true").stored == 1
    assert other.read_text() == "mine"


def test_what_is_decided_about_a_file_is_in_its_sidecar(project: Make) -> None:
    made = project(ROWS)
    made.set(storage={"sidecar": True})
    made.run()
    row = "apple"
    CliRunner().invoke(app, ["review", str(made.config), "--reject", row, "--note", "blurred"])
    said = sidecars(made.folder / "out/media")[row]
    assert (said["decision"], said["note"], said["flags"]) == ("rejected", "blurred", [])
    assert said["decided_by"] and said["decided_at"] and said["prompt"]
    CliRunner().invoke(app, ["review", str(made.config), "--clear", row])
    assert sidecars(made.folder / "out/media")[row]["decision"] is None
