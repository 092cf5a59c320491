"""Large queries as columns: every row once, in its order, with exact types, from each kind of database."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import polars as pl
import pytest
import sqlalchemy as sa

from callsheet.ledger import columns
from callsheet.ledger.tables import attempts
from callsheet.records import Price
from tests.ledger.buying import buyer, intend, job, reserve


def read(url: str, *jobs: object, names: str, part: int = 3) -> list[pl.DataFrame]:
    """The named columns of these jobs, by key, as parts."""

    async def scenario() -> list[pl.DataFrame]:
        async with buyer(url) as ledger:
            reserved, _ = await reserve(ledger, *jobs, limit="1000000")
            await intend(ledger, reserved[0][1], limit="1000000")
            query = sa.select(*(attempts.c[name] for name in names.split())).order_by(attempts.c.row_id)
            return await ledger.read(lambda connection, _: list(columns.parts(connection, query)))

    return asyncio.run(scenario())


@pytest.mark.parametrize("rows", [1, 5, 6, 7, 13])
def test_every_row_is_in_one_part_however_many_parts_there_are(
    url: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_PART", 6)
    monkeypatch.setattr(columns, "_BLOCK", 2)
    names = [f"{number:02}" for number in range(rows)]
    first, *parts = read(url, *map(job, names), names="row_id state")
    assert first.height == 0
    assert [part.height for part in parts] == [6] * (rows // 6) + [rows % 6] * (rows % 6 > 0)
    assert pl.concat([first, *parts])["row_id"].to_list() == names


def test_values_have_the_same_types_from_each_database(url: str) -> None:
    price = Price("image", Decimal("999999.999999"), 1, "USD")
    carried = {"note": 'naïve "x"', "n": [1, None]}
    one = replace(job("a"), price=price, carried=carried)
    names = "row_id superseded quoted cost carried submitted_at finished_at sample"
    began = datetime.now(UTC)
    empty, rows = read(url, one, replace(job("b"), price=None), names=names)
    assert empty.schema == rows.schema
    assert dict(rows.schema) == {
        "row_id": pl.String,
        "superseded": pl.Boolean,
        "quoted": pl.Decimal(18, 6),
        "cost": pl.Decimal(18, 6),
        "carried": pl.String,
        "submitted_at": pl.Datetime("us", "UTC"),
        "finished_at": pl.Datetime("us", "UTC"),
        "sample": pl.Int64,
    }
    first, second = rows.iter_rows(named=True)
    assert (first["row_id"], first["superseded"], first["sample"]) == ("a", False, 1)
    assert (first["quoted"], first["cost"], second["quoted"]) == (price.unit_price, None, None)
    assert json.loads(first["carried"]) == carried
    assert began <= first["submitted_at"] <= datetime.now(UTC)
    assert second["submitted_at"] is None
