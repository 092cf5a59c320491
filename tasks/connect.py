"""Connect: a client whose address and key may be in blocks of the Prefect server.

A key is never a flow parameter: Prefect stores those in plain text.
"""

from __future__ import annotations

from prefect.blocks.system import Secret
from pydantic import ValidationError

from callsheet.config.settings import Settings
from callsheet.errors import ConfigError
from callsheet.service.client import Client
from callsheet.steps import connect as library
from tasks.service_block import CallsheetService


async def connect(settings: Settings) -> Client:
    """A client for the config's service, to be used in an `async with`.

    Raises:
        ConfigError: the address or the key is not where the config says, or it cannot be one.
    """
    service = settings.service
    if service.block is not None:
        block = await _service(service.block)
        url, key = str(block.base_url), block.api_key.get_secret_value()
        place = f"the CallsheetService block {service.block!r}"
    elif service.api_key_block is not None:
        url, key = library.address(settings), await _secret(service.api_key_block)
        place = f"the Prefect Secret block {service.api_key_block!r}"
    else:
        return await library.connect(settings)
    key = library.checked_key(key, place)
    return Client(url, key, key_place=place, generation_timeout=service.timeout)


async def _service(name: str) -> CallsheetService:
    """The CallsheetService block of a name."""
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
            "`prefect block register -f tasks/service_block.py` first.",
        ) from None


async def _secret(name: str) -> str:
    """The value of the Prefect Secret block of a name."""
    try:
        secret = await Secret.aload(name)
    except ValueError as error:
        raise ConfigError(
            f"service.api_key_block: there is no Prefect Secret block named {name!r}",
            hint="Create it in the Prefect UI under Blocks, or use service.api_key_env.",
        ) from error
    return str(secret.get())  # type: ignore[attr-defined]
