"""`callsheet demo`: what it leaves, a second one, and one that is interrupted, killed or cannot start."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import polars as pl
import psutil
import pytest

from tests.cli.test_commands import CALLSHEET, callsheet, refused
from tests.servers.prefect import BEHIND_A_PROXY
from tests.waiting import wait_until


def test_the_demo_runs_clean_and_a_second_one_buys_nothing(tmp_path: Path) -> None:
    """Also for a newcomer who sits behind a proxy."""
    first = callsheet("demo", cwd=tmp_path, **BEHIND_A_PROXY)
    assert first.returncode == 0, first.stderr
    noise = [line for line in first.stderr.splitlines() if "Warning" in line or "Traceback" in line]
    assert noise == []
    manifest = pl.read_parquet(tmp_path / "out/demo/report/manifest.parquet")
    kinds = dict(manifest.group_by("mime_type").len().iter_rows())
    assert kinds["image/jpeg"] >= 15
    assert kinds["image/png"] >= 2
    assert kinds["video/mp4"] >= 6
    assert manifest["has_sound"].sum() == 1
    second = callsheet("demo", cwd=tmp_path, **BEHIND_A_PROXY)
    assert second.returncode == 0
    assert "Nothing was bought" in second.stdout
    assert pl.read_parquet(tmp_path / "out/demo/report/manifest.parquet").equals(manifest)


@pytest.mark.soak
def test_an_interrupted_demo_and_a_killed_one_are_finished_by_the_next(tmp_path: Path) -> None:
    """Files that are paid for wait at the first demo's address, so its port is kept until they are stored."""
    ledger, port = tmp_path / "out/demo/ledger.db", tmp_path / "out/demo/port"

    def stopped(how: signal.Signals) -> str:
        """A demo that gets a signal, as everything on its terminal does, when it has paid for a file."""
        with subprocess.Popen(
            [*CALLSHEET, "demo"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as demo:
            while not waiting():
                assert demo.poll() is None
                time.sleep(0.02)
            os.killpg(demo.pid, how)
            return demo.communicate()[0]

    def waiting() -> int:
        """How many pictures are paid for and not stored yet."""
        query = "SELECT COUNT(*) FROM media WHERE stored_at IS NULL AND mime_type LIKE 'image/%'"
        with (
            suppress(sqlite3.OperationalError),  # the ledger is not there yet
            closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as database,
        ):
            return int(database.execute(query).fetchone()[0])
        return 0

    said = stopped(signal.SIGINT)
    assert "goes on from here" in said
    assert "buys nothing" not in said
    assert waiting() == 0, "what was answered is stored, for the backlot is still there"
    stopped(signal.SIGKILL)
    assert waiting() > 0
    assert port.exists()
    last = callsheet("demo", cwd=tmp_path)
    assert last.returncode == 0, last.stderr
    assert "not downloaded yet" not in last.stderr
    assert waiting() == 0
    assert not port.exists()


def test_a_demo_whose_backlot_cannot_start_says_what_to_do(tmp_path: Path) -> None:
    """Here another program has the port at which files of an unfinished demo wait."""
    (tmp_path / "out/demo").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "out/demo/port").write_text(str(port))
        refused(callsheet("demo", cwd=tmp_path), f"port {port}", "did not start", "rm -r out/demo")


@pytest.mark.soak
def test_nothing_is_left_of_a_demo_that_is_killed(tmp_path: Path) -> None:
    """Of what it has started beside itself."""
    log = tmp_path / "demo.log"
    command = [*CALLSHEET, "demo"]
    with (
        log.open("w") as written,
        subprocess.Popen(command, cwd=tmp_path, env=dict(os.environ), stdout=written, stderr=written) as demo,
    ):
        wait_until(lambda: any((tmp_path / "out/demo/media").glob("**/*.jpeg")), "it buys nothing", 0.3)
        started = psutil.Process(demo.pid).children(recursive=True)
        assert started
        demo.kill()
        wait_until(lambda: not any(map(psutil.Process.is_running, started)), "something is left", 0.3)
