"""Prices: exact, by the interface's rules only, and a reason for every rejected row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.pricing.parameters import Combination, Reject
from callsheet.service.models import Catalogue, Model
from tests.pricing.offers import Offer, offer
from tests.pricing.plans import CATALOGUE, model, rate


def offered_for(wanted: Combination, catalogue: Catalogue = CATALOGUE, **defaults: Any) -> Offer:
    offered = offer(wanted, catalogue, defaults)
    assert isinstance(offered, Offer), offered
    return offered


def test_defaults_apply_to_the_type_that_takes_them_unless_the_row_has_a_value():
    defaults = {"output_format": "png", "duration": 10, "sound": True}
    image = offered_for(Combination("still-1"), **defaults).parameters
    assert image["output_format"] == "png"
    image = offered_for(Combination("still-1", output_format="webp"), **defaults).parameters
    assert image["output_format"] == "webp"
    video = offered_for(Combination("reel-1", sound=False), **defaults).parameters
    assert (video["duration"], video["sound"], "output_format" in video) == (10, False, False)


MUTE = model("mute-1", "video", supported_durations=[4], supported_resolutions=["480p"])
OTHERS = {"mute-1": MUTE, "choir-1": model("choir-1", "audio")}
ONE = rate("4K", "not_applicable", "image", "1")


@pytest.mark.parametrize(
    ("rates", "currency", "expected"),
    [
        ([], "USD", "has no rates in the catalogue, which does not mean that it is free"),
        ([ONE], "EUR", "is priced in EUR"),
        ([ONE], "", "is priced in no currency, and"),
        ([rate("", "not_applicable", "image", "1")], "USD", "no rate for resolution 4K and sound"),
        ([ONE | {"billable_unit": ""}], "USD", "is billed by no unit, and"),
        ([ONE | {"sound": "sound_off"}], "USD", "no rate for resolution 4K and sound not_applicable"),
        ([ONE | {"billable_unit": "megapixel"}], "USD", "is billed by megapixel"),
        ([ONE | {"unit_price": "1.0000001"}], "USD", "at least 0 with at most six decimals"),
        ([ONE | {"unit_price": "-1"}], "USD", "expected an amount of at least 0"),
        ([ONE, ONE | {"unit_price": "2"}], "USD", "has several rates"),
    ],
)
def test_a_request_without_a_certain_price_is_unpriced_with_a_reason(rates, currency, expected):
    odd = model("odd", "image", *rates, currency=currency, supported_resolutions=["4K"])
    offered = offered_for(Combination("odd"), {"odd": odd})
    assert offered.price is None
    assert expected in offered.unpriced


def test_the_same_rate_twice_is_one_rate_and_neither_no_resolution_nor_negative_seconds_have_a_price():
    twice = model("m", "image", ONE, ONE, supported_resolutions=["4K"])
    assert offered_for(Combination("m"), {"m": twice}).price
    none = offered_for(Combination("m"), {"m": model("m", "image", ONE)})
    assert none.unpriced == "m has no rate for a request without a resolution and sound not_applicable"
    seconds = ONE | {"billable_unit": "video_second"}
    odd = model("m", "video", seconds, supported_durations=[-5], supported_resolutions=["4K"])
    assert offered_for(Combination("m"), {"m": odd}).price is None


@pytest.mark.parametrize(
    ("name", "wanted", "column", "reason"),
    [
        ("stil-1", {}, "model", "the service has no model stil-1; did you mean still-1?"),
        ("xyzzy", {}, "model", "the service has no model xyzzy; it has still-1, reel-1, proof-1, mute-1"),
        ("choir-1", {}, "model", "choir-1 makes audio, which cannot be bought in a batch"),
        ("reel-1", {"duration": 7}, "duration", "duration 7 is not offered by reel-1; it offers 5, 10"),
        ("still-1", {"aspect_ratio": "3:2"}, "aspect_ratio", "3:2 is not offered by still-1; it offers 1:1"),
        ("mute-1", {"aspect_ratio": "1:1"}, "aspect_ratio", "by mute-1; it takes no aspect_ratio"),
        ("mute-1", {"sound": True}, "sound", "mute-1 makes videos without sound"),
        ("still-1", {"output_format": "gif"}, "output_format", "still-1; it offers jpeg, png, webp"),
        ("still-1", {"duration": 5}, "duration", "duration is for videos, and still-1 makes images"),
        ("still-1", {"sound": False}, "sound", "sound is for videos, and still-1 makes images"),
        ("reel-1", {"output_format": "png"}, "output_format", "is for images, and reel-1 makes videos"),
        ("still-1", {"images": ["first_frame"]}, "a", "takes no first_frame; it takes reference_image"),
        ("still-1", {"images": ["reference_image"] * 5}, "e", "at most 4 reference_image; 5 are given"),
        ("mute-1", {"images": ["first_frame"]}, "a", "mute-1 takes no first_frame; it takes no images"),
        ("reel-1", {"images": ["poster"]}, "a", "takes no poster; it takes first_frame, last_frame"),
        ("reel-1", {"images": [None]}, "a", "an image for a video needs a role; expected first_frame"),
        ("reel-1", {"images": ["last_frame"]}, "a", "a last_frame needs a first_frame"),
        ("reel-1", {"images": ["first_frame", "reference_image"]}, "b", "cannot be combined with"),
        ("reel-1", {"images": ["first_frame"] * 2}, "b", "reel-1 takes at most 1 first_frame; 2 are given"),
        ("reel-1", {"images": ["reference_image"] * 21}, "u", "21 images are given; a request takes at most"),
    ],
)
def test_what_the_service_would_refuse_is_rejected_with_column_and_reason(name, wanted, column, reason):
    """The columns of images are named a, b, c and so on."""
    images = tuple((role, chr(97 + at)) for at, role in enumerate(wanted.get("images", ())))
    offered = offer(Combination(name, **wanted | {"images": images}), CATALOGUE | OTHERS)
    assert isinstance(offered, Reject), offered
    assert offered.column == column
    assert reason in offered.reason


def test_a_catalogue_without_models_is_said_to_have_none():
    assert offer(Combination("m"), {}) == Reject("model", "m", "the service has no model m; it has none")


def test_images_within_the_rules_are_priced():
    assert offered_for(Combination("still-1", images=((None, "images"),))).price
    assert offered_for(Combination("reel-1", images=(("first_frame", "f"), ("last_frame", "l")))).price
    assert offered_for(Combination("reel-1", images=(("reference_image", "r"),) * 3)).price


RESOLUTIONS = ["480p", "720p", "1K"]
SOUNDS = ["sound_on", "sound_off", "not_applicable", "surround"]

prices = st.decimals(min_value=0, max_value=1000, places=4).map(str)
units = st.sampled_from(["image", "video_second", "credit"])
rates = st.builds(rate, st.sampled_from(RESOLUTIONS), st.sampled_from(SOUNDS), units, prices)
models = st.builds(
    lambda model_type, rates, durations, ratios, resolutions, sound, currency: model(
        "m",
        model_type,
        *rates,
        currency=currency,
        supported_durations=durations if model_type == "video" else [],
        supported_aspect_ratios=ratios,
        supported_resolutions=resolutions,
        supports_sound=sound,
    ),
    st.sampled_from(["image", "video"]),
    st.lists(rates, max_size=6, unique_by=lambda each: (each["resolution"], each["sound"])),
    st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(["1:1", "16:9"]), min_size=1, max_size=2, unique=True),
    st.lists(st.sampled_from(RESOLUTIONS), min_size=1, max_size=3, unique=True),
    st.booleans(),
    st.sampled_from(["USD", "USD", "USD", "EUR"]),
)
combinations = st.builds(
    Combination,
    st.sampled_from(["m", "m", "m", "n"]),
    st.none() | st.sampled_from(["1:1", "16:9"]),
    st.none() | st.sampled_from(RESOLUTIONS),
    st.none() | st.sampled_from(["jpeg", "bmp"]),
    st.none() | st.integers(1, 12),
    st.none() | st.booleans(),
)


def reference_price(wanted: Combination, catalogue: dict[str, Model]) -> Decimal | str:
    """The price, 'rejected' or 'unpriced': the sentences of INTERFACE 2.10, one after another."""
    if wanted.model not in catalogue:
        return "rejected"
    m = catalogue[wanted.model]
    if wanted.aspect_ratio is not None and wanted.aspect_ratio not in m.supported_aspect_ratios:
        return "rejected"
    if wanted.resolution is not None and wanted.resolution not in m.supported_resolutions:
        return "rejected"
    resolution = wanted.resolution or m.supported_resolutions[0]
    if m.type == "image":
        if wanted.duration is not None or wanted.sound is not None or wanted.output_format == "bmp":
            return "rejected"
        order, unit, quantity = ["not_applicable"], "image", 1
    else:
        if wanted.output_format is not None or (wanted.sound and not m.supports_sound):
            return "rejected"
        if wanted.duration is not None and wanted.duration not in m.supported_durations:
            return "rejected"
        order = ["sound_on" if wanted.sound else "sound_off", "not_applicable"]
        unit, quantity = "video_second", wanted.duration or m.supported_durations[0]
    if m.pricing.currency != "USD":
        return "unpriced"
    for sound in order:
        for each in m.pricing.rates:
            if each.resolution == resolution and each.sound == sound:
                return each.unit_price * quantity if each.billable_unit == unit else "unpriced"
    return "unpriced"


@given(models, combinations)
def test_every_price_equals_that_of_a_simple_reference(m, wanted):
    offered = offer(wanted, {"m": m})
    answer: Decimal | str = "rejected"
    if isinstance(offered, Offer):
        answer = offered.price.total if offered.price else "unpriced"
    assert answer == reference_price(wanted, {"m": m})
