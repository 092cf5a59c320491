"""The proofs of `test_points`, with the ledger in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.crash.conftest import MakeBatch
from tests.crash.test_points import AGAIN, POINTS, at_later_passings, at_random_times, killed_at

MONEY = ("submit", "ledger.generated", "ledger.reserve", "ledger.begin_run")


@pytest.fixture
def on_postgresql(new_batch: MakeBatch, new_database: Callable[[], str]) -> MakeBatch:
    return partial(new_batch, ledger={"url": new_database()})


@pytest.mark.parametrize(
    "step", [*MONEY, *(pytest.param(step, marks=pytest.mark.soak) for step in AGAIN if step not in MONEY)]
)
def test_a_run_killed_before_a_step_and_again_after_it_is_finished_by_the_next(
    on_postgresql: MakeBatch, step: str
) -> None:
    killed_at(on_postgresql, f"before {step}", f"after {step}")


@pytest.mark.soak
@pytest.mark.parametrize("point", [point for point in POINTS if point.split()[1] not in AGAIN])
def test_a_run_killed_at_a_point_is_finished_by_the_next(on_postgresql: MakeBatch, point: str) -> None:
    killed_at(on_postgresql, point)


@pytest.mark.soak
def test_a_run_killed_at_any_time_again_and_again_is_finished_by_the_next(on_postgresql: MakeBatch) -> None:
    at_random_times(on_postgresql, seed=1, kills=4)


@pytest.mark.soak
@pytest.mark.parametrize("nth", [2, 4])
@pytest.mark.parametrize("point", POINTS)
def test_long_form_every_point_at_later_passings(on_postgresql: MakeBatch, point: str, nth: int) -> None:
    at_later_passings(on_postgresql, point, nth)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
def test_long_form_at_any_time(on_postgresql: MakeBatch, seed: int) -> None:
    at_random_times(on_postgresql, seed, kills=5)
