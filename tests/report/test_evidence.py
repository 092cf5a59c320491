"""Which doubts were charged, as far as what is gone from the balance says it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from callsheet.records import Doubt, ExpectedBalance, ModelType
from callsheet.report.evidence import Evidence, fitting

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def doubts(*prices: str | None, jobs: Sequence[str] = ()) -> list[Doubt]:
    """A doubt for each price; row and job are called a, b, c and so on, or as `jobs` says."""
    names = jobs or [f"{chr(97 + n % 26)}{n // 26 or ''}" for n in range(len(prices))]
    return [
        Doubt(
            name, nth, name, 1, ModelType.IMAGE, "m", price if price is None else Decimal(price), NOW, "cut"
        )
        for nth, (name, price) in enumerate(zip(names, prices, strict=True), 1)
    ]


def found(these: Sequence[Doubt], missing: str) -> list[str] | None:
    """The rows of each sum."""
    sums = fitting(these, Decimal(missing))
    return sums and [" ".join(one.row_id for one in each) for each in sums]


def said(these: Sequence[Doubt], gone: str, *, in_flight: str = "0", elsewhere: str = "0") -> str:
    """What `resolve` concludes."""
    in_doubt = sum((one.price or Decimal(0) for one in these), Decimal(elsewhere))
    expected = ExpectedBalance(NOW, Decimal(1), Decimal(0), in_doubt, Decimal(in_flight))
    evidence = Evidence(expected, Decimal(1) - Decimal(gone), (), None, these)
    return dict(evidence.facts()).get("So", "")


def test_the_sums_that_are_gone_are_found_and_equal_prices_are_a_count() -> None:
    four = doubts("0.0150", "0.0130", "0.0150", "0.0080")
    assert found(four, "0.0430") == ["a b c"]
    assert found(four, "0.0150") == ["a"], "of two of one price it does not matter which"
    assert found(four, "0.0230") == ["a d"]
    assert found(four, "0") == [""]
    assert found(four, "0.0510") == ["a b c d"]
    for other in ("0.0010", "0.0431", "0.043001", "0.0999", "-0.0150"):
        assert found(four, other) == []
    assert found(doubts("0.03", "0.02", "0.01"), "0.03") == ["a", "b c"]
    assert found(
        doubts(*["0.01"] * 3, "0.02", "0.04", "0.05", "0.06"),
        "0.06",
    ) == ["g", "a f", "d e", "a b e"]


def test_attempts_at_one_job_are_charged_together_as_they_are_settled() -> None:
    twice = doubts("0.01", "0.01", "0.01", jobs=["a", "a", "b"])
    assert found(twice, "0.02") == ["a a"]
    assert found(twice, "0.01") == ["b"]


def test_what_cannot_be_said_is_not() -> None:
    assert fitting(doubts("0.01", None), Decimal("0.01")) is None
    assert fitting(doubts("0.000001", "5000"), Decimal(5000)) is None, "too many parts to be looked through"
    assert fitting([], Decimal("0.01")) == []


def test_many_doubts_of_many_prices_are_looked_through() -> None:
    many = doubts(*(f"0.{1000 + 7 * (n % 40):04}" for n in range(4_000)))
    sums = fitting(many, Decimal("123.4567"), most=3)
    assert sums is not None
    assert [sum(one.price or 0 for one in each) for each in sums] == [Decimal("123.4567")] * 3


@pytest.mark.parametrize(
    ("prices", "gone", "words"),
    [
        (
            "0.0150 0.0130 0.0150 0.0080",
            "0.0430",
            "row a, c and row b: 0.0430 USD. They seem to have been char",
        ),
        ("0.0015 0.0015 0.0015 0.0015", "0.0045", "any 3 of the 4 at 0.0015: 0.0045 USD. They seem"),
        ("0.03 0.02 0.01", "0.03", "0.0300 USD may be row a; or row b and row c"),
        ("0.03 0.02 0.01", "0.07", "no sum of these prices is 0.0700 USD"),
        ("0.03 0.02 0.01", "0.06", "exactly what is in doubt is gone"),
        ("0.03 0.02 0.01", "0", "nothing is gone"),
    ],
)
def test_the_list_says_which_doubts_it_is(prices: str, gone: str, words: str) -> None:
    assert words in said(doubts(*prices.split()), gone)


def test_nothing_is_concluded_while_something_else_may_be_charged() -> None:
    assert not said(doubts("0.03", "0.02"), "0.02", in_flight="0.05")
    assert not said(doubts("0.03", "0.02"), "0.02", elsewhere="0.01")
    assert not said(doubts("0.03", "0.02", None), "0.02")
