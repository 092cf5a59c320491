"""Chromium without a window, driven over its DevTools protocol, as a reader of a page would use it.

with chromium(folder) as browser:
    with browser.page("file:///...", width=1280) as page:
        page.evaluate("document.title")
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.waiting import LONGEST, wait_until

CHROMIUM = next(
    (p for p in map(Path, ("/usr/bin/chromium", "/usr/bin/chromium-browser")) if p.exists()), None
)
"""The browser; None where this machine has none."""

_KEYS = {"Enter": 13, "Escape": 27, "Home": 36, "End": 35, "PageDown": 34, "Tab": 9}
_KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """A running Chromium.

    Args:
        socket: the connection to it.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.pages: dict[str, Page] = {}

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            answer = self.receive(LONGEST)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def receive(self, timeout: float) -> dict[str, Any]:
        """The next message; events are kept by the page that they are of."""
        message: dict[str, Any] = json.loads(self._socket.recv(timeout))
        if "method" in message and (page := self.pages.get(message.get("sessionId", ""))):
            page.heard(message["method"], message["params"])
        return message

    @contextmanager
    def page(self, url: str, *, width: int = 1280, height: int = 900, **media: str) -> Iterator[Page]:
        """Opens a page and waits until it is loaded.

        Args:
            url: its address.
            width: of the window, in CSS pixels.
            height: of the window.
            media: media features, such as `prefers_color_scheme="dark"`.
        """
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.send(f"{domain}.enable")
            page.open(url, width=width, height=height, **media)
            yield page
        finally:
            self.pages.pop(session)
            self.send("Target.disposeBrowserContext", browserContextId=context)


class Page:
    """An open page.

    Args:
        browser: whose page it is.
        session: its name there.

    Attributes:
        complaints: errors and warnings of the console, and exceptions.
        requests: the addresses of everything that the page asked for.
        failures: the requests that failed, with the reason.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.failures: list[str] = []

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command of the DevTools protocol."""
        return self._browser.send(method, self._session, **params)

    def open(self, url: str, *, width: int = 1280, height: int = 900, **media: str) -> None:
        """Opens another page in its place, as `Browser.page`, and waits until it is loaded."""
        self.send("Page.navigate", url="about:blank")  # otherwise the same address is scrolled as it was
        for kept in (self.complaints, self.requests, self.failures):
            kept.clear()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def heard(self, method: str, params: dict[str, Any]) -> None:
        """Keeps what an event tells."""
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(str(details.get("exception", details).get("description", details)))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Network.loadingFailed" and not params.get("canceled"):
            self.failures.append(params["errorText"])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", expression))
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Waits until a JavaScript expression is true."""
        wait_until(lambda: self.evaluate(f"Boolean({expression})"), f"never true: {expression}")

    def press(self, key: str) -> None:
        """Presses a key, by its name as in `KeyboardEvent.key`."""
        code = _KEYS.get(key, ord(key.upper()[0]))
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        fields = {"key": key, "windowsVirtualKeyCode": code, "code": key}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **fields)
        self.send("Input.dispatchKeyEvent", type="keyUp", **fields)

    def type(self, text: str) -> None:
        """Types a text into what has the focus."""
        self.send("Input.insertText", text=text)

    def point(self, selector: str, *, click: bool = False) -> None:
        """Moves the pointer to the middle of the first element that a selector finds."""
        place = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.evaluate(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({place})")
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for event in ("mousePressed", "mouseReleased") if click else ():
            self.send("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        """Saves what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Starts Chromium with a new profile in `folder`; about a second."""
    with started(folder) as address, driven(address) as browser:
        yield browser


@contextmanager
def driven(address: str) -> Iterator[Browser]:
    """Drives a Chromium that runs."""
    with connect(address, max_size=None) as socket:
        yield Browser(socket)


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """Starts Chromium with a new profile in `folder`; yields the address at which it is driven."""
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        # What only costs time here: asking its makers for news, and renderers for pages that may come.
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        "--disable-features=SpareRendererForSitePerProcess",
        *("--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"),
    ]
    log = folder / "chromium.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield _address(log, process.poll)
    finally:
        process.terminate()
        process.wait()


def _address(log: Path, ended: Callable[[], int | None]) -> str:
    deadline = time.monotonic() + LONGEST
    while not (found := re.search(r"ws://\S+", log.read_text())):
        assert ended() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    return found[0]
