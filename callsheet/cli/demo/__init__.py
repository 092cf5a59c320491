"""`demo`: a real batch against a service on this machine. Its config, prompts and an image are here."""

from __future__ import annotations

import asyncio
import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from callsheet.cli import STARTED
from callsheet.cli.books import rebind
from callsheet.cli.output import err, load_settings, out
from callsheet.errors import ConfigError
from callsheet.files import PartialFile

if TYPE_CHECKING:
    from callsheet.report.summary import Summary

FOLDER = Path("out/demo")
"""Where the demo's files are, in the working directory; the paths in the config begin with it."""

KEY = "sk_demo"
BACKLOT = (
    *("--state", f"{FOLDER}/backlot", "--api-key", KEY, "--balance", "25.0000"),
    *("--image-seconds", "1.5", "--video-seconds", "6", "--concurrency", "8"),
)
PORT = FOLDER / "port"  # where files of an unfinished demo wait: the port is in their URLs


def demo_config() -> Path:
    """The demo's config, in `out/demo` with its prompts and image; files that are there already are kept.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in ("demo.yaml", "prompts.csv", "lamp.png"):
            if not (FOLDER / name).exists():
                with PartialFile(FOLDER / name) as partial:
                    partial.file.write(files(__name__).joinpath(name).read_bytes())
                    partial.commit()
    except OSError as error:
        raise ConfigError(
            f"{FOLDER} cannot be written: {error.strerror}", hint="Run the demo in a folder of yours."
        ) from None
    return FOLDER / "demo.yaml"


def demo() -> None:
    """Run a real batch against a service on this machine: no account, no money, real images and videos."""
    from backlot.errors import SettingsError
    from backlot.server import dashboard_of, spawn
    from callsheet.cli.terminal import Terminal, run_watched
    from callsheet.present import results
    from callsheet.present.console import print_page
    from callsheet.steps.batch import generate

    config = demo_config()
    port = PORT.read_text() if PORT.exists() else "0"
    try:
        with spawn(*BACKLOT, "--port", port) as (base_url, process):
            with PartialFile(PORT) as partial:
                partial.file.write(base_url.rpartition(":")[2].encode())
                partial.commit()
            os.environ |= {"CALLSHEET_BASE_URL": base_url, "CALLSHEET_API_KEY": KEY}
            err.print(f"The backlot, a service on this machine, listens at {base_url}.")
            if link := dashboard_of(process):
                err.print(f"What it sees, while the demo runs: {link}")
            settings = load_settings(config, None)
            asyncio.run(rebind(settings))  # its backlot may have another port this time
            summary = run_watched(generate(settings, approved=False, began=STARTED), Terminal())
    except SettingsError:
        raise ConfigError(
            "the demo's backlot did not start",
            hint="The line above says why. End what is in its way, or start afresh: rm -r out/demo",
        ) from None
    if not summary.pending:
        PORT.unlink(missing_ok=True)
    # Its service has ended: nothing can be typed.
    print_page(out, results.screen(summary, None, media=f"{FOLDER}/media"))
    _say_what_next(summary)
    # The demo has a row that the service refuses, on purpose.
    raise typer.Exit(0 if summary.outcome in ("complete", "partial") else summary.exit_code)


def _say_what_next(summary: Summary) -> None:
    """Prints where the demo's files are, and what to try next."""
    report = Path(summary.manifest).parent
    if summary.outcome == "stopped" or summary.pending:
        out.print("\nThe same command again goes on from here.")
    elif summary.submissions == 0:
        out.print("\n[green]Nothing was bought:[/] everything here is paid for and stored already.")
        out.print("To start afresh: rm -r out/demo")
    else:
        out.print("\nThe same command again buys nothing.")
    out.print(f"The images and videos are in {report.parent / 'media'}.")
    out.print(f"On purpose, one row is wrong ({report / 'rejects.csv'}) and the service refuses one.")
    if summary.details.contact_sheet:
        out.print("Look at every job on one page, keep or reject each, with one key a decision:")
        out.print(f"callsheet review {report.parent / 'demo.yaml'}")
