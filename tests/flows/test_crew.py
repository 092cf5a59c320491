"""Runs side by side: they buy nothing twice, whether they are of one crew or just begun at the same time."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.rows import dict_row

from callsheet.config.load import load
from callsheet.errors import InputError
from callsheet.ledger import leases
from callsheet.ledger.ledger import Ledger
from callsheet.report.summary import Summary
from callsheet.steps import batch
from flows.generate import generate_batch
from tests.cli.test_commands import run_at_work
from tests.conftest import Make, Project, images
from tests.servers import s3 as s3_server
from tests.servers.postgres import PostgresProxy, PostgresServer, postgres, postgres_proxy
from tests.servers.prefect import ROOT, PrefectServer, prefect_server
from tests.steps.test_again import reject_all, samples, side_by_side
from tests.steps.test_stopping import make_quick
from tests.waiting import runs, wait_until


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
    wait_until(lambda: of_its_crew(crew, run)[0]["state"]["type"] in ended, "the other goes on", 1)
    assert "are not those that were approved" not in (other["state"]["message"] or "")


# ---- four workers, with PostgreSQL and S3, of which something dies: ledger, storage and the service's
# books agree afterwards. Each test runs for about two minutes.


CREW = 4
IMAGES, VIDEOS = 900, 30
LANES = 24
MICRO = Decimal(1_000_000)
AT_WORK = """
    SELECT count(DISTINCT run_id) FILTER (WHERE state IN ('submitting', 'pending', 'generated')) AS runs,
    count(*) FILTER (WHERE state = 'stored') AS stored FROM attempts
"""


@dataclass
class Studio:
    """A batch that a crew buys, and everything that it stands on."""

    made: Project
    prefect: PrefectServer
    home: Path
    database: PostgresServer
    url: str
    proxy: PostgresProxy
    s3: s3_server.Server

    def start(self) -> None:
        """Starts the crew, and waits until all of its runs buy, or all that came before the last jobs."""
        self.prefect.start(
            "generate-batch/by-hand", tag="first", config=str(self.made.config), crew=CREW, approved=True
        )
        wait_until(self._all_buy, "not all runs buy", 0.2)

    def _all_buy(self) -> bool:
        [(at_work, done)] = [tuple(row.values()) for row in self.ask(AT_WORK)] or [(0, 0)]
        return at_work == CREW or (at_work > 1 and done > IMAGES / 2)

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Rows of the ledger; none where it has no tables yet."""
        with psycopg.connect(self.url.replace("+psycopg", ""), row_factory=dict_row) as ledger:
            try:
                return ledger.execute(query).fetchall()
            except psycopg.errors.UndefinedTable:
                return []

    def processes(self) -> list[int]:
        """The process of each run, the first run's first."""
        return [row["pid"] for row in self.ask("SELECT pid FROM runs ORDER BY started_at")]

    def all_ended(self) -> None:
        """Waits until no run of the crew is under way, whatever Prefect knows of it."""
        processes = [psutil.Process(pid) for pid in self.processes() if psutil.pid_exists(pid)]
        wait_until(lambda: not any(map(runs, processes)), "a run does not end", 0.3)

    def finished(self) -> Counter[str]:
        """Runs the batch once more, and returns how many jobs are in each state; the three books agree."""
        summary = self.made.run()
        assert summary.pending == 0
        rows = self.ask(
            "SELECT * FROM attempts LEFT JOIN media USING (job_key, attempt) WHERE NOT superseded"
        )
        sold = {one.recipe.prompt: one for one in self.made.backlot.service.store.select("1 = ?", 1)}
        assert len(sold) == len(list(self.made.backlot.service.store.select("1 = ?", 1))), "a job twice"
        in_doubt = Decimal(0)
        for row in rows:
            one = sold.get(row["prompt"])
            charged = one.cost if one and one.state == "completed" else Decimal(0)
            if row["state"] == "in_doubt":
                in_doubt += charged
            else:
                assert (row["state"], row["cost"] / MICRO) == ("stored", charged), row["error_message"]
        [workspace] = self.made.backlot.service.workspaces.values()
        known = sum((row["cost"] or 0 for row in rows), Decimal(0)) / MICRO
        assert known + in_doubt == workspace.spent
        assert summary.spent == known
        self._compare_storage({row["name"]: row["bytes"] for row in rows if row["state"] == "stored"})
        return Counter(row["state"] for row in rows)

    def _compare_storage(self, stored: dict[str, int]) -> None:
        pages = self.s3.client().get_paginator("list_objects_v2").paginate(Bucket=self.s3.bucket)
        objects = [one for page in pages for one in page.get("Contents", ())]
        prefix = f"{self.made.folder.name}/media/"
        there = {
            one["Key"].removeprefix(prefix): one["Size"] for one in objects if one["Key"].startswith(prefix)
        }
        there.pop(f".callsheet-ledger-{self.made.folder.name}")  # its owner file
        assert there == stored


def mixed(count: int) -> list[dict[str, Any]]:
    """Rows of so many images, with `VIDEOS` videos among them."""
    rows: list[dict[str, Any]]
    rows = [{"id": f"i{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(count)]
    for n in range(VIDEOS):
        video = {"id": f"v{n}", "prompt": f"video {n}", "model": "dailies-1", "duration": 1}
        rows.insert(n * (count // VIDEOS + 1), video)
    return rows


@pytest.fixture
def studio(
    project: Callable[..., Project],
    s3: s3_server.Server,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Studio]:
    """Four workers with room for one run each; the last one reaches the ledger through a proxy."""
    made = project(
        mixed(IMAGES), image_seconds=2, video_seconds=10, concurrency=LANES, image_rpm=10**6, video_rpm=10**6
    )
    home = tmp_path_factory.mktemp("prefect")
    with ExitStack() as stack:
        database = stack.enter_context(postgres())
        url = database.new_database()
        proxy = stack.enter_context(postgres_proxy(url))
        for name, value in ({"LEDGER_URL": url} | s3.environment()).items():
            monkeypatch.setenv(name, value)
        made.at_absolute_paths()
        place = f"s3://{s3.bucket}/{made.folder.name}"
        made.set(
            batch=made.folder.name,
            ledger={"url": "${LEDGER_URL}"},
            storage={"url": f"{place}/media", "endpoint_url": s3.endpoint_url},
            report={"url": f"{place}/report"},
            stop_after=LANES * CREW,
        )
        server = stack.enter_context(prefect_server(home))
        for number in range(CREW):
            ledger = proxy.url if number == CREW - 1 else url
            stack.enter_context(server.worker("crew", "--limit", "1", LEDGER_URL=ledger))
        pool = {"name": {"any_": ["crew"]}}
        wait_until(lambda: server.ask("work_pools", work_pools=pool), "no worker has made the pool", 0.3)
        server.command("--no-prompt", "deploy", "--all")
        stack.callback(shutil.rmtree, ROOT / ".callsheet" / made.folder.name, ignore_errors=True)
        yield Studio(made, server, home, database, url, proxy, s3)


@pytest.mark.soak
def test_with_nothing_that_dies_all_is_stored_and_one_report_says_so(studio: Studio) -> None:
    studio.start()
    run = studio.prefect.ended("first")
    assert run["state"]["name"] == "Complete", run["state"]["message"]
    assert len(of_its_crew(studio.prefect, run)) == CREW - 1
    assert studio.finished() == {"stored": IMAGES + VIDEOS}


@pytest.mark.soak
@pytest.mark.parametrize("which", [0, -1], ids=["the first run", "another run"])
def test_a_run_is_killed(studio: Studio, which: int) -> None:
    studio.start()
    os.kill(studio.processes()[which], signal.SIGKILL)
    studio.all_ended()
    states = studio.finished()
    assert states["in_doubt"] <= LANES
    assert states.total() == IMAGES + VIDEOS


@pytest.mark.soak
def test_postgresql_is_killed_and_started_again(studio: Studio) -> None:
    studio.start()
    studio.database.kill()
    studio.database.restart()
    run = studio.prefect.ended("first")
    assert run["state"]["name"] == "Complete", run["state"]["message"]
    assert studio.finished() == {"stored": IMAGES + VIDEOS}


@pytest.mark.soak
def test_the_prefect_server_is_killed_and_started_again(studio: Studio) -> None:
    studio.start()
    port = studio.prefect.api.split(":")[2].partition("/")[0]
    [server] = [
        each for each in psutil.Process().children() if {"server", "start", port} <= set(each.cmdline())
    ]
    for each in (server, *server.children(recursive=True)):
        each.kill()
    with prefect_server(studio.home, int(port)):
        studio.all_ended()
        states = studio.finished()
    assert states == {"stored": IMAGES + VIDEOS}


@pytest.mark.soak
def test_the_network_between_one_worker_and_the_ledger_is_cut(studio: Studio) -> None:
    studio.start()
    studio.proxy.cut()
    run = studio.prefect.ended("first")
    assert run["state"]["type"] in ("COMPLETED", "FAILED")
    studio.all_ended()
    states = studio.finished()
    assert states["in_doubt"] <= LANES
    assert states.total() == IMAGES + VIDEOS
