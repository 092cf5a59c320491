"""A ledger of an older Callsheet is upgraded when it is opened, and forgets nothing."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.names import other_name
from callsheet.records import State
from tests.ledger.test_ledger import buyer, generation, job, reserve, state_of

TO_2 = (
    "DROP TABLE batches",
    "DROP INDEX ix_attempts_submitted_at",
    "DROP INDEX media_by_folded_name",
    "ALTER TABLE media DROP COLUMN folded_name",
    "ALTER TABLE runs DROP COLUMN boot",
    "ALTER TABLE runs DROP COLUMN process_start",
    "UPDATE about SET schema_version = 2",
)
TO_1 = (
    *TO_2,
    "DROP TABLE settlements",
    "ALTER TABLE runs DROP COLUMN balance_at_start",
    "ALTER TABLE runs DROP COLUMN spent_at_start",
    "DROP INDEX ix_attempts_request_key",
    "ALTER TABLE attempts DROP COLUMN request_key",
    "ALTER TABLE attempts DROP COLUMN reused_key",
    "ALTER TABLE attempts DROP COLUMN reused_attempt",
    "UPDATE about SET schema_version = 1",
)


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.parametrize("downgrade", [TO_1, TO_2], ids=["from 1", "from 2"])
def test_a_ledger_of_an_older_schema_is_upgraded_and_forgets_nothing(
    url: str, downgrade: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, *map(job, "abc"))
            for name, (one, attempt) in zip(["x.png", "y.png"], reserved[:2], strict=True):
                await ledger.intend(attempt)
                await ledger.generated(attempt, generation(one.row_id), [name], "out")
            await ledger.end_run()
        execute(url, *downgrade, "UPDATE media SET name = 'X.png' WHERE name = 'y.png'")
        async with buyer(url, balance="1.0") as ledger:
            states = [await state_of(ledger, job(name)) for name in "abc"]
            assert states == [State.GENERATED, State.GENERATED, State.PLANNED]
            _, files = await ledger.adopted()
            assert sorted(file.name for file in files) == ["X.png", "x.png"]
            [(_, attempt)], _ = await reserve(ledger, job("c"))
            await ledger.intend(attempt)
            [file] = await ledger.generated(attempt, generation("c"), ["x.PNG"], "out")
            assert file.name == other_name("x.PNG", attempt, 0)
        await (await Ledger.open(url, "b")).close()

    asyncio.run(scenario())


def test_a_ledger_of_a_newer_schema_is_refused_and_left_alone(url: str) -> None:
    async def scenario() -> None:
        await (await Ledger.open(url, "b")).close()
        execute(url, "UPDATE about SET schema_version = 99", "DROP TABLE learned")
        with pytest.raises(LedgerError, match="version 99"):
            await Ledger.open(url, "b")

    asyncio.run(scenario())
    engine = sa.create_engine(url)
    assert not sa.inspect(engine).has_table("learned")
    engine.dispose()
