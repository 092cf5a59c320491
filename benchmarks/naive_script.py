"""The script that most people would write for a batch.

    python benchmarks/naive_script.py BASE_URL BATCH.csv FOLDER

When it fails in the middle, nobody knows what was paid for; started again, it buys all of it again.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import requests

from benchmarks.sink import MODEL

base_url, batch, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])


def buy(row: Any) -> str:
    """One image: its path."""
    answer = requests.post(
        f"{base_url}/v2/images/generations",
        json={"model": MODEL, "prompt": row.prompt},
        headers={"Authorization": "Bearer sk_bench"},
        timeout=300,
    )
    answer.raise_for_status()
    image = requests.get(answer.json()["data"][0]["url"], timeout=60)
    image.raise_for_status()
    path = folder / f"{row.id}.jpeg"
    path.write_bytes(image.content)
    return str(path)


if __name__ == "__main__":
    folder.mkdir()
    rows = pd.read_csv(batch)
    with ThreadPoolExecutor(32) as pool:
        rows["path"] = list(pool.map(buy, rows.itertuples()))
    rows.to_csv(folder / "done.csv", index=False)
