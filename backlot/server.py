"""Runs the service: in the foreground for the command, in a thread for tests, or as a child process."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from backlot.app import create_app
from backlot.dashboard.sign_in import SignIn
from backlot.errors import SettingsError
from backlot.programs import APART
from backlot.service import Service
from backlot.settings import Settings

DASHBOARD = "Dashboard: "  # how the second line begins


class Connection(H11Protocol):
    """A connection that the application can close itself, through `scope["state"]["transport"]`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called when a client has connected."""
        # asyncio leaves Nagle's algorithm on for sockets that it did not open: 40 ms for every answer.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


class Server(uvicorn.Server):
    """A server that starts and ends the service with itself, also where somebody presses Ctrl-C twice."""

    service: Service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called before anything is answered."""
        await self.service.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called when nothing more is answered."""
        await super().shutdown(sockets)
        await self.service.stop()


def listen(settings: Settings) -> socket.socket:
    """The listening socket. Raises `SettingsError` where the address cannot be used."""
    try:
        return socket.create_server((settings.host, settings.port), backlog=4096)
    except OSError as error:
        # asyncio and socket put the address into `strerror`; it is in this message already.
        reason = (error.strerror or str(error)).partition(" (while")[0].lower()
        hint = "; try --port 0" if error.errno == errno.EADDRINUSE else ""
        raise SettingsError(
            f"cannot listen on {settings.host} port {settings.port}: {reason}{hint}"
        ) from None


@dataclass(frozen=True)
class Backlot:
    """A server of this process: its address, its key, its service, and who may see its dashboard."""

    base_url: str
    api_key: str
    service: Service
    sign_in: SignIn

    @property
    def dashboard(self) -> str | None:
        """A new link that signs in to the dashboard once; None where that is off."""
        return self.sign_in.link(self.base_url)


@contextmanager
def opened(
    settings: Settings, clock: Callable[[], float] = time.time
) -> Iterator[tuple[Backlot, uvicorn.Server, socket.socket]]:
    """A backlot that is ready, the server that has not begun, and the socket that it is to serve.

    Raises:
        SettingsError: the settings, a file that they name, the state folder or the address cannot be used.
    """
    service, sign_in = Service(settings, clock), SignIn(settings)
    with listen(settings) as listener:
        config = uvicorn.Config(
            create_app(service, sign_in),
            http=Connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="warning",
            server_header=False,
            backlog=4096,
            timeout_graceful_shutdown=5,
        )
        host, port = listener.getsockname()[:2]
        lot = Backlot(f"http://{host}:{port}", settings.api_key, service, sign_in)
        server = Server(config)
        server.service = service
        yield lot, server, listener


def run(settings: Settings, announce: Callable[[str, str | None], None], *, until_eof: bool = False) -> None:
    """Serves until Ctrl-C or SIGTERM, or with `until_eof` until stdin ends.

    Calls `announce` as soon as it listens, with the base URL and a link that signs in to the dashboard once.
    Raises `SettingsError` as `opened` does.
    """
    # uvicorn ends by sending itself the signal that it received: handle SIGTERM like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with opened(settings) as (lot, server, listener), closing(lot.service):
        if until_eof:
            threading.Thread(target=end_with_stdin, args=[server], daemon=True).start()
        announce(lot.base_url, lot.dashboard)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def end_with_stdin(server: uvicorn.Server) -> None:
    """Stops the server when stdin is closed, which means that the parent process has ended."""
    while os.read(0, 1024):  # not sys.stdin, whose lock blocks the end of the interpreter
        pass
    server.should_exit = True


@contextmanager
def serve(settings: Settings | None = None, clock: Callable[[], float] = time.time) -> Iterator[Backlot]:
    """Serves from a thread of this process, by default on a free port of 127.0.0.1.

    Raises `SettingsError` as `opened` does.
    """
    with opened(settings or Settings(port=0), clock) as (lot, server, listener), closing(lot.service):
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        try:
            yield lot
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def spawn(*flags: str, stderr: IO[Any] | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serves from a child process, `python -m backlot --port 0 <flags>`; yields its base URL and the process.

    The child ends with this process, even when that is killed, and not before: Ctrl-C does not reach it.

    Raises:
        SettingsError: it did not start; the reason is on its `stderr`, by default that of this process.
    """
    command = [sys.executable, "-m", "backlot", "--port", "0", "--until-eof", *flags]
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 - our own program
        command, stdin=pipe, stdout=pipe, stderr=stderr, text=True, **APART
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not (url := re.search(r"http://\S+", line)):
                raise SettingsError(f"the backlot did not start: {' '.join(command)}")
            yield url[0], process
        finally:
            process.terminate()


def dashboard_of(process: subprocess.Popen[str]) -> str | None:
    """The link that a spawned server has printed for its dashboard; None where that is off. Ask once."""
    line = process.stdout.readline() if process.stdout else ""
    link = line.removeprefix(DASHBOARD).strip()
    return link if link.startswith("http") else None
