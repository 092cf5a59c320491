"""A batch belongs to one service: met with another one, nothing is bought, polled or fetched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from backlot.server import Backlot
from callsheet.cli.main import app
from callsheet.config.load import load
from callsheet.errors import OtherService
from flows import pipeline
from tests.conftest import Project
from tests.ledger.buying import buyer

MakeProject = Callable[..., Project]
ROW = {"id": "a", "prompt": "a vase", "model": "sketch-1", "aspect_ratio": "1:1"}


def test_a_batch_belongs_to_the_service_of_its_first_run(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            await ledger.check_service("https://b.example")
            await ledger.bind("https://a.example/v")
            for same in ("https://a.example/v", "https://a.example/v/", "HTTPS://A.Example/v"):
                await ledger.bind(same)
                await ledger.check_service(same)
            for other in (
                "https://b.example/v",
                "http://a.example/v",
                "https://a.example:8443/v",
                "https://a.example/V",
            ):
                with pytest.raises(OtherService, match=r"https://a\.example/v"):
                    await ledger.bind(other)
                with pytest.raises(OtherService):
                    await ledger.check_service(other)
        async with buyer(url, batch="another batch") as ledger:
            await ledger.bind("https://b.example")

    asyncio.run(scenario())


def test_a_service_that_has_moved_keeps_its_batch(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            await ledger.bind("https://a.example")
            await ledger.rebind("https://b.example")
            await ledger.bind("https://b.example")
            with pytest.raises(OtherService):
                await ledger.bind("https://a.example")

    asyncio.run(scenario())


def test_a_password_in_the_address_is_not_shown(url: str) -> None:
    async def scenario() -> None:
        async with buyer(url) as ledger:
            await ledger.bind("https://me:secret@a.example")
            with pytest.raises(OtherService) as caught:
                await ledger.bind("https://me:secret@b.example")
            assert "secret" not in caught.value.message + caught.value.hint

    asyncio.run(scenario())


def test_a_batch_is_not_bought_at_a_second_service_until_a_person_says_that_it_has_moved(
    project: MakeProject, start_backlot: Callable[..., Backlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project([ROW])
    first = run(made)
    assert first.stored == 1
    made.rows(ROW, ROW | {"id": "b"})
    second = start_backlot()
    monkeypatch.setenv("CALLSHEET_API_KEY", second.api_key)
    made.set(service={"base_url": second.base_url})
    for step in (run, collect):
        with pytest.raises(OtherService) as caught:
            step(made)
        assert caught.value.exit_code == 2
    quote = CliRunner().invoke(app, ["quote", str(made.config)])
    assert isinstance(quote.exception, OtherService)
    assert second.service.workspaces["default"].spent == 0
    moved = CliRunner().invoke(app, ["ledger", "service-moved", str(made.config), "--json"])
    assert json.loads(moved.stdout) == {"batch": "test", "service": second.base_url}
    summary = run(made)
    assert (summary.stored, summary.submissions) == (2, 1)


def run(made: Project) -> Any:
    return asyncio.run(pipeline.generate(load(made.config), approved=True))


def collect(made: Project) -> Any:
    return asyncio.run(pipeline.collect(load(made.config)))
