"""What the project was charged on each UTC day, for a range of any length (INTERFACE 4.7)."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from callsheet.errors import MaybeSent
from callsheet.service.client import Client

# From the first day of a request to its last: `end` is within 180 days of `start`.
_PIECE = timedelta(days=179)


async def daily_costs(client: Client, start: datetime, end: datetime) -> dict[date, Decimal]:
    """Asks for the costs of a range, in pieces of whole days.

    Args:
        client: the service's client; the costs are those of all keys of its project.
        start: the first moment, with a time zone.
        end: the last moment, with a time zone, after `start` and not in the future.

    Returns:
        The cost of each UTC day in dollars. The first and the last day count from `start` and until `end`.
        Recent charges may be missing.

    Raises:
        ServiceError: the service failed.
        MaybeSent: an answer does not have each day of its range once.
    """
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    costs: dict[date, Decimal] = {}
    while start < end:
        last = min(end, datetime.combine(start.date() + _PIECE, time.max, UTC))
        costs |= await _piece(client, start, last)
        start = datetime.combine(last.date() + timedelta(days=1), time.min, UTC)
    return costs


async def _piece(client: Client, start: datetime, end: datetime) -> dict[date, Decimal]:
    answer = await client.costs(start, end)
    costs = {day.date: day.cost for day in answer.data}
    wanted = {start.date() + timedelta(days=number) for number in range((end.date() - start.date()).days + 1)}
    if costs.keys() != wanted or len(costs) != len(answer.data):
        odd = sorted(costs.keys() ^ wanted)
        which = f", of which {odd[0]} is one" if odd else ""
        raise MaybeSent(
            "GET /v2/billing/costs: the answer does not have each day from "
            f"{start.date()} to {end.date()} once: {len(answer.data)} entries, {len(wanted)} days{which}",
            hint="Is this the service of the interface's version 2?",
        )
    return costs
