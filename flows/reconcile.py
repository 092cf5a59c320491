"""`reconcile-costs`: the ledger next to the service's own account, as an artifact in the Prefect UI.

It buys nothing and settles nothing.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from prefect import flow
from prefect.states import Completed, Failed

from callsheet.config.form import ConfigFile, Overrides, ReconcileForm, ServiceForm, load_form
from callsheet.present import accounts
from callsheet.report.against_account import reconcile as compare
from flows.names import begin, ends_in_a_state, run_name
from tasks import artifacts
from tasks.service_block import connect


@flow(
    name="reconcile-costs",
    flow_run_name=run_name,
    retries=0,
    retry_delay_seconds=0,
    persist_result=False,
)
@ends_in_a_state
async def reconcile_costs(
    config: ConfigFile,
    overrides: Overrides = (),
    start: date | None = None,
    end: date | None = None,
    *,
    reconcile: ReconcileForm = ReconcileForm(),
    service: ServiceForm = ServiceForm(),
) -> Any:
    """Compares quotes, answered costs and the service's own account, day by day.

    The run fails when more than `reconcile.threshold` is unexplained.

    Args:
        config: The config file, from the working directory. A field below that is empty leaves what it says.
        overrides: Other settings to change, each as `ledger.url=sqlite:///other.db`.
        start: The first UTC day; without it, the first day in the ledger.
        end: The last UTC day; without it, today.
    """
    settings = load_form(config, overrides, reconcile=reconcile, service=service)
    await begin(settings)
    async with await connect(settings) as client:
        result = await compare(settings, client, start, end)
    await artifacts.show_books(result, config)
    await artifacts.name_run(settings.batch, accounts.topic(result))
    message = accounts.line(result)
    return Failed(message=message) if result.is_over else Completed(message=message)
