"""Costs of a range of any length: every day once, from as few requests as the interface allows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from backlot.server import serve as serve_backlot
from backlot.settings import Settings
from callsheet.errors import MaybeSent
from tests.servers import http
from tests.servers.sockets import json_reply, serve
from tests.service.asking import ask, run

FIRST = datetime(2024, 11, 1, tzinfo=UTC)


def test_a_range_of_two_years_is_asked_for_in_pieces_and_no_charge_is_missing_or_counted_twice() -> None:
    moments = [
        FIRST,
        datetime(2025, 4, 29, 23, 59, 59, 999000, UTC),  # the last moment of the first 180 days
        datetime(2025, 4, 30, tzinfo=UTC),
        datetime(2026, 10, 31, 12, tzinfo=UTC),
    ]
    moment = FIRST

    def clock() -> float:
        return moment.timestamp()

    with serve_backlot(Settings(port=0, image_seconds=0), clock) as lot:
        headers = {"Authorization": f"Bearer {lot.api_key}"}
        for moment in moments:
            body = {"model": "still-1", "prompt": f"a fox at {moment}"}
            http.post(f"{lot.base_url}/v2/images/generations", json=body, headers=headers).raise_for_status()
        costs = run(lot.base_url, lambda client: client.daily_costs(FIRST, moments[-1]), key=lot.api_key)
    assert list(costs) == [FIRST.date() + timedelta(days=n) for n in range(730)]
    assert {day: cost for day, cost in costs.items() if cost} == {
        moment.date(): Decimal("0.04") for moment in moments
    }


def answer(*days: str) -> dict[str, Any]:
    data = [{"date": day, "cost": 0.1} for day in days]
    return {"currency": "USD", "data": data, "total_cost": 0.1 * len(days)}


START, END = datetime(2026, 3, 1, 6, tzinfo=UTC), datetime(2026, 3, 3, 12, tzinfo=UTC)


def test_the_range_is_sent_with_its_time_zone_and_costs_are_exact_a_refund_too() -> None:
    body = answer("2026-03-01", "2026-03-02", "2026-03-03")
    body["data"][1]["cost"] = -0.30000000000000004
    with serve(json_reply(body)) as server:
        costs = run(server.url, lambda client: client.daily_costs(START, END))
    assert list(map(str, costs.values())) == ["0.100000", "-0.300000", "0.100000"]
    [request] = server.requests
    query = parse_qs(urlsplit(request.split(b" ")[1].decode()).query)
    assert query == {"start": ["2026-03-01T06:00:00+00:00"], "end": ["2026-03-03T12:00:00+00:00"]}


@pytest.mark.parametrize(
    "days",
    [
        ("2026-03-01", "2026-03-02"),
        ("2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04"),
        ("2026-03-01", "2026-03-01", "2026-03-02", "2026-03-03"),
        (),
    ],
    ids=["missing", "strange", "twice", "none"],
)
def test_an_answer_without_each_day_once_is_an_error(days: tuple[str, ...]) -> None:
    with pytest.raises(MaybeSent, match="each day from 2026-03-01 to 2026-03-03 once"):
        ask(json_reply(answer(*days)), lambda client: client.daily_costs(START, END))
