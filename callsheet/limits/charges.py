"""What a run's jobs are charged next to their quotes: the run spends what was quoted, and no more.

A service that charges more than it lists stops the buying, before that costs a whole batch. Money is in
dollars. Nothing here reads the ledger or the service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from callsheet.errors import PriceChanged, Stop
from callsheet.plain_text import row_name
from callsheet.records import Attempt, dollars

ROUNDING = Decimal("1.01")  # a charge of at most this many times its quote is a rounding, and not dearer
IN_A_ROW = 3  # dearer charges one after another that stop the buying
APPROVE = (
    "Nothing more is bought until somebody approves that: run it again with --yes, or answer its question."
)

Pairs = Mapping[tuple[str, Decimal], Decimal]
"""What jobs were charged at most, by their model and their quote."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What a job was charged, next to its quote."""

    row_id: str
    sample: int
    model: str
    quoted: Decimal
    cost: Decimal

    def is_dearer(self, accepted: Pairs) -> bool:
        """Whether it is more than the quote, and more than a person has accepted for such a job."""
        known = accepted.get((self.model, self.quoted), self.quoted)
        return self.cost > max(known, self.quoted) * ROUNDING


def in_words(dearer: Sequence[Charge]) -> str:
    """Dearer charges one after another, in a sentence."""
    times = f", {len(dearer)} times one after another" if len(dearer) > 1 else ""
    each = (
        f"row {row_name(one.row_id, one.sample)}: {dollars(one.cost)} USD, quoted {dollars(one.quoted)}"
        for one in dearer
    )
    return f"the service charges more than was quoted{times}: {'; '.join(each)}"


class Charges:
    """The charges of one run. `stop` says why the buying must end; None while it may go on.

    Args:
        most: what the run may spend in all, roundings apart; None where a limit of the budget says that.
        accepted: what was charged before, and a person has approved since.
    """

    def __init__(self, most: Decimal | None, accepted: Pairs) -> None:
        self.stop: Stop | None = None
        self._most = Decimal("Infinity") if most is None else most * ROUNDING
        self._accepted = accepted
        self._spent = Decimal(0)  # with the quotes of what is sent and not answered
        self._open: dict[tuple[str, int], Decimal] = {}  # these quotes
        self._dearer: list[Charge] = []  # one after another

    def sends(self, attempt: Attempt) -> None:
        """A job is about to be sent, unless `stop` says from now on that it does not fit."""
        quoted = attempt.quoted
        if quoted is None:  # somebody allows jobs without a price: there is nothing to hold them to
            return
        if self._spent + quoted > self._most:
            self.stop = self.stop or PriceChanged(
                f"this run has spent {dollars(self._spent)} USD, and the next job for {dollars(quoted)} USD "
                "would be more than what was quoted",
                hint="The same command quotes what is left, and asks where somebody must approve it.",
            )
        else:
            self._spent += quoted
            self._open[attempt.job_key, attempt.number] = quoted

    def is_free(self, attempt: Attempt) -> None:
        """A job that was sent costs nothing: it was refused, or not sent after all."""
        self._spent -= self._open.pop((attempt.job_key, attempt.number), Decimal(0))

    def charged(self, attempt: Attempt, cost: Decimal) -> None:
        """The service has charged a job, of this run or of an earlier one."""
        quoted = self._open.pop((attempt.job_key, attempt.number), None)
        if quoted is not None:
            self._spent += cost - quoted
        if attempt.quoted is None:
            return
        charge = Charge(attempt.row_id, attempt.sample, attempt.model, attempt.quoted, cost)
        self._dearer = [*self._dearer, charge][-IN_A_ROW:] if charge.is_dearer(self._accepted) else []
        if len(self._dearer) == IN_A_ROW:
            self.stop = self.stop or PriceChanged(in_words(self._dearer), hint=APPROVE)
