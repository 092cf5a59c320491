"""`resolve`: what is in doubt, and a person's decision about it."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet.cli.options import Config, Json, Sets, load_settings, open_client, open_ledger
from callsheet.cli.streams import print_json
from callsheet.errors import CallsheetError
from callsheet.records import State, dollars

if TYPE_CHECKING:
    from callsheet.config.settings import Settings
    from callsheet.records import Doubt


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
    all_: Annotated[
        bool, typer.Option("--all", help="Settle everything that is in doubt, but no accepted video.")
    ] = False,
    give_up: Annotated[
        bool,
        typer.Option(
            "--give-up",
            help="Settle accepted videos too: those of KEY that have an id, in doubt or pending. Every run "
            "asks the service for them. With --charged the price is spent and the video lost; with "
            "--not-charged it is bought again, and may be paid for twice.",
        ),
    ] = False,
    why: Annotated[str | None, typer.Option(help="The reason, for the ledger.")] = None,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """List the jobs that may have been paid for, with the evidence; or settle them.

    A video that the service has accepted has an id. It is no doubt about money, because every run asks for it
    again: it is listed apart, and settled only with --give-up. What a run at work asks for is not settled.

    Exit codes: 0 nothing is in doubt (any more); 3 something is; 2 nothing was settled: bad use, or a run at
    work has it.
    """
    settings = load_settings(config, set_)
    settles = charged or not_charged
    if settles != bool(keys or all_) or (charged and not_charged) or (keys and all_) or (why and not settles):
        raise CallsheetError(
            "to settle doubts, say which and how",
            hint="KEY... or --all, with either --charged or --not-charged; --why goes with these.",
        )
    if give_up and not keys:
        raise CallsheetError(
            "--give-up goes with KEY...", hint="Name each video, with either --charged or --not-charged."
        )
    work = (
        _settle(settings, keys, charged=charged, give_up=give_up, why=why, json=json)
        if settles
        else _list(settings, config, json)
    )
    raise typer.Exit(3 if asyncio.run(work) else 0)


async def _list(settings: Settings, config: Path, json: bool) -> int:
    """Prints what is in doubt, and the evidence; returns how many."""
    from callsheet.cli import show
    from callsheet.ledger import queries
    from callsheet.report import balance_evidence

    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        found = await ledger.read(queries.doubts)
        doubts, accepted = _apart(found)
        evidence = None
        if doubts:
            evidence = await balance_evidence.evidence(ledger, doubts, lambda: open_client(settings))
    if json:
        prices = (doubt.price or Decimal(0) for doubt in found if doubt.state is State.IN_DOUBT)
        exposure = dollars(sum(prices, Decimal(0)))
        answer = {
            "in_doubt": [doubt.as_json() for doubt in doubts],
            "accepted": [doubt.as_json() for doubt in accepted],
            "in_doubt_exposure": exposure,
            "evidence": evidence and evidence.as_json(),
        }
        print_json({"batch": settings.batch, **answer, "currency": "USD"})
    else:
        from callsheet.pricing.plan import lines_of_last_plan

        lines = lines_of_last_plan(settings, [doubt.job_key for doubt in found])
        if evidence:
            show.show_doubts(settings.batch, doubts, evidence, lines, config)
        if accepted or not evidence:
            show.show_accepted(settings.batch, accepted, lines, config)
    return len(found)


def _apart(found: list[Doubt]) -> tuple[list[Doubt], list[Doubt]]:
    """What may have been paid for, and apart from it what the service has accepted."""
    return [one for one in found if not one.is_accepted], [one for one in found if one.is_accepted]


async def _settle(
    settings: Settings, keys: list[str] | None, *, charged: bool, give_up: bool, why: str | None, json: bool
) -> int:
    """Settles the doubts named, or all; returns how many are left."""
    from callsheet.cli import show
    from callsheet.ledger import doubts, queries

    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        found = await ledger.read(partial(queries.doubts, pending=True))
        chosen = doubts.named(found, keys, give_up=give_up) if keys else _apart(found)[0]
        by = doubts.login()
        await ledger.settle(chosen, charged=charged, by=by, why=why)
        left = await ledger.read(queries.doubts)
    left_out = _apart(left)[1]
    if json:
        settled = [doubt.as_json() for doubt in chosen]
        answer = {"settled": settled, "charged": charged, "settled_by": by, "why": why, "left": len(left)}
        out_of_it = [doubt.as_json() for doubt in left_out]
        print_json({"batch": settings.batch, **answer, "left_out": out_of_it, "currency": "USD"})
    else:
        show.show_settled(settings.batch, chosen, charged=charged, left=len(left), left_out=left_out)
    return len(left)
