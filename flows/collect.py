"""`collect-media`: polls and downloads what is paid for, and never buys."""

from __future__ import annotations

from typing import Any

from prefect import flow

from callsheet.config.form import ConfigFile, Overrides, PollForm, ServiceForm, load_form
from callsheet.steps import batch
from flows.names import begin, ends_in_a_state, final_state, main, run_name, say_what_is_left, settings_of
from tasks.steps import STEPS


@flow(
    name="collect-media",
    flow_run_name=run_name,
    retries=0,  # said here, a profile cannot say otherwise: a retry would buy
    retry_delay_seconds=0,
    persist_result=False,
    on_crashed=[say_what_is_left(settings_of)],
)
@ends_in_a_state
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
    settings = load_form(config, overrides, poll=poll, service=service)
    await begin(settings, buys=True)
    return final_state(await batch.collect(settings, steps=STEPS))


if __name__ == "__main__":
    main(collect_media)
