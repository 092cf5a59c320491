"""One request to a small server, or to any URL, and the bodies that the tests answer with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from callsheet.service.client import Client
from callsheet.service.verdicts import Backoff
from tests.servers.sockets import Behaviour, serve

KEY = "sk_very-secret"
IMAGE: dict[str, Any] = {
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
VIDEO = {**IMAGE["data"][0], "mime_type": "video/mp4", "duration": 5, "fps": 24, "has_sound": False}
RATE = {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "59", "X-RateLimit-Reset": "1700000060"}


def run(url: str, use: Callable[[Client], Awaitable[Any]], key: str = KEY, **settings: Any) -> Any:
    async def scenario() -> Any:
        async with Client(url, key, **{"backoff": Backoff(0.01)} | settings) as client:
            return await use(client)

    return asyncio.run(scenario())


def ask(behaviour: Behaviour, use: Callable[[Client], Awaitable[Any]]) -> Any:
    with serve(behaviour) as server:
        return run(server.url, use)


async def answered(client: Client) -> Any:
    """An image that is bought, and the rate-limit headers."""
    return await client.create_image({"model": "m", "prompt": "a cat"})


async def image(client: Client) -> Any:
    return (await answered(client))[0]


async def video(client: Client) -> Any:
    return await client.create_video({"model": "m", "prompt": "a cat"})


def fetched(url: str, base_url: str = "http://127.0.0.1:1") -> tuple[bytes, int | None, str]:
    """A file: its bytes, its length and its type."""

    async def fetch(client: Client) -> tuple[bytes, int | None, str]:
        async with client.download(url) as file:
            return b"".join([chunk async for chunk in file.chunks]), file.length, file.mime_type

    file: tuple[bytes, int | None, str] = run(base_url, fetch)
    return file
