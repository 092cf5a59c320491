"""A proxy in front of a real S3 server that answers a GET only when several of them have arrived.

with s3_gate(server.endpoint_url, together=4) as gate:
    ...  # gate.url; gate.gets
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.s3_proxy import Answer, Proxy, _Handler


class Gate(Proxy):
    """Where it listens, and how many GETs have arrived."""

    def __init__(self, target: str, together: int) -> None:
        self.gets = 0
        self._arrived = threading.Barrier(together, timeout=60)
        self._count = threading.Lock()
        super().__init__(target, "")

    def answer(self, request: _Handler, body: bytes) -> Answer | None:
        """The server's answer, once enough GETs are here; none if they do not come."""
        if request.command == "GET":
            with self._count:
                self.gets += 1
            try:
                self._arrived.wait()
            except threading.BrokenBarrierError:
                return None
        return super().answer(request, body)


@contextmanager
def s3_gate(target: str, together: int) -> Iterator[Gate]:
    """Serves on a free port of 127.0.0.1, in front of the server at `target`."""
    gate = Gate(target, together)
    try:
        yield gate
    finally:
        gate.stop()
