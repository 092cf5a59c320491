"""Doubts: which of them a person means, what that person decides, and who that is.

A doubt with an id is no doubt about money: the service accepted the video, and every run asks for it again. A
person settles it only by giving it up.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import sqlalchemy as sa

from callsheet.errors import CallsheetError, LedgerError
from callsheet.ledger import leases, writing
from callsheet.ledger.policy import CHARGED, NOT_CHARGED
from callsheet.ledger.tables import settlements
from callsheet.ledger.writing import Values
from callsheet.records import CostSource, Doubt, State


def named(
    doubts: Sequence[Doubt], words: Sequence[str], *, rows: Collection[str], give_up: bool = False
) -> list[Doubt]:
    """The doubts that a person names, each once and in the list's order.

    Args:
        doubts: what is in doubt, and the accepted videos that have not ended.
        words: a row's id (then all its jobs are meant). Where no row has it, the beginning of a job's key or
            of a row's id that no other job in doubt has.
        rows: the ids of the batch's rows, as far as they are among the words; also of rows without a doubt.
        give_up: what was accepted counts, too. Otherwise it is left out.

    Raises:
        CallsheetError: a word names no job, or several, or only what was accepted; exit code 2.
    """
    open_ = [doubt for doubt in doubts if give_up or not doubt.is_accepted]
    chosen: set[str] = set()
    for word in words:
        meant = _matching(open_, word, rows)
        if not meant:
            raise _refusal(doubts, word, rows)
        keys = {doubt.job_key for doubt in meant}
        if len(keys) > 1 and any(doubt.row_id != word for doubt in meant):
            listed = ", ".join(f"{doubt.job_key[:12]} (row {doubt.row_id})" for doubt in meant[:5])
            raise CallsheetError(
                f"{word!r} may mean {len(keys)} jobs: {listed}", hint="Give more of the key."
            )
        chosen |= keys
    return [doubt for doubt in open_ if doubt.job_key in chosen]


def _matching(doubts: Sequence[Doubt], word: str, rows: Collection[str]) -> list[Doubt]:
    """The doubts of the row with this id; where no row has it, those whose key or row id begins so."""
    of_row = [doubt for doubt in doubts if doubt.row_id == word]
    if of_row or word in rows or not word:
        return of_row
    return [one for one in doubts if one.job_key.startswith(word) or one.row_id.startswith(word)]


def _refusal(doubts: Sequence[Doubt], word: str, rows: Collection[str]) -> CallsheetError:
    """Why a word names nothing that is settled without more."""
    accepted = _matching(doubts, word, rows)
    if not accepted:
        what = f"row {word} has nothing in doubt" if word in rows else f"{word!r} is not a job in doubt"
        return CallsheetError(
            f"{what}; nothing was settled", hint="`callsheet resolve CONFIG` lists what is in doubt."
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


def settle(
    connection: sa.Connection, batch: str, doubts: Sequence[Doubt], *, charged: bool, by: str, why: str | None
) -> None:
    """Records a person's decision: charged is paid for and lost, not charged is free to buy again.

    Raises:
        LedgerError: one of them is no longer as the person saw it, or a run at work asks the service for it.
    """
    rows = writing.found(connection, [doubt.job_key for doubt in doubts])
    at_work = {run.run_id: run for run in leases.others(connection, batch, None)}
    now, verb = datetime.now(UTC), "charged" if charged else "not charged"
    record = {"charged": charged, "settled_by": by, "settled_at": now, "why": why}
    for doubt in doubts:
        row = rows[doubt.job_key, doubt.attempt]
        # It would end where its job is no longer what it was.
        if doubt.is_accepted and row["run_id"] in at_work:
            raise LedgerError(
                f"row {doubt.row_id}: a run at work asks the service for this video: "
                f"{at_work[row['run_id']].line()}; nothing was settled",
                hint="Wait until that run has ended, or end it (Ctrl-C); then the same command.",
            )
        if (row["state"], row["generation_id"]) != (doubt.state, doubt.generation_id):
            raise LedgerError(
                f"row {doubt.row_id} is no longer {doubt.state.replace('_', ' ')}; nothing was settled",
                hint="List what is in doubt again: a run or a person has settled it.",
            )
        decision: Values = {"state": State.FAILED, "cost": Decimal(0), "error_code": NOT_CHARGED}
        if charged:
            decision = {"state": State.LOST, "cost": row["quoted"], "error_code": CHARGED}
            decision["cost_source"] = CostSource.QUOTED
        decision["error_message"] = f"{doubt.what.rstrip('.')}; settled as {verb} by {by}"
        decision["finished_at"] = row["finished_at"] or now
        writing.change(connection, [(row, decision)])
        # It may be settled a second time, where an answer came after the first and is in doubt in its turn.
        settled = {"job_key": doubt.job_key, "attempt": doubt.attempt}
        connection.execute(settlements.delete().filter_by(**settled))
        connection.execute(settlements.insert(), settled | record)


def login() -> str:
    """The user of this process: the login name, or the user's number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
