"""Reconciles the ledger with the service's own account, and keeps the result day by day.

`differences.py` compares the accounts, `books.py` is the result. It reads the ledger and asks the service; it
settles nothing.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError
from callsheet.ledger import spending
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.spending import KnownBalance
from callsheet.report.books import FILE, Balances, Reconciliation
from callsheet.report.differences import OpenDoubt, compare
from callsheet.service.client import Client
from callsheet.storage.store import Store

_DAY = timedelta(days=1)
_LONGEST = 3660 * _DAY  # what begins earlier is a wrong year, and would ask the service for a long time


async def reconcile(
    settings: Settings, client: Client, start: date | None, end: date | None, *, now: datetime | None = None
) -> Reconciliation:
    """Compares the two accounts, and writes `reconcile.parquet` under `report.url`.

    Args:
        settings: the config.
        client: the open client of the service.
        start: the first UTC day; None for the first day on which the ledger has anything of the service.
        end: the last UTC day, today at most; None for today.
        now: the time, for tests.

    Raises:
        CallsheetError: the range cannot be; or the ledger, the service or the report cannot be used.
        OtherService: the batch belongs to another service.
    """
    now = now or datetime.now(UTC)
    check_range(start, end, now.date())
    service = client.base_url
    store = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        await ledger.check_service(service)
        known_from = await ledger.read(lambda connection, _: spending.first_day(connection, service))
        last = min(end or now.date(), now.date())
        first = min(start or known_from or last, last)
        # One day more on either side: what was sent near midnight may be charged on the other day.
        wide = first - _DAY, min(last + _DAY, now.date())
        billed = await client.daily_costs(_begin(wide[0]), min(_end(wide[1]), now))
        balance = KnownBalance(now, await client.balance())
        own, doubts = await ledger.read(
            lambda connection, batch: (
                spending.days(connection, batch, service, *wide),
                spending.doubts(connection, service, *wide),
            )
        )
        balances = await _balances(ledger, client, service, (_begin(first), _end(last)), balance)
    finally:
        await ledger.close()
    open_ = [OpenDoubt(*each) for each in doubts]
    days, judged = compare(billed, own, [each for each in open_ if not each.doubt.is_accepted], now)
    result = Reconciliation(
        batch=settings.batch,
        days=tuple(day for day in days if first <= day.date <= last),
        doubts=tuple(each for each in judged if first <= each.day <= last),
        accepted=tuple(each for each in open_ if each.doubt.is_accepted and first <= each.day <= last),
        balances=balances,
        at=now,
        threshold=settings.reconcile.threshold,
        file=store.url_of(FILE),
    )
    await store.write(FILE, result.parquet(await store.read(FILE)), "application/vnd.apache.parquet")
    return result


def check_range(start: date | None, end: date | None, today: date) -> None:
    """Checks a range of UTC days before anything is read. It may end in the future: then it ends today.

    Raises:
        CallsheetError: it begins in the future, ends before it begins, or begins more than ten years ago.
    """
    if start and start > today:
        raise CallsheetError(f"the range begins in the future, on {start}", hint=f"By UTC, today is {today}.")
    if start and end and end < start:
        raise CallsheetError(
            f"the range ends on {end}, before it begins on {start}", hint="Give the earlier day as --start."
        )
    if min(filter(None, (start, end)), default=today) < today - _LONGEST:
        raise CallsheetError(
            f"the range begins on {start or end}, more than ten years ago", hint="Check the year."
        )


def _begin(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def _end(day: date) -> datetime:
    return datetime.combine(day, time.max, UTC)


async def _balances(
    ledger: Ledger, client: Client, service: str, span: tuple[datetime, datetime], current: KnownBalance
) -> Balances | None:
    """The balances nearest to the begin and the end of a range, and what both accounts have between them.

    None where no run has read a balance yet.
    """
    start, end = span
    before = await ledger.read(lambda connection, _: spending.balance_near(connection, service, start))
    if before is None:
        return None
    read = await ledger.read(
        lambda connection, _: spending.balance_near(connection, service, end, after=before.at)
    )
    after = min(filter(None, (current, read)), key=lambda balance: abs(balance.at - end))
    costs = await client.daily_costs(before.at, after.at)
    usage = await ledger.read(
        lambda connection, _: spending.usage_between(connection, service, before.at, after.at)
    )
    return Balances(before, after, usage, sum(costs.values(), Decimal(0)))
