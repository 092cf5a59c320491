"""What forms change: balance, keys, limits, faults. A wrong one gets its page again, with the reason."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from backlot.dashboard import fault_forms, forms, pages
from backlot.dashboard.guard import Problem
from backlot.service import Service

Form = Callable[[Request, dict[str, str]], Response]


def add_changes(router: APIRouter, service: Service) -> None:
    """The forms of the pages."""

    def form(path: str, refused: Callable[..., Response]) -> Callable[[Form], Form]:
        """Carries a form out, or shows its page again with what is wrong."""

        def add(carry_out: Form) -> Form:
            async def post(request: Request) -> Response:
                fields = await forms.read_form(request)
                try:
                    return carry_out(request, fields)
                except forms.FormError as error:
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
        amount = forms.check(forms.TopUp, fields).amount
        service.top_up(pages.workspace_of(request, service), amount)
        return done(request, "/", "topped-up")

    @form("/keys", pages.keys)
    def create_key(request: Request, fields: dict[str, str]) -> Response:
        project = forms.check(forms.NewKey, fields).project
        workspace = pages.workspace_of(request, service)
        key = service.keys.create(workspace, project, service.clock())
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
        limits = forms.check(forms.Limits, fields)
        workspace, now = pages.workspace_of(request, service), service.clock()
        workspace.windows["image"].change(limits.image_rpm, limits.window, now)
        workspace.windows["video"].change(limits.video_rpm, limits.window, now)
        workspace.concurrency = limits.concurrency
        return done(request, "/limits", "limits")

    @form("/faults", pages.faults)
    def switch_on(request: Request, fields: dict[str, str]) -> Response:
        service.faults.add(fault_forms.rule_of(fields))
        return done(request, "/faults", "fault-on")

    @form("/faults/off", pages.faults)
    def switch_off(request: Request, fields: dict[str, str]) -> Response:
        service.faults.remove(forms.check(forms.Numbered, fields).number)
        return done(request, "/faults", "fault-off")
