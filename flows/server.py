"""The Prefect server of a run: the one that is configured, or one that the run brings along."""

from __future__ import annotations

import signal

from prefect import get_client
from prefect.settings import PREFECT_API_URL

from callsheet.config.yaml_lines import masked
from callsheet.errors import ConfigError


def start_server() -> None:
    """Starts it now, and deaf to Ctrl-C; where `PREFECT_API_URL` names another, sees that this one is there.

    A terminal sends Ctrl-C to every process of the command. The server would end before the run does, and
    Prefect's client would ask it again and again before each step of the run's polite end.

    Raises:
        ConfigError: it cannot be reached.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what is started now inherits it
    try:
        client = get_client(sync_client=True)  # the server is started with the first client
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if wrong := client.api_healthcheck():
        raise ConfigError(
            f"the Prefect server at {masked(PREFECT_API_URL.value() or '')} cannot be reached: {wrong}",
            hint="It takes some 20 seconds to start. Without PREFECT_API_URL a run brings its own along.",
        )
