"""What the service sends that is not yet a noun of `callsheet.records`, and how its JSON is read.

JSON numbers become `Decimal`, never a float. The service computes costs in binary floats, so that 3 x 0.1
arrives as 0.30000000000000004: such numbers are rounded, half to even, to six decimals here, at the wall, and
nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator, Field

from callsheet.records import Media, Usage, Wire

T = TypeVar("T")


class RateHeaders(NamedTuple):
    """What an answer to a submission says about the window of its type (INTERFACE 8).

    Attributes:
        limit: requests in a window.
        remaining: how many of them are left.
        reset: the window's end, in the service's Unix seconds.
        date: the service's clock when it answered (`Date`), in Unix seconds; None where not sent.
    """

    limit: int
    remaining: int
    reset: int
    date: float | None


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An accepted submission; `rate` is None where the answer said nothing about the window."""

    value: T
    rate: RateHeaders | None


def _six_decimals(value: Decimal) -> Decimal:
    return value.quantize(Decimal("0.000001"), rounding=ROUND_HALF_EVEN)


Amount = Annotated[Decimal, Field(ge=0, lt=10**12), AfterValidator(_six_decimals)]
"""A computed number: not negative, and six decimals, as many as the ledger and the report keep."""


class ErrorBody(Wire):
    """INTERFACE 2.1, within its envelope."""

    message: str
    code: str
    param: str | None = None


class ErrorEnvelope(Wire):
    """INTERFACE 2.1."""

    error: ErrorBody


class Cost(Usage):
    """A `usage` as it arrives (INTERFACE 2.5)."""

    total_cost: Amount
    unit_price: Amount
    quantity: Amount


class ImageAnswer(Wire):
    """A finished image generation (INTERFACE 2.8)."""

    id: str = Field(min_length=1)
    data: tuple[Media, ...] = Field(min_length=1)
    usage: Cost


class Accepted(Wire):
    """An accepted video (INTERFACE 2.9). Its id is all that matters: with it, the video can be had."""

    id: str = Field(min_length=1)


class PendingVideo(Wire):
    """INTERFACE 2.9."""

    status: Literal["pending"]


class VideoError(Wire):
    """Why a video failed. Both fields may be missing: that it failed is what counts."""

    message: str | None = None
    code: str | None = None


class FailedVideo(Wire):
    """INTERFACE 2.9."""

    status: Literal["failed"]
    error: VideoError | None = None


class CompletedVideo(Wire):
    """INTERFACE 2.9: the file is the first of `data`."""

    status: Literal["completed"]
    data: tuple[Media, ...] = Field(min_length=1)
    usage: Cost


VideoAnswer = Annotated[PendingVideo | FailedVideo | CompletedVideo, Field(discriminator="status")]
"""The answer to a poll (INTERFACE 2.9)."""


class Balance(Wire):
    """INTERFACE 2.11."""

    currency: Literal["USD"]
    balance: Annotated[Decimal, Field(gt=-(10**12), lt=10**12), AfterValidator(_six_decimals)]


class DayCost(Wire):
    """The cost of one UTC day (INTERFACE 2.12), in dollars."""

    date: date
    cost: Amount


class Costs(Wire):
    """The costs of a range of days (INTERFACE 2.12): telemetry that may lag, never the ledger."""

    currency: Literal["USD"]
    data: tuple[DayCost, ...]
    total_cost: Amount


def parse(body: bytes) -> Any:
    """A JSON body, with numbers as `Decimal` or `int`, and text that any database and file can hold.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return _writable(json.loads(body, parse_float=Decimal))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ArithmeticError:
        raise ValueError("a number of it has an exponent that no decimal can have") from None


def _writable(value: Any) -> Any:
    """`?` for what JSON can escape and UTF-8 or PostgreSQL cannot write: half a surrogate pair, and NUL."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "?")
    if isinstance(value, list):
        return [_writable(each) for each in value]
    if isinstance(value, dict):
        return {_writable(key): _writable(each) for key, each in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class Download:
    """A file that the service has begun to send (INTERFACE 4.8).

    Attributes:
        chunks: its bytes; iterating raises `MaybeSent` when they stop coming. To be read once.
        length: how many bytes there will be; None where the service does not say.
        mime_type: what the service says it is, lower case, without parameters; empty where it does not say.
    """

    chunks: AsyncIterator[bytes]
    length: int | None
    mime_type: str
