"""What people send with forms: read, and checked by the same types as the settings."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import Field, StringConstraints, ValidationError

from backlot.catalogue import Money, Shape
from backlot.dashboard.guard import Problem
from backlot.yaml_files import problems

MAX_BYTES = 64 * 1024
MAX_FIELDS = 50
F = TypeVar("F", bound=Shape)


class TopUp(Shape):
    """Dollars for the balance."""

    amount: Annotated[Money, Field(gt=0, le=Decimal(1_000_000))]


class NewKey(Shape):
    """The project that gets a key; without keys so far, it is a new project."""

    project: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)]


class Limits(Shape):
    """The limits of a workspace."""

    image_rpm: int = Field(ge=0, le=1_000_000)
    video_rpm: int = Field(ge=0, le=1_000_000)
    concurrency: int = Field(ge=0, le=1_000_000)
    window: int = Field(ge=1, le=86_400)


class Numbered(Shape):
    """The number of a fault that is switched off."""

    number: int


class FormError(Exception):
    """A form that cannot be carried out; `errors` has a reason for each field, `typed` what was sent."""

    def __init__(self, errors: dict[str, str], typed: dict[str, str]) -> None:
        super().__init__(errors)
        self.errors = errors
        self.typed = typed


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form.

    Raises:
        Problem: 400 for what no form of the dashboard sends.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise Problem(400, "This form is too large", "Nothing was changed.")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:  # also of the decoding
        raise Problem(400, "This form cannot be read", "Nothing was changed.") from None
    return dict(fields)


def check(form: type[F], fields: dict[str, str]) -> F:
    """A form's fields as the type that it is of.

    Raises:
        FormError: a field is missing, unknown or wrong.
    """
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        raise FormError(dict(problems(error)), fields) from None
