"""Doubts: which of them a person means, and who that person is. It settles nothing.

A doubt with an id is no doubt about money: the service accepted the video, and every run asks for it again. A
person settles it only by giving it up.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence

from callsheet.errors import CallsheetError
from callsheet.records import Doubt, State


def named(doubts: Sequence[Doubt], words: Sequence[str], *, give_up: bool = False) -> list[Doubt]:
    """The doubts that a person names, each once and in the list's order.

    Args:
        doubts: what is in doubt, and the accepted videos that have not ended.
        words: a row's id (then all its jobs are meant), or the beginning of a job's key or of a row's id
            that no other job in doubt has.
        give_up: what was accepted counts, too. Otherwise it is left out.

    Raises:
        CallsheetError: a word names no job, or several, or only what was accepted; exit code 2.
    """
    open_ = [doubt for doubt in doubts if give_up or not doubt.is_accepted]
    keys = set()
    for word in words:
        if not (of_word := _keys_of(open_, word)):
            raise _refusal(doubts, word)
        keys |= of_word
    return [doubt for doubt in open_ if doubt.job_key in keys]


def _keys_of(doubts: Sequence[Doubt], word: str) -> set[str]:
    """The keys of the jobs that a word names; empty where there is none."""
    named_ = _matching(doubts, word)
    keys = {doubt.job_key for doubt in named_}
    if len(keys) > 1 and any(doubt.row_id != word for doubt in named_):
        listed = ", ".join(f"{doubt.job_key[:12]} (row {doubt.row_id})" for doubt in named_[:5])
        raise CallsheetError(f"{word!r} may mean {len(keys)} jobs: {listed}", hint="Give more of the key.")
    return keys


def _matching(doubts: Sequence[Doubt], word: str) -> list[Doubt]:
    """The doubts of the row with this id, or else those whose key or row id begins so."""
    of_row = [doubt for doubt in doubts if doubt.row_id == word]
    return of_row or [
        doubt
        for doubt in doubts
        if word and (doubt.job_key.startswith(word) or doubt.row_id.startswith(word))
    ]


def _refusal(doubts: Sequence[Doubt], word: str) -> CallsheetError:
    """Why a word names nothing that is settled without more."""
    accepted = _matching(doubts, word)
    if not accepted:
        return CallsheetError(
            f"{word!r} is not a job in doubt",
            hint="`callsheet resolve CONFIG` lists what is in doubt.",
        )
    one = accepted[0]
    state = "is pending" if one.state is State.PENDING else "is no doubt about money"
    return CallsheetError(
        f"row {one.row_id} {state}: the service accepted it as {one.generation_id}, and the next run with "
        "the right key asks for it again; nothing was settled",
        hint="`callsheet collect CONFIG` asks now, and buys nothing. To give the video up all the same, add "
        "--give-up: with --charged its price is spent and the file is lost; with --not-charged the next run "
        "buys it again, and it may be paid for twice.",
    )


def login() -> str:
    """The user of this process: the login name, or the user's number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
