"""Batch files in a folder of the test, and what was read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callsheet.batches.read import Batch, read_batch
from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError, ConfigError, InputError


def settings(path: Path | str, **given: Any) -> Settings:
    return Settings.model_validate(
        {
            "batch": "b",
            "service": {"base_url": "http://127.0.0.1:1"},
            "input": {"path": str(path), "defaults": {"model": "still-1"}, **given},
        }
    )


@pytest.fixture
def batch(tmp_path: Path):
    def batch(content: str | bytes, name: str = "shots.csv", **given: Any) -> Batch:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_batch(settings(path, **given))

    return batch


@pytest.fixture
def error_of(batch):
    def error_of(content: str | bytes, name: str = "shots.csv", **given: Any) -> CallsheetError:
        with pytest.raises((InputError, ConfigError)) as caught:
            batch(content, name, **given)
        return caught.value

    return error_of


def rows_of(batch: Batch, *columns: str) -> list[tuple[Any, ...]]:
    return batch.rows.select(columns).rows()


def places(batch: Batch) -> list[tuple[int, str, str]]:
    return batch.rejects.select("line", "column", "reason").rows()


def prompts(batch: Batch) -> list[tuple[int, str]]:
    return rows_of(batch, "line", "prompt")
