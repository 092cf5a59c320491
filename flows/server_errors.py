"""What is said where the Prefect server fails, or is not there: its client prints a stack trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.settings import PREFECT_API_URL

from callsheet.config.load import masked
from callsheet.errors import ConfigError


@contextmanager
def in_words(hint: str = "PREFECT_API_URL or a profile names it. Is it running?") -> Iterator[None]:
    """Within it, an error of Prefect's client is an error of Callsheet.

    Raises:
        ConfigError: the server fails, or is not there.
    """
    try:
        yield
    except httpx.HTTPError as error:
        server = masked(str(PREFECT_API_URL.value()))
        raise ConfigError(
            f"the Prefect server at {server} fails: {error or type(error).__name__}", hint=hint
        ) from None
