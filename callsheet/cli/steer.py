"""`set`, `pause` and `resume`: what a person changes while runs are at work."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callsheet.cli.options import Config, Json, Sets, load_batch
from callsheet.cli.output import out, print_facts, print_json, safe

if TYPE_CHECKING:
    from callsheet.config.settings import BatchSettings

_Values = Annotated[
    list[str], typer.Argument(metavar="A.B=VALUE...", help="What to change.", show_default=False)
]


def set_values(config: Config, values: _Values, *, overrides: Sets = None, json: Json = False) -> None:
    """Change settings of the runs of a batch that are at work, within seconds.

    budget.limit, budget.per_day, limits.image_rpm, limits.video_rpm, limits.concurrency, stop_after,
    poll.interval and poll.timeout can be changed. A budget below what is spent stops the buying politely. The
    config file stays as it is, and the next run has what it says.

    callsheet set batch.yaml budget.limit=20.00 limits.image_rpm=30
    """
    from callsheet.config.load import changed_values

    settings, changed = changed_values(config, values, overrides or ())
    _change(settings, changed, json)


def pause(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Hold the buying of the runs of a batch that are at work. What is sent is stored all the same."""
    _pause(config, set_, paused=True, json=json)


def resume(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Let the runs of a batch go on that hold their buying."""
    _pause(config, set_, paused=False, json=json)


def _pause(config: Path, overrides: list[str] | None, *, paused: bool, json: bool) -> None:
    from callsheet.ledger.approvals import PAUSED

    _change(load_batch(config, overrides), {PAUSED: paused}, json)


def _change(settings: BatchSettings, values: Mapping[str, Any], json: bool) -> None:
    from callsheet.ledger.approvals import in_words
    from callsheet.steps.change import change

    done = asyncio.run(change(settings, values))
    if json:
        runs = [run.as_json() for run in done.runs]
        print_json({"batch": settings.batch, "changed": dict(values), "runs": runs})
        return
    out.print(f"[bold]{safe(settings.batch)}[/]")
    print_facts(out, [("Changed", in_words(name, value)) for name, value in values.items()])
    print_facts(out, [("Bound", done.bound_in_words())])
    print_facts(out, [("At work", run.line()) for run in done.runs])
