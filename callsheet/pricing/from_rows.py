"""A batch from its rows to its quote in one go, for those who look before anything is bought.

A run does the same in steps, and asks a person between them (`steps/batch.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from callsheet.batches.read import Batch
from callsheet.config.settings import Settings
from callsheet.ledger.ledger import Ledger
from callsheet.places import warning_of
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.plan import Plan, price_batch, write_plan
from callsheet.pricing.quote import Quote, quote_plan
from callsheet.pricing.sources import read_rows
from callsheet.service.client import Client


async def quote_batch(settings: Settings, client: Client, choice: Choice = ALL) -> Quote:
    """Reads the rows of a batch, and quotes them; the balance is asked for also where nothing is to buy.

    Raises:
        InputError: the batch file cannot be read, or rows are rejected and `input.strict` is true; or a
            chosen row is not in the batch.
        ServiceError: the catalogue or the balance cannot be read.
    """
    rows = await read_rows(settings)
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        return await quote_rows(rows, settings, client, ledger, choice, asks_balance=True)


async def quote_rows(
    rows: Batch,
    settings: Settings,
    client: Client,
    ledger: Ledger,
    choice: Choice = ALL,
    *,
    price: Callable[[Batch, Settings, Client, Ledger], Awaitable[Plan]] = price_batch,
    asks_balance: bool = False,
) -> Quote:
    """Prices rows, and quotes them; writes the plan and rejects.csv, and changes nothing in the ledger.

    Raises:
        InputError: rows are rejected and `input.strict` is true, or a chosen row is not in the batch.
        ServiceError: the catalogue or the balance cannot be read.
    """
    warning = await warning_of(ledger, settings)
    plan = await price(rows, settings, client, ledger)
    await asyncio.to_thread(write_plan, plan)
    balance = await client.balance() if asks_balance else None
    return await quote_plan(plan, settings, client, ledger, choice, balance=balance, warning=warning)
