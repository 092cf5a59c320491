"""Price: the batch's jobs with the prices of the live catalogue.

It is the first step that asks the service, so a service that is down is waited for here.
"""

from __future__ import annotations

from callsheet.batches.read import Batch
from callsheet.config.settings import Settings
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.plan import Plan, price_batch
from callsheet.service.client import Client
from callsheet.session import until_answered


async def price(batch: Batch, settings: Settings, client: Client, ledger: Ledger) -> Plan:
    """As `price_batch`, when the service answers."""
    return await until_answered(lambda: price_batch(batch, settings, client, ledger), settings, client)
