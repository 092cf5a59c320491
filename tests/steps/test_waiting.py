"""A run that finds the service down waits for it, as long as for refusals; what only looks does not."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from callsheet.config.load import load
from callsheet.errors import ServiceError
from callsheet.service.client import Client
from callsheet.session import until_answered
from callsheet.watch import LogWatcher
from tests.cli.test_commands import callsheet
from tests.conftest import Make, images
from tests.servers.forks import forks
from tests.servers.proxies import Failure, ReverseProxy
from tests.servers.sockets import Behaviour, close, error_reply, page, serve, unused_port
from tests.service.asking import run
from tests.waiting import wait_until


class Notes(LogWatcher):
    """Keeps the notes, and calls `first` when the first one comes."""

    def __init__(self, first: Callable[[], Any] = lambda: None) -> None:
        self.notes: list[str] = []
        self.first = first

    def note(self, text: str) -> None:
        self.notes.append(text)
        if len(self.notes) == 1:
            self.first()


def test_a_service_that_comes_back_is_waited_for_and_the_batch_is_bought(project: Make) -> None:
    made = project(images(2))
    with ReverseProxy(made.backlot.base_url) as proxy:
        made.set(service={"base_url": proxy.url})
        proxy.stop()
        watcher = Notes(first=proxy.start)
        summary = made.run(watcher=watcher)
    assert (summary.outcome, summary.stored) == ("complete", 2)
    waits, goes_on = watcher.notes
    assert waits.startswith("the run waits for the service, at most 30 min: GET /v2/models: not sent")
    assert goes_on == "the service answers again; the run goes on"


def test_a_balance_that_fails_at_the_start_is_waited_for(project: Make) -> None:
    made, watcher = project(images(1)), Notes()
    with ReverseProxy(made.backlot.base_url) as proxy:
        made.set(service={"base_url": proxy.url})
        proxy.fail(Failure("GET", "/v2/billing/balance", status=503, reaches_service=False, times=9))
        assert made.run(watcher=watcher).stored == 1
    assert len(watcher.notes) == 2, watcher.notes


@pytest.mark.parametrize(
    "answer, is_waited_for",
    [
        (close, True),
        (page(502), True),
        (error_reply(500, "server_error"), True),
        (error_reply(429, "rate_limit"), True),
        (error_reply(401, "invalid_api_key"), False),
        (page(403), False),
        (page(200), False),
        (error_reply(404, "not_found"), False),
    ],
)
def test_it_is_waited_for_while_its_answer_may_change_and_no_longer_than_the_patience(
    project: Make, answer: Behaviour, is_waited_for: bool
) -> None:
    settings, slept = load(project(images(1)).config, ["limits.patience=100"]), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    def ask(client: Client) -> Awaitable[Any]:
        return until_answered(client.balance, settings, client, clock=lambda: sum(slept), sleep=sleep)

    with serve(answer) as server, pytest.raises(ServiceError):
        run(server.url, ask)
    assert bool(slept) == is_waited_for
    assert sum(slept) <= 100


def test_a_person_ends_the_waiting_at_once_and_a_quote_does_not_wait(project: Make) -> None:
    made, log = project(images(1)), Path("run.log")
    with unused_port() as port:
        made.set(service={"base_url": f"http://127.0.0.1:{port}"})
        quoted = callsheet("quote", str(made.config))
        assert (quoted.returncode, "waits" in quoted.stderr) == (4, False)
        words = ("-m", "callsheet", "run", str(made.config))
        with log.open("w") as err, forks().start(*words, env=dict(os.environ), stderr=err) as process:
            wait_until(lambda: "waits for the service" in log.read_text(), "it does not wait")
            process.send_signal(signal.SIGINT)
    assert process.returncode == 130, log.read_text()
    assert "stopped by SIGINT" in log.read_text()
