"""Each page, each part that is fetched again while a page is open, and what forms change.

What they show is taken from the service: nothing is counted or remembered here. Every value is escaped, and
headers let a page load nothing from elsewhere. Bar charts are numbers for an SVG; the page has every value
in words or in a table, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import Field, StringConstraints

from backlot.accounts import SECONDS, Outcome, Workspace
from backlot.dashboard.sign_in import unknown
from backlot.faults import RULE, AnyRule, Rule
from backlot.service import Service
from backlot.settings import Money, Shape

FOLDER = Path(__file__).parent

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without a referrer, a form would have no origin either
    "X-Content-Type-Options": "nosniff",
}
WIDTH, HEIGHT = 960, 190  # of a chart, in pixels
LEFT, BASE, TOP = 64, 166, 10  # where its bars begin, stand, and end


def moment(seconds: float) -> Markup:
    """Unix seconds as a `time` element with the UTC date and time."""
    at = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{0:%Y-%m-%dT%H:%M:%SZ}">{0:%Y-%m-%d %H:%M:%S}</time>').format(at)


def duration(seconds: float) -> str:
    """A length of time in its largest unit: `45 s`, `12 min`, `3 h`, `2 days`."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"dollars": "{:,.4f}".format, "moment": moment, "duration": duration}


def page(template: str, status: int = 200, **values: Any) -> Response:
    """A page, or a part of one."""
    html = TEMPLATES.get_template(template).render(values)
    return Response(html, status, HEADERS, "text/html")


def chart(
    bars: Sequence[tuple[str, str, Mapping[str, Decimal]]], *, minimum: Decimal, label_step: int
) -> dict[str, Any]:
    """A chart of stacked bars, as chart.html draws it.

    Args:
        bars: the name of each, what it says when it is pointed at, and its values by series, from below.
        minimum: the smallest value that the top may stand for.
        label_step: which names are written below: the first, and each so many bars after it.
    """
    top = round_up(max([minimum, *(sum(values.values(), Decimal(0)) for _, _, values in bars)]))
    room, step = BASE - TOP, (WIDTH - LEFT) / len(bars)
    drawn = []
    for n, (name, title, values) in enumerate(bars):
        y, parts = float(BASE), []
        for series, value in values.items():
            height = float(value / top) * room
            y -= height
            parts.append({"series": series, "y": round(y, 2), "height": round(height, 2)})
        x, label = round(LEFT + step * n, 2), "" if n % label_step else name
        drawn.append({"x": x, "width": round(step * 0.8, 2), "parts": parts, "title": title, "label": label})
    ticks = [(BASE - room * n / 2, top * n / 2) for n in range(3)]
    return {"bars": drawn, "ticks": ticks, "width": WIDTH, "height": HEIGHT, "left": LEFT, "base": BASE}


def round_up(value: Decimal) -> Decimal:
    """The next larger number of the form 1, 2 or 5 times a power of ten."""
    power = Decimal(10) ** value.adjusted()
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)


DAYS = (7, 30, 90, 180)
Fields = dict[str, str]  # of a form, as they were sent
Count = Annotated[int, Field(ge=0, le=1_000_000)]
LIST, LATEST = 50, 12  # generations of a list, and of the overview
SERIES: dict[str, tuple[Outcome, ...]] = {
    "accepted": ("accepted",),
    "window": ("window",),
    "lanes": ("lanes",),
    "refused": ("refused", "failed"),
}
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
    return page(
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
    """Balance, what is asked now, and the newest generations; `link` is a new one for another browser."""
    values = live_values(request, service) | latest_values(request, service)
    return show("overview.html", request, service, link=link, part=False, **values)


def live_values(request: Request, service: Service) -> dict[str, Any]:
    """What the live part of the overview shows; among it the last refusals, those without a key too."""
    traffic = workspace_of(request, service).traffic
    refusals = [*traffic.refusals, *service.keyless.refusals]
    now, counts, bars = int(service.clock()), dict(traffic.seconds), []
    for second in range(now - SECONDS + 1, now + 1):
        count = counts.get(second, Counter())
        values = {
            name: Decimal(sum(count[outcome] for outcome in outcomes)) for name, outcomes in SERIES.items()
        }
        name = f"{datetime.fromtimestamp(second, UTC):%H:%M:%S}"
        summary = ", ".join(f"{value} {outcome}" for outcome, value in values.items() if value)
        bars.append((name, f"{name}: {summary or 'none'}", values))
    return {
        "chart": chart(bars, minimum=Decimal(10), label_step=20),
        "refusals": sorted(refusals, key=lambda refusal: refusal.at, reverse=True)[:LATEST],
        "keyless": service.keyless,
    }


async def live(request: Request, service: Service) -> Response:
    """The live part of the overview."""
    return show("live_parts.html", request, service, part=True, **live_values(request, service))


def latest_values(request: Request, service: Service) -> dict[str, Any]:
    """The newest generations, and a mark that changes when they do."""
    rows = service.store.newest(workspace_of(request, service).name, LATEST)
    pending = sum(row.state == "pending" for row in rows)
    return {"latest": rows, "seen": f"{rows[0].recorded if rows else 0}-{pending}"}


async def latest(request: Request, service: Service) -> Response:
    """The newest generations, or 204 where the browser has seen them."""
    values = latest_values(request, service)
    if request.query_params.get("seen") == values["seen"]:
        return Response(status_code=204)
    return show("latest.html", request, service, **values)


async def generations(request: Request, service: Service) -> Response:
    """The generations, newest first; `before` continues the list."""
    workspace = workspace_of(request, service)
    rows = service.store.newest(workspace.name, LIST + 1, number(request, "before"))
    older = rows[LIST - 1].recorded if len(rows) > LIST else None
    part = "hx-request" in request.headers
    template = "rows.html" if part else "generations.html"
    return show(template, request, service, rows=rows[:LIST], older=older, part=part)


async def newer(request: Request, service: Service) -> Response:
    """How many generations there are that an open list does not have; 204 where it says so already."""
    since = number(request, "after") or 0
    count = service.store.recorded_after(workspace_of(request, service).name, since)
    if count == number(request, "said"):
        return Response(status_code=204)
    return show("newer.html", request, service, count=count, after=since)


async def generation(request: Request, service: Service) -> Response:
    """One row of the list. Raises `HTTPException`: 404 when there is no such generation."""
    if (stored := service.store.get(request.path_params["id"])) is None:
        raise unknown()
    return show("row.html", request, service, generation=stored, takes_focus=False)


async def costs(request: Request, service: Service) -> Response:
    """A project's costs by day: the interface's answer for the last days, today included."""
    workspace, days = workspace_of(request, service), number(request, "days")
    projects = list(service.projects(workspace))
    project = request.query_params.get("project", projects[0] if projects else "")
    end = datetime.fromtimestamp(service.clock(), UTC)
    start = end - timedelta(days=(days if days in DAYS else DAYS[1]) - 1)
    answer = service.costs(workspace, project, start.replace(hour=0, minute=0, second=0, microsecond=0), end)
    bars = [
        (day["date"][5:], f"{day['date']}: {day['cost']:.4f} USD", {"cost": day["cost"]})
        for day in answer["data"]
    ]
    drawn = chart(bars, minimum=Decimal("0.01"), label_step=max(len(bars) // 8, 1))
    values = {"projects": projects, "project": project, "answer": answer, "choices": DAYS, "chart": drawn}
    return show("costs.html", request, service, **values)


async def keys(request: Request, service: Service, created: str | None = None) -> Response:
    """The keys by project; `created` is a new one, which is shown here and never again."""
    projects = service.projects(workspace_of(request, service))
    return show("keys.html", request, service, projects=projects, created=created)


async def models(request: Request, service: Service) -> Response:
    """The catalogue with its prices."""
    return show(
        "models.html",
        request,
        service,
        models=list(service.models.values()),
        programs=service.programs.by_model,
    )


async def limits(request: Request, service: Service) -> Response:
    """The limits of a workspace, which can be changed."""
    return show("limits.html", request, service)


async def faults(request: Request, service: Service) -> Response:
    """The rules at work, and a form for each kind of fault."""
    active = [(fault, rule_text(fault.rule)) for fault in service.faults.active]
    descriptions = {do: (rule.__doc__ or "").splitlines()[0].replace("`", "") for do, rule in KINDS.items()}
    kinds = [{"do": do, "about": descriptions[do], "fields": fields_of(rule)} for do, rule in KINDS.items()]
    return show("faults.html", request, service, active=active, kinds=kinds)


class FormField(NamedTuple):
    """A field of a fault's form: its name, its values where it has few, and the one that it begins with."""

    name: str
    choices: tuple[str, ...] = ()
    value: str = ""
    required: bool = False


def fields_of(rule: type[Rule]) -> list[FormField]:
    """The fields of a fault's form, but for `do` and `probability`, which every one has."""
    form_fields = []
    for name, info in rule.model_fields.items():
        if name in Rule.model_fields or name in {"do", "fields"}:  # a form has no place for `fields`
            continue
        literal = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
        choices = tuple(map(str, (False, True) if info.annotation is bool else literal))
        value = "" if info.is_required() else str(info.default)
        form_fields.append(FormField(name, choices, value, info.is_required()))
    if len(rule.acts_on) > 1:
        form_fields.append(FormField("endpoint", ("", *sorted(rule.acts_on))))
    return [*form_fields, FormField("prompt")]


def rule_text(rule: Rule) -> str:
    """A rule as the faults file has it."""
    values = rule.model_dump(mode="json", exclude_unset=True)
    ordered = {name: values[name] for name in (*Rule.model_fields, "do", *values) if name in values}
    return ", ".join(f"{name}: {value}" for name, value in ordered.items())


def number(request: Request, name: str) -> int | None:
    """A whole number of the query; None for anything else."""
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


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


def done(request: Request, service: Service, path: str, change: str) -> Response:
    """Back to the page, by a GET, so that loading it again sends nothing again."""
    workspace = workspace_of(request, service)
    return RedirectResponse(address(path, workspace, service, done=change), 303)


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
    values: dict[str, Any] = {name: text.strip() for name, text in fields.items() if text.strip()}
    if values.get("status", "").isdecimal():
        values["status"] = int(values["status"])  # no text is one of its choices
    service.faults.add(RULE.validate_python(values))
    return done(request, service, "/faults", "fault-on")


async def switch_off(request: Request, service: Service, fields: Fields) -> Response:
    """Switches a fault off, by its number."""
    service.faults.remove(fields.get("number", ""))
    return done(request, service, "/faults", "fault-off")
