"""Stopping politely, pausing when the service fails for everyone, and files that are deleted soon."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from backlot.faults import RULE, Faults
from callsheet import channels
from callsheet.channels import Downloads
from callsheet.cli.main import app
from callsheet.limits.limits import AccountLimits
from callsheet.present.under_way import line
from callsheet.pricing.quote import Quote
from callsheet.records import Attempt, File, ModelType, Progress
from callsheet.report.contact_sheet.sheet import SUMMARY
from callsheet.session import Bounds
from callsheet.watch import LogWatcher
from tests.cli.test_commands import CALLSHEET, callsheet
from tests.conftest import Make, Project
from tests.ledger.buying import generation
from tests.long_form import mostly_soak
from tests.report.contact_sheets import with_sheet
from tests.servers.backlots import Observed
from tests.servers.forks import ROOT, Process, forks
from tests.servers.proxies import ReverseProxy
from tests.waiting import wait_until


@pytest.mark.parametrize("number", mostly_soak((signal.SIGINT, signal.SIGHUP), signal.SIGINT))
def test_a_signal_stops_buying_and_leaves_nothing_in_doubt(project: Make, number: signal.Signals) -> None:
    """Images on the wire are answered and stored, videos stay pending, and the report says how it stands."""
    images = [{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(60)]
    made = project(
        [{"id": "video", "prompt": "a video", "model": "dailies-1", "duration": 1}, *images],
        image_seconds=1,  # twenty seconds for all
        video_seconds=600,
        concurrency=4,
    )
    answer, log = made.folder / "answer.json", made.folder / "run.log"
    words = ("-m", "callsheet", "run", str(made.config), "--json")
    with (
        answer.open("w") as out,
        log.open("w") as err,
        forks().start(*words, env=dict(os.environ), stdout=out, stderr=err) as process,
    ):
        while not (
            list(made.folder.glob("out/media/**/*.jpeg"))
            and any(one.model == "dailies-1" for one in made.sold)
        ):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
    stopped = json.loads(answer.read_text())
    assert process.returncode == 4, log.read_text()
    assert (stopped["outcome"], stopped["stop_reason"]) == ("stopped", "interrupted")
    assert (stopped["in_doubt"], stopped["pending"]) == (0, 1)
    assert 0 < stopped["stored"] < 60
    assert Decimal(stopped["spent"]) == stopped["stored"] * Decimal("0.0015")
    assert "Traceback" not in log.read_text()
    make_quick(made)
    assert made.run("poll.timeout=1").stored == 60


def make_quick(made: Project) -> None:
    """From now on the service makes an image at once."""
    service = made.backlot.service
    service.settings = service.settings.model_copy(update={"image_seconds": 0})


@contextmanager
def running(made: Project, *, grace: float = 3000, busy: float = 30) -> Iterator[Process]:
    """A run whose lease does not expire, with so many seconds to end politely; it writes `run.log`."""
    request = {"grace": grace, "waits": {"lease": 3000, "busy": busy}, "record": "points.log"}
    words = ("-m", "tests.crash.forked_run", json.dumps({"folder": str(made.folder)} | request))
    with (made.folder / "run.log").open("w") as log, forks().start(*words, cwd=ROOT, stderr=log) as process:
        try:
            yield process
        finally:
            process.kill()


def passed(made: Project, point: str) -> int:
    """How often the run of `running` has passed a point."""
    points = made.folder / "points.log"
    return points.read_text().count(point) if points.exists() else 0


def attempts(made: Project, *states: str) -> int:
    """How many attempts are in one of these states."""
    with (
        suppress(sqlite3.OperationalError),  # the ledger is not there yet
        closing(sqlite3.connect(f"file:{made.folder}/out/ledger.db?mode=ro", uri=True)) as database,
    ):
        [[count]] = database.execute(
            "SELECT COUNT(*) FROM attempts WHERE state IN (SELECT value FROM json_each(?))",
            [json.dumps(states)],
        )
        return int(count)
    return 0


def assert_ends(process: Process, made: Project, code: int = 130) -> None:
    """Waits for a run that is ended."""
    wait_until(lambda: process.poll() is not None, "the run goes on")
    said = (made.folder / "run.log").read_text()
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert "stopped by SIG" in said


@pytest.mark.parametrize(
    ("by", "kind"), [("a second signal", "image"), ("the end of the grace", "video")], ids=["twice", "grace"]
)
def test_a_run_that_is_ended_waits_for_no_answer_and_loses_nothing(project: Make, by: str, kind: str) -> None:
    """The service takes hours over each image, or over the answer that a video is accepted."""
    of_kind = {
        "image": {"prompt": "x", "model": "sketch-1"},
        "video": {"prompt": "x", "model": "dailies-1", "duration": 1},
    }[kind]
    slow = {"rules": [{"endpoint": f"{kind}s", "do": "delay", "seconds": 10_000}]}
    made = project([{"id": f"s{n}", **of_kind} for n in range(12)], faults=slow)
    made.set(limits={"concurrency": 4})
    with running(made, grace=0.1 if by == "the end of the grace" else 3000) as process:
        wait_until(lambda: passed(made, "before submit") == 4, "nothing is sent")
        process.send_signal(signal.SIGINT)
        if by == "a second signal":  # of another type, because the system counts equal ones as one
            process.send_signal(signal.SIGTERM)
        assert_ends(process, made, 130 if by == "a second signal" else 4)
    assert (attempts(made, "in_doubt"), attempts(made, "planned")) == (4, 8), "not answered, so not decided"
    if by == "the end of the grace":
        report = made.report()
        assert (report["stop_reason"], report["in_doubt"]) == ("interrupted", 4), "the report says it"
    made.backlot.service.faults = Faults([])
    summary = made.run()
    assert (summary.stored, summary.in_doubt) == (8, 4)


def test_a_run_whose_grace_ends_leaves_what_is_not_downloaded_and_reports(project: Make) -> None:
    slow = {"rules": [{"endpoint": "downloads", "do": "delay", "seconds": 10_000}]}
    made = project([{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(3)], faults=slow)
    with running(made, grace=0.1) as process:
        wait_until(lambda: attempts(made, "generated") == 3, "nothing is bought")
        process.send_signal(signal.SIGINT)
        assert_ends(process, made, 4)
    assert made.report()["stop_reason"] == "interrupted"
    made.backlot.service.faults = Faults([])
    assert (made.run().stored, len(made.sold)) == (3, 3)


@pytest.mark.parametrize("busy", [30, 0.2])
def test_a_second_signal_ends_a_run_that_waits_for_its_ledger_and_every_answer_is_kept(
    project: Make, busy: float
) -> None:
    """However long the lease still lives, and however long a write waits for another process's write."""
    rows = [{"id": f"s{n}", "prompt": f"{n}", "model": "sketch-1"} for n in range(60)]
    made = project(rows, image_seconds=1)
    made.set(limits={"concurrency": 4})
    with running(made, busy=busy) as process:
        wait_until(lambda: attempts(made, "stored") >= 4, "nothing is stored")
        with closing(sqlite3.connect(made.folder / "out/ledger.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            sent = attempts(made, "submitting", "generated", "stored")
            wait_until(lambda: passed(made, "after submit") == sent, "no answer comes")
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            assert_ends(process, made)
    make_quick(made)
    summary = made.run()
    assert (summary.stored, summary.in_doubt) == (60, 0)


@pytest.mark.parametrize("share", [2, None])
def test_videos_that_are_never_done_do_not_hold_the_run_for_ever(project: Make, share: int | None) -> None:
    """They hold every lane that the account has (or that the config gives), and the next one waits for it."""
    faults = {"rules": [{"endpoint": "videos", "do": "never_finish"}]}
    rows = [{"id": f"v{n}", "prompt": f"{n}", "model": "dailies-1", "duration": 1} for n in range(4)]
    made = project(rows, faults=faults, concurrency=2)
    made.bounds = Bounds(lanes=0)  # it waits no longer than `poll.timeout` for lanes
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


def test_a_model_that_is_broken_is_stopped_and_the_others_are_bought(project: Make) -> None:
    """Its rows come first, and between those of the other model."""
    models = ["poster-1"] * 8 + ["sketch-1", "poster-1"] * 6 + ["sketch-1"] * 4
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": model} for n, model in enumerate(models)]
    broken = {"endpoint": "images", "model": "poster-1", "do": "error", "status": 502}
    made = project(rows, faults={"rules": [broken]})
    made.set(stop_after=3, limits={"concurrency": 2})
    summary = made.run()
    assert (summary.outcome, summary.stop_reason, summary.stored) == ("stopped", "doubt", 10)
    assert summary.in_doubt <= 5
    assert "of poster-1 ended in doubt" in (summary.stop_message or "")
    made.backlot.service.faults = Faults([])
    assert made.run().stored == 24 - summary.in_doubt


class Following(LogWatcher):
    """Keeps what the progress says is left to wait for, and looks whether the sheet's page says it."""

    def __init__(self, report: Path) -> None:
        self.page = report / SUMMARY
        self.page_says_it = False
        self.notes: list[str] = []
        self.waits: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, progress: Progress) -> None:
        self.waits.append(line(progress))
        said = self.page.read_text() if self.page.exists() else ""
        self.page_says_it |= "refuses every submission" in said and "429 rate_limit" in said


def test_refusals_without_end_are_said_and_end_the_run_after_its_patience(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callsheet.report.contact_sheet.sheet._IN_A_FOLDER", 0.2)
    made = project([{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(6)])
    made.backlot.service.faults = Faults(
        [RULE.validate_python({"endpoint": "images", "do": "rate_limit", "kind": "concurrency"})]
    )
    made.set(limits={"patience": 10_000, "concurrency": 4})
    with_sheet(made)
    made.bounds = replace(made.bounds, refusals=0.1)
    watcher, refused_for = Following(made.folder / "out/report"), AccountLimits.refused_for

    def until_the_page_says_it(limits: AccountLimits) -> float:
        return 10_000 if watcher.page_says_it else refused_for(limits)

    monkeypatch.setattr(AccountLimits, "refused_for", until_the_page_says_it)
    stopped = made.run(watcher=watcher)
    assert (stopped.stop_reason, stopped.exit_code, stopped.stored) == ("service", 4, 0)
    assert "the service has refused every submission: POST /v2/images" in str(stopped.stop_message)
    words = "the service refuses every submission"
    assert [words in note for note in watcher.notes].count(True) == 1
    assert any(words in wait and "429 rate_limit" in wait for wait in watcher.waits)
    shown = CliRunner().invoke(app, ["show", str(made.config), "s0"]).stdout
    assert "The service refuses every submission: POST /v2/images" in " ".join(shown.split())
    assert watcher.page_says_it
    made.backlot.service.faults = Faults()
    assert made.run().stored == 6
    shown = CliRunner().invoke(app, ["show", str(made.config), "s0", "--json"]).stdout
    assert json.loads(shown)["refused"] == ""


def test_a_service_that_goes_down_is_reported_once_and_ends_the_run_with_4(project: Make) -> None:
    """It answers the catalogue and the balance, and then its port is closed."""
    made = project([{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(20)])
    notes: list[str] = []
    with ExitStack() as gateway:
        proxy = gateway.enter_context(ReverseProxy(made.backlot.base_url))

        class Closing(LogWatcher):
            def quoted(self, quote: Quote) -> None:
                gateway.close()

            def note(self, text: str) -> None:
                notes.append(text)

        made.set(service={"base_url": proxy.url})
        summary = made.run(watcher=Closing())
    assert (summary.stop_reason, summary.exit_code, summary.stored) == ("service", 4, 0)
    assert summary.submissions <= 1, "on the connection that the catalogue came by"
    assert len(notes) == 1
    assert "waits until the service answers again" in notes[0]


# ---- files that are deleted soon: no more is bought than can be had in time, and the most urgent go first


def images(name: str, count: int) -> list[dict[str, Any]]:
    return [{"id": f"{name}{n}", "prompt": f"{name} {n}", "model": "sketch-1"} for n in range(count)]


def test_buying_waits_when_the_files_would_hardly_be_had_in_time() -> None:
    until = datetime.now(UTC) + timedelta(seconds=100)
    media = generation("g").media[0].model_copy(update={"deletes_at": until})
    file = File(Attempt("k", 1, ModelType.IMAGE, "r", 1, "m"), 0, "f", media)

    async def late() -> list[bool]:
        downloads = Downloads()
        downloads.add(file)
        answers = [downloads.late()]  # nobody has had the time to take it
        for more in (39, 20):
            for _ in range(more):
                downloads.add(file)
            await downloads.next()
            downloads.done(downloads.side_by_side)  # a second for each file, as so many are fetched at once
            answers.append(downloads.late())
        return answers

    assert asyncio.run(late()) == [False, False, True], "39 and 58 s of work; half of what is left is 50 s"


def test_the_patience_for_a_file_begins_when_it_is_first_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when it was queued, which may be long before; and a second try does not begin it anew."""
    media = generation("g").media[0]
    file = File(Attempt("k", 1, ModelType.IMAGE, "r", 1, "m"), 0, "f", media)
    clock = iter([10.0, 500.0, 600.0, 700.0])
    monkeypatch.setattr(channels, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    async def began() -> list[float]:
        downloads = Downloads()
        downloads.add(file)  # at 10
        first = await downloads.next()  # at 500
        times = [first.began]
        downloads.again(first, 0)  # at 600
        times.append((await downloads.next()).began)
        return times

    assert asyncio.run(began()) == [500.0, 500.0]


@pytest.mark.soak  # it rests on a machine that does not become much slower in the middle
def test_no_more_is_bought_than_can_be_downloaded_in_time(project: Callable[..., Project]) -> None:
    """The files live for less time than it takes to download them all, so about 30 would be lost.

    How long this machine takes for the same batch when nothing is slow is the measure of all times.
    """
    made = project(images("s", 120), image_rpm=10**6, concurrency=1000)
    service = made.backlot.service
    unit = max(1.0, made.run("batch=measure", "report.url=out/measure").seconds)
    service.settings = service.settings.model_copy(update={"media_ttl": math.ceil(3 * unit)})
    service.faults = slow = Observed({"endpoint": "downloads", "do": "delay", "seconds": 0.7 * unit})
    summary = made.run()
    assert (summary.stored, summary.lost, summary.exit_code) == (120, 0, 0)
    assert len(slow.prompts["downloads"]) == 120
    assert summary.seconds > service.settings.media_ttl, "the first files could not wait for the last"


@pytest.mark.soak
def test_nothing_is_bought_on_and_on_that_cannot_be_downloaded(project: Callable[..., Project]) -> None:
    """The service takes half a minute to make them all, and the run's patience is a second."""
    made = project(images("s", 60), concurrency=2, image_seconds=1)
    made.set(poll={"timeout": 1})
    service = made.backlot.service
    service.faults = Observed({"endpoint": "downloads", "do": "error", "status": 503})
    summary = made.run()
    assert (summary.outcome, summary.stored, summary.exit_code) == ("stopped", 0, 4)
    assert 0 < summary.submissions < 60
    assert "503" in (summary.stop_message or "")
    service.faults, service.settings = Observed(), service.settings.model_copy(update={"image_seconds": 0})
    assert (made.run().stored, made.run().submissions) == (60, 0)


@pytest.mark.soak
def test_the_files_that_are_deleted_first_are_downloaded_first(project: Callable[..., Project]) -> None:
    """An earlier run has left files, and those bought last are deleted first."""
    made = project()
    service = made.backlot.service
    made.set(poll={"timeout": 1})
    rows = []
    for name, seconds in ("late", 3600), ("early", 600), ("middle", 1800):
        service.faults = Observed({"endpoint": "downloads", "do": "error", "status": 503})
        service.settings = service.settings.model_copy(update={"media_ttl": seconds})
        rows += images(name, 3)
        made.rows(*rows)
        assert made.run().pending == len(rows)
    made.bounds = Bounds(downloads=1)
    service.faults = well = Observed()
    assert made.collect().stored == 9
    names = [prompt.split()[0] for prompt in well.prompts["downloads"]]
    assert names == ["early"] * 3 + ["middle"] * 3 + ["late"] * 3


# ---- a signal at any moment of a run, before, while and after it buys, is never lost and costs no money


LANES = 4
ROWS = 30


@pytest.mark.parametrize("seed", mostly_soak(range(205), 1))
def test_after_a_signal_at_any_moment_nothing_more_is_bought_and_the_next_run_finishes(
    project: Callable[..., Project], seed: int
) -> None:
    chance = random.Random(seed)
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(ROWS)]
    made = project(rows, image_seconds=0.1, concurrency=LANES)
    made.set(limits={"concurrency": LANES})
    number = chance.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    with subprocess.Popen(
        [*CALLSHEET, "run", str(made.config)],
        env=dict(os.environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until_it_hears(process, number)
        time.sleep(chance.uniform(0, 3))  # the moment is what is tried, whatever it meets
        before = len(made.sold)
        process.send_signal(number)
        _, err = process.communicate()
    after = len(made.sold)
    assert process.returncode in (0, 4, 130), err
    assert "Traceback" not in err
    assert after - before <= 2 * LANES, "what was on the wire, and what had its turn at that moment"
    assert after == ROWS if process.returncode == 0 else after < ROWS or process.returncode == 4
    assert after == 0 or process.returncode != 130
    assert made.charged == 0 or process.returncode != 130
    resumed = callsheet("run", str(made.config))
    assert resumed.returncode == 0, resumed.stderr
    assert len(made.sold) == ROWS, "nothing in doubt, nothing twice"


def wait_until_it_hears(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Python itself takes a moment to start; from its first line on the command handles the signal."""
    while process.poll() is None:
        with open(f"/proc/{process.pid}/status") as status:  # noqa: PTH123 - not a file on a disk
            caught = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
        if caught >> (number - 1) & 1 and number is not signal.SIGINT:
            return
        if number is signal.SIGINT and caught >> (signal.SIGTERM - 1) & 1:  # Python catches SIGINT before
            return
        time.sleep(0.002)


AT_THE_END = """
import os, signal
from callsheet import signals
class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), write=os.write):  # while Python takes itself apart
        kill(pid, 15)
        write(1, b"done")
signals.keep_until_heard()
signal.last = Last()
"""


def test_a_signal_at_the_very_end_of_the_program_does_not_undo_its_exit_code() -> None:
    done = subprocess.run([CALLSHEET[0], "-c", AT_THE_END], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"done")


AFTER_ALL = """
import asyncio, os, signal
from callsheet import signals

async def main():
    with signals.cancelled_by_signals():
        signals.done()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)
        return "the summary"

print(asyncio.run(main()))
"""


def test_a_signal_after_everything_is_done_does_not_lose_the_result() -> None:
    done = subprocess.run([CALLSHEET[0], "-c", AFTER_ALL], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"the summary\n"), done.stderr
