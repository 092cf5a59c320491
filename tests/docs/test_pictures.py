"""The pictures of docs/pictures can be taken anew from the demo's batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
def test_the_pictures_of_the_docs_are_taken_from_the_demo(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "docs.take_pictures", str(tmp_path)], cwd=ROOT, check=True)
    for committed in sorted((ROOT / "docs/pictures").glob("*.png")):
        with Image.open(committed) as shown, Image.open(tmp_path / committed.name) as taken:
            assert taken.size == shown.size
            assert len(taken.convert("RGB").getcolors(1 << 20) or ()) > 100, "the page was not there yet"
