"""A server on raw sockets that misbehaves as told, plain or over TLS.

Each behaviour answers one request, in order; the last one answers all that follow. It gets the socket after
the whole request was read, and says whether the connection stays open.
"""

from __future__ import annotations

import json
import re
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Behaviour = Callable[[socket.socket], bool]


def reply(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Behaviour:
    """A whole answer; the connection stays open."""
    given = {"Content-Length": str(len(body)), "Content-Type": "application/json"} | dict(headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return raw(f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + body, stays=True)


def json_reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Behaviour:
    """A whole answer with a JSON body."""
    return reply(status, json.dumps(content).encode(), headers)


def error_reply(status: int, code: str, headers: Mapping[str, str] | None = None, **more: Any) -> Behaviour:
    """A refusal with the interface's error body (INTERFACE 2.1); `more` are fields of it."""
    body = {"message": "No.", "type": "invalid_request_error", "param": None, "code": code} | more
    return json_reply({"error": body}, status, headers)


def page(status: int) -> Behaviour:
    """An HTML page, as a proxy answers."""
    return reply(status, b"<html><h1>Whatever</h1></html>", {"Content-Type": "text/html"})


def raw(message: bytes, *, stays: bool = False) -> Behaviour:
    """These bytes, and then the connection is closed, unless it stays."""

    def behave(connection: socket.socket) -> bool:
        connection.sendall(message)
        return stays

    return behave


def trickle(body: bytes) -> Behaviour:
    """A whole answer whose body comes byte by byte, 50 of them a second."""

    def behave(connection: socket.socket) -> bool:
        with suppress(OSError):  # the client has had enough
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            for byte in body:
                time.sleep(0.02)
                connection.sendall(bytes([byte]))
        return False

    return behave


def close(_: socket.socket) -> bool:
    """No answer: the connection is closed."""
    return False


def reset(connection: socket.socket) -> bool:
    """No answer: the connection is reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def silence(connection: socket.socket) -> bool:
    """No answer, until the client gives up."""
    with suppress(OSError):
        connection.recv(1)
    return False


@contextmanager
def listening(talk: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port of 127.0.0.1: `talk` gets each connection, in a thread of its own; in the end all are closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = []

    def answer(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            talk(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                opened.append(connection)
                threading.Thread(target=answer, args=[connection], daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in opened:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()


@dataclass
class Server:
    """What a test may look at: the whole requests (head and body), how many connections there were, and how
    many of them are closed.

    `arrived` is set when the first request is here.
    """

    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    closed: int = 0
    arrived: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve(*behaviours: Behaviour, tls: Path | None = None) -> Iterator[Server]:
    """Serves on a free port of 127.0.0.1.

    Args:
        behaviours: what to do with the first, second, ... request.
        tls: a PEM file with a certificate and its key, to speak TLS.
    """
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
    server, lock = Server(), threading.Lock()

    def talk(connection: socket.socket) -> None:
        with lock:
            server.connections += 1
        with (
            suppress(OSError),
            connection,
            context.wrap_socket(connection, server_side=True) if context else connection as channel,
        ):
            stays = True
            while stays and (request := _request(channel)):
                with lock:
                    server.requests.append(request)
                    behave = behaviours[min(len(server.requests), len(behaviours)) - 1]
                server.arrived.set()
                stays = behave(channel)
        with lock:
            server.closed += 1

    with listening(talk) as port:
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield server


def _request(connection: socket.socket) -> bytes:
    """One whole request; empty when the client has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    if b"100-continue" in head:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    while len(body) < int(length[1] if length else 0):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def unused_port() -> Iterator[int]:
    """A port on which nothing listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def full_backlog() -> Iterator[int]:
    """A port on which connecting takes for ever: its queue of connections is full and nobody accepts."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            waiting.append(client)
        try:
            yield listener.getsockname()[1]
        finally:
            for client in waiting:
                client.close()


def certificate(folder: Path) -> Path:
    """A PEM file, made in `folder`: a self-signed certificate for 127.0.0.1 and service.test, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.IPAddress(IPv4Address("127.0.0.1")), x509.DNSName("service.test")]
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    pem.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return pem


# ---- proxies: the answer to a CONNECT for `serve`, and a SOCKS5 server


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
    asked: list[bytes] = []

    def talk(near: socket.socket) -> None:
        for answer in answers:
            asked.append(near.recv(4096))
            near.sendall(answer)
        if answers and answers[-1] == SOCKS_CONNECTED:
            _pass_on(near, port)

    with listening(talk) as own:
        yield f"127.0.0.1:{own}", asked


SOCKS_NO_PASSWORD, SOCKS_PASSWORD, SOCKS_WELCOME = b"\5\0", b"\5\2", b"\1\0"
SOCKS_CONNECTED = b"\5\0\0\1\0\0\0\0\0\0"
SOCKS_REFUSED = b"\5\5\0\1\0\0\0\0\0\0"
