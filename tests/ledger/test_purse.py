"""A purse: within what a person has given, a name may buy without a question; and no way leads around it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from callsheet.config.settings import Budget
from callsheet.errors import InputError
from callsheet.ledger import gate, leases, purses, states, sums, words
from callsheet.ledger.gate import Obstacle, Reservation
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.ledger.purses import Purse
from callsheet.ledger.states import End
from callsheet.ledger.words import Decision, Place, Reason, Shown, Word
from callsheet.present.allowances import of_purse
from callsheet.present.reasons import why
from callsheet.records import ModelType
from callsheet.steps.approve import new_word
from tests.ledger.buying import buyer, generation, intend, job, word
from tests.ledger.test_budget_per_day import names
from tests.ledger.test_leases import LONG_AGO, change

pytestmark = pytest.mark.anyio

AGENT = "agent"
WEEK = timedelta(days=7)


async def give(ledger: Ledger, amount: str = "0.08", name: str = AGENT, **options: Any) -> Purse:
    said = {"lasts": WEEK, "by": "Ada"} | options
    return await ledger.write(purses.give, name, Decimal(amount), **said)


async def reserve(
    ledger: Ledger, *wanted: str, model: str = "m", budget: Budget | None = None
) -> Reservation:
    """Reserves jobs of 0.04 dollars each."""
    jobs = [replace(job(name), model=model) for name in wanted]
    return await ledger.reserve(jobs, Policy(), ledger.buyer(budget or Budget(), Decimal(100)))


async def left(ledger: Ledger, name: str = AGENT) -> Decimal:
    purse = await ledger.read(purses.newest, name)
    assert purse
    return purse.left


@asynccontextmanager
async def agent(url: str, batch: str = "b", **options: Any) -> AsyncIterator[Ledger]:
    """A run at work that buys by the purse of the agent."""
    async with buyer(url, batch, purse=AGENT, **options) as ledger:
        yield ledger


# ---- the wall


async def test_what_is_reserved_sent_in_doubt_or_spent_by_a_purse_is_never_more_than_it(url: str) -> None:
    async with agent(url) as ledger:
        assert (await reserve(ledger, "a")).obstacle is Obstacle.PURSE, "nobody has given any"
        await give(ledger)
        first = await reserve(ledger, "a", "b", "c")
        assert (len(first.reserved), names(first.left), first.obstacle) == (2, ["c"], Obstacle.PURSE)
        (_, a), (_, b) = first.reserved
        assert [await intend(ledger, a), await intend(ledger, b)] == [None, None]
        assert (await reserve(ledger, "c")).obstacle is Obstacle.PURSE, "what is in flight counts"
        await ledger.transition(states.in_doubt, End(a, "cut off"))
        await ledger.generated(b, generation("b", cost="0.0100"), ["b.png"], "out")
        refused = await reserve(ledger, "c")
        assert (refused.obstacle, refused.remaining) == (Obstacle.PURSE, Decimal("0.03")), "spent, in doubt"
        assert await ledger.read(lambda connection, _: sums.differences(connection)) == []


async def test_a_job_that_fails_gives_back_what_it_took(url: str) -> None:
    async with agent(url) as ledger:
        await give(ledger, "0.04")
        [(_, a)] = (await reserve(ledger, "a")).reserved
        await intend(ledger, a)
        await ledger.transition(states.failed, End(a, "no", "server_error"))
        assert len((await reserve(ledger, "c")).reserved) == 1


async def test_two_servers_share_one_purse_also_in_the_moment_before_the_post(url: str) -> None:
    async with agent(url) as one, agent(url) as other:
        await give(one, "0.20")
        (_, a), (_, b) = (await reserve(one, "a", "b")).reserved
        assert len((await reserve(other, "x", "y", "z")).reserved) == 3
        assert (await reserve(other, "w")).obstacle is Obstacle.PURSE
        await intend(one, a)
        await one.generated(a, generation("a", cost="0.1900"), ["a.png"], "out")
        assert await intend(one, b) is Obstacle.PURSE, "a charge above its quote is the purse's too"


async def test_what_another_run_has_reserved_by_it_is_part_of_what_a_quote_has_to_buy(url: str) -> None:
    async with agent(url) as first, asking(url) as second:
        await give(first)
        await reserve(first, "a", "b")
        assert (await begins(second)).decision is Decision.NOT_ASKED
        assert (await reserve(second, "c")).obstacle is Obstacle.PURSE


async def test_many_runs_at_once_never_pass_it(url: str) -> None:
    async with agent(url) as first:
        await give(first, "0.20")

        async def buy(number: int) -> int:
            async with agent(url) as ledger:
                reserved = (await reserve(ledger, *(f"{number} {nth}" for nth in range(3)))).reserved
                return sum([await intend(ledger, attempt) is None for _, attempt in reserved])

        sent = sum(await asyncio.gather(*map(buy, range(5))))
        assert sent <= 5
        assert (await left(first)) == Decimal("0.20") - sent * Decimal("0.04") >= 0


# ---- whose it is


async def test_another_batch_and_another_name_have_none(url: str) -> None:
    async with agent(url) as ledger, agent(url, "renamed") as renamed, buyer(url, purse="other") as other:
        await give(ledger)
        assert (await reserve(renamed, "a")).obstacle is Obstacle.PURSE
        assert (await reserve(other, "a")).obstacle is Obstacle.PURSE


async def test_it_is_for_its_models_alone(url: str) -> None:
    async with agent(url) as ledger:
        await give(ledger, models=["still-1"])
        assert (await reserve(ledger, "a", model="reel-1")).obstacle is Obstacle.PURSE
        assert (await reserve(ledger, "a", model="still-1")).obstacle is None
        [(_, b)] = (await reserve(ledger, "b", model="still-1")).reserved
        await give(ledger, models=["reel-1"])
        assert await intend(ledger, b) is Obstacle.PURSE, "the newest counts, also for what is reserved"


async def test_a_copy_of_its_ledger_in_another_folder_has_nothing_to_spend(tmp_path: Path) -> None:
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    async with agent(f"sqlite:///{here}") as ledger:
        await give(ledger)
    shutil.copy(here, there)
    async with agent(f"sqlite:///{there}") as copied:
        assert (await reserve(copied, "a")).obstacle is Obstacle.PURSE
        [purse] = await copied.read(purses.all_of_batch)
        assert f"given for another database, {here}" in of_purse(purse)
    (tmp_path / "link.db").symlink_to(here)
    async with agent(f"sqlite:///{tmp_path}/link.db") as same:
        assert (await reserve(same, "a")).obstacle is None


async def test_what_a_person_buys_is_not_counted(url: str) -> None:
    async with agent(url) as ledger, buyer(url) as person:
        await give(ledger)
        [(_, a)] = (await reserve(person, "a")).reserved
        await intend(person, a)
        assert await left(ledger) == Decimal("0.08")


# ---- for how long


async def test_once_closed_nothing_more_is_sent_by_it_not_even_what_is_reserved(url: str) -> None:
    async with agent(url) as ledger:
        await give(ledger)
        [(_, a)] = (await reserve(ledger, "a")).reserved
        closed = await ledger.write(purses.close, AGENT, "Ada")
        assert (closed.left, closed.closed_by) == (0, "Ada")
        assert await intend(ledger, a) is Obstacle.PURSE
        with pytest.raises(InputError, match="no open purse"):
            await ledger.write(purses.close, AGENT, "Ada")


async def test_a_clock_that_is_set_back_makes_it_last_no_longer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as the ledger has seen a later time: of a run, a submission, or another purse."""
    now = datetime.now(UTC)
    async with agent(url) as ledger:
        await give(ledger, lasts=timedelta(hours=1))
        assert (await reserve(ledger, "a")).obstacle is None
        change(url, ledger.run_id, started_at=now + timedelta(hours=2))
        monkeypatch.setattr(leases, "time_by_database", lambda _: now)
        assert (await reserve(ledger, "b")).obstacle is Obstacle.PURSE
        change(url, ledger.run_id, started_at=LONG_AGO)
        assert (await reserve(ledger, "b")).obstacle is None
        await give(ledger, name="other", lasts=timedelta(hours=9))
        monkeypatch.setattr(leases, "time_by_database", lambda _: now + timedelta(hours=3))
        assert (await reserve(ledger, "c")).obstacle is Obstacle.PURSE, "its time is over"


async def test_another_purse_of_the_name_takes_its_place_and_does_not_add_to_it(url: str) -> None:
    async with agent(url) as ledger:
        await give(ledger, "0.08")
        (_, a), (_, b) = (await reserve(ledger, "a", "b")).reserved
        await intend(ledger, a)
        await give(ledger, "0.04")
        assert await left(ledger) == Decimal("0.04")
        assert await intend(ledger, b) is None
        assert await left(ledger) == 0, "what was reserved by the old one is paid by the new one"
        assert (await reserve(ledger, "c")).obstacle is Obstacle.PURSE


# ---- what was bought by it stays its own


async def test_what_a_killed_run_has_sent_counts_for_ever_whoever_takes_it_over(url: str) -> None:
    async with agent(url) as dead:
        await give(dead)
        film = job("film", ModelType.VIDEO)
        _, (_, b) = (
            await dead.reserve([job("a"), film], Policy(), dead.buyer(Budget(), Decimal(1)))
        ).reserved
        await intend(dead, b)
        await dead.pending(b, "req-b")
    async with buyer(url) as person:
        await person.take_over()
        assert await left(person) == Decimal("0.04"), "a was only reserved, and is free"
    async with agent(url) as again:
        assert names((await reserve(again, "c", "d")).left) == ["d"]


async def test_samples_that_are_bought_again_and_retried_doubts_are_paid_by_it(url: str) -> None:
    async with agent(url) as ledger:
        await give(ledger)
        for _ in range(2):
            retry = Policy(retry_doubt=True, attempts=9)
            [(_, a)] = (await ledger.reserve([job("a")], retry, ledger.buyer(Budget(), Decimal(9)))).reserved
            await intend(ledger, a)
            await ledger.transition(states.in_doubt, End(a, "cut off"))
        assert await left(ledger) == 0
        again = await ledger.reserve([job("a")], retry, ledger.buyer(Budget(), Decimal(9)))
        assert again.obstacle is Obstacle.PURSE


# ---- the question


SHOWN = Shown("p", 2, quoted=Decimal("0.08"), at_most=Decimal("0.08"), fits=2, rates=({"id": "m"},))
ALWAYS = Budget(approve_above=Decimal(0))


async def begins(ledger: Ledger, shown: Shown = SHOWN, budget: Budget = ALWAYS) -> Word:
    """The word with which a run is let begin, or its question."""
    buys = ledger.buyer(budget, Decimal(100))
    return await ledger.write(gate.let_begin, buys, shown, new_word(ledger), in_words=why)


@asynccontextmanager
async def asking(url: str, purse: str | None = AGENT) -> AsyncIterator[Ledger]:
    """A run that nobody has let begin."""
    async with await Ledger.open(url, "b", purse=purse) as ledger:
        await ledger.begin_run()
        yield ledger


async def test_within_it_nobody_is_asked_whatever_the_config_says(url: str) -> None:
    async with asking(url) as ledger:
        await give(ledger)
        said = await begins(ledger)
        assert (said.decision, said.place, said.decided_by) == (Decision.NOT_ASKED, Place.PURSE, "Ada")


async def test_a_person_is_asked_where_there_is_none_or_it_is_closed_or_used_up(url: str) -> None:
    async with asking(url) as ledger:
        assert (await begins(ledger)).why == "nobody has given agent a purse for this batch"
        assert (await reserve(ledger, "a")).obstacle is Obstacle.QUESTION
    async with asking(url) as ledger:
        await give(ledger, "0.02")
        wall = await begins(ledger, replace(SHOWN, fits=0))
        assert wall.why == (
            "the purse of agent has 0.0200 of 0.0200 USD left, and 2 jobs for 0.0800 USD to buy"
        )
        assert wall.about == (Reason.PURSE,)
    async with asking(url) as ledger:
        await ledger.write(purses.close, AGENT, "Ada")
        assert "the purse of agent is closed by Ada" in (await begins(ledger)).why


async def test_a_config_that_asks_nobody_and_a_higher_limit_make_it_no_larger(url: str) -> None:
    async with asking(url) as ledger:
        await give(ledger)
        await begins(ledger, budget=Budget(limit=Decimal(1000)))
        larger = replace(SHOWN, plan="q", quoted=Decimal(90), at_most=Decimal(90), fits=1)
        assert (await begins(ledger, larger, Budget(limit=Decimal(1000)))).decision is Decision.NOT_ASKED
        assert await ledger.read(words.allowed) == Decimal("0.08"), "what other runs go by is not raised"
        assert names((await reserve(ledger, "a", "b", "c")).left) == ["c"]


async def test_the_yes_of_a_person_is_for_runs_of_persons(url: str) -> None:
    yes = {"decision": Decision.APPROVED, "decided_by": "Ada", "place": Place.YES, "shown": SHOWN}
    async with asking(url, purse=None) as person, asking(url) as ledger:
        await person.write(words.enter_word, word(person, "1", **yes))
        assert (await begins(ledger)).about == (Reason.PURSE,)


async def test_guesses_doubts_dear_charges_a_pilot_and_jobs_without_a_price_are_asked_about_as_ever(
    url: str,
) -> None:
    reasons: dict[Reason, dict[str, Any]] = {
        Reason.GUESSES: {"guesses": {"prompt": "the prompt is in text"}},
        Reason.UNCLEAR: {"unclear": ("line 7 has taken in rows",)},
        Reason.REPEATS: {"repeats": "2 jobs look like what is bought"},
        Reason.RATE: {"new_rates": ("m costs 0.04, not 0.03",)},
        Reason.PILOT: {"is_rest": True},
        Reason.PURSE: {"unpriced": 1},
    }
    async with asking(url) as ledger:
        await give(ledger, "100")
    for reason, shown in reasons.items():
        async with asking(url) as ledger:
            assert reason in (await begins(ledger, replace(SHOWN, **shown))).about
    async with asking(url) as ledger:
        other = replace(SHOWN, rates=({"id": "m"}, {"id": "reel-1"}))
        await give(ledger, "100", models=["m"])
        assert (await begins(ledger, other)).why == "the purse of agent is not for reel-1, but for m"
        unpriced = await begins(ledger, replace(SHOWN, plan="q", unpriced=1))
        assert "a purse pays no job without a price, and 1 job to buy has no price" in unpriced.why
        without_price = {"quoted": Decimal(0), "at_most": Decimal(0), "unpriced": 2, "fits": 0}
        all_unpriced = await begins(ledger, replace(SHOWN, plan="r", **without_price))
        assert "a purse pays no job without a price" in all_unpriced.why, "it is not used up"


async def test_the_limits_of_the_batch_the_day_and_the_ledger_hold_within_it(url: str) -> None:
    async with agent(url) as ledger:
        await give(ledger, "100")
        small = Decimal("0.03")
        assert (await reserve(ledger, "a", budget=Budget(per_day=small))).obstacle is Obstacle.DAY
        assert (await reserve(ledger, "a", budget=Budget(ledger=small))).obstacle is Obstacle.LEDGER
    async with asking(url) as ledger:
        await begins(ledger, budget=Budget(limit=small))
        assert (await reserve(ledger, "a")).obstacle is Obstacle.LIMIT
