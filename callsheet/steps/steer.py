"""Change: a person's word reaches the runs of a batch that are at work, through the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import anyio

from callsheet.config.settings import BatchSettings
from callsheet.errors import ConfigError, NotTaken
from callsheet.ledger import changes, words
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.processes import user_name
from callsheet.records import OtherRun


@dataclass(frozen=True, slots=True)
class Changed:
    """What was changed reached these runs; `allowed`: what the batch may come to by what was approved or
    quoted, in dollars, where no limit bounds it from now on, and otherwise None.
    """

    runs: Sequence[OtherRun]
    allowed: Decimal | None = None


LOOK = 0.2  # seconds between two looks whether the runs have taken a change
PATIENCE = 60.0  # seconds that they have for it; a run that is killed is known to be dead by then


async def change_setting(
    settings: BatchSettings, values: Mapping[str, Any], by: str = "", *, patience: float = PATIENCE
) -> Changed:
    """Changes settings for the runs of the batch that are at work, and waits until they go by that.

    Args:
        values: by the settings' dotted names, as JSON has them; or `changes.PAUSED`.
        by: who; the user of this process where it is empty.
        patience: seconds to wait for the runs.

    Raises:
        ConfigError: no run of the batch is at work, and nothing was changed.
        NotTaken: a run does not answer.
        LedgerError: the ledger cannot be written, or there is none.
    """
    check_exists(settings.ledger.url)
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        number, runs = await ledger.write(changes.enter_change, values, by or user_name())
        allowed = await ledger.read(words.allowed)
        with anyio.move_on_after(patience):
            while left := await ledger.read(changes.not_taken, number):  # noqa: ASYNC110 - a process
                await anyio.sleep(LOOK)
        left = await ledger.read(changes.not_taken, number)
    if not runs:
        raise ConfigError(
            f"no run of {settings.batch} is at work, so there is nothing to change",
            hint="Change the config for the next run.",
        )
    if left:
        raise NotTaken(
            f"a run has not taken the change in {patience:g} s: {left[0].line()}",
            hint="The change is in the ledger, and counts as soon as that run answers. To be sure, end the "
            "run: Ctrl-C in its terminal, or Cancel in the Prefect UI.",
        )
    is_unlimited = changes.LIMIT in values and values[changes.LIMIT] is None
    return Changed(runs, allowed if is_unlimited else None)
