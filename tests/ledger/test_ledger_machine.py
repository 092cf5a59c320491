"""The ledger against an obvious model: any order of claims, steps, deaths, settlements and budgets."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from callsheet.errors import LedgerError
from callsheet.ledger import approvals, leases, queries, writing
from callsheet.ledger.approvals import Approval, Decision, Place, Question
from callsheet.ledger.budget import SpendingLimit, Wall
from callsheet.ledger.databases import open_engine
from callsheet.ledger.journal import Journal, PaidAnswer
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.queries import Policy
from callsheet.ledger.spending import settle
from callsheet.ledger.takeover import Owner
from callsheet.records import Attempt, Doubt, Job, ModelType, State
from tests.ledger import reading
from tests.ledger.buying import generation, job, submitting
from tests.ledger.model import STEPS, Try, answered_id, is_possible, make_step

pytestmark = pytest.mark.anyio

T = TypeVar("T")

PRICES = ("0.0100", "0.0400", "0.0900")
JOBS = [job(f"job-{number}", ModelType.VIDEO, price=PRICES[number % 3]) for number in range(4)]
OF_LEDGER = st.sampled_from([None, None, Decimal("0.15"), Decimal("0.60")])


@dataclass
class Given:
    """The model of an approval: `person` has given it, or nobody was asked."""

    plan: str
    at_most: Decimal
    person: bool


class LedgerMachine(RuleBasedStateMachine):
    """Runs come, buy, and go in every way; what the ledger says must be what the model says."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.engine = open_engine(f"sqlite:///{self.folder.name}/ledger.db")
        self.alive: list[Ledger] = []
        self.dead: list[Ledger] = []
        self.tries: list[Try] = []
        self.work = 0  # what runs have done since one of them began or went
        self.limit: Decimal | None = None
        self.given: dict[str, Given] = {}
        self.buys_by: dict[str, str] = {}  # by the run's id
        self.last: list[bool] = []  # charges, and whether they were dear
        self.accepted: dict[Decimal, Decimal] = {}  # by quote
        self.dearest: dict[Decimal, Decimal] = {}  # what nobody has accepted, by quote
        self.above = Decimal(0)
        self.elsewhere: list[Decimal] = []  # what another batch of the ledger has cost
        self.begins()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(work)

    def teardown(self) -> None:
        self.loop.close()
        self.engine.dispose()
        self.folder.cleanup()

    def newest(self, one: Job) -> Try | None:
        return next((each for each in reversed(self.tries) if each.job is one), None)

    def pick(self, data: st.DataObject, things: list[T]) -> T:
        return things[data.draw(st.integers(0, len(things) - 1))]

    def hand_back(self, unsent: Try) -> None:
        """What was reserved and not sent is free again; an attempt anew was none."""
        unsent.owner = None
        if unsent.number > 1:
            self.tries.remove(unsent)

    def leaves(self, one: Try) -> None:
        """The run of an attempt is over."""
        if one.state is State.SUBMITTING:
            one.state, one.owner = State.IN_DOUBT, None
        elif one.state is State.PLANNED:
            self.hand_back(one)

    def dead_runs_end(self) -> None:
        for each in list(self.tries):
            if each.owner not in self.alive:
                self.leaves(each)

    @contextmanager
    def foreseen(self) -> Iterator[None]:
        """Meanwhile the model is as everybody reads the ledger: as the next run will find it."""
        tries, self.tries = self.tries, [replace(each) for each in self.tries]
        self.dead_runs_end()
        yield
        self.tries = tries

    # ---- runs

    @rule()
    @precondition(lambda self: len(self.alive) < 2)
    def begins(self) -> None:
        """A run begins, and takes over from every dead one, as a reader could see before."""
        ledger = self.new_run()
        before = self.do(ledger.read(reading.everything))
        self.do(ledger.begin_run())
        assert self.do(ledger.read(reading.everything)) == before
        self.has_begun(ledger)

    @rule(one=st.sampled_from(JOBS))
    @precondition(lambda self: len(self.alive) < 2)
    def finds(self, one: Job) -> None:
        """A run begins, and finds an answer that a run has left which the ledger does not know.

        The job is paid for from now on, unless a run has it in hand, or it is paid for already.
        """
        journals = Path(tempfile.mkdtemp(dir=self.folder.name))
        ledger = self.new_run(journals)
        generation_id = f"req-found-{ledger.run_id}"
        own = Journal(journals, "unknown-run")
        sent = Attempt(one.key, 1, one.type, one.row_id, 1, one.model, request_key=one.request_key)
        paid = replace(generation(one.row_id, "0.0300"), id=generation_id)
        file = {"names": ("found.png",), "storage": "out"}
        own.append(
            PaidAnswer(sent, generation_id, paid.usage, paid.media, **file, batch="b", ledger_id="one")
        )
        own.close()
        self.do(ledger.begin_run(find=lambda _: {one.key: one}))
        last = self.newest(one)
        if last and (last.owner in self.alive or (last.has_id and last.state is not State.FAILED)):
            assert list(journals.iterdir())
        else:
            if last is None or last.state is not State.PLANNED:
                last = Try(one, last.number + 1 if last else 1, ledger)
                self.tries.append(last)
            last.owner, last.state, last.cost = ledger, State.GENERATED, Decimal("0.03")
            last.approval = ""
            last.generation_id = generation_id
            files = self.do(ledger.read(queries.unfinished, ledger.run_id))[1]
            [last.file] = [
                file
                for file in files
                if (file.attempt.job_key, file.attempt.number) == (one.key, last.number)
            ]
            assert not list(journals.iterdir())
        self.has_begun(ledger)

    def new_run(self, journals: Path | None = None) -> Ledger:
        run_id = f"run-{len(self.alive + self.dead)}"
        return Ledger(self.engine, Owner(run_id, "b", "one"), journal=journals)

    def has_begun(self, ledger: Ledger) -> None:
        """What dead runs had is the new run's."""
        for dead in self.dead[-3:]:  # the others have been refused before
            with pytest.raises(LedgerError, match="another run has taken its jobs over"):
                self.do(dead.renew())
        self.dead_runs_end()
        for each in self.tries:
            if each.owner in self.alive or each.owner is None:
                continue
            if each.is_polled or each.state is State.GENERATED:
                each.owner = ledger
        self.alive.append(ledger)
        self.work = 0

    @rule(data=st.data(), orderly=st.booleans())
    @precondition(lambda self: self.work > 2)  # otherwise most of what happens would be that runs come and go
    def goes(self, data: st.DataObject, orderly: bool) -> None:
        """A run ends, and what it had reserved is free at once; or it dies in the middle of its work."""
        ledger = self.pick(data, self.alive)
        if orderly:
            self.do(ledger.end_run())
            for each in list(self.tries):
                if each.owner is ledger:
                    self.leaves(each)
        else:
            leases.forget(ledger.run_id)
        self.alive.remove(ledger)
        self.dead.append(ledger)
        self.work = 0
        if not self.alive:
            self.begins()

    # ---- buying

    @rule(
        data=st.data(),
        wanted=st.just(JOBS) | st.lists(st.sampled_from(JOBS), unique_by=lambda one: one.key, min_size=1),
        limit=st.sampled_from(["0.05", "0.15", "9", "9"]),
        of_ledger=OF_LEDGER,
        retry_failed=st.booleans(),
        retry_doubt=st.booleans(),
        attempts=st.sampled_from([1, 2, 9]),
        skip=st.booleans(),
    )
    def reserves(
        self,
        data: st.DataObject,
        wanted: list[Job],
        limit: str,
        of_ledger: Decimal | None,
        retry_failed: bool,
        retry_doubt: bool,
        attempts: int,
        skip: bool,
    ) -> None:
        self.work += 1
        ledger = self.pick(data, self.alive)
        approval = self.buys_by.get(ledger.run_id, "")
        budget = SpendingLimit("b", Decimal(limit), approval=approval, of_ledger=of_ledger)
        policy = Policy(retry_failed=retry_failed, retry_doubt=retry_doubt, attempts=attempts)
        is_dear = self.wall(Decimal(0), budget, reserved=True) is Wall.PRICE  # as it is before
        result = self.do(ledger.reserve(wanted, policy, budget, skip=skip))
        expected: list[tuple[str, int]] = []
        expected_left: list[Job] = []
        for at, one in enumerate(wanted):
            last = self.newest(one)
            planned = last is not None and last.state is State.PLANNED
            mine = planned and last is not None and last.owner is ledger
            free = last is None or (planned and last.owner in (None, ledger)) or last.free_again
            failed = last is not None and last.state is State.FAILED and last.owner is not ledger
            free = free or (retry_failed and failed and last.number < attempts)
            in_doubt = last is not None and last.state is State.IN_DOUBT
            free = free or (retry_doubt and in_doubt and last.number < attempts and not last.has_id)
            if not free:
                continue
            wall = self.wall(one.quoted, budget, reserved=True)
            if not mine and (is_dear or wall not in (None, Wall.PRICE)):
                if skip:
                    expected_left.append(one)
                    continue
                expected_left = wanted[at:]
                break
            if last and planned:
                last.owner = ledger
            else:
                last = Try(one, last.number + 1 if last else 1, ledger)
                self.tries.append(last)
            last.approval = budget.approval
            expected.append((one.key, last.number))
        assert [(one.key, attempt.number) for one, attempt in result.reserved] == expected
        assert result.left == expected_left

    @rule(data=st.data(), times=st.integers(1, 8))
    @precondition(lambda self: any(each.owner and self.possible(each) for each in self.tries))
    def steps(self, data: st.DataObject, times: int) -> None:
        """Owners, dead ones too as long as nobody has taken over, carry out legal steps."""
        self.work += 1
        for _ in range(times):
            ready = [each for each in self.tries if each.owner and self.possible(each)]
            if not ready:
                return
            one = self.pick(data, ready)
            names = [name for name in self.possible(one) if name != "intend" or self.may_leave(one)]
            if not names:
                return
            name = self.pick(data, names)
            cost = data.draw(st.sampled_from(["0", "0.0100", "0.0450", "0.4000"]))
            assert one.owner is not None
            one.file = self.do(make_step(one.owner, one, name, cost)) or one.file
            one.state = STEPS[name][1]
            if name in ("pending", "generated"):
                one.generation_id = answered_id(one)
            if one.state in (State.GENERATED, State.FAILED):
                one.cost = Decimal(cost) if name == "generated" else Decimal(0)
            if name == "generated":
                self.charges(one.job.quoted, Decimal(cost))

    @rule(data=st.data(), limit=st.sampled_from(["0.05", "0.15", "0.60"]), of_ledger=OF_LEDGER)
    @precondition(lambda self: any(each.owner and each.state is State.PLANNED for each in self.tries))
    def sends(self, data: st.DataObject, limit: str, of_ledger: Decimal | None) -> None:
        """A job leaves only where it fits what is sent by now; otherwise it is no longer reserved."""
        self.work += 1
        ready = [each for each in self.tries if each.owner and each.state is State.PLANNED]
        one = self.pick(data, ready)
        assert one.owner is not None
        approval = self.buys_by.get(one.owner.run_id, "")
        budget = SpendingLimit("b", Decimal(limit), approval=approval, of_ledger=of_ledger)
        expected = self.wall(one.job.quoted, budget, reserved=False)
        wall = self.do(one.owner.intend(one.attempt, budget, {}))
        assert wall is expected
        if wall is None:
            one.state = State.SUBMITTING
        else:
            self.hand_back(one)

    @rule(data=st.data())
    @precondition(lambda self: self.tries)
    def strays(self, data: st.DataObject) -> None:
        """Every other step, and every step by another run, is refused as a whole, or was made already."""
        self.work += 1
        one, stranger = self.pick(data, self.tries), self.pick(data, self.alive + self.dead)
        illegal = [
            (ledger, name)
            for ledger in {one.owner or stranger, stranger}
            for name in STEPS
            if (one.file or name not in ("stored", "lost"))
            and not (ledger is one.owner and name in self.possible(one))
            and (name != "intend" or self.may_leave(one))
        ]

        async def tried() -> list[Any]:
            steps = [make_step(ledger, one, name, "0.0100") for ledger, name in illegal]
            return await asyncio.gather(*steps, return_exceptions=True)

        for (ledger, name), end in zip(illegal, self.do(tried()), strict=True):
            done = ledger is one.owner and one.is_done(name, Decimal("0.01"))
            assert isinstance(end, LedgerError) is not done

    def possible(self, one: Try) -> list[str]:
        return [name for name in STEPS if is_possible(name, one.state, has_id=one.has_id)]

    @rule(data=st.data(), charged=st.booleans())
    @precondition(lambda self: any(each.state is State.IN_DOUBT or each.is_polled for each in self.tries))
    def settles(self, data: st.DataObject, charged: bool) -> None:
        """A person settles one doubt or gives up one video, once; but nothing that a run at work asks for."""
        self.work += 1
        ledger = self.pick(data, self.alive + self.dead)
        doubt = self.pick(data, self.do(ledger.read(settleable)))
        [one] = [each for each in self.tries if (each.job.key, each.number) == (doubt.job_key, doubt.attempt)]
        with self.foreseen():
            [seen] = [each for each in self.tries if each.attempt == one.attempt]
            assert (doubt.state, doubt.is_accepted) == (seen.state, seen.has_id)
        if one.is_polled and one.owner in self.alive:
            with pytest.raises(LedgerError, match="a run at work asks the service for this video"):
                self.do(ledger.write(settle, [doubt], charged=charged, by="a person", why=None))
            return
        self.do(ledger.write(settle, [doubt], charged=charged, by="a person", why=None))
        self.dead_runs_end()
        one.state = State.LOST if charged else State.FAILED
        one.cost = one.job.quoted if charged else Decimal(0)
        one.free_again = not charged
        with pytest.raises(LedgerError, match="is no longer"):
            self.do(ledger.write(settle, [doubt], charged=not charged, by="another", why=None))

    @rule(cost=st.sampled_from(["0", "0.0100", "0.1000"]))
    def others_buy(self, cost: str) -> None:
        """A run of another batch buys a job, and ends."""
        name = f"elsewhere-{len(self.elsewhere)}"

        async def buys() -> None:
            other = Ledger(self.engine, Owner(name, "another batch", "one"))
            await other.begin_run()
            [attempt] = await submitting(other, job(name, price=cost))
            await other.generated(attempt, generation(name, cost), [f"{name}.png"], "out")
            await other.end_run()

        self.do(buys())
        self.elsewhere.append(Decimal(cost))

    # ---- what bounds it

    @rule(limit=st.sampled_from([None, "0.05", "0.20", "9"]))
    def says(self, limit: str | None) -> None:
        """A person says another limit; the newest word counts for all runs."""
        self.limit = None if limit is None else Decimal(limit)
        run = self.alive[0]
        self.do(run.write(approvals.says_limit, self.limit, "somebody", run.run_id))

    @rule(
        data=st.data(),
        plan=st.sampled_from("pq"),
        at_most=st.sampled_from(["0.05", "0.25", "9"]),
        person=st.booleans(),
        names=st.booleans(),
    )
    def quotes(self, data: st.DataObject, plan: str, at_most: str, person: bool, names: bool) -> None:
        """A run begins with a portion: a person approves it, with what was charged, or nobody is asked."""
        run = self.pick(data, self.alive)
        amount, now = Decimal(at_most), datetime.now(UTC)
        asked = Approval(f"a{len(self.given)}", Question.QUOTE, plan, 1, amount, amount, [], now)
        approval = asked.id
        if person:
            listed = self.do(run.read(approvals.charges_of)).dearer if names else ()
            said = {"decision": Decision.APPROVED, "decided_at": now, "place": Place.YES, "charges": listed}
            self.do(run.write(approvals.ask, replace(asked, charges=listed)))
            self.do(run.write(approvals.answer, replace(asked, **said)))
            if listed:
                self.accepted |= self.dearest
                self.last, self.dearest, self.above = [], {}, Decimal(0)
        else:
            others = [
                self.buys_by[one.run_id]
                for one in self.alive
                if one is not run and one.run_id in self.buys_by
            ]
            shared = [one for one in self.given if one in others and self.given[one].plan == plan]
            entered = self.do(
                run.write(approvals.enter, run.run_id, replace(asked, decision=Decision.NOT_ASKED))
            )
            approval = shared[0] if shared else asked.id
            assert entered == approval
            amount = max(Decimal(0), amount - self.above)
        self.do(run.write(approvals.buys_by, run.run_id, approval))
        self.given.setdefault(approval, Given(plan, amount, person))
        self.buys_by[run.run_id] = approval

    def charges(self, quoted: Decimal, cost: Decimal) -> None:
        most = max(self.accepted.get(quoted, quoted), quoted)
        dear = cost > most * Decimal("1.01")
        self.last = [*self.last, dear][-3:]
        if dear:
            self.dearest[quoted] = max(cost, self.dearest.get(quoted, cost))
            self.above += cost - most

    def wall(self, amount: Decimal, budget: SpendingLimit, *, reserved: bool) -> Wall | None:
        """What an amount does not fit; with what is reserved, or with what was sent alone."""
        counted = [each for each in self.tries if reserved or each.state is not State.PLANNED]
        exposure = sum((each.exposure for each in counted), Decimal(0))
        used = sum((each.exposure for each in counted if each.approval == budget.approval), Decimal(0))
        given = self.given.get(budget.approval)
        bounds_too = given is not None and (given.person or self.limit is None)
        bound = self.limit
        if given and bound is None:
            bound = exposure + given.at_most - used
        if self.last.count(True) >= 2 or (bound is not None and self.above > bound / 10):
            return Wall.PRICE
        if self.limit is not None and exposure + amount > self.limit:
            return Wall.LIMIT
        if given and bounds_too and used + amount > given.at_most * Decimal("1.01"):
            return Wall.APPROVED
        if exposure + amount > budget.affordable:
            return Wall.BALANCE
        ever = self.ever() if reserved else exposure + sum(self.elsewhere)
        is_used = budget.of_ledger is not None and ever + amount > budget.of_ledger
        return Wall.LEDGER if is_used else None

    def ever(self) -> Decimal:
        """What all batches have used, with what runs at work have reserved."""
        held = (each for each in self.tries if each.state is not State.PLANNED or each.owner in self.alive)
        return sum((each.exposure for each in held), sum(self.elsewhere, Decimal(0)))

    def may_leave(self, one: Try) -> bool:
        """Whether it may be sent by no approval and with a large balance."""
        return self.wall(one.job.quoted, SpendingLimit("b", Decimal(100)), reserved=False) is None

    # ---- what must hold

    def exposure(self) -> Decimal:
        return sum((each.exposure for each in self.tries), Decimal(0))

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        with self.foreseen():
            self.compare()

    def compare(self) -> None:
        states, totals, to_buy, adopted, wrong, ever = self.do((self.alive + self.dead)[0].read(self.look))
        others = sum(self.elsewhere)
        assert ever == (self.ever(), (self.ever() > others) + (others > 0)), (
            "an amount, and of how many batches"
        )
        assert wrong == [], "the running totals are the sums of the attempts"
        newest = {one.key: last for one in JOBS if (last := self.newest(one))}
        assert states == {key: last.state for key, last in newest.items()}
        assert totals.states == Counter(states.values())
        assert totals.exposure == self.exposure()
        assert totals.spent == sum((each.cost or Decimal(0) for each in self.tries), Decimal(0))
        doubts = [each for each in self.tries if each.state is State.IN_DOUBT]
        assert totals.in_doubt_exposure == sum((each.job.quoted for each in doubts), Decimal(0))
        planned = {key for key, last in newest.items() if last.state is State.PLANNED}
        assert to_buy == planned | {key for key, last in newest.items() if last.free_again}
        for ledger, (videos, files) in zip(self.alive, adopted, strict=True):
            mine = [each for each in self.tries if each.owner is ledger]
            assert sorted((video.job_key, video.number) for video in videos) == sorted(
                (each.job.key, each.number) for each in mine if each.is_polled
            )
            assert sorted((file.attempt.job_key, file.attempt.number) for file in files) == sorted(
                (each.job.key, each.number) for each in mine if each.state is State.GENERATED
            )

    def look(self, connection: sa.Connection, batch: str) -> tuple[Any, ...]:
        adopted = [queries.unfinished(connection, batch, ledger.run_id) for ledger in self.alive]
        return (
            reading.states(connection, batch),
            writing.of_batch(connection, batch),
            {key for key, row in reading.known(Policy())(connection, batch).items() if row["to_buy"]},
            adopted,
            writing.differences(connection),
            (leases.used_ever(connection), leases.used_by(connection)),
        )


def settleable(connection: sa.Connection, batch: str) -> list[Doubt]:
    return queries.doubts(connection, batch, pending=True)


def check(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_the_ledger_is_its_model() -> None:
    check(examples=5, steps=30)


@pytest.mark.soak
def test_the_ledger_is_its_model_at_length() -> None:
    check(examples=1_000, steps=60)
