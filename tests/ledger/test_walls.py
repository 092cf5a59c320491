"""Before a wall is reached a person is told, once for its amount."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from callsheet.config.settings import Budget
from callsheet.ledger import changes, walls
from callsheet.ledger.ledger import Ledger
from callsheet.present.allowances import of_wall
from tests.ledger.buying import buyer, generation, job, submitting

pytestmark = pytest.mark.anyio


async def bought(ledger: Ledger, *names: str) -> None:
    """Buys jobs of 0.04 dollars each."""
    for name in names:
        [attempt] = await submitting(ledger, job(name))
        await ledger.generated(attempt, generation(name), [f"{name}.png"], "out")


async def told(ledger: Ledger, limit: str | None, **budget: str | None) -> list[str]:
    """What a person is told where the batch's limit is this; `ever` is `budget.ledger`."""
    amount = None if limit is None else Decimal(limit)
    await ledger.write(changes.say_limit, amount, "ada (config)", ledger.run_id)
    budget["ledger"] = budget.pop("ever", None)
    walls_told = await ledger.write(walls.tell, ledger.buyer(Budget.model_validate(budget)))
    return list(map(of_wall, walls_told))


async def test_each_wall_is_told_once_for_its_amount_over_all_runs(url: str) -> None:
    async with buyer(url, "first") as ledger:
        await bought(ledger, "a", "b", "c")
        assert await told(ledger, "0.16", per_day="0.16", ever="0.16") == [], "less than 80 %"
        assert await told(ledger, "0.16", per_day="1", warn="0.75") == [
            "75 % of budget.limit is used: 0.1200 of 0.1600 USD"
        ]
        await bought(ledger, "d")
        of_day = f"100 % of budget.per_day for {datetime.now(UTC):%Y-%m-%d} is used: 0.1600 of 0.1600 USD"
        assert await told(ledger, "0.16", per_day="0.16") == [of_day], "of the limit they were told"
        assert await told(ledger, "0.20", per_day="0.16") == [
            "80 % of budget.limit is used: 0.1600 of 0.2000 USD"
        ], "another amount"
        assert await told(ledger, None, ever="0.20", warn=None) == []
    async with buyer(url, "second") as ledger:
        await bought(ledger, "e")
        assert await told(ledger, "0.05", per_day="0.16", ever="0.2") == [
            "80 % of budget.limit is used: 0.0400 of 0.0500 USD",
            "100 % of budget.ledger is used: 0.2000 of 0.2000 USD",
        ], "a limit is the batch's own"
    async with buyer(url, "second") as ledger:
        assert await told(ledger, "0.05", ever="0.20") == [], "an earlier run has told it"


async def test_that_the_balance_is_low_is_told_once_a_day(ledger: Ledger) -> None:
    assert [await ledger.write(walls.tell_of_balance) for _ in range(2)] == [True, False]


async def test_what_is_told_is_no_change_of_a_setting(ledger: Ledger) -> None:
    await bought(ledger, "a")
    assert await told(ledger, "0.05")
    settings = {change.setting for change in await ledger.read(changes.since, 0)}
    assert settings == {"budget.limit"}
