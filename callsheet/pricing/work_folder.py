"""Where a batch keeps what is needed again on this machine. It knows the place, and no file in it."""

from __future__ import annotations

from pathlib import Path

from callsheet.config.settings import BatchSettings
from callsheet.errors import StorageError


def work_folder(settings: BatchSettings, *, make: bool = True) -> Path:
    """The folder of the plan, the spool and the images that were made to be sent: the report's own if it is
    local, otherwise `.callsheet/<batch>`.

    `make`: it is made where it is missing. Who only looks makes none.

    Raises:
        StorageError: it cannot be made.
    """
    is_local = "://" not in settings.report.url
    folder = Path(settings.report.url) if is_local else Path(".callsheet", settings.batch)
    if not make:
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "Set report.url to a folder that exists or can be made."
        if not is_local:
            hint = "The plan is kept on this machine: start in a folder that can be written."
        raise StorageError(f"{folder}: the folder cannot be made: {reason}", hint=hint) from None
    return folder
