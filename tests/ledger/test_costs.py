"""What the batches of a ledger came to in a time, added up by each database alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from callsheet.ledger import costs, marks, spending, states
from callsheet.ledger.costs import Spent
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import FileKey, Mark, MediaDecision
from callsheet.ledger.states import End, FileEnd
from callsheet.ledger.tables import attempts
from callsheet.records import Usage
from tests.ledger.buying import STORED, buyer, generation, job, submitting

pytestmark = pytest.mark.anyio


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-{text}+00:00")


async def buy(ledger: Ledger, name: str, sent: str, *, cost: str = "", **of_job: Any) -> None:
    """Sends a job of 0.04 dollars at a time; without a cost it is in doubt."""
    [attempt] = await submitting(ledger, replace(job(name), **of_job))
    if cost:
        [file] = await ledger.generated(attempt, generation(name, cost), [name], "out")
        await ledger.transition(states.stored, FileEnd(file, STORED))
    else:
        await ledger.transition(states.in_doubt, End(attempt, "cut off"))
    sent_at = attempts.update().where(attempts.c.row_id == name).values(submitted_at=at(sent))
    await ledger.write(lambda connection, _: connection.execute(sent_at))


async def mark(ledger: Ledger, name: str, *decisions: MediaDecision | None) -> None:
    for decision in decisions:
        said = [Mark(FileKey(job(name).key, 1, 0), decision)]
        await ledger.write(marks.mark, said, "ada")


async def came_to(ledger: Ledger, by: str, since: str, until: str) -> dict[str | None, Spent]:
    return await ledger.read(lambda connection, _: costs.costs(connection, by, at(since), at(until)))


async def test_a_time_is_added_up_by_day_month_batch_model_and_column(url: str) -> None:
    async with buyer(url, "first") as ledger:
        await buy(ledger, "cup", "03-31T23:59:59", cost="0.04", carried={"shelf": "top"})
        await buy(ledger, "jug", "04-01T00:00:00", cost="0.06", carried={"shelf": "top"}, model="other")
        await buy(ledger, "pot", "04-02T12:00:00", cost="0.0404", carried={"shelf": 7})
        await mark(ledger, "jug", MediaDecision.KEPT)
        await mark(ledger, "pot", MediaDecision.KEPT, MediaDecision.REJECTED)
    async with buyer(url, "second") as ledger:
        await buy(ledger, "hat", "04-02T13:00:00")
        await buy(ledger, "cap", "04-30T23:59:59.999999", cost="0.02")
        await buy(ledger, "tie", "05-01T00:00:00", cost="0.04")
        await mark(ledger, "cap", MediaDecision.KEPT)

        jug = Spent(1, Decimal("0.06"), kept=1, cost_per_kept=Decimal("0.06"), above_quoted=Decimal("0.02"))
        pot = Spent(1, Decimal("0.0404"))  # a hundredth above the quote is a rounding
        hat = Decimal("0.04")
        cap = Spent(1, Decimal("0.02"), kept=1, cost_per_kept=Decimal("0.02"))
        april = ("04-01T00:00:00", "05-01T00:00:00")
        by_day = await came_to(ledger, costs.DAY, *april)
        assert costs.added_up(by_day.values()) == Spent(
            *(3, Decimal("0.1204"), hat, 2, Decimal("0.0602"), Decimal("0.02"))
        )
        assert by_day == {
            "2026-04-01": jug,
            "2026-04-02": replace(pot, in_doubt_exposure=hat),
            "2026-04-30": cap,
        }
        assert [*await came_to(ledger, costs.MONTH, "03-01T00:00:00", "05-02T00:00:00")] == [
            *("2026-03", "2026-04", "2026-05")
        ]
        by_batch = await came_to(ledger, costs.BATCH, *april)
        assert {name: spent.spent for name, spent in by_batch.items()} == {
            "first": Decimal("0.1004"),
            "second": Decimal("0.02"),
        }
        assert (await came_to(ledger, costs.MODEL, *april))["other"] == jug
        assert await came_to(ledger, "shelf", *april) == {
            "7": pot,
            "top": jug,
            None: replace(cap, in_doubt_exposure=hat),
        }
        assert await came_to(ledger, costs.DAY, "06-01T00:00:00", "07-01T00:00:00") == {}
        assert costs.added_up([]) == Spent()
        assert await ledger.read(lambda connection, _: costs.carried_columns(connection)) == ["shelf"]


async def test_what_is_bought_in_a_time_is_what_was_accepted_as_the_morning_counts_it(url: str) -> None:
    """A video that is being made and a free image are bought; a failure is not, whatever was charged."""
    noon = "04-01T12:00:00"
    async with buyer(url) as ledger:
        await buy(ledger, "cup", noon, cost="0.04")
        await buy(ledger, "free", noon, cost="0")
        await buy(ledger, "doubtful", noon)
        filmed, failed, _ = await submitting(ledger, *map(job, ("filmed", "failed", "flying")))
        await ledger.pending(filmed, "req-filmed")
        charged = End(failed, "no", "server_error", Usage(total_cost=Decimal("0.05")))
        await ledger.transition(states.failed, charged)
        all_at_noon = attempts.update().values(submitted_at=at(noon))
        await ledger.write(lambda connection, _: connection.execute(all_at_noon))
        april = await came_to(ledger, costs.BATCH, "04-01T00:00:00", "05-01T00:00:00")
        assert (april["b"].bought, april["b"].spent) == (3, Decimal("0.09"))
        since = at("04-01T00:00:00")
        tonight = await ledger.read(lambda connection, _: spending.bought_since(connection, since))
        assert tonight["b"].jobs == april["b"].bought
