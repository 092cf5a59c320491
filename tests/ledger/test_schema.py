"""There is one schema: a ledger of another one is refused, with what to do, and left as it is."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from callsheet.errors import LedgerError
from callsheet.ledger.ledger import Ledger


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.parametrize("version", [8, 99])
def test_a_ledger_of_another_schema_is_refused_and_left_alone(url: str, version: int) -> None:
    async def scenario() -> None:
        await (await Ledger.open(url, "b")).close()
        execute(url, f"UPDATE about SET schema_version = {version}", "DROP TABLE learned")
        with pytest.raises(LedgerError, match=f"version {version}") as refused:
            await Ledger.open(url, "b")
        assert "another ledger.url" in refused.value.hint

    asyncio.run(scenario())
    engine = sa.create_engine(url)
    assert not sa.inspect(engine).has_table("learned")
    engine.dispose()
