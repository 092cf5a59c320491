"""The whole command is killed at a named point; the same command finishes the job."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.crash.conftest import MakeBatch
from tests.servers.forks import forks

KILLED = """
from callsheet import failpoints
from callsheet.cli.main import main
from tests.ledger.waits import set_waits
from tests.crash.forked_run import killer
failpoints.observer = killer({point!r}, {nth})
set_waits(**{waits!r})
main()
"""


@dataclass
class CommandLine:
    """Runs `callsheet run` as a person would."""

    tally: Counter[str]

    def run(self, request: dict[str, Any]) -> int:
        kill = request.get("kill", {"point": "", "nth": 0})
        program = KILLED.format(**kill, waits=request.get("waits", {}))
        environment = os.environ | request["environment"]
        folder = Path(request["folder"])
        words = ("-c", program, "run", "batch.yaml", "--json")
        with (
            (folder / "run.log").open("a") as log,
            forks().start(*words, cwd=folder, env=environment, stdout=log, stderr=log) as process,
        ):
            return process.wait()


@pytest.mark.soak
def test_the_command_killed_with_a_paid_answer_in_hand(new_batch: MakeBatch) -> None:
    made = new_batch()
    made.starter = CommandLine(made.starter.tally)
    assert made.run(kill={"point": "after submit", "nth": 3}) == -9, made.log()
    assert made.run() == 3, made.log()
    made.compare()
