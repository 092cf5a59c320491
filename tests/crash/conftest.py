"""Batches whose runs are killed: one service and one starter for all, a workspace and a folder for each."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from backlot.faults import read_faults
from backlot.server import Backlot, serve
from backlot.settings import Settings, WorkspaceSettings
from tests.crash.killed_batch import LANES, ROWS, RULES, Bought, Forks, KilledBatch, starter
from tests.waiting import wait_until

MakeBatch = Callable[..., KilledBatch]
TALLY = pytest.StashKey[Counter[str]]()


@dataclass(frozen=True)
class ServiceRecords:
    """A workspace's records, in a backlot of this process."""

    lot: Backlot
    workspace: str

    def bought(self) -> list[Bought]:
        service = self.lot.service
        wait_until(lambda: service.workspaces[self.workspace].busy == 0, "the service still works")
        rows = list(service.store.select("workspace = ?", self.workspace))
        spent = sum((row.cost for row in rows if row.state == "completed"), Decimal(0))
        assert spent == service.workspaces[self.workspace].spent
        return [Bought(row.id, row.recipe.prompt, row.state, row.cost) for row in rows]


@pytest.fixture(scope="session")
def lot() -> Iterator[Backlot]:
    quick = Settings(port=0, image_seconds=0.02, video_seconds=0.08, image_rpm=10**6, video_rpm=10**6)
    with serve(quick) as lot:
        yield lot


@pytest.fixture(scope="session")
def forks(pytestconfig: pytest.Config) -> Iterator[Forks]:
    with starter() as started:
        pytestconfig.stash[TALLY] = started.tally
        yield started


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Gives the count of a worker of pytest-xdist to the process that prints the summary."""
    if hasattr(session.config, "workeroutput") and (tally := session.config.stash.get(TALLY, None)):
        session.config.workeroutput["crashes"] = dict(tally)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Adds the count of a worker."""
    node.config.stash.setdefault(TALLY, Counter()).update(node.workeroutput.get("crashes", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says how many kills were survived."""
    if tally := config.stash.get(TALLY, None):
        terminalreporter.line("crashes: " + ", ".join(f"{count} {name}" for name, count in tally.items()))


@pytest.fixture(scope="session")
def new_batch(
    lot: Backlot, forks: Forks, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., KilledBatch]:
    """Sets a new_batch, with a workspace of its own and the faults of `RULES` fresh."""
    numbers = itertools.count(1)
    faults: Path = tmp_path_factory.mktemp("faults") / "faults.yaml"
    faults.write_text(yaml.safe_dump({"rules": RULES}))

    def make(rows: Any = ROWS, **sections: Any) -> KilledBatch:
        name = f"crash{next(numbers)}"
        workspace = WorkspaceSettings(
            balance=Decimal(100), concurrency=4 * LANES, projects={"main": (f"sk_{name}",)}
        )
        lot.service.add_workspace(name, workspace)
        lot.service.faults = read_faults(faults)
        environment = {"CALLSHEET_BASE_URL": lot.base_url, "CALLSHEET_API_KEY": f"sk_{name}"}
        folder = tmp_path_factory.mktemp("new_batch") / "batch"
        made = KilledBatch(folder, environment, ServiceRecords(lot, name), forks, rows)
        made.set_up(**sections)
        return made

    return make
