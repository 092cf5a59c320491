"""Every failed request has its error type, and no error shows a secret."""

from __future__ import annotations

import pytest

from callsheet.errors import (
    CallsheetError,
    GatewayAnswer,
    InvalidApiKey,
    NotFound,
    QuotaExceeded,
    RateLimit,
    Refusal,
    ServerError,
)
from callsheet.service.answers import WINDOW
from tests.servers.sockets import error_reply, json_reply, page, reply, serve
from tests.service.asking import KEY, RATE, ask, image, run


def test_each_status_and_code_has_its_error_type() -> None:
    types: list[tuple[int, str, type[Refusal]]] = [
        (400, "invalid_parameter", Refusal),
        (422, "parameter_missing", Refusal),
        (401, "invalid_api_key", InvalidApiKey),
        (402, "quota_exceeded", QuotaExceeded),
        (404, "not_found", NotFound),
        (429, "rate_limit", RateLimit),
        (501, "server_error", ServerError),
        (409, "brand_new", Refusal),
    ]
    for status, code, error_type in types:
        with pytest.raises(Refusal) as caught:
            ask(error_reply(status, code, RATE, param="model"), image)
        error = caught.value
        assert type(error) is error_type
        assert (error.status, error.code) == (status, code)
        assert error.rate == (60, 59, 1700000060, None)
        assert f"POST /v2/images/generations: No. ({status} {code}, model)" in str(error)


def test_what_a_person_can_do_is_said_and_no_key() -> None:
    with pytest.raises(NotFound) as unknown:
        ask(error_reply(404, "not_found"), lambda client: client.video("req-1"))
    assert "another project" in unknown.value.hint
    assert "service.base_url" in unknown.value.hint
    with pytest.raises(InvalidApiKey, match=r"Incorrect key: sk_\.\.\."):
        ask(error_reply(401, "invalid_api_key", message=f"Incorrect key: {KEY}"), image)
    with pytest.raises(GatewayAnswer) as proxy:
        ask(page(407), image)
    assert proxy.value.hint.startswith(
        "A proxy asks for a user name and a password: http://NAME:PASSWORD@HOST"
    )


def test_a_service_that_is_down_is_not_a_wrong_config() -> None:
    down = [*(error_reply(status, "any") for status in (401, 402, 429, 500)), page(502), json_reply("?")]
    wrong = [page(404), error_reply(400, "invalid_parameter")]
    for exit_code, answers in ((4, down), (2, wrong)):
        for answer in answers:
            with pytest.raises(CallsheetError) as caught:
                ask(answer, lambda client: client.video("req-1"))
            assert caught.value.exit_code == exit_code


def test_retry_after_is_read_on_every_status_and_an_unreadable_one_means_a_whole_window() -> None:
    """As a date too, by the clock of the answer itself."""
    unreadable = [(text, WINDOW) for text in ("soon", "", "-1", "3601", "9" * 400)]
    for header, seconds in [("0", 0.0), ("30", 30.0), ("3600", 3600.0), *unreadable, (None, None)]:
        headers = {} if header is None else {"Retry-After": header}
        with pytest.raises(RateLimit) as limited:
            ask(error_reply(429, "rate_limit", headers), image)
        assert limited.value.retry_after == seconds, header
    headers = {"Retry-After": "Wed, 21 Oct 2026 07:28:45 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    for status in (400, 404, 500, 503):
        with pytest.raises(Refusal) as caught:
            ask(error_reply(status, "server_error", headers), image)
        assert (caught.value.retry_after, caught.value.date) == (45, 1792567680)


def test_an_answer_without_the_interfaces_error_body_is_a_gateways_and_its_status_is_the_code() -> None:
    for body in (
        b"404 page not found",
        b'{"message": "no Route matched with those values"}',
        b'{"error": {"message": "no route", "code": "ROUTE_NOT_FOUND"}}',
        b'{"error": {"message": "no route", "code": 404, "status": "NOT_FOUND"}}',
        b'{"error": "not_found"}',
        b'[{"error": 1e9999999999999999999}]',
    ):
        with pytest.raises(GatewayAnswer, match="404 Whatever, without the service's error") as caught:
            ask(reply(404, body, {"Content-Type": "application/json"}), image)
        assert (caught.value.code, caught.value.rate) == ("http_404", None)
        assert "CALLSHEET_BASE_URL" in caught.value.hint


@pytest.mark.parametrize(
    "location, hint",
    [
        (
            "https://api.service.test/v2/images/generations",
            "; https://api.service.test may be the right address.",
        ),
        (
            "/new/v2/images/generations",
            "{url}/new/v2/images/generations; {url}/new may be the right address.",
        ),
        ("https://login.test/start?from=/v2/hidden", "It redirects to https://login.test/start."),
    ],
    ids=["https", "path", "login"],
)
def test_a_redirect_of_the_api_says_where_to_and_only_then_the_address(location: str, hint: str) -> None:
    with serve(reply(301, b"", {"Location": location})) as server, pytest.raises(GatewayAnswer) as caught:
        run(server.url, image)
    said, address, _ = caught.value.hint.partition(f"Is {server.url} the service's address?")
    assert hint.format(url=server.url) in said
    assert address
    assert "hidden" not in said
    assert len(said) < 300
    assert len(server.requests) == 1
