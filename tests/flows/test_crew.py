"""Runs side by side: they buy nothing twice, whether they are of one crew or just begun at the same time."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from callsheet.config.load import load
from callsheet.errors import InputError
from callsheet.ledger import leases
from callsheet.ledger.ledger import Ledger
from callsheet.report.summary import Summary
from callsheet.steps import batch
from flows.generate import generate_batch
from tests.cli.test_commands import run_at_work
from tests.conftest import Project
from tests.servers.prefect import PrefectServer
from tests.steps.test_again import reject_all, samples, side_by_side
from tests.steps.test_stopping import make_quick
from tests.waiting import wait_until

Make = Callable[..., Project]


def images(number: int) -> list[dict[str, Any]]:
    return [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(number)]


def test_the_budget_is_one_wall_for_runs_side_by_side(project: Make) -> None:
    made = project(images(400), image_seconds=0.01, concurrency=16)
    summaries = side_by_side(made, "budget.limit=0.0900")
    assert {summary.stop_reason for summary in summaries} == {"budget"}
    assert made.charged == Decimal("0.0900")
    assert made.costs()["cost"].sum() == Decimal("0.0900")


def test_a_run_takes_over_from_one_that_is_killed_while_it_buys(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project(images(300), image_seconds=0.2, concurrency=8)
    made.set(limits={"concurrency": 4})
    monkeypatch.setattr(Ledger, "open", partial(Ledger.open, lease=4))
    with run_at_work(made, jobs=4) as pid:  # it has reserved two thirds of the jobs
        summary = asyncio.run(_run_while_another_is_killed(made, pid))
    assert summary.stored + summary.in_doubt == 300
    assert summary.in_doubt <= 4, "what the other was sending"
    assert summary.spent <= made.charged <= summary.spent + summary.in_doubt_exposure


async def _run_while_another_is_killed(made: Project, pid: int) -> Summary:
    """Buys, and kills the other run once this one is open."""
    run = asyncio.create_task(batch.generate(load(made.config), approved=True))
    ledger = await Ledger.open(f"sqlite:///{made.folder}/out/ledger.db", "test")
    while len(await ledger.read(leases.others, ledger.run_id)) < 2:  # noqa: ASYNC110 - another process changes it
        await asyncio.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    await ledger.close()
    make_quick(made)
    return await run


def test_another_plan_than_the_approved_one_is_not_bought(project: Make) -> None:
    made = project(images(3))
    with pytest.raises(InputError, match="are not those that were approved"):
        asyncio.run(batch.generate(load(made.config), approved=True, plan="another"))
    assert not made.sold


def test_a_crew_buys_whole_batches_only(project: Make, prefect: PrefectServer) -> None:
    made = project(images(2))
    state = asyncio.run(generate_batch(str(made.config), crew=2, first=1, return_state=True))
    assert "a crew cannot be combined" in state.message
    state = asyncio.run(generate_batch(str(made.config), crew=2, plan="0" * 64, return_state=True))
    assert "a crew cannot be combined" in state.message
    assert not made.sold


def of_its_crew(crew: PrefectServer, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The sub-runs of a flow run."""
    parents = [one["id"] for one in crew.ask("task_runs", flow_runs={"id": {"any_": [run["id"]]}})]
    return crew.ask("flow_runs", flow_runs={"parent_task_run_id": {"any_": parents}})


def asks(made: Project, query: str) -> list[tuple[Any, ...]]:
    """Rows of the ledger; none where it has no tables yet."""
    file = made.folder / "out/ledger.db"
    if not file.exists():
        return []
    with closing(sqlite3.connect(file)) as ledger, suppress(sqlite3.OperationalError):
        return ledger.execute(query).fetchall()
    return []


def test_a_crew_has_as_many_runs_as_jobs_shares_the_plan_and_its_first_run_buys_again_alone(
    crew: PrefectServer, project: Make
) -> None:
    """Each sub-run finds the plan that was approved, although samples are bought again meanwhile."""
    made = project(images(3))
    made.at_absolute_paths()
    made.set(review={"buy_again": True})
    assert made.run().stored == 3
    reject_all(made)
    made.rows(*images(5))
    crew.start("generate-batch/by-hand", tag=made.folder.name, config=str(made.config), crew=20)
    run = crew.ended(made.folder.name)
    assert (run["state"]["type"], run["state"]["name"]) == ("COMPLETED", "Complete"), run["state"]["message"]
    assert len(made.sold) == made.manifest().height == 8
    assert samples(made)[:2] == [("s0", 1), ("s0", 2)]
    [other] = of_its_crew(crew, run)  # two jobs are to buy before samples are bought again
    assert other["parameters"]["plan"]
    ended = ("COMPLETED", "CANCELLED")  # one that is still at work is told to stop politely
    wait_until(lambda: of_its_crew(crew, run)[0]["state"]["type"] in ended, "the other goes on", 0.3)
    assert "are not those that were approved" not in (other["state"]["message"] or "")
