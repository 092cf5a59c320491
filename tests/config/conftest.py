"""Config files for the tests of the config."""

from __future__ import annotations

from pathlib import Path

import pytest

from callsheet.config.load import load
from callsheet.errors import ConfigError

SMALL = """\
batch: shots
service: {base_url: "https://api.example.com/"}
input: {path: shots.csv}
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def error_message(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return caught.value.message
