"""What is said of what may be spent: a purse, a limit that is nearly used up, a setting that was changed."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from callsheet.ledger.changes import PAUSED, Setting
from callsheet.ledger.purses import Purse, Shut
from callsheet.ledger.walls import Wall
from callsheet.plain_text import and_more, moment_in_words, printable
from callsheet.present.amounts import amount_left, of_limit
from callsheet.records import dollars

_MOST_NAMED = 3  # models


def of_purse(purse: Purse) -> str:
    """A purse in one line."""
    models = f" for {and_more(purse.models[:_MOST_NAMED], len(purse.models))}" if purse.models else ""
    given = f"given by {purse.given_by}, {moment_in_words(purse.given_at)}"
    state = why_not(purse) or f"{amount_left(purse.left)} until {moment_in_words(purse.until)}"
    return printable(f"{dollars(purse.amount)} USD{models}, {dollars(purse.spent)} spent, {state}; {given}")


def why_not(purse: Purse) -> str:
    """Why nothing more may be bought by a purse; empty where it is open."""
    if purse.shut is Shut.CLOSED and purse.closed_at:
        return f"closed by {purse.closed_by}, {moment_in_words(purse.closed_at)}"
    if purse.shut is Shut.OVER:
        return f"over since {moment_in_words(purse.until)}"
    return f"given for another database, {purse.place}" if purse.shut else ""


def figures_of_purse(purse: Purse) -> dict[str, Any]:
    """A purse as `purse --json` lists it."""
    names = ("name", "amount", "spent", "models", "given_by", "given_at", "until", "closed_by", "closed_at")
    return {name: getattr(purse, name) for name in names} | {"why_not": why_not(purse), "left": purse.left}


def of_wall(wall: Wall) -> str:
    """That a limit is nearly used up."""
    of_day = f" for {wall.day}" if wall.day else ""
    share = f"{int(100 * wall.used / wall.amount)} %"
    return f"{share} of {wall.setting}{of_day} is used: {of_limit(wall.used, wall.amount)}"


def of_change(change: Setting) -> str:
    """A changed setting, and by whom."""
    for_whom = " for another run" if change.run_id else ""
    by = f"by {change.changed_by}{for_whom}, {moment_in_words(change.changed_at)}"
    return f"{changed(change.setting, change.value)}: {by}"


def changed(setting: str, value: Any) -> str:
    """What is so from now on: `budget.limit is 4.00`."""
    if setting == PAUSED:
        return "the buying is paused" if value else "the buying goes on"
    return f"{setting} is {'null' if value is None else value}"


def without_limit(allowed: Decimal | None) -> str:
    """What bounds a batch that has no limit any more; empty where it has one."""
    if allowed is None:
        return ""
    return f"without a limit, the batch may come to what was approved or quoted: {dollars(allowed)} USD"
