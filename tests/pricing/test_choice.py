"""The jobs that a person names, and the pilot: some of every model and of every price."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsheet.batches.read import read_batch
from callsheet.errors import InputError
from callsheet.pricing.choice import Choice, chosen, pilot
from callsheet.pricing.plan import Plan, make_plan
from tests.pricing.plans import CATALOGUE, Maker

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
KINDS = {"still-1": ("1K", ""), "still-2": ("2K", ""), "reel-5": ("", "5"), "reel-10": ("", "10")}


def plan_of(folder: Path, kinds: list[str]) -> Plan:
    """A plan with a job of each of these kinds, in this order; the row's id is its number."""
    lines = ["id,prompt,model,resolution,duration"]
    for number, kind in enumerate(kinds):
        resolution, duration = KINDS[kind]
        lines.append(f"{number},an image,{kind.split('-')[0]}-1,{resolution},{duration}")
    file = folder / "shots.csv"
    file.write_text("\n".join(lines) + "\n")
    config = Maker(folder).settings(file, batch="shots")
    return make_plan(read_batch(config), CATALOGUE, config, folder / "plan.parquet", now=NOON)


@settings(max_examples=40, deadline=None)
@given(kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=30), number=st.integers(1, 12))
def test_a_pilot_is_spread_over_models_and_then_over_prices(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], number: int
) -> None:
    plan = plan_of(tmp_path_factory.mktemp("pilot"), kinds)
    assert plan.jobs == len(kinds)
    mask = pilot(plan, number)
    assert mask.equals(pilot(plan, number)), "it is the same each time"
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


def test_the_first_jobs_are_the_first_that_are_not_bought(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ["still-1"] * 5)
    to_buy = pl.Series([False, True, False, True, True])
    assert chosen(Choice(first=2), plan, to_buy).to_list() == [False, True, False, True, False]
    assert chosen(Choice(first=9), plan, to_buy).equals(to_buy)


def test_only_the_named_rows_are_chosen_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ["still-1"] * 4)
    to_buy = pl.Series([True] * 4)
    assert chosen(Choice(only=("3", "1")), plan, to_buy).to_list() == [False, True, False, True]
    assert chosen(Choice(first=1, only=("3", "1")), plan, to_buy).to_list() == [False, True, False, False]
    with pytest.raises(InputError, match="'seven'"):
        chosen(Choice(only=("1", "seven")), plan, to_buy)
