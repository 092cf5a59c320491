"""What forms change: balance, keys, limits, faults. They are checked by the same types as the settings.

A wrong form gets its page again, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import Field, StringConstraints, ValidationError

from backlot.catalogue import Money, Shape
from backlot.dashboard import fault_forms, pages
from backlot.dashboard.pages import FormError
from backlot.dashboard.sign_in import Problem
from backlot.service import Service
from backlot.yaml_files import problems

MAX_BYTES = 64 * 1024
MAX_FIELDS = 50
F = TypeVar("F", bound=Shape)
Form = Callable[[Request, dict[str, str]], Response]


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


def add_forms(router: APIRouter, service: Service) -> None:
    """The forms of the pages."""

    def form(path: str, refused: Callable[..., Response]) -> Callable[[Form], Form]:
        """Carries a form out, or shows its page again with what is wrong."""

        def add(carry_out: Form) -> Form:
            async def post(request: Request) -> Response:
                fields = await read_form(request)
                try:
                    return carry_out(request, fields)
                except FormError as error:
                    return refused(request, service, error)

            router.add_api_route(path, post, methods=["POST"])
            return carry_out

        return add

    def done(request: Request, path: str, what: str) -> Response:
        """Back to the page, by a GET, so that loading it again sends nothing again."""
        workspace = pages.workspace_of(request, service)
        return RedirectResponse(pages.address(path, workspace, service, done=what), 303)

    @form("/top-up", pages.overview)
    def top_up(request: Request, fields: dict[str, str]) -> Response:
        amount = check(TopUp, fields).amount
        service.top_up(pages.workspace_of(request, service), amount)
        return done(request, "/", "topped-up")

    @form("/keys", pages.keys)
    def create_key(request: Request, fields: dict[str, str]) -> Response:
        project = check(NewKey, fields).project
        key = service.keys.create(pages.workspace_of(request, service), project, service.clock())
        return pages.keys(request, service, created=key)

    @form("/keys/revoke", pages.keys)
    def revoke_key(request: Request, fields: dict[str, str]) -> Response:
        digest = fields.get("key", "")
        if digest not in service.keys.known:
            raise Problem(404, "There is no such key", "Nothing was changed.")
        service.keys.revoke(digest, service.clock())
        return done(request, "/keys", "revoked")

    @form("/limits", pages.limits)
    def change_limits(request: Request, fields: dict[str, str]) -> Response:
        limits = check(Limits, fields)
        workspace, now = pages.workspace_of(request, service), service.clock()
        workspace.windows["image"].change(limits.image_rpm, limits.window, now)
        workspace.windows["video"].change(limits.video_rpm, limits.window, now)
        workspace.concurrency = limits.concurrency
        return done(request, "/limits", "limits")

    @form("/faults", pages.faults)
    def switch_on(request: Request, fields: dict[str, str]) -> Response:
        try:
            service.faults.add(fault_forms.rule_of(fields))
        except ValidationError as error:
            reasons = {key.rpartition(".")[2]: reason for key, reason in problems(error)}
            raise FormError(reasons, fields) from None
        return done(request, "/faults", "fault-on")

    @form("/faults/off", pages.faults)
    def switch_off(request: Request, fields: dict[str, str]) -> Response:
        service.faults.remove(check(Numbered, fields).number)
        return done(request, "/faults", "fault-off")


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
