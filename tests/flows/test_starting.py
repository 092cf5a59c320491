"""Many runs may start at once: none brings a server of its own, and all end well."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from tests.cli.test_commands import CALLSHEET
from tests.conftest import Project


@pytest.mark.parametrize("runs", [3, pytest.param(10, marks=pytest.mark.soak)])
def test_runs_that_start_at_once_all_end_with_0(project: Callable[..., Project], runs: int) -> None:
    made = project([{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(5)])
    processes = [
        subprocess.Popen(
            [*CALLSHEET, "run", str(made.config), "--set", f"batch=batch-{number}"],
            env=dict(os.environ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(runs)
    ]
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err
    assert len(list(made.folder.glob("out/media/*/*.jpeg"))) == 5 * runs
