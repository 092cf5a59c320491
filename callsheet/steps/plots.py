"""The plots of a batch, drawn when a run has ended, and for `callsheet report`. They are for looking."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from callsheet.config.settings import BatchSettings
from callsheet.report.plots.plots import limits_of, write_plots
from callsheet.report.summary import Summary
from callsheet.session import Run
from callsheet.storage.store import Store
from callsheet.watch import WATCHER

WORTH = 10.0
"""Seconds that a run must have taken before its plots, which take a second or two, are worth drawing."""


async def plots_of(run: Run, summary: Summary) -> dict[str, str]:
    """The plots of a run that has ended (`write_plots`); none where it was told to end soon."""
    if run.interrupted:
        return {}
    took = time.monotonic() - run.began
    learned = asdict(run.limits.learned())
    return await draw(run.settings, summary, learned, WATCHER.get().note, may_draw=took >= WORTH)


async def draw(
    settings: BatchSettings,
    summary: Summary,
    learned: Mapping[str, Any] | None,
    note: Callable[[str], None],
    *,
    may_draw: bool = True,
) -> dict[str, str]:
    """Draws the plots of a batch, unless the config asks for none.

    Args:
        settings: the config.
        summary: how the batch stands.
        learned: what is known of the account's limits (`limits.turns.Learned` as a dict).
        note: called with what a person should know.
        may_draw: false finds only what is drawn already.
    """
    if not settings.report.plots:
        return {}
    limits = settings.limits
    return await write_plots(
        summary.details.figures,
        Store(settings.report.url, endpoint_url=settings.storage.endpoint_url),
        batch=settings.batch,
        limit=settings.budget.limit,
        limits=limits_of(learned, {"image": limits.image_rpm, "video": limits.video_rpm}),
        may_draw=may_draw,
        note=note,
    )
