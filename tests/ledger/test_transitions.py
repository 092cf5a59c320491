"""From every state, every step: carried out, seen to be done before, or refused as a whole."""

from __future__ import annotations

import pytest

from callsheet.errors import LedgerError
from callsheet.ledger.ledger import Ledger
from callsheet.records import File, ModelType, State
from tests.ledger.buying import generation, job, reserve, state_of
from tests.ledger.model import AGAIN, STEPS, Try, is_possible, make_step
from tests.long_form import mostly_soak

pytestmark = pytest.mark.anyio

PATHS: dict[State, list[str]] = {
    State.PLANNED: [],
    State.SUBMITTING: ["intend"],
    State.PENDING: ["intend", "pending"],
    State.GENERATED: ["intend", "generated"],
    State.STORED: ["intend", "generated", "stored"],
    State.LOST: ["intend", "generated", "lost"],
    State.FAILED: ["intend", "failed"],
    State.IN_DOUBT: ["intend", "doubt"],
}
WAYS = [*PATHS.items(), (State.IN_DOUBT, ["intend", "pending", "doubt"])]


@pytest.mark.parametrize("url", mostly_soak(("sqlite", "postgresql"), "sqlite"), indirect=True)
@pytest.mark.parametrize(("state", "path"), WAYS, ids=["-".join([state, *path]) for state, path in WAYS])
async def test_from_every_state_every_step_is_carried_out_or_was_or_is_refused_as_a_whole(
    ledger: Ledger, state: State, path: list[str]
) -> None:
    has_id = "pending" in path or "generated" in path
    for name, (_, after) in STEPS.items():
        one = Try(job(name, ModelType.VIDEO), 1, ledger)
        await reserve(ledger, one.job)
        # A file there may be, so that only the state can forbid to store or lose it.
        item = generation(name).media[0]
        one.file = File(one.attempt, 0, f"{name}.png", item)
        for step in path:
            await make_step(ledger, one, step, "0.0400")
        possible = is_possible(name, state, has_id=has_id)
        if possible or AGAIN.get(name) is state:
            await make_step(ledger, one, name, "0.0400")
        else:
            with pytest.raises(LedgerError, match="refuses the step"):
                await make_step(ledger, one, name, "0.0400")
        assert await state_of(ledger, one.job) is (after if possible else state)
