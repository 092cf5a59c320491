"""What people see of a run in the Prefect UI: the quote, the progress, the costs and the reconciliation.

Outside a flow run there is no page to show them on, and nothing happens. No run depends on it: when the
server does not answer, a note says so and the run goes on.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import TypeVar
from uuid import UUID

import anyio

from callsheet.plain_text import printable
from callsheet.pricing.quote import Quote
from callsheet.records import dollars
from callsheet.report.books import Reconciliation
from callsheet.report.summary import Summary
from callsheet.watch import WATCHER, Progress
from tasks.step import in_flow_run

T = TypeVar("T")
PATIENCE = 5.0  # seconds for the server to answer
_ROWS = 1_000  # of a table, the last ones; more help nobody


async def show_quote(quote: Quote) -> None:
    """The quote as a table, with the facts beside it as its description."""
    if in_flow_run():
        from prefect.artifacts import acreate_table_artifact

        facts = "\n".join(f"- **{name}**: {fact}" for name, fact in quote.facts())
        await acreate_table_artifact(quote.table(), key="quote", description=facts)


async def start_progress() -> UUID | None:
    """A progress bar at 0; returns its id for `update_progress`, or None where nobody sees it."""
    if not in_flow_run():
        return None
    from prefect.artifacts import acreate_progress_artifact

    return await _answered(acreate_progress_artifact(progress=0.0, key="progress", description="Jobs done"))


async def update_progress(artifact: UUID, progress: Progress) -> bool:
    """Moves the progress bar; False where the server does not answer."""
    from prefect.artifacts import aupdate_progress_artifact

    percent = 100.0 * min(1.0, progress.done / progress.jobs) if progress.jobs else 100.0
    update = aupdate_progress_artifact(artifact, progress=percent, description=progress.line())
    return await _answered(update) is not None


async def show_costs(summary: Summary) -> None:
    """The cost summary as a page of its own."""
    if in_flow_run():
        from prefect.artifacts import acreate_markdown_artifact

        title = f"Costs of {summary.batch}"
        await _answered(acreate_markdown_artifact(_markdown(summary), key="costs", description=title))


async def show_books(result: Reconciliation, config: str) -> None:
    """A reconciliation as a table, with the facts and the doubts beside it as its description.

    Args:
        result: the reconciliation.
        config: the config's path, for the commands that settle doubts.
    """
    if in_flow_run():
        from prefect.artifacts import acreate_table_artifact

        facts = [f"- **{name}**: {fact}" for name, fact in result.facts()]
        lines = [*result.doubt_lines(), *map(printable, result.resolving(config))]
        doubts = "\n".join(["```", *lines, "```"]) if lines else ""
        description = "\n".join([result.line(), "", *facts, "", doubts])
        key = re.sub("[^a-z0-9]+", "-", f"reconcile-{result.batch.lower()}").strip("-")
        await acreate_table_artifact(result.table()[-_ROWS:], key=key, description=description)


async def _answered(request: Awaitable[T]) -> T | None:
    """Waits for the server; None, and a note, when it cannot be reached."""
    import httpx
    from prefect.exceptions import PrefectException

    try:
        with anyio.fail_after(PATIENCE):
            return await request
    except (httpx.HTTPError, PrefectException, TimeoutError):
        WATCHER.get().note("the Prefect server does not answer; the run goes on without it")
        return None


def _markdown(summary: Summary) -> str:
    rows = [
        ("Jobs", summary.jobs),
        ("Stored", summary.stored),
        ("Failed", summary.failed),
        ("In doubt", summary.in_doubt),
        ("Lost", summary.lost),
        ("Pending", summary.pending),
        ("Rejected rows", summary.rejected_rows),
        ("Quoted", f"{dollars(summary.quoted)} {summary.currency}"),
        ("Spent", f"{dollars(summary.spent)} {summary.currency}"),
        ("In doubt, at most", f"{dollars(summary.in_doubt_exposure)} {summary.currency}"),
        ("Manifest", f"`{summary.manifest}`"),
        ("Costs", f"`{summary.costs}`"),
    ]
    stop = f"\n\nStopped early: {summary.stop_message}" if summary.stop_message else ""
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"# {summary.batch}: {summary.outcome}{stop}\n\n| | |\n|---|---|\n{table}\n"
