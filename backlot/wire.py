"""The shapes of requests and answers (INTERFACE 2).

Requests are strict: no value is converted (a duration of `"5"` or `true` is an error), and an unknown field
is an error. The shapes of answers describe them in the OpenAPI document; answers are plain dictionaries, and
money in them is `Decimal`, written as a JSON number with its own digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired

import orjson
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from typing_extensions import TypedDict

from backlot.errors import Code

Role = Literal["first_frame", "last_frame", "reference_image"]
Price = Annotated[str, Field(pattern=r"^\d+\.\d{4}$")]

DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.IGNORECASE | re.ASCII)


def utc(text: str) -> datetime:
    """An ISO 8601 date-time with time zone, in UTC. Raises `ValueError` for other forms that Python reads."""
    try:
        if DATE_TIME.fullmatch(text):
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError("expected an ISO 8601 date-time with time zone, such as 2026-01-31T00:00:00Z")


Moment = Annotated[AwareDatetime, BeforeValidator(utc)]


class Request(BaseModel):
    """A strict request body: no conversion, no unknown field."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ImageReference(Request):
    """An item of `images` (INTERFACE 2.2). Without a role it is a `reference_image`."""

    url: str = Field(
        min_length=1,
        description="An HTTPS URL, or `data:<mime>;base64,<data>`: a PNG, JPEG or WebP of at most 10 MiB.",
        examples=["https://example.com/portrait.png"],
    )
    role: Role = "reference_image"


class GenerationRequest(Request):
    """The fields of both types of request. `model_fields_set` has those that were sent.

    A factory makes what was not sent, so that the schema shows no default: it depends on the model.
    """

    model: str = Field(description="A model id of `GET /v2/models`.")
    prompt: str = Field(min_length=1, max_length=4096, description="1 to 4096 characters.")
    images: list[ImageReference] = Field(default_factory=list, max_length=20)
    aspect_ratio: str = Field(
        default_factory=str,
        description="One of the model's `supported_aspect_ratios`; the first is the default.",
    )
    resolution: str = Field(
        default_factory=str,
        description="One of the model's `supported_resolutions`; the first is the default.",
    )


class ImageRequest(GenerationRequest):
    """POST /v2/images/generations (INTERFACE 2.3)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "still-1", "prompt": "A red fox"}]})
    output_format: Literal["png", "jpeg", "webp"] = "jpeg"


class VideoRequest(GenerationRequest):
    """POST /v2/videos/generations (INTERFACE 2.4)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "reel-1", "prompt": "A red fox"}]})
    duration: int = Field(
        default_factory=int,
        description="Seconds: one of the model's `supported_durations`; the first is the default.",
    )
    sound: bool = False


class ErrorBody(TypedDict):
    """The error object (INTERFACE 2.1)."""

    message: str
    type: Literal["invalid_request_error"]
    param: str | None
    code: Code
    doc_url: NotRequired[str]


class Error(TypedDict):
    """The body of every error answer (INTERFACE 2.1)."""

    error: ErrorBody


class Usage(TypedDict):
    """What a generation cost (INTERFACE 2.5)."""

    total_cost: float
    billable_unit: Literal["image", "video_second"]
    unit_price: float
    quantity: float


class ImageData(TypedDict):
    """One image (INTERFACE 2.6)."""

    url: str
    width: int | None
    height: int | None
    mime_type: str
    deletes_at: datetime


class VideoData(ImageData):
    """One video (INTERFACE 2.7)."""

    duration: float
    fps: float
    has_sound: bool


class ImageGeneration(TypedDict):
    """The answer to an image request (INTERFACE 2.8)."""

    id: str
    status: Literal["completed"]
    model: str
    data: list[ImageData]
    usage: Usage


class Pending(TypedDict):
    """A video that is not finished (INTERFACE 2.9)."""

    id: str
    status: Literal["pending"]


class Failure(TypedDict):
    """Why a video failed (INTERFACE 2.9)."""

    message: str
    code: Code


class VideoStatus(TypedDict):
    """A video (INTERFACE 2.9): with an error where it failed, and the rest of it where it is completed."""

    id: str
    status: Literal["pending", "failed", "completed"]
    error: NotRequired[Failure]
    model: NotRequired[str]
    data: NotRequired[list[VideoData]]
    usage: NotRequired[Usage]


class Rate(TypedDict):
    """One price (INTERFACE 2.10)."""

    resolution: str
    sound: str
    billable_unit: str
    unit_price: Price


class Pricing(TypedDict):
    """A model's prices (INTERFACE 2.10)."""

    currency: Literal["USD"]
    rates: list[Rate]


class Model(TypedDict):
    """A model object (INTERFACE 2.10)."""

    id: str
    name: str
    type: Literal["image", "video"]
    supported_aspect_ratios: list[str]
    supported_durations: list[int]
    supported_resolutions: list[str]
    supports_sound: bool
    supported_references: Mapping[Role, int]
    pricing: Pricing
    created_at: datetime


class Balance(TypedDict):
    """The balance (INTERFACE 2.11)."""

    currency: Literal["USD"]
    balance: Price


class Bucket(TypedDict):
    """The cost of one UTC date (INTERFACE 2.12)."""

    date: date
    cost: float


class Costs(TypedDict):
    """The costs of a range (INTERFACE 2.12)."""

    currency: Literal["USD"]
    data: list[Bucket]
    total_cost: float
    start: datetime
    end: datetime


def as_number(value: Any) -> orjson.Fragment:
    """A `Decimal` as a JSON number with its own digits, without a float: 0.0400 becomes 0.04."""
    if isinstance(value, Decimal):
        return orjson.Fragment(f"{value.normalize():f}")
    raise TypeError(f"{type(value).__name__} cannot be in an answer")


def to_json(body: Any) -> bytes:
    """The body of an answer as JSON."""
    return orjson.dumps(body, default=as_number)
