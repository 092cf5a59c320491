"""What `init` makes of a batch file, and what a quote and a run then say of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import yaml

from tests.cli.test_commands import callsheet
from tests.cli.test_files import QUICK
from tests.cli.test_rows import printed
from tests.conftest import Project
from tests.servers.forks import forks

Make = Callable[..., Project]


def given(made: Project, name: str, content: str | bytes, *options: str) -> dict[str, Any]:
    """What `init` writes into `input` for a file with this text."""
    (made.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    printed("init", name, "new.yaml", *options)
    return config(made, "new.yaml")


def config(made: Project, name: str) -> dict[str, Any]:
    """What a config has in `input`."""
    return dict(yaml.safe_load((made.folder / name).read_text())["input"])


def ran(*words: str, code: int = 0) -> dict[str, Any]:
    """The summary of `run` for a config, without its pictures."""
    done = callsheet("run", *words, "--json", *QUICK)
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout))


def quote() -> dict[str, Any]:
    return dict(json.loads(printed("quote", "new.yaml", "--json")))


ON_ITS_TERMINAL = """
import fcntl, os, runpy, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C goes to it
runpy.run_module("callsheet", run_name="__main__", alter_sys=True)
"""


def on_a_terminal(answers: str, *words: str) -> str:
    """What a command prints on a terminal of its own, into which somebody types these answers when asked."""
    terminal, theirs = os.openpty()
    environment = os.environ | {"COLUMNS": "120", "LINES": "40", "TERM": "dumb"}
    program = ("-c", ON_ITS_TERMINAL, *words)
    with forks().start(*program, env=environment, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        shown, typed = b"", answers.encode()
        with os.fdopen(terminal, "r+b", buffering=0) as screen, suppress(OSError):  # the other end closes
            while some := screen.read(4_096):
                shown += some
                if typed and b"> " in shown:
                    screen.write(typed)
                    typed = b""
    return shown.decode()


SHOTS = "id,image_prompt,motion_prompt,seconds\na,A heron on a pond,The heron lifts its head,5\n"


def asked(made: Project, answers: str, text: str = SHOTS) -> str:
    """What `init x.csv` says on a terminal to these answers."""
    (made.folder / "x.csv").write_text(text)
    return on_a_terminal(answers, "init", "x.csv")
