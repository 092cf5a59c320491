"""The model of an attempt, which the ledger is held against; its steps are written down again on purpose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from callsheet.ledger import states
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.states import End, FileEnd
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
