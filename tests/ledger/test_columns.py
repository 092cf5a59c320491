"""Large queries as columns: the same exact types from each kind of database."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import polars as pl
import pytest
import sqlalchemy as sa

from callsheet.ledger import frames
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.tables import attempts
from callsheet.records import Price
from tests.ledger.buying import intend, job, reserve

pytestmark = pytest.mark.anyio


async def test_values_have_the_same_types_from_each_database(ledger: Ledger) -> None:
    price = Price("image", Decimal("999999.999999"), 1, "USD")
    carried = {"note": 'naïve "x"', "n": [1, None]}
    one = replace(job("a"), price=price, carried=carried)
    names = "row_id superseded quoted cost carried submitted_at finished_at sample"
    began = datetime.now(UTC)
    reserved, _ = await reserve(ledger, one, replace(job("b"), price=None), limit="1000000")
    await intend(ledger, reserved[0][1], limit="1000000")
    query = sa.select(*(attempts.c[name] for name in names.split())).order_by(attempts.c.row_id)
    empty, rows = await ledger.read(lambda connection, _: list(frames.parts(connection, query)))
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
