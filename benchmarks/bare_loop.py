"""The same batch with none of Callsheet's promises: a POST, its answer, a GET, a file.

    python benchmarks/bare_loop.py BASE_URL BATCH.csv FOLDER CLIENTS

No price, no ledger, no checks, no retries: if it dies, nobody knows what was paid for. With one client it is
what most people would write who know asyncio and httpx. A client searches all its connections for every
request; so a client for each request in flight, as Callsheet has it, takes a fraction of the CPU.
"""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import httpx

from benchmarks.sink import MODEL

IN_FLIGHT = 32
HEADERS = {"Authorization": "Bearer sk_bench", "Content-Type": "application/json"}


async def buy(base_url: str, rows: list[dict[str, str]], folder: Path, clients: int) -> None:
    """Buys every row, the last first."""
    tls = httpx.create_ssl_context()

    async def worker(client: httpx.AsyncClient) -> None:
        while rows:
            row = rows.pop()
            body = json.dumps({"model": MODEL, "prompt": row["prompt"]}).encode()
            url = f"{base_url}/v2/images/generations"
            answer = (await client.post(url, content=body, headers=HEADERS)).raise_for_status()
            image = await client.get(json.loads(answer.content)["data"][0]["url"])
            (folder / f"{row['id']}.jpeg").write_bytes(image.raise_for_status().content)

    async with AsyncExitStack() as open_clients:
        opened = [
            await open_clients.enter_async_context(httpx.AsyncClient(verify=tls)) for _ in range(clients)
        ]
        async with asyncio.TaskGroup() as workers:
            for number in range(IN_FLIGHT):
                workers.create_task(worker(opened[number % clients]))


def main(base_url: str, batch: str, folder: str, clients: str) -> None:
    with Path(batch).open(newline="") as file:
        rows = list(csv.DictReader(file))
    Path(folder).mkdir(exist_ok=True)
    asyncio.run(buy(base_url, rows, Path(folder), int(clients)))


if __name__ == "__main__":
    main(*sys.argv[1:])
