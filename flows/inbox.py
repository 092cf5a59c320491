"""`watch-inbox` and `buy-file`: a batch file that appears in a folder or bucket is quoted, then bought.

Each file is a batch of its own. It is quoted at once, bought once a person has approved the price, and moved
to `done/` when nothing of it is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect.deployments.flow_runs import arun_deployment
from prefect.states import Completed

from callsheet import inbox as inboxes
from callsheet.config.checks import Text
from callsheet.config.form import ConfigFile, Overrides
from callsheet.config.load import load, load_without_service
from callsheet.config.settings import BatchSettings
from callsheet.plain_text import counted
from callsheet.pricing.choice import ALL
from callsheet.steps import batch
from callsheet.watch import WATCHER
from flows.names import batch_flow, begin, final_state
from flows.steps import STEPS
from tasks.approve import ask_to_go_on

BUY_FILE = "buy-file/inbox-file"


@batch_flow("watch-inbox")
async def watch_inbox(config: ConfigFile, inbox: Text = "inbox", overrides: Overrides = ()) -> Any:
    """Starts a run of `buy-file` for each batch file in an inbox, once for each version of the file.

    Args:
        config: The config file, from the working directory. Its `input.path` is not read.
        inbox: A folder, or `s3://bucket/prefix`.
        overrides: Settings to change, each as `budget.limit=5.00`.
    """
    settings = load_without_service(Path(config), overrides)
    files = inboxes.waiting(inbox, settings.storage.endpoint_url)
    for file in files:
        await arun_deployment(
            BUY_FILE,
            parameters={"config": config, "file": file.url, "overrides": list(overrides)},
            idempotency_key=file.key,
            timeout=0,
            as_subflow=False,  # it waits for a person, longer than this run
        )
    return Completed(message=f"{counted(len(files), 'file')} in {inbox}")


def _of_file(config: Path, file: str, overrides: Sequence[str]) -> dict[str, str]:
    """What is not the config's own in the batch of a file: any price must be approved."""
    shared = load_without_service(config, overrides)
    name = inboxes.batch_name(shared.batch, Path(file).name)
    return {"batch": name, "input.path": file, "budget.approve_above": "0"}


def _settings_of_file(parameters: Mapping[str, Any]) -> BatchSettings:
    config, overrides = Path(parameters["config"]), parameters.get("overrides") or ()
    return load_without_service(config, overrides, values=_of_file(config, parameters["file"], overrides))


@batch_flow("buy-file", killed=_settings_of_file)
async def buy_file(config: ConfigFile, file: Text, overrides: Overrides = ()) -> Any:
    """Buys a batch file of an inbox as a batch of its own, once a person approves, and moves it to `done/`.

    Args:
        config: The config file, from the working directory. The file takes the place of its `input.path`.
        file: The batch file: a path, or an `s3://` URL.
        overrides: Settings to change, each as `budget.limit=5.00`.
    """
    settings = load(Path(config), overrides, values=_of_file(Path(config), file, overrides))
    waiting = inboxes.waiting_file(file, settings.storage.endpoint_url)
    await begin(settings)
    summary = await batch.generate(settings, approved=False, steps=STEPS)
    await ask_to_go_on(settings, ALL, summary)
    if summary.outcome != "stopped" and not summary.pending and not summary.in_doubt:
        place = inboxes.move_to_done(waiting, settings.storage.endpoint_url, settings.storage.put)
        WATCHER.get().note(f"moved to {place}" if place else f"{file} was written anew, and stays")
    return final_state(summary)
