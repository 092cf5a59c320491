"""The types of the service's answers that are not in `callsheet.records`, and the parsing of JSON.

JSON numbers become `Decimal`, never a float. What is null is none.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from callsheet.records import OR_NONE, Media, ServiceObject, Usage, six_decimals

_LONGEST_WORDS = 500  # characters: they may be a whole page


class RateHeaders(NamedTuple):
    """The `X-RateLimit-*` headers of an answer to a submission, about its type's window (INTERFACE 8)."""

    limit: int  # requests in a window
    remaining: int  # requests that are left in it
    reset: int  # the window's end in Unix seconds, by the service's clock
    date: float | None  # the service's clock when it answered (`Date`), in Unix seconds; None where missing


class Rate(ServiceObject):
    """One price of a model (INTERFACE 2.10), in dollars per unit.

    The interface does not list every value of `sound` and `billable_unit`, so other values may come.
    """

    resolution: str = ""
    sound: str = "not_applicable"
    billable_unit: str = ""
    unit_price: Decimal


def _with_price(rates: Any) -> Any:
    """A rate that has no price is none."""
    if not isinstance(rates, list):
        return rates
    return [rate for rate in rates if not isinstance(rate, dict) or "unit_price" in rate]


_Text = Annotated[str | None, OR_NONE]


class Pricing(ServiceObject):
    """A model's prices. With empty `rates` the model has no price; it does not mean that it is free."""

    currency: str = ""
    rates: Annotated[tuple[Rate, ...], BeforeValidator(_with_price)] = ()


class Model(ServiceObject):
    """A model of the catalogue (INTERFACE 2.10). The first entry of each list is its default."""

    id: str
    name: str = ""
    type: str
    supported_aspect_ratios: tuple[str, ...] = ()
    supported_durations: tuple[Annotated[int, Field(gt=-(2**31), lt=2**31)], ...] = ()
    supported_resolutions: tuple[str, ...] = ()
    supports_sound: bool = False
    supported_references: dict[str, int] = Field(default_factory=dict)
    pricing: Pricing = Pricing()
    created_at: _Text = None
    unreadable: str = ""
    """Why the catalogue's entry cannot be read. The other fields are then empty, and it cannot be used."""
    ambiguous: bool = False
    """The catalogue has it twice, with different prices: it has no price."""


Catalogue = Mapping[str, Model]
"""The live catalogue by model id."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A video that is not finished yet (INTERFACE 3)."""

    said: str = ""  # the service's words where its status is none that the interface has


@dataclass(frozen=True, slots=True)
class NoFile:
    """A video that is completed, and no file came with it. `said`: the service's words."""

    said: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A video that failed for good (INTERFACE 3). It costs what its `usage` says, if anything."""

    code: str
    message: str
    usage: Usage = field(default_factory=Usage)


class ErrorBody(ServiceObject):
    """The error object (INTERFACE 2.1)."""

    message: str
    code: str
    type: str | None = None
    param: str | None = None
    doc_url: _Text = None


_Id = Annotated[str, Field(min_length=1, coerce_numbers_to_str=True)]
_Name = Annotated[str | None, StringConstraints(strip_whitespace=True, min_length=1), OR_NONE]


_Part = Annotated[
    Annotated[Decimal, Field(ge=0, lt=10**12), AfterValidator(six_decimals)] | None,
    OR_NONE,
]


class Cost(Usage):
    """The `usage` of an answer, with its numbers rounded (INTERFACE 2.5)."""

    total_cost: _Part = None
    unit_price: _Part = None
    quantity: _Part = None


def _or_empty(value: Any) -> Any:
    return value if isinstance(value, dict) else {}


def with_address(data: Any) -> list[Any]:
    """The items of `data` that are files: those with an address."""
    items = data if isinstance(data, list) else [data]
    return [
        item for item in items if isinstance(item, dict) and item.get("url") and isinstance(item["url"], str)
    ]


def _not_empty(files: tuple[Media, ...]) -> tuple[Media, ...]:
    if not files:
        raise ValueError("no file came with it")
    return files


Files = Annotated[tuple[Media, ...], BeforeValidator(with_address)]
UsageOrNone = Annotated[Cost, BeforeValidator(_or_empty)]


class ImageAnswer(ServiceObject):
    """A finished image generation (INTERFACE 2.8). With an id and a file it is bought, whatever is odd."""

    id: _Id
    model: _Name = None
    data: Annotated[Files, AfterValidator(_not_empty)]
    usage: UsageOrNone = Cost()


class Accepted(ServiceObject):
    """The answer to an accepted video (INTERFACE 2.9). Its id is enough to poll it."""

    id: _Id


class VideoError(ServiceObject):
    """The reason why a video failed. Both fields may be missing: the status alone shows that it failed."""

    message: _Text = None
    code: _Text = None


def _error(value: Any) -> Any:
    return {"message": value} if isinstance(value, str) else _or_empty(value)


class VideoAnswer(ServiceObject):
    """The answer to a poll (INTERFACE 2.9). Its one file is the first of `data`."""

    id: Annotated[_Id | None, OR_NONE] = None
    status: _Text = None
    model: _Name = None
    data: Files = ()
    usage: UsageOrNone = Cost()
    error: Annotated[VideoError, BeforeValidator(_error)] = VideoError()

    def said(self) -> str:
        """The service's words: the status, and what its error says."""
        text = f"status {self.status!r}" if self.status else "no status"
        if self.error.message or self.error.code:
            code = f" ({self.error.code})" if self.error.code and self.error.message else ""
            text += f": {self.error.message or self.error.code}{code}"
        return text[:_LONGEST_WORDS]


_Amount = Annotated[Decimal, Field(gt=-(10**12), lt=10**12), AfterValidator(six_decimals)]
"""A balance can be overdrawn, and a day can have a refund."""


class Balance(ServiceObject):
    """The workspace's balance (INTERFACE 2.11)."""

    currency: Literal["USD"]
    balance: _Amount


class DayCost(ServiceObject):
    """The cost of one UTC day (INTERFACE 2.12), in dollars."""

    date: date
    cost: _Amount


class Costs(ServiceObject):
    """The costs of a range of days (INTERFACE 2.12): they may lag behind recent charges."""

    currency: Literal["USD"]
    data: tuple[DayCost, ...]
    total_cost: Annotated[_Amount | None, OR_NONE] = None


class DailyCosts(NamedTuple):
    """The costs of each UTC day of a range, in dollars, and by how much the service's own total is more than
    their sum: nothing, where it gives none.
    """

    by_day: dict[date, Decimal]
    beyond: Decimal


def parse(body: bytes) -> Any:
    """A JSON body, with numbers as `Decimal` or `int`, and text that can be stored in any database or file.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return _storable(json.loads(body, parse_float=Decimal))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ArithmeticError:
        raise ValueError("it has a number whose exponent is too large") from None


def _storable(value: Any) -> Any:
    """The value with `?` for the two things that JSON can escape and that cannot be stored everywhere.

    UTF-8 cannot encode half of a surrogate pair, and PostgreSQL cannot store NUL.
    """
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "?")
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class Download:
    """A file that the service has begun to send (INTERFACE 4.8)."""

    chunks: AsyncIterator[bytes]  # to be read once; raises `MaybeSent` when they stop coming
    length: int | None  # in bytes, by `Content-Length`; None where missing
    proven: bool  # the end of the transfer, once it has come, proves that nothing is missing
    mime_type: str  # its `Content-Type`, lower case, without parameters; empty where missing
