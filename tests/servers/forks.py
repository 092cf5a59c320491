"""Python programs without the second that their imports take: forks of a process that has imported already.

A fork is a whole process, with its own arguments, environment, folder, streams and number, and it ends as
Python ends. Only the modules that it imports are there already; but not what reads the environment while it
is imported: Prefect, and `callsheet.cli`, whose consoles have the width that COLUMNS says. Tests of how a
program starts, or of what it imports, start a process of their own.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

ROOT = Path(__file__).parents[2]
IMPORTED = (
    "callsheet.steps.batch",
    "callsheet.config.load",
    "callsheet.report.against_account",
    "rich.progress",
    "rich.table",
    "typer",
)
IMPORTED_LATER = (
    "numpy",
    "sqlalchemy.dialects.sqlite",
    "anyio._backends._asyncio",
    "encodings.idna",
    "httpcore",
    "rich._emoji_codes",
)
"""What every run imports when it needs it: NumPy for its first Decimal in a table, which takes 0.1 s."""
NEVER_IMPORTED = {"prefect", "callsheet.cli"}


class Process:
    """A fork that runs, with what tests need of `subprocess.Popen`.

    Args:
        status: the end of a pipe that says the fork's number, and its exit code when it has ended.
    """

    def __init__(self, status: int) -> None:
        self._status = status
        self.pid = self._number()
        self.returncode: int | None = None

    def _number(self) -> int:
        content = os.read(self._status, 4)
        assert len(content) == 4, "the process that waits for the fork is gone"
        return int.from_bytes(content, "little", signed=True)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        """Waits for its end; the exit code is negative where a signal has ended it."""
        if self.returncode is None:
            self.returncode = self._number()
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it still runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since, and its exit code is on its way
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it, if it still runs."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


class Forks:
    """The process that forks; it starts at once.

    Args:
        prefix: the words of a command that starts it, such as `unshare`.
        env: its environment while it imports; None for that of this process.
    """

    def __init__(self, *prefix: str, env: Mapping[str, str] | None = None) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._lock = threading.Lock()

    def start(
        self,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: IO[Any] | int = 0,
        stdout: IO[Any] | int = 1,
        stderr: IO[Any] | int = 2,
    ) -> Process:
        """Starts what `python <words>` would start; the words begin with `-m MODULE` or `-c PROGRAM`."""
        request = {
            "words": words,
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        streams = [each if isinstance(each, int) else each.fileno() for each in (stdin, stdout, stderr)]
        read, write = os.pipe()
        try:
            with self._lock:
                message = json.dumps(request).encode() + b"\n"
                sent = socket.send_fds(self._channel, [message], [*streams, write])
                self._channel.sendall(message[sent:])
        finally:
            os.close(write)
        return Process(read)

    def run(
        self,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: IO[Any] | int | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs it to its end, without an stdin; the answer has what it printed, but for a given `stdout`."""
        with (
            open(os.devnull) as nothing,  # noqa: PTH123 - not a file on a disk
            TemporaryFile("w+", encoding="utf-8") as out,
            TemporaryFile("w+", encoding="utf-8") as err,
        ):
            to = out if stdout is None else stdout
            process = self.start(*words, cwd=cwd, env=env, stdin=nothing, stdout=to, stderr=err)
            try:
                code = process.wait()
            finally:
                process.kill()
            for each in (out, err):
                each.seek(0)
            return subprocess.CompletedProcess(words, code, out.read(), err.read())

    def close(self) -> None:
        """Ends it; forks that still run go on."""
        self._channel.close()
        self._process.wait()


@functools.cache
def forks() -> Forks:
    """One for all tests of this process; it ends with it."""
    made = Forks()
    atexit.register(made.close)
    return made


# ---- the other end


def _serve(channel: socket.socket) -> list[str]:
    """Forks for each request; returns in the fork, as the process that was asked for: its words."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks that keep the others
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 2**16, 4)
        if not message:
            os._exit(0)
        while not message.endswith(b"\n"):
            message += channel.recv(2**16)
        if os.fork() == 0:
            channel.close()
            return _keep(json.loads(message), descriptors)
        for each in descriptors:
            os.close(each)


def _keep(request: dict[str, Any], descriptors: list[int]) -> list[str]:
    """Forks once more; says on the last descriptor the fork's number, and in the end its exit code."""
    *streams, status = descriptors
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(status)
        return _become(request, streams)
    for each in streams:
        os.close(each)
    with suppress(BrokenPipeError):  # nobody wants to know
        os.write(status, pid.to_bytes(4, "little", signed=True))
        _, ended = os.waitpid(pid, 0)
        os.write(status, os.waitstatus_to_exitcode(ended).to_bytes(4, "little", signed=True))
    os._exit(0)


def _become(request: dict[str, Any], streams: list[int]) -> list[str]:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` ignores it for all that it starts
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    words: list[str] = request["words"]
    return words


def _carry_out(option: str, program: str, *arguments: str) -> None:
    """Does what `python <words>` does, as the program `__main__`."""
    sys.argv = [option, *arguments]
    sys.path[0] = str(Path.cwd()) if option == "-m" else ""
    if option == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), main.__dict__)


def _leave(code: int | None) -> None:
    """Ends the process when Python has done all that it does at its end, but for tearing down modules.

    Nobody sees that, and it would copy the memory of all that is imported, as it changes every object.

    Args:
        code: the exit code; None where an error has ended the program, which Python sees to.
    """
    if code is None:
        return
    with suppress(OSError, ValueError):  # Python says so by itself
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    code: int | None = 0
    atexit.register(lambda: _leave(code))  # what is registered first is called last
    for name in (*IMPORTED, *IMPORTED_LATER):
        importlib.import_module(name)
    assert not NEVER_IMPORTED & sys.modules.keys()
    assert threading.active_count() == 1, "a fork has one thread only"
    gc.freeze()  # a collection in a fork would copy all that is imported
    try:
        _carry_out(*_serve(socket.socket(fileno=int(sys.argv[1]))))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    except BaseException:
        code = None
        raise


if __name__ == "__main__":
    main()
