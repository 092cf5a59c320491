"""What a gateway says is not what the service says: nothing fails, and the same command finishes later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Project
from tests.servers.reverse_proxy import Failure, ReverseProxy, http_answer, reverse_proxy

Make = Callable[..., Project]
IMAGES = "/v2/images/generations"
JOBS = 12
ROWS = [
    {"id": f"r{n:02}", "prompt": f"boat {n}", "model": "sketch-1", "aspect_ratio": "1:1"} for n in range(JOBS)
]
INGRESS = http_answer(b"404 Not Found", b"404 page not found\n", b"Content-Type: text/plain")
WAF = http_answer(b"403 Forbidden", b"<html><title>Attention Required!</title>", b"Content-Type: text/html")
MOVED = http_answer(b"302 Found", b"", b"Location: https://login.test/start")
ROUTER = http_answer(
    b"404 Not Found",
    b'{"error": {"message": "no route", "code": "ROUTE_NOT_FOUND"}}',
    b"Content-Type: application/json",
)


def says_no(status: bytes, *headers: bytes) -> bytes:
    error = {"message": "Overloaded.", "type": "invalid_request_error", "param": None, "code": "server_error"}
    return http_answer(status, json.dumps({"error": error}).encode(), *headers)


@pytest.fixture
def batch(project: Make) -> Iterator[tuple[Project, ReverseProxy]]:
    """A batch of images whose config names a gateway as the service."""
    made = project(ROWS)
    with reverse_proxy(made.backlot.base_url) as gateway:
        made.set(service={"base_url": gateway.base_url})
        yield made, gateway


@pytest.mark.parametrize("answer", [INGRESS, WAF, MOVED, ROUTER], ids=["ingress", "waf", "login", "router"])
def test_a_gateway_s_refusals_stop_the_buying_and_the_same_command_finishes(
    answer: bytes, batch: tuple[Project, ReverseProxy]
) -> None:
    made, gateway = batch
    gateway.fail(Failure("POST", IMAGES, answer=answer, reaches_service=False, skip=2))
    stopped = made.run()
    assert (stopped.stop_reason, stopped.exit_code) == ("service", 4)
    assert (stopped.stored, stopped.failed, stopped.in_doubt) == (2, 0, 0)
    assert gateway.count("POST", IMAGES) < 2 * JOBS, "the brake holds the others back"
    gateway.fail()
    done = made.run()
    assert (done.stored, done.submissions, done.exit_code) == (JOBS, JOBS - 2, 0)


def test_a_gateway_that_restarts_is_waited_for(batch: tuple[Project, ReverseProxy]) -> None:
    made, gateway = batch
    gateway.fail(Failure("POST", IMAGES, answer=INGRESS, reaches_service=False, skip=1, times=4))
    assert (made.run().stored, made.run().submissions) == (JOBS, 0)


def test_a_firewall_that_dislikes_one_prompt_leaves_that_job_and_no_other(
    batch: tuple[Project, ReverseProxy],
) -> None:
    """It is tried as often as `attempts` says, and stays as it was: what is wrong is not the row's fault."""
    made, gateway = batch
    made.rows(ROWS[0] | {"prompt": "x'; DROP TABLE boats"}, *ROWS[1:])
    gateway.refuses = lambda method, body: WAF if method == "POST" and b"DROP TABLE" in body else None
    stopped = made.run()
    assert (stopped.stored, stopped.failed, stopped.not_bought) == (JOBS - 1, 0, 1)
    assert (stopped.stop_reason, stopped.exit_code) == ("service", 4)
    assert "403" in (stopped.stop_message or "")
    gateway.refuses = None
    assert (made.run().stored, made.run().exit_code) == (JOBS, 0)


@pytest.mark.parametrize("status", [b"503 Service Unavailable", b"500 Internal Server Error"])
def test_a_service_that_says_how_long_it_is_overloaded_is_waited_for(
    status: bytes, batch: tuple[Project, ReverseProxy]
) -> None:
    """Without that the four tries of each job are over in a moment, as the backing off here is short."""
    made, gateway = batch
    ends = time.monotonic() + 2
    overloaded = says_no(status, b"Retry-After: 2")
    gateway.refuses = lambda method, _: overloaded if method == "POST" and time.monotonic() < ends else None
    summary = made.run()
    assert (summary.stored, summary.failed) == (JOBS, 0)
    assert summary.submissions <= 3 * JOBS


def test_a_full_window_uses_up_none_of_a_job_s_tries(project: Make) -> None:
    made = project(ROWS[:1])
    made.set(attempts=2)
    full = http_answer(b"429 Too Many Requests", b"{}", b"Retry-After: 0")
    with reverse_proxy(made.backlot.base_url) as gateway:
        made.set(service={"base_url": gateway.base_url})
        gateway.fail(
            Failure("POST", IMAGES, answer=full, reaches_service=False, times=3),
            Failure("POST", IMAGES, answer=says_no(b"500 X"), reaches_service=False, times=1),
        )
        assert made.run().stored == 1
