"""What programs read, word for word: `--json` of each command, and the tables of a batch, kept as files.

A change of one shows in the diff. To write them anew: CALLSHEET_DRAW=1 pytest tests/cli/test_golden.py
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl

from callsheet.pricing.plan import open_plan
from tests.cli.test_commands import callsheet
from tests.conftest import Project

GOLDEN = Path(__file__).parent / "golden"
ROWS = [
    {"id": "lamp", "prompt": "a brass desk lamp", "model": "sketch-1", "shelf": "7"},
    {"id": "chair", "prompt": "=forbidden-test-word", "model": "sketch-1", "shelf": "8"},
    {"id": "", "prompt": "a wool rug", "model": "still-1", "resolution": "1K", "shelf": "9"},
    {"id": "", "prompt": "a wool rug", "model": "still-1", "resolution": "1K", "shelf": "10"},
    {"id": "film", "prompt": "a lamp is switched on", "model": "reel-1", "duration": "5", "shelf": "7"},
    {"id": "cut", "prompt": "a mirror", "model": "sketch-1", "samples": "2", "shelf": "3"},
    {"id": "clock", "prompt": "a clock", "model": "sketch-9", "shelf": "1"},
    {"id": "vase", "prompt": "a vase", "model": "sketch-1", "resolution": "9K", "shelf": "4"},
]
EACH = {"template": "{prompt}, on {shelf}", "matrix": {"aspect_ratio": ["1:1", "16:9"]}}
CUT_OFF = {"endpoint": "images", "prompt": "a mirror, on 3", "nth": 1, "do": "drop", "when": "after_charging"}
COMMANDS = {  # in this order
    "quote": ("quote",),
    "run": ("run",),
    "run_again": ("run",),
    "collect": ("collect",),
    "status": ("status",),
    "show": ("show", "lamp"),
    "failed": ("failed",),
    "resolve": ("resolve",),
    "reconcile": ("reconcile",),
    "report": ("report",),
}
MASKED = {  # what differs from run to run
    r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?[\d.]*(Z|\+00:00)?": "TIME",
    r"20\d\d-\d\d-\d\d": "DAY",
    r"req-[0-9a-f]+": "req-ID",
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "LEDGER",
    r"/\S+/batch\.yaml": "batch.yaml",
    r'"seconds": [\d.]+': '"seconds": 0.0',
    r'"sha256": "[0-9a-f]{64}"': '"sha256": "SHA256"',
    r'"bytes": \d+': '"bytes": 0',
    r"http://127\.0\.0\.1:\d+[^\"]*": "http://SERVICE",
    r"\b[\d.]+ s\b": "0 s",
}


def unchanged(name: str, text: str) -> None:
    """`text`, without what differs from run to run, is what the file `name` has."""
    for pattern, word in MASKED.items():
        text = re.sub(pattern, word, text)
    file = GOLDEN / name
    if os.environ.get("CALLSHEET_DRAW"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), "write it anew with CALLSHEET_DRAW=1, and look at the diff"


def lines(table: pl.DataFrame) -> str:
    """A line for each row, and the types of the columns before them."""
    types = {column: str(type_) for column, type_ in table.schema.items()}
    rows = [json.dumps(row, default=str, ensure_ascii=False) for row in table.iter_rows(named=True)]
    return "\n".join([json.dumps(types), *rows]) + "\n"


def test_what_programs_read_stays_as_it_is(project: Callable[..., Project]) -> None:
    made = project(ROWS, faults={"rules": [CUT_OFF]}, video_seconds=0)
    made.set(batch="autumn-catalogue", budget={"limit": "5.00"}, input=EACH, limits={"concurrency": 1})
    for name, (command, *more) in COMMANDS.items():
        done = callsheet(command, str(made.config), *more, "--json")
        assert done.returncode in {0, 3}, done.stderr
        unchanged(f"{name}.json", json.dumps(json.loads(done.stdout), indent=1) + "\n")
    unchanged("plan.txt", open_plan(made.folder / "out/report/plan.parquet").sha256())
    unchanged("manifest.jsonl", lines(made.manifest()))
    unchanged("costs.jsonl", lines(made.costs()))
    unchanged("rejects.csv", (made.folder / "out/report/rejects.csv").read_text())
