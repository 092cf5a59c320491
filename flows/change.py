"""`change-batch`: another budget, other limits or a pause for the runs of a batch that are at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.states import Completed

from callsheet.config.changes import changed_values
from callsheet.config.form import ConfigFile, Overrides
from callsheet.errors import CallsheetError, ConfigError
from callsheet.ledger.changes import PAUSED
from callsheet.plain_text import counted
from callsheet.steps.change import change
from flows.names import failed, run_name
from tasks import artifacts


@flow(name="change-batch", flow_run_name=run_name, persist_result=False)
async def change_batch(config: ConfigFile, changes: Overrides = (), paused: bool | None = None) -> Any:
    """Changes the runs of a batch that are at work, within seconds. The config stays as it is.

    Args:
        config: The config file, from the working directory.
        changes: Settings to change, each as `budget.limit=20.00` or `limits.image_rpm=30`.
        paused: Hold the buying, or let it go on.
    """
    try:
        settings, values = changed_values(Path(config), changes)
        await artifacts.name_run(settings.batch)
        values = {**values, **({} if paused is None else {PAUSED: paused})}
        if not values:
            raise ConfigError("there is nothing to change", hint="Fill in changes or paused.")
        runs = await change(settings, values)
        what = ", ".join(f"{name} is {value}" for name, value in values.items())
        return Completed(message=f"{counted(len(runs), 'run')} of {settings.batch}: {what}", data=None)
    except CallsheetError as error:
        return failed(error)
