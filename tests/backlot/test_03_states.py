"""INTERFACE 3: the states of a video and its charge, also over a restart."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from backlot.errors import SettingsError
from backlot.server import serve
from backlot.settings import SPOILED_WORD, Settings
from tests.waiting import wait_until

from .conftest import Account, Clock, balance, client, data_url, make_image, make_video, poll, refused


def test_3_a_video_is_pending_until_it_is_due_and_then_stays_completed(
    api: httpx.Client, clock: Clock
) -> None:
    video = make_video(api)
    assert poll(api, video) == {"id": video.json()["id"], "status": "pending"}
    clock.now += 9.9
    assert poll(api, video)["status"] == "pending"
    clock.now += 0.1
    finished = poll(api, video)
    assert finished["status"] == "completed"
    clock.now += 1000
    assert poll(api, video) == finished


def test_3_a_video_that_fails_the_safety_check_at_its_end_is_not_charged(
    api: httpx.Client, clock: Clock
) -> None:
    video = make_video(api, prompt=f"a reel {SPOILED_WORD}")
    assert poll(api, video)["status"] == "pending"
    clock.now += 10
    answer = poll(api, video)
    assert answer.keys() == {"id", "status", "error"}
    assert answer["status"] == "failed"
    assert answer["error"].keys() == {"message", "code"}
    assert answer["error"]["code"] == "content_policy_violation"
    clock.now += 1000
    assert poll(api, video) == answer
    assert balance(api) == "100.0000"


def test_3_a_video_is_charged_when_it_is_finished_and_its_price_reserved_until_then(
    account: Account, clock: Clock
) -> None:
    api = account(balance="0.4")
    video = make_video(api)  # 5 seconds at 0.05
    assert balance(api) == "0.4000"
    refused(make_video(api), 402, "quota_exceeded")
    clock.now += 10
    assert balance(api) == "0.1500"
    assert [poll(api, video)["status"] for _ in range(3)] == ["completed"] * 3  # polling costs nothing
    assert balance(api) == "0.1500"
    refused(make_video(api), 402, "quota_exceeded")


def test_3_an_image_is_charged_also_when_its_client_has_disconnected() -> None:
    with serve(Settings(port=0, image_seconds=1)) as running:
        api = client(running.base_url)
        with pytest.raises(httpx.ReadTimeout):
            api.post("/v2/images/generations", json={"model": "still-1", "prompt": "a"}, timeout=0.1)
        assert balance(api) == "100.0000"
        wait_until(lambda: balance(api) != "100.0000", "the image was never charged")
        assert balance(api) == "99.9600"


def test_3_a_restart_loses_no_accepted_generation(tmp_path: Path) -> None:
    settings = Settings(
        port=0, state=tmp_path, image_seconds=0, video_seconds=10, concurrency=2, balance="10"
    )
    clock = Clock()
    with serve(settings, clock) as first:
        api = client(first.base_url)
        image = make_image(api, images=[{"url": data_url("blue")}]).json()["data"][0]["url"]
        before = api.get(image).content
        finished, spoiled = make_video(api), make_video(api, prompt=SPOILED_WORD)
        clock.now += 10
        kept = poll(api, finished)
        pending = make_video(api)
    clock.now += 5
    with serve(settings, clock) as second:
        api = client(second.base_url)
        assert api.get(image.replace(first.base_url, second.base_url)).content == before
        again = poll(api, finished)
        assert again["usage"] == kept["usage"]
        assert again["data"][0]["deletes_at"] == kept["data"][0]["deletes_at"]
        assert poll(api, spoiled)["status"] == "failed"
        assert poll(api, pending)["status"] == "pending"
        assert make_image(api).status_code == 200
        make_video(api)
        refused(make_image(api), 429, "rate_limit")  # both videos still take their places
        clock.now += 5
        assert poll(api, pending)["status"] == "completed"
        assert balance(api) == "9.4200"  # two images and two videos


def test_3_two_servers_cannot_share_a_state_folder(tmp_path: Path) -> None:
    with (
        serve(Settings(port=0, state=tmp_path)),
        pytest.raises(SettingsError, match="another backlot"),
        serve(Settings(port=0, state=tmp_path)),
    ):
        pass
