"""Each page, and each part that is fetched again while a page is open.

They change nothing. What they show is taken from the service: nothing is counted or remembered here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from fastapi import Request, Response

from backlot.accounts import Workspace
from backlot.dashboard import charts, fault_forms, rendering
from backlot.dashboard.sign_in import unknown
from backlot.service import Service
from backlot.store import Generation
from backlot.traffic import SECONDS

MENU = {
    "/": "Overview",
    "/generations": "Generations",
    "/costs": "Costs",
    "/keys": "Keys",
    "/models": "Models",
    "/limits": "Limits",
    "/faults": "Faults",
}
DONE = {
    "topped-up": "The balance is topped up.",
    "revoked": "The key is revoked: it gets 401 from now on.",
    "limits": "The limits are changed.",
    "fault-on": "The fault is on.",
    "fault-off": "The fault is off.",
}
DAYS = (7, 30, 90, 180)
PAGE, LATEST = 50, 12  # generations of a list, and of the overview
Show = Callable[[Request, Service], Response]


class FormError(Exception):
    """A form that cannot be carried out; `errors` has a reason for each field, `typed` what was sent."""

    def __init__(self, errors: dict[str, str], typed: dict[str, str]) -> None:
        super().__init__(errors)
        self.errors = errors
        self.typed = typed


def workspace_of(request: Request, service: Service) -> Workspace:
    """The workspace that a page is about: the one that its address names, or the first.

    Raises:
        HTTPException: 404 when there is no such workspace.
    """
    name = request.query_params.get("workspace")
    if name is None:
        return next(iter(service.workspaces.values()))
    if name not in service.workspaces:
        raise unknown()
    return service.workspaces[name]


def address(path: str, workspace: Workspace, service: Service, **parameters: object) -> str:
    """The address of a page about a workspace."""
    if len(service.workspaces) > 1:
        parameters["workspace"] = workspace.name
    return f"{path}?{urlencode(parameters)}" if parameters else path


def show(
    template: str,
    request: Request,
    service: Service,
    *,
    path: str,
    failed: FormError | None = None,
    **values: Any,
) -> Response:
    """A page about a workspace.

    Args:
        template: its file.
        request: what was asked for.
        service: whose page it is.
        path: its entry in the menu.
        failed: a form of it that was refused; the page says why, and has what was typed.
        values: what only this page shows.
    """
    workspace = workspace_of(request, service)
    return rendering.page(
        template,
        422 if failed else 200,
        path=path,
        menu=MENU,
        title=MENU[path],
        workspace=workspace,
        workspaces=list(service.workspaces.values()),
        url=lambda to, **parameters: address(to, workspace, service, **parameters),
        now=service.clock(),
        done=DONE.get(request.query_params.get("done", "")),
        errors=failed.errors if failed else {},
        typed=failed.typed if failed else {},
        **values,
    )


def overview(
    request: Request, service: Service, failed: FormError | None = None, link: str | None = None
) -> Response:
    """Balance, what is asked now, and the newest generations; `link` is a new one for another browser."""
    values = live_values(request, service) | latest_values(request, service)
    return show("overview.html", request, service, path="/", failed=failed, link=link, part=False, **values)


def live_values(request: Request, service: Service) -> dict[str, Any]:
    """What the live part of the overview shows; among it the last refusals, those without a key too."""
    workspace, now = workspace_of(request, service), service.clock()
    refusals = [*workspace.traffic.refusals, *service.keyless.refusals]
    return {
        "windows": {
            name: {"used": window.used, "limit": window.limit, "resets_in": window.reset(now) - now}
            for name, window in workspace.windows.items()
        },
        "chart": charts.traffic(workspace, now),
        "chart_seconds": SECONDS,
        "refusals": sorted(refusals, key=lambda each: each.at, reverse=True)[:LATEST],
        "keyless": service.keyless,
    }


def live(request: Request, service: Service) -> Response:
    """The live part of the overview."""
    return show("live_parts.html", request, service, path="/", part=True, **live_values(request, service))


def latest_values(request: Request, service: Service) -> dict[str, Any]:
    """The newest generations, and a mark that changes when they do."""
    found = listing(service, workspace_of(request, service), limit=LATEST)
    pending = sum(each["state"] == "pending" for each in found["rows"])
    return {"latest": found, "seen": f"{found['newest']}-{pending}"}


def latest(request: Request, service: Service) -> Response:
    """The newest generations, or 204 where the browser has seen them."""
    values = latest_values(request, service)
    if request.query_params.get("seen") == values["seen"]:
        return Response(status_code=204)
    return show("latest.html", request, service, path="/", **values)


def generations(request: Request, service: Service) -> Response:
    """The generations, newest first; `before` continues the list."""
    found = listing(service, workspace_of(request, service), number(request, "before"))
    part = "hx-request" in request.headers
    template = "rows.html" if part else "generations.html"
    return show(template, request, service, path="/generations", listing=found, part=part)


def listing(
    service: Service, workspace: Workspace, before: int | None = None, limit: int = PAGE
) -> dict[str, Any]:
    """The generations of a workspace that were recorded before a moment, newest first.

    `newest` is when the first one was recorded (0 without any); `older` is where the next part begins, None
    at the end.
    """
    found = service.store.newest(workspace.name, limit + 1, before)
    rows = [shown(each, service.clock()) for each in found[:limit]]
    return {
        "rows": rows,
        "newest": found[0].recorded if found else 0,
        "older": found[limit - 1].recorded if len(found) > limit else None,
    }


def shown(generation: Generation, now: float) -> dict[str, Any]:
    """A generation as a page shows it. Times in Unix seconds, money in dollars."""
    recipe, state = generation.recipe, generation.state
    size = f"{recipe.width} \u00d7 {recipe.height} {recipe.format}"
    if recipe.duration:
        size += f", {recipe.duration} s {'with' if recipe.sound else 'without'} sound"
    expires_in = (generation.deletes_at or 0) - now
    return {
        "id": generation.id,
        "type": generation.type,
        "state": state,
        "project": generation.project,
        "model": generation.model,
        "prompt": recipe.prompt,
        "size": size,
        "price": Decimal(0) if state == "failed" else generation.cost,
        "recorded_at": generation.recorded / 1_000_000,
        "due_in": None if generation.due_at is None else max(generation.due_at / 1000 - now, 0),
        "deletes_at": generation.deletes_at,
        "expires_in": expires_in,
        "has_media": state == "completed" and expires_in > 0,
        "error": f"{generation.error_code}: {generation.error_message}" if state == "failed" else "",
    }


def newer(request: Request, service: Service) -> Response:
    """How many generations there are that an open list does not have; 204 where it says so already."""
    after = number(request, "after") or 0
    count = service.store.recorded_after(workspace_of(request, service).name, after)
    if count == number(request, "said"):
        return Response(status_code=204)
    return show("newer.html", request, service, path="/generations", count=count, after=after)


def generation(request: Request, service: Service, generation_id: str) -> Response:
    """One row of the list.

    Raises:
        HTTPException: 404 when there is no such generation.
    """
    found = service.store.get(generation_id)
    if found is None:
        raise unknown()
    each = shown(found, service.clock())
    return show("row.html", request, service, path="/generations", each=each, takes_focus=False)


def costs(request: Request, service: Service) -> Response:
    """A project's costs by day: the interface's answer for the last days, today included."""
    workspace = workspace_of(request, service)
    projects = list(service.keys.of(workspace))
    project = request.query_params.get("project", projects[0] if projects else "")
    days = number(request, "days")
    end = datetime.fromtimestamp(service.clock(), UTC)
    start = end - timedelta(days=(days if days in DAYS else DAYS[1]) - 1)
    start = start.replace(hour=0, minute=0, second=0, microsecond=0)
    answer = service.costs(workspace, project, start, end)
    return show(
        "costs.html",
        request,
        service,
        path="/costs",
        projects=projects,
        project=project,
        answer=answer,
        chart=charts.costs(answer["data"]),
        choices=DAYS,
    )


def keys(
    request: Request, service: Service, failed: FormError | None = None, created: str | None = None
) -> Response:
    """The keys by project; `created` is a new one, which is shown here and never again."""
    projects = service.keys.of(workspace_of(request, service))
    return show(
        "keys.html", request, service, path="/keys", failed=failed, projects=projects, created=created
    )


def models(request: Request, service: Service) -> Response:
    """The catalogue with its prices."""
    return show("models.html", request, service, path="/models", models=list(service.models.values()))


def limits(request: Request, service: Service, failed: FormError | None = None) -> Response:
    """The limits of a workspace, which can be changed."""
    return show("limits.html", request, service, path="/limits", failed=failed)


def faults(request: Request, service: Service, failed: FormError | None = None) -> Response:
    """The rules at work, and a form for each kind of fault."""
    active = [(each, fault_forms.text_of(each.rule)) for each in service.faults.active]
    kinds = fault_forms.kinds()
    return show("faults.html", request, service, path="/faults", failed=failed, active=active, kinds=kinds)


def number(request: Request, name: str) -> int | None:
    """A whole number of the query; None for anything else."""
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
