"""Plans in a folder of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pricing.plans import Maker


@pytest.fixture
def plan(tmp_path: Path) -> Maker:
    return Maker(tmp_path)
