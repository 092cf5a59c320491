"""`python -m flows.generate CONFIG`: a flow run from the command line, on Prefect's configured server."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from prefect import tags

from callsheet.errors import CallsheetError
from callsheet.report.summary import Summary


def main(flow: Any) -> None:
    """Runs a flow of a config, prints how it ended, and ends with the exit code of `callsheet run`."""
    parser = argparse.ArgumentParser(description=flow.description)
    parser.add_argument("config", help="the config file")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=value")
    given = parser.parse_args()
    with tags("callsheet"):  # as the deployments' runs have it: docs/automations match it
        state = asyncio.run(flow(given.config, given.overrides, return_state=True))
    print(state.name, state.message or "", sep=": ", file=sys.stderr)  # noqa: T201 - a program
    outcome = asyncio.run(state.aresult(raise_on_failure=False))
    sys.exit(outcome.exit_code if isinstance(outcome, Summary | CallsheetError) else 1)
