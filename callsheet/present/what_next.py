"""The commands that come next, for programs: each with what it costs. People are told in sentences.

A command is made of words that stand here, and of the config's path as a shell takes it: no text of a batch
file or of a service becomes a part of one.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from decimal import Decimal

from callsheet import errors
from callsheet.records import Record, dollars

FREE, ASKS, BUYS = "free", "asks a person", "buys what is left, or asks a person"
_PERSONS = (("quote {config}", FREE), ("run {config}", ASKS), ("purse {config} AMOUNT", ASKS))
_COLLECT = (("collect {config}", FREE), ("status {config}", FREE))
_AFTER: dict[type[errors.CallsheetError], tuple[tuple[str, str], ...]] = {
    errors.ConfigError: (("docs configuration", FREE),),
    errors.InputError: (("docs batches", FREE), ("quote {config}", FREE)),
    errors.ApprovalNeeded: _PERSONS,
    errors.PriceChanged: _PERSONS,
    errors.BudgetReached: (("status {config}", FREE), ("run {config}", BUYS)),
    errors.BalanceTooLow: (("balance {config}", FREE), ("run {config}", BUYS)),
    errors.KeyRefused: (("balance {config}", FREE),),
    errors.Doubtful: (("resolve {config}", FREE),),
    errors.Interrupted: (("run {config}", BUYS),),
    errors.Stop: _COLLECT,
    errors.StorageError: _COLLECT,
    errors.ServiceError: _COLLECT,
    errors.OtherVersion: (("ledger upgrade {config}", FREE),),
    errors.LedgerError: (("docs ledger", FREE), ("status {config}", FREE)),
}
"""After an error of a type, or of one below it."""


@dataclass(frozen=True, slots=True)
class Next(Record):
    """A command, and what it costs: nothing, an amount at most, or a person's answer."""

    command: str
    costs: str


def command(words: str, config: str | None, costs: str = FREE) -> Next:
    """A command of these words, in which `{config}` is the config's path."""
    return Next(f"callsheet {words.format(config=shlex.quote(config or 'CONFIG'))}", costs)


def buys_up_to(amount: Decimal) -> str:
    """What a run costs by a purse of which so many dollars are left."""
    return f"buys up to {dollars(amount)}"


def after(error: errors.CallsheetError, config: str | None) -> list[Next]:
    """The commands that help after an error; `config`: the path that the command was given, where it was."""
    known_type = next((kind for kind in type(error).__mro__ if kind in _AFTER), None)
    steps = _AFTER[known_type] if known_type else (("docs recovering", FREE),)
    return [command(words, config, costs) for words, costs in steps]
