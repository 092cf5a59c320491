"""The plots of a batch, drawn when a run has ended, and for `callsheet report`. They are for looking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from callsheet.config.settings import BatchSettings
from callsheet.report.plots.plots import Plot, limits_of, write_plots
from callsheet.report.summary import Summary
from callsheet.session import Run
from callsheet.storage.store import Store
from callsheet.watch import WATCHER


async def plots_of(run: Run, summary: Summary) -> tuple[Plot, ...]:
    """The plots of a run that has ended; none where it was told to end soon."""
    if run.interrupted:
        return ()
    return await draw(run.settings, summary, asdict(run.limits.learned()), WATCHER.get().note)


async def draw(
    settings: BatchSettings, summary: Summary, learned: Mapping[str, Any] | None, note: Callable[[str], None]
) -> tuple[Plot, ...]:
    """Draws the plots of a batch, unless the config asks for none.

    Args:
        settings: the config.
        summary: how the batch stands.
        learned: what is known of the account's limits (`limits.turns.Learned` as a dict).
        note: called with what a person should know.
    """
    if not settings.report.plots:
        return ()
    limits = settings.limits
    return await write_plots(
        summary.details.figures,
        Store(settings.report.url, endpoint_url=settings.storage.endpoint_url),
        batch=settings.batch,
        limit=settings.budget.limit,
        limits=limits_of(learned, {"image": limits.image_rpm, "video": limits.video_rpm}),
        note=note,
    )
