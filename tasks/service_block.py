"""Where to buy, and with which key: a CallsheetService block of the Prefect server, or what the config says.

A person saves a block in the UI, under Blocks; a config or a form names it. The server offers the type once
it is registered: `callsheet up` does it, and by hand `prefect block register -f tasks/service_block.py`.
A key is never a flow parameter: Prefect stores those in plain text.
"""

from __future__ import annotations

from typing import Any, ClassVar

from prefect.blocks.core import Block
from prefect.blocks.system import Secret
from pydantic import Field, SecretStr, ValidationError

from callsheet.config.setting_types import ServiceAddress
from callsheet.config.settings import Settings
from callsheet.errors import ConfigError
from callsheet.service.client import Client
from callsheet.steps import connect as library


class CallsheetService(Block):
    """The service that batches are bought from, and the API key of one of its workspaces."""

    _block_type_name: ClassVar[str | None] = "CallsheetService"
    _block_type_slug: ClassVar[str | None] = "callsheet-service"
    _description: ClassVar[str | None] = __doc__

    base_url: ServiceAddress = Field(
        title="Base URL", description="The service's address without the version: https://..."
    )
    api_key: SecretStr = Field(title="API key", description="sk_...; the server keeps it encrypted.")


async def connect(settings: Settings) -> Client:
    """A client for the config's service, to be used in an `async with`.

    Raises:
        ConfigError: the address or the key is not where the config says, or it cannot be one.
    """
    service = settings.service
    if service.block is not None:
        block = await _block(service.block)
        url, key = str(block.base_url), block.api_key.get_secret_value()
        place = f"the CallsheetService block {service.block!r}"
    elif service.api_key_block is not None:
        url = library.address(settings)
        try:
            secret: Any = await Secret.aload(service.api_key_block)
        except ValueError:
            raise ConfigError(
                f"service.api_key_block: there is no Prefect Secret block named {service.api_key_block!r}",
                hint="Create it in the Prefect UI under Blocks, or use service.api_key_env.",
            ) from None
        key = str(secret.get())
        place = f"the Prefect Secret block {service.api_key_block!r}"
    else:
        return await library.connect(settings)
    return Client(url, key, key_place=place, generation_timeout=service.timeout)


async def _block(name: str) -> CallsheetService:
    try:
        return await CallsheetService.aload(name)
    except RuntimeError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise
        problem = error.__cause__.errors(include_url=False, include_input=False)[0]
        field, reason = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
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
