"""Where a service's files really are: behind redirects, compressed on the way, or in the answer itself."""

from __future__ import annotations

import base64
import gzip
import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from tests.conftest import Project
from tests.servers.reverse_proxy import http_answer, reverse_proxy

FILES, IMAGES = "/v2/downloads/", "/v2/images/generations"
KINDS = ["data URI", "relative", "no scheme", "redirect", "compressed"]
MOVED = "/caf\u00e9 {}?a=\u00e9"  # with characters that a URL cannot have


def test_a_file_is_stored_wherever_its_address_leads(project: Callable[..., Project]) -> None:
    made = project([{"id": kind, "prompt": "boat", "model": "sketch-1"} for kind in KINDS])
    kinds, kind_of, files = iter(KINDS), dict[str, str](), dict[str, bytes]()

    def rewrite(path: str, head: bytes, body: bytes) -> bytes:
        name = path.removeprefix(FILES).partition("?")[0].replace("/", "-")
        if path == IMAGES:
            return answered(next(kinds), head, body)
        if path.startswith(quote("/caf\u00e9 ")):
            name = path.partition("%20")[2].partition("?")[0]
            return http_answer(b"200 OK", files[name], b"Content-Type: image/jpeg")
        if kind_of.get(name) == "redirect":
            files[name] = body
            return http_answer(b"302 Found", b"", f"Location: {MOVED.format(name)}".encode())
        if kind_of.get(name) == "compressed":
            headers = [b"Content-Type: image/jpeg", b"Content-Encoding: gzip"]
            return http_answer(b"200 OK", gzip.compress(body), *headers)
        return head + body

    def answered(kind: str, head: bytes, body: bytes) -> bytes:
        """The service's answer, with another address of its file."""
        content: dict[str, Any] = json.loads(body)
        parts = urlsplit(content["data"][0]["url"])
        local = f"{parts.path}?{parts.query}"
        kind_of[parts.path.removeprefix(FILES).replace("/", "-")] = kind
        if kind == "data URI":
            with urllib.request.urlopen(f"{made.backlot.base_url}{local}") as file:
                content["data"][0]["url"] = f"data:image/jpeg;base64,{base64.b64encode(file.read()).decode()}"
        elif kind in ("relative", "no scheme"):
            content["data"][0]["url"] = local if kind == "relative" else f"//{parts.netloc}{local}"
        headers = [
            line for line in head.split(b"\r\n")[1:] if re.match(rb"(?i)content-type|x-ratelimit", line)
        ]
        return http_answer(b"200 OK", json.dumps(content).encode(), *headers)

    with reverse_proxy(made.backlot.base_url) as gateway:
        made.set(service={"base_url": gateway.base_url})
        gateway.rewrite = rewrite
        summary = made.run()
    assert (summary.stored, summary.submissions) == (len(KINDS), len(KINDS))
    assert made.manifest()["mime_type"].to_list() == ["image/jpeg"] * len(KINDS)
    assert {*kind_of.values()} == {*KINDS}
