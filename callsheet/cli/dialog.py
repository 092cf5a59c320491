"""What `callsheet init` asks on a terminal: each doubt of a file, with an example of each answer.

Enter takes the first answer. A number, or the answer itself, takes another; for the prompt any column or a
template, too. `back` asks the question before again. The end of the input, or Ctrl-C, ends it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from callsheet import signals
from callsheet.cli import keyboard
from callsheet.cli.output import out
from callsheet.errors import ConfigError, InputError, Interrupted
from callsheet.plain_text import cut, printable
from callsheet.present.console import print_page
from callsheet.present.page import Line, Part

if TYPE_CHECKING:
    from callsheet.first_look.form import Proposal
    from callsheet.first_look.guess import Guess

_SHOWN = 9  # answers; `all` shows the others
_NARROWEST = 12  # columns of a cell
_BACK, _ALL = "back", "all"
_MORE = {
    "prompt": 'a column\'s name, or a template such as "A photo of a {Title}"',
    "model": "a model's name",
    "sheet": "a sheet's name",
    "images": "columns' names, with commas",
    "rows": "a list's name",
}


def ask(guess_with: Callable[[Mapping[str, str]], Guess], answers: Mapping[str, str]) -> Guess:
    """The guess when all that is in doubt is answered.

    Args:
        guess_with: makes a guess with what a person has said.
        answers: what is said already.

    Raises:
        Interrupted: the person has ended it.
    """
    said = [dict(answers)]
    guess = guess_with(said[-1])
    print_page(out, _first_rows(guess.first))
    while guess.proposals:
        proposal, shown = guess.proposals[0], _SHOWN
        print_page(out, [Line(), *_question(proposal, shown)])
        while True:
            answer = _typed()
            if answer == _BACK:
                said = said[:-1] or said
                guess = guess_with(said[-1])
                break
            if answer == _ALL and len(proposal.candidates) > shown:
                shown = len(proposal.candidates)
                print_page(out, _question(proposal, shown))
                continue
            try:
                chosen = {proposal.setting: _chosen(answer, proposal)}
                guess = guess_with(said[-1] | chosen)
            except (InputError, ConfigError) as error:
                print_page(out, [Line(f"{error.message}. Type {_what(proposal)}.")])
                continue
            said.append(said[-1] | chosen)
            break
    return guess


def _typed() -> str:
    """The next line that a person types.

    Raises:
        Interrupted: the input was ended, or a signal came.
    """

    async def line() -> str:
        with signals.cancelled_by_signals():
            return await keyboard.line()

    out.print("> ", end="")
    with suppress(Interrupted):
        if text := asyncio.run(line()):
            return text.strip()
    out.print()
    raise Interrupted("ended; nothing was written")


def _chosen(answer: str, proposal: Proposal) -> str:
    """The answer that is meant by what was typed.

    Raises:
        InputError: it is none.
    """
    values = [*proposal.candidates]
    if not answer:
        return proposal.taken
    if answer.isdecimal() and 1 <= int(answer) <= len(values):
        return values[int(answer) - 1]
    if answer not in values and proposal.setting not in _MORE:
        raise InputError(f"{answer!r} is none of the answers")
    return answer


def _what(proposal: Proposal) -> str:
    """What can be typed, in words."""
    more = _MORE.get(proposal.setting)
    return f"a number from 1 to {len(proposal.candidates)}{f', {more}' if more else ''}, or {_BACK}"


def _question(proposal: Proposal, shown: int) -> Iterator[Part]:
    yield Line(strong=proposal.question)
    names = [*proposal.candidates][:shown]
    width = max(map(len, names))
    for number, name in enumerate(names, 1):
        example = proposal.candidates[name]
        yield Line(_cut(f"{number:>3}  {name:<{width}}  {example}", out.width))
    left_out = len(proposal.candidates) - len(names)
    more = f"; {_ALL} shows {left_out} more" if left_out else ""
    yield Line(f"Enter takes 1. Type {_what(proposal)}{more}.")


def _first_rows(rows: Sequence[Mapping[str, str]]) -> Iterator[Part]:
    """The first rows of a file, cut to the screen."""
    names = [*rows[0]] if rows else []
    count = max(1, min(len(names), out.width // _NARROWEST))
    width = max(_NARROWEST, out.width // count) - 2
    for row in ({name: name for name in names}, *rows):
        cells = [_cut(row[name], width).ljust(width) for name in names[:count]]
        yield Line("  ".join(cells).rstrip())
    if len(names) > count:
        yield Line(f"and {len(names) - count} more columns: {_cut(', '.join(names[count:]), out.width - 24)}")


def _cut(text: str, width: int) -> str:
    return cut(printable(" ".join(text.split()) if "\n" in text else text), width)
