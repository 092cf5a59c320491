"""INTERFACE 4: the endpoints, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from backlot.server import serve
from backlot.settings import Settings
from tests.servers import http

from .conftest import Account, Clock, balance, client, make_image, make_video, poll, refused

RATE_HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")


def test_4_1_to_4_5_answers_carry_rate_headers_in_digits(api: httpx.Client) -> None:
    video = make_video(api)
    for answer in (
        make_image(api),
        video,
        api.get("/v2/models"),
        api.get("/v2/models/reel-1"),
        api.get(f"/v2/videos/generations/{video.json()['id']}"),
    ):
        assert all(answer.headers[name].isdigit() for name in RATE_HEADERS), answer.request.url


def test_4_2_models_are_listed_by_type_and_other_queries_are_refused(api: httpx.Client) -> None:
    every = api.get("/v2/models").json()
    images = api.get("/v2/models", params={"type": "image"}).json()
    videos = api.get("/v2/models", params={"type": "video"}).json()
    assert {m["type"] for m in images} == {"image"}
    assert {m["type"] for m in videos} == {"video"}
    assert sorted(m["id"] for m in images + videos) == sorted(m["id"] for m in every)
    for query in ("type=audio", "type=", "type=image&type=video", "kind=image"):
        refused(api.get(f"/v2/models?{query}"), 400, "invalid_parameter", query.partition("=")[0])


def test_4_3_one_model_by_its_id(api: httpx.Client) -> None:
    for model in api.get("/v2/models").json():
        assert api.get(f"/v2/models/{model['id']}").json() == model
    refused(api.get("/v2/models/nobody"), 404, "not_found", "model")


def test_4_4_a_model_of_the_other_type_is_refused(api: httpx.Client) -> None:
    refused(make_video(api, model="still-1"), 400, "invalid_parameter", "model")
    refused(make_image(api, model="reel-1"), 400, "invalid_parameter", "model")
    refused(make_video(api, model="nobody"), 400, "invalid_parameter", "model")


def test_4_5_an_unknown_generation_is_not_found(api: httpx.Client, account: Account) -> None:
    refused(api.get("/v2/videos/generations/req-nothing"), 404, "not_found", "id")
    image = make_image(api).json()["id"]
    refused(api.get(f"/v2/videos/generations/{image}"), 404, "not_found", "id")
    other = make_video(account()).json()["id"]
    refused(api.get(f"/v2/videos/generations/{other}"), 404, "not_found", "id")


def test_4_6_the_balance_is_zero_without_billing(account: Account) -> None:
    api = account(balance=None)
    assert balance(api) == "0.0000"
    refused(make_image(api), 402, "quota_exceeded")


def costs(api: httpx.Client, start: str, end: str) -> httpx.Response:
    return api.get("/v2/billing/costs", params={"start": start, "end": end})


def test_4_7_costs_have_an_entry_for_each_utc_date_also_without_costs_and_for_parts_of_a_day(
    api: httpx.Client, clock: Clock
) -> None:
    today = datetime.fromtimestamp(clock.now, UTC)
    for _ in range(3):  # at the same time on three days, with an empty day between the second and the third
        make_image(api)
        clock.now += 86400 * (1 if _ == 0 else 2)
    day = [(today + timedelta(days=n)).strftime("%Y-%m-%d") for n in range(5)]
    answer = costs(api, f"{day[0]}T00:00:00Z", f"{day[4]}T00:00:00Z")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json() == {
        "currency": "USD",
        "data": [
            {"date": day[0], "cost": 0.04},
            {"date": day[1], "cost": 0.04},
            {"date": day[2], "cost": 0},
            {"date": day[3], "cost": 0.04},
            {"date": day[4], "cost": 0},
        ],
        "total_cost": 0.12,
        "start": f"{day[0]}T00:00:00.000Z",
        "end": f"{day[4]}T00:00:00.000Z",
    }
    moment = today.strftime("T%H:%M:%S")
    inclusive = costs(api, f"{day[0]}{moment}Z", f"{day[1]}{moment}Z").json()
    assert [bucket["cost"] for bucket in inclusive["data"]] == [0.04, 0.04]
    late = (today + timedelta(seconds=1)).strftime("T%H:%M:%SZ")
    early = (today - timedelta(seconds=1)).strftime("T%H:%M:%SZ")
    partial = costs(api, f"{day[0]}{late}", f"{day[1]}{early}").json()
    assert partial["data"] == [{"date": day[0], "cost": 0}, {"date": day[1], "cost": 0}]


def test_4_7_a_time_zone_changes_the_range_and_not_the_dates_and_180_days_are_the_longest_range(
    api: httpx.Client,
) -> None:
    answer = costs(api, "2026-03-01T01:00:00+02:00", "2026-03-01T23:00:00-05:00").json()
    assert [bucket["date"] for bucket in answer["data"]] == ["2026-02-28", "2026-03-01", "2026-03-02"]
    assert (answer["start"], answer["end"]) == ("2026-02-28T23:00:00.000Z", "2026-03-02T04:00:00.000Z")
    longest = costs(api, "2026-01-01T00:00:00Z", "2026-06-30T00:00:00Z").json()
    assert len(longest["data"]) == 181


def test_4_7_a_finished_video_costs_on_the_date_on_which_it_finished(api: httpx.Client, clock: Clock) -> None:
    clock.now += 86400 - clock.now % 86400 - 5  # five seconds before midnight
    first = datetime.fromtimestamp(clock.now, UTC)
    video = make_video(api)
    clock.now += 3600
    assert poll(api, video)["status"] == "completed"
    answer = costs(api, first.isoformat(), (first + timedelta(hours=1)).isoformat()).json()
    assert [bucket["cost"] for bucket in answer["data"]] == [0, 0.25]


def test_4_7_costs_may_lag_behind_charges() -> None:
    clock = Clock()
    with serve(Settings(port=0, image_seconds=0, costs_lag=60), clock) as running:
        api = client(running.base_url)
        make_image(api)
        both_days = ("2026-03-10T00:00:00Z", "2026-03-11T00:00:00Z")
        assert (balance(api), costs(api, *both_days).json()["total_cost"]) == ("99.9600", 0)
        clock.now += 61
        assert costs(api, *both_days).json()["total_cost"] == 0.04


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ("end=2026-01-02T00:00:00Z", "parameter_missing", "start"),
        ("start=2026-01-01T00:00:00Z", "parameter_missing", "end"),
        ("start=2026-01-01&end=2026-01-02T00:00:00Z", "invalid_parameter", "start"),
        ("start=2026-01-01T00:00:00&end=2026-01-02T00:00:00Z", "invalid_parameter", "start"),
        ("start=1767225600&end=2026-01-02T00:00:00Z", "invalid_parameter", "start"),
        ("start=2026-13-01T00:00:00Z&end=2026-01-02T00:00:00Z", "invalid_parameter", "start"),
        ("start=0001-01-01T00:00:00%2B14:00&end=2026-01-02T00:00:00Z", "invalid_parameter", "start"),
        ("start=2026-01-01T00:00:00Z&end=", "invalid_parameter", "end"),
        ("start=2026-01-01T00:00:00Z&end=2026-01-01T00:00:00Z", "invalid_parameter", "end"),
        ("start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z", "invalid_parameter", "end"),
        ("start=2026-01-01T00:00:00Z&end=2026-06-30T00:00:01Z", "invalid_parameter", "end"),
        ("start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z&tz=UTC", "invalid_parameter", "tz"),
    ],
)
def test_4_7_ranges_that_are_refused(api: httpx.Client, query: str, code: str, param: str) -> None:
    refused(api.get(f"/v2/billing/costs?{query}"), 400, code, param)


def image_url(api: httpx.Client) -> str:
    return str(make_image(api, model="sketch-1").json()["data"][0]["url"])


def test_4_8_an_altered_url_is_refused(api: httpx.Client) -> None:
    url, other = image_url(api), image_url(api)
    parts = urlsplit(url)
    exp, sig = (parse_qs(parts.query)[name][0] for name in ("exp", "sig"))
    path = url.partition("?")[0]
    for altered in (
        f"{path}?exp={int(exp) + 1}&sig={sig}",
        f"{path}?exp=0{exp}&sig={sig}",
        f"{path}?exp={exp}&sig={sig[:-1]}{'0' if sig[-1] != '0' else '1'}",
        f"{path}?exp={exp}&sig=é",
        f"{path}?exp={exp}",
        f"{path}?sig={sig}",
        path,
        f"{path[:-1]}1?exp={exp}&sig={sig}",
        f"{other.partition('?')[0]}?exp={exp}&sig={sig}",
        url.replace("req-", "req-0"),
    ):
        refused(http.get(altered), 403, "invalid_parameter", "sig")


def test_4_8_a_signed_url_needs_no_key_and_expires_when_the_file_is_deleted(
    api: httpx.Client, clock: Clock
) -> None:
    url = image_url(api)
    clock.now += 3599
    answer = http.get(url)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/jpeg")
    assert answer.content.startswith(b"\xff\xd8\xff")
    clock.now += 1
    refused(http.get(url), 410, "not_found", "exp")


def test_4_8_ranges_are_served_and_head_has_the_headers_of_get(api: httpx.Client) -> None:
    url = image_url(api)
    head, whole = http.head(url), http.get(url)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("Content-Length", "Content-Type", "ETag", "Accept-Ranges"):
        assert head.headers[name] == whole.headers[name]
    length = len(whole.content)
    assert whole.headers["Accept-Ranges"] == "bytes"
    for wanted, part in (
        ("bytes=0-0", slice(0, 1)),
        ("bytes=10-99", slice(10, 100)),
        ("bytes=100-", slice(100, None)),
        ("bytes=-100", slice(-100, None)),
        (f"bytes=0-{10**9}", slice(0, None)),
    ):
        answer = http.get(url, headers={"Range": wanted, "If-Range": whole.headers["ETag"]})
        first = range(length)[part][0]
        assert (answer.status_code, answer.content) == (206, whole.content[part]), wanted
        assert answer.headers["Content-Range"] == f"bytes {first}-{first + len(answer.content) - 1}/{length}"
    for unusable in ("bytes=a-b", "bytes=-", "lines=1-2", "bytes=0-1,5-6", f"bytes={'9' * 5000}-"):
        assert http.get(url, headers={"Range": unusable}).status_code == 200
    changed = http.get(url, headers={"Range": "bytes=0-0", "If-Range": '"another"'})
    assert (changed.status_code, changed.content) == (200, whole.content)
    for outside in (f"bytes={length}-", "bytes=5-4", "bytes=-0"):
        answer = http.get(url, headers={"Range": outside})
        refused(answer, 416, "invalid_parameter", "Range")
        assert answer.headers["Content-Range"] == f"bytes */{length}"
