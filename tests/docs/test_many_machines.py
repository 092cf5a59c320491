"""The simulated night: the page is what the code writes, and the model agrees with what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.night import Assumed, Station, blocks_a_second, jobs_a_second, simulate
from benchmarks.night_page import measured, predicted, text

DOCS = Path(__file__).parents[2] / "docs"
NOTHING_REFUSES = replace(Assumed(), images_a_minute=1e12, put_rate=1e12)


@pytest.fixture(scope="module")
def figures() -> Any:
    return json.loads((DOCS / "benchmarks" / "figures.json").read_text())


def test_the_page_is_what_the_code_writes_from_the_figures(figures: Any) -> None:
    assert (DOCS / "many_machines.md").read_text("utf-8") == text(figures)


def test_the_network_of_queues_agrees_with_the_runs_that_were_measured(figures: Any) -> None:
    """Within 35 %: other programs used the same two cores while these runs were measured."""
    for runs, model, found in predicted(figures):
        assert model == pytest.approx(found, rel=0.35), runs


def test_one_block_waits_for_nobody_and_many_for_the_slowest_station() -> None:
    stations = (Station("fast", 1.0), Station("slow", 4.0), Station("wide", 6.0, servers=3))
    assert blocks_a_second(1, 9.0, stations)[0] == pytest.approx(1 / 20)
    rate, busy = blocks_a_second(200, 9.0, stations)
    assert rate == pytest.approx(1 / 4, rel=0.01)
    assert busy == pytest.approx({"fast": 0.25, "slow": 1.0, "wide": 0.5}, rel=0.01)


def test_two_customers_are_those_of_the_textbook() -> None:
    """Two customers, no thinking, two equal stations: each is busy two thirds of the time."""
    rate, busy = blocks_a_second(2, 0.0, (Station("a", 1.0), Station("b", 1.0)))
    assert rate == pytest.approx(2 / 3)
    assert busy == pytest.approx({"a": 2 / 3, "b": 2 / 3})


def test_each_wall_can_be_the_one_that_counts(figures: Any) -> None:
    constants = measured(figures)
    for wall, changed in {
        "the service": {"images_a_minute": 60.0},
        "the object storage": {"put_rate": 1.0},
        "the database's disk": {"database_disk": 1e4},
        "the database's CPU": {"database_cores": 1},
        "the workers' CPU": {},
    }.items():
        given = replace(NOTHING_REFUSES, **changed)
        workers = 1 if wall == "the workers' CPU" else 60
        assert jobs_a_second(workers, constants, given, whole_plan=False)[1] == wall


def test_a_night_buys_every_row_once_and_no_more_than_it_has_time_for(figures: Any) -> None:
    constants = measured(figures)
    short = simulate(4, 1e5, constants, NOTHING_REFUSES)
    assert short.whole
    assert short.bought == pytest.approx(1e5)
    assert sum(short.walls.values()) <= short.seconds <= NOTHING_REFUSES.night
    long = simulate(4, 1e12, constants, replace(NOTHING_REFUSES, images_a_minute=60))
    assert not long.whole
    assert long.seconds == NOTHING_REFUSES.night
    assert long.bought <= NOTHING_REFUSES.night


def test_workers_that_die_cost_time(figures: Any) -> None:
    constants = measured(figures)
    healthy = simulate(10, 1e6, constants, replace(NOTHING_REFUSES, hours_to_death=1e9))
    dying = simulate(10, 1e6, constants, replace(NOTHING_REFUSES, hours_to_death=0.2))
    assert healthy.deaths == 0 < dying.deaths
    assert dying.seconds > healthy.seconds
