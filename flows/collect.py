"""`collect-media`: polls and downloads what is paid for, and never buys."""

from __future__ import annotations

from typing import Any

from callsheet.config.form import ConfigFile, Overrides, PollForm, ServiceForm, load_form
from callsheet.steps import batch
from flows.names import batch_flow, begin, final_state, main, settings_of
from tasks.steps import STEPS


@batch_flow("collect-media", killed=settings_of)
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
    await begin(settings)
    return final_state(await batch.collect(settings, steps=STEPS))


if __name__ == "__main__":
    main(collect_media)
