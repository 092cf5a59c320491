"""No money disappears: the opening balance is always the balance now plus the costs in `usage`."""

from __future__ import annotations

import contextlib
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from backlot.settings import SPOILED_WORD, TEST_WORD, Settings
from tests.servers import backlots

from .conftest import Clock, client

OPENING = Decimal("2.5000")


def exact(answer: httpx.Response) -> Any:
    """A JSON body with its numbers as decimals."""
    return json.loads(answer.text, parse_float=Decimal, parse_int=Decimal)


class Account(RuleBasedStateMachine):
    """Submits, polls, downloads, restarts and lets time pass, in any order."""

    @initialize()
    def open_account(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.began = self.clock.now
        self.costs: dict[str, Decimal] = {}
        self.videos: dict[str, str] = {}
        self.urls: dict[str, int] = {}
        self.start()

    def start(self) -> None:
        self.stack = contextlib.ExitStack()
        opened = Settings(
            port=0,
            state=Path(self.folder.name),
            balance=OPENING,
            image_seconds=0,
            video_seconds=5,
            media_ttl=60,
            concurrency=4,
        )
        running = self.stack.enter_context(backlots.serve(opened, self.clock))
        self.stack.callback(running.service.store.close)  # the next one opens what this one has written
        self.api = self.stack.enter_context(client(running.base_url))

    @rule(
        model=strategies.sampled_from(["still-1", "sketch-1", "proof-1", "nobody"]),
        prompt=strategies.sampled_from(["a fox", TEST_WORD, ""]),
    )
    def make_image(self, model: str, prompt: str) -> None:
        answer = self.api.post("/v2/images/generations", json={"model": model, "prompt": prompt})
        if answer.status_code != 200:
            assert answer.status_code in {400, 402, 422, 429}
            return
        body = exact(answer)
        usage = body["usage"]
        assert usage["total_cost"] == usage["unit_price"] * usage["quantity"]
        self.costs[body["id"]] = usage["total_cost"]
        self.urls[body["data"][0]["url"]] = int(self.clock.now) + 60

    @rule(
        model=strategies.sampled_from(["reel-1", "dailies-1", "still-1"]),
        sound=strategies.booleans(),
        prompt=strategies.sampled_from(["a fox", SPOILED_WORD]),
    )
    def submit(self, model: str, sound: bool, prompt: str) -> None:
        body = {"model": model, "prompt": prompt, "sound": sound}
        answer = self.api.post("/v2/videos/generations", json=body)
        if answer.status_code == 202:
            self.videos[answer.json()["id"]] = "pending"
        else:
            assert answer.status_code in {400, 402, 429}

    @precondition(lambda self: self.videos)
    @rule(data=strategies.data())
    def poll(self, data: strategies.DataObject) -> None:
        video = data.draw(strategies.sampled_from(sorted(self.videos)))
        body = exact(self.api.get(f"/v2/videos/generations/{video}"))
        before = self.videos[video]
        assert before in {"pending", body["status"]}, "a terminal state is terminal"
        self.videos[video] = body["status"]
        if body["status"] == "completed":
            assert self.costs.setdefault(video, body["usage"]["total_cost"]) == body["usage"]["total_cost"]

    @precondition(lambda self: self.urls)
    @rule(data=strategies.data())
    def download(self, data: strategies.DataObject) -> None:
        url = data.draw(strategies.sampled_from(sorted(self.urls)))
        path = url[url.index("/v2/") :]  # a restart changes the port, not the signature
        assert self.api.head(path).status_code == (200 if self.clock.now < self.urls[url] else 410)

    @rule(seconds=strategies.sampled_from([0.5, 5, 61]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def restart(self) -> None:
        self.stack.close()
        self.start()

    @invariant()
    def conserved(self) -> None:
        for video, state in self.videos.items():
            if state == "pending":  # it may be finished and charged before it is polled
                body = exact(self.api.get(f"/v2/videos/generations/{video}"))
                self.videos[video] = body["status"]
                if body["status"] == "completed":
                    self.costs[video] = body["usage"]["total_cost"]
        balance = Decimal(self.api.get("/v2/billing/balance").json()["balance"])
        assert balance == OPENING - sum(self.costs.values())
        assert balance >= 0
        span = {"start": "2026-03-01T00:00:00Z", "end": "2026-04-01T00:00:00Z"}
        reported = exact(self.api.get("/v2/billing/costs", params=span))
        assert reported["total_cost"] == sum(self.costs.values())
        assert sum(bucket["cost"] for bucket in reported["data"]) == reported["total_cost"]

    def teardown(self) -> None:
        self.stack.close()
        self.folder.cleanup()


Account.TestCase.settings = settings(max_examples=3, stateful_step_count=20, deadline=None)
TestNoMoneyDisappears = Account.TestCase


@pytest.mark.soak
def test_no_money_disappears_in_a_long_run() -> None:
    run_state_machine_as_test(
        Account, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
