"""Reconciles the ledger with the service's own account, and keeps the result day by day.

The service's figures lag, every key of the project is in them, and a charge near midnight may be on either
day (INTERFACE 4.7). So a difference is compared with what the ledger knows to be open at that time; what is
beyond that is unexplained. It reads the ledger and asks the service. Nothing is guessed, and nothing is
settled: a person does that (`callsheet resolve`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import polars as pl

from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError, StorageError
from callsheet.ledger import services, spending
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.queries import MONEY, TIME
from callsheet.ledger.spending import KnownBalance, Spending
from callsheet.places import check_report
from callsheet.records import Doubt, dollars
from callsheet.report.report import PARQUET_TYPE, parquet
from callsheet.service.client import Client
from callsheet.storage.store import Store

LAG = timedelta(days=2)
"""How long after its end a day may still be incomplete. The interface gives no figure."""

_DAY = timedelta(days=1)
_NOTHING = Decimal(0)


class Judgement(StrEnum):
    """What the service's account says about a doubt."""

    CHARGED = "charged"
    NOT_CHARGED = "not charged"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class OpenDoubt:
    """An attempt in doubt, its batch, and what the service's account says about it."""

    batch: str
    doubt: Doubt
    verdict: Judgement = Judgement.UNCLEAR

    @property
    def day(self) -> date:
        """The UTC day on which it was sent."""
        return self.doubt.submitted_at.date()


@dataclass(frozen=True, slots=True)
class Day:
    """One UTC day in the accounts. Money is in dollars.

    Attributes:
        quoted: the quotes of what was sent and not refused.
        usage: what the service answered that it costs.
        in_doubt: the quotes of what was sent, and nobody knows whether it was accepted.
        billed: what the service's account has for the day.
        other_batches: the part of `usage` that is of other batches of the ledger.
        reason: the names of the difference, with amounts; then a surcharge, and costs without the service's
            word, which are no parts of it. Empty where there are none.
        unexplained: the part of the difference that is beyond everything that is open, without a sign.
        partial: the day is not over.
    """

    date: date
    quoted: Decimal
    usage: Decimal
    in_doubt: Decimal
    billed: Decimal
    other_batches: Decimal
    reason: str
    unexplained: Decimal
    partial: bool

    @property
    def difference(self) -> Decimal:
        """How much more the service's account has than the ledger."""
        return self.billed - self.usage


def compare(
    billed: Mapping[date, Decimal],
    spending: Mapping[date, Spending],
    doubts: Sequence[OpenDoubt],
    now: datetime,
    came_back: Mapping[date, Decimal] = MappingProxyType({}),
) -> tuple[list[Day], list[OpenDoubt]]:
    """Puts the two accounts side by side, as they were read at `now`.

    Args:
        billed: the service's account, for every UTC day of a range.
        spending: the ledger's; days without spending may be missing.
        doubts: what was sent on these days, and nobody knows whether it was accepted.
        came_back: credits, by the day on which a person has entered them.

    Returns:
        The days in order, and the doubts with their verdicts.
    """
    accounts = _Accounts(billed, spending, doubts, now, came_back)
    verdicts = {day: accounts.verdict(day) for day in billed}
    days = [accounts.day(day, verdicts) for day in sorted(billed)]
    judgements_of: defaultdict[str, set[Judgement]] = defaultdict(set)
    for open_doubt in doubts:
        judgements_of[open_doubt.doubt.job_key].add(verdicts[open_doubt.day])
    # Attempts at one job are settled together: different verdicts about them are none.
    verdict_of = {
        job: judgements.pop() if len(judgements) == 1 else Judgement.UNCLEAR
        for job, judgements in judgements_of.items()
    }
    return days, [replace(open_doubt, verdict=verdict_of[open_doubt.doubt.job_key]) for open_doubt in doubts]


class _Accounts:
    """Both accounts of a range of days; the arguments are those of `compare`."""

    def __init__(
        self,
        billed: Mapping[date, Decimal],
        spending: Mapping[date, Spending],
        doubts: Sequence[OpenDoubt],
        now: datetime,
        came_back: Mapping[date, Decimal],
    ) -> None:
        self._now, self._billed, self._came_back = now, billed, came_back
        self._back_left = sum(came_back.values(), _NOTHING)  # that is the name of no day's difference yet
        self._spending = defaultdict(Spending, spending)
        self._in_doubt: defaultdict[date, Decimal] = defaultdict(Decimal)
        for open_doubt in doubts:
            self._in_doubt[open_doubt.day] += open_doubt.doubt.price or 0
        self._unpriced = {open_doubt.day for open_doubt in doubts if not open_doubt.doubt.price}

    def _difference(self, day: date) -> Decimal:
        return self._billed[day] - self._spending[day].usage if day in self._billed else _NOTHING

    def _lags(self, day: date) -> bool:
        """Whether the service's figures of a day may still be incomplete."""
        return self._now < datetime.combine(day, time.min, UTC) + _DAY + LAG

    def verdict(self, day: date) -> Judgement:
        """What is certain of a day's doubts: of all of them, or of none.

        Not charged: there is no difference on the day and on those beside it, and none can come any more.
        Charged: the difference is the price of all of them, nothing in flight can be charged in their place,
        and the days beside it are as clear. What is charged near midnight may be on either day.
        What came back may be booked on any day before it was entered, and hide a charge: nothing is certain.
        """
        if any(entered >= day - _DAY for entered in self._came_back):
            return Judgement.UNCLEAR
        days = (day - _DAY, day, day + _DAY)
        if not any(map(self._difference, days)):
            return Judgement.UNCLEAR if self._lags(day + _DAY) else Judgement.NOT_CHARGED
        exact = all(self._difference(near_day) == self._in_doubt[near_day] for near_day in days)
        in_flight = any(spending.in_flight for sent, spending in self._spending.items() if sent <= day + _DAY)
        if exact and not in_flight and not self._unpriced & {*days}:
            return Judgement.CHARGED
        return Judgement.UNCLEAR

    def day(self, day: date, verdicts: Mapping[date, Judgement]) -> Day:
        """The day, with the names of its difference."""
        spending, unexplained = self._spending[day], abs(self._difference(day))
        day_before, day_after = self._spending[day - _DAY], self._spending[day + _DAY]
        if self._difference(day) > 0:
            charged = verdicts[day] is Judgement.CHARGED
            open_days = [sent for sent in (day - _DAY, day) if verdicts.get(sent) is not Judgement.CHARGED]
            open_ = sum(
                (self._in_doubt[sent] for sent in open_days), day_before.in_flight + spending.in_flight
            )
            explanations = {
                "doubts that were charged": self._in_doubt[day] if charged else _NOTHING,
                "sent near midnight": day_before.late + day_after.early,
                "in doubt or in flight": open_,
            }
        else:
            entered_later = (amount for entered, amount in self._came_back.items() if entered >= day)
            explanations = {
                "came back": min(self._back_left, sum(entered_later, _NOTHING)),
                "not yet posted": unexplained if self._lags(day) else _NOTHING,
                "sent near midnight": spending.late + spending.early,
            }
        amounts = {}
        for name, at_most in explanations.items():
            amounts[name] = min(unexplained, at_most)
            unexplained -= amounts[name]
        self._back_left -= amounts.get("came back", _NOTHING)
        amounts |= {
            "unexplained": unexplained,
            "surcharge over the quote": spending.surcharge,
            "costs without the service's word": spending.estimated,
        }
        return Day(
            date=day,
            quoted=spending.quoted,
            usage=spending.usage,
            in_doubt=self._in_doubt[day],
            billed=self._billed[day],
            other_batches=spending.other_batches,
            reason="; ".join(f"{name} {dollars(amount)}" for name, amount in amounts.items() if amount),
            unexplained=unexplained,
            partial=day == self._now.astimezone(UTC).date(),
        )


_LONGEST = 3660 * _DAY  # what begins earlier is a wrong year, and would ask the service for a long time
_FILE = "reconcile.parquet"
_COLUMNS: dict[str, Any] = {
    "date": pl.Date,
    "quoted": MONEY,
    "usage": MONEY,
    "billed": MONEY,
    "difference": MONEY,
    "unexplained": MONEY,
    "other_batches": MONEY,
    "currency": pl.String,
    "reason": pl.String,
    "partial": pl.Boolean,
    "reconciled_at": TIME,
}


@dataclass(frozen=True, slots=True)
class Balances:
    """The workspace's balance before and after, and what is known to have been spent between. In dollars.

    `before` is the balance that a run read nearest to the range's begin, `after` the one now, or the one that
    a run read nearest to its end. Of the time between, `usage` is what the ledger has, and `billed` what the
    service's account has: all keys of the project.
    """

    before: KnownBalance
    after: KnownBalance
    usage: Decimal
    billed: Decimal

    @property
    def gone(self) -> Decimal:
        """How much less there is."""
        return self.before.balance - self.after.balance


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The accounts side by side: the quotes, the costs that the service answered, and its own account.

    All batches of the ledger that belong to the service count, because its account does not tell them apart.
    Money is in dollars.

    Attributes:
        days: every UTC day of the range, in order.
        doubts: what was sent on these days, and nobody knows whether it was accepted, with verdicts.
        accepted: what was sent on these days and accepted, and is in doubt because the service did not know
            it later. It is no doubt about money, and has no verdict: a run with the right key asks for it.
        balances: None where no run has read the balance before.
        at: when the accounts were read.
        credits: what came back, by what was entered on these days.
        file: the URL of `reconcile.parquet`.
        beyond: by how much the service's own total is more than the sum of its days; no day has it.
    """

    batch: str
    days: tuple[Day, ...]
    doubts: tuple[OpenDoubt, ...]
    accepted: tuple[OpenDoubt, ...]
    balances: Balances | None
    at: datetime
    threshold: Decimal
    file: str
    credits: Decimal = Decimal(0)
    beyond: Decimal = Decimal(0)

    def total(self, book: str) -> Decimal:
        """The sum over all days of an amount that a day has: `quoted`, `usage`, `billed` and so on."""
        return sum((getattr(day, book) for day in self.days), Decimal(0))

    def range(self) -> str:
        """The first day and the last: `2026-11-21 to 2026-11-22`."""
        return f"{self.days[0].date} to {self.days[-1].date}"

    @property
    def is_over(self) -> bool:
        """Whether more is unexplained than is accepted."""
        return self.total("unexplained") > self.threshold

    def as_parquet(self, older_file: bytes | None) -> bytes:
        """`reconcile.parquet`: these days, and the other days of `older_file`; None where there is none.

        Raises:
            StorageError: `older_file` cannot be read.
        """
        constants = {"currency": "USD", "reconciled_at": self.at}
        rows = [{name: getattr(day, name, constants.get(name)) for name in _COLUMNS} for day in self.days]
        table = pl.DataFrame(rows, schema=_COLUMNS)
        if older_file is None:
            return parquet(table)
        hint = "Move it away; then run the same command again."
        try:
            older_days = pl.read_parquet(older_file)
        except pl.exceptions.PolarsError as error:
            problem = str(error).partition("\n")[0]
            raise StorageError(f"{self.file}: cannot be extended: {problem}", hint=hint) from None
        if dict(older_days.schema) != _COLUMNS:
            raise StorageError(f"{self.file}: cannot be extended: it has other columns", hint=hint)
        is_other_day = ~pl.col("date").is_between(self.days[0].date, self.days[-1].date)
        return parquet(pl.concat([older_days.filter(is_other_day), table]).sort("date"))


async def reconcile(
    settings: Settings, client: Client, start: date | None, end: date | None
) -> Reconciliation:
    """Compares the two accounts, and writes `reconcile.parquet` under `report.url`.

    Args:
        start: the first UTC day; None for the first day on which the ledger has anything of the service.
        end: the last UTC day, today at most; None for today.

    Raises:
        CallsheetError: the range cannot be; or the ledger, the service or the report cannot be used.
        OtherService: the batch belongs to another service.
    """
    now = datetime.now(UTC)
    today = now.date()
    check_range(start, end, today)
    await check_report(settings)
    service = client.base_url
    store = Store.of(settings.report.url, settings.storage)
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        await ledger.read(services.check, service)
        known_from = await ledger.read(lambda connection, _: spending.first_day(connection, service))
        last = min(end or today, today)
        first = min(start or known_from or last, last)
        # One day more on either side: what was sent near midnight may be charged on the other day.
        wide = first - _DAY, min(last + _DAY, today)
        costs = await client.daily_costs(_begin(wide[0]), min(_end(wide[1]), now))
        balance = KnownBalance(now, await client.balance())
        ledger_days, batch_doubts, came_back = await ledger.read(
            lambda connection, batch: (
                spending.days(connection, batch, service, *wide),
                spending.doubts_at_service(connection, service, *wide),
                spending.credits_by_day(connection, service),
            )
        )
        balances = await _balances(ledger, client, (_begin(first), _end(last)), balance)
    sent = [OpenDoubt(*batch_doubt) for batch_doubt in batch_doubts]
    accepted = [video for video in sent if video.doubt.is_accepted]
    doubts = [open_doubt for open_doubt in sent if not open_doubt.doubt.is_accepted]
    days, judged = compare(costs.by_day, ledger_days, doubts, now, came_back)
    result = Reconciliation(
        batch=settings.batch,
        days=tuple(day for day in days if first <= day.date <= last),
        doubts=tuple(open_doubt for open_doubt in judged if first <= open_doubt.day <= last),
        accepted=tuple(video for video in accepted if first <= video.day <= last),
        balances=balances,
        at=now,
        threshold=settings.reconcile.threshold,
        file=store.url_of(_FILE),
        beyond=costs.beyond,
        credits=sum((amount for day, amount in came_back.items() if first <= day <= last), _NOTHING),
    )
    await store.write(_FILE, result.as_parquet(await store.read(_FILE)), PARQUET_TYPE)
    return result


def check_range(start: date | None, end: date | None, today: date) -> None:
    """Checks a range before anything is read. It may end in the future: then it ends today.

    Raises:
        CallsheetError: it cannot be.
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
    ledger: Ledger, client: Client, span: tuple[datetime, datetime], current: KnownBalance
) -> Balances | None:
    """The balances nearest to the begin and the end of a range, and what both accounts have between them.

    None where no run has read a balance yet.
    """
    service, (start, end) = client.base_url, span
    start_balance = await ledger.read(lambda connection, _: spending.balance_near(connection, service, start))
    if start_balance is None:
        return None
    read_balance = await ledger.read(
        lambda connection, _: spending.balance_near(connection, service, end, after=start_balance.at)
    )
    end_balance = min(filter(None, (current, read_balance)), key=lambda balance: abs(balance.at - end))
    costs = await client.daily_costs(start_balance.at, end_balance.at)
    usage = await ledger.read(
        lambda connection, _: spending.usage_between(connection, service, start_balance.at, end_balance.at)
    )
    return Balances(start_balance, end_balance, usage, sum(costs.by_day.values(), Decimal(0)))
