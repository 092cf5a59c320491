"""What a service owes for a batch, as it is sent to the service: a table, a page, and the same for programs.

In a claim is what was charged and never delivered, what came other than it was ordered, and what cost more
than its quote. Nothing in it is secret: no key, no address of a file, no place on this machine, no prompt.
What a file should have cost is the catalogue's word or nobody's. Money is in dollars.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import polars as pl
import sqlalchemy as sa

from callsheet.cells import guarded
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import CallsheetError
from callsheet.ledger import paid_back
from callsheet.ledger.charges import is_dearer
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.paid_back import AttemptKey
from callsheet.ledger.queries import MONEY
from callsheet.places import check_report
from callsheet.plain_text import counted
from callsheet.pricing.plan import last_plan
from callsheet.pricing.rates import price_of
from callsheet.records import Record, State
from callsheet.report.against_account import Judgement, check_range, reconcile
from callsheet.report.summary import DIFFERENCE
from callsheet.service.client import Client
from callsheet.service.models import Catalogue
from callsheet.standing import MODEL, SETTINGS, SUBMITTED, Standing, read_standing
from callsheet.storage.store import Store

CSV, PAGE, JSON = "claim.csv", "claim.md", "claim.json"

_OF_ATTEMPT = ("request", "generation_id", "model_delivered", "finished_at")
_MEASURES = ("width", "height", "duration", "fps", "has_sound")
_OF_FILE = (
    *(*_MEASURES, "mime_type_said"),
    *(*(f"{name}_measured" for name in _MEASURES), "mime_type"),
    "sha256",
)
# The differences of which the catalogue has the price. It has none of a still picture, nor of another size:
# which resolution that is, the interface does not say.
_PRICED_FLAGS = frozenset({"model", "length", "sound", "format"})


class Why(StrEnum):
    """Why a generation is in a claim."""

    LOST = "lost"
    """It was charged, and its file never came."""

    FAILED = "failed"
    """It was charged, and has failed."""

    DOUBT = "no answer"
    """No answer came, and the service's account shows that it was charged."""

    OTHER = "other than ordered"
    """What came is not what was ordered."""

    DEARER = "above its quote"
    """It was charged more than the catalogue said."""


@dataclass(frozen=True, slots=True)
class Claimed(Record):
    """A generation of a claim.

    Attributes:
        flags: what is other than ordered, as the checks say it.
        ordered: the model and the settings of its request.
        delivered: what came, as the answer says it (`said`) and by its bytes (`measured`); None: nothing.
        quoted: by the catalogue when it was bought; None where that had no price.
        cost: what was charged; None where no answer says it.
        should_cost: by the catalogue, for what came; None where that cannot be said.
        owed: None where that cannot be said.
        sha256: of each of its files.
    """

    row_id: str
    sample: int
    generation_id: str | None
    why: Why
    model: str
    model_delivered: str | None
    flags: tuple[str, ...]
    ordered: Mapping[str, Any]
    delivered: Mapping[str, Mapping[str, Any]] | None
    submitted_at: datetime
    finished_at: datetime | None
    quoted: Decimal | None
    cost: Decimal | None
    should_cost: Decimal | None
    owed: Decimal | None
    sha256: tuple[str, ...]
    job_key: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Claim(Record):
    """What a service owes for a batch.

    Attributes:
        since: the first UTC day of submission that is in it; None: all days.
        files: the generations, in order of submission.
        cost: what was charged for them.
        owed: the sum, as far as it can be said.
        not_said: of how many of them it cannot be said what is owed.
        credits: what came back for the batch so far.
        notes: what may be missing in it, and why, in sentences.
        csv, page: where they are.
    """

    batch: str
    since: date | None
    files: tuple[Claimed, ...]
    cost: Decimal
    owed: Decimal
    not_said: int
    currency: str
    credits: Decimal
    notes: tuple[str, ...]
    csv: str
    page: str
    ledger_id: str
    written_at: datetime


async def make_claim(
    settings: Settings, connect: Callable[[], Awaitable[Client]], since: date | None, *, with_sent: bool
) -> Claim:
    """What the service owes for the batch of a config. Where something is in doubt it reconciles the
    accounts, and writes what that does; otherwise nothing.

    Args:
        connect: makes the service's client, which is asked only where something is in doubt.
        since: the first UTC day of submission that counts; None: all days.
        with_sent: also what a claim names that was sent.

    Raises:
        CallsheetError: the day cannot be; or the report or the ledger cannot be used.
    """
    check_range(since, None, datetime.now(UTC).date())
    await check_report(settings)
    plan = await asyncio.to_thread(last_plan, settings)
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:

        def read(connection: sa.Connection, batch: str) -> tuple[Standing, set[AttemptKey]]:
            standing = read_standing(connection, batch, of_attempts=_OF_ATTEMPT, of_files=_OF_FILE)
            return standing, set() if with_sent else paid_back.sent(connection, batch)

        standing, sent = await ledger.read(read)
    doubts, notes = await _charged_doubts(settings, connect, standing, since)
    if settings.checks.delivered == "off":
        notes = (*notes, "checks.delivered is off: nobody has looked whether what came is as it was ordered")
    elif unchecked := standing.files["flags"].null_count():
        notes = (*notes, f"{counted(unchecked, 'file')} not checked yet: callsheet report CONFIG checks them")
    claimed = _claimed(standing, doubts, plan.catalogue if plan else {})
    files = tuple(
        file
        for file in claimed
        if (file.job_key, file.attempt) not in sent and (since is None or file.submitted_at.date() >= since)
    )
    store = _store(settings)
    return Claim(
        batch=settings.batch,
        since=since,
        files=files,
        cost=sum((file.cost or Decimal(0) for file in files), Decimal(0)),
        owed=sum((file.owed or Decimal(0) for file in files), Decimal(0)),
        not_said=sum(file.owed is None for file in files),
        currency="USD",
        credits=standing.credits,
        notes=notes,
        csv=store.url_of(CSV),
        page=store.url_of(PAGE),
        ledger_id=ledger.id,
        written_at=datetime.now(UTC).replace(microsecond=0),
    )


async def write_claim(settings: Settings, claim: Claim, page: str) -> None:
    """Writes a claim under `report.url`; the last file is the one by which it can be marked as sent.

    Raises:
        StorageError: it cannot be written.
    """
    store = _store(settings)
    await store.write(CSV, await asyncio.to_thread(as_csv, claim), "text/csv")
    await store.write(PAGE, page.encode(), "text/markdown")
    await store.write(JSON, json.dumps(claim.as_json(), ensure_ascii=False).encode(), "application/json")


async def mark_sent(settings: BatchSettings, ledger: Ledger, *, by: str, note: str) -> int:
    """Marks what the claim names that was written last as sent; returns how many generations are new.

    Raises:
        CallsheetError: there is no claim of this ledger, or all that it names was sent.
    """
    hint = "callsheet claim CONFIG writes one. Look at it and send it, then mark it."
    content = await _store(settings).read(JSON)
    try:
        written = json.loads(content or b"null")
        keys = {(str(file["job_key"]), int(file["attempt"])) for file in written["files"]}
        is_ours = (written["batch"], written["ledger_id"]) == (ledger.batch, ledger.id)
    except (ValueError, TypeError, KeyError):
        is_ours, keys = False, set()
    if not is_ours:
        raise CallsheetError(f"{settings.report.url} has no claim of {ledger.batch} to mark", hint=hint)
    new = sorted(keys - await ledger.read(paid_back.sent))
    if not new:
        reason = "was sent before" if keys else "names nothing"
        raise CallsheetError(f"the claim that was written last {reason}; nothing was marked", hint=hint)
    await ledger.write(paid_back.enter_sent, new, by=by, note=note)
    return len(new)


def _store(settings: BatchSettings) -> Store:
    return Store.of(settings.report.url, settings.storage)


async def _charged_doubts(
    settings: Settings, connect: Callable[[], Awaitable[Client]], standing: Standing, since: date | None
) -> tuple[set[AttemptKey], tuple[str, ...]]:
    """What is in doubt and was charged by the service's account; and where that cannot be asked, why."""
    if standing.attempts.filter(state=State.IN_DOUBT).is_empty():
        return set(), ()
    try:
        async with await connect() as client:
            result = await reconcile(settings, client, since, None)
    except CallsheetError as error:
        return set(), (f"the service's account cannot be asked about what is in doubt: {error.message}",)
    doubts = (judged.doubt for judged in result.doubts if judged.verdict is Judgement.CHARGED)
    return {(doubt.job_key, doubt.attempt) for doubt in doubts}, ()


def _claimed(standing: Standing, doubts: Collection[AttemptKey], catalogue: Catalogue) -> Iterator[Claimed]:
    """What is to be claimed of a batch, in order of submission."""
    of_attempt = defaultdict[AttemptKey, list[dict[str, Any]]](list)
    for row in standing.files.sort("index").iter_rows(named=True):
        of_attempt[row["job_key"], row["attempt"]].append(row)
    for row in standing.attempts.filter(SUBMITTED).iter_rows(named=True):
        key = (row["job_key"], row["attempt"])
        files = of_attempt.get(key, [])
        flags = _flags(files)
        if reason := _why(row, flags, is_charged_doubt=key in doubts):
            yield _with_amounts(row, reason, flags, files, catalogue)


def _flags(files: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What is other than ordered in these files: the flag, in words, by what it is about."""
    texts = (flag for file in files for flag in file["flags"] or ())
    return {match[1]: match[0] for match in map(re.compile(DIFFERENCE).match, texts) if match}


def _why(attempt: Mapping[str, Any], flags: Collection[str], *, is_charged_doubt: bool) -> Why | None:
    """Why an attempt is in a claim; None where it is not."""
    cost, quoted = attempt["cost"] or Decimal(0), attempt["quoted"]
    match State(attempt["state"]):
        case State.IN_DOUBT:
            return Why.DOUBT if is_charged_doubt else None
        case State.LOST if cost:
            return Why.LOST
        case State.FAILED if cost:
            return Why.FAILED
    if flags and cost:
        return Why.OTHER
    return Why.DEARER if quoted is not None and is_dearer(cost, quoted) else None


def _with_amounts(
    attempt: Mapping[str, Any],
    reason: Why,
    flags: Mapping[str, str],
    files: Sequence[Mapping[str, Any]],
    catalogue: Catalogue,
) -> Claimed:
    """An attempt with what it should have cost, and what is owed for it.

    Of a generation of which some files came and others are lost, nobody can say what these are worth.
    """
    request = json.loads(attempt["request"])
    ordered = {name: request.get(name) for name in (MODEL, *SETTINGS)}
    delivered = _delivered(attempt, files[0]) if files else None
    charged, quoted = attempt["cost"], attempt["quoted"]
    should_cost: Decimal | None = Decimal(0)
    if reason is Why.DOUBT:
        charged = quoted
    elif reason is Why.DEARER:
        should_cost = quoted
    elif reason is Why.OTHER and delivered and _PRICED_FLAGS.issuperset(flags):
        should_cost = _should_cost(ordered, _came(ordered, flags, delivered), quoted, catalogue)
    elif delivered:
        should_cost = None
    return Claimed(
        **{name: attempt[name] for name in ("row_id", "sample", "generation_id", "model", "submitted_at")},
        **{name: attempt[name] for name in ("finished_at", "quoted", "cost", "job_key", "attempt")},
        why=reason,
        model_delivered=attempt["model_delivered"],
        flags=tuple(flags.values()),
        ordered=ordered,
        delivered=delivered,
        should_cost=should_cost,
        owed=None if charged is None or should_cost is None else max(charged - should_cost, Decimal(0)),
        sha256=tuple(file["sha256"] for file in files),
    )


def _delivered(attempt: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What came, as the answer says it and by its bytes."""
    stated = {MODEL: attempt["model_delivered"]} | {name: file[name] for name in _MEASURES}
    measured = {name: file[f"{name}_measured"] for name in _MEASURES}
    return {
        "said": stated | {"mime_type": file["mime_type_said"]},
        "measured": measured | {"mime_type": file["mime_type"]},
    }


def _came(
    ordered: Mapping[str, Any],
    flags: Collection[str],
    delivered: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """What came, in the words of a request: by its bytes, and where they are not known as the answer says.

    Sound that was not ordered is none of it. Seconds are whole ones, as they are sold.
    """
    delivery, stated, measured = dict(ordered), delivered["said"], delivered["measured"]
    seconds, sound = (
        stated[name] if measured[name] is None else measured[name] for name in ("duration", "has_sound")
    )
    if "model" in flags:
        delivery[MODEL] = stated[MODEL]
    if "length" in flags:
        delivery["duration"] = None if seconds is None else int(seconds + 0.5)
    if "sound" in flags and ordered["sound"]:
        delivery["sound"] = bool(sound)
    return delivery


def _should_cost(
    ordered: Mapping[str, Any], delivery: Mapping[str, Any], quoted: Decimal | None, catalogue: Catalogue
) -> Decimal | None:
    """What it should have cost, at most its quote; None where the catalogue cannot say it: it may have other
    prices now than when the file was bought.
    """
    if delivery == ordered:
        return quoted
    price, price_as_ordered = _price(delivery, catalogue), _price(ordered, catalogue)
    if price is None or quoted is None or price_as_ordered != quoted:
        return None
    return min(price, quoted)


def _price(settings: Mapping[str, Any], catalogue: Catalogue) -> Decimal | None:
    model = catalogue.get(settings[MODEL])
    if model is None:
        return None
    price, _ = price_of(model, settings)
    return price.total if price else None


_OF_DELIVERED = {
    **{MODEL: pl.String, "width": pl.Int64, "height": pl.Int64, "duration": pl.Float64, "fps": pl.Float64},
    **{"has_sound": pl.Boolean, "mime_type": pl.String},
}
_OF_REQUEST = {
    **dict.fromkeys((MODEL, *SETTINGS), pl.String),
    **{"duration": pl.Int64, "sound": pl.Boolean},
}
_COLUMNS: dict[str, Any] = {
    **{"row_id": pl.String, "sample": pl.Int64},
    **dict.fromkeys(("generation_id", "why", "flags", "submitted_at", "finished_at"), pl.String),
    **{f"ordered_{name}": type_ for name, type_ in _OF_REQUEST.items()},
    **{f"{by}_{name}": type_ for by in ("said", "measured") for name, type_ in _OF_DELIVERED.items()},
    **dict.fromkeys(("quoted", "cost", "should_cost", "owed"), MONEY),
    **dict.fromkeys(("currency", "sha256", "job_key"), pl.String),
    "attempt": pl.Int64,
}


def as_csv(claim: Claim) -> bytes:
    """A claim as a table, a line for each generation; no cell is run as a formula."""
    table = pl.DataFrame([_cells(file) | {"currency": claim.currency} for file in claim.files], _COLUMNS)
    return table.with_columns(guarded(pl.col(pl.String))).write_csv().encode()


def _cells(file: Claimed) -> dict[str, Any]:
    """A line of the table, by column."""
    parts = {"ordered": file.ordered, **(file.delivered or {})}
    cells = {f"{part}_{name}": value for part, values in parts.items() for name, value in values.items()}
    for name in ("submitted_at", "finished_at"):
        cells[name] = file[name] and f"{file[name]:%Y-%m-%dT%H:%M:%SZ}"
    for name in ("flags", "sha256"):
        cells[name] = "; ".join(file[name])
    return {name: file[name] for name in Claimed.__slots__ if name in _COLUMNS} | cells
