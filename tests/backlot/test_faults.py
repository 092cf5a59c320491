"""Faults on demand: each rule does what it describes, to the requests that it matches only."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import av
import httpx
import pytest
from PIL import Image

from backlot.errors import SettingsError
from backlot.faults import read_faults
from backlot.settings import Settings
from tests.servers.backlots import backlots

from .conftest import Clock, balance, client, make_image, make_video, poll, refused

Faulty = Callable[..., httpx.Client]


@pytest.fixture
def faulty(tmp_path: Path, clock: Clock) -> Iterator[Faulty]:
    """Starts a server with these rules, each a line of YAML; returns a client of it."""
    with ExitStack() as stack:

        def start(*rules: str) -> httpx.Client:
            path = tmp_path / "faults.yaml"
            path.write_text("rules:\n" + "".join(f"  - {rule}\n" for rule in rules))
            settings = Settings(port=0, image_seconds=0, video_seconds=10, faults=path)
            address = stack.enter_context(backlots().serve(settings, clock)).base_url
            return client(address)

        yield start


def test_500_and_503_have_the_error_body_and_502_is_a_html_page(faulty: Faulty) -> None:
    api = faulty(
        *(f"{{endpoint: images, nth: {n}, do: error, status: {s}}}" for n, s in enumerate((500, 502, 503), 1))
    )
    refused(make_image(api), 500, "server_error")
    page = make_image(api)
    assert (page.status_code, page.headers["Content-Type"]) == (502, "text/html; charset=utf-8")
    assert "<html>" in page.text
    refused(make_image(api), 503, "server_error")
    assert make_image(api).status_code == 200
    assert balance(api) == "99.9600"


def test_both_429s_on_demand(faulty: Faulty) -> None:
    api = faulty(
        "{endpoint: images, nth: 1, do: rate_limit}",
        "{endpoint: images, nth: 2, do: rate_limit, kind: concurrency}",
        "{endpoint: status, do: rate_limit}",
    )
    window, lanes = make_image(api), make_image(api)
    refused(window, 429, "rate_limit")
    refused(lanes, 429, "rate_limit")
    assert ("Retry-After" in window.headers, "Retry-After" in lanes.headers) == (True, False)
    video = make_video(api).json()["id"]
    refused(api.get(f"/v2/videos/generations/{video}"), 429, "rate_limit")


def test_both_headers_of_a_429_on_demand_give_the_same_moment(faulty: Faulty, clock: Clock) -> None:
    clock.now = math.ceil(clock.now / 60) * 60 + 12
    answer = make_image(faulty("{endpoint: images, do: rate_limit}"))  # the first request of all
    assert answer.headers["Retry-After"] == "48"
    assert int(answer.headers["X-RateLimit-Reset"]) == clock.now + 48


@pytest.mark.parametrize(("when", "left"), [("before_charging", "100.0000"), ("after_charging", "99.9600")])
def test_a_connection_can_be_dropped_before_or_after_the_charge(faulty: Faulty, when: str, left: str) -> None:
    api = faulty(f"{{endpoint: images, prompt: storm, do: drop, when: {when}}}")
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        make_image(api, prompt="a storm at sea")
    assert balance(api) == left
    assert make_image(api, prompt="calm").status_code == 200


def test_a_dropped_video_submission_may_have_been_accepted(faulty: Faulty, clock: Clock) -> None:
    api = faulty("{endpoint: videos, do: drop, when: after_charging}")
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        make_video(api)
    clock.now += 10
    assert balance(api) == "99.7500"


def test_a_truncated_download_announces_more_than_it_sends(faulty: Faulty) -> None:
    api = faulty("{endpoint: downloads, nth: 1, do: truncate}")
    url = make_image(api).json()["data"][0]["url"]
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
        api.get(url)
    assert api.get(url).content.startswith(b"\xff\xd8")


def test_a_download_can_have_the_wrong_type(faulty: Faulty) -> None:
    api = faulty("{do: wrong_type, nth: 1}")
    url = make_image(api).json()["data"][0]["url"]
    answer = api.get(url)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert api.get(url).headers["Content-Type"] == "image/jpeg"


def test_an_expired_url_is_replaced_by_the_next_poll(faulty: Faulty, clock: Clock) -> None:
    api = faulty("{endpoint: status, nth: 1, do: expire_url}")
    video = make_video(api)
    clock.now += 10
    refused(api.get(poll(api, video)["data"][0]["url"]), 410, "not_found", "exp")
    assert api.head(poll(api, video)["data"][0]["url"], timeout=300).status_code == 200


def test_a_video_fails_with_a_code_and_is_not_charged(faulty: Faulty, clock: Clock) -> None:
    api = faulty("{model: reel-1, do: fail_video, code: server_error, message: Upstream timeout.}")
    video = make_video(api)
    assert poll(api, video)["status"] == "pending"
    clock.now += 10
    assert poll(api, video)["error"] == {"code": "server_error", "message": "Upstream timeout."}
    assert balance(api) == "100.0000"


def test_a_video_that_never_finishes(faulty: Faulty, clock: Clock) -> None:
    api = faulty("{do: never_finish}")
    video = make_video(api)
    clock.now += 10**6
    assert poll(api, video)["status"] == "pending"


def test_a_surcharge_is_in_the_usage_and_in_the_balance(faulty: Faulty) -> None:
    api = faulty('{do: surcharge, amount: "0.0125"}')
    usage = make_image(api).json()["usage"]
    assert (usage["total_cost"], usage["unit_price"]) == (0.0525, 0.04)
    assert balance(api) == "99.9475"


def test_extra_fields_and_null_sizes(faulty: Faulty) -> None:
    api = faulty("{do: extra_fields, fields: {x_new: [1]}}", "{do: null_size}")
    answer = make_image(api).json()
    item = answer["data"][0]
    assert (item["width"], item["height"]) == (None, None)
    assert answer["x_new"] == item["x_new"] == answer["usage"]["x_new"] == [1]


def test_a_file_can_be_black_or_of_another_size_than_asked_for(faulty: Faulty, clock: Clock) -> None:
    api = faulty("{prompt: nothing, do: blank}", "{prompt: narrow, do: wrong_size}")
    black, narrow, usual = (
        make_image(api, prompt=prompt, resolution="1K", aspect_ratio="1:1").json()["data"][0]
        for prompt in ("nothing", "a narrow one", "a fox")
    )
    assert [(item["width"], item["height"]) for item in (black, narrow, usual)] == [
        (1024, 1024),
        (512, 1024),
        (1024, 1024),
    ]
    images = [
        Image.open(io.BytesIO(api.get(item["url"]).content)).convert("L") for item in (black, narrow, usual)
    ]
    assert images[0].getextrema() == (0, 0)
    assert images[1].size == (512, 1024)
    assert images[2].getextrema()[1] > 200
    video = make_video(api, prompt="nothing")
    clock.now += 10
    content = api.get(poll(api, video)["data"][0]["url"]).content
    with av.open(io.BytesIO(content)) as opened:
        assert all(frame.to_image().convert("L").getextrema()[1] < 8 for frame in opened.decode(video=0))


def test_a_delay_waits(faulty: Faulty) -> None:
    api = faulty("{endpoint: balance, do: delay, seconds: 0.3}")
    with pytest.raises(httpx.ReadTimeout):
        api.get("/v2/billing/balance", timeout=0.1)
    assert api.get("/v2/billing/balance", timeout=300).status_code == 200


def test_rules_match_model_prompt_and_the_nth_request(faulty: Faulty) -> None:
    api = faulty("{endpoint: images, model: still-1, prompt: fox, nth: [2, 3], do: error}")
    requests: list[dict[str, Any]] = [{}, {"prompt": "owl"}, {"model": "sketch-1"}, {}, {}, {}]
    assert [make_image(api, **fields).status_code for fields in requests] == [200, 200, 200, 500, 500, 200]


@pytest.mark.parametrize("content", ["{}", "rules:", "seed: 7"])
def test_a_file_without_rules_has_no_faults(tmp_path: Path, content: str) -> None:
    (tmp_path / "faults.yaml").write_text(content)
    assert read_faults(tmp_path / "faults.yaml").active == []


def test_the_same_seed_gives_the_same_random_faults(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"

    def matched(seed: int) -> list[bool]:
        path.write_text(f"seed: {seed}\nrules: [{{do: error, probability: 0.3}}]")
        faults = read_faults(path)
        return [bool(faults.match("models")) for _ in range(400)]

    assert matched(1) == matched(1) != matched(2)
    assert 80 < sum(matched(1)) < 160


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("rules: [{do: explode}]", "explode"),
        ("rules: [{endpoint: images, do: error, status: 418}]", "status"),
        ("rules: [{endpoint: images, do: truncate}]", "downloads only"),
        ("rules: [{endpoint: balance, prompt: x, do: error}]", "balance has no prompt"),
        ("rules: [{endpoint: models, model: still-1, do: error}]", "models has no model"),
        ("rules: [{do: error, nth: 0}]", "rules.0.error.nth.0: Input should be greater"),
        ("rules: [{do: error, nth: [1, 0]}]", "rules.0.error.nth.1: Input should be greater"),
        ("rules: [{do: error, nth: []}]", "nth names no request"),
        ("rules: [{do: surcharge, amount: 0.01}]", "in quotes"),
        ("rules: [{do: fail_video, code: oops}]", "fail_video.code: Input should be"),
        ("rules: [{do: delay, seconds: 1, colour: red}]", "colour"),
        ("rule: []", "rule: unknown key"),
        ("[]", "faults.yaml: Input should be a valid dictionary"),
    ],
)
def test_a_wrong_faults_file_names_the_file_and_the_rule(
    tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(content)
    with pytest.raises(SettingsError, match=complaint) as error:
        read_faults(path)
    assert str(path) in str(error.value)
