"""A disk that is full stops a run and loses nothing: with room again, the same command finishes the job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.conftest import MakeBatch
from tests.crash.killed_batch import IMAGE

LARGE = {"model": "still-1", "resolution": "4K"}
KIB = 1024


def test_a_ledger_that_cannot_grow_buys_nothing_that_it_cannot_record(new_batch: MakeBatch) -> None:
    rows = {f"image-{n}": ({"prompt": f"image-{n}", **IMAGE}, "stored") for n in range(40)}
    made = new_batch(rows)
    code = made.run(file_size=200 * KIB, waits={"lease": 3})
    assert code == 3, made.log()
    assert "the ledger could not be read or written" in made.log()
    made.crashes.append(made.known())
    assert made.run() in (0, 3), made.log()
    made.compare()


def test_a_spool_that_cannot_grow_leaves_what_is_paid_for_to_the_next_run(new_batch: MakeBatch) -> None:
    rows = {f"large-{n}": ({"prompt": f"large-{n}", **LARGE}, "stored") for n in range(2)}
    made = new_batch(rows)
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
    rows = {f"image-{n}": ({"prompt": f"image-{n}", **IMAGE}, "stored") for n in range(30)}
    made = new_batch(rows)
    link = made.folder / {"spool": "out/crash/report/spool", "storage": "out/media", "ledger": "out"}[full]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(b"." * used * KIB)
    code = made.run()
    assert code == ((3 if full == "ledger" else 4) if made.service.bought() else 2), made.log()
    made.crashes.append(made.known())
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    filler.unlink()
    assert made.run() in (0, 3), made.log()
    made.compare()
