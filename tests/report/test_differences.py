"""What is certain of a difference between the service's account and the ledger's, and of doubts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from callsheet.ledger.spending import Spending
from callsheet.records import Doubt, ModelType
from callsheet.report.against_account import Day, OpenDoubt, compare

FIRST = date(2026, 3, 1)
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
) -> tuple[list[Day], list[OpenDoubt]]:
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


def test_what_is_missing_is_not_yet_posted_until_two_days_after_the_day() -> None:
    for now, expected in (
        (datetime(2026, 3, 1, 13, tzinfo=UTC), ("not yet posted 0.0300", "0")),
        (datetime(2026, 3, 3, 23, 59, 59, tzinfo=UTC), ("not yet posted 0.0300", "0")),
        (datetime(2026, 3, 4, tzinfo=UTC), ("unexplained 0.0300", "0.03")),
    ):
        assert reasons(["0.01"], [spent("0.04")], now=now) == [expected]


def test_lag_does_not_hide_what_another_key_spent_the_day_before() -> None:
    now = datetime(2026, 3, 2, 9, tzinfo=UTC)
    assert reasons(["5.00", "0"], [spent("0"), spent("5.00")], now=now) == [
        ("unexplained 5.0000", "5"),
        ("not yet posted 5.0000", "0"),
    ]


def test_what_was_sent_near_midnight_may_be_charged_on_the_day_beside_it() -> None:
    late = [spent("0.10", late="0.04"), spent("0.20")]
    near = ("sent near midnight 0.0400", "0")
    assert reasons(["0.06", "0.24"], late) == [near, near]
    early = [spent("0.10"), spent("0.20", early="0.04")]
    assert reasons(["0.14", "0.16"], early) == [near, near]
    beyond = ("sent near midnight 0.0100; unexplained 0.0300", "0.03")
    assert reasons(["0.06", "0.24"], [spent("0.10", late="0.01"), spent("0.20")]) == [beyond, beyond]


def test_what_is_in_doubt_or_in_flight_may_be_charged_also_on_the_next_day() -> None:
    own = [spent("0.04", "0.29", in_flight="0.25"), spent("0"), spent("0")]
    may = ("in doubt or in flight 0.2500", "0")
    assert reasons(["0.29", "0", "0"], own)[0] == may
    assert reasons(["0.04", "0.25", "0"], own) == [("", "0"), may, ("", "0")]
    assert reasons(["0.04", "0", "0.25"], own)[2] == ("unexplained 0.2500", "0.25")
    assert reasons(["0.34", "0", "0"], own)[0] == (
        "in doubt or in flight 0.2500; unexplained 0.0500",
        "0.05",
    )
    assert reasons(["0.0010"], [], doubt("a"))[0] == ("in doubt or in flight 0.0010", "0")


# ---- doubts


def test_a_difference_that_is_not_exactly_the_doubts_decides_nothing() -> None:
    some = (["0.0030"], [], doubt("a"), doubt("b"), doubt("c"))
    assert reasons(*some) == [("in doubt or in flight 0.0030", "0")]
    assert verdicts(*some) == ["unclear"] * 3
    beyond = (["1.0015"], [], doubt("a"))
    assert reasons(*beyond) == [("in doubt or in flight 0.0015; unexplained 1.0000", "1")]
    assert verdicts(*beyond) == ["unclear"]
    assert verdicts(["0.0015"], [], doubt("a"), doubt("b", None)) == ["unclear", "unclear"], "no price"
    assert reasons(["0.5"], [], doubt("b", None)) == [("unexplained 0.5000", "0.5")]


def test_what_is_in_flight_may_have_been_charged_in_a_doubt_s_place() -> None:
    own = [spent("0", "0.50", in_flight="0.25"), spent("0")]
    video = doubt("a", "0.25")
    assert verdicts(["0.25", "0"], own, video) == ["unclear"]
    assert reasons(["0.50", "0"], own, video)[0] == ("in doubt or in flight 0.5000", "0")
    later = doubt("a", "0.25", at="2026-03-02T12:00:00")
    assert verdicts(["0", "0.25"], own, later) == ["unclear"], "it may be charged on a later day"
    assert verdicts(["0", "0"], own, video) == ["not charged"], "nothing was charged at all"


def test_a_difference_on_the_day_beside_it_decides_nothing() -> None:
    """A charge near midnight may be on either day, of the doubt or of something else."""
    late = doubt("a", at="2026-03-01T23:59:30")
    assert verdicts(["0", "0.0015"], [], late) == ["unclear"]
    assert reasons(["0", "0.0015"], [], late) == [("", "0"), ("in doubt or in flight 0.0015", "0")]
    assert verdicts(["0", "0"], [], late) == ["not charged"]
    own = [spent("0.0015", late="0.0015"), spent("0")]
    noon = doubt("b", at="2026-03-02T12:00:00")
    assert verdicts(["0", "0.0015"], own, noon) == ["unclear"], "it is the cost of the day before"
    assert verdicts(["0.0015", "0.0015"], own, noon) == ["charged"]
    assert verdicts(["0.0015", "0.0015"], [], late, noon) == ["charged", "charged"]


def test_attempts_at_one_job_are_settled_together_so_different_verdicts_are_none() -> None:
    twice = doubt("a"), doubt("a", at="2026-03-05T12:00:00", attempt=2)
    billed = ["0.0015", *["0"] * 6]
    assert verdicts(billed, [], *twice) == ["unclear", "unclear"]
    assert verdicts(["0.0015", "0", "0", "0", "0.0015", "0"], [], *twice) == ["charged", "charged"]
