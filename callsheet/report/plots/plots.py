"""Has the plots of a batch drawn and stores them. Begin reading here.

They are drawn only where there is something new to see. Whatever goes wrong is told, and the caller goes on
without plots.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from callsheet.config.settings import BatchSettings, Limits
from callsheet.plain_text import and_more
from callsheet.records import dollars
from callsheet.report.plots.activity import Figures
from callsheet.storage.store import Store

_FOLDER = "plots"
_NUMBERS = f"{_FOLDER}/figures.json"  # is written last: with it, the plots are complete
_IN_WORDS = 5  # models, and days


async def write_plots(
    settings: BatchSettings,
    figures: Figures | None,
    learned: Mapping[str, Any] | None,
    note: Callable[[str], None],
    *,
    may_draw: bool = True,
) -> dict[str, str]:
    """Draws and stores the plots, unless the config asks for none, or those of the same numbers are there.

    Args:
        figures: what to show; None where nothing was submitted.
        learned: what is known of the account's limits (`limits.limits.Learned` as a dict).
        note: called with the reason where they cannot be drawn or stored.
        may_draw: false finds only what is drawn already.

    Returns:
        What each plot that there is shows, in words, by its file's name inside `report.url`; none where they
        cannot be drawn. Never raises for that.
    """
    if figures is None or not settings.report.plots:
        return {}
    store = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url, put=settings.storage.put)
    limit, limits = settings.budget.limit, limits_of(learned, settings.limits)

    def draw() -> dict[str, bytes]:
        from callsheet.report.plots.draw import drawn  # matplotlib takes a second to import

        return drawn(figures, limit, limits)

    asked = {
        "batch": settings.batch,
        "limit": None if limit is None else str(limit),
        "limits": limits,
        "figures": asdict(figures),
    }
    numbers = json.dumps(asked, indent=1, ensure_ascii=False, default=_as_json).encode()
    try:
        if await store.read(_NUMBERS) != numbers:
            if not may_draw:
                return {}
            for name, image in (await asyncio.to_thread(draw)).items():
                await store.write(f"{_FOLDER}/{name}.png", image, "image/png")
            await store.write(_NUMBERS, numbers, "application/json")
    except Exception as error:  # noqa: BLE001 - a plot is for looking, and nothing that goes wrong with it matters
        note(f"the plots are not drawn: {error}")
        return {}
    return {f"{_FOLDER}/{name}.png": text for name, text in _texts(figures, limit).items() if text}


def _as_json(value: Any) -> str:
    return dollars(value) if isinstance(value, Decimal) else str(value.isoformat())


def _texts(figures: Figures, limit: Decimal | None) -> dict[str, str]:
    """What each plot shows, for who does not see it; empty for one that has nothing to show."""
    spent = figures.spending[-1][1] if figures.spending else Decimal(0)
    of_limit = f" of a budget of {dollars(limit)} USD" if limit is not None else ""
    most = {of_type: max(count for _, count in counts) for of_type, counts in figures.submissions.items()}
    busiest = ", ".join(f"{count:,} {of_type}s" for of_type, count in most.items())
    medians = (
        f"{model} {seconds[len(seconds) // 2]:.1f} s" for model, (_, seconds) in figures.latency.items()
    )
    days = (f"{day} {dollars(sum(costs.values(), Decimal(0)))} USD" for day, costs in figures.costs.items())
    kept = (f"{model} {dollars(cost)} USD" for model, (_, cost) in figures.kept.items())
    return {
        "spending": f"Spending over time: {dollars(spent)} USD{of_limit}" if figures.spending else "",
        "submissions": f"Submissions a minute; at most {busiest}",
        "latency": _listed("Latency by model, median", medians),
        "costs": _listed("Cost by model and day", days),
        "kept": _listed("Cost of a kept file by model", kept),
    }


def _listed(what: str, parts: Iterable[str]) -> str:
    """The first of the parts after what they are; empty where there are none."""
    shown = [*parts]
    return f"{what}: {and_more(shown[:_IN_WORDS], len(shown))}" if shown else ""


def limits_of(learned: Mapping[str, Any] | None, configured: Limits) -> dict[str, int]:
    """Submissions a minute by model type, as far as they are known: what runs have learned, or the config's
    where that is lower.
    """
    windows = (learned or {}).get("windows", {})
    known = {of_type: int(window["limit"]) for of_type, window in windows.items() if window.get("limit")}
    for of_type, limit in (("image", configured.image_rpm), ("video", configured.video_rpm)):
        if limit is not None:
            known[of_type] = min(limit, known.get(of_type, limit))
    return known
