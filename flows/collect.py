"""`collect-media`: polls and downloads what is paid for, and never buys."""

from __future__ import annotations

from typing import Any

from prefect import flow

from callsheet.config.form import ConfigFile, Overrides, PollForm, ServiceForm, load_form
from callsheet.errors import CallsheetError
from callsheet.steps import batch
from callsheet.watch import WATCHER
from flows.names import ended, failed, final_state, main, run_name
from flows.steps import STEPS
from tasks import artifacts
from tasks.events import Events


@flow(name="collect-media", flow_run_name=run_name, persist_result=False)
async def collect_media(
    config: ConfigFile,
    overrides: Overrides = (),
    *,
    poll: PollForm = PollForm(),
    service: ServiceForm = ServiceForm(),
) -> Any:
    """Takes up every accepted generation of a batch that is not stored yet.

    Args:
        config: The config file, from the working directory. A field below that is empty leaves what it says.
        overrides: Other settings to change, each as `poll.interval=10`.
    """
    try:
        settings = load_form(config, overrides, poll=poll, service=service)
        WATCHER.set(Events(settings.batch))
        await artifacts.name_run(settings.batch)
        return await ended(final_state(await batch.collect(settings, steps=STEPS)))
    except CallsheetError as error:
        return await ended(failed(error))


if __name__ == "__main__":
    main(collect_media)
