"""A run is killed at each named point, and the same command finishes the job: paid once, nothing lost."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Make, Project
from tests.crash.conftest import MakeBatch
from tests.crash.killed_batch import IMAGE, forked_run
from tests.long_form import mostly_soak
from tests.steps.test_again import images, reject_all, samples

AGAIN = (  # passed again by the run after one that was killed before it
    "ledger.begin_run",
    "ledger.let_begin",
    "ledger.reserve",
    "ledger.submitting",
    "ledger.pending",
    "ledger.generated",
    "ledger.failed",
    "ledger.renamed",
    "ledger.stored",
    "ledger.lost",
    "ledger.found",
    "ledger.learn",
    "ledger.end_run",
    "submit",
    "store.put",
)
ONCE = ("ledger.planned_again", "ledger.in_doubt", "ledger.refreshed")
POINTS = (*(f"{when} {step}" for step in AGAIN + ONCE for when in ("before", "after")), "after spool")
MONEY = ("submit", "ledger.generated", "ledger.reserve", "ledger.begin_run")


@pytest.fixture
def on_postgresql(new_batch: MakeBatch, new_database: Callable[[], str]) -> MakeBatch:
    return partial(new_batch, ledger={"url": new_database()})


def test_without_a_crash_every_point_is_passed_and_the_records_agree(new_batch: MakeBatch) -> None:
    made = new_batch()
    assert made.run(record="points") == 3, made.log()
    assert set((made.folder / "points").read_text().splitlines()) == set(POINTS)
    made.compare()


@pytest.mark.parametrize("step", AGAIN)
def test_a_run_killed_before_a_step_and_again_after_it_is_finished_by_the_next(
    new_batch: MakeBatch, step: str
) -> None:
    killed_at(new_batch, f"before {step}", f"after {step}")


@pytest.mark.parametrize(
    "step", [*MONEY, *(pytest.param(step, marks=pytest.mark.soak) for step in AGAIN if step not in MONEY)]
)
def test_so_it_is_with_a_ledger_in_postgresql(on_postgresql: MakeBatch, step: str) -> None:
    killed_at(on_postgresql, f"before {step}", f"after {step}")


@pytest.mark.parametrize("point", [point for point in POINTS if point.split()[1] not in AGAIN])
def test_a_run_killed_at_a_point_is_finished_by_the_next(new_batch: MakeBatch, point: str) -> None:
    killed_at(new_batch, point)


def killed_at(new_batch: MakeBatch, *points: str) -> None:
    """Kills a run at each of these points, one after another, and lets the next one finish."""
    made = new_batch()
    for point in points:
        assert made.run(kill={"point": point, "nth": 1}) == -9, made.log()
    assert made.run() == 3, made.log()
    made.compare()


def test_a_run_killed_at_any_time_again_and_again_is_finished_by_the_next(new_batch: MakeBatch) -> None:
    at_random_times(new_batch, seed=1, kills=8)


def at_random_times(new_batch: MakeBatch, seed: int, kills: int) -> None:
    """Kills so many runs of one batch, with a contact sheet, from outside at times that `seed` decides."""
    made, chance = new_batch(report={"plots": False}), random.Random(seed)
    for _ in range(kills):
        assert made.run(kill_after=chance.uniform(0.02, 0.5)) in (-9, 3), made.log()
    assert made.run() == 3, made.log()
    made.compare()


def test_the_budget_is_a_wall_for_all_the_runs_together_that_were_killed(new_batch: MakeBatch) -> None:
    """What the dead runs may have spent counts too."""
    rows = {f"image-{n}": ({"prompt": f"image-{n}", **IMAGE}, "stored") for n in range(60)}
    made = new_batch(rows, budget={"limit": "0.0450"})
    for point in ("before submit", "after submit", "before ledger.generated", "after ledger.submitting"):
        assert made.run(kill={"point": point, "nth": 3}) == -9, made.log()
    assert made.run() == 4, made.log()
    bought = made.service.bought()
    assert len({each.prompt for each in bought}) == len(bought)
    held = sum((row["cost"] or row["quoted"] for row in made.ledger().values()), Decimal(0))
    assert sum((each.cost for each in bought), Decimal(0)) <= held <= Decimal("0.0450")
    assert held + Decimal("0.0015") > Decimal("0.0450"), "what still fits is bought"


@pytest.mark.soak
@pytest.mark.parametrize("database", ["new_batch", "on_postgresql"])
@pytest.mark.parametrize("nth", [2, 3, 4, 6])
@pytest.mark.parametrize("point", POINTS)
def test_long_form_every_point_at_later_passings(
    request: pytest.FixtureRequest, database: str, point: str, nth: int
) -> None:
    """The next run is killed at the first passing, where both come so far."""
    made = request.getfixturevalue(database)()
    for each in (nth, 1):
        assert made.run(kill={"point": point, "nth": each}) in (-9, 3), made.log()
    assert made.run() == 3, made.log()
    made.compare()


@pytest.mark.soak
@pytest.mark.parametrize("database", ["new_batch", "on_postgresql"])
@pytest.mark.parametrize("seed", range(2, 32))
def test_long_form_at_any_time(request: pytest.FixtureRequest, database: str, seed: int) -> None:
    at_random_times(request.getfixturevalue(database), seed, kills=5)


# ---- a run that buys again what is rejected is killed, and goes on: the same sample, once


UNSENT = ("before ledger.reserve", "after ledger.reserve", "before ledger.submitting")
SENDING = ("after ledger.submitting", "before submit", "after submit", "before ledger.generated")
BOUGHT = ("after ledger.generated", "before store.put", "after store.put", "before ledger.stored")


@pytest.fixture
def rejected(project: Make) -> Project:
    """A batch with two rows of which every file is rejected; its config says that they are bought again."""
    made = project(images("a", "b"))
    made.set(limits={"concurrency": 1}, review={"buy_again": True})
    made.run()
    reject_all(made)
    return made


def killed(made: Project, point: str, nth: int = 1) -> None:
    """A run comes to this point, the first time or another one, where it is killed."""
    code = forked_run(made.folder, {"kill": {"point": point, "nth": nth}}, dict(os.environ))
    assert code == -9, (made.folder / "run.log").read_text()


@pytest.mark.parametrize(
    "point",
    mostly_soak(
        (*UNSENT, *SENDING, *BOUGHT), "after ledger.reserve", "after submit", "after ledger.generated"
    ),
)
def test_a_run_killed_twice_buys_the_same_samples_once(rejected: Project, point: str) -> None:
    killed(rejected, point)
    plain = rejected.run("review.buy_again=false")
    assert plain.submissions == 0, "it buys no more than its own plan"
    if point not in BOUGHT and plain.in_doubt == 0:
        killed(rejected, point)
    done = rejected.run()
    sold = [each.recipe.prompt for each in rejected.sold]
    assert max(map(sold.count, sold)) == 2, "the first sample and the second"
    assert done.stored + done.in_doubt == 4
    if point in SENDING:
        assert done.in_doubt == 1, "what was on the wire is held"
    assert rejected.run().submissions == 0
    stored = set(samples(rejected))
    assert {("a", 1), ("b", 1)} <= stored <= {("a", 1), ("a", 2), ("b", 1), ("b", 2)}
    assert done.spent <= rejected.charged <= done.spent + done.in_doubt_exposure
    assert not list(Path(rejected.folder).rglob("answers-*.jsonl"))
