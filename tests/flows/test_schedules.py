"""Schedules fire: on a real server and worker, on every day of a year, and with a word where they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from prefect.server.schemas.schedules import CronSchedule

from tests.conftest import Project
from tests.servers import http
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
        wait_until(
            lambda: http.request("DELETE", f"{server.api}/{path}/{made['id']}").is_success, "it stays", 0.3
        )


def test_a_schedule_of_one_minute_buys_a_batch(crew: PrefectServer, project: Callable[..., Project]) -> None:
    """Nobody starts a run: the server plans it, and the worker of `callsheet up` carries it out."""
    made = project([{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(3)])
    made.at_absolute_paths()
    with scheduled(crew, "generate-batch/nightly", config=str(made.config)):
        wait_until(lambda: len(made.sold) == 3, "no schedule fires", 1)
    assert made.charged > 0


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
