"""A command is one run, which buys in portions: what happens between two of them counts at once.

Each trial has it happen at another step of the event loop, from the end of the first portion's files to the
end of the command: so at every point at which the run waits for anything.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callsheet import signals
from callsheet.config.load import load
from callsheet.errors import ConfigError, LedgerError, Stop
from callsheet.ledger.changes import LIMIT, PAUSED
from callsheet.ledger.ledger import Ledger
from callsheet.report.summary import Summary
from callsheet.session import Bounds, Run
from callsheet.steps import batch
from callsheet.steps.steer import change_setting
from tests.conftest import Make
from tests.long_form import mostly_soak
from tests.servers.forks import forks
from tests.steps.test_again import PRICE, with_check
from tests.waiting import wait_until

# A process that a stopped run has not waited for is forgotten after the trial's event loop is closed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

LANES = 4
ALL = {"pilot": 6, "rounds": 2 * 3}
FIRST = {"pilot": 2, "rounds": 2}
KINDS = pytest.mark.parametrize("kind", list(ALL))
EVERY = pytest.mark.parametrize("every", mostly_soak([2, 250], 250))
"""How many steps apart the trials are."""


class Stepping(asyncio.SelectorEventLoop):
    """Counts its own steps from `begin` on, and calls `act` at one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = self.at = -1
        self.act: Callable[[], None] = lambda: None

    def begin(self, at: int, act: Callable[[], None]) -> None:
        self.steps, self.at, self.act = 0, at, act

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        if self.steps >= 0:
            self.steps += 1
            if self.steps == self.at:
                self.act()


class Trial:
    """A batch of its own, and a command that buys it while something happens after its first portion.

    `kind`: what comes after the first portion: the rest after a `pilot`, or `rounds` of what a check rejects.

    Attributes:
        steps: how many steps the event loop took after the first portion.
        portions: how many portions had begun when it happened; 0 where the command ended before.
        sold: how much of the batch the service had sold then.
    """

    def __init__(self, folder: Path, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self.steps = self.portions = self.sold = 0
        self.ledger = folder / f"{kind}-{name}.db"
        rounds = {"input.path": "two.csv", "review.buy_again": True, "review.samples": 3}
        own = {
            "batch": f"{kind}-{name}",
            "ledger.url": f"sqlite:///{self.ledger}",
            "report.url": f"{folder}/{kind}-{name}",
            "limits.concurrency": LANES,
        }
        own |= {"input.path": "six.csv", "budget.pilot": 2} if kind == "pilot" else rounds
        self.settings = load(folder / "batch.yaml", (), values=own)

    def run(self, at: int = 0, happens: Callable[[Run], None] = lambda _: None) -> Summary:
        """Buys the batch; at a step after its first portion, something happens."""
        plain = batch.Steps(bounds=Bounds(plots=0.0, changes=0.02))
        steps = plain if self.kind == "pilot" else with_check(plain, lambda *_: True)
        loop = Stepping()

        def act(run: Run) -> None:
            self.portions, self.sold = run.portions, self.count()
            happens(run)

        async def when_collected(run: Run) -> None:
            await run.collected.wait()
            loop.begin(at, partial(act, run))

        async def record(run: Run) -> Summary:
            watching = asyncio.create_task(when_collected(run)) if run.portions == 1 else None
            summary = await steps.record(run)
            assert watching is None or watching.done()
            return summary

        self.portions = 0
        work = batch.generate(self.settings, approved=True, steps=replace(steps, record=record))
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                return runner.run(work)
            finally:
                self.steps = loop.steps

    def count(self) -> int:
        """How many jobs the ledger knows to be sent."""
        with closing(sqlite3.connect(self.ledger)) as ledger:
            query = "SELECT count(*) FROM attempts WHERE state != 'planned'"
            return int(ledger.execute(query).fetchone()[0])

    def assert_finishes(self, *, killed: bool = False) -> None:
        """The same command buys the rest, each once, for what it was quoted.

        What was on the wire of a run that was killed is in doubt, and its row waits for a person.
        """
        summary = self.run()
        assert summary.stored + summary.in_doubt == self.count()
        assert self.count() == ALL[self.kind] or (summary.in_doubt and self.kind == "rounds")
        assert summary.in_doubt <= (LANES if killed else 0)
        assert summary.spent == summary.stored * PRICE


Trials = Callable[..., Iterator[tuple[Trial, int]]]


@pytest.fixture
def trials(project: Make) -> Iterator[Trials]:
    """New trials, each with a step at which something is to happen, `every` so many."""
    made = project([{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(6)])
    lines = (made.folder / "prompts.csv").read_text().splitlines(keepends=True)
    (made.folder / "six.csv").write_text("".join(lines))
    (made.folder / "two.csv").write_text("".join(lines[:3]))
    begun: list[Trial] = []

    def make(kind: str, every: int) -> Iterator[tuple[Trial, int]]:
        begun.append(first := Trial(made.folder, kind, "first"))
        first.run()
        for at in range(1 + every // 2, first.steps, every):
            begun.append(Trial(made.folder, kind, str(at)))
            yield begun[-1], at

    yield make
    assert made.charged == len(made.sold) * PRICE
    assert len(made.sold) <= sum(trial.count() for trial in begun), "nothing twice, over all of them"


@KINDS
@EVERY
def test_a_signal_between_two_portions_is_a_pause(trials: Trials, kind: str, every: int) -> None:
    for trial, at in trials(kind, every):
        summary = trial.run(at, lambda _: send(signal.SIGINT))
        if trial.portions == 1:
            assert trial.count() == FIRST[kind], f"step {at}"
            assert (summary.stop_reason, summary.exit_code) == ("interrupted", 4), f"step {at}"
            assert "stopped by SIGINT" in str(summary.stop_message)
        elif trial.portions:
            assert trial.count() <= trial.sold + LANES, f"step {at}"
        trial.assert_finishes()


@KINDS
@EVERY
def test_a_second_signal_ends_it_at_once(trials: Trials, kind: str, every: int) -> None:
    def twice(_: Run) -> None:
        send(signal.SIGINT)
        asyncio.get_running_loop().call_soon(send, signal.SIGTERM)

    for trial, at in trials(kind, every):
        with suppress(Stop):
            trial.run(at, twice)
        assert trial.count() == FIRST[kind] or trial.portions != 1, f"step {at}"


def send(number: signal.Signals) -> None:
    """Sends this process a signal, while a run hears it."""
    if signal.getsignal(number) is signals._tell:
        os.kill(os.getpid(), number)


def said(trial: Trial, values: dict[str, Any], then: Callable[[], None] = lambda: None) -> threading.Thread:
    """Somebody changes settings in another process; `then` is called when that is confirmed."""

    def work() -> None:
        with suppress(ConfigError):  # the run has just ended
            asyncio.run(change_setting(trial.settings, values, "somebody"))
            then()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@KINDS
@EVERY
def test_a_pause_that_is_confirmed_between_two_portions_holds(trials: Trials, kind: str, every: int) -> None:
    for trial, at in trials(kind, every):
        threads: list[threading.Thread] = []
        held: list[bool] = []
        over = threading.Event()

        def happens(
            run: Run, trial: Trial = trial, threads: Any = threads, held: Any = held, over: Any = over
        ) -> None:
            def confirmed() -> None:
                sent = trial.count()
                first = run.portions == 1
                wait_until(lambda: run.portions > 1 or over.is_set(), "the next portion has not begun")
                wait_until(lambda: run.awaited_costs.count or over.is_set(), "nothing is reserved")
                held.append(not first or trial.count() == sent)
                asyncio.run(change_setting(trial.settings, {PAUSED: False}, "somebody"))

            if run.portions == 1:
                threads.append(said(trial, {PAUSED: True}, confirmed))

        summary = trial.run(at, happens)
        over.set()
        for thread in threads:
            thread.join()
        assert all(held), f"step {at}"
        assert (summary.stored, summary.exit_code) == (ALL[kind], 0), f"step {at}"


@KINDS
@EVERY
def test_a_limit_that_is_confirmed_between_two_portions_counts(trials: Trials, kind: str, every: int) -> None:
    for trial, at in trials(kind, every):
        threads: list[threading.Thread] = []
        limit = str(FIRST[kind] * PRICE)

        def happens(run: Run, trial: Trial = trial, threads: Any = threads, limit: str = limit) -> None:
            if run.portions == 1:  # in the same transaction as what is sent, so at once
                with closing(sqlite3.connect(trial.ledger)) as ledger, ledger:
                    ledger.execute(
                        "INSERT INTO changes SELECT coalesce(max(number), 0) + 1, ?, ?, ?, NULL, '[]', "
                        "'somebody', '2026-01-01T00:00:00.000000Z' FROM changes",
                        (trial.settings.batch, LIMIT, f'"{limit}"'),
                    )

        summary = trial.run(at, happens)
        if trial.portions == 1:
            assert (trial.count(), summary.stop_reason) == (FIRST[kind], "budget"), f"step {at}"
        trial.assert_finishes()


@KINDS
@EVERY
def test_a_ledger_that_fails_between_two_portions_buys_nothing(
    trials: Trials, kind: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "open", partial(Ledger.open, lease=0.5, busy=0.01))
    for trial, at in trials(kind, every):
        locks: list[sqlite3.Connection] = []

        def happens(_: Run, trial: Trial = trial, locks: Any = locks) -> None:
            lock = sqlite3.connect(trial.ledger, isolation_level=None, timeout=60)
            lock.execute("BEGIN IMMEDIATE")
            locks.append(lock)

        try:
            trial.run(at, happens)
        except LedgerError as error:
            assert error.exit_code == 3, f"step {at}"
        except BaseExceptionGroup as group:
            assert group.subgroup(LedgerError), f"step {at}"
        finally:
            for lock in locks:
                lock.close()
        assert trial.count() == FIRST[kind] or trial.portions != 1, f"step {at}"
        trial.assert_finishes()


def killed(folder: str, kind: str, name: str, at: int) -> None:
    """In a process of its own: the run is killed at a step."""
    Trial(Path(folder), kind, name).run(at, lambda _: os.kill(os.getpid(), signal.SIGKILL))


@KINDS
@pytest.mark.parametrize("every", mostly_soak([5, 250], 250))
def test_a_run_that_is_killed_between_two_portions_is_finished_by_the_next(
    trials: Trials, kind: str, every: int
) -> None:
    for trial, at in trials(kind, every):
        where = (str(trial.ledger.parent), kind, trial.name, at)
        with forks().start(
            "-c", f"from {__name__} import killed; killed(*{where!r})", stderr=sys.stderr
        ) as process:
            process.wait()
        trial.assert_finishes(killed=True)
