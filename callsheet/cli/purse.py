"""`purse`: what a person gives others to spend on a batch without a question."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet.cli.output import Config, Json, Sets, amount_of, load_batch, open_ledger, out, print_json
from callsheet.errors import ConfigError
from callsheet.present.console import print_page
from callsheet.processes import user_name

if TYPE_CHECKING:
    from callsheet.config.settings import BatchSettings
    from callsheet.ledger.purses import Purse

AGENT = "agent"
"""The name that is meant where none is given."""

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_MOST_DAYS = 366


def purse(
    config: Config,
    amount: Annotated[
        str | None, typer.Argument(metavar="AMOUNT", help="US dollars.", show_default=False)
    ] = None,
    *,
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="Who may buy by it.")] = AGENT,
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long it lasts: 7d, 12h or 30m.")
    ] = "7d",
    models: Annotated[
        str | None,
        typer.Option("--models", metavar="A,B", help="For these models alone; without it for all."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the batch's purses.")] = False,
    close: Annotated[bool, typer.Option("--close", help="Close that of NAME: nothing more is sent.")] = False,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Let somebody else, such as an agent, buy of a batch without a question, up to an amount.

    callsheet run CONFIG --purse NAME buys within it, and stops with the question beyond it: then a person
    gives another purse, or runs the batch. Limits, days, dear charges, guesses and doubts stop it as ever.

    Another purse of the same name takes the place of the one before, with what is left in that.

    callsheet purse batch.yaml 5.00 --for 2d --models still-1,reel-1
    """
    if [amount is not None, list_, close].count(True) != 1:
        raise ConfigError("what about the purse?", hint="Give one of AMOUNT, --list and --close.")
    settings = load_batch(config, set_)
    if amount is not None:
        names = sorted({model.strip() for model in (models or "").split(",")} - {""})
        purses = asyncio.run(_give(settings, to.strip(), amount_of(amount), _time(for_), names))
    else:
        purses = asyncio.run(_look(settings, to.strip() if close else None))
    from callsheet.present import allowances

    if json:
        listed = list(map(allowances.figures_of_purse, purses))
        print_json({"batch": settings.batch, "purses": listed, "currency": "USD"})
        return
    from callsheet.present.page import Facts, Line

    lines = [(purse.name, allowances.of_purse(purse)) for purse in purses]
    print_page(out, [Line(strong=settings.batch), Facts(lines or [("Purses", "none")])])


def _time(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,6})([dhm])", text)
    lasts = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta()
    if not timedelta() < lasts <= timedelta(days=_MOST_DAYS):
        raise ConfigError(f"--for '{text}' is no time of up to a year", hint="Give it as 7d, 12h or 30m.")
    return lasts


async def _give(
    settings: BatchSettings, name: str, amount: Decimal, lasts: timedelta, models: list[str]
) -> list[Purse]:
    from callsheet import places
    from callsheet.ledger import purses
    from callsheet.ledger.databases import exists
    from callsheet.ledger.ledger import Ledger

    if not name:
        raise ConfigError("--to is empty", hint="Name who may buy by it, such as agent.")
    if not await asyncio.to_thread(exists, settings.ledger.url):  # none is made where it may not begin
        await places.check(None, settings)
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        return [await ledger.write(purses.give, name, amount, lasts=lasts, models=models, by=user_name())]


async def _look(settings: BatchSettings, close: str | None) -> list[Purse]:
    """All purses of the batch; or that of a name, which is closed."""
    from callsheet.ledger import purses
    from callsheet.ledger.databases import check_exists
    from callsheet.ledger.ledger import Ledger

    if close is None:
        async with open_ledger(settings.ledger.url, settings.batch) as ledger:
            return await ledger.read(purses.all_of_batch)
    check_exists(settings.ledger.url)
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        return [await ledger.write(purses.close, close, user_name())]
