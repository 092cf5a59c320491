"""Which doubts were charged, as far as what is gone from the balance says it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from callsheet.ledger.spending import ExpectedBalance
from callsheet.present.accounts import evidence_facts
from callsheet.records import Doubt, ModelType
from callsheet.report.evidence import Evidence

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


def of(these: Sequence[Doubt], gone: str, *, in_flight: str = "0", elsewhere: str = "0") -> Evidence:
    """The evidence where so much is gone, and other batches have so much in doubt."""
    in_doubt = sum((doubt.price or Decimal(0) for doubt in these), Decimal(elsewhere))
    expected = ExpectedBalance(NOW, Decimal(1), Decimal(0), in_doubt, Decimal(in_flight))
    return Evidence(expected, Decimal(1) - Decimal(gone), (), None, these)


def charged(these: Sequence[Doubt], gone: str, **others: str) -> str | None:
    """The rows that are proposed as charged; None where nothing is proposed."""
    proposed = of(these, gone, **others).charged
    return None if proposed is None else " ".join(doubt.row_id for doubt in proposed)


def said(these: Sequence[Doubt], gone: str, **others: str) -> str:
    """What `resolve` concludes."""
    return dict(evidence_facts(of(these, gone, **others))).get("So", "")


def test_none_all_or_the_one_job_of_this_price_is_proposed() -> None:
    three = doubts("0.0150", "0.0400", "0.0080")
    assert charged(three, "0") == ""
    assert charged(three, "0.0630") == "a b c"
    assert charged(three, "0.0150") == "a"
    assert charged(three, "0.0080") == "c"
    for several_or_other_buyers in ("0.0230", "0.0431", "0.0150001", "0.0999", "-0.0150"):
        assert charged(three, several_or_other_buyers) is None
    assert charged(doubts("0.0150", "0.0150", "0.0400"), "0.0150") is None, "one of two, nobody knows which"


def test_a_job_is_not_proposed_where_several_cheaper_ones_may_come_to_its_price() -> None:
    """Settled as not charged, they would be bought again, and paid for twice."""
    assert charged(doubts("0.03", "0.02", "0.01"), "0.03") is None
    assert charged(doubts("0.03", "0.02", "0.0099"), "0.03") == "a"


def test_attempts_at_one_job_are_charged_together_as_they_are_settled() -> None:
    twice = doubts("0.01", "0.01", "0.03", jobs=["a", "a", "b"])
    assert charged(twice, "0.02") == "a a"
    assert charged(twice, "0.01") is None


@pytest.mark.parametrize(
    ("prices", "gone", "words"),
    [
        ("0.0150 0.0400", "0.0400", "row b: 0.0400 USD. It seems to have been charged, and the others not"),
        ("0.03 0.02 0.01", "0.05", "it is not plain which jobs are 0.0500 USD: nothing is proposed"),
        ("0.03 0.02 0.01", "0.06", "exactly what is in doubt is gone"),
        ("0.03 0.02 0.01", "0", "nothing is gone"),
    ],
)
def test_the_list_says_which_doubts_it_is(prices: str, gone: str, words: str) -> None:
    assert words in said(doubts(*prices.split()), gone)


def test_nothing_is_concluded_while_something_else_may_be_charged() -> None:
    two = doubts("0.03", "0.02")
    assert charged(two, "0.02", in_flight="0.05") is None
    assert not said(two, "0.02", in_flight="0.05")
    for these, elsewhere in (two, "0.01"), (doubts("0.03", "0.02", None), "0"):
        assert charged(these, "0.02", elsewhere=elsewhere) is None
        assert "nothing is proposed" in said(these, "0.02", elsewhere=elsewhere)
