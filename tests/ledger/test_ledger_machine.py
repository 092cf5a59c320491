"""The ledger against an obvious model: any order of claims, steps, deaths, settlements and budgets."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
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

from callsheet.config.settings import Budget
from callsheet.errors import LedgerError
from callsheet.ledger import changes, gate, leases, queries, sums, words, writing
from callsheet.ledger.databases import open_engine
from callsheet.ledger.journal import Journal, PaidAnswer
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.ledger.settling import settle
from callsheet.ledger.takeover import Owner
from callsheet.ledger.words import Decision, Place, Reason, Shown, Word
from callsheet.present.reasons import why
from callsheet.records import Attempt, Doubt, Job, ModelType, State
from callsheet.standing import read_standing
from callsheet.steps.approve import new_word
from tests.ledger import reading
from tests.ledger.buying import generation, job, submitting, word
from tests.ledger.model import STEPS, Model, Said, Try, answered_id, make_step

pytestmark = pytest.mark.anyio

T = TypeVar("T")

PRICES = ("0.0100", "0.0400", "0.0900")
JOBS = [job(f"job-{number}", ModelType.VIDEO, price=PRICES[number % 3]) for number in range(4)]
OF_LEDGER = st.sampled_from([None, None, Decimal("0.15"), Decimal("0.60")])


DECISIONS = {True: Decision.APPROVED, False: Decision.REFUSED}


class LedgerMachine(Model, RuleBasedStateMachine):
    """Runs come, buy, and go in every way; what the ledger says must be what the model says."""

    def __init__(self, url: Callable[[], str] | None = None) -> None:
        RuleBasedStateMachine.__init__(self)
        Model.__init__(self)
        self.loop = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.engine = open_engine(url() if url else f"sqlite:///{self.folder.name}/ledger.db")
        self.work = 0  # what runs have done since one of them began or went
        self.ever_paid = 0
        self.begins("free", None)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(work)

    def teardown(self) -> None:
        self.loop.close()
        self.engine.dispose()
        self.folder.cleanup()

    def pick(self, data: st.DataObject, things: list[T]) -> T:
        return things[data.draw(st.integers(0, len(things) - 1))]

    # ---- runs

    @rule(how=st.sampled_from(["free", "free", "limited", "quiet"]), flow_run=st.sampled_from([None, "f"]))
    @precondition(lambda self: len(self.alive) < 2)
    def begins(self, how: str, flow_run: str | None) -> None:
        """A run begins, and takes over from every dead one, as a reader could see before.

        Mostly it is let begin at once, with much or with little.
        """
        ledger = self.new_run(flow_run=flow_run)
        before = self.do(ledger.read(reading.everything))
        self.do(ledger.begin_run())
        assert self.do(ledger.read(reading.everything)) == before
        self.has_begun(ledger)
        if how != "quiet":
            self.asks(ledger, "p", Decimal(9 if how == "free" else "0.25"), None, above=False)

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
            last.generation_id = generation_id
            files = self.do(ledger.read(queries.unfinished, ledger.run_id))[1]
            [last.file] = [
                file
                for file in files
                if (file.attempt.job_key, file.attempt.number) == (one.key, last.number)
            ]
            assert not list(journals.iterdir())
        self.has_begun(ledger)

    def new_run(self, journals: Path | None = None, flow_run: str | None = None) -> Ledger:
        run_id = f"run-{len(self.alive + self.dead)}"
        return Ledger(self.engine, Owner(run_id, "b", "one", flow_run=flow_run), journal=journals)

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
            self.begins("free", None)

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
        affordable = Decimal(limit)
        policy = Policy(retry_failed, retry_doubt=retry_doubt, attempts=attempts, run_id=ledger.run_id)
        result = self.do(
            ledger.reserve(wanted, policy, ledger.buyer(Budget(ledger=of_ledger), affordable), skip=skip)
        )
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
            if not mine and self.obstacle(one.quoted, ledger, affordable, of_ledger, reserved=True):
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
            names = [
                name for name in self.possible(one) if name != "intend" or self.may_leave(one, one.owner)
            ]
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
        affordable = Decimal(limit)
        expected = self.obstacle(one.job.quoted, one.owner, affordable, of_ledger, reserved=False)
        obstacle = self.do(
            one.owner.intend(one.attempt, one.owner.buyer(Budget(ledger=of_ledger), affordable), {})
        )
        assert obstacle is expected
        if obstacle is None:
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
            and (name != "intend" or self.may_leave(one, ledger))
        ]

        async def tried() -> list[Any]:
            steps = [make_step(ledger, one, name, "0.0100") for ledger, name in illegal]
            return await asyncio.gather(*steps, return_exceptions=True)

        for (ledger, name), end in zip(illegal, self.do(tried()), strict=True):
            done = ledger is one.owner and one.is_done(name, Decimal("0.01"))
            assert isinstance(end, LedgerError) is not done

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
            await other.write(words.enter_word, word(other, "1000"))
            [attempt] = await submitting(other, job(name, price=cost))
            await other.generated(attempt, generation(name, cost), [f"{name}.png"], "out")
            await other.end_run()

        self.do(buys())
        self.elsewhere.append(Decimal(cost))

    @rule(asked_for=st.lists(st.sampled_from(JOBS), unique_by=lambda one: one.key))
    def takes_a_batch_file(self, asked_for: list[Job]) -> None:
        """The batch file has other rows than before."""
        current = {yes: [one.key for one in JOBS if (one in asked_for) is yes] for yes in (True, False)}
        self.do(self.alive[0].write(writing.adopt, [], current))
        for each in self.tries:
            each.current = each.job in asked_for

    # ---- what bounds it

    @rule(limit=st.sampled_from([None, "0.05", "0.20", "9"]))
    def sets(self, limit: str | None) -> None:
        """A person says another limit to the runs at work: it counts at once, for all of them."""
        self.do(self.alive[0].write(changes.enter_change, {changes.LIMIT: limit}, "somebody"))
        self.limit = None if limit is None else Decimal(limit)
        self.set_to = {ledger.run_id for ledger in self.alive}

    @rule(
        data=st.data(),
        plan=st.sampled_from("pq"),
        at_most=st.sampled_from(["0.05", "0.25", "9"]),
        limit=st.sampled_from([None, None, "0.15", "9"]),
        above=st.booleans(),
    )
    def quotes(self, data: st.DataObject, plan: str, at_most: str, limit: str | None, above: bool) -> None:
        """A run is about to buy a portion; `above` what its config lets it buy without asking."""
        run = self.pick(data, self.alive)
        self.asks(run, plan, Decimal(at_most), None if limit is None else Decimal(limit), above=above)

    def asks(self, run: Ledger, plan: str, at_most: Decimal, limit: Decimal | None, *, above: bool) -> None:
        exposure = self.exposure(reserved=False)
        shown = Shown(plan, jobs=1, quoted=at_most, at_most=at_most, sent_with_price=exposure)
        covering = [
            said
            for said in self.of_batch()
            if said.decision is Decision.APPROVED and said.plan == plan and exposure + at_most <= said.up_to
        ]
        to_be = self.limit_of(run, limit)
        dear = self.is_dear(to_be)
        own = [said for said in self.of_batch() if said.asker == run.asker and said.is_question]
        expected = {
            Reason.CHARGES: dear,
            Reason.PRICE: above and not covering,
            Reason.ASKED: bool(own) and own[-1] not in covering,
        }
        budget = Budget(limit=limit, approve_above=Decimal(0) if above else None)
        asked = self.do(
            run.write(gate.let_begin, run.buyer(budget, Decimal(100)), shown, new_word(run), in_words=why)
        )
        own = [said for said in self.of_batch() if said.asker == run.asker]
        if any(expected.values()):
            assert {*asked.about} == {reason for reason, holds in expected.items() if holds}
            assert asked.decision is None
        else:
            assert asked.decision
            if not (own and own[-1] in covering):
                assert asked.decision is Decision.NOT_ASKED
            self.limit = to_be
        if not own or asked.id != own[-1].id:
            names = dict(self.dearest) if dear else {}
            question = asked.decision is None
            said = Said(asked.id, run.asker, plan, exposure + at_most, question, asked.decision, names, limit)
            self.words.append(said)

    @rule(flow_run=st.sampled_from("fg"))
    def asks_about_another_batch(self, flow_run: str) -> None:
        """A production has bought a batch, and asks about the next: before the answer it buys nothing."""
        other = Ledger(self.engine, Owner(f"production-{len(self.words)}", "next", "one", flow_run=flow_run))
        question = word(other, "9", decision=None, about=(Reason.NEXT,))
        self.do(other.write(words.enter_word, question))
        said = Said(question.id, flow_run, "p", Decimal(9), True, None, {}, batch="next")
        self.words.append(said)

    @rule(data=st.data(), yes=st.booleans(), limit=st.sampled_from([None, None, "0.20", "9"]))
    @precondition(lambda self: any(said.is_question for said in self.words))
    def answers(self, data: st.DataObject, yes: bool, limit: str | None) -> None:
        """A person answers a question, once; a dialog's answer may set another limit."""
        said = self.pick(data, [said for said in self.words if said.is_question])
        flow_run = said.asker if not said.asker.startswith("run-") else None
        run_id = f"answer-{len(self.words)}" if flow_run else said.asker
        ledger = Ledger(self.engine, Owner(run_id, said.batch, "one", flow_run=flow_run))
        known = {kept.id: kept for kept in self.do(ledger.read(words.of_batch))}
        new = None if limit is None else Decimal(limit)
        how = {"decision": DECISIONS[yes], "decided_by": "Ada", "place": Place.UI, "budget_limit": new}
        answered: Word = replace(known[said.id], decided_at=datetime.now(UTC), **how)
        answering = ledger.write(gate.answer, ledger.buyer(Budget(limit=said.limit)), answered)
        if said.decision is not None:
            with pytest.raises(LedgerError, match="answered already"):
                self.do(answering)
            return
        to_be = self.limit_of(ledger, said.limit)
        self.do(answering)
        said.decision = DECISIONS[yes]
        if not yes or said.batch != "b":
            return
        self.limit = to_be if new is None else new
        if said.names:
            for quoted, cost in said.names.items():
                self.accepted[quoted] = max(cost, self.accepted.get(quoted, cost))
            accepted = self.accepted
            self.dearest = {
                quoted: cost for quoted, cost in self.dearest.items() if cost > accepted.get(quoted, quoted)
            }
            if not self.dearest:
                self.last, self.above = [], Decimal(0)

    # ---- what must hold

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        with self.foreseen():
            self.compare()

    def compare(self) -> None:
        states, counted, totals, ever_paid, to_buy, listed, adopted, wrong, ever = self.do(
            (self.alive + self.dead)[0].read(self.look)
        )
        others = sum(self.elsewhere)
        assert ever == (self.ever(), (self.ever() > others) + (others > 0)), (
            "an amount, and of how many batches"
        )
        assert wrong == [], "the running totals are the sums of the attempts"
        newest = {one.key: last for one in JOBS if (last := self.newest(one))}
        assert states == {key: last.state for key, last in newest.items()}
        charged = {each.job.key for each in self.tries if each.cost}
        counting = [last for key, last in newest.items() if last.current or last.may_cost or key in charged]
        assert totals.states == counted == Counter(last.state for last in counting)
        assert max(totals.paid_jobs, self.ever_paid) <= ever_paid
        self.ever_paid = ever_paid
        assert totals.exposure == self.exposure()
        assert totals.spent == sum((each.cost or Decimal(0) for each in self.tries), Decimal(0))
        doubts = [each for each in self.tries if each.state is State.IN_DOUBT]
        assert totals.in_doubt_exposure == sum((each.job.quoted for each in doubts), Decimal(0))
        in_doubt = [doubt for doubt in listed if doubt.state is State.IN_DOUBT]
        assert sorted((doubt.job_key, doubt.attempt) for doubt in in_doubt) == sorted(
            (each.job.key, each.number) for each in doubts
        )
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
            read_standing(connection, batch).states,
            sums.of_batch(connection, batch),
            sums.ever_paid_jobs(connection, batch),
            {key for key, row in reading.known(Policy())(connection, batch).items() if row["to_buy"]},
            settleable(connection, batch),
            adopted,
            sums.differences(connection),
            (gate.used_ever(connection), gate.used_by(connection)),
        )


def settleable(connection: sa.Connection, batch: str) -> list[Doubt]:
    return queries.doubts(connection, batch, pending=True)


def check(examples: int, steps: int, url: Callable[[], str] | None = None) -> None:
    run_state_machine_as_test(
        lambda: LedgerMachine(url),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_the_ledger_is_its_model() -> None:
    check(examples=5, steps=30)


def test_the_ledger_is_its_model_in_postgresql(new_database: Callable[[], str]) -> None:
    check(2, 30, new_database)


@pytest.mark.soak
def test_the_ledger_is_its_model_at_length() -> None:
    check(examples=1_000, steps=60)


@pytest.mark.soak
def test_the_ledger_is_its_model_at_length_in_postgresql(new_database: Callable[[], str]) -> None:
    check(100, 60, new_database)
