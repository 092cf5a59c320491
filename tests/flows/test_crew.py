"""A crew: several runs buy one batch side by side, and the first one writes one report on all of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from callsheet.config.load import load
from callsheet.config.settings import Settings
from callsheet.errors import InputError
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.waits import set_waits
from callsheet.pricing.planning import share
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from flows import pipeline
from flows.crew import Crew
from tests.cli.test_commands import callsheet, refused
from tests.cli.test_two_runs import run_at_work
from tests.conftest import Project
from tests.servers import s3 as s3_server
from tests.servers.prefect import PrefectServer
from tests.waiting import wait_until

Make = Callable[..., Project]


def images(number: int) -> list[dict[str, Any]]:
    return [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(number)]


@dataclass
class Beside:
    """The other runs of a crew, in this process."""

    others: int
    before: Callable[[], None] = lambda: None
    joined: tuple[Summary, ...] = ()

    async def buy(self, quote: Quote, settings: Settings, buy: Callable[[], Awaitable[Summary]]) -> Summary:
        await share(quote.plan, settings)
        self.before()
        plan = quote.plan.sha256()
        first, *others = await asyncio.gather(
            buy(), *(pipeline.join(settings, plan) for _ in range(self.others))
        )
        self.joined = tuple(others)
        return first


def bought(made: Project, crew: Any, *overrides: str) -> Summary:
    settings = load(made.config, overrides)
    return asyncio.run(pipeline.generate(settings, approved=True, crew=crew))


def test_all_buy_nothing_twice_and_one_writes_the_report(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.others.SOON", 0.1)  # the batch takes some seconds
    made = project(images(400), image_seconds=0.05, concurrency=16, image_rpm=10**6)
    crew = Beside(2)
    summary = bought(made, crew)
    assert (summary.outcome, summary.stored, summary.other_runs) == ("complete", 400, ())
    assert all(joined.submissions for joined in crew.joined)
    assert summary.submissions + sum(joined.submissions for joined in crew.joined) >= 400
    assert made.costs().height == made.manifest().height == 400
    assert made.report()["stored"] == 400
    assert len(list(made.backlot.service.store.select("1 = ?", 1))) == 400


def test_the_budget_is_one_wall_for_all(project: Make) -> None:
    made = project(images(400), image_seconds=0.01, concurrency=16)
    summary = bought(made, Beside(2), "budget.limit=0.3000")
    [workspace] = made.backlot.service.workspaces.values()
    assert (summary.outcome, summary.stop_reason) == ("stopped", "budget")
    assert summary.spent == workspace.spent == Decimal("0.3000")
    assert made.costs()["cost"].sum() == Decimal("0.3000")


def test_the_first_run_waits_for_the_others_and_takes_over_from_one_that_is_killed(project: Make) -> None:
    made = project(images(120), image_seconds=0.2, concurrency=4)
    made.set(limits={"concurrency": 4})
    before = set_waits(lease=4)
    try:
        with run_at_work(made, jobs=4) as pid:  # it has reserved every job
            summary = asyncio.run(_first_while_another_is_killed(made, pid))
    finally:
        set_waits(lease=before.lease)
    assert summary.stored + summary.in_doubt == 120
    assert summary.in_doubt <= 4, "what the other was sending"
    assert made.report()["stored"] == summary.stored
    [workspace] = made.backlot.service.workspaces.values()
    assert summary.spent <= workspace.spent <= summary.spent + summary.in_doubt_exposure


async def _first_while_another_is_killed(made: Project, pid: int) -> Summary:
    """Buys with the first run of a crew, and kills the other run once the first is open."""
    first = asyncio.create_task(pipeline.generate(load(made.config), approved=True, crew=Beside(0)))
    ledger = await Ledger.open(f"sqlite:///{made.folder}/out/ledger.db", "test")
    while len(await ledger.others()) < 2:  # noqa: ASYNC110 - another process changes it
        await asyncio.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    await ledger.close()
    return await first


def test_a_plan_on_s3_is_shared_and_another_plan_is_not_bought(
    project: Make, s3: s3_server.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project(images(150), image_seconds=0.01)
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    made.set(report={"url": f"s3://{s3.bucket}/crew"}, storage={"endpoint_url": s3.endpoint_url})
    plan = Path(".callsheet/test/plan.parquet")
    assert bought(made, Beside(1, before=plan.unlink)).stored == 150
    with pytest.raises(InputError, match="is not the one that this crew buys"):
        asyncio.run(pipeline.join(load(made.config), "another"))


def test_the_first_run_buys_all_when_the_prefect_server_cannot_start_others(project: Make) -> None:
    made = project(images(3))
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):  # nothing listens there
        summary = bought(made, Crew(uuid4(), uuid4(), {}, others=2))
    assert (summary.outcome, summary.stored) == ("complete", 3)


def test_without_a_prefect_server_there_is_no_crew(project: Make) -> None:
    made = project(images(1))
    refused(callsheet("run", str(made.config), "--crew", "2"), "--crew", "Prefect", "callsheet up")
    assert not list(made.backlot.service.store.select("1 = ?", 1))


def test_a_crew_buys_whole_batches_only(project: Make) -> None:
    made = project(images(2))
    done = callsheet(
        "run", str(made.config), "--crew", "2", "--first", "1", PREFECT_API_URL="http://127.0.0.1:9"
    )
    refused(done, "a crew cannot be combined")


def of_its_crew(crew: PrefectServer, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The sub-runs of a flow run."""
    parents = [one["id"] for one in crew.ask("task_runs", flow_runs={"id": {"any_": [run["id"]]}})]
    return crew.ask("flow_runs", flow_runs={"parent_task_run_id": {"any_": parents}})


def runs_of(made: Project) -> int:
    """How many runs the ledger knows of, once there is one."""
    file = made.folder / "out/ledger.db"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as ledger, suppress(sqlite3.OperationalError):  # no table yet
        return int(ledger.execute("SELECT count(*) FROM runs").fetchone()[0])
    return 0


def test_a_deployed_run_starts_as_many_sub_runs_as_have_a_job_and_those_that_come_too_late_buy_nothing(
    crew: PrefectServer, project: Make
) -> None:
    made = project(images(2))
    made.at_absolute_paths()
    crew.start("generate-batch/by-hand", tag=made.folder.name, config=str(made.config), crew=20)
    run = crew.ended(made.folder.name)
    assert (run["state"]["type"], run["state"]["name"]) == ("COMPLETED", "Complete"), run["state"]["message"]
    assert made.costs().height == made.manifest().height == 2
    [other] = of_its_crew(crew, run)
    assert other["parameters"]["joins"]
    assert other["state"]["type"] == "CANCELLED", "no worker had begun it when all was bought"
    late = f"late-{made.folder.name}"
    same = {name: other[name] for name in ("parameters", "parent_task_run_id")}
    crew.post(f"deployments/{other['deployment_id']}/create_flow_run", same | {"tags": [late]})
    run = crew.ended(late)
    assert (run["state"]["type"], run["state"]["message"]) == (
        "CANCELLED",
        "The crew's first run has ended, so this one buys nothing.",
    )
    assert runs_of(made) == 1, "neither has joined it"


@pytest.mark.soak
def test_deployed_runs_buy_side_by_side(crew: PrefectServer, project: Make) -> None:
    made = project(images(600), image_seconds=20, concurrency=16, image_rpm=10**6)  # slow until all are there
    made.at_absolute_paths()
    service = made.backlot.service
    crew.start("generate-batch/by-hand", tag=made.folder.name, config=str(made.config), crew=3)
    wait_until(lambda: runs_of(made) == 3, "the others never begin", 0.3)
    service.settings = service.settings.model_copy(update={"image_seconds": 0.1})
    run = crew.ended(made.folder.name)
    assert (run["state"]["type"], run["state"]["name"]) == ("COMPLETED", "Complete"), run["state"]["message"]
    assert made.costs().height == made.manifest().height == 600
    messages = [other["state"]["message"] for other in of_its_crew(crew, run)]
    assert len(messages) == 2
    assert all(message.startswith("Joined: ") for message in messages)
    assert "Joined: 0 submissions" not in messages


@pytest.mark.soak
def test_a_crew_whose_first_run_is_stopped_in_the_ui_stops(crew: PrefectServer, project: Make) -> None:
    made = project(images(1000), image_seconds=0.5, concurrency=8)
    made.at_absolute_paths()
    crew.start("generate-batch/by-hand", tag=made.folder.name, config=str(made.config), crew=2)

    def begun() -> bool:
        run = crew.run(made.folder.name)
        return any(other["state"]["type"] == "RUNNING" for other in of_its_crew(crew, run))

    wait_until(begun, "the other run is never begun", 0.5)
    run = crew.run(made.folder.name)
    stop = {"state": {"type": "CANCELLING"}}
    httpx.post(f"{crew.api}/flow_runs/{run['id']}/set_state", json=stop).raise_for_status()
    run = crew.ended(made.folder.name)
    assert run["state"]["type"] == "CANCELLED"

    def over() -> bool:
        return of_its_crew(crew, run)[0]["state"]["type"] in ("CANCELLED", "FAILED", "COMPLETED")

    wait_until(over, "the other run is not stopped", 0.5)
    states = made.run("budget.limit=0").pending, made.costs()["state"].unique().to_list()
    assert states == (0, ["stored"])
    assert made.costs().height < 1000
