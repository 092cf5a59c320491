"""A run is as fast as the account allows, almost without a 429, against a simulated service."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial

import pytest

from benchmarks.bench_limits import QUICK, SLOW, Outcome, simulate
from benchmarks.simulated_service import (
    METERS,
    SHAPES,
    FixedWindow,
    Scenario,
)
from callsheet.limits.turns import Learned
from callsheet.records import ModelType
from tests.limits.virtual_time import FIXED, IMAGE, VIDEO


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("rpm", "concurrency", "seconds"),
    [({IMAGE: 60}, 50, SLOW), ({IMAGE: 600}, 10, QUICK)],
    ids=["window is short", "lanes are short"],
)
def test_a_cold_run_is_within_5_percent_of_the_ideal_with_few_429s(
    shape: str, rpm: dict[ModelType, int], concurrency: int, seconds: tuple[float, float]
) -> None:
    [run] = simulate(Scenario(shape, rpm, concurrency, seconds, duration=300), runs=1)
    check_cold(run, shape)


def check_cold(run: Outcome, shape: str) -> None:
    assert run.ratio >= 0.95
    assert run.refused["lanes"] <= 10  # the ramp's overshoot, and three probes
    assert run.refused["window"] <= (20 if shape.startswith("bucket") else 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_with_remembered_limits_begins_without_429s(shape: str) -> None:
    scenario = Scenario(shape, {IMAGE: 600, VIDEO: 60}, 50, QUICK, duration=240)
    cold, again = simulate(scenario, idle=5)
    check_cold(cold, shape)
    assert cold.learned == Learned(**json.loads(json.dumps(asdict(cold.learned))))
    assert again.refused["window"] <= (2 if shape.startswith("bucket") else 1)
    assert again.refused["lanes"] <= 3  # its own probes
    assert again.ratio >= 0.95


@pytest.mark.parametrize("shape", SHAPES)
def test_a_count_of_the_answers_moment_is_as_good_as_one_of_the_requests(shape: str) -> None:
    outcomes = simulate(Scenario(shape, {IMAGE: 600}, 110, SLOW, counted_late=True, duration=240))
    assert all(run.ratio >= 0.95 for run in outcomes)
    assert outcomes[-1].refused["window"] <= (120 if shape.startswith("bucket") else 5)  # of 2,400


@pytest.mark.parametrize("late", [20.0, -20.0])
@pytest.mark.parametrize("shape", FIXED)
def test_a_wrong_clock_is_corrected_by_the_services_date(shape: str, late: float) -> None:
    [run] = simulate(Scenario(shape, {IMAGE: 600}, 100, SLOW, wrong_clock=late, duration=300), runs=1)
    assert run.ratio >= 0.95
    assert run.refused["window"] <= 1


@pytest.mark.parametrize("late", [20.0, -20.0])
def test_a_wrong_clock_without_a_date_is_learned_at_the_first_reset(late: float) -> None:
    scenario = Scenario(SHAPES[0], {IMAGE: 600}, 200, SLOW, wrong_clock=late, dated=False)
    [run] = simulate(scenario, runs=1)
    assert run.ratio >= 0.9
    assert run.refused["window"] <= 40  # nine more resets would cost some 200 each


@pytest.mark.parametrize("shape", FIXED)
@pytest.mark.parametrize("round_up", [True, False])
def test_a_reset_that_is_rounded_up_or_down_costs_no_429(shape: str, round_up: bool) -> None:
    [run] = simulate(Scenario(shape, {IMAGE: 600}, 100, QUICK, round_up=round_up, duration=300), runs=1)
    assert run.refused["window"] == 0


def test_other_clients_of_the_same_workspace_are_counted() -> None:
    [run] = simulate(Scenario(SHAPES[0], {IMAGE: 600}, 50, QUICK, others=200), runs=1)
    assert run.ratio >= 0.95
    assert run.refused["window"] <= 0.01 * 10 * 400  # of some 4,000 sends


@pytest.mark.parametrize("window", [10.0, 300.0])
def test_a_window_of_another_length_is_followed_by_its_reset(
    window: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METERS, "odd", partial(FixedWindow, window=window))
    [run] = simulate(Scenario("odd", {IMAGE: 200}, 50, QUICK, duration=max(150, 2 * window)), runs=1)
    assert run.ratio >= 0.95
    assert run.refused["window"] <= 3
