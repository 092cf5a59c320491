"""Stopping politely, and pausing when the service fails for everyone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal

import pytest

from callsheet.pricing.quote import Quote
from callsheet.session import set_lanes_wait
from callsheet.watch import WATCHER, LogWatcher
from tests.cli.test_commands import CALLSHEET, callsheet
from tests.conftest import Project
from tests.servers.prefect import PrefectServer
from tests.servers.reverse_proxy import reverse_proxy
from tests.waiting import LONGEST

Make = Callable[..., Project]


@pytest.mark.parametrize("with_prefect", [False, True], ids=["alone", "with Prefect"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_buying_and_leaves_nothing_in_doubt(
    project: Make, prefect: PrefectServer, number: signal.Signals, with_prefect: bool
) -> None:
    """Images on the wire are answered and stored, videos stay pending, and the report says how it stands."""
    images = [{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(60)]
    made = project(
        [{"id": "video", "prompt": "a video", "model": "dailies-1", "duration": 1}, *images],
        image_seconds=0.5,
        video_seconds=60,
        concurrency=6,
    )
    with subprocess.Popen(
        [*CALLSHEET, "run", str(made.config), "--json"],
        env=os.environ | ({"PREFECT_API_URL": prefect.api} if with_prefect else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not list(made.folder.glob("out/media/**/*.jpeg")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=LONGEST)
    answer = json.loads(out)
    assert process.returncode == 4, err
    assert (answer["outcome"], answer["stop_reason"]) == ("stopped", "interrupted")
    assert (answer["in_doubt"], answer["pending"]) == (0, 1)
    assert 0 < answer["stored"] < 60
    assert Decimal(answer["spent"]) == answer["stored"] * Decimal("0.0015")
    assert "Traceback" not in err
    resumed = callsheet("run", str(made.config), "--json", "--set", "poll.timeout=1")
    assert json.loads(resumed.stdout)["stored"] == 60


def test_a_second_signal_stops_at_once_and_still_loses_nothing(project: Make) -> None:
    rows = [{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(12)]
    made = project(rows, image_seconds=3, concurrency=4)
    with subprocess.Popen(
        [*CALLSHEET, "run", str(made.config)],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while "submitting" not in callsheet("status", str(made.config)).stdout:
            assert process.poll() is None
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        _, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 130
    assert "Traceback" not in err
    done = callsheet("run", str(made.config), "--json")
    answer = json.loads(done.stdout)
    assert answer["stored"] + answer["in_doubt"] == 12
    assert answer["in_doubt"] <= 4


@pytest.fixture
def soon_tired() -> Iterator[None]:
    """A run waits no longer than `poll.timeout` for the lanes that others hold."""
    set_lanes_wait(0)
    yield
    set_lanes_wait()


@pytest.mark.parametrize("share", [2, None])
@pytest.mark.usefixtures("soon_tired")
def test_videos_that_are_never_done_do_not_hold_the_run_for_ever(project: Make, share: int | None) -> None:
    """They hold every lane that the account has (or that the config gives), and the next one waits for it."""
    faults = {"rules": [{"endpoint": "videos", "do": "never_finish"}]}
    rows = [{"id": f"v{n}", "prompt": f"{n}", "model": "dailies-1", "duration": 1} for n in range(4)]
    made = project(rows, faults=faults, concurrency=2)
    made.set(poll={"timeout": 1}, limits={"concurrency": share})
    summary = made.run()
    assert (summary.outcome, summary.pending, summary.exit_code) == ("stopped", 2, 4)
    assert summary.stop_reason == "lanes"
    assert "no lane comes free" in (summary.stop_message or "")
    assert summary.submissions < 12, "the service is asked now and then, and not hammered"


def test_a_service_that_fails_for_everyone_is_probed_and_not_hammered(project: Make) -> None:
    faults = {"rules": [{"endpoint": "images", "do": "error", "status": 500}]}
    rows = [{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(200)]
    made = project(rows, faults=faults)
    made.set(attempts=1)
    summary = made.run()
    assert (summary.stop_reason, summary.exit_code, summary.spent) == ("service", 4, 0)
    assert summary.submissions < 60, "the rest was never sent"


def test_doubts_one_after_another_stop_the_buying_before_they_cost_the_batch(project: Make) -> None:
    """Each request is carried out and charged, and its answer is lost."""
    faults = {"rules": [{"endpoint": "images", "do": "drop", "when": "after_charging"}]}
    rows = [{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(200)]
    made = project(rows, faults=faults, concurrency=100)
    made.set(stop_after=5)
    summary = made.run()
    assert (summary.stop_reason, summary.exit_code) == ("doubt", 4)
    assert summary.in_doubt == summary.submissions <= 8 + 2, "the first lanes, one alone meanwhile, one probe"


def test_what_is_bought_is_collected_when_doubts_stop_the_buying(project: Make) -> None:
    faults = {"rules": [{"endpoint": "images", "do": "drop", "when": "after_charging"}]}
    images = [{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(50)]
    videos = [{"id": f"v{n}", "prompt": "x", "model": "dailies-1", "duration": 1} for n in range(2)]
    made = project(videos, faults=faults, video_seconds=2)
    assert made.run("poll.timeout=0.5").pending == 2
    made.rows(*videos, *images)
    summary = made.run()
    assert (summary.stop_reason, summary.stored) == ("doubt", 2)


def test_a_service_that_goes_down_is_reported_once_and_ends_the_run_with_4(project: Make) -> None:
    """It answers the catalogue and the balance, and then its port is closed."""
    made = project([{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(20)])
    notes: list[str] = []
    with ExitStack() as gateway:
        proxy = gateway.enter_context(reverse_proxy(made.backlot.base_url))

        class Closing(LogWatcher):
            def quoted(self, quote: Quote) -> None:
                gateway.close()

            def note(self, text: str) -> None:
                notes.append(text)

        token = WATCHER.set(Closing())
        made.set(service={"base_url": proxy.base_url})
        summary = made.run()
        WATCHER.reset(token)
    assert (summary.stop_reason, summary.exit_code, summary.stored) == ("service", 4, 0)
    assert summary.submissions <= 1, "on the connection that the catalogue came by"
    assert len(notes) == 1
    assert "waits until the service answers again" in notes[0]
