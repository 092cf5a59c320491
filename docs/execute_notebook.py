"""Executes docs/python.ipynb against a backlot, and writes its outputs into it (`make docs`).

The outputs name no path of the machine, and are the same each time; a test executes it again and compares.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

from backlot.server import serve
from backlot.settings import Settings

NOTEBOOK = Path(__file__).with_name("python.ipynb")


def executed() -> Any:
    """The notebook with the outputs of its cells, executed in an empty folder.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell has failed.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with (
        TemporaryDirectory() as folder,
        serve(Settings(port=0, image_seconds=0, video_seconds=0.2)) as backlot,
    ):
        service = {"CALLSHEET_BASE_URL": backlot.base_url, "CALLSHEET_API_KEY": backlot.api_key}
        client = NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute(env=os.environ | service)
    for cell in notebook.cells:
        cell.metadata.clear()  # when it was executed
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    return notebook


def outputs(notebook: Any) -> list[Any]:
    """What the cells print and show, without what differs from one execution to the next."""
    return [
        {kind: output[kind] for kind in ("name", "text", "data") if kind in output}
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]


if __name__ == "__main__":
    nbformat.write(executed(), NOTEBOOK)
