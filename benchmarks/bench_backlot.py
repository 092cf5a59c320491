"""How many requests the backlot answers in a second, and how much CPU its media costs.

    python benchmarks/bench_backlot.py [--requests N] [--connections N]

Three runs over kept-alive connections against a new server process on this machine: image generations (64
prompts again and again, recorded and charged each time), downloads of 64 of them (made once, then cached),
and video submissions. The client is plain asyncio, so that it adds little to the measurement.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from backlot.media.cache import make
from backlot.media.recipe import Recipe, size
from backlot.server import spawn
from benchmarks.figures import options, save

PROMPTS = [f"A city in the evening, study number {n}" for n in range(64)]


async def worker(port: int, requests: list[bytes], answers: list[bytes]) -> None:
    """Sends requests one after another over one connection, until none is left."""
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


async def run(port: int, requests: list[bytes], connections: int) -> tuple[float, list[bytes]]:
    """The seconds for all requests, and the answers' bodies."""
    answers: list[bytes] = []
    start = time.perf_counter()
    await asyncio.gather(*(worker(port, requests, answers) for _ in range(connections)))
    return time.perf_counter() - start, answers


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


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far (Linux; elsewhere 0)."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def media_costs() -> dict[str, float]:
    """The CPU milliseconds of images and videos, made in this process; prints them."""
    print("media, CPU in one process:")
    costs = {}
    for label, ratio, mime in (
        *(("1K", "1:1", mime) for mime in ("jpeg", "png", "webp")),
        *((label, "1:1", "jpeg") for label in ("0.25K", "2K", "4K")),
        *((label, "16:9", "mp4") for label in ("360p", "720p", "1080p")),
    ):
        width, height = size(ratio, label)
        seconds = 5 if mime == "mp4" else 0
        recipes = [Recipe("bench", p, width, height, mime, 0, seconds, bool(seconds)) for p in PROMPTS[:6]]
        make(recipes[0])
        start = time.process_time()
        total = sum(len(make(recipe)) for recipe in recipes[1:])
        cpu, kilobytes = (time.process_time() - start) * 200, total / 5000
        what = f"{label:>5} {ratio} {mime}{', 5 s, sound' if seconds else ''}"
        print(f"  {what:28} {cpu:6.0f} ms {kilobytes:6.0f} kB")
        costs[what.strip()] = cpu
    return costs


def main() -> None:
    """Runs and prints."""
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--connections", type=int, default=32)
    chosen = parser.parse_args()
    figures: dict[str, Any] = {"media": media_costs(), "requests": {}}
    flags_for_speed = (
        "--image-rpm 99999999 --video-rpm 99999999 --concurrency 99999999 --image-seconds 0 --balance 999999"
    )
    with tempfile.TemporaryDirectory() as state:
        for title, flags in (("in memory", ()), ("state on disk", ("--state", state))):
            with spawn(*flags_for_speed.split(), *flags) as (base_url, process):
                port = urlsplit(base_url).port or 0

                def measure(
                    name: str,
                    requests: list[bytes],
                    port: int = port,
                    pid: int = process.pid,
                    title: str = title,
                ) -> list[bytes]:
                    count, before = len(requests), cpu_seconds(pid)
                    seconds, answers = asyncio.run(run(port, requests, chosen.connections))
                    cpu = (cpu_seconds(pid) - before) * 1000 / count
                    figures["requests"][f"{name}, {title}"] = {"a second": count / seconds, "cpu": cpu}
                    print(f"  {name:24} {count / seconds:6.0f} a second   {cpu:.2f} ms of server CPU each")
                    return answers

                print(f"{title}, {chosen.connections} connections:")
                images = [
                    post("/v2/images/generations", {"model": "sketch-1", "prompt": PROMPTS[n % 64]})
                    for n in range(chosen.requests)
                ]
                urls = [json.loads(body)["data"][0]["url"] for body in measure("image generations", images)]
                asyncio.run(run(port, [get(url) for url in urls[:64]], 4))  # make them once
                measure("cached downloads", [get(url) for url in urls[:64]] * (len(urls) // 64))
                videos = [
                    post("/v2/videos/generations", {"model": "reel-1", "prompt": PROMPTS[n % 64]})
                    for n in range(chosen.requests // 2)
                ]
                measure("video submissions", videos)
    save(chosen, figures)


if __name__ == "__main__":
    main()
