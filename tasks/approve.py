"""`approve`: a question about a batch in the Prefect UI, with its quote, and the answer of a person.

It is no task: to ask is to suspend the flow run (`suspend.py`), and its process ends meanwhile. What was
asked is in the ledger under the key of the suspension, so a run that begins again finds the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal

from prefect import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.flow_runs import asuspend_flow_run
from prefect.input import RunInput
from pydantic import Field, StringConstraints, WithJsonSchema

from callsheet.config.setting_types import text_like
from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.words import Decision, Place, Reason, Word
from callsheet.plain_text import time_in_words
from callsheet.present import results
from callsheet.present.asked import bought_so_far, dialog, topic
from callsheet.present.markdown import markdown
from callsheet.pricing.choice import Choice
from callsheet.pricing.plan import last_plan
from callsheet.pricing.quote import quote_plan
from callsheet.report.summary import Summary
from callsheet.steps.approve import ask_about
from callsheet.watch import Asked
from tasks import events, suspend
from tasks.artifacts import served_sheet, show_pilot
from tasks.pressed import Pressed, flow_run, pressed
from tasks.service_block import connect

_AMOUNT = r"^([0-9]{1,12}(\.[0-9]{1,6})?)?$"
_LIMIT = text_like(_AMOUNT, "an amount in USD, for example 25.00, or nothing")


class ApprovalForm(RunInput):
    """The fields that a person fills in the Prefect UI, which shows them as a form; every value is text."""

    decision: Literal["approve", "refuse"] = Field(
        title="Decision",
        description="Approve: buy what is quoted. Refuse: buy nothing; the run is cancelled.",
    )
    name: str = Field(title="Your name", description="Kept in the ledger.", min_length=1, max_length=100)
    limit: Annotated[str, StringConstraints(pattern=_AMOUNT), WithJsonSchema(_LIMIT)] = Field(
        "",
        title="Another limit, in US dollars",
        description="In place of budget.limit for this run, such as 25.00.",
    )
    note: str = Field("", title="Note", description="Kept in the ledger.", max_length=1_000)
    question: str = ""  # `form_about` says which one


@dataclass(frozen=True)
class UI:
    """How a flow run is approved in the UI (`steps.approve.InTheUI`)."""

    settings: Settings
    run: FlowRun

    @classmethod
    def of_this_run(cls, settings: Settings) -> UI | None:
        """That of the flow run; None where there is none."""
        run = flow_run()
        return UI(settings, run) if run else None

    @property
    def flow_run(self) -> str:
        """The flow run's id."""
        return str(self.run.id)

    async def answer_to(self, question: Word) -> Word | None:
        """The question with the answer that a person has given; None where nobody has."""
        response = await suspend.answer_of(self.run, question.id)
        if response is None:
            return None
        async with get_client() as client:
            await suspend.remove_automations(client, self.run)
        answer = ApprovalForm.load_from_flow_run_input(response)
        answered = replace(
            question,
            decision=Decision.APPROVED if answer.decision == "approve" else Decision.REFUSED,
            decided_at=response.created or datetime.now(UTC),
            decided_by=answer.name,
            place=Place.UI,
            budget_limit=Decimal(answer.limit) if answer.limit else None,
            note=answer.note or None,
        )
        if answered.decision is Decision.REFUSED:
            events.refused(self.settings.batch, answered)
        return answered

    async def ask(self, asked: Asked, within: float) -> None:
        """Suspends the run until a person has answered, and ends this process.

        A run without a deployment cannot begin again, so nobody is asked. After `within` seconds the server
        cancels the run.
        """
        if self.run.deployment_id:
            word, quote = asked.word, asked.quote
            if word.shown.is_rest and quote:
                asked = replace(asked, contact_sheet=served_sheet(self.settings) or asked.contact_sheet)
                await show_pilot(asked, quote)
            events.asked(self.settings.batch, word, within)
            so_far = bought_so_far(quote) if quote else "nothing more was bought"
            await suspend.cancel_after(
                within, self.run, f"Nobody has approved it within {time_in_words(within)}; {so_far}."
            )
            await asuspend_flow_run(
                wait_for_input=_form_about(asked), key=word.id, timeout=round(within) + suspend.GRACE
            )

    def approved(self, word: Word) -> None:
        """Sends the event of it."""
        events.approved(self.settings.batch, word)


async def ask_to_go_on(settings: Settings, choice: Choice, summary: Summary) -> None:
    """Where a person has suspended this run of a deployment, asks in the UI whether to buy what is left.

    It is the question about the quote, which Resume shows; whoever answers may set another limit.

    Raises:
        Pause: (Prefect's) the run waits for a person; it begins again with the answer.
    """
    if await pressed() is not Pressed.SUSPEND or (plan := last_plan(settings)) is None:
        return
    ui = UI.of_this_run(settings)
    asker = ui.flow_run if ui else None
    async with await Ledger.open(settings.ledger.url, settings.batch, flow_run=asker) as ledger:
        try:
            async with await connect(settings) as client:
                left = await quote_plan(plan, settings, client, ledger, choice)
        except CallsheetError:  # then Resume asks nothing
            return
        if not left.to_buy:
            return
        word = await ask_about(ledger, settings, left, Reason.SUSPENDED)
    await suspend.stay(results.line(summary), word.id, _form_about(Asked(word, left)))


def _form_about(asked: Asked) -> type[ApprovalForm]:
    """The form of a question about a batch, below what it is about."""
    page = markdown(dialog(asked.word, asked.quote, asked.pilot, asked.contact_sheet))
    return suspend.form_about(ApprovalForm, topic(asked.word), asked.word.id, page)
