"""Which settings of a run that is at work a person can change. It knows nothing of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from callsheet.config.load import load_without_service
from callsheet.config.settings import BatchSettings, Section, Settings
from callsheet.config.yaml_lines import split_override
from callsheet.errors import ConfigError

CHANGEABLE = (
    *("budget.limit", "budget.per_day", "limits.image_rpm", "limits.video_rpm", "limits.concurrency"),
    *("stop_after", "poll.interval", "poll.timeout"),
)
"""By their dotted names."""


def changed_values(
    config: Path, values: Sequence[str], overrides: Sequence[str] = ()
) -> tuple[BatchSettings, Mapping[str, Any]]:
    """The config with some `a.b=value`, and these values as JSON has them, money as text.

    `overrides` change the config, and nothing of the runs.

    Raises:
        ConfigError: one of them is no setting, has a wrong value, or cannot be changed during a run.
    """
    settings = load_without_service(config, [*overrides, *values])
    names = [".".join(split_override(value)[0]) for value in values]
    if fixed := [name for name in names if name not in CHANGEABLE]:
        raise ConfigError(
            f"{fixed[0]} cannot be changed while a run is at work",
            hint=f"Change the config for the next run. These can be changed: {', '.join(CHANGEABLE)}.",
        )
    plain = settings.model_dump(mode="json")
    return settings, {name: reduce(getitem, name.split("."), plain) for name in names}


def with_value(settings: Settings, name: str, value: Any) -> Settings:
    """The settings with another value, as `changed_values` gives it."""
    section, _, key = name.rpartition(".")
    if not section:
        return settings.model_copy(update={key: value})
    old: Section = getattr(settings, section)
    new = type(old).model_validate(old.model_dump() | {key: value})
    return settings.model_copy(update={section: new})
