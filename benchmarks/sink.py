"""A service that costs almost nothing: what the benchmarks buy from.

It answers at once, keeps no state but a count, and never refuses: so what a run costs is the run's own.
It makes images only; its video model is there to be priced. Each image is a real JPEG of `SIZE` bytes, or of
as many as asked for, with its number in a comment.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

SIZE = 20_000  # bytes of an image
MODEL = "still-1"
RATES = {
    ("still-1", "1K"): "0.0407",
    ("still-1", "2K"): "0.0833",
    ("poster-1", "1K"): "0.0311",
    ("poster-1", "2K"): "0.0622",
    ("reel-1", "720p"): "0.0513",
    ("reel-1", "1080p"): "0.1009",
}
"""US dollars for an image, or for a second of `reel-1`, by model and resolution."""
PRICE = RATES[MODEL, "1K"]


def model(name: str) -> dict[str, Any]:
    """A model of the catalogue."""
    rates = {resolution: price for (of, resolution), price in RATES.items() if of == name}
    video = name == "reel-1"
    return {
        "id": name,
        "name": name,
        "type": "video" if video else "image",
        "supported_aspect_ratios": ["1:1"],
        "supported_durations": [5, 10] if video else [],
        "supported_resolutions": list(rates),
        "supports_sound": False,
        "supported_references": {},
        "pricing": {
            "currency": "USD",
            "rates": [
                {
                    "resolution": resolution,
                    "sound": "sound_off" if video else "not_applicable",
                    "billable_unit": "video_second" if video else "image",
                    "unit_price": price,
                }
                for resolution, price in rates.items()
            ],
        },
        "created_at": "2026-01-01T00:00:00.000Z",
    }


MODELS = [model(name) for name in dict.fromkeys(name for name, _ in RATES)]
IMAGE_ANSWER = (
    '{"id":"req-%(number)d","status":"completed","model":"' + MODEL + '","data":[{"url":'
    '"%(base_url)s/v2/downloads/req-%(number)d/0?exp=4102444800&sig=0123456789abcdef","width":%(side)d,"height":%(side)d,'
    '"mime_type":"image/jpeg","deletes_at":"2099-01-01T00:00:00.000Z"}],"usage":{"total_cost":' + PRICE + ","
    '"billable_unit":"image","unit_price":' + PRICE + ',"quantity":1}}'
)
ANSWERS = {
    "/v2/models": json.dumps(MODELS).encode(),
    **{f"/v2/models/{each['id']}": json.dumps(each).encode() for each in MODELS},
    "/v2/billing/balance": b'{"currency":"USD","balance":"9000000.0000"}',
}


def jpeg(size: int) -> tuple[int, bytes]:
    """The largest square JPEG of noise that leaves some bytes of `size` free: its side, and itself."""
    from PIL import Image

    for side in range(160, 0, -8):
        noise, file = random.Random(1).randbytes(3 * side * side), io.BytesIO()
        Image.frombytes("RGB", (side, side), noise).save(file, "jpeg", quality=60)
        if file.tell() < size - 100:
            return side, file.getvalue()
    raise SystemExit(f"an image needs more than {size} bytes")


class Sink:
    """What all connections share: how many submissions came, and when."""

    def __init__(self, size: int) -> None:
        self.base_url, self.size = "", size
        self.side, self.jpeg = jpeg(size)
        self.posts = 0
        self.moments: list[float] = []  # Unix times of the submissions since somebody asked for them
        self.reset, self.used = 0, 0

    def answer(self, method: str, path: str) -> tuple[bytes, str, bytes]:
        """Status line, further headers, and body of an answer."""
        if path.startswith("/v2/downloads/"):
            return b"200 OK", "Content-Type: image/jpeg\r\n", self.image(path.split("/")[3])
        headers = "Content-Type: application/json\r\n"
        if method == "POST" and path == "/v2/images/generations":
            self.moments.append(time.time())
            self.posts += 1
            headers += self.rate_headers(int(self.moments[-1]))
            image = {"number": self.posts, "base_url": self.base_url, "side": self.side}
            return b"200 OK", headers, (IMAGE_ANSWER % image).encode()
        if path == "/moments":
            seen, self.moments = json.dumps(self.moments).encode(), []
            return b"200 OK", headers, seen
        body = ANSWERS.get(path.partition("?")[0], b"")
        return (b"200 OK" if body else b"404 Not Found"), headers, body

    def rate_headers(self, now: int) -> str:
        """Of a fixed window that no run can fill."""
        reset = (now // 60 + 1) * 60
        self.reset, self.used = reset, self.used + 1 if reset == self.reset else 1
        return (
            f"X-RateLimit-Limit: 9000000\r\nX-RateLimit-Remaining: {9_000_000 - self.used}\r\n"
            f"X-RateLimit-Reset: {reset}\r\nDate: {formatdate(now, usegmt=True)}\r\n"
        )

    def image(self, name: str) -> bytes:
        """The image with its name in a comment that fills it up."""
        length = self.size - len(self.jpeg) - 2
        comment = name.encode().ljust(length - 2, b".")
        return b"".join((self.jpeg[:2], b"\xff\xfe", length.to_bytes(2, "big"), comment, self.jpeg[2:]))


class Connection(asyncio.Protocol):
    """One kept-alive connection, which sends a request when it has had the answer to the one before."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        if not end:
            return
        _, _, length = head.lower().partition(b"\r\ncontent-length:")
        if len(body) < int(length.partition(b"\r\n")[0] or 0):
            return
        self.received = b""
        method, path, _ = head.partition(b"\r\n")[0].decode().split(" ")
        status, headers, answer = self.sink.answer(method, path)
        start = b"HTTP/1.1 " + status + b"\r\n" + headers.encode()
        self.transport.write(start + b"Content-Length: %d\r\n\r\n" % len(answer) + answer)


async def serve(size: int) -> None:
    """Serves on a free port, which it prints, until the process is ended."""
    sink = Sink(size)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(sink), "127.0.0.1", 0)
    sink.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    print(sink.base_url, flush=True)
    await server.serve_forever()


@contextmanager
def running(size: int = SIZE) -> Iterator[str]:
    """A sink in a process of its own, with images of so many bytes; yields its base URL."""
    command = [sys.executable, __file__, str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def moments(base_url: str) -> list[float]:
    """Unix times of the submissions since the last call."""
    with urllib.request.urlopen(f"{base_url}/moments") as answer:
        return list(json.load(answer))


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
