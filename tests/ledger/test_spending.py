"""What the ledger says a service took each day: every batch of that service, exact, from each database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from callsheet.ledger import queries, spending
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.spending import KnownBalance, Spending
from callsheet.ledger.tables import attempts, runs
from callsheet.records import Doubt, ExpectedBalance, ModelType
from tests.ledger.buying import STORED, buyer, generation, intend, job, reserve, submitting

pytestmark = pytest.mark.anyio

HERE, ELSEWHERE = "https://api.example.com", "https://api.example.org"
FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-{text}+00:00")


class Book:
    """A ledger in which a test writes what was sent when."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def buy(
        self, name: str, sent: datetime, *, batch: str = "b", service: str = HERE, **end: Any
    ) -> None:
        """Sends a job of 0.04 dollars.

        Args:
            end: `cost` and `stored_at`, `doubt`, `failed`, `reserved`, or nothing for a job in flight.
        """
        one = replace(job(f"{batch} {name}"), row_id=name)
        one = replace(one, price=None) if end.get("unpriced") else one
        async with buyer(self.url, batch) as ledger:
            await ledger.rebind(service)
            [(_, attempt)], _ = await reserve(ledger, one)
            if end.get("reserved"):
                return
            await intend(ledger, attempt)
            if end.get("doubt"):
                await ledger.doubt(attempt, "cut off")
            elif end.get("failed"):
                await ledger.failed(attempt, "content_policy_violation", "no")
            elif "cost" in end:
                names = [f"{batch}/{name}"]
                [file] = await ledger.generated(attempt, generation(name, end["cost"]), names, "out")
                if "stored_at" in end:
                    await ledger.stored(file, replace(STORED, stored_at=end["stored_at"]))
        times = {"submitted_at": sent}
        if "stored_at" in end:
            times["finished_at"] = end["stored_at"]
        self.change(attempts.update().where(attempts.c.row_id == name).values(times))

    def change(self, statement: sa.Update) -> None:
        engine = sa.create_engine(self.url)
        with engine.begin() as connection:
            connection.execute(statement)
        engine.dispose()

    async def read(self, query: Callable[[sa.Connection, str], Any]) -> Any:
        ledger = await Ledger.open(self.url, "b")
        try:
            return await ledger.read(query)
        finally:
            await ledger.close()

    async def days(self) -> dict[date, Spending]:
        return await self.read(
            lambda connection, batch: spending.days(connection, batch, HERE, FIRST, SECOND)
        )


@pytest.fixture
def book(url: str) -> Book:
    return Book(url)


async def test_each_utc_day_has_what_was_sent_on_it_and_what_it_cost(book: Book) -> None:
    await book.buy("first", at("03-01T00:00:00"), cost="0.04", stored_at=at("03-01T00:01:00"))
    await book.buy("noon", at("03-01T12:00:00"), cost="0.0525", stored_at=at("03-01T12:00:09"))
    await book.buy("cheap", at("03-01T13:00:00"), cost="0.03", stored_at=at("03-01T13:00:09"))
    await book.buy("refused", at("03-01T14:00:00"), failed=True)
    await book.buy("doubtful", at("03-01T15:00:00"), doubt=True)
    await book.buy(
        "unpriced", at("03-01T17:00:00"), cost="1.5", unpriced=True, stored_at=at("03-01T17:01:00")
    )
    await book.buy("last", at("03-01T23:59:59.999999"), cost="0.04", stored_at=at("03-01T23:59:59.999999"))
    await book.buy("next", at("03-02T00:00:00"), cost="0.04", stored_at=at("03-02T00:00:01"))
    await book.buy("outside", at("03-03T00:00:00"), cost="0.04")
    await book.buy("flying", at("03-01T16:00:00"))  # the next run of the batch would put it in doubt
    days = await book.days()
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


async def test_what_ended_after_midnight_or_has_not_ended_may_be_charged_on_the_next_day(book: Book) -> None:
    await book.buy("over", at("03-01T12:00:00"), cost="0.04", stored_at=at("03-02T00:00:00"))
    await book.buy("open", at("03-01T12:00:00"), cost="0.05")
    await book.buy("over and done", at("03-01T12:00:00"), cost="0.06", stored_at=at("03-01T12:01:00"))
    assert (await book.days())[FIRST].late == Decimal("0.09")


async def test_other_batches_of_the_service_count_and_those_of_another_service_do_not(book: Book) -> None:
    await book.buy("mine", at("03-01T12:00:00"), cost="0.01")
    await book.buy("other", at("03-01T12:00:00"), batch="other", cost="0.02", service=f"{HERE}/")
    await book.buy("strange", at("03-01T12:00:00"), batch="strange", cost="0.03", service=ELSEWHERE)
    day = (await book.days())[FIRST]
    assert (day.usage, day.other_batches) == (Decimal("0.03"), Decimal("0.02"))
    first = await book.read(lambda connection, _: spending.first_day(connection, HERE))
    assert first == FIRST


async def test_nothing_sent_is_no_first_day_and_no_days(book: Book) -> None:
    await book.buy("only reserved", at("03-01T12:00:00"), reserved=True)
    assert await book.read(lambda connection, _: spending.first_day(connection, HERE)) is None
    assert (await book.days()) == {}


async def test_doubts_come_with_their_batch_in_order_of_submission(book: Book) -> None:
    await book.buy("late", at("03-02T12:00:00"), doubt=True)
    await book.buy("early", at("03-01T12:00:00"), batch="other", doubt=True)
    await book.buy("outside", at("03-03T12:00:00"), doubt=True)
    await book.buy("strange", at("03-01T12:00:00"), batch="strange", doubt=True, service=ELSEWHERE)
    found = await book.read(lambda connection, _: spending.doubts(connection, HERE, FIRST, SECOND))
    assert [(batch, doubt.row_id, doubt.price) for batch, doubt in found] == [
        ("other", "early", Decimal("0.04")),
        ("b", "late", Decimal("0.04")),
    ]


async def test_the_balance_is_the_nearest_that_a_run_of_the_service_read(book: Book) -> None:
    read = [("b", HERE, "10"), ("b", HERE, "9"), ("b", HERE, None), ("strange", ELSEWHERE, "500")]
    for number, (batch, service, balance) in enumerate(read):
        async with buyer(book.url, batch, balance) as ledger:
            await ledger.rebind(service)
            await ledger.end_run()
        moment = at("03-01T12:00:00") + timedelta(hours=number)
        book.change(runs.update().where(runs.c.started_at > at("04-01T00:00:00")).values(started_at=moment))

    async def near(text: str, **given: Any) -> KnownBalance | None:
        return await book.read(
            lambda connection, _: spending.balance_near(connection, HERE, at(text), **given)
        )

    ten = KnownBalance(at("03-01T12:00:00"), Decimal(10))
    nine = KnownBalance(at("03-01T13:00:00"), Decimal(9))
    assert await near("02-01T00:00:00") == ten
    assert await near("03-01T12:29:00") == ten
    assert await near("03-01T12:31:00") == nine
    assert await near("03-01T15:00:00") == nine
    assert await near("03-01T12:00:00", after=ten.at) == nine
    assert await near("03-01T12:00:00", after=nine.at) is None


async def test_usage_between_two_moments_is_of_what_was_sent_between_them(book: Book) -> None:
    for hour in (11, 12, 13):
        await book.buy(f"at {hour}", at(f"03-01T{hour}:00:00"), cost=f"0.{hour}")
    await book.buy("strange", at("03-01T12:00:00"), batch="strange", cost="5", service=ELSEWHERE)
    between = await book.read(
        lambda connection, _: spending.usage_between(
            connection, HERE, at("03-01T12:00:00"), at("03-01T13:00:00")
        )
    )
    assert between == Decimal("0.12")


# ---- the balance that the ledger expects, as evidence for doubts


async def in_doubt(ledger: Ledger, name: str) -> Doubt:
    """Sends a job of 0.04 dollars that ends in doubt."""
    [attempt] = await submitting(ledger, job(name))
    await ledger.doubt(attempt, "cut off")
    return next(doubt for doubt in await ledger.read(queries.doubts) if doubt.row_id == name)


async def bought(ledger: Ledger, name: str, cost: str = "0.04") -> None:
    [attempt] = await submitting(ledger, job(name))
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
        await ledger.settle([old], charged=True, by="ada", why=None)
        async with buyer(url, "new", "9.90", service=HERE):
            pass  # a later run is no base: what is in doubt may be gone from its balance already
        known = await expected(ledger, doubt)
        assert (known.balance_then, known.spent_since) == (Decimal("9.96"), Decimal("0.04"))
        assert (known.balance_now, known.in_doubt) == (Decimal("9.92"), Decimal("0.04"))


async def test_the_evidence_of_older_doubts_is_the_same_when_the_service_has_moved(url: str) -> None:
    """All its batches in the ledger have moved with it: their spending left the same balance."""
    async with buyer(url, "other", "10", service=HERE) as ledger:
        await bought(ledger, "before", "3")
    async with buyer(url, "b", "7", service=HERE) as ledger:
        doubt = await in_doubt(ledger, "a")
        async with buyer(url, "other", service=HERE) as other:
            await bought(other, "since", "0.02")
        before = await expected(ledger, doubt)
        assert before.spent_since == Decimal("0.02")
        await ledger.rebind(ELSEWHERE)
        assert await expected(ledger, doubt) == before


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


async def test_an_accepted_video_is_in_flight_and_not_in_doubt(url: str) -> None:
    async with buyer(url, "b", "10", service=HERE) as ledger:
        [attempt] = await submitting(ledger, job("video", ModelType.VIDEO))
        await ledger.pending(attempt, "req-video")
        await ledger.doubt(attempt, "the service does not know it")
        known = await expected(ledger, await in_doubt(ledger, "a"))
        assert (known.in_doubt, known.in_flight) == (Decimal("0.04"), Decimal("0.04"))
        today = datetime.now(UTC).date()
        days = await ledger.read(
            lambda connection, batch: spending.days(connection, batch, HERE, today, today)
        )
        assert (days[today].quoted, days[today].in_flight) == (Decimal("0.08"), Decimal("0.04"))
