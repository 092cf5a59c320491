"""What the ledger says a service took each day: every batch of that service, exact, from each database."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from callsheet.ledger import queries, services, spending, states
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.settling import settle
from callsheet.ledger.spending import ExpectedBalance, Spending
from callsheet.ledger.states import End, FileEnd
from callsheet.ledger.tables import attempts
from callsheet.records import Doubt
from tests.ledger.buying import STORED, buyer, generation, job, submitting

pytestmark = pytest.mark.anyio

HERE, ELSEWHERE = "https://api.example.com", "https://api.example.org"
FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-{text}+00:00")


async def buy(ledger: Ledger, name: str, sent: datetime, **end: Any) -> None:
    """Sends a job of 0.04 dollars; `end` is `cost` and `stored_at`, `doubt`, `failed`, or nothing yet."""
    one = replace(job(name), price=None) if end.get("unpriced") else job(name)
    [attempt] = await submitting(ledger, one)
    if end.get("doubt"):
        await ledger.transition(states.in_doubt, End(attempt, "cut off"))
    elif end.get("failed"):
        await ledger.transition(states.failed, End(attempt, "no", "content_policy_violation"))
    elif "cost" in end:
        [file] = await ledger.generated(attempt, generation(name, end["cost"]), [name], "out")
        if "stored_at" in end:
            await ledger.transition(states.stored, FileEnd(file, replace(STORED, stored_at=end["stored_at"])))
    times = {"submitted_at": sent} | ({"finished_at": end["stored_at"]} if "stored_at" in end else {})
    await ledger.write(
        lambda connection, _: connection.execute(
            attempts.update().where(attempts.c.row_id == name).values(times)
        )
    )


async def test_each_utc_day_has_what_was_sent_on_it_and_what_it_cost(url: str) -> None:
    async with buyer(url) as ledger:
        await ledger.write(services.rebind, HERE)
        buys = partial(buy, ledger)
        await buys("first", at("03-01T00:00:00"), cost="0.04", stored_at=at("03-01T00:01:00"))
        await buys("noon", at("03-01T12:00:00"), cost="0.0525", stored_at=at("03-01T12:00:09"))
        await buys("cheap", at("03-01T13:00:00"), cost="0.03", stored_at=at("03-01T13:00:09"))
        await buys("refused", at("03-01T14:00:00"), failed=True)
        await buys("doubtful", at("03-01T15:00:00"), doubt=True)
        await buys("flying", at("03-01T16:00:00"))
        unpriced = {"cost": "1.5", "unpriced": True, "stored_at": at("03-01T17:01:00")}
        await buys("unpriced", at("03-01T17:00:00"), **unpriced)
        last = at("03-01T23:59:59.999999")
        await buys("last", last, cost="0.04", stored_at=last)
        await buys("next", at("03-02T00:00:00"), cost="0.04", stored_at=at("03-02T00:00:01"))
        await buys("outside", at("03-03T00:00:00"), cost="0.04")
        days = await ledger.read(lambda *of: spending.days(*of, HERE, FIRST, SECOND))
    assert days == {
        FIRST: Spending(
            quoted=Decimal("0.24"),
            usage=Decimal("1.6625"),
            surcharge=Decimal("0.0125"),
            in_flight=Decimal("0.04"),
            late=Decimal("0.04"),
            early=Decimal("0.04"),
        ),
        SECOND: Spending(quoted=Decimal("0.04"), usage=Decimal("0.04"), early=Decimal("0.04")),
    }


# ---- the balance that the ledger expects, as evidence for doubts


async def in_doubt(ledger: Ledger, name: str) -> Doubt:
    """Sends a job of 0.04 dollars that ends in doubt."""
    [attempt] = await submitting(ledger, job(name))
    await ledger.transition(states.in_doubt, End(attempt, "cut off"))
    return next(doubt for doubt in await ledger.read(queries.doubts) if doubt.row_id == name)


async def bought(ledger: Ledger, name: str, cost: str = "0.04") -> None:
    [attempt] = await submitting(ledger, job(name, price=cost))
    await ledger.generated(attempt, generation(name, cost), [f"{ledger.batch}/{name}.png"], "out")


async def expected(ledger: Ledger, doubt: Doubt) -> ExpectedBalance:
    known = await ledger.read(
        lambda connection, batch: spending.expected_balance(connection, batch, doubt.submitted_at)
    )
    assert known is not None
    return known


async def test_the_balance_is_expected_from_before_the_first_doubt_and_from_what_was_settled_since(
    url: str,
) -> None:
    """An older doubt that is settled as charged after a run began is no spending since that run began."""
    async with buyer(url, "old", "10", service=HERE) as ledger:
        old = await in_doubt(ledger, "old")
    async with buyer(url, "new", "9.96", service=HERE) as ledger:
        doubt = await in_doubt(ledger, "a")
        await bought(ledger, "b")
        await ledger.write(settle, [old], charged=True, by="ada", why=None)
        async with buyer(url, "new", "9.90", service=HERE):
            pass  # a later run is no base: what is in doubt may be gone from its balance already
        known = await expected(ledger, doubt)
        assert (known.balance_then, known.spent_since) == (Decimal("9.96"), Decimal("0.04"))
        assert (known.balance_now, known.in_doubt) == (Decimal("9.92"), Decimal("0.04"))


async def test_another_service_s_jobs_are_no_evidence(url: str) -> None:
    """Neither their costs, before and since, nor what is in doubt or in flight there, nor its balance."""
    async with buyer(url, "strange", "500", service=ELSEWHERE) as ledger:
        await bought(ledger, "before", "3")
    async with buyer(url, "b", "10", service=HERE) as ledger:
        await bought(ledger, "own", "0.05")
        async with buyer(url, "same", service=HERE) as other:
            await bought(other, "of another batch", "0.02")
        async with buyer(url, "strange", "497", service=ELSEWHERE) as strange:
            await bought(strange, "since", "5")
            await in_doubt(strange, "doubtful")
            await submitting(strange, job("flying"))
            known = await expected(ledger, await in_doubt(ledger, "a"))
        assert (known.balance_then, known.spent_since) == (Decimal(10), Decimal("0.07"))
        assert (known.in_doubt, known.in_flight) == (Decimal("0.04"), 0)
