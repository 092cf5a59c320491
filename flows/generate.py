"""`generate-batch`: from a batch file to priced, paid-for, stored and accounted media."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.states import Cancelled

from callsheet.config.checks import Count, Text
from callsheet.config.form import (
    BudgetForm,
    ConfigFile,
    InputForm,
    LimitsForm,
    Overrides,
    RowIds,
    ServiceForm,
    load_form,
)
from callsheet.errors import CallsheetError
from callsheet.pricing.choice import Choice, check_crew
from flows import pipeline
from flows.crew import first_has_ended, gather
from flows.names import ended, failed, final_state, joined, run_name


@flow(name="generate-batch", flow_run_name=run_name, persist_result=False)
async def generate_batch(
    config: ConfigFile,
    overrides: Overrides = (),
    approved: bool = False,
    *,
    input: InputForm = InputForm(),  # noqa: A002  # the name of the config's section
    budget: BudgetForm = BudgetForm(),
    limits: LimitsForm = LimitsForm(),
    service: ServiceForm = ServiceForm(),
    first: Count | None = None,
    only: RowIds = (),
    crew: Count | None = None,
    joins: Text | None = None,
) -> Any:
    """Buys every job of a batch that is not bought yet, and stores its media.

    The groups of fields replace settings of the config's sections; `callsheet/config/form.py` describes them.

    Args:
        config: The config file, from the working directory. A field below that is empty leaves what it says.
        overrides: Other settings to change, each as `storage.sidecar=true`.
        approved: Buy without asking anybody.
        first: Only so many jobs, the first that are not bought.
        only: Only the rows with these ids.
        crew: So many runs buy it side by side: this one starts the others on the work pool.
        joins: Only for runs that another one starts: the plan that they share.
    """
    try:
        settings = load_form(config, overrides, input=input, budget=budget, limits=limits, service=service)
        if joins:
            if await first_has_ended():
                return Cancelled(message="The crew's first run has ended, so this one buys nothing.")
            return await ended(joined(await pipeline.join(settings, joins)))
        choice = Choice(first, tuple(only))
        check_crew(crew, choice)
        others = await gather(crew) if crew and crew > 1 else None
        summary = await pipeline.generate(settings, approved=approved, choice=choice, crew=others)
        return await ended(final_state(summary))
    except CallsheetError as error:
        return await ended(failed(error))
