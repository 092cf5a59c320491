"""The nouns, in the order in which data becomes them: row, job, plan's price, generation, media.

Plain values without behaviour of their own: no I/O, no clock, nothing that knows where they came from.
Those that the service sends (`Model`, `Usage`, `Media`, ...) are the wire's own shapes and ignore fields
they do not know, because the interface may grow (INTERFACE 9).
Money is `Decimal` US dollars everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
"""A value as canonical JSON: sorted keys, no spaces, text as it is."""


def dollars(amount: Decimal) -> str:
    """An amount as people and JSON read it: four decimals, six where fewer would not be exact."""
    four = amount.quantize(Decimal("0.0001"))
    return str(four if four == amount else amount.quantize(Decimal("0.000001")))


class ModelType(StrEnum):
    """What a model makes (INTERFACE 2.10 `type`); rate windows are kept per type (INTERFACE 8)."""

    IMAGE = "image"
    VIDEO = "video"


class State(StrEnum):
    """The state of a job; `docs/architecture.md, "States of a job"` has what may follow."""

    PLANNED = "planned"
    SUBMITTING = "submitting"
    PENDING = "pending"
    GENERATED = "generated"
    STORED = "stored"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    LOST = "lost"


class Wire(BaseModel):
    """A shape that the service sends: frozen, and deaf to fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Rate(Wire):
    """One price of a model (INTERFACE 2.10). `sound` and `billable_unit` are open sets: never guess."""

    resolution: str
    sound: str
    billable_unit: str
    unit_price: Decimal


class Pricing(Wire):
    """A model's prices; empty `rates` means that there is no price, not that it is free."""

    currency: str
    rates: tuple[Rate, ...] = ()


class Model(Wire):
    """A model of the catalogue (INTERFACE 2.10). The first entry of each list is its default."""

    id: str
    name: str = ""
    type: str
    supported_aspect_ratios: tuple[str, ...] = ()
    supported_durations: tuple[int, ...] = ()
    supported_resolutions: tuple[str, ...] = ()
    supports_sound: bool = False
    supported_references: dict[str, int] = {}
    pricing: Pricing
    unreadable: str = ""
    """Why the catalogue's entry cannot be read; then the rest is empty, and nothing of it can be bought."""


Catalogue = Mapping[str, Model]
"""The live catalogue by model id."""


@dataclass(frozen=True, slots=True)
class Price:
    """An exact price: `unit_price` dollars times `quantity` units."""

    billable_unit: str
    unit_price: Decimal
    quantity: int
    currency: str

    @property
    def total(self) -> Decimal:
        """What the job costs, in `currency`."""
        return self.unit_price * self.quantity


@dataclass(frozen=True, slots=True)
class Job:
    """One generation to buy: a row of the plan.

    Attributes:
        key: the content address, 64 hex digits.
        row_id: the row's id, or one made from its content.
        sample: which of the row's samples, from 1.
        request: the JSON body to send, with `sha256:<hex>` in place of each inlined image's data URL.
        inlined: where the bytes of each inlined image are, by their sha256 (hex): a path or an `s3://` URL.
        carried: the batch file's other columns, for the manifest.
        price: None where the catalogue has no price and the config allows that.
    """

    key: str
    row_id: str
    sample: int
    type: ModelType
    model: str
    request: Mapping[str, Any]
    price: Price | None
    inlined: Mapping[str, str] = field(default_factory=dict)
    carried: Mapping[str, Any] = field(default_factory=dict)

    @property
    def quoted(self) -> Decimal:
        """The quote in dollars; zero where there is no price."""
        return self.price.total if self.price else Decimal(0)


class Usage(Wire):
    """What a generation cost, as the service says (INTERFACE 2.5)."""

    total_cost: Decimal
    billable_unit: str
    unit_price: Decimal
    quantity: Decimal


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _in_utc(moment: datetime) -> datetime:
    """Some write "no time" as the year 1, which the ledger's text does not give back: 1970 is as past."""
    try:
        return max(moment.astimezone(UTC), _EPOCH)
    except OverflowError:
        raise ValueError("is not within the years 1 to 9999 in UTC") from None


def _or_none(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        return None


def _bare(mime_type: str) -> str:
    return mime_type.partition(";")[0].strip().lower()


_DESCRIBES = WrapValidator(_or_none)  # no paid file is given up for an odd number that only describes it
Pixels = Annotated[int | None, Field(ge=0, lt=2**31), _DESCRIBES]  # as the ledger keeps them
Measure = Annotated[float | None, Field(ge=0, allow_inf_nan=False), _DESCRIBES]


class Media(Wire):
    """One file of a generation, still at the service (INTERFACE 2.6, 2.7).

    `width` and `height` are pixels, `duration` seconds, `fps` frames a second; None where they are not said,
    or make no sense. `mime_type` is in lower case and without parameters, `deletes_at` in UTC.
    """

    url: str
    mime_type: Annotated[str, AfterValidator(_bare)]
    deletes_at: Annotated[AwareDatetime, AfterValidator(_in_utc)]
    width: Pixels = None
    height: Pixels = None
    duration: Measure = None
    fps: Measure = None
    has_sound: Annotated[bool | None, _DESCRIBES] = None


@dataclass(frozen=True, slots=True)
class Generation:
    """An accepted submission that is finished: its id, its files in order, and its cost."""

    id: str
    media: tuple[Media, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Pending:
    """A video that the service is still making (INTERFACE 3)."""

    id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A video that the service gave up; terminal, and not charged (INTERFACE 3)."""

    id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a job that this run owns. `number` counts from 1."""

    job_key: str
    number: int
    type: ModelType
    row_id: str
    sample: int
    model: str
    generation_id: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A file of a generation that is paid for and not yet stored, under its reserved name in storage."""

    attempt: Attempt
    index: int
    name: str
    media: Media


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A verified file in storage: its URL (a path for local storage), sha256 in hex, and size in bytes."""

    url: str
    sha256: str
    bytes: int
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class Doubt:
    """An attempt that may have been paid for: it was sent, and no answer says whether it was accepted.

    Attributes:
        price: what it costs in dollars if it was charged; None where the catalogue had no price.
        submitted_at: when the request left.
        what: what happened, in words.
    """

    job_key: str
    attempt: int
    row_id: str
    sample: int
    type: ModelType
    model: str
    price: Decimal | None
    submitted_at: datetime
    what: str

    def as_json(self) -> dict[str, Any]:
        """What `resolve --json` prints; money is a string."""
        return {
            "job_key": self.job_key,
            "attempt": self.attempt,
            "row_id": self.row_id,
            "sample": self.sample,
            "type": self.type.value,
            "model": self.model,
            "price": None if self.price is None else dollars(self.price),
            "submitted_at": self.submitted_at.isoformat(),
            "what": self.what,
        }


@dataclass(frozen=True, slots=True)
class Reckoning:
    """What the ledger, all its batches together, expects of the workspace's balance. Money is in dollars.

    Attributes:
        since: the start of the last run before the first doubt that saw the balance.
        balance_then: the balance that it saw.
        spent_since: what the ledger knows to have been spent since.
        in_doubt: what may have been spent since beside that.
        in_flight: what runs that are under way may be spending now.
    """

    since: datetime
    balance_then: Decimal
    spent_since: Decimal
    in_doubt: Decimal
    in_flight: Decimal

    @property
    def expected(self) -> Decimal:
        """The balance now, if nothing that is in doubt was charged and nobody else bought."""
        return self.balance_then - self.spent_since


@dataclass(frozen=True, slots=True)
class Totals:
    """A batch so far: jobs by state, and money in dollars.

    `exposure` is what counts against the budget; `reserved` is the part of it that was not sent yet.
    """

    states: dict[State, int]
    quoted: Decimal
    spent: Decimal
    in_doubt_exposure: Decimal
    exposure: Decimal
    reserved: Decimal

    def as_json(self) -> dict[str, Any]:
        """What `status --json` prints beside the batch's name; money is a string."""
        return {
            **{state.value: self.states.get(state, 0) for state in State},
            "spent": dollars(self.spent),
            "in_doubt_exposure": dollars(self.in_doubt_exposure),
            "currency": "USD",
        }
