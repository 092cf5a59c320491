"""INTERFACE 5: keys, projects and workspaces."""

from __future__ import annotations

from backlot.server import Backlot
from tests.servers import http

from .conftest import Account, Clock, balance, client, make_image, make_video, poll, refused

ENDPOINTS = [
    ("POST", "/v2/images/generations"),
    ("POST", "/v2/videos/generations"),
    ("GET", "/v2/models"),
    ("GET", "/v2/models/still-1"),
    ("GET", "/v2/videos/generations/req-0"),
    ("GET", "/v2/billing/balance"),
    ("GET", "/v2/billing/costs?start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z"),
]


def test_5_2_a_missing_or_wrong_key_gives_401(backlot: Backlot) -> None:
    with http.Client(base_url=backlot.base_url) as anyone:
        for method, path in ENDPOINTS:
            refused(anyone.request(method, path), 401, "invalid_api_key")
            for key in ("", "Bearer", "Bearer sk_wrong", "Basic sk_backlot", "sk_backlot"):
                answer = anyone.request(method, path, headers={"Authorization": key})
                refused(answer, 401, "invalid_api_key")


def test_5_4_balance_and_limits_belong_to_the_workspace_and_costs_to_the_project(
    account: Account, clock: Clock
) -> None:
    projects = {"ads": ["sk_ads_1", "sk_ads_2"], "shop": ["sk_shop"]}
    first = account(projects=projects, image_rpm=3)
    second, third = (client(str(first.base_url), key) for key in ("sk_ads_2", "sk_shop"))
    for api in (first, second, third):
        assert make_image(api).status_code == 200
    for api in (first, second, third):
        refused(make_image(api), 429, "rate_limit")
        assert balance(api) == "99.8800"
    day = {"start": "2026-01-01T00:00:00Z", "end": "2026-06-01T00:00:00Z"}
    totals = [api.get("/v2/billing/costs", params=day).json()["total_cost"] for api in (first, second, third)]
    assert totals == [0.08, 0.08, 0.04]


def test_5_4_a_project_sees_its_own_videos_only(account: Account) -> None:
    first = account(projects={"p": ["sk_p1", "sk_p2"], "q": ["sk_q"]})
    video = make_video(first)
    second, other = (client(str(first.base_url), key) for key in ("sk_p2", "sk_q"))
    assert poll(second, video)["status"] == "pending"
    path = f"/v2/videos/generations/{video.json()['id']}"
    refused(other.get(path), 404, "not_found", "id")
