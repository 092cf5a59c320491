"""Batches whose runs are killed: one service for all, a workspace and a folder for each."""

from __future__ import annotations

import itertools
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
from tests.crash.killed_batch import LANES, ROWS, RULES, Bought, KilledBatch
from tests.waiting import wait_until

MakeBatch = Callable[..., KilledBatch]


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
def new_batch(lot: Backlot, tmp_path_factory: pytest.TempPathFactory) -> MakeBatch:
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
        made = KilledBatch(folder, environment, ServiceRecords(lot, name), rows)
        made.set_up(**sections)
        return made

    return make
