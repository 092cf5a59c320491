"""INTERFACE 7: every error has the error body, and neither costs money nor counts in a limit."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from urllib.parse import urlsplit

import httpx

from backlot.server import serve
from backlot.settings import TEST_WORD, Safety, Settings

from .conftest import Account, balance, client, data_url, make_image, make_video, refused


def test_7_an_unknown_path_and_a_wrong_method_have_the_error_body(api: httpx.Client) -> None:
    for path in ("/", "/v2", "/v2/", "/v1/models", "/v2/models/", "/v2/images", "/v2/models/a/b"):
        refused(api.get(path), 404, "not_found")
    for method, path in (
        ("GET", "/v2/images/generations"),
        ("PUT", "/v2/videos/generations"),
        ("POST", "/v2/models"),
        ("DELETE", "/v2/billing/balance"),
        ("OPTIONS", "/v2/models"),
        ("POST", "/v2/downloads/req-0/0"),
    ):
        answer = api.request(method, path)
        refused(answer, 405, "invalid_parameter")
        assert answer.headers["Allow"]


def test_7_402_when_the_balance_does_not_cover_the_price(account: Account) -> None:
    """And a balance can be spent to its last digit."""
    api = account(balance="0.0799")
    refused(make_image(api, resolution="2K"), 402, "quota_exceeded")
    assert make_image(api).status_code == 200
    refused(make_image(api), 402, "quota_exceeded")
    assert balance(api) == "0.0399"
    api = account(balance="0.0400")
    assert make_image(api).status_code == 200
    assert balance(api) == "0.0000"


def test_7_422_for_a_prompt_with_a_whole_word_of_the_list(api: httpx.Client) -> None:
    for prompt in (TEST_WORD, f"A {TEST_WORD.upper()}!", "some gore, please"):
        for send in (make_image, make_video):
            refused(send(api, prompt=prompt), 422, "content_policy_violation", "prompt")
    assert balance(api) == "100.0000"
    for prompt in ("the Gorecki symphony", "a nudibranch", f"un{TEST_WORD}"):
        assert make_image(api, prompt=prompt).status_code == 200


def test_7_422_for_a_reference_image_by_its_hash() -> None:
    inline, url = data_url("black"), "https://example.com/banned.png"
    content = base64.b64decode(inline.partition(",")[2])
    digests = tuple(hashlib.sha256(data).hexdigest() for data in (content, url.encode()))
    settings = Settings(port=0, image_seconds=0, safety=Safety(words=("teapot",), images=digests))
    with serve(settings) as running:
        api = client(running.base_url)
        for banned in (inline, url):
            images = [{"url": data_url("white")}, {"url": banned}]
            refused(make_image(api, images=images), 422, "content_policy_violation", "images[1].url")
        assert make_image(api, images=[{"url": data_url("white")}], prompt=TEST_WORD).status_code == 200
        refused(make_image(api, prompt="a teapot"), 422, "content_policy_violation", "prompt")


def test_7_an_error_costs_nothing_and_counts_in_no_window(account: Account) -> None:
    api = account(image_rpm=2)
    for fields in ({"prompt": ""}, {"model": "nobody"}, {"prompt": TEST_WORD}, {"resolution": "9K"}):
        answer = make_image(api, **fields)
        assert answer.status_code in {400, 422}
        assert answer.headers["X-RateLimit-Remaining"] == "2"
    assert balance(api) == "100.0000"


def test_7_a_body_over_25_mib_is_refused_unread(api: httpx.Client) -> None:
    """The test sends only the headers, and the answer comes without the body."""
    target = urlsplit(str(api.base_url))
    key = api.headers["Authorization"]
    head = (
        f"POST /v2/images/generations HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {25 * 2**20 + 1}\r\n\r\n"
    )
    with socket.create_connection((target.hostname or "", target.port or 0), timeout=300) as connection:
        connection.sendall(head.encode())
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    assert received.startswith(b"HTTP/1.1 400 ")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_parameter"


def test_7_a_body_of_25_mib_is_read_and_a_larger_one_refused_also_without_a_content_length(
    api: httpx.Client,
) -> None:
    body = json.dumps({"model": "still-1", "prompt": "a fox"}).encode()
    whole = body + b" " * (25 * 2**20 - len(body))
    headers = {"Content-Type": "application/json"}
    assert api.post("/v2/images/generations", content=whole, headers=headers).status_code == 200
    answer = api.post("/v2/images/generations", content=iter([whole, b" "]), headers=headers)
    assert "25 MiB" in refused(answer, 400, "invalid_parameter")["message"]
