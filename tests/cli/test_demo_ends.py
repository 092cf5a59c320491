"""However a demo ends, nothing of what it has started beside itself is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.cli.test_commands import CALLSHEET
from tests.waiting import wait_until


@pytest.mark.soak
def test_nothing_is_left_of_a_demo_that_is_killed(tmp_path: Path) -> None:
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
