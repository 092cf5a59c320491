"""The Prefect server of a run: the one that is configured, or one that the demo starts."""

from __future__ import annotations

import signal

from prefect import get_client
from prefect.settings import PREFECT_API_URL

from callsheet.config.yaml_lines import masked
from callsheet.errors import ConfigError


def configured_server() -> str | None:
    """The API's address in Prefect's settings, where they name one."""
    url: str | None = PREFECT_API_URL.value()
    return url


def start_server() -> None:
    """Checks that the configured server answers; where none is configured, starts one for this process.

    A terminal sends Ctrl-C to every process of the command, and the server must not end before the run does:
    it ignores Ctrl-C.

    Raises:
        ConfigError: the server cannot be reached, or did not start.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the server's process inherits it
    try:
        client = get_client(sync_client=True)  # starts the server, where it has to be started
    except RuntimeError as error:
        raise ConfigError(
            f"a Prefect server could not be started: {error}",
            hint="Nothing was bought. On a busy machine, run the command again later.",
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if wrong := client.api_healthcheck():
        raise ConfigError(
            f"the Prefect server at {masked(PREFECT_API_URL.value() or '')} cannot be reached: {wrong}",
            hint="A server takes some 20 seconds to start. With --without-prefect the run needs none.",
        )
