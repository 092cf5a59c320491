"""The CallsheetService block: a service's address and API key, kept by the Prefect server.

A person saves one in the UI, under Blocks; a config or a form names it. The server offers the type once it is
registered there: `callsheet up` does it, and by hand `prefect block register -f tasks/service_block.py`.
"""

from __future__ import annotations

from typing import ClassVar

from prefect.blocks.core import Block
from pydantic import Field, SecretStr

from callsheet.config.checks import ServiceAddress


class CallsheetService(Block):
    """The service that batches are bought from, and the API key of one of its workspaces."""

    _block_type_name: ClassVar[str | None] = "CallsheetService"
    _block_type_slug: ClassVar[str | None] = "callsheet-service"
    _description: ClassVar[str | None] = __doc__

    base_url: ServiceAddress = Field(
        title="Base URL", description="The service's address without the version: https://..."
    )
    api_key: SecretStr = Field(title="API key", description="sk_...; the server keeps it encrypted.")


async def register() -> None:
    """Makes the type known to the configured Prefect server, or brings it up to date there."""
    await CallsheetService.aregister_type_and_schema()
