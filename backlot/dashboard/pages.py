"""Each page, each part that is fetched again while a page is open, and what forms change.

What they show is taken from the service: nothing is counted or remembered here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from pydantic import Field, StringConstraints

from backlot.accounts import Workspace
from backlot.dashboard import rendering
from backlot.dashboard.sign_in import unknown
from backlot.faults import RULE, AnyRule, Rule
from backlot.service import Service
from backlot.settings import Money, Shape

DAYS = 30  # of costs, today included
Fields = dict[str, str]  # of a form, as they were sent
Count = Annotated[int, Field(ge=0, le=1_000_000)]
LIST, LATEST = 50, 12  # generations of a list, and of the overview
KINDS: dict[str, type[Rule]] = {
    get_args(rule.model_fields["do"].annotation)[0]: rule for rule in get_args(get_args(AnyRule)[0])
}
"""The kinds of faults, in the order of the faults file, by their `do`."""


def workspace_of(request: Request, service: Service) -> Workspace:
    """The workspace that a page is about: the one that its address names, or the first.

    Raises:
        HTTPException: 404 when there is no such workspace.
    """
    name = request.query_params.get("workspace", next(iter(service.workspaces)))
    if name not in service.workspaces:
        raise unknown()
    return service.workspaces[name]


def address(path: str, workspace: Workspace, service: Service, **parameters: object) -> str:
    """The address of a page about a workspace."""
    if len(service.workspaces) > 1:
        parameters["workspace"] = workspace.name
    return f"{path}?{urlencode(parameters)}" if parameters else path


def show(template: str, request: Request, service: Service, **values: Any) -> Response:
    """A page about a workspace, with what only it shows.

    Where a form of it has failed, the page says why (a reason for each field), and has what was typed.
    """
    workspace = workspace_of(request, service)
    errors, typed = getattr(request.state, "failed", ({}, {}))
    return rendering.page(
        template,
        422 if errors else 200,
        workspace=workspace,
        workspaces=list(service.workspaces),
        url=lambda to, **parameters: address(to, workspace, service, **parameters),
        now=service.clock(),
        done=request.query_params.get("done", ""),
        errors=errors,
        typed=typed,
        **values,
    )


async def overview(request: Request, service: Service, link: str | None = None) -> Response:
    """Balance, what is asked now, and the newest generations; `link` is a new one for another browser.

    Among the last refusals are those without a key. While it is open, it fetches its live parts from itself.
    """
    workspace = workspace_of(request, service)
    refusals = [*workspace.traffic.refusals, *service.keyless.refusals]
    return show(
        "overview.html",
        request,
        service,
        link=link,
        chart=rendering.chart(workspace.traffic, int(service.clock())),
        refusals=sorted(refusals, key=lambda each: each.at, reverse=True)[:LATEST],
        keyless=service.keyless,
        latest=service.store.newest(workspace.name, LATEST),
    )


async def generations(request: Request, service: Service) -> Response:
    """The generations, newest first; `before` continues the list."""
    workspace = workspace_of(request, service)
    before = re.fullmatch(r"[0-9]{1,18}", request.query_params.get("before", ""))
    rows = service.store.newest(workspace.name, LIST + 1, int(before[0]) if before else None)
    older = rows[LIST - 1].recorded if len(rows) > LIST else None
    return show("generations.html", request, service, rows=rows[:LIST], older=older)


async def generation(request: Request, service: Service) -> Response:
    """One row of the list. Raises `HTTPException`: 404 when there is no such generation."""
    if (found := service.store.get(request.path_params["id"])) is None:
        raise unknown()
    return show("row.html", request, service, each=found)


async def costs(request: Request, service: Service) -> Response:
    """A project's costs by day: the interface's answer for the last days."""
    workspace = workspace_of(request, service)
    projects = list(service.projects(workspace))
    project = request.query_params.get("project", projects[0] if projects else "")
    end = datetime.fromtimestamp(service.clock(), UTC)
    start = end.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
    answer = service.costs(workspace, project, start, end)
    return show("costs.html", request, service, projects=projects, project=project, answer=answer)


async def keys(request: Request, service: Service, created: str | None = None) -> Response:
    """The keys by project; `created` is a new one, which is shown here and never again."""
    projects = service.projects(workspace_of(request, service))
    return show("keys.html", request, service, projects=projects, created=created)


async def models(request: Request, service: Service) -> Response:
    """The catalogue with its prices."""
    return show("models.html", request, service, models=list(service.models.values()))


async def limits(request: Request, service: Service) -> Response:
    """The limits of a workspace, which can be changed."""
    return show("limits.html", request, service)


async def faults(request: Request, service: Service) -> Response:
    """The rules at work, and a form for each kind of fault."""
    active = [(each, rule_text(each.rule)) for each in service.faults.active]
    kinds = [
        {"do": do, "about": (rule.__doc__ or "").splitlines()[0].replace("`", ""), "fields": fields_of(rule)}
        for do, rule in KINDS.items()
    ]
    return show("faults.html", request, service, active=active, kinds=kinds)


class FormField(NamedTuple):
    """A field of a fault's form: its name, its values where it has few, and the one that it begins with."""

    name: str
    choices: tuple[str, ...] = ()
    value: str = ""
    required: bool = False


def fields_of(rule: type[Rule]) -> list[FormField]:
    """The fields of a fault's form, but for `do` and `probability`, which every one has."""
    found = []
    for name, info in rule.model_fields.items():
        if name in Rule.model_fields or name in {"do", "fields"}:  # a form has no place for `fields`
            continue
        literal = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
        choices = tuple(map(str, (False, True) if info.annotation is bool else literal))
        value = "" if info.is_required() else str(info.default)
        found.append(FormField(name, choices, value, info.is_required()))
    if len(rule.acts_on) > 1:
        found.append(FormField("endpoint", ("", *sorted(rule.acts_on))))
    return [*found, FormField("prompt")]


def rule_text(rule: Rule) -> str:
    """A rule as the faults file has it."""
    said = rule.model_dump(mode="json", exclude_unset=True)
    return ", ".join(f"{name}: {value}" for name, value in said.items())


# What forms change. The same types as those of the settings check them: where a field is wrong, that is a
# `ValidationError`, and the page is shown again.


class TopUp(Shape):
    """Dollars for the balance."""

    amount: Annotated[Money, Field(gt=0, le=1_000_000)]


class NewKey(Shape):
    """The project that gets a key; without keys so far, it is a new project."""

    project: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)]


class Limits(Shape):
    """The limits of a workspace."""

    image_rpm: Count
    video_rpm: Count
    concurrency: Count
    window: int = Field(ge=1, le=86_400)


def done(request: Request, service: Service, path: str, what: str) -> Response:
    """Back to the page, by a GET, so that loading it again sends nothing again."""
    workspace = workspace_of(request, service)
    return RedirectResponse(address(path, workspace, service, done=what), 303)


async def top_up(request: Request, service: Service, fields: Fields) -> Response:
    """Adds dollars to the balance."""
    amount = TopUp.model_validate(fields).amount
    service.top_up(workspace_of(request, service), amount)
    return done(request, service, "/", "topped-up")


async def create_key(request: Request, service: Service, fields: Fields) -> Response:
    """Creates a key, and shows it."""
    project = NewKey.model_validate(fields).project
    key = service.create_key(workspace_of(request, service), project)
    return await keys(request, service, created=key)


async def revoke_key(request: Request, service: Service, fields: Fields) -> Response:
    """Ends a key."""
    digest = fields.get("key", "")
    if digest not in service.keys:
        raise unknown()
    service.revoke_key(digest)
    return done(request, service, "/keys", "revoked")


async def change_limits(request: Request, service: Service, fields: Fields) -> Response:
    """Sets the limits of a workspace, for requests that come from now on."""
    limits, workspace = Limits.model_validate(fields), workspace_of(request, service)
    images, videos = workspace.windows["image"], workspace.windows["video"]
    images.limit, videos.limit = limits.image_rpm, limits.video_rpm
    images.seconds = videos.seconds = limits.window
    workspace.concurrency = limits.concurrency
    return done(request, service, "/limits", "limits")


async def switch_on(request: Request, service: Service, fields: Fields) -> Response:
    """Switches a fault on. An empty field says nothing."""
    given: dict[str, Any] = {name: text.strip() for name, text in fields.items() if text.strip()}
    if given.get("status", "").isdecimal():
        given["status"] = int(given["status"])  # no text is one of its choices
    service.faults.add(RULE.validate_python(given))
    return done(request, service, "/faults", "fault-on")


async def switch_off(request: Request, service: Service, fields: Fields) -> Response:
    """Switches a fault off, by its number."""
    service.faults.remove(fields.get("number", ""))
    return done(request, service, "/faults", "fault-off")
