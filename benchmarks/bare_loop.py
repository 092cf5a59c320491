"""The same batch with none of Callsheet's promises, and nothing of Callsheet's.

    python benchmarks/bare_loop.py BASE_URL BATCH.csv FOLDER

A POST, its answer, a GET, a file; on httpx, with a client for each request in flight: one client for all
costs several times the CPU, because its pool searches all connections for every request. No price, no
ledger, no checks, no retries: if it dies, nobody knows what was paid for.
"""

from __future__ import annotations

import asyncio
import csv
import sys
from pathlib import Path

import httpx

from benchmarks.sink import MODEL

IN_FLIGHT = 32


async def buy(base_url: str, rows: list[dict[str, str]], folder: Path) -> None:
    """Buys every row, the last first."""
    tls = httpx.create_ssl_context()

    async def worker() -> None:
        async with httpx.AsyncClient(verify=tls) as client:
            while rows:
                row = rows.pop()
                body = {"model": MODEL, "prompt": row["prompt"]}
                headers = {"Authorization": "Bearer sk_bench"}
                answer = await client.post(f"{base_url}/v2/images/generations", json=body, headers=headers)
                image = await client.get(answer.raise_for_status().json()["data"][0]["url"])
                path = folder / f"{row['id']}.jpeg"
                path.write_bytes(image.raise_for_status().content)

    async with asyncio.TaskGroup() as workers:
        for _ in range(IN_FLIGHT):
            workers.create_task(worker())


def main(base_url: str, batch: str, folder: str) -> None:
    with Path(batch).open(newline="") as file:
        rows = list(csv.DictReader(file))
    Path(folder).mkdir(exist_ok=True)
    asyncio.run(buy(base_url, rows, Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
