"""The OpenAPI document: every constraint, example and error of `docs/interface.md`.

The endpoints parse their bodies themselves, so FastAPI does not know the schemas; they are added here.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response
from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from backlot import wire
from backlot.wire import Balance, Completed, Costs, Error, Failed, ImageGeneration, Model, Pending

VideoStatus = Pending | Failed | Completed
REFERENCE = "#/components/schemas/{model}"
ERRORS = {
    400: "A parameter is invalid or missing (`invalid_parameter`, `parameter_missing`).",
    401: "The API key is missing or wrong (`invalid_api_key`).",
    402: "The balance is smaller than the price (`quota_exceeded`).",
    403: "The URL has been altered (`invalid_parameter`).",
    404: "There is no such model, generation or file (`not_found`).",
    405: "The path does not take this method (`invalid_parameter`).",
    410: "The URL has expired (`not_found`).",
    416: "The range is outside the file (`invalid_parameter`).",
    422: "The prompt or a reference image does not pass the safety check (`content_policy_violation`).",
    429: "A rate window is full (with `Retry-After`), or there are too many generations at once (without).",
    500: "Internal failure (`server_error`).",
}
DIGITS = {"type": "string", "pattern": r"^\d+$"}
RATE_HEADERS = {
    "X-RateLimit-Limit": {"description": "Requests in a window.", "schema": DIGITS},
    "X-RateLimit-Remaining": {"description": "Requests left in this window.", "schema": DIGITS},
    "X-RateLimit-Reset": {"description": "Unix seconds at which the next window begins.", "schema": DIGITS},
}
RETRY_AFTER = {"Retry-After": {"description": "Seconds until the window opens.", "schema": DIGITS}}
NO_STORE = {"Cache-Control": {"schema": {"type": "string", "const": "no-store"}}}

FILES: dict[str, Any] = {
    mime_type: {"schema": {"type": "string", "format": "binary"}}
    for mime_type in ("image/png", "image/jpeg", "image/webp", "video/mp4")
}

ABOUT: dict[str, Any] = {
    "title": "Backlot",
    "version": "2.0.0",
    "summary": "An image and video generation service on one machine.",
    "description": (
        "Images are made while you wait; videos are submitted, polled and then downloaded. Media is fetched "
        "from signed URLs that expire. Every finished generation reports its cost. All errors look the same."
    ),
    "redoc_url": None,
    "docs_url": None,  # `dashboard.documentation` has it
    "redirect_slashes": False,
}


def operation(
    summary: str,
    answers: dict[int, tuple[str, Any, dict[str, Any]]],
    errors: tuple[int, ...],
    *,
    body: type[wire.Request] | None = None,
    examples: dict[str, Any] | None = None,
    parameters: tuple[dict[str, Any], ...] = (),
    metered: bool = True,
    tag: str,
) -> dict[str, Any]:
    """The keyword arguments of a FastAPI route.

    `answers` maps a status to its description, the type of its body, and its headers.
    """
    responses: dict[int, dict[str, Any]] = {}
    for status, (description, shape, headers) in answers.items():
        content: dict[str, Any] = {"application/json": {"schema": schema_of(shape)}} if shape else FILES
        responses[status] = {"description": description, "headers": headers, "content": content}
    for status in errors:
        headers = dict(RATE_HEADERS) if metered and status != 401 else {}
        responses[status] = {
            "description": ERRORS[status],
            "headers": headers | (RETRY_AFTER if status == 429 else {}),
            "content": {"application/json": {"schema": {"$ref": REFERENCE.format(model="Error")}}},
        }
    extra: dict[str, Any] = {"parameters": list(parameters)} if parameters else {}
    if tag != "Downloads":
        extra["security"] = [{"key": []}]
    if body:
        schema = {"$ref": REFERENCE.format(model=body.__name__)}
        json_body = {"application/json": {"schema": schema, "examples": examples}}
        extra["requestBody"] = {"required": True, "content": json_body}
    first, *_ = answers
    return {
        "summary": summary,
        "status_code": first,
        "responses": responses,
        "response_model": None,
        "openapi_extra": extra,
        "tags": [tag],
    }


def schema_of(shape: Any) -> dict[str, Any]:
    """A reference to the type's schema; for lists and unions, a schema made of references."""
    schema = TypeAdapter(shape).json_schema(ref_template=REFERENCE, mode="serialization")
    schema.pop("$defs", None)
    if schema.get("type") == "object":
        return {"$ref": REFERENCE.format(model=shape.__name__)}
    return schema


def query(name: str, description: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    """A query parameter."""
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


def example(**body: Any) -> dict[str, Any]:
    """An example of a request body."""
    return {"value": body}


DATE_TIME = {"type": "string", "format": "date-time"}

CREATE_IMAGE = operation(
    "Generate an image",
    {200: ("The finished image, charged to the balance.", ImageGeneration, RATE_HEADERS)},
    (400, 401, 402, 422, 429, 500),
    body=wire.ImageRequest,
    examples={
        "plain": example(model="still-1", prompt="A red fox in the snow"),
        "everything": example(
            model="still-1",
            prompt="The same fox, at sunset",
            images=[{"url": "https://example.com/fox.png", "role": "reference_image"}],
            aspect_ratio="16:9",
            resolution="2K",
            output_format="webp",
        ),
    },
    tag="Images",
)
CREATE_VIDEO = operation(
    "Submit a video",
    {202: ("Accepted; poll its id.", Pending, RATE_HEADERS)},
    (400, 401, 402, 422, 429, 500),
    body=wire.VideoRequest,
    examples={
        "plain": example(model="reel-1", prompt="A city at night"),
        "everything": example(
            model="reel-1",
            prompt="Night falls over the city",
            images=[
                {"url": "https://example.com/day.png", "role": "first_frame"},
                {"url": "https://example.com/night.png", "role": "last_frame"},
            ],
            aspect_ratio="16:9",
            resolution="1080p",
            duration=10,
            sound=True,
        ),
    },
    tag="Videos",
)
GET_VIDEO = operation(
    "Read a video's status",
    {200: ("Its state; with file and cost when completed.", VideoStatus, RATE_HEADERS)},
    (400, 401, 404, 429, 500),
    tag="Videos",
)
LIST_MODELS = operation(
    "List the models and their prices",
    {200: ("The models.", list[Model], RATE_HEADERS)},
    (400, 401, 429, 500),
    parameters=(query("type", "Only models of this type.", {"enum": ["image", "video"]}, required=False),),
    tag="Models",
)
GET_MODEL = operation(
    "Read one model",
    {200: ("The model.", Model, RATE_HEADERS)},
    (400, 401, 404, 429, 500),
    tag="Models",
)
GET_BALANCE = operation(
    "Read the workspace's balance",
    {200: ("The balance, after all charges so far.", Balance, NO_STORE)},
    (400, 401, 429, 500),
    metered=False,
    tag="Billing",
)
GET_COSTS = operation(
    "Read the project's costs by UTC date",
    {200: ("A bucket for every date of the range.", Costs, NO_STORE)},
    (400, 401, 429, 500),
    parameters=(
        query("start", "Inclusive, with time zone.", DATE_TIME, required=True),
        query("end", "Inclusive, after `start`, within 180 days of it.", DATE_TIME, required=True),
    ),
    metered=False,
    tag="Billing",
)
DOWNLOAD = operation(
    "Fetch a file by its signed URL",
    {200: ("The file.", None, {}), 206: ("The range of the file that was asked for.", None, {})},
    (403, 404, 410, 416, 429, 500),
    parameters=(
        query("exp", "Unix seconds at which the URL expires.", {"type": "string"}, required=True),
        query("sig", "The signature.", {"type": "string"}, required=True),
        {"name": "Range", "in": "header", "description": "One range of bytes.", "schema": {"type": "string"}},
    ),
    metered=False,
    tag="Downloads",
) | {"response_class": Response}


def complete(app: FastAPI) -> None:
    """Adds to the application's document what FastAPI does not know: the schemas of bodies, and the key."""
    generate = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema:
            return app.openapi_schema
        content = generate()
        components = content.setdefault("components", {})
        components["schemas"] = schemas()
        components["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": "An API key, of the form `sk_...`."}
        }
        for path in content["paths"].values():
            for route in path.values():
                route["responses"] = {
                    s: r for s, r in route["responses"].items() if r["description"] != "Validation Error"
                }
                for parameter in route.get("parameters", ()):
                    parameter["schema"].pop("title", None)
                    if parameter["in"] == "path":
                        parameter["schema"]["minLength"] = 1
        return content

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's own way to extend the document


def schemas() -> dict[str, Any]:
    """All schemas by name."""
    _, requests = models_json_schema(
        [(wire.ImageRequest, "validation"), (wire.VideoRequest, "validation")], ref_template=REFERENCE
    )
    shapes = Error | ImageGeneration | VideoStatus | list[Model] | Balance | Costs
    answers = TypeAdapter[Any](shapes).json_schema(ref_template=REFERENCE, mode="serialization")
    return {**requests["$defs"], **answers["$defs"]}
