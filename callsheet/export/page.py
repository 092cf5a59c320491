"""A page for a client: `index.html`, which shows the files beside it and needs no network.

A client sees files, the ids of their rows and notes. Marks stay in the client's browser, and come back as
`marks.csv`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files as files_of
from string import Template

import polars as pl

from callsheet.export.files import NAME
from callsheet.storage.store import Store

SEEN = pl.col("row_id", "sample", "file_number", "sha256")
"""The columns of `files.csv` beside a page: none that a client is not to see."""


async def write_page(files: pl.DataFrame, store: Store, batch: str, ledger_id: str) -> None:
    """Writes the page beside the files.

    `files` have their `NAME`, and are in the order of the rows. A file's number in its row is shown where
    several of the row are.
    """
    style, script = (_asset(name) for name in ("client.css", "client.js"))
    shown = files.select(
        *("row_id", "sample", "file_number", "index", "job_key", "decision", "note"),
        file=NAME,
        type=pl.col("mime_type").str.split("/").list.first(),
        several=pl.len().over("row_id") > 1,
    )
    # The browser keeps marks by this key: all pages from a disk share one storage.
    key = hashlib.sha256(f"{ledger_id}/{batch}".encode()).hexdigest()[:16]
    content = json.dumps({"key": key, "files": shown.to_dicts()}, ensure_ascii=False)
    page = Template(_asset("client.html")).substitute(
        batch=escape(batch),
        style=style,
        style_hash=_source(style),
        script=script,
        script_hash=_source(script),
        files=content.replace("<", r"\u003c"),  # nothing in it ends the element
    )
    await store.write("index.html", page.encode(), "text/html")


def _asset(name: str) -> str:
    return files_of(__package__).joinpath("assets", name).read_text("utf-8")


def _source(text: str) -> str:
    """A script or style as the policy of a page names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
