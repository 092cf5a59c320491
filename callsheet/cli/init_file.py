"""`init BATCH_FILE`: a config for a batch file that is there, with what was guessed as comments."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from callsheet.batches.columns import in_yaml
from callsheet.plain_text import counted, printable
from callsheet.records import dollars

if TYPE_CHECKING:
    from callsheet.pricing.compare import Guess

_CONFIG = """\
# A batch for Callsheet, made for {path}. Look at the first request of the quote before you buy.
#
#   callsheet quote {config}    prices it, and shows the first request; buys nothing
#   callsheet run {config}      buys what is not bought yet, and stores it; run it again after any stop
#
# Relative paths start at the folder in which callsheet is run. docs/configuration.md has every key.

batch: {batch}    # a job is bought once in a batch, however often the batch is run

service:
  base_url: ${{CALLSHEET_BASE_URL}}    # without /v2; the API key is read from CALLSHEET_API_KEY

input:
  path: {path}
{input}
budget:
  limit: "{limit}"    # US dollars: the batch never costs more
"""


def config_text(path: Path, config: Path, batch: str, guess: Guess) -> str:
    """The config for a batch file.

    Args:
        path: the batch file.
        config: where the config will be.
        batch: the batch's name.
        guess: how the file is read.
    """
    price = guess.taken.price if guess.taken else Decimal(0)
    limit = max(price.to_integral_value(ROUND_CEILING), Decimal(1)).quantize(Decimal("0.01"))
    return _CONFIG.format(
        path=_in_config(str(path)),
        config=printable(shlex.quote(str(config))),
        batch=batch,
        input="".join(f"  {line}\n" for line in _input(guess)),
        limit=limit,
    )


def _in_config(text: str) -> str:
    """A text as a value of the config; a `${` in it is not read from the environment."""
    return in_yaml(text).replace("${", "$${")


def _input(guess: Guess) -> Iterator[str]:
    """The lines of `input` below its path."""
    if guess.columns:
        names = {ours: "null" if name is None else _in_config(name) for ours, name in guess.columns.items()}
        yield f"columns: {{{', '.join(f'{ours}: {name}' for ours, name in names.items())}}}    # guessed"
    if guess.columns.get("id", "") is None:
        yield '# The ids repeat, so they are not used. To make ids of columns: id: "{category}-{id}"'
    if guess.taken:
        taken = f"{guess.taken.rows:,} of {counted(guess.rows, 'row')} for {dollars(guess.taken.price)} USD"
        yield f"# The cheapest model that takes most rows: {taken}"
        yield f"defaults: {{model: {_in_config(guess.taken.model)}}}"
    for name, reason in guess.not_used.items():
        yield f"# Not used: the column {_in_config(name)} {printable(reason)}"


def show_guess(config: Path, guess: Guess) -> None:
    """Prints what was written, what was guessed, and what to type next."""
    from callsheet.cli.output import out, print_facts, safe

    out.print(f"Wrote [bold]{safe(str(config))}[/].")
    facts = [("Rows", f"{guess.rows:,}")]
    for ours, name in guess.columns.items():
        facts.append(("Column", f"{ours}: {'not used' if name is None else name}"))
    if guess.taken:
        taken = f"{guess.taken.rows:,} of {counted(guess.rows, 'row')}"
        facts.append(("Model", f"{guess.taken.model}, the cheapest of those that take most rows: {taken}"))
    facts += [("Not used", f"{name} {reason}") for name, reason in guess.not_used.items()]
    print_facts(out, [*facts, ("Next", f"callsheet quote {shlex.quote(str(config))}")])
