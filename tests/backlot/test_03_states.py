"""INTERFACE 3: the life of a video, over a restart too, and its charge."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import httpx
import pytest

from backlot.errors import SettingsError
from backlot.server import serve, spawn
from backlot.settings import SPOILED_WORD, Settings

from .conftest import Account, Clock, balance, data_url, draw, film, poll, refused


def test_3_a_video_is_pending_until_it_is_due_and_then_completed_for_good(
    api: httpx.Client, clock: Clock
) -> None:
    video = film(api)
    assert poll(api, video) == {"id": video.json()["id"], "status": "pending"}
    clock.now += 9.9
    assert poll(api, video)["status"] == "pending"
    clock.now += 0.1
    finished = poll(api, video)
    assert finished["status"] == "completed"
    clock.now += 1000
    assert poll(api, video) == finished


def test_3_a_film_that_fails_its_own_safety_check_is_failed_and_not_charged(
    api: httpx.Client, clock: Clock
) -> None:
    video = film(api, prompt=f"a reel {SPOILED_WORD}")
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


def test_3_polling_creates_nothing_and_costs_nothing(api: httpx.Client, clock: Clock) -> None:
    video = film(api)
    clock.now += 10
    for _ in range(5):
        poll(api, video)
    assert balance(api) == "99.7500"


def test_3_a_video_is_charged_when_it_is_finished_and_its_money_kept_until_then(
    account: Account, clock: Clock
) -> None:
    api = account(balance="0.4")
    film(api)  # 5 seconds at 0.05
    assert balance(api) == "0.4000"
    refused(film(api), 402, "quota_exceeded")
    clock.now += 10
    assert balance(api) == "0.1500"
    refused(film(api), 402, "quota_exceeded")


def test_3_a_pending_video_takes_a_lane_until_it_is_finished(account: Account, clock: Clock) -> None:
    api = account(concurrency=1)
    film(api)
    refused(film(api), 429, "rate_limit")
    refused(draw(api), 429, "rate_limit")
    clock.now += 10
    assert draw(api).status_code == 200
    assert film(api).status_code == 202


def test_3_an_image_is_charged_though_its_client_has_given_up() -> None:
    with serve(Settings(port=0, image_seconds=1)) as running:
        api = httpx.Client(base_url=running.base_url, headers={"Authorization": "Bearer sk_backlot"})
        with pytest.raises(httpx.ReadTimeout):
            api.post("/v2/images/generations", json={"model": "still-1", "prompt": "a"}, timeout=0.1)
        assert balance(api) == "100.0000"
        deadline = time.monotonic() + 5
        while balance(api) == "100.0000" and time.monotonic() < deadline:
            time.sleep(0.02)
        assert balance(api) == "99.9600"


def test_3_a_restart_loses_no_accepted_generation(tmp_path: Path) -> None:
    settings = Settings(
        port=0, state=tmp_path, image_seconds=0, video_seconds=10, concurrency=2, balance="10"
    )
    headers = {"Authorization": f"Bearer {settings.api_key}"}
    clock = Clock()
    with serve(settings, clock) as first:
        api = httpx.Client(base_url=first.base_url, headers=headers)
        picture = draw(api, images=[{"url": data_url("blue")}]).json()["data"][0]["url"]
        before = api.get(picture).content
        finished, spoiled = film(api), film(api, prompt=SPOILED_WORD)
        clock.now += 10
        kept = poll(api, finished)
        pending = film(api)
    clock.now += 5
    with serve(settings, clock) as second:
        api = httpx.Client(base_url=second.base_url, headers=headers)
        assert api.get(picture.replace(first.base_url, second.base_url)).content == before
        again = poll(api, finished)
        assert again["usage"] == kept["usage"]
        assert again["data"][0]["deletes_at"] == kept["data"][0]["deletes_at"]
        assert poll(api, spoiled)["status"] == "failed"
        assert poll(api, pending)["status"] == "pending"
        assert draw(api).status_code == 200
        film(api)
        refused(draw(api), 429, "rate_limit")  # both videos still hold their lanes
        clock.now += 5
        assert poll(api, pending)["status"] == "completed"
        assert balance(api) == "9.4200"  # two pictures and two films


def test_3_a_killed_server_comes_back_with_what_it_had_accepted(tmp_path: Path) -> None:
    flags = ("--state", str(tmp_path), "--video-seconds", "0.2", "--image-seconds", "0")
    headers = {"Authorization": "Bearer sk_backlot"}
    with spawn(*flags) as (address, process):
        api = httpx.Client(base_url=address, headers=headers)
        videos = [film(api) for _ in range(5)]
        pictures = [draw(api) for _ in range(5)]
        process.send_signal(signal.SIGKILL)
    time.sleep(0.2)  # the videos' own time, on a real clock
    with spawn(*flags) as (address, _):
        api = httpx.Client(base_url=address, headers=headers)
        assert {poll(api, video)["status"] for video in videos} == {"completed"}
        assert balance(api) == "98.5500"  # 5 x 0.25 and 5 x 0.04
        old = pictures[0].json()["data"][0]["url"]
        assert api.get(address + old[old.index("/v2/") :]).status_code == 200


def test_3_two_servers_never_share_a_state_folder(tmp_path: Path) -> None:
    with (
        serve(Settings(port=0, state=tmp_path)),
        pytest.raises(SettingsError, match="another backlot"),
        serve(Settings(port=0, state=tmp_path)),
    ):
        pass
