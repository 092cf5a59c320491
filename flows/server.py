"""The Prefect server that a run brings along where none is configured."""

from __future__ import annotations

import signal

from prefect import get_client


def start_server() -> None:
    """Starts it now, and deaf to Ctrl-C; does nothing where `PREFECT_API_URL` names another.

    A terminal sends Ctrl-C to every process of the command. The server would end before the run does, and
    Prefect's client would ask it again and again before each step of the run's polite end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what is started now inherits it
    try:
        get_client(sync_client=True)  # the server is started with the first client
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
