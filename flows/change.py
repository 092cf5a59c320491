"""`change-batch`: another budget, other limits or a pause for the runs of a batch that are at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect.states import Completed

from callsheet.config.changes import changed_values
from callsheet.config.form import ConfigFile, Overrides
from callsheet.errors import ConfigError
from callsheet.ledger.changes import PAUSED
from callsheet.plain_text import counted
from callsheet.steps.change import change
from flows.names import batch_flow, begin


@batch_flow("change-batch")
async def change_batch(config: ConfigFile, changes: Overrides = (), paused: bool | None = None) -> Any:
    """Changes the runs of a batch that are at work, within seconds. The config stays as it is.

    Args:
        config: The config file, from the working directory.
        changes: Settings to change, each as `budget.limit=20.00` or `limits.image_rpm=30`.
        paused: Hold the buying, or let it go on.
    """
    settings, values = changed_values(Path(config), changes)
    await begin(settings)
    if paused is not None:
        values = {**values, PAUSED: paused}
    if not values:
        raise ConfigError("there is nothing to change", hint="Fill in changes or paused.")
    changed = await change(settings, values)
    what = ", ".join(f"{name} is {value}" for name, value in values.items())
    said = "; ".join(filter(None, [what, changed.bound_in_words()]))
    return Completed(message=f"{counted(len(changed.runs), 'run')} of {settings.batch}: {said}", data=None)
