"""The model that the ledger is held against; the steps of an attempt are written down again on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal

from callsheet.ledger import states
from callsheet.ledger.gate import Obstacle
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.states import End, FileEnd
from callsheet.ledger.words import Decision
from callsheet.records import Attempt, File, Job, State
from tests.ledger.buying import STORED, generation, intend

IN_HAND = {State.SUBMITTING, State.PENDING}

# Which step leads from which states to which: written down once more, on purpose.
STEPS: dict[str, tuple[set[State], State]] = {
    "intend": ({State.PLANNED}, State.SUBMITTING),
    "planned_again": ({State.SUBMITTING}, State.PLANNED),
    "pending": ({State.SUBMITTING}, State.PENDING),
    "generated": ({State.SUBMITTING, State.PENDING, State.IN_DOUBT}, State.GENERATED),
    "failed": ({State.SUBMITTING, State.PENDING, State.IN_DOUBT}, State.FAILED),
    "doubt": ({State.SUBMITTING, State.PENDING}, State.IN_DOUBT),
    "stored": ({State.GENERATED}, State.STORED),
    "lost": ({State.GENERATED}, State.LOST),
}


# Only a doubt about a video with an id is asked for again; any other waits for a person.
NEEDS_ID = {(State.IN_DOUBT, "generated"), (State.IN_DOUBT, "failed")}


# What is made once more, with the same values, is done already, and changes nothing. Other steps have a time.
AGAIN = {
    "planned_again": State.PLANNED,
    "pending": State.PENDING,
    "generated": State.GENERATED,
    "stored": State.STORED,
}


def is_possible(name: str, state: State, *, has_id: bool) -> bool:
    return state in STEPS[name][0] and (has_id or (state, name) not in NEEDS_ID)


@dataclass
class Try:
    """The model of an attempt."""

    job: Job
    number: int
    owner: Ledger | None
    state: State = State.PLANNED
    cost: Decimal | None = None
    free_again: bool = False
    generation_id: str | None = None
    file: File | None = None
    current: bool = True

    @property
    def attempt(self) -> Attempt:
        job_ = self.job
        return Attempt(job_.key, self.number, job_.type, job_.row_id, 1, job_.model, job_.quoted)

    @property
    def has_id(self) -> bool:
        return self.generation_id is not None

    @property
    def is_polled(self) -> bool:
        return self.state is State.PENDING or (self.state is State.IN_DOUBT and self.has_id)

    def is_done(self, name: str, cost: Decimal) -> bool:
        """Whether this step of the attempt's run was made already, just so."""
        return AGAIN.get(name) is self.state and (name != "generated" or self.cost == cost)

    @property
    def may_cost(self) -> bool:
        return self.state not in (State.PLANNED, State.FAILED)

    @property
    def exposure(self) -> Decimal:
        held = self.state in IN_HAND | {State.IN_DOUBT} or (self.state is State.PLANNED and self.owner)
        return self.cost if self.cost is not None else self.job.quoted if held else Decimal(0)


@dataclass
class Said:
    """The model of a word."""

    id: str
    asker: str
    plan: str
    up_to: Decimal
    is_question: bool
    decision: Decision | None
    names: dict[Decimal, Decimal]  # the charges that it names, by quote
    limit: Decimal | None = None  # of the asker's config
    batch: str = "b"

    @property
    def lets_begin(self) -> bool:
        return self.decision in (Decision.APPROVED, Decision.NOT_ASKED)


class Model:
    """What the ledger must say of a batch, its runs and the answers of persons, kept in the obvious way."""

    def __init__(self) -> None:
        self.alive: list[Ledger] = []
        self.dead: list[Ledger] = []
        self.tries: list[Try] = []
        self.limit: Decimal | None = None
        self.set_to: set[str] = set()  # the runs to which a person has said it
        self.words: list[Said] = []
        self.last: list[bool] = []  # charges, and whether they were dear
        self.accepted: dict[Decimal, Decimal] = {}  # by quote
        self.dearest: dict[Decimal, Decimal] = {}  # what nobody has accepted, by quote
        self.above = Decimal(0)
        self.elsewhere: list[Decimal] = []  # what another batch of the ledger has cost

    def newest(self, one: Job) -> Try | None:
        return next((each for each in reversed(self.tries) if each.job is one), None)

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

    def possible(self, one: Try) -> list[str]:
        return [name for name in STEPS if is_possible(name, one.state, has_id=one.has_id)]

    def of_batch(self) -> list[Said]:
        return [said for said in self.words if said.batch == "b"]

    def limit_of(self, run: Ledger, of_config: Decimal | None) -> Decimal | None:
        """The limit once a run is let begin: `set` holds for its runs, and a config only lowers it."""
        if any(said.asker == run.asker and said.lets_begin for said in self.of_batch()):
            return self.limit
        if not self.set_to & {ledger.run_id for ledger in self.alive}:
            return of_config
        if run.run_id in self.set_to or of_config is None:
            return self.limit
        return of_config if self.limit is None else min(self.limit, of_config)

    def allowed(self) -> Decimal | None:
        return max((said.up_to for said in self.of_batch() if said.lets_begin), default=None)

    def is_dear(self, limit: Decimal | None) -> bool:
        most = self.allowed() if limit is None else limit
        is_much = most is not None and self.above > most / 10
        return bool(self.dearest) and (self.last.count(True) >= 2 or is_much)

    def charges(self, quoted: Decimal, cost: Decimal) -> None:
        most = max(self.accepted.get(quoted, quoted), quoted)
        dear = cost > most * Decimal("1.01")
        self.last = [*self.last, dear][-3:]
        if dear:
            self.dearest[quoted] = max(cost, self.dearest.get(quoted, cost))
            self.above += cost - most

    def obstacle(
        self,
        amount: Decimal,
        run: Ledger,
        affordable: Decimal,
        of_ledger: Decimal | None = None,
        *,
        reserved: bool,
    ) -> Obstacle | None:
        """Why an amount may not leave; with what is reserved, or by what was sent alone."""
        last = next((said for said in reversed(self.words) if said.asker == run.asker), None)
        exposure, sent = self.exposure(reserved=reserved), self.exposure(reserved=False)
        mine = [each for each in self.tries if each.state is State.PLANNED and each.owner is run]
        own = sum((each.exposure for each in mine), Decimal(0)) if reserved else Decimal(0)
        allowed = self.allowed()
        if last is None or not last.lets_begin:
            return Obstacle.QUESTION
        if self.is_dear(self.limit):
            return Obstacle.PRICE
        if self.limit is not None and exposure + amount > self.limit:
            return Obstacle.LIMIT
        if allowed is not None and sent + own + amount > allowed:
            return Obstacle.ALLOWED
        if exposure + amount > affordable:
            return Obstacle.BALANCE
        ever = self.ever() if reserved else exposure + sum(self.elsewhere)
        is_used = of_ledger is not None and ever + amount > of_ledger
        return Obstacle.LEDGER if is_used else None

    def ever(self) -> Decimal:
        """What all batches have used, with what runs at work have reserved."""
        return self.exposure() + sum(self.elsewhere)

    def may_leave(self, one: Try, run: Ledger | None) -> bool:
        """Whether a run may send it with a large balance."""
        assert run is not None
        return self.obstacle(one.job.quoted, run, Decimal(100), reserved=False) is None

    def exposure(self, *, reserved: bool = True) -> Decimal:
        """Of the batch; what is `reserved` counts as long as its run lives."""
        return sum((each.exposure for each in self.tries if self.counts(each, reserved=reserved)), Decimal(0))

    def counts(self, one: Try, *, reserved: bool = True) -> bool:
        return one.state is not State.PLANNED or (reserved and one.owner in self.alive)


def answered_id(one: Try) -> str:
    """The id under which the service makes this attempt: no two attempts have the same."""
    return one.generation_id or f"req-{one.job.row_id}-{one.number}"


async def make_step(ledger: Ledger, one: Try, name: str, cost: str) -> File | None:
    """Carries out the step called `name`; returns the file of `generated`."""
    if name == "pending":
        await ledger.pending(one.attempt, answered_id(one))
    elif name == "generated":
        paid = replace(generation(one.job.row_id, cost), id=answered_id(one))
        return (await ledger.generated(one.attempt, paid, [f"{one.job.row_id}.png"], "out"))[0]
    elif name == "failed":
        await ledger.transition(states.failed, End(one.attempt, "no", "server_error"))
    elif name == "doubt":
        await ledger.transition(states.in_doubt, End(one.attempt, "cut off"))
    elif name == "stored" and one.file:
        await ledger.transition(states.stored, FileEnd(one.file, STORED))
    elif name == "lost" and one.file:
        await ledger.transition(states.lost, FileEnd(one.file, lost="gone"))
    else:
        await (
            intend(ledger, one.attempt)
            if name == "intend"
            else ledger.transition(states.planned_again, one.attempt)
        )
    return None
