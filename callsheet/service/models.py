"""The types of the service's answers that are not in `callsheet.records`, and the parsing of JSON.

JSON numbers become `Decimal`, never a float. The service computes costs in binary floats, so that 3 x 0.1
arrives as 0.30000000000000004: they are rounded to six decimals, half to even, here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from callsheet.records import OR_NONE, Media, ServiceObject, Usage

T = TypeVar("T")


class RateHeaders(NamedTuple):
    """The `X-RateLimit-*` headers of an answer to a submission, about the window of its type (INTERFACE 8).

    Attributes:
        limit: requests in a window.
        remaining: requests that are left in it.
        reset: the window's end in Unix seconds, by the service's clock.
        date: the service's clock when it answered (the header `Date`), in Unix seconds; None where missing.
    """

    limit: int
    remaining: int
    reset: int
    date: float | None


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An accepted submission; `rate` is None where the answer has no readable rate-limit headers."""

    value: T
    rate: RateHeaders | None


def _six_decimals(value: Decimal) -> Decimal:
    return value.quantize(Decimal("0.000001"), rounding=ROUND_HALF_EVEN)


Amount = Annotated[Decimal, Field(ge=0, lt=10**12), AfterValidator(_six_decimals)]
"""A computed number: not negative, rounded to the six decimals that the ledger and the report keep."""


SignedAmount = Annotated[Decimal, Field(gt=-(10**12), lt=10**12), AfterValidator(_six_decimals)]
"""An amount of an account, rounded as `Amount` is: a balance can be overdrawn, a day can have a refund."""


class ErrorBody(ServiceObject):
    """The error object (INTERFACE 2.1)."""

    message: str
    code: str
    type: str | None = None
    param: str | None = None


class ErrorEnvelope(ServiceObject):
    """The body of an error answer (INTERFACE 2.1)."""

    error: ErrorBody


_Part = Annotated[Amount | None, OR_NONE]
_Text = Annotated[str | None, OR_NONE]
_Id = Annotated[str, Field(min_length=1, coerce_numbers_to_str=True)]


class Cost(Usage):
    """The `usage` of a generation, with its numbers rounded (INTERFACE 2.5)."""

    total_cost: _Part = None
    unit_price: _Part = None
    quantity: _Part = None


def _or_empty(value: Any) -> Any:
    return value if isinstance(value, dict) else {}


def _with_address(data: Any) -> list[Any]:
    """The items of `data` that are files: those with an address."""
    items = data if isinstance(data, list) else [data]
    return [
        item for item in items if isinstance(item, dict) and item.get("url") and isinstance(item["url"], str)
    ]


def _some(files: tuple[Media, ...]) -> tuple[Media, ...]:
    if not files:
        raise ValueError("no file came with it")
    return files


Files = Annotated[tuple[Media, ...], BeforeValidator(_with_address)]
UsageOrNone = Annotated[Cost, BeforeValidator(_or_empty)]


class ImageAnswer(ServiceObject):
    """A finished image generation (INTERFACE 2.8). With an id and a file it is bought, whatever is odd."""

    id: _Id
    data: Annotated[Files, AfterValidator(_some)]
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
    data: Files = ()
    usage: UsageOrNone = Cost()
    error: Annotated[VideoError, BeforeValidator(_error)] = VideoError()

    def said(self) -> str:
        """The service's words: the status, and what its error says."""
        words = f"status {self.status!r}" if self.status else "no status"
        if self.error.message or self.error.code:
            code = f" ({self.error.code})" if self.error.code and self.error.message else ""
            words += f": {self.error.message or self.error.code}{code}"
        return words[:_LONGEST_WORDS]


_LONGEST_WORDS = 500  # characters: they may be a whole page


class Balance(ServiceObject):
    """The workspace's balance (INTERFACE 2.11)."""

    currency: Literal["USD"]
    balance: SignedAmount


class DayCost(ServiceObject):
    """The cost of one UTC day (INTERFACE 2.12), in dollars."""

    date: date
    cost: SignedAmount


class Costs(ServiceObject):
    """The costs of a range of days (INTERFACE 2.12): they may lag behind recent charges."""

    currency: Literal["USD"]
    data: tuple[DayCost, ...]
    total_cost: SignedAmount


_decoder = json.JSONDecoder(parse_float=Decimal)


def parse(body: bytes) -> Any:
    """A JSON body, with numbers as `Decimal` or `int`, and text that can be stored in any database or file.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        if body.isascii() and b"\\" not in body and b"\0" not in body:  # then all its text can be stored
            return _decoder.decode(body.decode())
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
    """A file that the service has begun to send (INTERFACE 4.8).

    Attributes:
        chunks: its bytes, to be read once; iterating raises `MaybeSent` when they stop coming.
        length: the number of bytes, by `Content-Length`; None where missing.
        mime_type: its `Content-Type`, lower case, without parameters; empty where missing.
    """

    chunks: AsyncIterator[bytes]
    length: int | None
    mime_type: str
