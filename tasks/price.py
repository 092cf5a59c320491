"""`price`: rows as a plan with exact prices."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from callsheet.batches.read import Batch
from callsheet.config.settings import Settings
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan, price_batch
from callsheet.service.client import Client
from callsheet.steps import batch as library


@task(
    name="price",
    task_run_name="price",
    retries=0,  # said here, a profile cannot say otherwise
    retry_delay_seconds=0,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def price(rows: Batch, settings: Settings, client: Client, ledger: Ledger) -> Plan:
    """Prices what is to be bought, from the service's catalogue; waits for a service that is down."""
    return await library.price(rows, settings, client, ledger)


@task(
    name="price",
    task_run_name="price",
    retries=0,  # as above
    retry_delay_seconds=0,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def price_at_once(rows: Batch, settings: Settings, client: Client, ledger: Ledger) -> Plan:
    """For a run that only looks: a service that is down is not waited for."""
    return await price_batch(rows, settings, client, ledger)
