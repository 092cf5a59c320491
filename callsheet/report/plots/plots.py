"""Has the plots of a batch drawn and stores them. Begin reading here.

They are drawn only where there is something new to see. Whatever goes wrong is told, and the caller goes on
without plots.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from callsheet.records import dollars
from callsheet.report.plots.activity import Figures
from callsheet.storage.store import Store

_FOLDER = "plots"
_NUMBERS = f"{_FOLDER}/figures.json"  # is written last: with it, the plots are complete
_IN_WORDS = 5  # models, and days


async def write_plots(
    figures: Figures | None,
    store: Store,
    *,
    batch: str,
    limit: Decimal | None,
    limits: Mapping[str, int],
    may_draw: bool,
    note: Callable[[str], None],
) -> dict[str, str]:
    """Draws and stores the plots, unless the store has plots of the same numbers.

    Args:
        figures: what to show; None where nothing was submitted.
        store: where the report is.
        batch: the batch's name.
        limit: `budget.limit`.
        limits: submissions a minute by model type, as far as they are known.
        may_draw: false finds only what is drawn already.
        note: called with the reason where they cannot be drawn or stored.

    Returns:
        What each plot that there is shows, in words, by its file's name inside `report.url`; none where they
        cannot be drawn. Never raises for that.
    """
    if figures is None:
        return {}
    asked = {
        "batch": batch,
        "limit": None if limit is None else str(limit),
        "limits": dict(limits),
        "figures": asdict(figures),
    }
    numbers = json.dumps(asked, indent=1, ensure_ascii=False, default=_as_json).encode()
    try:
        if await store.read(_NUMBERS) != numbers:
            if not may_draw:
                return {}
            images = await asyncio.to_thread(_drawn, figures, limit, limits)
            for name, image in images.items():
                await store.write(f"{_FOLDER}/{name}.png", image, "image/png")
            await store.write(_NUMBERS, numbers, "application/json")
    except Exception as error:  # noqa: BLE001 - a plot is for looking, and nothing that goes wrong with it matters
        note(f"the plots are not drawn: {error}")
        return {}
    return {f"{_FOLDER}/{name}.png": text for name, text in _texts(figures, limit).items() if text}


def _as_json(value: Any) -> str:
    return dollars(value) if isinstance(value, Decimal) else str(value.isoformat())


def _drawn(figures: Figures, limit: Decimal | None, limits: Mapping[str, int]) -> dict[str, bytes]:
    from callsheet.report.plots.draw import drawn

    return drawn(figures, limit, limits)


def _texts(figures: Figures, limit: Decimal | None) -> dict[str, str]:
    """What each plot shows, for who does not see it; empty for one that has nothing to show."""
    spent = figures.spending[-1][1] if figures.spending else Decimal(0)
    of_limit = f" of a budget of {dollars(limit)} USD" if limit is not None else ""
    most = {of_type: max(count for _, count in counts) for of_type, counts in figures.submissions.items()}
    busiest = ", ".join(f"{count:,} {of_type}s" for of_type, count in most.items())
    latency = list(figures.latency.items())[:_IN_WORDS]
    medians = ", ".join(f"{model} {seconds[len(seconds) // 2]:.1f} s" for model, (_, seconds) in latency)
    days = [f"{day} {dollars(sum(costs.values(), Decimal(0)))} USD" for day, costs in figures.costs.items()]
    more = f" and {len(days) - _IN_WORDS} days more" if len(days) > _IN_WORDS else ""
    kept = ", ".join(
        f"{model} {dollars(cost)} USD" for model, (_, cost) in [*figures.kept.items()][:_IN_WORDS]
    )
    return {
        "spending": f"Spending over time: {dollars(spent)} USD{of_limit}" if figures.spending else "",
        "submissions": f"Submissions a minute; at most {busiest}",
        "latency": f"Latency by model, median: {medians}" if medians else "",
        "costs": f"Cost by model and day: {'; '.join(days[:_IN_WORDS])}{more}" if days else "",
        "kept": f"Cost of a kept file by model: {kept}" if kept else "",
    }


def limits_of(learned: Mapping[str, Any] | None, configured: Mapping[str, int | None]) -> dict[str, int]:
    """Submissions a minute by model type: the config's, where it has any, or what runs have learned.

    `learned` is `limits.turns.Learned` as a dict; None where nothing is known.
    """
    windows = (learned or {}).get("windows", {})
    known = {of_type: int(window["limit"]) for of_type, window in windows.items() if window.get("limit")}
    for of_type, limit in configured.items():
        if limit is not None:
            known[of_type] = min(limit, known.get(of_type, limit))
    return known
