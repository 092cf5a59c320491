"""The shapes of requests and answers (INTERFACE 2).

Requests are strict: no value is converted (a duration of `"5"` or `true` is an error), and an unknown field
is an error. Answers are plain dictionaries. Money in them is `Decimal`, written as a JSON number with its
own digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from typing_extensions import TypedDict

from backlot.errors import Refused, invalid

Role = Literal["first_frame", "last_frame", "reference_image"]
Number = Annotated[Decimal, WithJsonSchema({"type": "number"})]
Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def without_default(schema: dict[str, Any]) -> None:
    """Removes a placeholder default from the schema: the real default depends on the model."""
    schema.pop("default", None)


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
    """The fields of both types of request. `model_fields_set` has those that were sent."""

    model: str = Field(description="A model id of `GET /v2/models`.")
    prompt: str = Field(min_length=1, max_length=4096, description="1 to 4096 characters.")
    images: list[ImageReference] = Field(default=[], max_length=20, json_schema_extra=without_default)
    aspect_ratio: str = Field(
        default="",
        description="One of the model's `supported_aspect_ratios`; the first is the default.",
        json_schema_extra=without_default,
    )
    resolution: str = Field(
        default="",
        description="One of the model's `supported_resolutions`; the first is the default.",
        json_schema_extra=without_default,
    )


class ImageRequest(GenerationRequest):
    """POST /v2/images/generations (INTERFACE 2.3)."""

    output_format: Literal["png", "jpeg", "webp"] = "jpeg"


class VideoRequest(GenerationRequest):
    """POST /v2/videos/generations (INTERFACE 2.4)."""

    duration: int = Field(
        default=0,
        description="Seconds: one of the model's `supported_durations`; the first is the default.",
        json_schema_extra=without_default,
    )
    sound: bool = False


R = TypeVar("R", bound=Request)


def read_request(shape: type[R], body: bytes) -> R:
    """The request in a body.

    Raises:
        Refused: 400 `parameter_missing` or `invalid_parameter`; `param` names the first wrong field.
    """
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        # Unknown fields last: a problem with a known field is more helpful.
        problem = min(
            error.errors(include_url=False, include_input=False), key=lambda e: e["type"] == "extra_forbidden"
        )
    param = (
        "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in problem["loc"]).removeprefix(".") or None
    )
    match problem["type"]:
        case "json_invalid":
            raise invalid(f"The body is not valid JSON: {problem['ctx']['error']}.")
        case "missing":
            raise Refused("parameter_missing", f"Missing required parameter: '{param}'.", param)
        case "extra_forbidden":
            raise invalid(f"Unknown parameter: '{param}'.", param)
        case _:
            where = f"Invalid value for '{param}'" if param else "Invalid body"
            raise invalid(f"{where}: {problem['msg']}.", param)


class ErrorBody(TypedDict):
    """The error object (INTERFACE 2.1)."""

    message: str
    type: Literal["invalid_request_error"]
    param: str | None
    code: Literal[
        "invalid_parameter",
        "parameter_missing",
        "invalid_api_key",
        "quota_exceeded",
        "not_found",
        "content_policy_violation",
        "rate_limit",
        "server_error",
    ]
    doc_url: NotRequired[str]


class Error(TypedDict):
    """The body of every error answer (INTERFACE 2.1)."""

    error: ErrorBody


class Usage(TypedDict):
    """What a generation cost (INTERFACE 2.5)."""

    total_cost: Number
    billable_unit: Literal["image", "video_second"]
    unit_price: Number
    quantity: Number


class ImageData(TypedDict):
    """One image (INTERFACE 2.6)."""

    url: str
    width: int | None
    height: int | None
    mime_type: str
    deletes_at: Timestamp


class VideoData(TypedDict):
    """One video (INTERFACE 2.7)."""

    url: str
    width: int
    height: int
    duration: Number
    fps: Number
    has_sound: bool
    mime_type: str
    deletes_at: Timestamp


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


class FailureReason(TypedDict):
    """Why a video failed (INTERFACE 2.9)."""

    message: str
    code: str


class Failed(TypedDict):
    """A failed video, which is not charged (INTERFACE 2.9)."""

    id: str
    status: Literal["failed"]
    error: FailureReason


class Completed(TypedDict):
    """A finished video (INTERFACE 2.9)."""

    id: str
    status: Literal["completed"]
    model: str
    data: list[VideoData]
    usage: Usage


class Rate(TypedDict):
    """One price (INTERFACE 2.10)."""

    resolution: str
    sound: str
    billable_unit: str
    unit_price: Annotated[str, Field(pattern=r"^\d+\.\d{4}$")]


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
    created_at: Timestamp


class Balance(TypedDict):
    """The balance (INTERFACE 2.11)."""

    currency: Literal["USD"]
    balance: Annotated[str, Field(pattern=r"^\d+\.\d{4}$")]


class Bucket(TypedDict):
    """The cost of one UTC date (INTERFACE 2.12)."""

    date: Annotated[str, Field(json_schema_extra={"format": "date"})]
    cost: Number


class Costs(TypedDict):
    """The costs of a range (INTERFACE 2.12)."""

    currency: Literal["USD"]
    data: list[Bucket]
    total_cost: Number
    start: Timestamp
    end: Timestamp


def as_number(value: Any) -> orjson.Fragment:
    """A `Decimal` as a JSON number with its own digits, without a float: 0.0400 becomes 0.04."""
    if isinstance(value, Decimal):
        return orjson.Fragment(f"{value.normalize():f}")
    raise TypeError(f"{type(value).__name__} cannot be in an answer")


def to_json(body: Any) -> bytes:
    """The body of an answer as JSON."""
    return orjson.dumps(body, default=as_number)
