"""`change-batch`: another budget, other limits or a pause for the runs of a batch that are at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from prefect import flow
from prefect.states import Completed

from callsheet.config.form import ConfigFile, Overrides
from callsheet.config.load import changed_values
from callsheet.config.setting_types import Text
from callsheet.errors import ConfigError
from callsheet.ledger.changes import PAUSED
from callsheet.plain_text import counted
from callsheet.present import allowances
from callsheet.steps.steer import change_setting
from flows.names import begin, ends_in_a_state, run_name
from tasks import artifacts


@flow(
    name="change-batch",
    flow_run_name=run_name,
    retries=0,
    retry_delay_seconds=0,
    persist_result=False,
)
@ends_in_a_state
async def change_batch(
    config: ConfigFile,
    changes: Overrides = (),
    buying: Literal["leave as it is", "pause", "go on"] = "leave as it is",
    name: Text | None = None,
) -> Any:
    """Changes the runs of a batch that are at work, within seconds. The config stays as it is.

    Args:
        config: The config file, from the working directory.
        changes: Settings to change, each as `budget.limit=20.00` or `limits.image_rpm=30`.
        buying: Pause it, or let it go on. What was paused stays so, unless you say otherwise.
        name: Your name. It is kept in the ledger.
    """
    settings, values = changed_values(Path(config), changes)
    await begin(settings)
    if buying != "leave as it is":
        values = {**values, PAUSED: buying == "pause"}
    if not values:
        raise ConfigError("there is nothing to change", hint="Fill in changes, or choose for the buying.")
    changed = await change_setting(settings, values, name or "somebody in the Prefect UI")
    new_values = ", ".join(allowances.changed(setting, value) for setting, value in values.items())
    await artifacts.name_run(settings.batch, new_values)
    message = "; ".join(filter(None, [new_values, allowances.without_limit(changed.allowed)]))
    return Completed(message=f"{counted(len(changed.runs), 'run')} of {settings.batch}: {message}", data=None)
