"""Where a batch's plans and its spool are on this machine."""

from __future__ import annotations

from pathlib import Path

from callsheet.config.settings import BatchSettings
from callsheet.errors import StorageError


def quote_path(settings: BatchSettings) -> Path:
    """Where the plan is that was priced last, by a quote or a run. What only looks changes no other file.

    Raises:
        StorageError: the work folder cannot be made.
    """
    return work_folder(settings) / "quote.parquet"


def plan_path(settings: BatchSettings) -> Path:
    """Where the batch's plan is: that of the last run that was free to buy.

    Raises:
        StorageError: the work folder cannot be made.
    """
    return work_folder(settings) / "plan.parquet"


def work_folder(settings: BatchSettings) -> Path:
    """The folder of the plan and the spool: the report's own if it is local, otherwise `.callsheet/<batch>`.

    Raises:
        StorageError: it cannot be made.
    """
    url = settings.report.url
    folder = Path(".callsheet", settings.batch) if is_elsewhere(settings) else Path(url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "Set report.url to a folder that exists or can be made."
        if "://" in url:
            hint = "The plan is kept on this machine: start in a folder that can be written."
        raise StorageError(f"{folder}: the folder cannot be made: {reason}", hint=hint) from None
    return folder


def is_elsewhere(settings: BatchSettings) -> bool:
    """Whether the report is not in a folder, so that the plan is in a folder of its own (`work_folder`)."""
    return "://" in settings.report.url
