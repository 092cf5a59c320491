"""The dashboard: who may open it, what its pages show, and what its forms change."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from backlot.server import Backlot

from .conftest import balance, client, make_image, make_video, refused

Start = Callable[..., Backlot]
PAGES = ("/", "/generations", "/costs", "/keys", "/models", "/limits", "/faults")
HTML = {"Accept": "text/html"}
get = functools.partial(httpx.get, verify=False)  # without reading the authorities, which takes longer


class Reader(httpx.Client):
    """A signed-in browser without a screen."""

    def __init__(self, lot: Backlot) -> None:
        super().__init__(base_url=lot.base_url, headers=HTML, timeout=300, verify=False)
        assert self.get(lot.dashboard or "").status_code == 200

    def read(self, path: str) -> str:
        """The text of a page, without its marks."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return " ".join(re.sub(r"<[^>]*>", " ", answer.text).split())

    def submit(self, path: str, **fields: str) -> httpx.Response:
        """Sends a form as a page of the dashboard does; the answer is not followed."""
        return self.post(path, data=fields, headers={"Origin": str(self.base_url).rstrip("/")})


def test_a_link_signs_in_once_until_it_is_signed_out_and_makes_a_link_for_another(
    start_backlot: Start,
) -> None:
    lot = start_backlot()
    link = lot.dashboard or ""
    assert httpx.head(link, verify=False).status_code == 404  # what only looks does not use it up
    answer = get(link, headers=HTML)
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/"))
    assert get(link, headers=HTML).status_code == 403
    assert get(f"{lot.base_url}/sign-in?token=wrong", headers=HTML).status_code == 403
    assert get(f"{lot.base_url}/sign-in", headers=HTML).status_code == 403
    assert get(lot.base_url, cookies=answer.cookies, headers=HTML).status_code == 200
    reader = Reader(lot)
    made = re.search(r"http://[^\s<]+sign-in\?token=[\w-]+", reader.submit("/another-link").text)
    session = dict(reader.cookies)
    assert reader.submit("/sign-out").status_code == 303
    assert get(lot.base_url, cookies=session, headers=HTML).status_code == 403
    assert made
    other = get(made[0], headers=HTML)
    assert get(lot.base_url, cookies=other.cookies, headers=HTML).status_code == 200


def test_without_a_session_a_browser_is_told_and_a_program_finds_nothing(start_backlot: Start) -> None:
    lot = start_backlot()
    for path in (*PAGES, "/generations/x", "/media/x", "/media/x/small"):
        told = get(lot.base_url + path, headers=HTML)
        assert (told.status_code, "You are not signed in" in told.text) == (403, True)
        for method in ("GET", "POST", "HEAD", "DELETE", "OPTIONS"):
            assert client(lot.base_url).request(method, path).status_code == 404, (method, path)
        refused(client(lot.base_url).get(path), 404, "not_found")


def test_a_form_of_another_page_changes_nothing(start_backlot: Start) -> None:
    lot = start_backlot()
    reader = Reader(lot)
    form = {"amount": "5", "project": "x", "do": "truncate"}
    for path in ("/top-up", "/keys", "/keys/revoke", "/limits", "/faults", "/faults/off", "/sign-out"):
        for origin in (None, "null", "http://evil.example", "http://127.0.0.1:1"):
            headers = {"Origin": origin} if origin else {}
            assert reader.post(path, data=form, headers=headers).status_code == 403, (path, origin)
    assert (balance(client(lot.base_url)), lot.service.faults.active) == ("100.0000", [])
    assert reader.get("/").status_code == 200


def test_another_name_of_this_machine_opens_nothing(start_backlot: Start) -> None:
    lot = start_backlot()
    reader, link = Reader(lot), lot.dashboard or ""
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.", "[", "", "0.0.0.0"):
        for path in ("/", "/keys", f"/sign-in?{urlsplit(link).query}"):
            assert reader.get(path, headers={"Host": host}).status_code in {404, 400}, (host, path)
    assert get(link, headers=HTML).status_code == 200


def test_on_another_address_it_is_there_by_the_name_that_was_said(start_backlot: Start) -> None:
    off = start_backlot(host="0.0.0.0")
    assert off.dashboard is None
    at_loopback = off.base_url.replace("0.0.0.0", "127.0.0.1")
    assert get(f"{at_loopback}/", headers=HTML).status_code == 404
    assert get(f"{at_loopback}/docs").status_code == 200
    on = start_backlot(host="0.0.0.0", dashboard_host="localhost")
    port = urlsplit(on.base_url).port
    link = on.dashboard or ""
    assert link.startswith(f"http://localhost:{port}/sign-in?token=")
    assert get(link.replace("localhost", "127.0.0.1"), headers=HTML).status_code == 404
    assert get(link, headers=HTML).status_code == 200


HOSTILE = "</td><script>alert('x')</script>\"' onload=x &amp; {{ 7 * 7 }}"


def test_what_people_have_typed_is_escaped_and_a_strict_policy_holds_on_every_page(
    start_backlot: Start,
) -> None:
    settings = {
        HOSTILE: {"balance": "5", "projects": {HOSTILE: ["sk_a"]}},
        "b": {"projects": {"p": ["sk_b"]}},
    }
    lot = start_backlot(workspaces=settings)
    api, reader = client(lot.base_url, "sk_a"), Reader(lot)
    assert make_image(api, prompt=HOSTILE).status_code == 200
    assert api.get(f"/v2/models/{HOSTILE}").status_code == 404
    reader.submit("/faults", do="error", probability="0", prompt=HOSTILE)
    answers = [reader.get(path) for path in PAGES]
    for each in answers:
        policy = each.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        kept, sniffed = each.headers["cache-control"], each.headers["x-content-type-options"]
        assert (kept, sniffed) == ("no-store", "nosniff")
        assert not re.search(r"(src|href|action)=\"(https?:)?//", each.text)
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=(?!x)", each.text)  # =x: HOSTILE's
    pages = [each.text for each in answers]
    pages.append(reader.submit("/top-up", amount=HOSTILE).text)
    pages.append(reader.submit("/keys", project=HOSTILE * 9).text)
    pages.append(reader.submit("/faults", do=HOSTILE, probability=HOSTILE).text)
    for page in pages:
        assert "<script>alert" not in page
    assert sum("&lt;script&gt;" in page and "{{ 7 * 7 }}" in page for page in pages) >= len(PAGES)


def test_balance_and_costs_are_those_of_the_interface(start_backlot: Start) -> None:
    lot = start_backlot(balance="0.1")
    api, reader = client(lot.base_url), Reader(lot)
    assert [make_image(api).status_code for _ in range(3)] == [200, 200, 402]
    assert reader.submit("/top-up", amount="0.0200").headers["location"] == "/?done=topped-up"
    assert balance(api) == "0.0400"
    assert "0.0400 USD" in reader.read("/")
    assert make_image(api).status_code == 200
    assert balance(api) == "0.0000"
    page = reader.get("/costs").text
    shown = dict(re.findall(r'data-date="([\d-]+)".*?number">([\d.]+)<', page))
    assert len(shown) == 30
    first, last = min(shown), max(shown)
    answer = api.get(
        "/v2/billing/costs", params={"start": f"{first}T00:00:00Z", "end": f"{last}T23:59:59Z"}
    ).json(parse_float=Decimal)
    assert {each["date"]: Decimal(each["cost"]) for each in answer["data"]} == {
        day: Decimal(cost) for day, cost in shown.items()
    }
    assert f"{answer['total_cost']:.4f} USD" in reader.read("/costs")


def test_a_wrong_amount_is_refused_with_a_reason_and_stays_in_its_field(start_backlot: Start) -> None:
    lot = start_backlot()
    reader = Reader(lot)
    for amount in ("0", "-1", "0.00001", "NaN", "Infinity", "1e9", "ten", "", "0x10", "\x00"):
        answer = reader.submit("/top-up", amount=amount)
        assert answer.status_code == 422
        assert "Nothing was changed" in answer.text
        assert f'value="{amount}" aria-invalid="true"' in answer.text
    assert balance(client(lot.base_url)) == "100.0000"


def test_top_ups_and_created_keys_outlive_the_server_and_revoked_ones_stay_revoked(
    start_backlot: Start, tmp_path: Path
) -> None:
    first = start_backlot(state=tmp_path / "state")
    reader = Reader(first)
    reader.submit("/top-up", amount="1.5")
    keys = [re.search(r'id="created">(sk_[\w-]+)<', reader.submit("/keys", project="new").text) for _ in "ab"]
    kept, revoked = (found[1] for found in keys if found)
    assert kept not in reader.get("/keys").text
    digest = re.findall(r'name="key" value="(\w{64})"', reader.get("/keys").text)[-1]
    assert reader.submit("/keys/revoke", key=digest).status_code == 303
    assert reader.submit("/keys/revoke", key="0" * 64).status_code == 404
    database = (tmp_path / "state/backlot.db").read_bytes() + (tmp_path / "state/backlot.db-wal").read_bytes()
    assert kept.encode() not in database
    first.service.store.close()
    second = start_backlot(state=tmp_path / "state")
    assert balance(client(second.base_url, kept)) == "101.5000"
    refused(client(second.base_url, revoked).get("/v2/models"), 401, "invalid_api_key")
    assert balance(client(second.base_url)) == "101.5000"


def test_answers_are_counted_as_they_were_given(start_backlot: Start) -> None:
    lot = start_backlot(image_rpm=2, concurrency=1, video_seconds=1000, window=86_400)
    api, reader = client(lot.base_url), Reader(lot)
    answers = [make_image(api).status_code for _ in range(4)]
    answers += [make_video(api).status_code for _ in range(3)]
    assert answers == [200, 200, 429, 429, 202, 429, 429]
    make_video(api, prompt="")
    api.get("/v2/models")
    get(f"{lot.base_url}/v2/models")
    reader.submit("/faults", do="drop", when="before_charging", probability="1", endpoint="images")
    with pytest.raises(httpx.RemoteProtocolError):
        make_image(api)
    page = reader.get("/").text
    counts = {name: int(count) for name, count in re.findall(r'data-count="(\w+)">(\d+)', page)}
    assert counts == {
        "accepted": 3, "window": 2, "lanes": 2, "refused": 1, "failed": 1, "read": 1, "keyless": 1,
    }  # fmt: skip
    assert "1 of 1" in reader.read("/")
    assert reader.read("/").count("429 rate_limit") == 4


def test_changed_limits_count_at_once(start_backlot: Start) -> None:
    lot = start_backlot(window=86_400)
    api, reader = client(lot.base_url), Reader(lot)
    assert make_image(api).status_code == make_image(api).status_code == 200
    limits = {"image_rpm": "1", "video_rpm": "7", "concurrency": "3", "window": "86400"}
    assert reader.submit("/limits", **limits).status_code == 303
    full = make_image(api)
    assert (full.status_code, full.headers["x-ratelimit-remaining"]) == (429, "0")
    assert int(full.headers["retry-after"]) <= 86_400
    assert [f'value="{value}"' in reader.get("/limits").text for value in limits.values()] == [True] * 4
    reader.submit("/limits", **limits | {"image_rpm": "3"})
    assert make_image(api).headers["x-ratelimit-remaining"] == "0"
    reader.submit(
        "/limits", **limits | {"image_rpm": "3", "window": "43200"}
    )  # another window, another count
    assert make_image(api).headers["x-ratelimit-remaining"] == "2"
    reader.submit("/limits", **limits | {"image_rpm": "3", "concurrency": "0"})
    assert "retry-after" not in make_image(api).headers
    for wrong in ({"window": "0"}, {"concurrency": "-1"}, {"image_rpm": "1.5"}, {"video_rpm": ""}):
        assert reader.submit("/limits", **limits | wrong).status_code == 422
    assert lot.service.workspaces["default"].concurrency == 0


def test_a_fault_is_switched_on_and_off_and_a_wrong_one_is_refused(start_backlot: Start) -> None:
    lot = start_backlot(faults={"rules": [{"do": "rate_limit", "endpoint": "balance"}]})
    api, reader = client(lot.base_url), Reader(lot)
    assert "endpoint: balance, do: rate_limit" in reader.read("/faults")
    assert api.get("/v2/billing/balance").status_code == 429
    reader.submit("/faults/off", number="0")
    assert api.get("/v2/billing/balance").status_code == 200
    assert (
        reader.submit("/faults", do="error", status="503", probability="1", prompt="storm").status_code == 303
    )
    assert (make_image(api).status_code, make_image(api, prompt="a storm").status_code) == (200, 503)
    assert re.search(r"prompt: storm.*?probability.*?\s1\s+1\s", reader.read("/faults"))
    for wrong in (
        {"probability": "2"},
        {"probability": "often"},
        {"status": "418"},
        {"endpoint": "moon"},
        {"do": "dance"},
        {"extra": "x"},
    ):
        assert reader.submit("/faults", **{"do": "error", "probability": "1"} | wrong).status_code == 422, (
            wrong
        )
    assert len(lot.service.faults.active) == 1


def test_generations_are_listed_newest_first_by_parts_and_say_what_became_of_them(
    start_backlot: Start,
) -> None:
    lot = start_backlot(video_seconds=1000, media_ttl=5000, image_rpm=1000)
    api, reader = client(lot.base_url), Reader(lot)
    ids = [make_image(api, prompt=f"fox {n}").json()["id"] for n in range(60)]
    ids.append(make_video(api).json()["id"])
    first = reader.get("/generations").text
    assert re.findall(r'<tr id="(req-\w+)"', first) == ids[:10:-1]
    older = (re.search(r'href="(/generations\?before=\d+)"', first) or [""])[1]
    rest = reader.get(older).text
    assert re.findall(r'<tr id="(req-\w+)"', rest) == ids[10::-1]
    assert "Older" not in rest
    assert "never" not in first
    assert f'hx-get="/generations/{ids[-1]}"' in first
    picture = reader.get(f"/media/{ids[0]}/small")
    assert (picture.headers["content-type"], picture.content[:2]) == ("image/jpeg", b"\xff\xd8")
    link = api.post("/v2/images/generations", json={"model": "still-1", "prompt": "a fox", "images": []})
    assert reader.get(f"/media/{link.json()['id']}").content == api.get(link.json()["data"][0]["url"]).content
    assert reader.get(f"/media/{ids[-1]}").status_code == 404  # pending
    assert lot.service.faults.active == []
