"""Connect: the API key, from the environment or a Prefect Secret block, and the client that uses it.

Not a step, but what every step that talks to the service stands on. A key is never a flow parameter: Prefect
stores those in plain text.
"""

from __future__ import annotations

from typing import Any

from callsheet.config.settings import Settings
from callsheet.errors import ConfigError
from callsheet.service.client import Client
from callsheet.session import api_key


async def connect(settings: Settings) -> Client:
    """A client for the config's service, to be used in an `async with`.

    Raises:
        ConfigError: the key is not where the config says.
    """
    block = settings.service.api_key_block
    if block is None:
        return Client(settings.service.base_url, api_key(settings.service.api_key_env))
    from prefect.blocks.system import Secret

    try:
        secret: Any = await Secret.aload(block)
    except ValueError as error:
        raise ConfigError(
            f"service.api_key_block: there is no Prefect Secret block named {block!r}",
            hint="Create it in the Prefect UI under Blocks, or use service.api_key_env.",
        ) from error
    return Client(settings.service.base_url, str(secret.get()))
