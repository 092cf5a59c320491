"""`reconcile-costs`: the ledger next to the service's own account, as an artifact in the Prefect UI.

It buys nothing and settles nothing.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.states import Completed, Failed

from callsheet.config.load import load
from callsheet.report.reconcile import reconcile
from flows.names import run_name
from tasks import artifacts
from tasks.connect import connect


@flow(name="reconcile-costs", flow_run_name=run_name, persist_result=False)
async def reconcile_costs(
    config: str, overrides: list[str] | None = None, start: date | None = None, end: date | None = None
) -> Any:
    """Compares quotes, answered costs and the service's own account, day by day.

    The run fails when more than `reconcile.threshold` is unexplained.

    Args:
        config: the config file, from the working directory.
        overrides: single settings to change, each as `reconcile.threshold=1.00`.
        start: the first UTC day; without it, the first day in the ledger.
        end: the last UTC day; without it, today.
    """
    settings = load(Path(config), overrides or ())
    async with await connect(settings) as client:
        result = await reconcile(settings, client, start, end)
    await artifacts.show_books(result, config)
    return Failed(message=result.line()) if result.is_over else Completed(message=result.line())
