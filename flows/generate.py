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
    PlanHash,
    RowIds,
    ServiceForm,
    load_form,
)
from callsheet.config.setting_types import Count
from callsheet.pricing.choice import Choice
from callsheet.steps import batch
from flows import crew as crews
from flows.names import begin, ends_in_a_state, final_state, main, run_name, say_what_is_left, settings_of
from tasks.approve import ask_to_go_on
from tasks.steps import STEPS


@flow(
    name="generate-batch",
    flow_run_name=run_name,
    retries=0,  # said here, a profile cannot say otherwise: a retry would buy
    retry_delay_seconds=0,
    persist_result=False,
    on_crashed=[say_what_is_left(settings_of)],
)
@ends_in_a_state
async def generate_batch(
    config: ConfigFile,
    *,
    budget: BudgetForm = BudgetForm(),
    first: Count | None = None,
    approved: bool = False,
    only: RowIds = (),
    input: InputForm = InputForm(),  # noqa: A002  # the name of the config's section
    limits: LimitsForm = LimitsForm(),
    service: ServiceForm = ServiceForm(),
    crew: Count | None = None,
    again: bool = False,
    plan: PlanHash | None = None,
    overrides: Overrides = (),
) -> Any:
    """Buys every job of a batch that is not bought yet, and stores its media.

    The groups of fields replace settings of the config's sections; `callsheet/config/form.py` describes them.

    Args:
        config: The config file, from the working directory. A field below that is empty leaves what it says.
        first: Buy only so many jobs, the first that are not bought, for example 10.
        approved: Buy without asking anybody, also above `approve_above`.
        only: Buy only the rows with these ids, for example `lamp-2`.
        crew: How many runs buy it side by side, for example 3. This one starts the others on the work pool.
        again: Buy also one more sample of each row whose files are all rejected, up to `review.samples`.
        plan: Only for runs that another one starts: the hash of the plan that was approved.
        overrides: Any other settings, each as `storage.sidecar=true`.
    """
    overrides = [*overrides, "review.buy_again=true"] if again else overrides
    settings = load_form(config, overrides, input=input, budget=budget, limits=limits, service=service)
    await begin(settings, buys=True)
    choice = Choice(first, tuple(only))
    if crew and crew > 1:
        summary = await crews.generate(settings, crew, choice, approved=approved, plan=plan)
    else:
        summary = await batch.generate(settings, approved=approved, choice=choice, plan=plan, steps=STEPS)
    await ask_to_go_on(settings, choice, summary)
    return final_state(summary)


if __name__ == "__main__":
    main(generate_batch)
