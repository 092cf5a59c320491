"""A batch belongs to one service: met with another one, nothing is bought, polled or fetched."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from backlot.server import Backlot
from callsheet.cli.main import app
from callsheet.errors import OtherService
from callsheet.ledger import services, states
from tests.conftest import Project
from tests.ledger.buying import buyer, intend, job, reserve, state_of, submitting

pytestmark = pytest.mark.anyio

ROW = {"id": "a", "prompt": "a vase", "model": "sketch-1", "aspect_ratio": "1:1"}


async def send(url: str, service: str, *names: str, batch: str = "b") -> None:
    """A run that sends jobs to a service."""
    async with buyer(url, batch, service=service) as ledger:
        await submitting(ledger, *map(job, names))


async def test_a_batch_belongs_to_the_service_to_which_its_first_job_is_sent(url: str) -> None:
    first = "https://me:secret@a.example/v"
    await send(url, first, "a")
    await send(url, "HTTPS://A.Example/v/", "b")
    assert all(services.is_same(first, same) for same in ("https://a.example/v", "https://a.example/v/"))
    others = "https://b.example/v http://a.example/v https://a.example:8443/v https://a.example/V"
    assert not any(services.is_same(first, other) for other in others.split())
    with pytest.raises(OtherService, match=r"sent jobs of the batch 'b' to https://a\.example/v") as caught:
        await send(url, "https://me:secret@b.example", "c")
    assert "secret" not in caught.value.message + caught.value.hint, "a password is not shown"
    async with buyer(url) as reader:
        with pytest.raises(OtherService):
            await reader.read(services.check, "https://b.example/v")
    await send(url, "https://b.example", "c", batch="another batch")


async def test_a_batch_of_which_nothing_was_sent_is_bound_anew(url: str) -> None:
    """Also where a run has reserved jobs, and was killed or refused before it sent one."""
    async with buyer(url, service="https://a.example") as killed:
        await reserve(killed, job("a"))
    async with buyer(url, service="https://b.example") as ledger:
        await ledger.read(services.check, "https://b.example")
        [attempt] = await submitting(ledger, job("a"))
        await ledger.transition(states.planned_again, attempt)  # the service took nothing
        await ledger.end_run()
    await send(url, "https://c.example", "a")


async def test_a_batch_is_not_taken_from_a_run_that_is_about_to_send(url: str) -> None:
    async with buyer(url, service="https://a.example") as first:
        [(_, attempt)], _ = await reserve(first, job("a"))
        async with buyer(url, service="https://b.example") as second:
            with pytest.raises(OtherService, match="another run is about to send"):
                await reserve(second, job("b"))
            assert await state_of(second, job("b")) is None
        await intend(first, attempt)


async def test_the_other_batches_of_a_service_that_has_moved_move_with_it(url: str) -> None:
    """And those of another service stay."""
    addresses = {"b": "https://a.example", "c": "https://A.example/", "d": "https://d.example"}
    for batch, service in addresses.items():
        await send(url, service, batch, batch=batch)
    async with buyer(url) as ledger:
        assert await ledger.write(services.rebind, "https://b.example") == ["b", "c"]
    await send(url, "https://b.example", "more", batch="c")
    await send(url, "https://d.example", "more of d", batch="d")
    with pytest.raises(OtherService):
        await send(url, "https://a.example", "more of b")


def test_a_batch_is_not_bought_at_a_second_service_until_a_person_says_that_it_has_moved(
    project: Callable[..., Project], start_backlot: Callable[..., Backlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project([ROW])
    assert made.run().stored == 1
    made.rows(ROW, ROW | {"id": "b"})
    second = start_backlot()
    monkeypatch.setenv("CALLSHEET_API_KEY", second.api_key)
    made.set(service={"base_url": second.base_url})
    for step in (made.run, made.collect):
        with pytest.raises(OtherService, match="has sent jobs") as caught:
            step()
        assert caught.value.exit_code == 2
    quote = CliRunner().invoke(app, ["quote", str(made.config)])
    assert isinstance(quote.exception, OtherService)
    assert second.service.workspaces["default"].spent == 0
    move = ["ledger", "service-moved", str(made.config), "--json"]
    wrong = CliRunner().invoke(app, [*move, "--set", "ledger.url=sqlite:///out/other.db"])
    assert "knows of no service of the batch test" in str(wrong.exception)
    moved = CliRunner().invoke(app, move)
    assert json.loads(moved.stdout) == {"batch": "test", "service": second.base_url, "batches": ["test"]}
    summary = made.run()
    assert (summary.stored, summary.submissions) == (2, 1)
