"""Answer: the fields that a person fills in the Prefect UI. Importing it imports Prefect."""

from __future__ import annotations

from typing import Literal

from prefect.input import RunInput
from pydantic import Field


class Answer(RunInput):
    """What the UI shows as a form; every value is text."""

    decision: Literal["approve", "refuse"] = Field(
        title="Decision",
        description="Approve: buy what is quoted. Refuse: buy nothing; the run is cancelled.",
    )
    name: str = Field(title="Your name", description="Kept in the ledger.", min_length=1, max_length=100)
    limit: str = Field(
        "",
        title="Another limit, in US dollars",
        description="Takes the place of budget.limit for this run, such as 25.00. Empty: no change.",
        pattern=r"^(\d{1,12}(\.\d{1,6})?)?$",
    )
    note: str = Field("", title="Note", description="Kept in the ledger.", max_length=1_000)
