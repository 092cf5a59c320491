"""Columns that follow from others (`pricing.distinct`)."""

from typing import Any

import polars as pl
import pytest

from callsheet.pricing.distinct import Cells, Resolver

LENGTHS = {"length": pl.Int64, "shared": pl.Enum(["text"]), "price": pl.Decimal(18, 6)}


class Counting:
    """Resolves the length of a model's name, and counts the combinations that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Cells] = []

    def __call__(self, combinations: list[Cells]) -> list[Cells]:
        self.asked += combinations
        return [
            {"length": len(cells["model"] or ""), "shared": "text", "price": "0.040700"}
            for cells in combinations
        ]


@pytest.fixture
def resolve() -> Counting:
    return Counting()


@pytest.fixture
def resolver(resolve: Counting) -> Resolver:
    return Resolver(["model", "size"], resolve, LENGTHS)


def models(*names: str | None) -> pl.DataFrame:
    columns: dict[str, Any] = {"prompt": pl.String, "model": pl.String, "size": pl.Int64}
    return pl.DataFrame([("x", name, None) for name in names], schema=columns, orient="row")


def lengths(resolver: Resolver, *names: str | None) -> list[int]:
    return resolver.add_to(models(*names))["length"].to_list()


def test_each_combination_of_a_table_is_resolved_once(resolver, resolve):
    assert lengths(resolver, "one", "three", "one", None) == [3, 5, 3, 0]
    assert [cells["model"] for cells in resolve.asked] == ["one", "three", None]


def test_the_same_combinations_in_the_next_table_are_not_resolved_again(resolver, resolve):
    assert lengths(resolver, "one", "three") == [3, 5]
    assert lengths(resolver, "one", "one", "three") == [3, 3, 5]
    assert len(resolve.asked) == 2


@pytest.mark.parametrize(
    "names", [("three", "one"), ("seven",), ("one",), (None, None), ("one", "three", None)]
)
def test_other_combinations_in_the_next_table_have_their_own_values(resolver, names):
    assert lengths(resolver, "one", "three") == [3, 5]
    assert lengths(resolver, *names) == [len(name or "") for name in names]
    assert lengths(resolver, "one", "three") == [3, 5]


def test_the_new_columns_have_their_types_in_a_table_without_rows_too(resolver, resolve):
    none, some = resolver.add_to(models()), resolver.add_to(models("one"))
    assert none.schema == some.schema == models().schema | LENGTHS
    assert len(resolve.asked) == 1
