"""`generate-batch`: from a batch file to priced, paid-for, stored and accounted media."""

from __future__ import annotations

from typing import Any

from prefect import flow

from callsheet.config.form import (
    BudgetForm,
    ConfigFile,
    InputForm,
    LimitsForm,
    Overrides,
    ServiceForm,
    load_form,
)
from callsheet.errors import CallsheetError
from flows import pipeline
from flows.names import failed, final_state, run_name


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
) -> Any:
    """Buys every job of a batch that is not bought yet, and stores its media.

    The groups of fields replace settings of the config's sections; `callsheet/config/form.py` describes them.

    Args:
        config: The config file, from the working directory. A field below that is empty leaves what it says.
        overrides: Other settings to change, each as `storage.sidecar=true`.
        approved: Buy also when the quote is above `budget.approve_above`.
    """
    try:
        settings = load_form(config, overrides, input=input, budget=budget, limits=limits, service=service)
        return final_state(await pipeline.generate(settings, approved=approved))
    except CallsheetError as error:
        return failed(error)
