"""Record: the progress is shown while a run is under way; at its end the report is written."""

from __future__ import annotations

from callsheet.report.summary import Summary
from callsheet.session import Run
from callsheet.steps.contact_sheet import sheet_of
from callsheet.steps.record import show_progress, write
from tasks import artifacts
from tasks.pressed import heed
from tasks.step import step


@step
async def record(run: Run) -> Summary:
    """Does what `callsheet/steps/record.py` does, with a progress bar and the costs as artifacts."""
    async with sheet_of(run) as sheet:
        async with artifacts.progress_of(run):
            await show_progress(run)
        if run.interrupted:
            await heed(run)  # a signal may have been a Cancel in the Prefect UI: the report says so
        summary = await write(run, sheet)
    await artifacts.show_costs(summary)
    return summary
