"""Schedules fire: on a real server and worker, on every day of a year, and with a word where they do not."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from prefect.server.schemas.schedules import CronSchedule

from tests.conftest import Project
from tests.servers.prefect import PrefectServer
from tests.waiting import wait_until


@contextmanager
def scheduled(server: PrefectServer, deployment: str, **parameters: Any) -> Iterator[str]:
    """Within it, a deployment has a schedule of one minute with these parameters; yields its id.

    It is switched on from the beginning: what switches a schedule on later takes its parameters away.
    """
    path = f"deployments/{server.deployment(deployment)['id']}/schedules"
    soon = datetime.now(UTC) + timedelta(seconds=10)
    every = {"interval": 60, "anchor_date": soon.isoformat(), "timezone": "UTC"}
    [made] = server.post(path, [{"schedule": every, "active": True, "parameters": parameters}])
    try:
        yield made["id"]
    finally:
        server.request("DELETE", f"{path}/{made['id']}")


def test_a_schedule_of_one_minute_buys_a_batch_and_goes_on_where_its_last_run_was_killed(
    crew: PrefectServer, project: Callable[..., Project]
) -> None:
    """Nobody starts a run: the server plans it, and the worker of `callsheet up` carries it out.

    Of a run that is killed the worker says what it has left; the next one buys the rest, and is red for the
    doubt about what was on the wire.
    """
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(4)]
    made = project(rows, image_seconds=3)
    made.set(batch=made.folder.name, limits={"concurrency": 1})
    made.at_absolute_paths()
    tag = f"batch:{made.folder.name}"

    def ended(state: str) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            of_state = {"state": {"type": {"any_": [state]}}, "tags": {"all_": [tag]}}
            return [run for run in crew.ask("flow_runs", flow_runs=of_state) if " stored, " in run["name"]]

        wait_until(found, f"no run becomes {state}", 1)
        return found()[0]

    with scheduled(crew, "generate-batch/nightly", config=str(made.config)):
        wait_until(lambda: list(made.folder.glob("out/media/**/*.jpeg")), "no schedule fires", 0.2)
        with sqlite3.connect(made.folder / "out/ledger.db") as ledger:
            [(process,)] = ledger.execute("SELECT pid FROM runs")
        os.kill(process, signal.SIGKILL)
        killed = ended("CRASHED")
        of_next = ended("FAILED")
    assert re.fullmatch(rf"{made.folder.name}: killed, \d of 4 stored, 0.00\d+ USD", killed["name"])
    wait_until(lambda: "Run the batch again" in str(crew.now(killed)["state"]["message"]), "no word", 0.3)
    page = crew.artifacts(killed)[f"costs-{made.folder.name}".replace("_", "-")]
    for words in ("the process of the run was killed", "A run of the deployment nightly goes on from here"):
        assert words.replace("_", "\\_") in page
    assert (of_next["state"]["name"], of_next["auto_scheduled"]) == ("InDoubt", True)
    assert made.report()["stored"] == 3
    assert len(made.sold) == 4, "nothing is bought twice"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_the_nightly_schedule_fires_once_on_each_day_of_a_year(crew: PrefectServer, zone: str) -> None:
    """Also on the day that has no two o'clock, and on the day that has it twice."""
    [nightly] = crew.deployment("generate-batch/nightly")["schedules"]
    schedule = CronSchedule.model_validate(nightly["schedule"] | {"timezone": zone})
    start = datetime(2027, 1, 1, tzinfo=ZoneInfo(zone))
    dates = asyncio.run(schedule.get_dates(365, start=start))
    days = [date.astimezone(ZoneInfo(zone)).date() for date in dates]
    assert days == [(start + timedelta(days=n)).date() for n in range(365)]
    hours = {date.astimezone(ZoneInfo(zone)).hour for date in dates}
    assert hours == {1, 2}, "two o'clock, and an hour before it on the day that has none"
