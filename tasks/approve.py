"""Approve: the quote is shown, and a person is asked where `budget.approve_above` wants it.

A plain function, not a step: it takes no time, and its quote belongs to the page of the whole run.
"""

from __future__ import annotations

from callsheet.config.settings import Settings
from callsheet.errors import Stop
from callsheet.pricing import quote as quotes
from callsheet.pricing.plan import Plan
from callsheet.pricing.quote import Quote
from callsheet.service.client import Client
from callsheet.watch import WATCHER
from tasks import artifacts, events


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
    await artifacts.name_run(settings.batch, quote)
    await artifacts.show_quote(quote)
    events.quoted(quote)
    stop = quote.objection()
    if stop is None and not approved:
        needed = quotes.approval_needed(quote, settings)
        if needed and not WATCHER.get().approves(quote):
            stop = needed
    return quote, stop
