"""Connect: the service's address and API key, from the config and the environment or from a Prefect block.

Not a step, but what every step that talks to the service stands on. A key is never a flow parameter: Prefect
stores those in plain text.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from callsheet.config.settings import Service, Settings
from callsheet.errors import ConfigError
from callsheet.service.client import Client
from callsheet.session import api_key, checked_key, variable


async def connect(settings: Settings) -> Client:
    """A client for the config's service, to be used in an `async with`.

    Raises:
        ConfigError: the address or the key is not where the config says, or it cannot be one.
    """
    key, place = await _key(settings.service)
    return Client(await address(settings), key, key_place=place)


async def _key(service: Service) -> tuple[str, str]:
    """The API key, and where it is from, in words."""
    if service.block is not None:
        place = f"the CallsheetService block {service.block!r}"
        key = (await _service(service.block)).api_key.get_secret_value()
    elif service.api_key_block is not None:
        place = f"the Prefect Secret block {service.api_key_block!r}"
        key = await _secret(service.api_key_block)
    else:
        return api_key(service.api_key_env), variable(service.api_key_env)
    return checked_key(key, place), place


async def address(settings: Settings) -> str:
    """The base URL of the config's service.

    Raises:
        ConfigError: the block that the config names does not have one.
    """
    if settings.service.block is not None:
        return str((await _service(settings.service.block)).base_url)
    return str(settings.service.base_url)  # the config has one where it names no block


async def _service(name: str) -> Any:
    """The CallsheetService block of a name."""
    from tasks.service_block import CallsheetService

    try:
        return await CallsheetService.aload(name)
    except RuntimeError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise
        wrong = error.__cause__.errors(include_url=False, include_input=False)[0]
        field, reason = ".".join(map(str, wrong["loc"])), wrong["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"service.block: {field} of the CallsheetService block {name!r} {reason}",
            hint="Correct it in the Prefect UI under Blocks.",
        ) from None
    except ValueError:
        raise ConfigError(
            f"service.block: there is no CallsheetService block named {name!r}",
            hint="Create it in the Prefect UI under Blocks. Where the UI does not offer the type, run "
            "`prefect block register -m tasks.service_block` first.",
        ) from None


async def _secret(name: str) -> str:
    """The value of the Prefect Secret block of a name."""
    from prefect.blocks.system import Secret

    try:
        secret: Any = await Secret.aload(name)
    except ValueError as error:
        raise ConfigError(
            f"service.api_key_block: there is no Prefect Secret block named {name!r}",
            hint="Create it in the Prefect UI under Blocks, or use service.api_key_env.",
        ) from error
    return str(secret.get())
