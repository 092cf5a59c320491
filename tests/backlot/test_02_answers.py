"""INTERFACE 2.5-2.12: the shapes of answers, and the costs."""

from __future__ import annotations

import itertools
import json
import re
from decimal import Decimal
from typing import Any

import httpx

from .conftest import Clock, make_image, make_video, poll

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_2_5_2_6_2_8_an_image_answer_has_every_field_and_the_digits_of_the_catalogue(
    api: httpx.Client, clock: Clock
) -> None:
    sent = make_image(api, aspect_ratio="16:9", output_format="webp")
    assert '"total_cost":0.04,' in sent.text  # the digits themselves, not those of a float
    answer = sent.json()
    assert answer["usage"] == {
        "total_cost": 0.04,
        "billable_unit": "image",
        "unit_price": 0.04,
        "quantity": 1,
    }
    assert answer.keys() == {"id", "status", "model", "data", "usage"}
    assert answer["id"].startswith("req-")
    assert (answer["status"], answer["model"]) == ("completed", "still-1")
    (item,) = answer["data"]
    assert item.keys() == {"url", "width", "height", "mime_type", "deletes_at"}
    assert (item["width"], item["height"], item["mime_type"]) == (1376, 774, "image/webp")
    assert TIMESTAMP.fullmatch(item["deletes_at"])
    assert f"exp={int(clock.now) + 3600}&" in item["url"]


def test_2_7_2_9_a_finished_video_has_every_field(api: httpx.Client, clock: Clock) -> None:
    video = make_video(api, resolution="1080p", duration=10, sound=True)
    assert video.status_code == 202
    assert video.json() == {"id": video.json()["id"], "status": "pending"}
    clock.now += 10
    answer = poll(api, video)
    assert answer.keys() == {"id", "status", "model", "data", "usage"}
    (item,) = answer["data"]
    names = "url width height duration fps has_sound mime_type deletes_at"
    assert item.keys() == set(names.split())
    assert (item["width"], item["height"], item["duration"], item["fps"]) == (1920, 1080, 10, 24)
    assert (item["has_sound"], item["mime_type"]) == (True, "video/mp4")
    assert TIMESTAMP.fullmatch(item["deletes_at"])
    assert answer["usage"] == {
        "total_cost": 1.5,
        "billable_unit": "video_second",
        "unit_price": 0.15,
        "quantity": 10,
    }


def test_2_10_a_model_object_has_every_field(api: httpx.Client) -> None:
    supported = "supported_aspect_ratios supported_durations supported_resolutions supported_references"
    names = set(f"id name type {supported} supports_sound pricing created_at".split())
    for model in api.get("/v2/models").json():
        assert model.keys() == names
        assert model["pricing"].keys() == {"currency", "rates"}
        assert bool(model["supported_durations"]) == (model["type"] == "video")
        assert TIMESTAMP.fullmatch(model["created_at"])
        for rate in model["pricing"]["rates"]:
            assert rate.keys() == {"resolution", "sound", "billable_unit", "unit_price"}
            assert re.fullmatch(r"\d+\.\d{4}", rate["unit_price"])
            assert rate["billable_unit"] == ("image" if model["type"] == "image" else "video_second")


def listed_price(model: Any, resolution: str, sound: str) -> Decimal | None:
    """The pricing rules of INTERFACE 2.10, as a client applies them."""
    rates = {(r["resolution"], r["sound"]): Decimal(r["unit_price"]) for r in model["pricing"]["rates"]}
    return rates.get((resolution, sound), rates.get((resolution, "not_applicable")))


def test_2_10_every_generation_costs_its_price_in_the_catalogue(api: httpx.Client, clock: Clock) -> None:
    """Exactly: the price of a unit times the units, an image or each second of a video."""
    unlisted = set()
    for model in api.get("/v2/models").json():
        sounds = (False, True) if model["supports_sound"] else (False,)
        for resolution, sound in itertools.product(model["supported_resolutions"], sounds):
            named, quantity = "not_applicable", 1
            if model["type"] == "image":
                answer = make_image(api, model=model["id"], resolution=resolution)
            else:
                named, quantity = "sound_on" if sound else "sound_off", model["supported_durations"][-1]
                asked = {"resolution": resolution, "sound": sound, "duration": quantity}
                video = make_video(api, model=model["id"], **asked)
                clock.now += 10
                answer = api.get(f"/v2/videos/generations/{video.json()['id']}")
            usage = json.loads(answer.text, parse_float=Decimal)["usage"]
            price = listed_price(model, resolution, named)
            assert usage["total_cost"] == usage["unit_price"] * usage["quantity"]
            assert usage["quantity"] == quantity
            assert price in {None, usage["unit_price"]}
            assert usage["total_cost"] > 0, "without a listed price it is not free"
            unlisted.add(price is None)
    assert unlisted == {True, False}, "models with and without a listed price"


def test_2_11_a_balance_is_a_string_with_four_digits_that_is_never_cached(api: httpx.Client) -> None:
    make_image(api)
    answer = api.get("/v2/billing/balance")
    assert answer.json() == {"currency": "USD", "balance": "99.9600"}
    assert answer.headers["Cache-Control"] == "no-store"
