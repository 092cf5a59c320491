"""A run in a process of its own: `python -m tests.ledger.other_run URL [BATCH [SPOOL BUSY]]`.

It obeys the lines of its stdin: `reserve NAME...`, `intend NAME`, `pending NAME`, `generated NAME`, `renew`
and `end` are what a run does with the ledger. Each is answered with a line: `ok`, or the error's type and
message.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callsheet.errors import CallsheetError
from callsheet.ledger.waits import set_waits
from callsheet.records import Attempt
from tests.ledger.buying import buyer, generation, job, reserve

ROOT = Path(__file__).parents[2]


class OtherRun:
    """The other end of the process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, line: str) -> str:
        """Has it carry out a line; its answer."""
        self.send(line)
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def send(self, line: str) -> None:
        """Has it carry out a line, and does not wait for the answer."""
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self, *, reap: bool = True) -> None:
        """Kills it; without `reap` it stays a zombie."""
        self.process.kill()
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        if reap:
            self.process.wait()

    def do(self, *lines: str) -> None:
        """Has it carry out lines, which must succeed."""
        for line in lines:
            assert self.ask(line) == "ok"


@contextmanager
def other_run(url: str, *arguments: str) -> Iterator[OtherRun]:
    """Starts the process, which enters its run; it is killed at the end."""
    command = [sys.executable, "-m", "tests.ledger.other_run", url, *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        other = OtherRun(process)
        try:
            other.do("begin")
            yield other
        finally:
            process.kill()


async def main(url: str, batch: str = "b", spool: str = "", busy: str = "30") -> None:
    set_waits(busy=float(busy))
    async with buyer(url, batch, journal=Path(spool) if spool else None) as ledger:
        attempts: dict[str, Attempt] = {}
        for line in sys.stdin:
            step, *names = line.split()
            try:
                if step == "reserve":
                    reserved, _ = await reserve(ledger, *map(job, names))
                    attempts |= {one.row_id: attempt for one, attempt in reserved}
                elif step == "intend":
                    await ledger.intend(attempts[names[0]])
                elif step == "pending":
                    await ledger.pending(attempts[names[0]], f"req-{names[0]}")
                elif step == "generated":
                    await ledger.generated(
                        attempts[names[0]], generation(names[0]), [f"{names[0]}.png"], "out"
                    )
                elif step == "renew":
                    await ledger.renew()
                elif step == "end":
                    await ledger.end_run()
                answer = "ok"
            except CallsheetError as error:
                answer = f"{type(error).__name__}: {error}"
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
