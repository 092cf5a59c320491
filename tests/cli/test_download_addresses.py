"""Where a service's files really are: behind redirects, compressed on the way, or in the answer itself."""

from __future__ import annotations

import base64
import gzip
import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.conftest import Project
from tests.servers.reverse_proxy import ReverseProxy, http_answer, reverse_proxy

Make = Callable[..., Project]
ROWS = [{"id": f"r{n}", "prompt": f"boat {n}", "model": "sketch-1", "aspect_ratio": "1:1"} for n in range(4)]
FILES, IMAGES = "/v2/downloads/", "/v2/images/generations"


@pytest.fixture
def batch(project: Make) -> Iterator[tuple[Project, ReverseProxy]]:
    """A batch whose service is behind what rewrites its answers."""
    made = project(ROWS)
    with reverse_proxy(made.backlot.base_url) as gateway:
        made.set(service={"base_url": gateway.base_url})
        yield made, gateway


def all_stored(made: Project) -> None:
    summary = made.run()
    assert (summary.stored, summary.submissions) == (len(ROWS), len(ROWS))
    assert made.manifest()["mime_type"].to_list() == ["image/jpeg"] * len(ROWS)


def test_a_file_behind_a_redirect_with_characters_that_a_url_cannot_have_is_stored(
    batch: tuple[Project, ReverseProxy],
) -> None:
    made, gateway = batch
    files: dict[str, bytes] = {}

    def redirect(path: str, head: bytes, body: bytes) -> bytes:
        if path.startswith(FILES):
            name = path.split("/")[3]
            files[name] = body
            return http_answer(b"302 Found", b"", f"Location: /caf\u00e9 {name}?a=\u00e9".encode())
        if path.startswith(quote("/caf\u00e9 ")):
            name = path.partition("%20")[2].partition("?")[0]
            return http_answer(b"200 OK", files[name], b"Content-Type: image/jpeg")
        return head + body

    gateway.rewrite = redirect
    all_stored(made)


def test_a_file_that_is_compressed_on_the_way_is_stored_as_it_was(
    batch: tuple[Project, ReverseProxy],
) -> None:
    made, gateway = batch

    def compress(path: str, head: bytes, body: bytes) -> bytes:
        if not path.startswith(FILES):
            return head + body
        headers = [b"Content-Type: image/jpeg", b"Content-Encoding: gzip"]
        return http_answer(b"200 OK", gzip.compress(body), *headers)

    gateway.rewrite = compress
    all_stored(made)


@pytest.mark.parametrize("kind", ["data URI", "relative", "no scheme"])
def test_a_file_whose_address_is_not_a_whole_url_is_stored(
    kind: str, batch: tuple[Project, ReverseProxy]
) -> None:
    made, gateway = batch

    def change(path: str, head: bytes, body: bytes) -> bytes:
        if path != IMAGES:
            return head + body
        content: dict[str, Any] = json.loads(body)
        parts = urlsplit(content["data"][0]["url"])
        local = f"{parts.path}?{parts.query}"
        if kind == "data URI":
            with urllib.request.urlopen(f"{made.backlot.base_url}{local}") as file:
                url = f"data:image/jpeg;base64,{base64.b64encode(file.read()).decode()}"
        else:
            url = local if kind == "relative" else f"//{parts.netloc}{local}"
        content["data"][0]["url"] = url
        headers = [
            line for line in head.split(b"\r\n")[1:] if re.match(rb"(?i)content-type|x-ratelimit", line)
        ]
        return http_answer(b"200 OK", json.dumps(content).encode(), *headers)

    gateway.rewrite = change
    all_stored(made)
