"""Pricing: exact, by the interface's rules alone, and a reason that a person can act on."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.pricing.rates import Combination, Defaults, Offer, Reject, offer
from callsheet.records import Model


def rate(resolution: str, sound: str, unit: str, price: str) -> dict[str, str]:
    return {"resolution": resolution, "sound": sound, "billable_unit": unit, "unit_price": price}


def model(name: str, kind: str, rates: list[dict[str, str]], **fields: Any) -> Model:
    pricing = {"currency": fields.pop("currency", "USD"), "rates": rates}
    return Model.model_validate({"id": name, "type": kind, "pricing": pricing, **fields})


STILL = model(
    "still-1",
    "image",
    [rate("1K", "not_applicable", "image", "0.0400"), rate("2K", "not_applicable", "image", "0.0815")],
    supported_aspect_ratios=["1:1", "16:9"],
    supported_resolutions=["2K", "1K", "4K"],
    supported_references={"reference_image": 2},
)
REEL = model(
    "reel-1",
    "video",
    [
        rate("720p", "sound_off", "video_second", "0.0500"),
        rate("720p", "sound_on", "video_second", "0.0750"),
        rate("1080p", "not_applicable", "video_second", "0.1000"),
        rate("360p", "sound_off", "video_second", "0.0100"),
    ],
    supported_aspect_ratios=["16:9"],
    supported_durations=[5, 10],
    supported_resolutions=["720p", "1080p", "360p"],
    supports_sound=True,
    supported_references={"first_frame": 1, "last_frame": 1, "reference_image": 3},
)
MUTE = model("mute-1", "video", [], supported_durations=[4], supported_resolutions=["480p"])
CATALOGUE = {each.id: each for each in (STILL, REEL, MUTE)}


def sold(asked: Combination, **more: Any) -> Offer:
    found = offer(asked, CATALOGUE, **more)
    assert isinstance(found, Offer), found
    return found


def refused(name: str, **asked: Any) -> tuple[str, str]:
    found = offer(Combination(name, **asked), CATALOGUE)
    assert isinstance(found, Reject), found
    return found.column, found.reason


def test_what_an_image_leaves_open_is_the_model_s_first_entry():
    found = sold(Combination("still-1"))
    assert found.parameters == {
        "model": "still-1",
        "aspect_ratio": "1:1",
        "resolution": "2K",
        "output_format": "jpeg",
    }
    assert found.price is not None
    assert (found.price.total, found.price.billable_unit, found.price.quantity) == (
        Decimal("0.0815"),
        "image",
        1,
    )


def test_what_a_video_leaves_open_is_the_model_s_first_entry_and_silence():
    found = sold(Combination("reel-1"))
    assert found.parameters == {
        "model": "reel-1",
        "aspect_ratio": "16:9",
        "resolution": "720p",
        "duration": 5,
        "sound": False,
    }
    assert found.price is not None
    assert found.price.total == Decimal("0.2500")


def test_the_config_s_defaults_apply_to_the_kind_that_takes_them_and_come_after_the_row():
    defaults = Defaults(output_format="png", duration=10, sound=True)
    assert sold(Combination("still-1"), defaults=defaults).parameters["output_format"] == "png"
    assert (
        sold(Combination("still-1", output_format="webp"), defaults=defaults).parameters["output_format"]
        == "webp"
    )
    video = sold(Combination("reel-1", sound=False), defaults=defaults).parameters
    assert (video["duration"], video["sound"]) == (10, False)
    assert "output_format" not in video


@pytest.mark.parametrize(
    ("resolution", "sound", "unit_price"),
    [
        ("720p", True, "0.0750"),
        ("720p", False, "0.0500"),
        ("720p", None, "0.0500"),
        ("1080p", True, "0.1000"),
        ("1080p", False, "0.1000"),
        ("360p", False, "0.0100"),
    ],
)
def test_a_rate_matches_what_is_sent_and_then_not_applicable(resolution, sound, unit_price):
    price = sold(Combination("reel-1", resolution=resolution, sound=sound, duration=10)).price
    assert price is not None
    assert price.total == Decimal(unit_price) * 10


@pytest.mark.parametrize(
    ("rates", "currency", "says"),
    [
        ([], "USD", "has no rates in the catalogue, and that does not mean free"),
        ([rate("4K", "not_applicable", "image", "1")], "EUR", "is priced in EUR"),
        (
            [rate("1K", "not_applicable", "image", "1")],
            "USD",
            "no rate for resolution 4K and sound not_applicable",
        ),
        (
            [rate("4K", "sound_off", "image", "1")],
            "USD",
            "no rate for resolution 4K and sound not_applicable",
        ),
        ([rate("4K", "not_applicable", "megapixel", "1")], "USD", "is billed by megapixel"),
        ([rate("4K", "not_applicable", "video_second", "1")], "USD", "is billed by video_second"),
        ([rate("4K", "not_applicable", "image", "1.0000001")], "USD", "no amount of money to six decimals"),
        ([rate("4K", "not_applicable", "image", "-1")], "USD", "no amount of money"),
        (
            [rate("4K", "not_applicable", "image", "1"), rate("4K", "not_applicable", "image", "2")],
            "USD",
            "has several rates",
        ),
    ],
)
def test_what_has_no_certain_price_is_unpriced_and_says_why(rates, currency, says):
    odd = model("odd", "image", rates, currency=currency, supported_resolutions=["4K"])
    found = offer(Combination("odd"), {"odd": odd})
    assert isinstance(found, Offer)
    assert found.price is None
    assert says in found.unpriced


def test_sound_without_a_rate_of_its_own_is_never_guessed_from_silence():
    found = sold(Combination("reel-1", resolution="360p", sound=True))
    assert (found.price, found.unpriced) == (
        None,
        "reel-1 has no rate for resolution 360p and sound sound_on",
    )


def test_the_same_rate_twice_is_one_rate():
    twice = model(
        "m", "image", [rate("1K", "not_applicable", "image", "0.5")] * 2, supported_resolutions=["1K"]
    )
    found = offer(Combination("m"), {"m": twice})
    assert isinstance(found, Offer)
    assert found.price is not None


@pytest.mark.parametrize(
    ("name", "asked", "column", "reason"),
    [
        ("stil-1", {}, "model", "the service has no model stil-1; did you mean still-1?"),
        ("xyzzy", {}, "model", "the service has no model xyzzy; there are still-1, reel-1, mute-1"),
        ("reel-1", {"duration": 7}, "duration", "duration 7 is not offered by reel-1; it offers 5, 10"),
        (
            "reel-1",
            {"resolution": "4K"},
            "resolution",
            "resolution 4K is not offered by reel-1; it offers 720p, 1080p, 360p",
        ),
        (
            "still-1",
            {"aspect_ratio": "3:2"},
            "aspect_ratio",
            "aspect_ratio 3:2 is not offered by still-1; it offers 1:1, 16:9",
        ),
        (
            "mute-1",
            {"aspect_ratio": "1:1"},
            "aspect_ratio",
            "aspect_ratio 1:1 is not offered by mute-1; it takes no aspect_ratio",
        ),
        ("mute-1", {"sound": True}, "sound", "mute-1 makes no sound"),
        (
            "still-1",
            {"output_format": "gif"},
            "output_format",
            "gif is no output format; there are jpeg, png, webp",
        ),
        ("still-1", {"duration": 5}, "duration", "duration is for videos, and still-1 makes images"),
        ("still-1", {"sound": False}, "sound", "sound is for videos, and still-1 makes images"),
        (
            "reel-1",
            {"output_format": "png"},
            "output_format",
            "output_format is for images, and reel-1 makes videos",
        ),
    ],
)
def test_what_the_service_would_refuse_is_refused_with_column_and_reason(name, asked, column, reason):
    assert refused(name, **asked) == (column, reason)


@pytest.mark.parametrize(
    ("name", "images", "column", "says"),
    [
        (
            "still-1",
            [("first_frame", "first_frame")],
            "first_frame",
            "first_frame is for videos, and still-1 makes images",
        ),
        (
            "still-1",
            [("reference_image", "c")] * 3,
            "c",
            "still-1 takes at most 2 reference_image; 3 are given",
        ),
        ("mute-1", [("first_frame", "c")], "c", "mute-1 takes no first_frame; it takes no images"),
        (
            "reel-1",
            [("poster", "images")],
            "images",
            "reel-1 takes no poster; it takes first_frame, last_frame",
        ),
        ("reel-1", [(None, "images")], "images", "an image for a video needs a role; there are first_frame"),
        ("reel-1", [("last_frame", "l")], "l", "a last_frame needs a first_frame"),
        ("reel-1", [("first_frame", "f"), ("reference_image", "r")], "r", "a reference_image cannot go with"),
        ("reel-1", [("first_frame", "f")] * 2, "f", "reel-1 takes at most 1 first_frame; 2 are given"),
        ("reel-1", [("reference_image", "r")] * 21, "r", "21 images are given; a request takes at most 20"),
    ],
)
def test_images_keep_the_rules_of_roles_and_counts(name, images, column, says):
    found = refused(name, images=tuple(images))
    assert found[0] == column
    assert says in found[1]


def test_images_that_keep_the_rules_are_taken():
    assert sold(Combination("still-1", images=((None, "images"),))).price
    assert sold(Combination("reel-1", images=(("first_frame", "f"), ("last_frame", "l")))).price
    assert sold(Combination("reel-1", images=(("reference_image", "r"),) * 3)).price


def test_a_model_of_a_new_type_is_refused():
    choir = model("choir-1", "audio", [])
    found = offer(Combination("choir-1"), {"choir-1": choir})
    assert found == Reject("model", "choir-1", "choir-1 makes audio, which cannot be bought in a batch")


RESOLUTIONS = ["480p", "720p", "1K"]
SOUNDS = ["sound_on", "sound_off", "not_applicable", "surround"]
UNITS = ["image", "video_second", "credit"]

prices = st.decimals(min_value=0, max_value=1000, places=4)
rates = st.builds(
    lambda resolution, sound, unit, price: rate(resolution, sound, unit, str(price)),
    st.sampled_from(RESOLUTIONS),
    st.sampled_from(SOUNDS),
    st.sampled_from(UNITS),
    prices,
)
models = st.builds(
    lambda kind, rates, durations, ratios, resolutions, sound, currency: model(
        "m",
        kind,
        rates,
        currency=currency,
        supported_durations=durations if kind == "video" else [],
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


def obvious(asked: Combination, catalogue: dict[str, Model]) -> Decimal | str:
    """The price, 'refused' or 'unpriced', read off the interface one sentence after another."""
    if asked.model not in catalogue:
        return "refused"
    m = catalogue[asked.model]
    if asked.aspect_ratio is not None and asked.aspect_ratio not in m.supported_aspect_ratios:
        return "refused"
    if asked.resolution is not None and asked.resolution not in m.supported_resolutions:
        return "refused"
    resolution = asked.resolution or m.supported_resolutions[0]
    if m.type == "image":
        if asked.duration is not None or asked.sound is not None or asked.output_format == "bmp":
            return "refused"
        order, unit, quantity = ["not_applicable"], "image", 1
    else:
        if asked.output_format is not None or (asked.sound and not m.supports_sound):
            return "refused"
        if asked.duration is not None and asked.duration not in m.supported_durations:
            return "refused"
        order = ["sound_on" if asked.sound else "sound_off", "not_applicable"]
        unit, quantity = "video_second", asked.duration or m.supported_durations[0]
    if m.pricing.currency != "USD":
        return "unpriced"
    for sound in order:
        for each in m.pricing.rates:
            if each.resolution == resolution and each.sound == sound:
                return each.unit_price * quantity if each.billable_unit == unit else "unpriced"
    return "unpriced"


@given(models, combinations)
def test_every_price_is_that_of_the_obvious_reference(m, asked):
    found = offer(asked, {"m": m})
    if isinstance(found, Reject):
        answer: Decimal | str = "refused"
    else:
        answer = found.price.total if found.price else "unpriced"
    assert answer == obvious(asked, {"m": m})
