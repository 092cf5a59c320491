"""A run in a process of its own: `python -m tests.ledger.other_run URL [BATCH [SPOOL BUSY]]`.

It obeys the lines of its stdin: `reserve NAME...`, `intend NAME`, `pending NAME`, `doubt NAME`, `generated
NAME`, `renew` and `end` are what a run does with the ledger. Each is answered with a line: `ok`, or the
error's type and message.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from callsheet.errors import CallsheetError
from callsheet.ledger import states
from callsheet.ledger.states import End
from callsheet.records import Attempt, ModelType
from tests.ledger.buying import buyer, generation, intend, job, reserve
from tests.servers.forks import ROOT, Process, forks


class OtherRun:
    """The other end of the process."""

    def __init__(self, process: Process | subprocess.Popen[bytes], to: IO[str], back: IO[str]) -> None:
        self.process = process
        self._to = to
        self._back = back

    def ask(self, line: str) -> str:
        """Has it carry out a line; its answer."""
        self.send(line)
        return self._back.readline().strip()

    def send(self, line: str) -> None:
        """Has it carry out a line, and does not wait for the answer."""
        self._to.write(f"{line}\n")
        self._to.flush()

    def do(self, *lines: str) -> None:
        """Has it carry out lines, which must succeed."""
        for line in lines:
            assert self.ask(line) == "ok"

    def kill(self) -> None:
        """Kills it. Where it is no fork, nobody reaps it, so that it stays a zombie."""
        self.process.kill()
        if isinstance(self.process, Process):
            self.process.wait()
        else:
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)


@contextmanager
def other_run(url: str, *arguments: str, forked: bool = True, clock: str = "") -> Iterator[OtherRun]:
    """Starts the process, which enters its run; it is killed at the end.

    Args:
        url: the ledger.
        arguments: the others of the process.
        forked: whether it is a fork.
        clock: by how much its clock is wrong, such as `-10m`; empty: it is right.
    """
    words = ("-m", "tests.ledger.other_run", url, *arguments)
    stdin, to = os.pipe()
    back, stdout = os.pipe()
    process: Process | subprocess.Popen[bytes]
    if forked and not clock:
        process = forks().start(*words, cwd=ROOT, stdin=stdin, stdout=stdout)
    else:
        wrong_clock = ["faketime", "-f", clock] if clock else []
        command = [*wrong_clock, sys.executable, *words]
        process = subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=stdout)
    for theirs in (stdin, stdout):
        os.close(theirs)
    with open(to, "w") as writing, open(back) as reading:  # noqa: PTH123 - pipes
        other = OtherRun(process, writing, reading)
        try:
            other.do("begin")
            yield other
        finally:
            process.kill()
            process.wait()
            with suppress(BrokenPipeError):  # what it has not read
                writing.flush()


async def main(url: str, batch: str = "b", spool: str = "", busy: str = "30") -> None:
    async with buyer(url, batch, journal=Path(spool) if spool else None, busy=float(busy)) as ledger:
        attempts: dict[str, Attempt] = {}
        for line in sys.stdin:
            answer = "ok"
            try:
                match line.split():
                    case ["reserve", *names]:
                        reserved, _ = await reserve(ledger, *(job(name, ModelType.VIDEO) for name in names))
                        attempts |= {one.row_id: attempt for one, attempt in reserved}
                    case ["intend", name]:
                        await intend(ledger, attempts[name])
                    case ["pending", name]:
                        await ledger.pending(attempts[name], f"req-{name}")
                    case ["doubt", name]:
                        await ledger.transition(states.in_doubt, End(attempts[name], "no answer knows it"))
                    case ["generated", name]:
                        await ledger.generated(attempts[name], generation(name), [f"{name}.png"], "out")
                    case ["renew"]:
                        await ledger.renew()
                    case ["end"]:
                        await ledger.end_run()
            except CallsheetError as error:
                answer = f"{type(error).__name__}: {error}"
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
