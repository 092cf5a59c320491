"""`quote-batch`: what a batch would cost, as an artifact in the Prefect UI. It buys nothing."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.states import Completed

from callsheet.config.form import (
    BudgetForm,
    ConfigFile,
    InputForm,
    Overrides,
    RowIds,
    ServiceForm,
    load_form,
)
from callsheet.config.setting_types import Count
from callsheet.ledger.ledger import Ledger
from callsheet.present.priced import line
from callsheet.pricing.choice import Choice
from callsheet.pricing.from_rows import quote_rows
from callsheet.watch import WATCHER
from flows.names import begin, ends_in_a_state, run_name
from tasks import artifacts
from tasks.price import price_at_once
from tasks.read import read
from tasks.service_block import connect


@flow(
    name="quote-batch",
    flow_run_name=run_name,
    retries=0,
    retry_delay_seconds=0,
    persist_result=False,
)
@ends_in_a_state
async def quote_batch(
    config: ConfigFile,
    *,
    budget: BudgetForm = BudgetForm(),
    first: Count | None = None,
    only: RowIds = (),
    input: InputForm = InputForm(),  # noqa: A002  # the name of the config's section
    service: ServiceForm = ServiceForm(),
    overrides: Overrides = (),
) -> Any:
    """Prices a batch exactly and freezes its plan.

    Args:
        config: The config file, from the working directory. A field below that is empty leaves what it says.
        first: Only so many jobs, the first that are not bought, for example 10.
        only: Only the rows with these ids, for example `lamp-2`.
        overrides: Any other settings, each as `input.strict=true`.
    """
    settings = load_form(config, overrides, input=input, budget=budget, service=service)
    await begin(settings)
    async with await connect(settings) as client:
        rows = await read(settings)
        async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
            choice = Choice(first, tuple(only))
            quote = await quote_rows(rows, settings, client, ledger, choice, price=price_at_once)
    WATCHER.get().quoted(quote)
    await artifacts.show_quote(quote)
    return Completed(message=line(quote), data=quote)
