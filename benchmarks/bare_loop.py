"""The same batch with none of Callsheet's promises: a POST, its answer, a GET, a file.

    python benchmarks/bare_loop.py BASE_URL BATCH.csv FOLDER callsheet|httpx|httpx-aiohttp

No price, no ledger, no checks, no retries: if it dies, nobody knows what was paid for. `callsheet` uses the
connections that a run uses (`callsheet.service.transport`): what is left is the floor, which no run on them
can get under. `httpx` is what most people would write who know asyncio; it has a client for each request in
flight, because the pool of one client searches all its connections for every request, at several times the
CPU. `httpx-aiohttp` is one client of httpx on the connections of aiohttp, which cost less.
"""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.sink import MODEL

if TYPE_CHECKING:
    import httpx

IN_FLIGHT = 32
KEY = "Bearer sk_bench"

Exchange = Callable[[str, str, bytes], Awaitable[bytes]]
"""A request to its answer's body: method, URL, and a JSON body or nothing."""


@asynccontextmanager
async def with_callsheet() -> AsyncIterator[Callable[[], Exchange]]:
    """Exchanges that share the connections of a run."""
    from callsheet.service.connection import Request
    from callsheet.service.transport import Connections
    from callsheet.service.urls import parse_url

    connections = Connections()
    headers = {"POST": f"Authorization: {KEY}\r\nContent-Type: application/json\r\n", "GET": ""}

    async def exchange(method: str, url: str, body: bytes) -> bytes:
        request = Request(method, parse_url(url), headers[method], body)
        answer = await connections.send(request, connect=30, part=60)
        await answer.read()
        answer.close()
        if not answer.is_success:
            raise SystemExit(f"{request}: {answer.status}")
        return answer.content

    yield lambda: exchange
    await connections.aclose()


def by_httpx(client: httpx.AsyncClient) -> Exchange:
    """Exchanges of one client."""
    headers = {"POST": {"Authorization": KEY, "Content-Type": "application/json"}, "GET": {}}

    async def exchange(method: str, url: str, body: bytes) -> bytes:
        answer = await client.request(method, url, content=body, headers=headers[method])
        return answer.raise_for_status().content

    return exchange


@asynccontextmanager
async def with_httpx_aiohttp() -> AsyncIterator[Callable[[], Exchange]]:
    """Exchanges that share a client."""
    from httpx import Limits
    from httpx_aiohttp import HttpxAiohttpClient

    limits = Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    async with HttpxAiohttpClient(limits=limits) as client:
        yield lambda: by_httpx(client)


@asynccontextmanager
async def with_httpx() -> AsyncIterator[Callable[[], Exchange]]:
    """Exchanges that have a client each."""
    import httpx

    tls = httpx.create_ssl_context()
    clients: list[httpx.AsyncClient] = []

    def new() -> Exchange:
        clients.append(httpx.AsyncClient(verify=tls))
        return by_httpx(clients[-1])

    yield new
    for client in clients:
        await client.aclose()


async def buy(base_url: str, rows: list[dict[str, str]], folder: Path, transport: str) -> None:
    """Buys every row, the last first."""

    async def worker(exchange: Exchange) -> None:
        while rows:
            row = rows.pop()
            body = json.dumps({"model": MODEL, "prompt": row["prompt"]}).encode()
            answer = json.loads(await exchange("POST", f"{base_url}/v2/images/generations", body))
            image = await exchange("GET", answer["data"][0]["url"], b"")
            (folder / f"{row['id']}.jpeg").write_bytes(image)

    exchanges = {
        "callsheet": with_callsheet,
        "httpx": with_httpx,
        "httpx-aiohttp": with_httpx_aiohttp,
    }[transport]
    async with exchanges() as new, asyncio.TaskGroup() as workers:
        for _ in range(IN_FLIGHT):
            workers.create_task(worker(new()))


def main(base_url: str, batch: str, folder: str, transport: str) -> None:
    with Path(batch).open(newline="") as file:
        rows = list(csv.DictReader(file))
    Path(folder).mkdir(exist_ok=True)
    asyncio.run(buy(base_url, rows, Path(folder), transport))


if __name__ == "__main__":
    main(*sys.argv[1:])
