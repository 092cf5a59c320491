"""The jobs that a person names, and the pilot: some of every model and of every price."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsheet.errors import InputError
from callsheet.pricing.choice import Choice, chosen, pilot

KINDS = {"still-1": ("1K", None), "still-2": ("2K", None), "reel-5": (None, 5), "reel-10": (None, 10)}


def table(kinds: list[str], **columns: object) -> pl.DataFrame:
    """A plan's table with a job of each of these kinds, in this order; the row's id is its number."""
    rows = [
        {"row_id": str(number), "model": kind.split("-")[0], "type": "", "sound": False, "price": 0}
        | dict(zip(("resolution", "duration"), KINDS[kind], strict=True))
        for number, kind in enumerate(kinds)
    ]
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(**columns)


@settings(max_examples=40, deadline=None)
@given(kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=30), number=st.integers(1, 12))
def test_a_pilot_is_spread_over_models_and_then_over_prices(kinds: list[str], number: int) -> None:
    jobs = table(kinds)
    mask = pilot(jobs, number)
    assert mask.equals(pilot(jobs, number)), "it is the same each time"
    taken = [kind for kind, is_taken in zip(kinds, mask, strict=True) if is_taken]
    assert len(taken) == min(number, len(kinds))
    assert_even(taken, kinds, lambda kind: kind.split("-")[0])
    for model in {kind.split("-")[0] for kind in kinds}:
        assert_even(*([kind for kind in some if kind.startswith(model)] for some in (taken, kinds)))
    for kind in set(taken):
        places = [place for place, of in enumerate(kinds) if of == kind]
        assert [place for place in places if mask[place]] == places[: taken.count(kind)], "the file's first"


def assert_even(taken: list[str], of: list[str], group=lambda kind: kind) -> None:
    """No group has two more than another that has any left."""
    counts, available = Counter(map(group, taken)), Counter(map(group, of))
    for one in available:
        for other in available:
            if counts[other] < available[other]:
                assert counts[one] <= counts[other] + 1


def test_the_first_jobs_are_the_first_that_are_not_bought() -> None:
    to_buy = pl.Series([False, True, False, True, True])
    jobs = table(["still-1"] * 5, to_buy=to_buy)
    assert chosen(Choice(first=2), jobs).to_list() == [False, True, False, True, False]
    assert chosen(Choice(first=9), jobs).equals(to_buy)


def test_only_the_named_rows_are_chosen_and_an_unknown_one_is_named() -> None:
    jobs = table(["still-1"] * 4, to_buy=pl.lit(True))
    assert chosen(Choice(only=("3", "1")), jobs).to_list() == [False, True, False, True]
    assert chosen(Choice(first=1, only=("3", "1")), jobs).to_list() == [False, True, False, False]
    with pytest.raises(InputError, match="'seven'"):
        chosen(Choice(only=("1", "seven")), jobs)
