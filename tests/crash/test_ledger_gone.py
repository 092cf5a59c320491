"""A ledger that is gone or locked in mid-run, or a full disk: the run buys nothing that it cannot record."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from backlot.server import spawn
from tests.crash.conftest import MakeBatch
from tests.crash.killed_batch import IMAGE, LANES, VIDEO, Bought, KilledBatch
from tests.ledger.journals import locked as ledger_locked
from tests.servers.postgres import postgres
from tests.waiting import LONGEST, wait_until


def rows(count: int, image: dict[str, str] = IMAGE) -> dict[str, tuple[dict[str, str], str]]:
    return {f"image-{n}": ({"prompt": f"image-{n}", "shelf": "7", **image}, "stored") for n in range(count)}


ROWS = rows(60)


@contextmanager
def running(made: KilledBatch, **request: Any) -> Iterator[Future[int]]:
    """A run in mid-run; what it comes to is its exit code."""
    with ThreadPoolExecutor(1) as aside:
        code = aside.submit(made.run, **request)
        wait_until(lambda: len(made.stored()) >= 4, "the run has not stored four files")
        yield code


def locked(made: KilledBatch) -> AbstractContextManager[None]:
    """Another process writes, and does not end."""
    return ledger_locked(made.postgresql or f"sqlite:///{made.sqlite}")


def finish(made: KilledBatch) -> None:
    """The same command finishes what the run before had to leave: also answers that only its journal has."""
    made.crashes.append(made.known())
    assert len(made.stored()) < len(made.rows)
    assert made.run() in (0, 3), made.log()
    made.compare()


def test_a_postgresql_that_is_restarted_makes_the_run_wait_and_nothing_is_in_doubt(
    new_batch: MakeBatch,
) -> None:
    with postgres() as server:
        made = new_batch(ROWS, ledger={"url": server.new_database()})
        with running(made, waits={"lease": LONGEST}) as code:
            server.kill()
            wait_until(lambda: "the run waits" in made.log(), "the run has not noticed")
            server.restart()
            assert code.result() == 0, made.log()
        made.compare()


@pytest.mark.parametrize(("kind", "busy"), [("sqlite", 30), ("sqlite", 0.2), ("postgresql", 0.2)])
def test_a_ledger_that_is_locked_for_a_while_makes_the_run_wait(
    new_batch: MakeBatch, kind: str, busy: float, request: pytest.FixtureRequest
) -> None:
    """However long a write waits for another process's write before it fails, and is tried again."""
    made = new_batch(ROWS, **in_database(kind, request))
    with running(made, waits={"busy": busy, "lease": LONGEST}) as code:
        with locked(made):
            if busy < 1:
                wait_until(lambda: "the run waits" in made.log(), "the run has not noticed")
            assert_only_known_jobs_are_bought(made)
        assert code.result() == 0, made.log()
    made.compare()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def test_a_ledger_that_is_locked_for_too_long_ends_the_run_and_the_next_one_finishes(
    new_batch: MakeBatch, kind: str, request: pytest.FixtureRequest
) -> None:
    made = new_batch(ROWS, **in_database(kind, request))
    with running(made, waits={"busy": 0.2, "lease": 3}) as code, locked(made):
        assert code.result() == 3, made.log()
        assert_only_known_jobs_are_bought(made)
    assert "LedgerUnavailable" in made.log()
    finish(made)


def in_database(kind: str, request: pytest.FixtureRequest) -> dict[str, dict[str, str]]:
    return {"ledger": {"url": request.getfixturevalue("new_database")()}} if kind == "postgresql" else {}


def assert_only_known_jobs_are_bought(made: KilledBatch) -> None:
    """What was on the wire is answered, and the service hears of nothing more."""
    known = {name for name, row in made.ledger().items() if row["state"] != "planned"}
    assert {each.prompt for each in made.service.bought()} <= known


@pytest.mark.parametrize("files", [["ledger.db", "ledger.db-wal", "ledger.db-shm"], ["ledger.db-wal"]])
def test_a_ledger_that_is_taken_away_ends_the_run_and_when_it_is_back_the_next_one_finishes(
    new_batch: MakeBatch, files: list[str]
) -> None:
    """What was on the wire is answered, and kept: also where a file's name needs what only the ledger has."""
    made = new_batch(ROWS, storage={"key": "{shelf}/{row_id}-{sample}-{index}.{ext}"})
    out, elsewhere = made.sqlite.parent, made.folder / "elsewhere"
    elsewhere.mkdir()
    away = {"files": [str(out / name) for name in files], "to": str(elsewhere)}
    assert made.run(move={"point": "after ledger.submitting", "nth": 10} | away) == 3, made.log()
    assert len(made.service.bought()) < 10 + LANES, "only what was intended by then is bought"
    assert "was moved, deleted or replaced" in made.log()
    if "ledger.db" in files:
        for name in files:
            (elsewhere / name).replace(out / name)
    known = made.known()
    assert {known[each.prompt]["state"] for each in made.service.bought()} <= {"generated", "stored"}
    finish(made)


# ---- a disk that is full


KIB = 1024


def test_a_ledger_that_cannot_grow_buys_nothing_that_it_cannot_record(new_batch: MakeBatch) -> None:
    made = new_batch(rows(40))
    code = made.run(file_size=300 * KIB, waits={"lease": 3})
    assert code == 3, made.log()
    assert "the ledger could not be read or written" in made.log()
    finish(made)


def test_a_spool_that_cannot_grow_leaves_what_is_paid_for_to_the_next_run(new_batch: MakeBatch) -> None:
    made = new_batch(rows(2, {"model": "still-1", "resolution": "4K"}))
    assert made.run(file_size=400 * KIB) == 3, made.log()
    assert {row["state"] for row in made.ledger().values()} == {"generated"}
    assert made.run() == 0, made.log()
    made.compare()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 200 KiB: a mount that takes rights which not every machine gives."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize(("full", "used"), [("spool", 190), ("storage", 100), ("ledger", 0), ("ledger", 100)])
def test_a_small_disk_that_fills_up_loses_nothing(
    new_batch: MakeBatch, small_disk: Path, full: str, used: int
) -> None:
    """The exit code is 2 only where nothing is bought: with 100 KiB used the ledger is not even opened."""
    made = new_batch(rows(30))
    link = made.folder / {"spool": "out/crash/report/spool", "storage": "out/media", "ledger": "out"}[full]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(b"." * used * KIB)
    code = made.run()
    assert code == ((3 if full == "ledger" else 4) if made.service.bought() else 2), made.log()
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    filler.unlink()
    finish(made)


# ---- the service is killed in the middle and comes back on its port with its database: the run goes on


MIXED = {
    **{f"image-{n}": ({"prompt": f"image-{n}", **IMAGE}, "stored") for n in range(60)},
    **{f"video-{n}": ({"prompt": f"video-{n}", **VIDEO}, "stored") for n in range(4)},
}


@dataclass
class Server:
    """A backlot in a process of its own, whose database is on disk. It is read when the process has ended."""

    state: Path
    stack: ExitStack

    def start(self, port: int) -> None:
        flags = ["--state", str(self.state), "--port", str(port)]
        quick = ["--image-seconds", "0.05", "--video-seconds", "0.3", "--image-rpm", "100000"]
        self.base_url, self.process = self.stack.enter_context(spawn(*flags, *quick))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def bought(self) -> list[Bought]:
        self.kill()
        with closing(sqlite3.connect(self.state / "backlot.db")) as database:
            rows = database.execute("SELECT id, recipe, state, cost FROM generations").fetchall()
        return [
            Bought(row[0], json.loads(row[1])["prompt"], row[2], row[3] * Decimal("0.0001")) for row in rows
        ]


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.soak)])
def test_a_service_that_is_killed_and_comes_back_leaves_doubt_only_about_what_it_was_making(
    tmp_path: Path, kills: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with ExitStack() as stack:
        server = Server(tmp_path / "state", stack)
        server.start(port)
        environment = {"CALLSHEET_BASE_URL": server.base_url, "CALLSHEET_API_KEY": "sk_backlot"}
        made = KilledBatch(tmp_path / "batch", environment, server, dict(MIXED))
        made.set_up()
        codes: list[int] = []
        run = threading.Thread(target=lambda: codes.append(made.run(backoff=0.2)))
        run.start()
        for _ in range(kills):
            before = len(made.stored())
            while run.is_alive() and len(made.stored()) < before + 4:
                time.sleep(0.01)  # another process does the work
            server.kill()
            server.start(port)
        run.join()
        assert codes[0] in (0, 3), made.log()
        doubted = [name for name, row in made.ledger().items() if row["state"] == "in_doubt"]
        assert len(doubted) <= kills * LANES
        for name in doubted:
            made.rows[name] = (made.rows[name][0], "in_doubt")
        made.run()  # on a slow machine a file may have been left to the next run
        made.compare()
