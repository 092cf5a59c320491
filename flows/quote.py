"""`quote-batch`: what a batch would cost, as an artifact in the Prefect UI. It buys nothing."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.states import Completed

from callsheet.config.form import BudgetForm, ConfigFile, InputForm, Overrides, ServiceForm, load_form
from callsheet.errors import CallsheetError
from flows.names import failed, run_name
from tasks.approve import show
from tasks.connect import connect
from tasks.price import price
from tasks.read import read


@flow(name="quote-batch", flow_run_name=run_name, persist_result=False)
async def quote_batch(
    config: ConfigFile,
    overrides: Overrides = (),
    *,
    input: InputForm = InputForm(),  # noqa: A002  # the name of the config's section
    budget: BudgetForm = BudgetForm(),
    service: ServiceForm = ServiceForm(),
) -> Any:
    """Prices a batch exactly and freezes its plan.

    Args:
        config: The config file, from the working directory. A field below that is empty leaves what it says.
        overrides: Other settings to change, each as `input.strict=true`.
    """
    try:
        settings = load_form(config, overrides, input=input, budget=budget, service=service)
        async with await connect(settings) as client:
            rows = await read(settings)
            plan = await price(rows, settings, client)
            quote = await show(plan, settings, client)
        return Completed(message=quote.line(), data=quote)
    except CallsheetError as error:
        return failed(error)
