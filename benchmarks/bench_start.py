"""From Enter to the quote, and to the first request that buys: `callsheet run` of one row, without Prefect.

The service is `sink.py`, which answers at once.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

from benchmarks import sink
from benchmarks.measuring import CALLSHEET, Figure, environment, measured, project, run

# The modules that a run has imported at its end.
LIST_THEM = """
import atexit, json, pathlib, sys
from callsheet.__main__ import main
atexit.register(lambda: pathlib.Path("modules.json").write_text(json.dumps(list(sys.modules))))
sys.argv = ["callsheet", "run", "batch.yaml", "--json"]
main()
"""
IMPORT_THEM = """
import contextlib, importlib, json, pathlib
for name in json.loads(pathlib.Path("modules.json").read_text()):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
"""


def measure(*, quick: bool) -> Iterator[Figure]:
    """How long a run takes to begin, and what that is made of."""
    times = 1 if quick else 5
    with sink.running() as base_url:
        begin(base_url)  # the first one reads the files from the disk
        begun = [begin(base_url) for _ in range(times)]
        ratios = [next_to_its_imports(base_url) for _ in range(times)]
    shown, sent = (median(seconds) for seconds in zip(*begun, strict=True))
    yield Figure("`callsheet run` of one row, from Enter to the quote", f"{shown:.2f} s", "at most 2 s")
    yield Figure("the same, to the first request that buys", f"{sent:.2f} s", "at most 3 s")
    yield Figure(
        "the same, CPU of the whole run next to its imports alone",
        f"{median(ratios):.2f} times",
        "at most 2 times",
    )


def begin(base_url: str) -> tuple[float, float]:
    """Seconds from Enter until the quote is shown, and until the first POST."""
    with project(1) as folder:
        sink.moments(base_url)  # from here on
        began = time.time()
        with subprocess.Popen(
            [*CALLSHEET, "run", "batch.yaml"],
            cwd=folder,
            env=environment(base_url, folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr
            shown = next((time.time() for line in process.stderr if "To pay" in line), None)
            problems = process.stderr.read()
        if process.returncode or shown is None:
            raise SystemExit(f"ended with {process.returncode}: {problems}")
        return shown - began, sink.moments(base_url)[0] - began


def next_to_its_imports(base_url: str) -> float:
    """CPU of a run of one row, over that of a process that imports the same modules."""
    with project(1) as folder:
        measured([sys.executable, "-c", LIST_THEM], folder, base_url)
        imports = measured([sys.executable, "-c", IMPORT_THEM], folder, base_url)
    with project(1) as folder:
        return run(folder, base_url, 1).cpu / imports.cpu
