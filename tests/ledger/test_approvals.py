"""The ledger keeps what a person was asked, and the one answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from callsheet.errors import LedgerError
from callsheet.ledger import approvals
from callsheet.ledger.approvals import Approval, Decision, Place, Question
from callsheet.ledger.ledger import Ledger

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ASKED = Approval(
    id="a" * 32,
    question=Question.QUOTE,
    plan="b" * 64,
    jobs=3,
    quoted=Decimal("0.004501"),
    at_most=Decimal("0.004501"),
    rates=[{"id": "still-1", "pricing": {"rates": [{"unit_price": "0.0015"}]}}],
    asked_at=NOON,
)
ANSWERED = replace(
    ASKED,
    decision=Decision.APPROVED,
    decided_at=NOON + timedelta(hours=1),
    decided_by="Ada",
    place=Place.UI,
    budget_limit=Decimal("0.0030"),
    note="two will do; 'quoted' \u2603",
)


async def test_a_question_is_answered_once_and_belongs_to_its_batch(url: str) -> None:
    ledger, other = await Ledger.open(url, "shots"), await Ledger.open(url, "other")
    await ledger.ask(ASKED)
    assert await ledger.read(approvals.of_batch) == (ASKED,)
    await ledger.answer(ANSWERED)
    with pytest.raises(LedgerError, match="answered already"):
        await ledger.answer(replace(ANSWERED, decision=Decision.REFUSED))
    later = replace(ASKED, id="0" * 32, asked_at=NOON + timedelta(days=1))
    await ledger.ask(later)
    assert await ledger.read(approvals.of_batch) == (ANSWERED, later)
    assert await other.read(approvals.of_batch) == ()
    await ledger.close()
    await other.close()


def test_a_line_says_what_was_asked_and_by_whom_it_was_answered() -> None:
    assert ASKED.line() == "the quote, 3 jobs for 0.004501 USD: asked 2026-05-01 12:00 UTC, not answered"
    assert ANSWERED.line() == (
        "the quote, 3 jobs for 0.004501 USD: approved, up to 0.0030 USD by Ada (ui), 2026-05-01 13:00 UTC: "
        "two will do; 'quoted' \u2603"
    )
    assert ANSWERED.as_json()["quoted"] == "0.004501"
    assert "rates" not in ANSWERED.as_json()
