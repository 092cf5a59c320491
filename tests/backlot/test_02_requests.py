"""INTERFACE 2.2-2.4: every field of a generation request."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import httpx
import pytest

from .conftest import balance, data_url, make_image, make_video, refused

HTTPS = "https://example.com/a.png"
Send = Callable[..., httpx.Response]


def test_2_2_a_reference_is_an_https_url_or_an_inline_png_jpeg_or_webp(api: httpx.Client) -> None:
    for url in (HTTPS, *(data_url(mime=mime) for mime in ("png", "jpeg", "webp"))):
        assert make_image(api, images=[{"url": url, "role": "reference_image"}]).status_code == 200


def test_2_2_any_other_url_is_refused(api: httpx.Client) -> None:
    for url in (
        "http://example.com/a.png",
        "ftp://example.com/a.png",
        "https://",
        "a.png",
        "",
        base64.b64encode(b"bare").decode(),
        "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
        "data:image/png,plain",
        "data:image/png;base64,",
        "data:image/png;base64,!!!!",
        "data:image/png;base64," + base64.b64encode(b"not an image").decode(),
        data_url(mime="jpeg").replace("jpeg", "png"),
        data_url()[:-40],
    ):
        refused(make_image(api, images=[{"url": url}]), 400, "invalid_parameter", "images[0].url")


def test_2_2_an_inline_image_has_at_most_10_mib_after_decoding(api: httpx.Client) -> None:
    head, _, data = data_url().partition(",")
    image = base64.b64decode(data)
    whole = image + bytes(10 * 2**20 - len(image))  # a decoder ignores what follows the end of a PNG
    fits = [{"url": f"{head},{base64.b64encode(whole).decode()}"}]
    over = [{"url": f"{head},{base64.b64encode(whole + b'.').decode()}"}]
    assert make_image(api, images=fits).status_code == 200
    error = refused(make_image(api, images=over), 400, "invalid_parameter", "images[0].url")
    assert "10 MiB" in error["message"]


def test_2_2_a_url_is_required_and_unknown_fields_are_refused(api: httpx.Client) -> None:
    refused(make_image(api, images=[{"role": "reference_image"}]), 400, "parameter_missing", "images[0].url")
    refused(
        make_image(api, images=[{"url": HTTPS, "weight": 1}]), 400, "invalid_parameter", "images[0].weight"
    )
    refused(make_image(api, images=[HTTPS]), 400, "invalid_parameter", "images[0]")


@pytest.mark.parametrize("media", ["images", "videos"])
def test_2_3_2_4_model_and_prompt_are_required(api: httpx.Client, media: str) -> None:
    for sent, missing in (("model", "prompt"), ("prompt", "model")):
        answer = api.post(f"/v2/{media}/generations", json={sent: "x"})
        refused(answer, 400, "parameter_missing", missing)


def test_2_3_a_prompt_has_1_to_4096_characters_not_bytes(api: httpx.Client) -> None:
    for character in ("a", "水", "🎬"):
        assert make_image(api, prompt=character * 4096).status_code == 200
        refused(make_image(api, prompt=character * 4097), 400, "invalid_parameter", "prompt")
    refused(make_image(api, prompt=""), 400, "invalid_parameter", "prompt")


WRONG_IN_IMAGES: dict[str, list[object]] = {
    "model": [1, None],
    "prompt": [5, None, ["a fox"]],
    "images": [None, {}, HTTPS],
    "aspect_ratio": [None, "", "4:3"],
    "resolution": [None, 1, "1k", "8K"],
    "output_format": ["gif", "JPEG", None],
    "duration": [5],
    "sound": [False],
    "seed": [1],
}
WRONG_IN_VIDEOS: dict[str, list[object]] = {
    "duration": ["5", True, 5.0, 5.5, None, 7, 10**30],
    "sound": ["true", 1, None],
    "aspect_ratio": ["3:2"],
    "resolution": ["4K"],
    "output_format": ["png"],
    "fps": [24],
}


@pytest.mark.parametrize(("send", "wrong"), [(make_image, WRONG_IN_IMAGES), (make_video, WRONG_IN_VIDEOS)])
def test_2_3_2_4_no_value_is_converted_and_unknown_fields_are_refused(
    api: httpx.Client, send: Send, wrong: dict[str, list[object]]
) -> None:
    for field, values in wrong.items():
        for value in values:
            refused(send(api, **{field: value}), 400, "invalid_parameter", field)
    assert balance(api) == "100.0000"


def test_2_3_defaults_are_the_models_first_entries_and_jpeg(api: httpx.Client) -> None:
    for model, width, height, price in (
        ("still-1", 1024, 1024, 0.04),
        ("sketch-1", 352, 198, 0.0015),
        ("poster-1", 1672, 2508, 0.0615),
    ):
        answer = make_image(api, model=model).json()
        image = answer["data"][0]
        assert (image["width"], image["height"], image["mime_type"]) == (width, height, "image/jpeg")
        assert answer["usage"]["total_cost"] == price


def test_2_3_at_most_20_images_and_at_most_the_models_number_per_role(api: httpx.Client) -> None:
    images = [{"url": HTTPS, "role": "reference_image"}]
    assert make_image(api, model="poster-1", images=images * 14).status_code == 200
    refused(make_image(api, model="poster-1", images=images * 15), 400, "invalid_parameter", "images")
    error = refused(make_image(api, model="poster-1", images=images * 21), 400, "invalid_parameter", "images")
    assert "20" in error["message"]


def test_2_3_image_models_accept_reference_images_only(api: httpx.Client) -> None:
    for role in ("first_frame", "last_frame", "mask"):
        refused(
            make_image(api, images=[{"url": HTTPS, "role": role}]), 400, "invalid_parameter", "images[0].role"
        )
    refused(
        make_image(api, model="sketch-1", images=[{"url": HTTPS}]), 400, "invalid_parameter", "images[0].role"
    )


def roles(*names: str) -> list[dict[str, str]]:
    return [{"url": HTTPS, "role": name} for name in names]


def test_2_4_roles_that_are_allowed(api: httpx.Client) -> None:
    for images in (
        [],
        roles("first_frame"),
        roles("first_frame", "last_frame"),
        roles("last_frame", "first_frame"),
        roles("reference_image", "reference_image", "reference_image"),
        [{"url": HTTPS}],
    ):
        assert make_video(api, images=images).status_code == 202, images


@pytest.mark.parametrize(
    ("model", "images", "param"),
    [
        ("reel-1", roles("last_frame"), "images"),
        ("reel-1", roles("first_frame", "reference_image"), "images"),
        ("reel-1", roles("first_frame", "last_frame", "reference_image"), "images"),
        ("reel-1", roles("first_frame", "first_frame"), "images"),
        ("reel-1", roles(*["reference_image"] * 4), "images"),
        ("silent-1", roles("first_frame", "last_frame"), "images[1].role"),
        ("silent-1", roles("reference_image"), "images[0].role"),
        ("dailies-1", roles("first_frame"), "images[0].role"),
        ("reel-1", roles("middle_frame"), "images[0].role"),
    ],
    ids=str,
)
def test_2_4_roles_that_are_refused(
    api: httpx.Client, model: str, images: list[dict[str, str]], param: str
) -> None:
    refused(make_video(api, model=model, images=images), 400, "invalid_parameter", param)


def test_2_4_sound_is_refused_where_the_model_has_none(api: httpx.Client) -> None:
    refused(make_video(api, model="silent-1", sound=True), 400, "invalid_parameter", "sound")
    assert make_video(api, model="silent-1", sound=False).status_code == 202


def test_2_a_body_that_is_not_a_json_object_or_of_another_content_type_is_refused(api: httpx.Client) -> None:
    def send(body: bytes, content_type: str | None) -> httpx.Response:
        headers = {"Content-Type": content_type} if content_type else {}
        return api.post("/v2/images/generations", content=body, headers=headers)

    for wrong in (b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000):
        refused(send(wrong, "application/json"), 400, "invalid_parameter")
    for wrong in (b'{"model": NaN, "prompt": "x"}', b'{"model": "\\ud800", "prompt": "x"}'):
        refused(send(wrong, "application/json"), 400, "invalid_parameter", "model")
    right = json.dumps({"model": "still-1", "prompt": "a fox"}).encode()
    for other in (None, "text/plain", "application/x-www-form-urlencoded", "text/json"):
        refused(send(right, other), 400, "invalid_parameter")
    assert send(right, "application/json; charset=utf-8").status_code == 200
