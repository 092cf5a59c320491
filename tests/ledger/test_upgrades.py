"""A ledger of an older Callsheet is upgraded when it is opened, and forgets nothing."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from callsheet.errors import LedgerError
from callsheet.ledger import running_totals
from callsheet.ledger.databases import open_engine
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.names import other_name
from callsheet.ledger.tables import SCHEMA_VERSION, alembic_version, metadata
from callsheet.records import State
from tests.ledger.buying import buyer, generation, job, reserve, state_of

TO_7 = (
    "DROP TABLE allotments",
    "UPDATE alembic_version SET version_num = '7'",
    "UPDATE about SET schema_version = 7",
)
TO_6 = (
    *TO_7,
    "DROP TABLE totals",
    "CREATE TABLE totals (batch TEXT, day VARCHAR(10), state VARCHAR(16), superseded BOOLEAN, "
    "reserved BOOLEAN, jobs BIGINT NOT NULL, quoted BIGINT NOT NULL, cost BIGINT NOT NULL, "
    "PRIMARY KEY (batch, day, state, superseded, reserved))",
    "UPDATE alembic_version SET version_num = '6'",
    "UPDATE about SET schema_version = 6",
)
TO_5 = (
    "DROP TRIGGER totals_insert{of}",
    "DROP TRIGGER totals_update{of}",
    "DROP TRIGGER totals_delete{of}",
    *TO_6,
    "DROP TABLE approvals",
    "DROP TABLE alembic_version",
    "UPDATE about SET schema_version = 5",
)
TO_4 = (
    *TO_5,
    "ALTER TABLE runs DROP COLUMN commits",
    "UPDATE about SET schema_version = 4",
)
TO_3 = (
    *TO_4,
    "DROP TABLE totals",
    "DROP INDEX attempts_reused",
    "UPDATE about SET schema_version = 3",
)
TO_2 = (
    *TO_3,
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

DOWN = {"1": TO_1, "2": TO_2, "3": TO_3, "4": TO_4, "5": TO_5, "6": TO_6, "7": TO_7}


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        of = "" if engine.dialect.name == "sqlite" else " ON attempts"
        for statement in statements:
            connection.exec_driver_sql(statement.format(of=of))
    engine.dispose()


@pytest.mark.parametrize("downgrade", DOWN.values(), ids=DOWN)
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
        case = "UPDATE media SET name = 'X.png', folded_name = NULL WHERE name = 'y.png'"
        execute(
            url,
            *downgrade,
            case if downgrade not in (TO_1, TO_2) else case.replace(", folded_name = NULL", ""),
        )
        async with buyer(url, balance="1.0") as ledger:
            states = [await state_of(ledger, job(name)) for name in "abc"]
            assert states == [State.GENERATED, State.GENERATED, State.PLANNED]
            _, files = await ledger.adopted()
            assert sorted(file.name for file in files) == ["X.png", "x.png"]
            [(_, attempt)], _ = await reserve(ledger, job("c"))
            await ledger.intend(attempt)
            [file] = await ledger.generated(attempt, generation("c"), ["x.PNG"], "out")
            assert file.name == other_name("x.PNG", attempt, 0)
            assert await ledger.read(lambda connection, _: running_totals.differences(connection)) == []
            assert (await ledger.read(running_totals.of_batch)).spent == 3 * Decimal("0.04")
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


@pytest.mark.parametrize("downgrade", [TO_1, TO_3, TO_6], ids=["1", "3", "6"])
def test_an_upgraded_ledger_has_the_tables_of_a_new_one(url: str, downgrade: tuple[str, ...]) -> None:
    open_engine(url).dispose()
    execute(url, *downgrade)
    engine = open_engine(url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        assert connection.scalar(sa.select(alembic_version.c.version_num)) == str(SCHEMA_VERSION)
    engine.dispose()
