"""Connect: a client for the service, with the address and the API key that the config and environment say.

Not a step, but what every step that talks to the service stands on. Blocks of Prefect are read by flow runs
alone (`tasks/service_block.py`).
"""

from __future__ import annotations

import os

from callsheet.config.settings import Settings
from callsheet.errors import ConfigError
from callsheet.service.client import Client


async def connect(settings: Settings) -> Client:
    """A client for the config's service, to be used in an `async with`.

    Raises:
        ConfigError: the address or the key is not where the config says, or it cannot be one.
    """
    url, service = address(settings), settings.service
    if service.api_key_block is not None:
        raise _only_in_prefect("api_key_block")
    return client_of(url, service.api_key_env, timeout=service.timeout)


def address(settings: Settings) -> str:
    """The base URL of the config's service.

    Raises:
        ConfigError: the config names a block of Prefect, which only a flow run can read.
    """
    if settings.service.block is not None:
        raise _only_in_prefect("block")
    return str(settings.service.base_url)  # the config has one where it names no block


def _only_in_prefect(field: str) -> ConfigError:
    return ConfigError(
        f"service.{field} names a block of Prefect, which only runs in Prefect read",
        hint=f"Start a run of a deployment, or say --set service.{field}=null --set "
        "service.base_url=https://... here, with the key in the environment.",
    )


def client_of(url: str, variable: str, *, timeout: float = 300.0) -> Client:
    """A client of the service at this base URL, whose API key is in an environment variable.

    `timeout`: seconds for a submission.

    Raises:
        ConfigError: the variable is not set, or it has no key.
    """
    key, place = os.environ.get(variable), f"the environment variable {variable}"
    if key is None:
        hint = f"export {variable}=sk_... A run in Prefect has the variables of its worker."
        raise ConfigError(f"the API key is missing: {place} is not set", hint=hint)
    return Client(url, key, key_place=place, generation_timeout=timeout)
