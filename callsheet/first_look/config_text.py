"""The text of a config that `init` writes, and what it says to type."""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callsheet.plain_text import counted, printable
from callsheet.records import dollars

if TYPE_CHECKING:
    from callsheet.first_look.guess import Guess

_CONFIG = """\
# A batch for Callsheet: what is bought, for how much at most, and where it is stored.
#
{steps}#
# Relative paths start at the folder in which callsheet is run. What a line has after # is a comment.
# `callsheet docs configuration` has every key.

batch: {batch}    # a job is bought once in a batch, however often the batch is run

service:
  base_url: ${{CALLSHEET_BASE_URL}}    # without /v2; the API key is read from CALLSHEET_API_KEY

input:
  {source}
{input}
budget:
  limit: "{limit}"    # US dollars: the batch never costs more
{both}  # approve_above: "5.00"    # asks before a quote above this amount is bought
  # pilot: 6                 # buys 6 jobs of all kinds first, and asks before the rest

# storage:
#   url: out/media    # or s3://bucket/prefix
"""
_OF_BOTH = (
    '  ledger: "{limit}"    # and all batches of the ledger together: stills, films, others of before\n'
)
_PATHS = "    # a CSV, Parquet or Excel file, a folder of images, a glob, or s3://..."
_SUGGESTED = (
    '# defaults: {aspect_ratio: "1:1"}                  # for empty cells and missing columns',
    '# template: "A photo of a {product}, {season}"     # makes the prompt from other columns of the file',
    '# matrix: {aspect_ratio: ["1:1", "16:9"]}          # buys each row once for each value',
)
_YAML_WORDS = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")


def text_of_example(config: Path, batch: str, prompts: Path, price: Decimal) -> str:
    """The config for a first batch file, whose rows cost `price` dollars."""
    source = f"path: {_in_yaml(str(prompts))}{_PATHS}"
    return _text(batch, source, _SUGGESTED, price, _steps_of_batch(config))


def texts_of_guess(path: Path, configs: Sequence[Path], guess: Guess, *, has_ledger: bool) -> dict[Path, str]:
    """The config for a batch file, and for the films of its stills where they are wanted, by their names.

    `has_ledger`: the folder has a ledger, in which other batches may have spent something.
    """
    source = f"path: {_in_yaml(str(path))}{_PATHS}"
    stills, price = configs[0], guess.price
    if guess.films is None:
        return {stills: _text(batch_name(stills.stem), source, _lines(guess), price, _steps_of_batch(stills))}
    films, steps = configs[1], steps_of_production(configs)
    kept = f"kept: {_in_yaml(str(stills))}    # a film of each still that is kept (callsheet review)"
    both = _OF_BOTH.format(limit=_limit(price) + _limit(guess.films.price))
    both = both.replace("  ", "  # ", 1) if has_ledger else both
    of_films = _lines(guess.films), guess.films.price
    return {
        stills: _text(batch_name(stills.stem), source, _lines(guess), price, steps, both=both),
        films: _text(batch_name(films.stem), kept, *of_films, steps, both=both),
    }


def _text(
    batch: str,
    source: str,
    lines: Iterable[str],
    price: Decimal,
    steps: Mapping[str, str],
    *,
    both: str = "",
) -> str:
    """The config for the rows of a source, with these lines of `input`, which would cost `price` dollars.

    `steps` are what to type, each with what it does. `both` is a line of the budget.
    """
    from callsheet.config.schema import MODELINE  # pydantic, 0.1 s

    width = max(map(len, steps))
    return MODELINE + _CONFIG.format(
        steps="".join(f"#   {printable(f'{step:<{width}}    # {does}')}\n" for step, does in steps.items()),
        both=both,
        batch=batch,
        source=source,
        input="".join(f"  {line}\n" for line in lines),
        limit=_limit(price),
    )


def _limit(price: Decimal) -> Decimal:
    """A budget for a price: in whole dollars, rounded up, and at least one."""
    return max(price.to_integral_value(ROUND_CEILING), Decimal(1)).quantize(Decimal("0.01"))


def _steps_of_batch(config: Path) -> dict[str, str]:
    name = shlex.quote(str(config))
    return {
        f"callsheet quote {name}": "prices it, shows the first rows, says what is wrong; buys nothing",
        f"callsheet run {name}": "buys what is not bought yet and stores it; run it again after any stop",
    }


def steps_of_production(configs: Sequence[Path]) -> dict[str, str]:
    """What to type for stills, and for films of them, in this order; each with what it does."""
    stills, films = (shlex.quote(str(config)) for config in configs)
    return {
        f"callsheet quote {stills}": "prices the stills, and says what is wrong; buys nothing",
        f"callsheet run {stills}": "buys them",
        f"callsheet review {stills}": "keep one of each shot, reject the others",
        f"callsheet run {stills} --again": "buys one more of each shot of which all are rejected",
        f"callsheet quote {films}": "prices a film of each still that is kept",
        f"callsheet run {films}": "buys them",
        f"callsheet review {films}": "keep and reject them",
        f"callsheet status {stills} {films}": "says what each finished shot has cost",
        f"callsheet export {films} --to cut --as otio --kept": "makes a cut for an editor",
    }


def _in_yaml(text: str) -> str:
    """A text as a value of the config; a `${` in it is not read from the environment."""
    return json.dumps(text, ensure_ascii=not text.isprintable()).replace("${", "$${")


def _lines(guess: Guess) -> Iterator[str]:
    """The lines of `input` that say how a batch file is read."""
    for setting, value in guess.input.items():
        yield f"{setting}: {_flow(value)}"
    if guess.input.get("columns", {}).get("id", "") is None:
        yield '# The ids repeat, so they are not used. To make ids of columns: id: "{category}-{id}"'
    if guess.taken:
        yield f"# {guess.taken.model}: {rows_taken(guess)}; {dollars(guess.price)} USD"
    for name, reason in guess.not_used.items():
        yield printable(f"# Not used: the column {name} {reason}")
    if guess.proposals:
        yield "guessed:    # a quote says these first, and a run asks once; remove what is right"
    for setting, guessed in guess.guesses().items():
        yield f"  {setting}: {_flow(guessed)}"


def _flow(value: Any) -> str:
    """A value of the config on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_flow(name)}: {_flow(entry)}' for name, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str):
        return value if re.fullmatch(r"[a-z_]+", value) and value not in _YAML_WORDS else _in_yaml(value)
    return json.dumps(value)


def rows_taken(guess: Guess) -> str:
    """How many rows the model takes."""
    comparison = guess.taken
    rows = f"{comparison.rows:,} of {counted(comparison.of, 'row')}" if comparison else ""
    if guess.refused:
        rows += f", and no model takes any: {'; '.join(guess.refused)}"
    return f"{rows} that were tried on each model" if guess.is_sample else rows


def batch_name(name: str) -> str:
    """A file's or folder's name as that of a batch: letters of every script stay."""
    from callsheet.config.setting_types import LONGEST_BATCH_NAME, is_of_batch_name  # pydantic, 0.1 s

    characters = unicodedata.normalize("NFC", name)
    words = "".join(character if is_of_batch_name(character) else " " for character in characters).split()
    short = "-".join(words).strip("-._")[:100].encode()[:LONGEST_BATCH_NAME]
    return short.decode(errors="ignore") or "my-batch"
