"""The name of each difference between the service's account and the ledger's, and what it says of doubts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from callsheet.ledger.spending import Spending
from callsheet.records import Doubt, ModelType
from callsheet.report.differences import Day, compare
from callsheet.report.doubt_evidence import JudgedDoubt, OpenDoubt

FIRST = date(2026, 3, 1)
NEXT = date(2026, 3, 2)
LATER = datetime(2026, 3, 20, tzinfo=UTC)
"""When nothing of these days lags any more."""


def spent(usage: str, quoted: str | None = None, **more: str) -> Spending:
    """A day of the ledger, quoted as it cost unless something else is given."""
    return Spending(
        Decimal(quoted or usage), Decimal(usage), **{name: Decimal(v) for name, v in more.items()}
    )


def doubt(
    name: str, price: str | None = "0.0015", at: str = "2026-03-01T12:00:00", attempt: int = 1
) -> OpenDoubt:
    moment = datetime.fromisoformat(at).replace(tzinfo=UTC)
    amount = None if price is None else Decimal(price)
    made = Doubt(name, attempt, name, 1, ModelType.IMAGE, "m", amount, moment, "cut off")
    return OpenDoubt("b", made)


def compared(
    billed: Sequence[str],
    own: Sequence[Spending],
    *doubts: OpenDoubt,
    now: datetime = LATER,
) -> tuple[list[Day], list[JudgedDoubt]]:
    """Days from `FIRST` on."""
    days = [FIRST + timedelta(days=number) for number in range(len(billed))]
    account = {day: Decimal(amount) for day, amount in zip(days, billed, strict=True)}
    return compare(account, dict(zip(days, own, strict=False)), doubts, now)


def reasons(*args: Any, **more: Any) -> list[tuple[str, str]]:
    """The reason and what is unexplained, of each day."""
    days, _ = compared(*args, **more)
    return [(day.reason, str(day.unexplained.normalize())) for day in days]


def verdicts(*args: Any, **more: Any) -> list[str]:
    _, judged = compared(*args, **more)
    return [each.verdict.value for each in judged]


def test_equal_books_have_no_difference_and_no_reason() -> None:
    [day], _ = compared(["0.04"], [spent("0.04")])
    assert (day.difference, day.reason, day.unexplained, day.partial) == (0, "", 0, False)
    assert reasons(["0"], []) == [("", "0")]


@pytest.mark.parametrize(
    "now, expected",
    [
        ("2026-03-01T13:00:00", ("not yet posted 0.0300", "0")),
        ("2026-03-03T23:59:59", ("not yet posted 0.0300", "0")),
        (
            "2026-03-04T00:00:00",
            ("charged less than answered, or bought with another project's key 0.0300", "0.03"),
        ),
    ],
)
def test_what_is_missing_is_not_yet_posted_until_two_days_after_the_day(
    now: str, expected: tuple[str, str]
) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert reasons(["0.01"], [spent("0.04")], now=moment) == [expected]


def test_the_day_that_is_not_over_is_partial() -> None:
    days, _ = compared(["0", "0"], [], now=datetime(2026, 3, 2, 9, tzinfo=UTC))
    assert [day.partial for day in days] == [False, True]


def test_what_nothing_explains_is_most_likely_another_key_s() -> None:
    assert reasons(["1.04"], [spent("0.04")]) == [("another key's spending 1.0000", "1")]
    assert reasons(["1"], []) == [("another key's spending 1.0000", "1")]


def test_a_surcharge_is_named_and_is_no_part_of_the_difference() -> None:
    [day], _ = compared(["0.0525"], [spent("0.0525", "0.04", surcharge="0.0125")])
    assert (day.reason, day.difference, day.unexplained) == ("surcharge over the quote 0.0125", 0, 0)


# ---- midnight


def test_what_was_sent_near_midnight_may_be_posted_on_the_next_day() -> None:
    own = [spent("0.10", late="0.04"), spent("0.20")]
    assert reasons(["0.06", "0.24"], own) == [
        ("posted on the next day 0.0400", "0"),
        ("posted for the day before 0.0400", "0"),
    ]


def test_more_than_was_sent_near_midnight_is_not_explained_by_it() -> None:
    own = [spent("0.10", late="0.01"), spent("0.20")]
    [first, second] = reasons(["0.06", "0.24"], own)
    assert first[0].startswith("posted on the next day 0.0100; charged less than answered")
    assert second == ("posted for the day before 0.0100; another key's spending 0.0300", "0.03")


def test_by_another_clock_it_may_be_posted_on_the_day_before() -> None:
    own = [spent("0.10"), spent("0.20", early="0.04")]
    assert reasons(["0.14", "0.16"], own) == [
        ("posted for the next day 0.0400", "0"),
        ("posted on the day before 0.0400", "0"),
    ]


def test_lag_does_not_hide_what_another_key_spent_the_day_before() -> None:
    now = datetime(2026, 3, 2, 9, tzinfo=UTC)
    assert reasons(["5.00", "0"], [spent("0"), spent("5.00")], now=now) == [
        ("another key's spending 5.0000", "5"),
        ("not yet posted 5.0000", "0"),
    ]


# ---- in flight


def test_what_is_in_flight_may_be_charged_already_also_from_the_day_before() -> None:
    own = [spent("0.04", "0.29", in_flight="0.25"), spent("0")]
    assert reasons(["0.04", "0.25"], own) == [("", "0"), ("charged, and not answered yet 0.2500", "0")]
    assert reasons(["0.34", "0"], own)[0] == (
        "charged, and not answered yet 0.2500; another key's spending 0.0500",
        "0.05",
    )


def test_what_is_in_flight_is_charged_once() -> None:
    own = [spent("0", "0.25", in_flight="0.25"), spent("0")]
    assert reasons(["0.15", "0.15"], own) == [
        ("charged, and not answered yet 0.1500", "0"),
        ("charged, and not answered yet 0.1000; another key's spending 0.0500", "0.05"),
    ]


def test_a_doubt_beside_what_is_in_flight_is_not_decided_by_money_that_both_explain() -> None:
    """An accepted video is most likely charged: the doubt beside it may not be."""
    own = [spent("0", "0.50", in_flight="0.25"), spent("0")]
    video = doubt("a", "0.25")
    assert verdicts(["0.25", "0"], own, video) == ["unclear"]
    assert reasons(["0.25", "0"], own, video)[0] == ("doubts that may have been charged 0.2500", "0")
    assert reasons(["0.50", "0"], own, video)[0] == (
        "doubts that may have been charged 0.2500; charged, and not answered yet 0.2500",
        "0",
    )
    later = doubt("a", "0.25", at="2026-03-02T12:00:00")
    assert verdicts(["0", "0.25"], own, later) == ["unclear"], "it may be charged on a later day"
    assert verdicts(["0.25", "0.25"], own, later) == ["charged"], "the video was charged the day before"
    assert verdicts(["0", "0"], own, video) == ["not charged"], "nothing was charged at all"


# ---- doubts


def test_a_difference_of_exactly_all_doubts_says_that_they_were_charged() -> None:
    args = (["0.0434"], [spent("0.04")], doubt("a"), doubt("b", "0.0019"))
    assert reasons(*args) == [("doubts that were charged 0.0034", "0")]
    assert verdicts(*args) == ["charged", "charged"]


def test_of_equal_doubts_as_many_were_charged_as_the_difference_has() -> None:
    args = (["0.0030"], [], doubt("a"), doubt("b"), doubt("c"))
    assert reasons(*args) == [("doubts that were charged 0.0030", "0")]
    assert verdicts(*args) == ["charged", "charged", "not charged"]
    early = datetime(2026, 3, 1, 13, tzinfo=UTC)
    assert verdicts(*args, now=early) == ["charged", "charged", "unclear"], "more may be posted"


def test_no_difference_says_that_they_were_not_charged_once_nothing_lags() -> None:
    args = (["0.04"], [spent("0.04")], doubt("a"))
    assert verdicts(*args) == ["not charged"]
    assert verdicts(*args, now=datetime(2026, 3, 3, tzinfo=UTC)) == ["unclear"]
    assert verdicts(["0.03"], [spent("0.04")], doubt("a")) == ["unclear"], "something else is wrong"


def test_two_ways_to_make_the_difference_decide_nothing() -> None:
    args = (["0.0030"], [], doubt("a", "0.0010"), doubt("b", "0.0020"), doubt("c", "0.0030"))
    assert reasons(*args) == [("doubts that may have been charged 0.0030", "0")]
    assert verdicts(*args) == ["unclear"] * 3


def test_a_difference_beyond_the_doubts_decides_nothing() -> None:
    args = (["1.0015"], [], doubt("a"))
    assert reasons(*args) == [
        ("doubts that may have been charged 0.0015; another key's spending 1.0000", "1")
    ]
    assert verdicts(*args) == ["unclear"]


def test_a_doubt_without_a_price_decides_nothing() -> None:
    assert verdicts(["0.0015"], [], doubt("a"), doubt("b", None)) == ["unclear", "unclear"]
    assert reasons(["0.5"], [], doubt("b", None)) == [("another key's spending 0.5000", "0.5")]


def test_a_doubt_near_midnight_may_be_charged_on_the_next_day() -> None:
    late = doubt("a", at="2026-03-01T23:59:30")
    assert verdicts(["0", "0.0015"], [], late) == ["charged"]
    assert reasons(["0", "0.0015"], [], late) == [("", "0"), ("doubts that were charged 0.0015", "0")]
    assert verdicts(["0", "0"], [], late) == ["not charged"]
    assert verdicts(["0.0015", "0"], [], late) == ["charged"]
    assert verdicts(["0", "0"], [], late, now=datetime(2026, 3, 4, 1, tzinfo=UTC)) == ["unclear"]
    noon = doubt("a")
    assert reasons(["0", "0.0015"], [], noon)[1] == ("another key's spending 0.0015", "0.0015")


def test_attempts_at_one_job_are_settled_together_so_different_verdicts_are_none() -> None:
    twice = doubt("a"), doubt("a", attempt=2)
    assert verdicts(["0.0015"], [], *twice) == ["unclear", "unclear"]
    assert verdicts(["0.0030"], [], *twice) == ["charged", "charged"]


def test_thousands_of_doubts_with_many_prices_are_not_searched_for_ever() -> None:
    many = [doubt(f"d{n}", f"{1 + n % 90}.{n % 7}" if n % 2 else "0.01") for n in range(5_000)]
    total = sum((each.price for each in many), Decimal(0))
    assert set(verdicts([str(total)], [], *many)) == {"charged"}
    assert reasons([str(total - Decimal("0.05"))], [], *many)[0][0].startswith("doubts that may have been")
