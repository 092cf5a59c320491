"""Proxies of this machine: the answer to a CONNECT for `sockets.serve`, and a SOCKS5 server."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.servers.sockets import Behaviour


def tunnel(port: int) -> Behaviour:
    """Carries out a CONNECT: passes everything on to a port of this machine, and back."""

    def behave(near: socket.socket) -> bool:
        near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        _pass_on(near, port)
        return False

    return behave


def _pass_on(near: socket.socket, port: int) -> None:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as far:
        while True:
            held = getattr(near, "pending", int)()  # bytes that TLS has read from the socket already
            for one in [near] if held else select.select([near, far], [], [])[0]:
                if not (data := one.recv(65536)):
                    return
                (far if one is near else near).sendall(data)


@contextmanager
def socks5(port: int, *answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A SOCKS5 server (RFC 1928): its address after the scheme, and what it is asked.

    Args:
        port: of this machine, to which it connects whatever host is asked for.
        answers: what to say to each message of a client: the first ones before it connects. When there are no
            more, the connection is closed; it is passed on where the last one is a success.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def talk(near: socket.socket) -> None:
        with suppress(OSError), near:
            for answer in answers:
                asked.append(near.recv(4096))
                near.sendall(answer)
            if answers and answers[-1] == SOCKS_CONNECTED:
                _pass_on(near, port)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=talk, args=[listener.accept()[0]], daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


SOCKS_NO_PASSWORD, SOCKS_PASSWORD, SOCKS_WELCOME = b"\5\0", b"\5\2", b"\1\0"
SOCKS_CONNECTED = b"\5\0\0\1\0\0\0\0\0\0"
SOCKS_REFUSED = b"\5\5\0\1\0\0\0\0\0\0"
