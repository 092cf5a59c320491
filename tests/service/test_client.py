"""The client: every answer read as the interface says, and nothing told to whom it is not meant for."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from backlot.server import Backlot
from backlot.server import serve as serve_backlot
from backlot.settings import Settings as BacklotSettings
from callsheet import errors
from callsheet.errors import (
    CallsheetError,
    ConfigError,
    ContentPolicyViolation,
    InvalidApiKey,
    InvalidParameter,
    MaybeSent,
    NotFound,
    NotSent,
    ParameterMissing,
    QuotaExceeded,
    RateLimit,
    Refusal,
    ServerError,
    UnexpectedAnswer,
)
from callsheet.pricing import rates as pricing
from callsheet.records import Failed, Generation, ModelType, Pending
from callsheet.service import client as client_module
from callsheet.service import verdicts
from callsheet.service.client import READ_TRIES, WINDOW, Client
from callsheet.service.models import RateHeaders
from callsheet.service.verdicts import Verdict
from callsheet.storage import spool as media
from tests.servers.sockets import (
    Behaviour,
    error_reply,
    json_reply,
    page,
    raw,
    reply,
    serve,
    trickle,
    unused_port,
)

KEY = "sk_very-secret"
IMAGE = {
    "id": "req-1",
    "status": "completed",
    "model": "m",
    "data": [
        {
            "url": "http://127.0.0.1/v2/downloads/req-1/0?exp=1&sig=a%2Fb",
            "width": None,
            "height": 1024,
            "mime_type": "image/jpeg",
            "deletes_at": "2026-01-01T00:00:00.000Z",
            "new": {"fields": "are ignored"},
        }
    ],
    "usage": {"total_cost": 0.04, "billable_unit": "image", "unit_price": 0.04, "quantity": 1},
}
VIDEO = {**IMAGE["data"][0], "mime_type": "video/mp4", "duration": 5, "fps": 24, "has_sound": False}  # type: ignore[index]
RATE = {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "59", "X-RateLimit-Reset": "1700000060"}


def run(url: str, use: Callable[[Client], Awaitable[Any]], key: str = KEY) -> Any:
    async def scenario() -> Any:
        async with Client(url, key) as client:
            return await use(client)

    return asyncio.run(scenario())


def ask(behaviour: Behaviour, use: Callable[[Client], Awaitable[Any]]) -> Any:
    with serve(behaviour) as server:
        return run(server.url, use)


async def image(client: Client) -> Any:
    return await client.create_image({"model": "m", "prompt": "a cat"})


async def video(client: Client) -> Any:
    return await client.create_video({"model": "m", "prompt": "a cat"})


# ---- refusals


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (400, "invalid_parameter", InvalidParameter),
        (400, "parameter_missing", ParameterMissing),
        (422, "parameter_missing", ParameterMissing),
        (401, "invalid_api_key", InvalidApiKey),
        (402, "quota_exceeded", QuotaExceeded),
        (404, "not_found", NotFound),
        (422, "content_policy_violation", ContentPolicyViolation),
        (429, "rate_limit", RateLimit),
        (500, "server_error", ServerError),
        (501, "server_error", ServerError),
        (409, "brand_new", UnexpectedAnswer),
        (400, "brand_new", UnexpectedAnswer),
    ],
)
def test_each_code_has_its_error(status: int, code: str, kind: type[Refusal]) -> None:
    with pytest.raises(Refusal) as caught:
        ask(error_reply(status, code, RATE, param="model"), image)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, error.param) == (status, code, "model")
    assert error.rate == (60, 59, 1700000060, None)
    assert "POST /v2/images/generations" in str(error)
    assert "No." in str(error)


def test_every_refusal_of_the_tree_is_reachable() -> None:
    drawn = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Refusal)}
    made = {ServerError, *client_module._BY_STATUS.values(), *client_module._BY_STATUS_AND_CODE.values()}
    assert drawn - made == {Refusal, UnexpectedAnswer}


@pytest.mark.parametrize("status", [500, 501, 503, 599])
def test_a_failure_without_the_error_body_may_come_from_a_proxy(status: int) -> None:
    """The proxy may have passed a request on, so only the service's own error body rules that out."""
    with pytest.raises(UnexpectedAnswer) as caught:
        ask(page(status), image)
    assert caught.value.code == f"http_{status}"
    with pytest.raises(ServerError):
        ask(error_reply(status, "server_error"), image)


def test_a_generation_that_this_key_does_not_know_may_be_of_another_project() -> None:
    with pytest.raises(NotFound) as caught:
        ask(error_reply(404, "not_found"), lambda client: client.video("req-1"))
    assert "another project" in caught.value.hint
    assert "service.base_url" in caught.value.hint


@pytest.mark.parametrize(
    "answer, exit_code",
    [
        (error_reply(401, "invalid_api_key"), 4),
        (error_reply(402, "quota_exceeded"), 4),
        (error_reply(429, "rate_limit"), 4),
        (error_reply(500, "server_error"), 4),
        (page(502), 4),
        (json_reply("?"), 4),
        (page(404), 2),
        (error_reply(400, "invalid_parameter"), 2),
    ],
    ids=["401", "402", "429", "500", "502-html", "unreadable", "404-html", "400"],
)
def test_a_service_that_is_down_is_not_a_wrong_config(answer: Behaviour, exit_code: int) -> None:
    with pytest.raises(CallsheetError) as caught:
        ask(answer, lambda client: client.video("req-1"))
    assert caught.value.exit_code == exit_code


def test_an_answer_without_the_error_body_keeps_its_status_as_code() -> None:
    with pytest.raises(UnexpectedAnswer, match="answered 404 Whatever, without") as caught:
        ask(page(404), lambda client: client.video("req-1"))
    assert caught.value.code == "http_404"
    assert "CALLSHEET_BASE_URL" in caught.value.hint
    assert caught.value.rate is None


UNREADABLE = [(text, WINDOW) for text in ("soon", "", "-1", "3601", "9" * 400)]


@pytest.mark.parametrize(
    "header, seconds",
    [("0", 0.0), ("30", 30.0), ("3600", 3600.0), *UNREADABLE, (None, None)],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    headers = {} if header is None else {"Retry-After": header}
    with pytest.raises(RateLimit) as caught:
        ask(error_reply(429, "rate_limit", headers), image)
    assert caught.value.retry_after == seconds


def test_a_key_that_the_service_repeats_is_not_shown() -> None:
    with pytest.raises(InvalidApiKey) as caught:
        ask(error_reply(401, "invalid_api_key", message=f"Incorrect key: {KEY}"), image)
    assert "Incorrect key: sk_..." in str(caught.value)


# ---- answers


def test_an_image_is_bought() -> None:
    headers = {**RATE, "Date": "Tue, 14 Nov 2023 22:13:20 GMT"}
    with serve(json_reply(IMAGE, headers=headers)) as server:
        answer = run(server.url + "/", image)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/images/generations HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}".encode() in head
    assert json.loads(body) == {"model": "m", "prompt": "a cat"}
    assert answer.rate == RateHeaders(60, 59, 1700000060, 1700000000.0)
    assert isinstance(answer.value, Generation)
    assert answer.value.id == "req-1"
    assert answer.value.usage.total_cost == Decimal("0.04")
    [media] = answer.value.media
    assert (media.url, media.width, media.height) == (IMAGE["data"][0]["url"], None, 1024)  # type: ignore[index]
    assert media.deletes_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_money_is_read_to_six_decimals_and_never_as_a_float() -> None:
    def cost(text: str) -> Decimal:
        body = json.dumps(IMAGE).replace('"total_cost": 0.04', f'"total_cost": {text}').encode()
        total: Decimal = ask(reply(200, body), image).value.usage.total_cost
        assert isinstance(total, Decimal)
        return total

    assert str(cost("0.30000000000000004")) == "0.300000"
    assert str(cost("0.0000005")) == "0.000000"  # half to even
    assert str(cost("0.0000015")) == "0.000002"
    assert str(cost("123456789012.123456")) == "123456789012.123456"  # more digits than a float holds
    for impossible in ("NaN", "Infinity", "-1", "1e999", "null"):
        with pytest.raises(MaybeSent, match=r"cannot be read: usage.*about req-1"):
            cost(impossible)


def with_text(answer: Any, old: str, new: str, status: int = 200) -> Behaviour:
    text = json.dumps(answer)
    assert old in text
    return reply(status, text.replace(old, new).encode())


HALF = r"\ud83d"
"""Half a surrogate pair: JSON can escape it, and no database and no file can hold it."""


def test_text_that_nothing_can_hold_is_made_writable() -> None:
    bought = ask(with_text(IMAGE, '"billable_unit": "image"', rf'"billable_unit": "a{HALF}\u0000"'), image)
    assert bought.value.usage.billable_unit == "a??"
    signed = ask(with_text(IMAGE, "sig=a", f"sig={HALF}"), image).value.media[0].url
    assert signed.endswith("sig=?%2Fb")
    smile = ask(with_text(IMAGE, '"billable_unit": "image"', r'"billable_unit": "\ud83d\ude00"'), image)
    assert smile.value.usage.billable_unit == "\U0001f600", "whole pairs stay"
    error = {"error": {"message": "a sunny day X", "code": "content_policy_violation"}}
    with pytest.raises(ContentPolicyViolation, match=r"a sunny day \?"):
        ask(with_text(error, "X", HALF, 422), image)
    failed = {"status": "failed", "error": {"message": "X", "code": "server_error"}}
    assert ask(with_text(failed, "X", HALF), lambda client: client.video("v")).message == "?"
    catalogue = ask(with_text([MODEL], '"name": "M"', f'"name": "{HALF}"'), lambda client: client.models())
    assert catalogue["m"].name == "?"


@pytest.mark.parametrize(
    "old, new",
    [
        ('"total_cost": 0.04', '"total_cost": 1e9999999999999999999'),
        ("2026-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999-01:00"),
        ("2026-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000+01:00"),
    ],
    ids=["cost", "deletes-at-9999", "deletes-at-1"],
)
def test_a_value_that_nothing_can_hold_is_an_unreadable_answer(old: str, new: str) -> None:
    with pytest.raises(MaybeSent, match="cannot be read") as caught:
        ask(with_text(IMAGE, old, new), image)
    assert verdicts.submit(caught.value) is Verdict.IN_DOUBT
    with pytest.raises(Refusal, match="without the service's error body"):
        ask(reply(500, b'{"error": 1e9999999999999999999}'), image)


def test_the_time_of_deletion_is_read_in_utc() -> None:
    [media] = ask(with_text(IMAGE, "00:00:00.000Z", "00:00:00.000+02:00"), image).value.media
    assert media.deletes_at == datetime(2025, 12, 31, 22, tzinfo=UTC)
    assert media.deletes_at.tzinfo is UTC
    [media] = ask(with_text(IMAGE, "2026-01-01", "0001-01-01"), image).value.media
    assert media.deletes_at == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("said", ["IMAGE/JPEG", "image/jpeg; charset=binary"])
def test_a_media_type_is_read_without_case_and_parameters(said: str) -> None:
    assert ask(with_text(IMAGE, "image/jpeg", said), image).value.media[0].mime_type == "image/jpeg"


def test_an_odd_number_that_only_describes_a_file_gives_up_no_paid_one() -> None:
    odd = {"width": 10**30, "height": -1, "duration": 10**400, "fps": "many", "has_sound": "loud"}
    [media] = ask(json_reply({**IMAGE, "data": [VIDEO | odd]}), image).value.media
    assert (media.width, media.height, media.duration, media.fps, media.has_sound) == (None,) * 5


@pytest.mark.parametrize(
    "headers",
    [{"X-RateLimit-Reset": "9" * 400}, {"X-RateLimit-Limit": "1_000"}, {"X-RateLimit-Remaining": "-1"}],
)
def test_unreadable_rate_headers_are_ignored(headers: dict[str, str]) -> None:
    assert ask(json_reply(IMAGE, headers=RATE | headers), image).rate is None


@pytest.mark.parametrize("zone", ["+99999999999999999999", "+2360"])
def test_an_unreadable_date_is_ignored(zone: str) -> None:
    headers = {**RATE, "Date": f"Mon, 01 Jan 0001 00:00:00 {zone}"}
    assert ask(json_reply(IMAGE, headers=headers), image).rate == RateHeaders(60, 59, 1700000060, None)


def test_a_balance_that_is_none_is_said_so() -> None:
    with pytest.raises(MaybeSent, match="cannot be read: balance"):
        ask(json_reply({"currency": "USD", "balance": "1e40"}), lambda client: client.balance())


@pytest.mark.parametrize("lacking", ["id", "data", "usage"])
def test_an_image_without_id_file_or_cost_is_in_doubt(lacking: str) -> None:
    partial = {name: value for name, value in IMAGE.items() if name != lacking}
    with pytest.raises(MaybeSent, match=f"cannot be read: {lacking}: Field required"):
        ask(json_reply(partial), image)
    with pytest.raises(MaybeSent, match="data"):
        ask(json_reply({**IMAGE, "data": []}), image)


@pytest.mark.parametrize(
    "answer",
    [{"id": "req-2", "status": "pending"}, {"id": "req-2"}, {"id": "req-2", "status": 7, "usage": "?"}],
)
def test_a_video_with_an_id_is_accepted_whatever_else_is_said(answer: Any) -> None:
    answered = ask(json_reply(answer, 202, {**RATE, "X-RateLimit-Limit": "many"}), video)
    assert answered.value == Pending("req-2")
    assert answered.rate is None


def test_a_video_is_polled_to_its_end() -> None:
    async def poll(client: Client) -> list[Any]:
        return [await client.video("req/2") for _ in range(4)]

    completed = {
        "id": "req-2",
        "status": "completed",
        "model": "m",
        "data": [VIDEO, VIDEO],
        "usage": IMAGE["usage"],
    }
    failed = {"id": "req-2", "status": "failed", "error": {"message": "Upstream.", "code": "server_error"}}
    with serve(
        json_reply({"id": "req-2", "status": "pending", "data": None}),
        json_reply(failed),
        json_reply({"id": "req-2", "status": "failed", "error": None}),
        json_reply(completed),
    ) as server:
        pending, failure, mute, generation = run(server.url, poll)
    assert server.requests[0].startswith(b"GET /v2/videos/generations/req%2F2 HTTP/1.1\r\n")
    assert pending == Pending("req/2")
    assert failure == Failed("req/2", "server_error", "Upstream.")
    assert mute == Failed("req/2", "unknown", "no reason was given")
    assert [media.mime_type for media in generation.media] == ["video/mp4"]
    assert (generation.media[0].duration, generation.media[0].fps, generation.media[0].has_sound) == (
        5,
        24,
        False,
    )


def test_a_poll_in_a_state_that_the_interface_does_not_know_is_to_be_repeated() -> None:
    with pytest.raises(MaybeSent) as caught:
        ask(json_reply({"id": "req-2", "status": "queued"}), lambda client: client.video("req-2"))
    assert verdicts.poll(caught.value) is Verdict.AGAIN


MODEL = {
    "id": "m",
    "name": "M",
    "type": "image",
    "supported_aspect_ratios": ["1:1"],
    "supported_durations": [],
    "supported_resolutions": ["1K"],
    "supports_sound": False,
    "supported_references": {"reference_image": 4},
    "pricing": {
        "currency": "USD",
        "rates": [
            {"resolution": "1K", "sound": "not_applicable", "billable_unit": "image", "unit_price": "0.0400"}
        ],
    },
    "created_at": "2025-01-01T00:00:00Z",
}


def test_the_catalogue_is_read_with_exact_prices() -> None:
    with serve(json_reply([MODEL]), json_reply([]), json_reply(MODEL)) as server:

        async def read(client: Client) -> Any:
            return await client.models(), await client.models(ModelType.VIDEO), await client.model("m/1")

        every, videos, one = run(server.url, read)
    assert str(every["m"].pricing.rates[0].unit_price) == "0.0400"
    assert videos == {}
    assert one == every["m"]
    paths = [request.split(b" ")[1] for request in server.requests]
    assert paths == [b"/v2/models", b"/v2/models?type=video", b"/v2/models/m%2F1"]


def test_an_entry_that_cannot_be_read_hides_no_other() -> None:
    odd = MODEL | {"id": "odd", "pricing": {"currency": "USD", "rates": [{"resolution": "1K"}]}}
    with serve(json_reply([odd, MODEL]), json_reply([MODEL, "odd"])) as server:
        catalogue = run(server.url, lambda client: client.models())
        with pytest.raises(MaybeSent, match="cannot be read: 1: Input should be a valid dictionary"):
            run(server.url, lambda client: client.models())
    assert not catalogue["m"].unreadable
    refused = pricing.offer(pricing.Combination("odd"), catalogue)
    assert isinstance(refused, pricing.Reject)
    assert refused.reason == (
        "the service's entry for odd cannot be read: pricing.rates.0.sound: Field required"
    )


def test_balance_and_costs_are_exact() -> None:
    costs = {
        "currency": "USD",
        "data": [{"date": "2026-01-01", "cost": 0.1}, {"date": "2026-01-02", "cost": 0.20000000000000001}],
        "total_cost": 0.30000000000000004,
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-02T12:00:00Z",
    }
    with serve(json_reply({"currency": "USD", "balance": "12.3456"}), json_reply(costs)) as server:

        async def read(client: Client) -> Any:
            day = datetime(2026, 1, 1, tzinfo=UTC)
            return await client.balance(), await client.costs(day, day.replace(hour=12))

        balance, read_costs = run(server.url, read)
    assert str(balance) == "12.345600"
    assert [str(day.cost) for day in read_costs.data] == ["0.100000", "0.200000"]
    assert str(read_costs.total_cost) == "0.300000"
    query = httpx.URL(server.requests[1].split(b" ")[1].decode()).params
    assert (query["start"], query["end"]) == ("2026-01-01T00:00:00+00:00", "2026-01-01T12:00:00+00:00")


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.balance(),
        lambda client: client.models(),
        lambda client: client.video("v"),
        image,
    ],
    ids=["balance", "models", "video", "image"],
)
def test_an_answer_that_trickles_is_not_waited_for_without_end(
    use: Callable[[Client], Awaitable[Any]],
) -> None:
    async def scenario(url: str) -> float:
        async with Client(url, KEY, read_timeout=0.2, generation_timeout=0.2) as client:
            began = time.monotonic()
            with pytest.raises(MaybeSent, match="no answer came: TimeoutError"):
                await use(client)
            return time.monotonic() - began

    with serve(trickle(b" " * 500)) as server:
        assert 0.3 < asyncio.run(scenario(server.url)) < 2


def test_a_poll_takes_no_longer_than_its_caller_can_wait() -> None:
    with pytest.raises(MaybeSent, match="TimeoutError"):
        ask(trickle(b" " * 500), lambda client: client.video("v", within=0.1))


# ---- asking again

BALANCE = json_reply({"currency": "USD", "balance": "12.3456"})


async def balance(client: Client) -> Any:
    return await client.balance()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "failure",
    [error_reply(500, "server_error"), error_reply(429, "rate_limit"), page(502), page(503)],
    ids=["500", "429", "502-html", "503-html"],
)
def test_what_is_read_once_is_asked_for_again_a_few_times(failure: Behaviour) -> None:
    with serve(failure, failure, failure, BALANCE) as server:
        assert run(server.url, balance) == Decimal("12.3456")
    with serve(failure) as server, pytest.raises(Refusal):
        run(server.url, lambda client: client.models())
    assert len(server.requests) == READ_TRIES


def test_asking_again_waits_as_told_within_reason() -> None:
    told = error_reply(429, "rate_limit", {"Retry-After": "2"})
    began = time.monotonic()
    with serve(told, BALANCE) as server:
        assert run(server.url, balance) == Decimal("12.3456")
    assert time.monotonic() - began >= 2
    with serve(error_reply(429, "rate_limit", {"Retry-After": "600"})) as server, pytest.raises(RateLimit):
        run(server.url, balance)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "failure, use",
    [
        (error_reply(401, "invalid_api_key"), balance),
        (page(404), balance),
        (json_reply("?"), balance),
        (error_reply(500, "server_error"), lambda client: client.video("v")),
        (error_reply(500, "server_error"), image),
    ],
    ids=["401", "404", "unreadable", "poll", "image"],
)
def test_nothing_else_is_asked_for_again(failure: Behaviour, use: Callable[[Client], Awaitable[Any]]) -> None:
    with serve(failure) as server, pytest.raises(CallsheetError):
        run(server.url, use)
    assert len(server.requests) == 1


# ---- downloads


async def fetch(client: Client, url: str) -> tuple[bytes, int | None, str]:
    async with client.download(url) as file:
        return b"".join([chunk async for chunk in file.chunks]), file.length, file.mime_type


def test_a_download_goes_to_its_url_as_given_and_without_the_key() -> None:
    content = bytes(range(256)) * 1000
    signed = "/v2/downloads/req-1/0?exp=1&sig=a%2Fb%2Bc+d/e~f=="
    with serve(reply(200, content, {"Content-Type": "Image/JPEG; q=1"})) as server:
        got = run(server.url, lambda client: fetch(client, server.url + signed))
    assert got == (content, len(content), "image/jpeg")
    assert server.requests[0].split(b" ")[1] == signed.encode()
    assert b"uthorization" not in server.requests[0]
    assert KEY.encode() not in server.requests[0]


def test_a_download_follows_redirects_and_a_submission_does_not() -> None:
    with (
        serve(reply(200, b"file")) as store,
        serve(reply(307, b"", {"Location": store.url + "/x"})) as server,
    ):
        assert run(server.url, lambda client: fetch(client, server.url + "/f"))[0] == b"file"
        with pytest.raises(UnexpectedAnswer):
            run(server.url, image)
    assert len(store.requests) == 1
    assert KEY.encode() not in store.requests[0]


def test_a_download_that_breaks_off_says_so() -> None:
    with (
        pytest.raises(MaybeSent),
        serve(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nbegun")) as server,
    ):
        run(server.url, lambda client: fetch(client, server.url))
    with pytest.raises(NotSent):
        run(server.url, lambda client: fetch(client, server.url))
    with pytest.raises(NotSent):
        run(server.url, lambda client: fetch(client, "no address"))


def test_a_refused_download_keeps_its_status_and_its_signature_to_itself() -> None:
    with serve(page(403)) as server, pytest.raises(UnexpectedAnswer) as caught:
        run(server.url, lambda client: fetch(client, server.url + "/f?sig=hidden"))
    assert verdicts.download(caught.value, ModelType.VIDEO, overdue=False) is Verdict.RENEW
    assert "hidden" not in str(caught.value)


def test_an_address_is_shown_without_its_password() -> None:
    with unused_port() as port:
        nowhere = f"http://me:hidden@127.0.0.1:{port}"
        for use in balance, lambda client: fetch(client, f"{nowhere}/f?sig=hidden"):
            with pytest.raises(NotSent) as caught:
                run(nowhere, use)
            said = caught.value.message + caught.value.hint
            assert f"http://...@127.0.0.1:{port}" in said
            assert "hidden" not in said


def test_what_the_reader_of_a_download_raises_is_its_own() -> None:
    async def full_disk(client: Client) -> None:
        async with client.download(server.url) as file:
            async for _ in file.chunks:
                raise OSError("disk full")

    with serve(reply(200, b"file")) as server, pytest.raises(OSError, match="disk full"):
        run(server.url, full_disk)


# ---- the key


@pytest.mark.parametrize("key", ["", "sk_a b", "sk_a\n", "sk_ä"])
def test_what_cannot_be_a_key_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Client("http://127.0.0.1", key)
    assert key == "" or key not in caught.value.message + caught.value.hint


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serve(json_reply(IMAGE)) as server:
        run(server.url, image)
    assert [record for record in caplog.records if record.name.startswith(("httpx", "httpcore"))] == []


def test_an_address_that_is_none_is_a_config_error() -> None:
    with pytest.raises(CallsheetError, match=r"service\.base_url"):
        Client("http://127.0.0.1:port", KEY)


# ---- the backlot: every endpoint as a service that is not ours to bend answers it


@pytest.fixture(scope="module")
def backlot() -> Iterator[Backlot]:
    with serve_backlot(BacklotSettings(port=0, image_seconds=0, video_seconds=0.2)) as running:
        yield running


def test_every_endpoint_of_the_backlot(backlot: Backlot, tmp_path: Path) -> None:
    async def buy(client: Client) -> None:
        before = await client.balance()
        catalogue = await client.models()
        assert await client.model("still-1") == catalogue["still-1"]
        films = await client.models(ModelType.VIDEO)
        assert set(films) == {model.id for model in catalogue.values() if model.type == "video"}

        still = await client.create_image({"model": "still-1", "prompt": "a cat", "output_format": "webp"})
        assert still.rate is not None
        assert still.rate.remaining == still.rate.limit - 1
        assert still.rate.date == pytest.approx(time.time(), abs=5)
        ordered = await client.create_video({"model": "dailies-1", "prompt": "a dog", "duration": 1})
        assert await client.video(ordered.value.id) == ordered.value
        film = ordered.value
        while isinstance(film, Pending):
            await asyncio.sleep(0.05)
            film = await client.video(film.id)
        assert isinstance(film, Generation)

        for file, kind in [(still.value.media[0], "image/webp"), (film.media[0], "video/mp4")]:
            assert file.mime_type == kind
            async with client.download(file.url) as download:
                assert download.length
                kept = await media.spool(download, file.mime_type, tmp_path, "file", patience=60)
                assert kept.bytes == download.length

        spent = still.value.usage.total_cost + film.usage.total_cost
        assert spent > 0
        assert await client.balance() == before - spent
        now = datetime.now(UTC)
        assert (await client.costs(now - timedelta(days=1), now + timedelta(minutes=1))).total_cost == spent

    run(backlot.base_url, buy, key=backlot.api_key)


def test_the_backlot_s_refusals(backlot: Backlot) -> None:
    async def try_all(client: Client) -> None:
        with pytest.raises(InvalidParameter) as wrong_ratio:
            await client.create_image({"model": "still-1", "prompt": "x", "aspect_ratio": "7:5"})
        assert wrong_ratio.value.param == "aspect_ratio"
        with pytest.raises(ParameterMissing):
            await client.create_video({"model": "dailies-1"})
        with pytest.raises(ContentPolicyViolation):
            await client.create_image({"model": "still-1", "prompt": "gore"})
        with pytest.raises(NotFound):
            await client.model("no-such-model")
        with pytest.raises(NotFound):
            await client.video("req-none")
        with pytest.raises(UnexpectedAnswer) as forged:
            async with client.download(f"{backlot.base_url}/v2/downloads/req-none/0?exp=1&sig=x"):
                pass
        assert verdicts.download(forged.value, ModelType.VIDEO, overdue=False) is Verdict.RENEW

    run(backlot.base_url, try_all, key=backlot.api_key)
    with pytest.raises(InvalidApiKey):
        run(backlot.base_url, lambda client: client.balance())
