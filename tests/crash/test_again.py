"""A run that buys again what is rejected is killed, and goes on: the same sample, once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.crash.killed_batch import forked_run
from tests.long_form import mostly_soak
from tests.steps.test_again import images, reject_all, samples

Make = Callable[..., Project]
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


def killed(made: Project, point: str) -> None:
    """The first purchase of a run comes to this point, where the run is killed."""
    code = forked_run(made.folder, {"kill": {"point": point, "nth": 1}}, dict(os.environ))
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
