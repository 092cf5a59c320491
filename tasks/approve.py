"""Approve: the plan beside the ledger, the balance and the budget; and a person's word where it is needed.

A plain function, not a task: it takes no time of its own, and its quote belongs to the flow run.
"""

from __future__ import annotations

from prefect.artifacts import acreate_table_artifact

from callsheet.config.settings import Settings
from callsheet.errors import Stop
from callsheet.pricing import quote as quotes
from callsheet.pricing.plan import Plan
from callsheet.pricing.quote import Quote
from callsheet.service.client import Client
from callsheet.watch import WATCHER


async def approve(
    plan: Plan, settings: Settings, client: Client, approved: bool
) -> tuple[Quote, Stop | None]:
    """Makes the quote and shows it; returns it with the reason to buy nothing, where there is one.

    Args:
        plan: what the batch would buy.
        settings: the config.
        client: for the balance.
        approved: somebody has said yes already, whatever the price.

    Raises:
        InputError: rows were rejected, and `input.strict` wants none.
    """
    quote = await quotes.quote_plan(plan, settings, client)
    WATCHER.get().quoted(quote)
    facts = "\n".join(f"- **{name}**: {fact}" for name, fact in quote.facts())
    await acreate_table_artifact(quote.table(), key="quote", description=facts)
    stop = quote.objection(settings)
    if stop is None and not approved:
        needed = quotes.approval_needed(quote, settings)
        if needed and not WATCHER.get().approves(quote):
            stop = needed
    return quote, stop
