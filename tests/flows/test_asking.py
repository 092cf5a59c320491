"""When a run asks a person whether to buy, and what the ledger keeps of it: without Prefect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import callsheet
from callsheet.errors import InputError, Interrupted
from callsheet.pricing.choice import Choice
from callsheet.pricing.plan import open_plan
from callsheet.python import calls
from callsheet.watch import Asked, LogWatcher
from tests.conftest import Project

Make = Callable[..., Project]


def images(count: int) -> list[dict[str, Any]]:
    return [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(count)]


def dearer(made: Project, name: str = "sketch-1") -> None:
    """All rates of the model double."""
    models = made.backlot.service.models
    rates = [rate.model_copy(update={"unit_price": rate.unit_price * 2}) for rate in models[name].rates]
    models[name] = models[name].model_copy(update={"rates": tuple(rates)})


def test_every_question_is_kept_with_its_answer(project: Make) -> None:
    made = project(images(2))
    made.set(budget={"approve_above": "0.0010"})
    assert made.run().stop_reason == "approval"
    assert callsheet.run(made.config, yes=True).stored == 2
    first, second = callsheet.status(made.config).approvals
    assert (first.decision, first.decided_at) == (None, None)
    assert (second.decision, second.place) == ("approved", "python")
    assert (second.jobs, second.quoted) == (2, Decimal("0.0030"))
    assert second.plan == open_plan(made.folder / "out/report/plan.parquet").sha256()
    assert [one["decision"] for one in made.report()["approvals"]] == [None, "approved"]
    dearer(made)
    assert made.run().outcome == "complete", "nothing to buy needs nobody"


def test_changed_rates_must_be_approved_whatever_the_price(project: Make) -> None:
    """Whoever has looked at them before: in a quote, in a run that ended after pricing, at the question."""
    made = project(images(2))
    made.set(budget={"approve_above": "1.00"})
    assert made.run().stored == 2
    made.rows(*images(3))
    dearer(made)
    asyncio.run(calls.quote(made.config, None, None))
    with pytest.raises(InputError):
        made.run(choice=Choice(only=("no such row",)))
    with pytest.raises(Interrupted):
        made.run(watcher=Interrupting())
    stopped = made.run()
    assert (stopped.stop_reason, stopped.stored) == ("approval", 2)
    assert "a rate has changed: sketch-1" in str(stopped.stop_message)
    assert [one.decision for one in stopped.approvals] == [None, None], (
        "questions are kept before they are asked"
    )
    assert made.run(approved=True).stored == 3
    made.rows(*images(4))
    assert made.run().stored == 4, "these rates are approved"


class Interrupting(LogWatcher):
    """Somebody who presses Ctrl-C at the question."""

    async def approves(self, asked: Asked) -> bool:
        raise Interrupted("stopped by SIGINT")


class Refusing(LogWatcher):
    """Somebody who says no."""

    async def approves(self, asked: Asked) -> bool:
        return False


def test_rates_that_were_refused_are_asked_about_again(project: Make) -> None:
    made = project(images(1))
    made.set(budget={"approve_above": "1.00"})
    made.run()
    made.rows(*images(2))
    dearer(made)
    assert [made.run(watcher=Refusing()).stop_reason for _ in range(2)] == ["approval", "approval"]
    assert [one["decision"] for one in made.report()["approvals"]] == ["refused", "refused"]
    assert made.run().stop_reason == "approval"


def test_the_rates_of_a_model_that_came_later_must_be_approved_too(project: Make) -> None:
    made = project(images(1))
    made.set(budget={"approve_above": "0"})
    made.run(approved=True)
    made.set(budget={"approve_above": "1.00"})
    videos = [{"id": f"v{n}", "prompt": f"video {n}", "model": "dailies-1", "duration": 1} for n in range(2)]
    made.rows(*images(1), *videos[:1])
    assert made.run().stored == 2, "a new model has no rates that could have changed"
    dearer(made, "dailies-1")
    assert made.run().stored == 2, "nothing of it is to buy"
    made.rows(*images(1), *videos)
    assert made.run().stop_reason == "approval"
    assert "dailies-1" in str(made.run().stop_message), "also the next time"
