"""Price: checked rows and the live catalogue become a plan, frozen, with an exact price for every job."""

from __future__ import annotations

from callsheet.batches.read import Batch
from callsheet.config.settings import Settings
from callsheet.pricing.plan import Plan, price_batch
from callsheet.service.client import Client
from tasks.step import step


@step
async def price(batch: Batch, settings: Settings, client: Client) -> Plan:
    """Prices every job and freezes the plan (`plan.price_batch`)."""
    return await price_batch(batch, settings, client)
