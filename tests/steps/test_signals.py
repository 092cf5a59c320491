"""A signal at any moment of a run, before, while and after it buys, is never lost and costs no money."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.cli.test_commands import CALLSHEET, callsheet
from tests.conftest import Project
from tests.long_form import mostly_soak

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
