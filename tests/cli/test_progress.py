"""What a run shows while it is under way: to people, to programs, and where nobody looks."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from callsheet.cli.terminal import Terminal
from callsheet.present.under_way import line
from callsheet.records import ModelType, Pacing, Progress, State
from tests.cli.test_commands import callsheet, refused
from tests.conftest import Project
from tests.report.test_report import watched

Make = Callable[..., Project]
ROWS = [
    *({"id": f"image{number}", "prompt": "a lamp", "model": "sketch-1"} for number in range(3)),
    {"id": "refused", "prompt": "forbidden-test-word", "model": "sketch-1"},
    {"id": "film", "prompt": "a lamp is switched on", "model": "reel-1"},
]


def events(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_program_gets_every_event_as_a_line_of_json(project: Make) -> None:
    made = project(ROWS)
    # Counted over a minute; the service's own window may end at any moment.
    made.set(limits={"image_rpm": 100})
    done = callsheet("run", str(made.config), "--progress", "jsonl", "--verbose", "--json")
    found = events(done)
    assert done.returncode == 3
    assert found[0]["event"] == "quoted"
    assert (found[0]["to_buy"], found[0]["quoted"]) == (5, "0.2560")
    states = Counter((event["row_id"], event["state"]) for event in found if event["event"] == "job")
    assert states == {
        **{(f"image{number}", state): 1 for number in range(3) for state in ("generated", "stored")},
        ("refused", "failed"): 1,
        **{("film", state): 1 for state in ("pending", "generated", "stored")},
    }
    assert {event["cost"] for event in found if event.get("state") == "generated"} == {"0.0015", "0.2500"}
    progress = [event for event in found if event["event"] == "progress"]
    last = progress[-1]
    assert (last["done"], last["jobs"], last["spent"]) == (5, 5, "0.2545")
    assert last["steps"] == {
        "submit": {"done": 5, "total": 5},
        "poll": {"done": 1, "total": 1},
        "download": {"done": 4, "total": 4},
    }
    submissions = [event["submissions"]["image"] for event in progress if "image" in event["submissions"]]
    assert max(each["in_window"] for each in submissions) == 4
    assert {each["limit"] for each in submissions} == {100}
    assert found[-1]["event"] == "finished"
    assert found[-1] == {"event": "finished"} | json.loads(done.stdout)


def test_an_error_is_a_line_of_json_too_before_and_after_the_quote(project: Make) -> None:
    made = project(ROWS)
    wrong = callsheet("run", "nothing.yaml", "--progress=jsonl")
    assert [event["event"] for event in events(wrong)] == ["error"]
    assert "nothing.yaml" in events(wrong)[0]["error"]
    assert (wrong.returncode, events(wrong)[0]["exit_code"]) == (2, 2)
    made.set(storage={"url": "/dev/null/media"})
    broken = callsheet("run", str(made.config), "--progress", "jsonl")
    assert [event["event"] for event in events(broken)] == ["note", "quoted", "error"]
    assert broken.returncode == events(broken)[-1]["exit_code"] == 2


def test_verbose_prints_a_line_for_each_job_and_names_rows_without_an_id_by_their_line(project: Make) -> None:
    made = project([{"prompt": "a lamp", "model": "sketch-1"}, {"prompt": "a clock", "model": "sketch-1"}])
    lines = callsheet("run", str(made.config), "-v").stderr.splitlines()
    for number in (2, 3):
        assert sum(text.startswith(f"generated line {number}  0.0015 USD  req-") for text in lines) == 1
        assert sum(text.startswith(f"stored    line {number}  out/media/test/") for text in lines) == 1


def test_options_that_contradict_each_other_are_refused_before_anything_is_bought(project: Make) -> None:
    made = project(ROWS)
    for options in (("--quiet", "-v"), ("-q", "--progress", "jsonl")):
        refused(callsheet("run", str(made.config), *options), "cannot be combined")
    assert not (made.folder / "out").exists()


def test_what_fits_into_this_minute_leaves_no_time(project: Make) -> None:
    rows = [{"id": f"i{number}", "prompt": "a lamp", "model": "sketch-1"} for number in range(10)]
    made = project(rows, image_seconds=0.2, concurrency=4, image_rpm=600)
    made.set(budget={"limit": "1.00"})
    _, recorder = watched(made)
    known = [progress for progress in recorder.progresses if progress.seconds_left is not None]
    assert {progress.seconds_left for progress in known} == {0.0}, "10 jobs at 600 a minute"
    assert recorder.progresses[-1].limit == Decimal("1.00")


def test_a_line_is_printed_less_often_while_no_job_changes(capsys: pytest.CaptureFixture[str]) -> None:
    """As while a run waits for a service that is down."""
    now = 0.0
    shown = Terminal(clock=lambda: now)
    for second in range(130):
        now = float(second)
        stored = 1 if second < 12 else 2
        shown.progress(Progress(3, {State.STORED: stored}, Decimal(0), seconds_left=1000.0 + second))
    printed = capsys.readouterr().err.splitlines()
    assert [line.split(" of ")[0] for line in printed] == ["1", "2", "2"], printed


def test_a_limit_is_shown_once_it_is_known_and_the_wait_for_the_next_window() -> None:
    progress = Progress(
        2,
        {State.STORED: 1},
        Decimal("0.5"),
        pacing={ModelType.IMAGE: Pacing(1, None), ModelType.VIDEO: Pacing(10, 10, 34.2)},
    )
    assert line(progress) == (
        "1 of 2 done: 1 stored; 0.5000 USD spent; 1 image this minute; "
        "10 of 10 videos this minute, the next in 34 s"
    )
