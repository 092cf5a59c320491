"""The rows of a first batch: with any catalogue, reading and pricing them gives what was meant."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from callsheet.pricing.plan import Plan
from callsheet.pricing.starter import Starter, starter
from callsheet.records import ModelType
from callsheet.service.models import Catalogue, Model, Pricing
from tests.pricing.plans import CATALOGUE, Maker, model, rate


def quoted(made: Starter, catalogue: Catalogue, folder: Path) -> Plan:
    """The plan of the file, read and priced as a quote does it."""
    return Maker(folder)(made.as_csv(), catalogue=catalogue, defaults={})


def entry(name: str, model_type: str, *prices: tuple[str, str], **fields: Any) -> Model:
    unit = "image" if model_type == "image" else "video_second"
    rates = [rate(size, "not_applicable", unit, price) for size, price in prices]
    return model(name, model_type, *rates, supported_resolutions=[size for size, _ in prices], **fields)


def test_the_cheapest_values_of_the_cheapest_models_come_first(tmp_path: Path) -> None:
    models = [
        entry("grand", "image", ("4K", "0.9")),
        entry("plain", "image", ("2K", "0.08"), ("1K", "0.04"), supported_aspect_ratios=["1:1", "3:2"]),
        entry("small", "image", ("1K", "0.01"), supported_aspect_ratios=["16:9", "1:1"]),
        entry("reel", "video", ("720p", "0.02"), ("480p", "0.01"), supported_durations=[9, 3]),
    ]
    catalogue = {each.id: each for each in models}
    made = starter(catalogue)
    columns = ("model", "resolution", "duration", "aspect_ratio")
    assert [tuple(map(row.get, columns)) for row in made.rows] == [
        ("small", "1K", None, "16:9"),
        ("small", "1K", None, "1:1"),
        ("reel", "480p", "3", None),
        ("reel", "480p", "3", None),
        ("plain", "1K", None, "1:1"),
    ]
    plan = quoted(made, catalogue, tmp_path)
    assert (plan.jobs, plan.rejected_rows, plan.quoted) == (5, 0, made.quoted)
    assert made.quoted == Decimal("0.12")
    assert made.limit == Decimal("1.00")


UNREADABLE = Model(id="odd", type="unknown", pricing=Pricing(currency=""), unreadable="id: missing")


@pytest.mark.parametrize(
    ("catalogue", "reason"),
    [
        ({}, "no model is named"),
        ({"odd": UNREADABLE}, "no model is named"),
        ({"odd": UNREADABLE, "proof-1": CATALOGUE["proof-1"]}, "proof-1 has no rates"),
    ],
    ids=["empty", "unreadable", "unpriced"],
)
def test_without_any_price_the_quote_rejects_the_one_row_and_says_why(
    catalogue: Catalogue, reason: str, tmp_path: Path
) -> None:
    made = starter(catalogue)
    plan = quoted(made, catalogue, tmp_path)
    assert (plan.jobs, plan.rejected_rows, made.quoted) == (0, 1, 0)
    assert reason in plan.rejects["reason"][0]
    assert made.without == tuple(ModelType)


def read(entry: dict[str, Any]) -> Model:
    """An entry of the catalogue as the client reads it."""
    try:
        return Model.model_validate(entry)
    except ValidationError as error:
        return UNREADABLE.model_copy(update={"id": entry["id"], "unreadable": str(error)})


_size = st.sampled_from(["1K", " 1K", 'a,"b', "x\ny", "'", ""])
_rate = st.builds(
    rate,
    _size,
    st.sampled_from(["not_applicable", "not_applicable", "sound_off", "sound_on", "loud"]),
    st.sampled_from(["image", "video_second", "pixel"]),
    st.sampled_from(["0", "0.0400", "0.1", "99999999", "-1", "0.00000001"]),
)
_currency = st.sampled_from(["USD", "USD", "USD", "EUR"])
_model = st.builds(
    lambda **entry: read(entry),
    id=st.text(min_size=1, max_size=3) | st.sampled_from(["still", " still", "=1+1", "a\r\nb"]),
    type=st.sampled_from(["image", "video", "image", "video", "sound"]),
    supported_aspect_ratios=st.lists(_size, max_size=3),
    supported_resolutions=st.lists(_size, max_size=3),
    supported_durations=st.lists(st.integers(-1, 20) | st.just(10**20), max_size=2),
    pricing=st.fixed_dictionaries({"currency": _currency, "rates": st.lists(_rate, max_size=5)}),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_model, max_size=4))
def test_any_catalogue_makes_a_batch_that_is_quoted_at_the_price_that_was_meant(
    tmp_path: Path, models: list[Model]
) -> None:
    catalogue = {each.id: each for each in models}
    made = starter(catalogue)
    plan = quoted(made, catalogue, tmp_path)
    assert plan.quoted == made.quoted
    if made.quoted:
        assert (plan.jobs, plan.rejected_rows) == (len(made.rows), 0)
