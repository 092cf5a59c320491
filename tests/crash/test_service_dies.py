"""The service is killed in the middle and comes back on its port with its database: the run goes on."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from backlot.server import spawn
from tests.crash.killed_batch import IMAGE, LANES, VIDEO, Bought, KilledBatch

ROWS = {
    **{f"image-{n}": ({"prompt": f"image-{n}", **IMAGE}, "stored") for n in range(60)},
    **{f"video-{n}": ({"prompt": f"video-{n}", **VIDEO}, "stored") for n in range(4)},
}


@dataclass
class Server:
    """A backlot in a process of its own, whose database is on disk. It is read when the process has ended."""

    state: Path
    stack: ExitStack

    def start(self, port: int) -> None:
        flags = ["--state", str(self.state), "--port", str(port)]
        quick = ["--image-seconds", "0.05", "--video-seconds", "0.3", "--image-rpm", "100000"]
        self.base_url, self.process = self.stack.enter_context(spawn(*flags, *quick))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def bought(self) -> list[Bought]:
        self.kill()
        with closing(sqlite3.connect(self.state / "backlot.db")) as database:
            rows = database.execute("SELECT id, recipe, state, cost FROM generations").fetchall()
        return [
            Bought(row[0], json.loads(row[1])["prompt"], row[2], row[3] * Decimal("0.0001")) for row in rows
        ]


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.soak)])
def test_a_service_that_is_killed_and_comes_back_leaves_doubt_only_about_what_it_was_making(
    tmp_path: Path, kills: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with ExitStack() as stack:
        server = Server(tmp_path / "state", stack)
        server.start(port)
        environment = {"CALLSHEET_BASE_URL": server.base_url, "CALLSHEET_API_KEY": "sk_backlot"}
        made = KilledBatch(tmp_path / "batch", environment, server, dict(ROWS))
        made.set_up()
        codes: list[int] = []
        run = threading.Thread(target=lambda: codes.append(made.run(backoff=0.2)))
        run.start()
        for _ in range(kills):
            before = len(made.stored())
            while run.is_alive() and len(made.stored()) < before + 4:
                time.sleep(0.01)  # another process does the work
            server.kill()
            server.start(port)
        run.join()
        assert codes[0] in (0, 3), made.log()
        doubted = [name for name, row in made.ledger().items() if row["state"] == "in_doubt"]
        assert len(doubted) <= kills * LANES
        for name in doubted:
            made.rows[name] = (made.rows[name][0], "in_doubt")
        made.run()  # on a slow machine a file may have been left to the next run
        made.compare()
