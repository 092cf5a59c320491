"""Change: a person's word reaches the runs of a batch that are at work, through the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callsheet.config.settings import BatchSettings
from callsheet.errors import ConfigError
from callsheet.ledger import changes
from callsheet.ledger.databases import check_exists
from callsheet.ledger.doubts import login
from callsheet.ledger.ledger import Ledger
from callsheet.records import OtherRun


async def change(settings: BatchSettings, values: Mapping[str, Any], by: str = "") -> Sequence[OtherRun]:
    """Changes settings for the runs of the batch that are at work, and returns those; they follow in seconds.

    Args:
        values: by the settings' dotted names, as JSON has them; or `changes.PAUSED`.
        by: who; the user of this process where it is empty.

    Raises:
        ConfigError: no run of the batch is at work, and nothing was changed.
        LedgerError: the ledger cannot be written, or there is none.
    """
    check_exists(settings.ledger.url)
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        runs = await ledger.write(changes.change, values, by or login())
    if not runs:
        raise ConfigError(
            f"no run of {settings.batch} is at work, so there is nothing to change",
            hint="Change the config for the next run.",
        )
    return runs
