"""What a flow run ends as: a night in trouble is red, and a night that went well is not."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from prefect.client.schemas.objects import StateType

from callsheet.report.details import Details, Removed
from callsheet.report.summary import Summary
from flows.names import final_state


def summary(**values: Any) -> Summary:
    numbers = dict.fromkeys(("failed", "in_doubt", "lost", "pending", "rejected_rows", "rate_limited"), 0)
    money = dict.fromkeys(("quoted", "spent", "in_doubt_exposure"), Decimal(0))
    places = dict.fromkeys(("manifest", "costs", "report"), "out/report")
    known: dict[str, Any] = {
        "outcome": "complete",
        "stop_reason": None,
        "jobs": 9,
        "stored": 9,
        "seconds": 1.0,
        "ledger_id": "",
        "paid_jobs": 9,
        "written_at": datetime.now(UTC),
    }
    return Summary(
        **{"batch": "test", "currency": "USD", "submissions": 9} | numbers | money | places | known | values
    )


@pytest.mark.parametrize(
    "values, name, state_type",
    [
        ({}, "Complete", StateType.COMPLETED),
        ({"outcome": "partial", "failed": 2}, "Partial", StateType.COMPLETED),
        ({"outcome": "stopped", "stop_reason": "budget"}, "StoppedAtBudget", StateType.COMPLETED),
        ({"outcome": "partial", "pending": 1}, "Partial", StateType.COMPLETED),
        (
            {"outcome": "partial", "pending": 1, "details": Details(stop_message="storage refuses")},
            "Stopped",
            StateType.FAILED,
        ),
        ({"outcome": "partial", "in_doubt": 1}, "InDoubt", StateType.FAILED),
        ({"outcome": "partial", "lost": 1}, "Lost", StateType.FAILED),
        ({"outcome": "partial", "lost": 1, "in_doubt": 1}, "InDoubt", StateType.FAILED),
        ({"outcome": "stopped", "stop_reason": "budget", "in_doubt": 1}, "InDoubt", StateType.FAILED),
        ({"details": Details(removed=Removed(jobs=1, in_doubt=1))}, "InDoubt", StateType.FAILED),
        *(
            ({"outcome": "stopped", "stop_reason": reason}, "Stopped", StateType.FAILED)
            for reason in ("key", "balance", "service", "storage", "lanes")
        ),
        ({"outcome": "stopped", "stop_reason": "doubt", "in_doubt": 10}, "InDoubt", StateType.FAILED),
        ({"outcome": "stopped", "stop_reason": "interrupted"}, "BrokenOff", StateType.FAILED),
        ({"outcome": "stopped", "stop_reason": "approval"}, "Cancelled", StateType.CANCELLED),
    ],
)
def test_the_final_state_says_how_the_batch_stands(
    values: dict[str, Any], name: str, state_type: StateType
) -> None:
    state = final_state(summary(**values))
    assert (state.name, state.type) == (name, state_type)
    assert state.message == summary(**values).line()
