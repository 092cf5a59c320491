"""Ctrl-C during a call from Python: a polite end, whether or not the caller has an event loop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from callsheet import signals
from callsheet.errors import Interrupted
from tests.cli.test_commands import callsheet
from tests.conftest import Project
from tests.steps.test_stopping import make_quick
from tests.waiting import LONGEST

Make = Callable[..., Project]
SCRIPT = """
import asyncio, sys
import callsheet

def cell():
    try:
        callsheet.run(sys.argv[1])
    except callsheet.errors.Interrupted as error:
        print(error)
        sys.exit(7)

async def in_a_loop():
    cell()

cell() if sys.argv[2] == "script" else asyncio.run(in_a_loop())
"""


@pytest.mark.parametrize("where", ["script", pytest.param("notebook", marks=pytest.mark.soak)])
def test_ctrl_c_stops_buying_leaves_nothing_in_doubt_and_the_next_call_goes_on(
    project: Make, where: str
) -> None:
    rows = [{"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(30)]
    made = project(rows, image_seconds=0.3, concurrency=3)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(made.config), where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not list(made.folder.glob("out/media/**/*.jpeg")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 7, err
    assert "stopped by SIGINT" in out
    assert "Traceback" not in err
    standing = json.loads(callsheet("status", str(made.config), "--json").stdout)
    assert standing["in_doubt"] == standing["submitting"] == 0
    assert 0 < standing["stored"] < 30
    make_quick(made)
    done = made.run()
    assert (done.stored, done.in_doubt) == (30, 0)


def test_everything_at_work_hears_a_signal_and_what_was_there_before_is_there_again() -> None:
    """Two tasks of one event loop, of which the first to begin is the first to end."""

    async def work(ends: asyncio.Event) -> None:
        with signals.cancelled_by_signals():
            await ends.wait()

    async def both() -> None:
        first_ends, never = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(work(first_ends))
        second = asyncio.create_task(work(never))
        third = asyncio.create_task(work(never))
        await asyncio.sleep(0)
        first_ends.set()
        await first
        os.kill(os.getpid(), signal.SIGTERM)
        ended = await asyncio.gather(second, third, return_exceptions=True)
        assert [type(error) for error in ended] == [Interrupted, Interrupted]

    before = signal.getsignal(signal.SIGTERM)
    asyncio.run(both())
    assert signal.getsignal(signal.SIGTERM) is before
