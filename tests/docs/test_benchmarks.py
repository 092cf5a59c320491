"""The benchmarks run to their end, and the page has a line for each of their figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
def test_each_figure_that_the_benchmarks_print_has_its_line_in_the_page() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick"]
    printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert named(printed) == named((ROOT / "docs" / "benchmarks.md").read_text("utf-8"))


def named(text: str) -> list[str]:
    """The first cells of a table's lines."""
    return [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
