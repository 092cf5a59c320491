"""`watch-inbox` and `buy-file`: a batch file that appears in a folder or bucket is quoted, then bought.

Each file is a batch of its own. It is quoted at once, bought once a person has approved the price, and moved
to `done/` when nothing of it is open. `callsheet up --inbox` looks without runs of `watch-inbox`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import flow, get_client
from prefect.deployments.flow_runs import arun_deployment
from prefect.states import Completed

from callsheet import waiting_files as inboxes
from callsheet.config.form import ConfigFile, Overrides
from callsheet.config.load import load, load_without_service
from callsheet.config.setting_types import Text
from callsheet.config.settings import BatchSettings
from callsheet.errors import CallsheetError, ConfigError
from callsheet.plain_text import counted, printable
from callsheet.pricing.choice import ALL
from callsheet.steps import batch
from callsheet.watch import WATCHER
from flows import server_errors
from flows.deployments import FILE, Named
from flows.names import begin, ends_in_a_state, final_state, run_name, say_what_is_left
from tasks.approve import ask_to_go_on
from tasks.steps import STEPS

BUY_FILE = "buy-file/inbox-file"
WATCH_INBOX = "flows.inbox.watch_inbox"


@flow(
    name="watch-inbox",
    flow_run_name=run_name,
    retries=0,
    retry_delay_seconds=0,
    persist_result=False,
)
@ends_in_a_state
async def watch_inbox(config: ConfigFile, inbox: Text = "inbox", overrides: Overrides = ()) -> Any:
    """Starts a run of `buy-file` for each batch file in an inbox, once for each version of the file.

    Args:
        config: The config file, from the working directory. Its `input.path` is not read.
        inbox: A folder, or `s3://bucket/prefix`.
        overrides: Settings to change, each as `budget.limit=5.00`.
    """
    count, left = await _start_runs(config, inbox, overrides)
    for problem in left:
        WATCHER.get().note(problem)
    return Completed(message="; ".join([f"{counted(count, 'file')} in {inbox}", *left]))


async def _start_runs(config: str, inbox: str, overrides: Sequence[str]) -> tuple[int, list[str]]:
    """Looks once, with the parameters of `watch_inbox`.

    Returns:
        How many files wait; and of those that no run will take by itself, why, and what to do.
    """
    settings = load_without_service(Path(config), overrides)
    files = await asyncio.to_thread(inboxes.waiting, inbox, settings.storage.endpoint_url)
    left = []
    for file in files:
        run = await arun_deployment(
            BUY_FILE,
            parameters={"config": config, "file": file.url, "overrides": list(overrides)},
            idempotency_key=file.key,
            timeout=0,
            as_subflow=False,  # it waits for a person, longer than this run
        )
        if run.state and run.state.is_final():
            left.append(
                f"{file.url} stays: its run {run.name} has ended as {run.state.name}, and no other begins by "
                "itself. Retry that run, or write the file anew"
            )
    return len(files), left


def watchers(entrypoints: Named) -> Named:
    """The deployments of `watch_inbox` among these.

    Raises:
        ConfigError: there is none.
    """
    if watching := [(name, path) for name, path in entrypoints if path == WATCH_INBOX]:
        return watching
    raise ConfigError(
        f"{FILE}: there is no deployment of {WATCH_INBOX}, which says where the inbox is",
        hint="A new project has one: callsheet init --project FOLDER",
    )


async def watch_inboxes(entrypoints: Named, show: Callable[[str], None], every: float = 60.0) -> None:
    """Looks into the inboxes of these deployments again and again, until it is cancelled.

    Each look takes the parameters that the deployments have then on the server. Looks are no runs: 1,440 a
    day would hide all others in the list.

    Args:
        entrypoints: deployments of `watch_inbox`.
        show: is called with what is wrong with an inbox, once until something else is.
        every: seconds from the end of a look to the next one.
    """
    problems: dict[str, str] = {}
    while True:
        for name, _ in entrypoints:
            problem = await _look_once(name)
            if problem and problem != problems.get(name):
                show(f"The deployment {name}: {problem}")
            problems[name] = problem
        await asyncio.sleep(every)


async def _look_once(name: str) -> str:
    """A look by the parameters of a deployment; returns what is wrong, if anything is."""
    try:
        with server_errors.in_words():
            async with get_client() as client:
                deployment = await client.read_deployment_by_name(f"{watch_inbox.name}/{name}")
            _, left = await _start_runs(**watch_inbox.validate_parameters(deployment.parameters or {}))
            return "; ".join(left)
    except CallsheetError as error:
        return f"{error.message}. {error.hint}".strip()
    except Exception as error:  # noqa: BLE001 - whatever it is, the next look may succeed
        return f"{type(error).__name__}: {printable(str(error))}"


def _of_file(config: Path, file: str, overrides: Sequence[str]) -> dict[str, str]:
    """What is not the config's own in the batch of a file: any price must be approved."""
    shared = load_without_service(config, overrides)
    name = inboxes.batch_name(shared.batch, Path(file).name)
    return {"batch": name, "input.path": file, "budget.approve_above": "0"}


def _settings_of_file(parameters: Mapping[str, Any]) -> BatchSettings:
    config, overrides = Path(parameters["config"]), parameters.get("overrides") or ()
    return load_without_service(config, overrides, values=_of_file(config, parameters["file"], overrides))


@flow(
    name="buy-file",
    flow_run_name=run_name,
    retries=0,  # said here, a profile cannot say otherwise: a retry would buy
    retry_delay_seconds=0,
    persist_result=False,
    on_crashed=[say_what_is_left(_settings_of_file)],
)
@ends_in_a_state
async def buy_file(config: ConfigFile, file: Text, overrides: Overrides = ()) -> Any:
    """Buys a batch file of an inbox as a batch of its own, once a person approves, and moves it to `done/`.

    Args:
        config: The config file, from the working directory. The file takes the place of its `input.path`.
        file: The batch file: a path, or an `s3://` URL.
        overrides: Settings to change, each as `budget.limit=5.00`.
    """
    settings = load(Path(config), overrides, values=_of_file(Path(config), file, overrides))
    waiting = inboxes.waiting_file(file, settings.storage.endpoint_url)
    await begin(settings, buys=True)
    summary = await batch.generate(settings, approved=False, steps=STEPS)
    await ask_to_go_on(settings, ALL, summary)
    if summary.outcome != "stopped" and not summary.pending and not summary.in_doubt:
        place = inboxes.move_to_done(waiting, settings.storage.endpoint_url, settings.storage.put)
        WATCHER.get().note(f"moved to {place}" if place else f"{file} was written anew, and stays")
    return final_state(summary)
