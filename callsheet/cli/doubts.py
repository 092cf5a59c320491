"""`resolve`: what is in doubt, and a person's decision about it."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet.cli.options import Config, Json, Sets, load_settings, open_client, open_ledger
from callsheet.cli.streams import print_json
from callsheet.errors import CallsheetError
from callsheet.records import dollars

if TYPE_CHECKING:
    from callsheet.config.settings import Settings


def resolve(
    config: Config,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY]...", help="Row ids, or how a job's key or row id begins.", show_default=False
        ),
    ] = None,
    *,
    charged: Annotated[bool, typer.Option("--charged", help="They were paid for, and are lost.")] = False,
    not_charged: Annotated[
        bool, typer.Option("--not-charged", help="They cost nothing; the next run buys them.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Settle everything that is in doubt.")] = False,
    why: Annotated[str | None, typer.Option(help="The reason, for the ledger.")] = None,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """List the jobs that may have been paid for, with the evidence; or settle them.

    Exit codes: 0 nothing is in doubt (any more); 3 something is; 2 bad use, nothing was settled.
    """
    settings = load_settings(config, set_)
    settles = charged or not_charged
    if settles != bool(keys or all_) or (charged and not_charged) or (keys and all_) or (why and not settles):
        raise CallsheetError(
            "to settle doubts, say which and how",
            hint="KEY... or --all, with either --charged or --not-charged; --why goes with these.",
        )
    work = _settle(settings, keys, charged, why, json) if settles else _list(settings, config, json)
    raise typer.Exit(3 if asyncio.run(work) else 0)


async def _list(settings: Settings, config: Path, json: bool) -> int:
    """Prints what is in doubt, and the evidence; returns how many."""
    from callsheet.cli import show
    from callsheet.ledger import doubts, queries

    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        found = await ledger.read(queries.doubts)
        evidence = await doubts.evidence(ledger, found, lambda: open_client(settings)) if found else None
    if json:
        listed = [doubt.as_json() for doubt in found]
        exposure = dollars(sum((doubt.price or Decimal(0) for doubt in found), Decimal(0)))
        answer = {
            "in_doubt": listed,
            "in_doubt_exposure": exposure,
            "evidence": evidence and evidence.as_json(),
        }
        print_json({"batch": settings.batch, **answer, "currency": "USD"})
    else:
        from callsheet.pricing.planning import lines_of_last_plan

        lines = lines_of_last_plan(settings, [doubt.job_key for doubt in found])
        show.show_doubts(settings.batch, found, evidence, lines, config)
    return len(found)


async def _settle(
    settings: Settings, keys: list[str] | None, charged: bool, why: str | None, json: bool
) -> int:
    """Settles the doubts named, or all; returns how many are left."""
    from callsheet.cli import show
    from callsheet.ledger import doubts, queries

    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        found = await ledger.read(queries.doubts)
        chosen = doubts.named(found, keys) if keys else found
        by = doubts.login()
        await ledger.settle(chosen, charged=charged, by=by, why=why)
        left = len(await ledger.read(queries.doubts))
    if json:
        settled = [doubt.as_json() for doubt in chosen]
        answer = {"settled": settled, "charged": charged, "settled_by": by, "why": why, "left": left}
        print_json({"batch": settings.batch, **answer, "currency": "USD"})
    else:
        show.show_settled(settings.batch, chosen, charged=charged, left=left)
    return left
