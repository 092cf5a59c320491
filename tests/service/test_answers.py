"""Every answer is read as the interface defines it, and what cannot be read is in doubt."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from callsheet.errors import MaybeSent, Refusal
from callsheet.pricing.parameters import Combination, Reject
from callsheet.records import CostSource, Generation
from callsheet.service.client import Client
from callsheet.service.models import Cost, Failed, Pending, RateHeaders
from tests.pricing.offers import Offer, offer
from tests.servers.sockets import Behaviour, json_reply, reply, serve, trickle
from tests.service.asking import IMAGE, KEY, RATE, VIDEO, answered, ask, image, run, video


def test_a_bought_image_has_its_id_cost_files_and_rate_limit() -> None:
    headers = {**RATE, "Date": "Tue, 14 Nov 2023 22:13:20 GMT"}
    with serve(json_reply(IMAGE, headers=headers)) as server:
        bought, rate = run(server.url + "/", answered)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/images/generations HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}".encode() in head
    assert json.loads(body) == {"model": "m", "prompt": "a cat"}
    assert rate == RateHeaders(60, 59, 1700000060, 1700000000.0)
    assert isinstance(bought, Generation)
    assert bought.id == "req-1"
    assert bought.usage.total_cost == Decimal("0.04")
    [media] = bought.media
    assert (media.url, media.width, media.height) == (IMAGE["data"][0]["url"], None, 1024)
    assert media.deletes_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_money_is_rounded_to_six_decimals_and_never_read_as_a_float() -> None:
    def cost(text: str) -> Decimal:
        body = json.dumps(IMAGE).replace('"total_cost": 0.04', f'"total_cost": {text}').encode()
        total: Decimal = ask(reply(200, body), image).usage.total_cost
        assert isinstance(total, Decimal)
        return total

    assert str(cost("0.30000000000000004")) == "0.300000"
    assert str(cost("0.0000005")) == "0.000000"  # half to even
    assert str(cost("0.0000015")) == "0.000002"
    assert str(cost("123456789012.123456")) == "123456789012.123456"  # more digits than a float holds


QUOTE = Decimal("0.0400")


@pytest.mark.parametrize("total", ["NaN", "Infinity", "-1", "1e999", "null", '"a lot"', "[]"])
def test_a_cost_that_is_not_said_is_computed_and_otherwise_the_quote_stands_for_it(total: str) -> None:
    def cost(usage: str) -> Any:
        body = json.dumps(IMAGE | {"usage": "?"}).replace('"?"', usage).encode()
        return ask(reply(200, body), image).usage.cost(QUOTE)

    assert cost(f'{{"total_cost": {total}, "unit_price": 0.03, "quantity": 3}}') == (
        Decimal("0.09"),
        CostSource.COMPUTED,
    )
    for other in (
        '"unit_price": null, "quantity": 3',
        '"unit_price": 0.03',
        '"quantity": -1, "unit_price": 1',
    ):
        assert cost(f'{{"total_cost": {total}, {other}}}') == (QUOTE, CostSource.QUOTED)
    assert cost('{"total_cost": 0, "unit_price": 0.03, "quantity": 3}') == (Decimal(0), CostSource.USAGE)
    huge = '"unit_price": 99999999999, "quantity": 99999999999'
    assert cost(f'{{"total_cost": {total}, {huge}}}') == (QUOTE, CostSource.QUOTED)
    assert cost(total if total[0] in '"n[' else "0") == (QUOTE, CostSource.QUOTED), "no usage at all"


def with_text(answer: Any, old: str, new: str, status: int = 200) -> Behaviour:
    text = json.dumps(answer)
    assert old in text
    return reply(status, text.replace(old, new).encode())


HALF = r"\ud83d"
"""Half a surrogate pair: JSON can escape it, and UTF-8 cannot encode it."""


def test_characters_that_cannot_be_stored_are_replaced() -> None:
    bought = ask(with_text(IMAGE, '"billable_unit": "image"', rf'"billable_unit": "a{HALF}\u0000"'), image)
    assert bought.usage.billable_unit == "a??"
    signed = ask(with_text(IMAGE, "sig=a", f"sig={HALF}"), image).media[0].url
    assert signed.endswith("sig=?%2Fb")
    smile = ask(with_text(IMAGE, '"billable_unit": "image"', r'"billable_unit": "\ud83d\ude00"'), image)
    assert smile.usage.billable_unit == "\U0001f600", "whole pairs are kept"
    error = {"error": {"message": "a sunny day X", "code": "content_policy_violation"}}
    with pytest.raises(Refusal, match=r"a sunny day \?"):
        ask(with_text(error, "X", HALF, 422), image)
    failed = {"status": "failed", "error": {"message": "X", "code": "server_error"}}
    assert ask(with_text(failed, "X", HALF), lambda client: client.video("v")).message == "?"
    catalogue = ask(with_text([MODEL], '"name": "M"', f'"name": "{HALF}"'), lambda client: client.models())
    assert catalogue["m"].name == "?"


def test_deletes_at_is_converted_to_utc() -> None:
    [media] = ask(with_text(IMAGE, "00:00:00.000Z", "00:00:00.000+02:00"), image).media
    assert media.deletes_at == datetime(2025, 12, 31, 22, tzinfo=UTC)
    assert media.deletes_at.tzinfo is UTC
    [media] = ask(with_text(IMAGE, "00:00:00.000Z", "00:00:00.000"), image).media
    assert media.deletes_at == datetime(2026, 1, 1, tzinfo=UTC), "the interface says that it is in UTC"


def test_an_invalid_value_that_only_describes_a_file_does_not_make_the_answer_unreadable() -> None:
    invalid = {"width": 10**30, "height": -1, "duration": 10**400, "fps": "many", "has_sound": "loud"}
    [media] = ask(json_reply({**IMAGE, "data": [VIDEO | invalid]}), image).media
    assert (media.width, media.height, media.duration, media.fps, media.has_sound) == (None,) * 5


def test_headers_that_cannot_be_read_are_as_if_they_were_not_there() -> None:
    for odd in (
        {"X-RateLimit-Reset": "9" * 400},
        {"X-RateLimit-Limit": "1_000"},
        {"X-RateLimit-Remaining": "-1"},
    ):
        assert ask(json_reply(IMAGE, headers=RATE | odd), answered)[1] is None
    for zone in "+99999999999999999999", "+2360":
        headers = {**RATE, "Date": f"Mon, 01 Jan 0001 00:00:00 {zone}"}
        _, rate = ask(json_reply(IMAGE, headers=headers), answered)
        assert rate == RateHeaders(60, 59, 1700000060, None)


def test_an_address_that_came_is_kept_and_an_id_that_is_a_number_is_an_id() -> None:
    for data in [None, IMAGE["data"][0]], IMAGE["data"][0]:
        bought = ask(json_reply({**IMAGE, "id": 7, "data": data}), image)
        assert (bought.id, len(bought.media)) == ("7", 1)


def test_a_video_with_an_id_is_accepted_whatever_else_the_answer_has() -> None:
    for odd in {"status": "pending"}, {}, {"status": 7, "usage": "?"}:
        accepted = ask(json_reply({"id": 7, **odd}, 202, {**RATE, "X-RateLimit-Limit": "many"}), video)
        assert accepted == ("7", None)


def test_a_poll_tells_whether_a_video_is_pending_failed_or_finished() -> None:
    async def poll(client: Client) -> list[Any]:
        return [await client.video("req/2") for _ in range(4)]

    completed = {
        "id": "req/2",
        "status": "completed",
        "model": "m",
        "data": [VIDEO, VIDEO],
        "usage": IMAGE["usage"],
    }
    failed = {"id": "req/2", "status": "failed", "error": {"message": "Upstream.", "code": "server_error"}}
    with serve(
        json_reply({"id": "req/2", "status": "pending", "data": None}),
        json_reply(failed),
        json_reply({"status": "Failed", "error": None}),
        json_reply(completed),
    ) as server:
        pending, failure, without_reason, generation = run(server.url, poll)
    assert server.requests[0].startswith(b"GET /v2/videos/generations/req%2F2 HTTP/1.1\r\n")
    assert pending == Pending()
    assert failure == Failed("server_error", "Upstream.", Cost())
    assert without_reason == Failed("unknown", "no reason was given", Cost())
    assert [media.mime_type for media in generation.media] == ["video/mp4"]
    assert (generation.media[0].duration, generation.media[0].fps, generation.media[0].has_sound) == (
        5,
        24,
        False,
    )


def test_a_poll_with_a_file_is_a_finished_video_whatever_else_is_odd() -> None:
    for status in "completed", "Completed", " COMPLETED", "succeeded", None:
        answer = {"id": "req-2", "status": status, "data": [VIDEO], "usage": None}
        finished = ask(json_reply(answer), lambda client: client.video("req-2"))
        assert isinstance(finished, Generation), status
        assert finished.usage.cost(QUOTE) == (QUOTE, CostSource.QUOTED)


MODEL: dict[str, Any] = {
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


def test_the_balance_is_exact_and_one_out_of_range_is_unreadable() -> None:
    answers = (json_reply({"currency": "USD", "balance": balance}) for balance in ("12.3456", "1e40"))
    with serve(*answers) as server:
        assert str(run(server.url, lambda client: client.balance())) == "12.345600"
        with pytest.raises(MaybeSent, match="cannot be read: balance"):
            run(server.url, lambda client: client.balance())


def test_a_model_that_cannot_be_read_does_not_hide_the_others() -> None:
    odd = MODEL | {"id": "odd", "supported_durations": ["long"]}
    with serve(json_reply([odd, MODEL]), json_reply([MODEL, "odd"])) as server:
        catalogue = run(server.url, lambda client: client.models())
        with pytest.raises(MaybeSent, match="cannot be read: 1: Input should be a valid dictionary"):
            run(server.url, lambda client: client.models())
    assert not catalogue["m"].unreadable
    assert str(catalogue["m"].pricing.rates[0].unit_price) == "0.0400", "prices are exact"
    reject = offer(Combination("odd"), catalogue)
    assert isinstance(reject, Reject)
    assert reject.reason.startswith("the service's entry for odd cannot be read: supported_durations.0: ")


def offered(*entries: Any) -> Any:
    catalogue = ask(json_reply(list(entries)), lambda client: client.models())
    return offer(Combination("m"), catalogue)


def test_null_in_the_catalogue_is_none() -> None:
    """Also of a price, without which a rate is none, and of `sound`: such a rate is not about sound."""
    nulls: list[dict[str, Any]] = [
        {name: None} for name in ("name", "supported_aspect_ratios", "supported_durations", "supports_sound")
    ]
    [rate] = MODEL["pricing"]["rates"]
    rates = [rate | {"unit_price": None}, rate | {"sound": None}]
    nulls += [{"supported_references": None}, {"pricing": {"currency": "USD", "rates": rates}}]
    for null in nulls:
        made = offered(MODEL | null, None)
        assert isinstance(made, Offer), null
        assert made.price, null
        assert made.price.total == Decimal("0.0400")
    for no_price in None, {"currency": "USD", "rates": None}, {"currency": None, "rates": [None]}:
        made = offered(MODEL | {"pricing": no_price})
        assert isinstance(made, Offer), no_price
        assert (made.price, "no rates" in made.unpriced) == (None, True)


def test_a_model_that_stands_twice_with_different_prices_is_unpriced() -> None:
    [rate] = MODEL["pricing"]["rates"]
    dearer = MODEL | {"pricing": {"currency": "USD", "rates": [rate | {"unit_price": "0.0500"}]}}
    for entries in ((MODEL, dearer), (dearer, MODEL), (MODEL, dearer, dearer)):
        made = offered(*entries)
        assert made.price is None
        assert made.unpriced == "m stands in the catalogue twice, with different prices"
    assert offered(MODEL, MODEL | {"name": "Another"}).price, "the prices are the same"


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for_without_end() -> None:
    for use in (lambda client: client.balance()), image:
        began = time.monotonic()
        with (
            serve(trickle(b" " * 15_000)) as server,
            pytest.raises(MaybeSent, match="no answer came: Timeout"),
        ):
            run(server.url, use, read_timeout=0.2, generation_timeout=0.2)
        assert 0.2 <= time.monotonic() - began < 250, "the whole answer takes 300 s"
    with pytest.raises(MaybeSent, match="TimeoutError"):
        ask(trickle(b" " * 500), lambda client: client.video("v", within=0.1))
