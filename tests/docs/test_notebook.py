"""docs/python.ipynb does what it shows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import nbformat

DOCS = Path(__file__).parents[2] / "docs"


def test_the_notebook_shows_what_its_cells_do() -> None:
    script = runpy.run_path(str(DOCS / "execute_notebook.py"))
    shown = script["outputs"](nbformat.read(DOCS / "python.ipynb", as_version=4))
    assert script["outputs"](script["executed"]()) == shown, "run `make docs`"


def test_the_notebook_names_no_path_of_the_machine_that_executed_it() -> None:
    text = (DOCS / "python.ipynb").read_text()
    assert not re.search(r"/(tmp|home|root|work|usr)/|127\.0\.0\.1:(?!8400)", text)
