"""`demo`: a real batch against a service on this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from callsheet.cli.demo import demo_config
from callsheet.cli.ledger import rebind
from callsheet.cli.options import load_settings
from callsheet.cli.running import run_watched
from callsheet.errors import ConfigError

if TYPE_CHECKING:
    from callsheet.report.summary import Summary

KEY = "sk_demo"
BACKLOT = (
    *("--state", "out/demo/backlot", "--api-key", KEY, "--balance", "25.0000"),
    *("--image-seconds", "1.5", "--video-seconds", "6", "--concurrency", "8"),
)
PORT = Path("out/demo/port")  # where files of an unfinished demo wait: the port is in their URLs


def demo() -> None:
    """Run a real batch against a service on this machine: no account, no money, real images and videos."""
    from backlot.errors import SettingsError
    from backlot.server import dashboard_of, spawn
    from callsheet.cli import show
    from callsheet.cli.output import err
    from callsheet.cli.terminal import Terminal

    config = demo_config()
    port = PORT.read_text() if PORT.exists() else "0"
    terminal = Terminal()
    try:
        with spawn(*BACKLOT, "--port", port) as (base_url, process):
            PORT.write_text(base_url.rpartition(":")[2])
            os.environ |= {"CALLSHEET_BASE_URL": base_url, "CALLSHEET_API_KEY": KEY}
            err.print(f"The backlot, a service on this machine, listens at {base_url}.")
            if link := dashboard_of(process):
                err.print(f"What it sees, while the demo runs: {link}", soft_wrap=True, highlight=False)
            asyncio.run(rebind(load_settings(config, None)))  # its backlot may have another port this time

            def start() -> Awaitable[Summary]:
                from callsheet.steps.batch import generate

                return generate(load_settings(config, None), approved=False)

            summary = run_watched(start, terminal)
    except SettingsError:
        raise ConfigError(
            "the demo's backlot did not start",
            hint="The line above says why. End what is in its way, or start afresh: rm -r out/demo",
        ) from None
    if not summary.pending:
        PORT.unlink(missing_ok=True)
    show.show_summary(summary, None, media="out/demo/media")  # its service has ended: nothing can be typed
    show.show_demo(summary)
    # The demo has a row that the service refuses, on purpose.
    raise typer.Exit(0 if summary.outcome in ("complete", "partial") else summary.exit_code)
