"""A project's automations, `automations/*.yaml`: for `callsheet up` and `python -m flows.deployments`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml
from prefect import get_client
from prefect.client.orchestration import PrefectClient
from prefect.events.schemas.automations import Automation, AutomationCore
from prefect.exceptions import ObjectNotFound
from pydantic import ValidationError

from callsheet.errors import ConfigError

FOLDER = Path("automations")
BLOCK = "block_document_id"  # in a file, it is the name of a Webhook block; on the server, its id


async def make() -> list[str]:
    """Makes the automations of the project in this folder, or renews those that differ from their file.

    One that somebody has switched off stays off.

    Returns:
        What was made or renewed, and what cannot be made yet and why, in lines.

    Raises:
        ConfigError: a file has no automation.
    """
    lines = []
    waiting: dict[str, list[str]] = {}  # files, by the block that they name
    async with get_client() as client:
        for file in await asyncio.to_thread(lambda: sorted(FOLDER.glob("*.yaml"))):
            try:
                content = yaml.safe_load(await asyncio.to_thread(file.read_text, "utf-8"))
                if block := await _missing_block(content["actions"], client):
                    waiting.setdefault(block, []).append(file.name)
                elif line := await _make(content, client):
                    lines.append(f"{file}: {line}")
            except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValidationError) as error:
                raise ConfigError(f"{file}: there is no automation in it", hint=str(error)) from None
    for block, files in waiting.items():
        are = "is" if len(files) == 1 else "are"
        lines.append(
            f"{FOLDER}: {', '.join(files)} {are} not made: the server has no Webhook block {block!r}. "
            "Save one under Blocks in the UI, and start this again"
        )
    return lines


async def _missing_block(actions: list[dict[str, Any]], client: PrefectClient) -> str:
    """Puts the ids of blocks in the place of their names; returns the name of one that is not there."""
    for action in actions:
        if block := action.get(BLOCK):
            try:
                action[BLOCK] = (await client.read_block_document_by_name(str(block), "webhook")).id
            except ObjectNotFound:
                return str(block)
    return ""


async def _make(content: dict[str, Any], client: PrefectClient) -> str:
    automation = AutomationCore.model_validate(content)
    existing = await client.read_automations_by_name(automation.name)
    if not existing:
        await client.create_automation(automation)
        return f"the automation {automation.name} is made"
    if _content(existing[0]) == _content(automation):  # a new trigger would forget what it waits for
        return ""
    automation.enabled = existing[0].enabled
    await client.update_automation(existing[0].id, automation)
    return f"the automation {automation.name} is as the file has it now"


def _content(automation: AutomationCore | Automation) -> dict[str, Any]:
    """What a file says of it; the server adds ids."""
    parts = automation.model_dump(include={"description", "trigger", "actions"})
    parts["trigger"].pop("id", None)
    return parts
