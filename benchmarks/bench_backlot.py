"""How many requests the backlot answers in a second, and the CPU of its server for each.

Over kept-alive connections against a server process on the same cores: image generations (64 prompts again
and again, recorded and charged each time), the first download of an image, which makes it, downloads of made
images, and video submissions. The client is plain asyncio, so that it adds little.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import psutil

from backlot.server import spawn
from benchmarks.measuring import Figure

CONNECTIONS = 32
PLACES = ("city", "sea", "forest", "desert", "mountains", "planet")
PROMPTS = [f"A {PLACES[n % 6]} in the evening, study number {n}" for n in range(64)]
FLAGS = "--image-rpm 99999999 --video-rpm 99999999 --concurrency 99999999 --image-seconds 0 --balance 999999"


def measure(*, quick: bool) -> Iterator[Figure]:
    """Each type of request, one after the other."""
    count = 200 if quick else 5_000
    with spawn(*FLAGS.split()) as (base_url, server):
        process, port = psutil.Process(server.pid), urlsplit(base_url).port or 0

        def send(name: str, requests: list[bytes]) -> tuple[Figure, list[bytes]]:
            before, began = cpu(process), time.perf_counter()
            answers = asyncio.run(answered(port, list(requests)))
            speed = len(requests) / (time.perf_counter() - began)
            ms = 1000 * (cpu(process) - before) / len(requests)
            return Figure(f"the backlot: {name}", f"{speed:,.0f} a second, {ms:.2f} ms of CPU"), answers

        figure, answers = send("image generations", [image(n) for n in range(count)])
        yield figure
        downloads = [get(json.loads(body)["data"][0]["url"]) for body in answers]
        yield send("images of `sketch-1` made", downloads[: len(PROMPTS)])[0]
        yield send("downloads of made images", downloads)[0]
        yield send("video submissions", [video(n) for n in range(count // 2)])[0]


def cpu(process: psutil.Process) -> float:
    """CPU seconds so far of the server and of its workers, which make the media."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


async def answered(port: int, requests: list[bytes]) -> list[bytes]:
    """Sends all requests, over some connections; returns the answers' bodies."""
    answers: list[bytes] = []

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while requests:
            writer.write(requests.pop())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
            if not head.startswith(b"HTTP/1.1 2"):
                raise SystemExit(f"{head.decode()}{body[:500].decode(errors='replace')}")
            answers.append(body)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return answers


def image(number: int) -> bytes:
    """A submission of an image."""
    return post("/v2/images/generations", {"model": "sketch-1", "prompt": PROMPTS[number % len(PROMPTS)]})


def video(number: int) -> bytes:
    """A submission of a video."""
    return post("/v2/videos/generations", {"model": "reel-1", "prompt": PROMPTS[number % len(PROMPTS)]})


def post(path: str, body: dict[str, str]) -> bytes:
    """A POST as bytes."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer sk_backlot\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def get(url: str) -> bytes:
    """A GET as bytes."""
    parts = urlsplit(url)
    return f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
