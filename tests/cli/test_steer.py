"""`set`, `pause` and `resume`: a person changes a run that is at work, through the ledger."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

import callsheet
from callsheet.config.load import changed_values, load
from callsheet.ledger.changes import PAUSED
from callsheet.ledger.tables import changes
from callsheet.present import allowances
from callsheet.present.under_way import line
from callsheet.records import ModelType, Progress, State
from callsheet.report.summary import Status, Summary
from callsheet.session import Bounds
from callsheet.steps import batch
from callsheet.steps.steer import change_setting
from callsheet.watch import WATCHER, LogWatcher
from tests.cli.test_review import refused
from tests.cli.test_rows import printed
from tests.conftest import Project

Make = Callable[..., Project]
PRICE = Decimal("0.0015")
JOBS = 24
ROWS = [{"id": f"i{number}", "prompt": f"image {number}", "model": "sketch-1"} for number in range(JOBS)]


class Person(LogWatcher):
    """Waits until a run is so far, and hears what it says."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.shown = Progress(0, {}, Decimal(0))
        self._news = asyncio.Event()

    def progress(self, progress: Progress) -> None:
        self.shown = progress
        self._news.set()

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._news.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._news.clear()
            await self._news.wait()

    def count(self, *states: State) -> int:
        return sum(self.shown.states.get(state, 0) for state in states)


def at_work(made: Project, person: Person, acts: Callable[[], Awaitable[None]], **bounds: Any) -> Summary:
    """The summary of a run during which a person acts."""

    async def main() -> Summary:
        WATCHER.set(person)
        steps = batch.Steps(bounds=Bounds(plots=0.0, changes=0.05))
        running = asyncio.create_task(batch.generate(load(made.config), approved=False, steps=steps))
        acting = asyncio.create_task(acts())
        await asyncio.wait([running, acting], return_when=asyncio.FIRST_COMPLETED)
        if acting.done():
            acting.result()
        summary = await running
        acting.cancel()
        return summary

    return asyncio.run(main())


def slow(project: Make) -> Project:
    made = project(ROWS, image_seconds=0.2, concurrency=2)
    made.set(budget={"limit": "1.00"})
    return made


def test_a_pause_holds_the_buying_and_resume_lets_it_go_on(project: Make) -> None:
    made, person = slow(project), Person()
    held: list[int] = []
    told: list[tuple[dict[str, str] | None, str]] = []

    async def stands() -> None:
        words, as_json = [
            await asyncio.to_thread(printed, "status", str(made.config), *option)
            for option in ((), ("--json",))
        ]
        told.append((json.loads(as_json)["paused"], words))

    async def acts() -> None:
        settings = load(made.config)
        await person.until(lambda: person.count(State.STORED) >= 2)
        await stands()
        await change_setting(settings, {PAUSED: True}, by="anna")
        await person.until(lambda: any("paused: by anna" in note for note in person.notes))
        await person.until(lambda: line(person.shown).endswith("the buying is paused"))
        await person.until(lambda: not person.count(State.SUBMITTING, State.GENERATED))
        held.append(len(made.sold))
        before = person.shown
        await person.until(lambda: person.shown is not before)  # half a second later
        held.append(len(made.sold))
        await stands()
        await change_setting(settings, {PAUSED: False}, by="anna")
        await stands()

    summary = at_work(made, person, acts)
    assert held[0] == held[1] < JOBS
    assert (summary.stored, summary.outcome, len(made.sold)) == (JOBS, "complete", JOBS)
    with sa.create_engine(f"sqlite:///{made.folder}/out/ledger.db").connect() as connection:
        said = sa.select(changes.c.value, changes.c.changed_by).where(changes.c.run_id.is_(None))
        kept = connection.execute(said).all()
    assert [tuple(row) for row in kept] == [(True, "anna"), (False, "anna")]

    (_, words), (paused, words_of_pause), (_, words_after) = told
    assert [bool(each) for each, _ in told] == [False, True, False]
    assert paused is not None
    when = datetime.fromisoformat(paused.pop("when"))
    assert (paused, when.tzinfo) == ({"who": "anna"}, UTC)
    assert re.search(rf"Paused +by anna, since {when:%Y-%m-%d %H:%M:%S} UTC", words_of_pause)
    assert f"callsheet resume {made.config}" in words_of_pause
    assert "Paused" not in words + words_after


def test_a_pause_is_of_the_runs_at_work_and_ends_with_them(project: Make) -> None:
    made, person = slow(project), Person()
    status: list[Status] = []

    async def acts() -> None:
        await person.until(lambda: person.count(State.STORED) >= 2)
        await change_setting(load(made.config), {PAUSED: True}, by="anna")
        status.append(await callsheet.status_async(made.config))
        os.kill(os.getpid(), signal.SIGTERM)

    summary = at_work(made, person, acts)
    assert summary.stop_reason == "interrupted"
    assert status[0].paused is not None
    assert callsheet.status(made.config).paused is None, "the next run buys"
    assert made.run().stored == JOBS


@pytest.mark.parametrize("wall", ["budget.limit", "budget.ledger"])
def test_a_budget_below_what_is_spent_stops_the_buying_politely(project: Make, wall: str) -> None:
    made, person = slow(project), Person()

    async def acts() -> None:
        await person.until(lambda: person.count(State.STORED) >= 4)
        settings, values = changed_values(made.config, [f"{wall}=0.0030"])
        assert values == {wall: "0.0030"}
        await change_setting(settings, values)

    summary = at_work(made, person, acts)
    assert (summary.outcome, summary.stop_reason, summary.exit_code) == ("stopped", "budget", 4)
    assert 4 <= summary.stored < JOBS
    assert summary.stored == len(made.sold)
    assert summary.in_doubt == summary.pending == 0


def test_a_higher_budget_and_other_limits_count_at_once_and_the_commands_say_which_runs_they_reach(
    project: Make,
) -> None:
    made, person = slow(project), Person()
    made.set(budget={"limit": "0.0180", "ledger": "0.0210"})  # 12 of the 24, and 14
    told: list[dict[str, Any]] = []

    async def acts() -> None:
        config = str(made.config)
        await person.until(lambda: person.count(State.STORED) >= 2)
        values = ["budget.limit=2.00", "budget.ledger=3.00", "limits.image_rpm=500", "poll.interval=0.2"]
        values.append("stop_after=3")
        for words in (("set", config, *values, "--json"), ("status", config, "--json")):
            told.append(json.loads(await asyncio.to_thread(printed, *words)))

    summary = at_work(made, person, acts)
    assert (summary.stored, summary.outcome) == (JOBS, "complete")
    assert person.shown.limit == Decimal("2.00")
    assert person.shown.pacing[ModelType.IMAGE].limit == 500
    assert told[0]["changed"]["budget.limit"] == "2.00"
    assert told[0]["changed"]["budget.ledger"] == "3.00"
    assert [run["jobs"] > 0 for run in told[0]["runs"]] == [True]
    assert ("budget.limit", "2.00") in [(each["setting"], each["value"]) for each in told[1]["changes"]]


def test_what_is_changed_is_said_as_a_config_has_it() -> None:
    assert allowances.changed("budget.limit", "4.00") == "budget.limit is 4.00"
    assert allowances.changed("budget.limit", None) == "budget.limit is null"


def test_what_cannot_be_changed_says_so(project: Make) -> None:
    made = project(ROWS[:1])
    config = str(made.config)
    assert "storage.url cannot be changed while a run is at work" in refused("set", config, "storage.url=x")
    assert "budget.limit" in refused("set", config, "budget.limit=much")
    assert "did you mean limit?" in refused("set", config, "budget.limt=1")
    assert "there is no ledger" in refused("pause", config)
    made.run()
    for words in (("set", config, "budget.limit=2.00"), ("pause", config), ("resume", config)):
        assert "no run of test is at work" in refused(*words)
