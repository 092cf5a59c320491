"""A proxy before PostgreSQL that fails: commits of which the client is not told, or a network that is cut."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import sqlalchemy as sa


class PostgresProxy:
    """Passes everything on to the server of a database's URL.

    Attributes:
        url: the database's URL through the proxy.
        lost: how many commits have succeeded without the client being told.
    """

    def __init__(self, url: str) -> None:
        address = sa.make_url(url)
        self._server = f"{address.query['host']}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = address.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
        self.lost = 0
        self._every = 0
        self._before: Callable[[], object] | None = None
        self._commits = itertools.count()
        self._is_cut = False
        self._open: list[socket.socket] = []

    def cut(self) -> None:
        """From now on no connection works: those that are open end, and new ones are closed at once."""
        self._is_cut = True
        for client in self._open:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def lose(self, every: int, before: Callable[[], object] | None = None) -> None:
        """From now on one of so many commits is not confirmed, the next one first; 0 ends it.

        Args:
            every: one of how many.
            before: the client's connection is cut and this is called before the server gets the commit.
        """
        self._every, self._commits, self._before = every, itertools.count(), before

    def serve(self) -> None:
        """Serves until it is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_cut:
                    client.close()
                    continue
                self._open.append(client)
                threading.Thread(target=self._serve_one, args=[client], daemon=True).start()

    def close(self) -> None:
        """Accepts no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve_one(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        losing = threading.Event()

        def answers() -> None:
            with suppress(OSError):
                while content := server.recv(65536):
                    if losing.is_set():
                        self.lost += 1
                        break
                    client.sendall(content)
            for end in (client, server):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        with closing(client), closing(server), suppress(OSError):
            server.connect(self._server)
            threading.Thread(target=answers, daemon=True).start()
            in_use = False  # its first commit is of its settings
            while content := client.recv(65536):
                if b"COMMIT\0" in content:
                    if in_use and self._every and next(self._commits) % self._every == 0:
                        losing.set()
                        if self._before:
                            client.shutdown(socket.SHUT_RDWR)
                            self._before()
                    in_use = True
                server.sendall(content)


@contextmanager
def postgres_proxy(url: str) -> Iterator[PostgresProxy]:
    """A proxy before the database with this URL."""
    proxy = PostgresProxy(url)
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
