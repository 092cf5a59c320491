"""`mcp`: serves the tools of an agent."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from callsheet.cli.purse import AGENT
from callsheet.errors import ConfigError


def mcp(
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Under which the agent buys and marks.")
    ] = AGENT,
) -> None:
    """Serve the tools of an agent on stdin and stdout (the Model Context Protocol).

    The agent sees the folder in which this was started, and nothing else. It buys by a purse alone, which a
    person gives: callsheet purse CONFIG AMOUNT --to NAME.
    """
    if not find_spec("fastmcp"):
        raise ConfigError(
            "callsheet mcp needs FastMCP, which is not installed", hint="Install callsheet[mcp]."
        )
    if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):  # it becomes a word of commands
        raise ConfigError(f"--name '{name}' is no name", hint="Use letters, digits, _, . and -.")
    from callsheet.cli.agent_tools import serve

    serve(Path.cwd(), name)
