"""Coroutines are tests here (`pytestmark = pytest.mark.anyio`), and most of them buy with one run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callsheet.ledger.ledger import Ledger
from tests.ledger.buying import buyer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def ledger(url: str) -> AsyncIterator[Ledger]:
    """A run at work on a new ledger, once in each kind of database."""
    async with buyer(url) as opened:
        yield opened


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"
