"""The proxy of the tests passes everything on, and fails as it is told, before or after the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from backlot.server import Backlot
from tests.servers import http
from tests.servers.reverse_proxy import Failure, ReverseProxy, reverse_proxy

IMAGES = "/v2/images/generations"
BODY = {"model": "sketch-1", "prompt": "a fox"}


@pytest.fixture
def proxy(start_backlot: Callable[..., Backlot]) -> Iterator[ReverseProxy]:
    with reverse_proxy(start_backlot(balance="1.0000").base_url) as running:
        yield running


@pytest.fixture
def api(proxy: ReverseProxy) -> Iterator[httpx.Client]:
    headers = {"Authorization": "Bearer sk_backlot"}
    with http.Client(base_url=proxy.base_url, headers=headers, timeout=300) as client:
        yield client


def spent(api: httpx.Client) -> str:
    return str(api.get("/v2/billing/balance").json()["balance"])


def test_everything_passes_and_download_urls_lead_through_the_proxy(
    proxy: ReverseProxy, api: httpx.Client
) -> None:
    answer = api.post(IMAGES, json=BODY)
    assert answer.headers["X-RateLimit-Limit"]
    url = answer.json()["data"][0]["url"]
    assert url.startswith(proxy.base_url)
    content = api.get(url).content
    assert content.startswith(b"\xff\xd8")
    head = api.head(url)
    assert (head.content, int(head.headers["Content-Length"])) == (b"", len(content))
    assert api.get("/v2/models/nobody").status_code == 404
    assert [method for method, _ in proxy.requests] == ["POST", "GET", "HEAD", "GET"]
    assert proxy.failed == []


@pytest.mark.parametrize("status", [502, 503, 504])
@pytest.mark.parametrize(("reaches_service", "balance"), [(True, "0.9985"), (False, "1.0000")])
def test_a_page_instead_of_an_answer_before_or_after_the_service_carried_the_request_out(
    proxy: ReverseProxy, api: httpx.Client, status: int, reaches_service: bool, balance: str
) -> None:
    proxy.fail(Failure("POST", IMAGES, status=status, reaches_service=reaches_service))
    answer = api.post(IMAGES, json=BODY)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "text/html")
    assert "<html>" in answer.text
    assert spent(api) == balance
    proxy.fail()
    assert api.post(IMAGES, json=BODY).status_code == 200


@pytest.mark.parametrize(("reaches_service", "balance"), [(True, "0.9985"), (False, "1.0000")])
def test_a_connection_that_is_cut_before_or_after_the_service_carried_the_request_out(
    proxy: ReverseProxy, api: httpx.Client, reaches_service: bool, balance: str
) -> None:
    proxy.fail(Failure("POST", IMAGES, cut=True, reaches_service=reaches_service))
    with pytest.raises(httpx.RemoteProtocolError):
        api.post(IMAGES, json=BODY)
    assert spent(api) == balance


def test_a_delayed_answer_comes_after_the_client_has_given_up(proxy: ReverseProxy, api: httpx.Client) -> None:
    proxy.fail(Failure("POST", IMAGES, seconds=2, times=1))
    with pytest.raises(httpx.ReadTimeout):
        api.post(IMAGES, json=BODY, timeout=0.5)
    assert api.post(IMAGES, json=BODY).status_code == 200
    assert spent(api) == "0.9970"


def test_some_requests_pass_before_the_failures_and_all_after_them(
    proxy: ReverseProxy, api: httpx.Client
) -> None:
    proxy.fail(Failure("POST", IMAGES, status=503, skip=1, times=2))
    assert [api.post(IMAGES, json=BODY).status_code for _ in range(4)] == [200, 503, 503, 200]
    assert proxy.count("POST", IMAGES) == 4
    assert len(proxy.failed) == 2


def test_an_answer_that_the_service_cuts_off_is_cut_off_by_the_proxy(
    start_backlot: Callable[..., Backlot],
) -> None:
    rules = [
        {"endpoint": "downloads", "do": "truncate"},
        {"endpoint": "videos", "do": "drop", "when": "after_charging"},
    ]
    with reverse_proxy(start_backlot(faults={"rules": rules}).base_url) as proxy:
        api = http.Client(
            base_url=proxy.base_url, headers={"Authorization": "Bearer sk_backlot"}, timeout=300
        )
        url = api.post(IMAGES, json=BODY).json()["data"][0]["url"]
        with pytest.raises(httpx.RemoteProtocolError):
            api.get(url)
        with pytest.raises(httpx.RemoteProtocolError):
            api.post("/v2/videos/generations", json={"model": "reel-1", "prompt": "a fox"})
