"""One server for the session, on a clock that the tests move; every test has its own workspace."""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from PIL import Image

from backlot.server import Backlot, serve
from backlot.settings import Settings, WorkspaceSettings
from tests.servers import http

Account = Callable[..., httpx.Client]


class Clock:
    """A clock that only a test moves; it begins at 2026-03-10 12:00:00 UTC."""

    def __init__(self) -> None:
        self.now = 1773144000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="session")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def backlot(clock: Clock) -> Iterator[Backlot]:
    settings = Settings(port=0, image_seconds=0, video_seconds=10, media_ttl=3600, read_rpm=1_000_000)
    with serve(settings, clock) as running:
        yield running


NUMBERS = itertools.count(1)


@pytest.fixture
def account(backlot: Backlot) -> Iterator[Account]:
    """Opens a workspace, with one key or those of `projects`; returns a client with the first key."""
    clients = []

    def open_account(**settings: Any) -> httpx.Client:
        name = f"ws{next(NUMBERS)}"
        settings = {"balance": "100", "projects": {"main": [f"sk_{name}"]}} | settings
        workspace = WorkspaceSettings.model_validate(settings)
        backlot.service.add_workspace(name, workspace)
        key = next(iter(workspace.projects.values()))[0]
        clients.append(client(backlot.base_url, key))
        return clients[-1]

    yield open_account
    for each in clients:
        each.close()


@pytest.fixture
def api(account: Account) -> httpx.Client:
    """A client of a new workspace with 100 dollars."""
    return account()


def client(address: str, key: str = "sk_backlot") -> httpx.Client:
    """A client of the interface at an address."""
    return http.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=300)


def make_image(client: httpx.Client, **fields: Any) -> httpx.Response:
    """POST an image generation."""
    return client.post("/v2/images/generations", json={"model": "still-1", "prompt": "a fox"} | fields)


def make_video(client: httpx.Client, **fields: Any) -> httpx.Response:
    """POST a video generation."""
    return client.post("/v2/videos/generations", json={"model": "reel-1", "prompt": "a fox"} | fields)


def poll(client: httpx.Client, video: httpx.Response) -> Any:
    """The status answer of a submitted video."""
    answer = client.get(f"/v2/videos/generations/{video.json()['id']}")
    assert answer.status_code == 200
    return answer.json()


def balance(client: httpx.Client) -> str:
    """The workspace's balance."""
    return str(client.get("/v2/billing/balance").json()["balance"])


def data_url(color: str = "red", size: tuple[int, int] = (32, 18), mime: str = "png") -> str:
    """A small image of one colour as a data URL."""
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, mime)
    return f"data:image/{mime};base64,{base64.b64encode(out.getvalue()).decode()}"


def refused(answer: httpx.Response, status: int, code: str, param: str | None = None) -> Any:
    """The error of an answer, which must have the form of INTERFACE 2.1, this status, code and parameter."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
    assert answer.json().keys() == {"error"}
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param), error
    return error
