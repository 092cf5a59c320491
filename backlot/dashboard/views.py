"""What the pages show, taken from the service: nothing is counted or remembered here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from backlot import wire
from backlot.accounts import Caller, Workspace
from backlot.dashboard.charts import Chart, bars
from backlot.service import Service
from backlot.store import Generation
from backlot.traffic import SECONDS, Outcome, Refusal

PAGE = 50  # generations
LATEST = 12
CHART_STEP = 2  # seconds of a bar
SERIES: dict[str, tuple[Outcome, ...]] = {
    "accepted": ("accepted",),
    "window": ("window",),
    "lanes": ("lanes",),
    "refused": ("refused", "failed"),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A generation as a page shows it. Times in Unix seconds, money in dollars."""

    id: str
    type: str
    state: str
    project: str
    model: str
    prompt: str
    size: str
    price: Decimal
    recorded: int
    recorded_at: float
    due_in: float | None
    deletes_at: int | None
    expires_in: float
    error: str

    @property
    def has_media(self) -> bool:
        """Whether its file can still be had."""
        return self.state == "completed" and self.expires_in > 0


def shown(generation: Generation, now: float) -> Shown:
    """A generation for a page."""
    recipe = generation.recipe
    size = f"{recipe.width} \u00d7 {recipe.height} {recipe.format}"
    if recipe.duration:
        size += f", {recipe.duration} s {'with' if recipe.sound else 'without'} sound"
    return Shown(
        id=generation.id,
        type=generation.type,
        state=generation.state,
        project=generation.project,
        model=generation.model,
        prompt=recipe.prompt,
        size=size,
        price=Decimal(0) if generation.state == "failed" else generation.cost,
        recorded=generation.recorded,
        recorded_at=generation.recorded / 1_000_000,
        due_in=None if generation.due_at is None else max(generation.due_at / 1000 - now, 0),
        deletes_at=generation.deletes_at,
        expires_in=(generation.deletes_at or 0) - now,
        error=f"{generation.error_code}: {generation.error_message}" if generation.state == "failed" else "",
    )


@dataclass(frozen=True, slots=True)
class Listing:
    """A part of the generations, newest first; `older` is where the next part begins, None at the end."""

    rows: tuple[Shown, ...]
    older: int | None

    @property
    def newest(self) -> int:
        """When the first one was recorded; 0 where there is none."""
        return self.rows[0].recorded if self.rows else 0


def listing(service: Service, workspace: Workspace, before: int | None = None, limit: int = PAGE) -> Listing:
    """The generations of a workspace that were recorded before a moment."""
    found = service.store.newest(workspace.name, limit + 1, before)
    rows = tuple(shown(each, service.clock()) for each in found[:limit])
    return Listing(rows, rows[-1].recorded if len(found) > limit else None)


@dataclass(frozen=True, slots=True)
class LimitInUse:
    """A rate window: how many of its places are taken, and when it begins anew."""

    used: int
    limit: int
    resets_in: float


def windows(workspace: Workspace, now: float) -> dict[str, LimitInUse]:
    """The rate windows of a workspace by type."""
    found: dict[str, LimitInUse] = {}
    for name, window in workspace.windows.items():
        window.roll(now)
        found[name] = LimitInUse(window.used, window.limit, (window.index + 1) * window.seconds - now)
    return found


def traffic_chart(workspace: Workspace, now: float) -> Chart:
    """Generation requests by outcome in the last two minutes."""
    end = int(now) // CHART_STEP * CHART_STEP + CHART_STEP
    starts = range(end - SECONDS, end, CHART_STEP)
    counts: dict[int, Counter[Outcome]] = {start: Counter() for start in starts}
    for second, outcomes in workspace.traffic.seconds:
        if (start := second // CHART_STEP * CHART_STEP) in counts:
            counts[start] += outcomes
    series = {
        name: [Decimal(sum(count[each] for each in outcomes)) for count in counts.values()]
        for name, outcomes in SERIES.items()
    }
    names = [f"{datetime.fromtimestamp(start, UTC):%H:%M:%S}" for start in starts]
    words = [
        ", ".join(f"{values[n]} {name}" for name, values in series.items() if values[n]) or "none"
        for n in range(len(names))
    ]
    titles = [f"{name}: {word}" for name, word in zip(names, words, strict=True)]
    return bars(names, series, titles, least=Decimal(10), every=10)


def refusals(service: Service, workspace: Workspace) -> list[Refusal]:
    """The last requests that were not carried out, newest first; those without a valid key too."""
    both = [*workspace.traffic.refusals, *service.keyless.refusals]
    return sorted(both, key=lambda each: each.at, reverse=True)[:LATEST]


def costs(service: Service, workspace: Workspace, project: str, days: int) -> wire.Costs:
    """The answer of the interface's billing/costs for the last days, today included."""
    now = datetime.fromtimestamp(service.clock(), UTC)
    start = (now - timedelta(days=days - 1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return service.costs(Caller(workspace, project), start, now)


def costs_chart(answer: wire.Costs) -> Chart:
    """The costs by day."""
    days = [bucket["date"] for bucket in answer["data"]]
    values = [bucket["cost"] for bucket in answer["data"]]
    titles = [f"{day}: {value:.4f} USD" for day, value in zip(days, values, strict=True)]
    every = max(len(days) // 8, 1)
    names = [day[5:] for day in days]
    return bars(names, {"cost": values}, titles, least=Decimal("0.01"), every=every)


def projects(service: Service, workspace: Workspace) -> list[str]:
    """The projects of a workspace, in the order in which they were opened."""
    return list(service.keys.of(workspace.name))
