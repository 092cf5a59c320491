"""Suspend: a run of a deployment waits in the Prefect UI until a person has approved or refused.

Either the run asks by itself, or a person has pressed Suspend, and Resume asks. The run's process ends
meanwhile, so that neither the worker nor the deployment's concurrency limit waits with it. With the answer,
Prefect starts the flow from its beginning. What was asked is in the ledger under the key of the suspension,
so that a run that begins again finds the answer to what it has asked.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from prefect import State, get_client
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, FlowRunInput, StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import Pause
from prefect.flow_runs import asuspend_flow_run
from prefect.input import RunInput
from prefect.input.run_input import keyset_from_base_key
from prefect.states import Suspended
from pydantic import Field, StringConstraints, WithJsonSchema, create_model

from callsheet.config.setting_types import text_like
from callsheet.config.settings import Settings
from callsheet.ledger.words import Decision, Place, Word
from callsheet.plain_text import time_in_words
from callsheet.present.asked import bought_so_far, dialog, topic
from callsheet.present.markdown import markdown
from callsheet.watch import WATCHER, Asked
from tasks import events
from tasks.artifacts import served_sheet, show_pilot
from tasks.pressed import SERVER_FAILS, flow_run

Form = TypeVar("Form", bound=RunInput)
AUTOMATION = "callsheet: cancel a run that nobody approves"
_AMOUNT = r"^([0-9]{1,12}(\.[0-9]{1,6})?)?$"
_LIMIT = text_like(_AMOUNT, "an amount in USD, for example 25.00, or nothing")
_GRACE = 60  # seconds after which Prefect itself ends a run that the automation has not cancelled


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


def form_about(form: type[Form], topic: str, key: str, description: str) -> type[Form]:
    """The form of the suspension with this key, and of no other: its field `question` has one value, which is
    filled in.

    Prefect's server holds an answer against the form of the suspension that is open. So the answer of a tab
    that still shows an older question is refused, and the run stays suspended.

    Args:
        form: the fields that a person fills, and `question`.
        topic: the question in a few words, such as its jobs and their price.
        key: of the suspension.
        description: a text in markdown above the fields.
    """
    name = f"{topic}, {_number(key)}"
    field = Field(title="The question", json_schema_extra={"const": name, "default": name})
    question_form = create_model(form.__name__, __base__=form, question=(str, field))
    return question_form.with_initial_data(description=description)


def _form_of(asked: Asked) -> type[ApprovalForm]:
    """The form of a question about a batch, below what it is about."""
    page = markdown(dialog(asked.word, asked.quote, asked.pilot, asked.contact_sheet))
    return form_about(ApprovalForm, topic(asked.word), asked.word.id, page)


def _number(key: str) -> str:
    return f"question {key[:6]}"


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
        response = await answer_of(self.run, question.id)
        if response is None:
            return None
        async with get_client() as client:
            await _remove_automations(client, self.run)
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
            await _cancel_after(
                within, self.run, f"Nobody has approved it within {time_in_words(within)}; {so_far}."
            )
            await asuspend_flow_run(
                wait_for_input=_form_of(asked), key=word.id, timeout=round(within) + _GRACE
            )

    def approved(self, word: Word) -> None:
        """Sends the event of it."""
        events.approved(self.settings.batch, word)


async def answer_of(run: FlowRun, key: str) -> FlowRunInput | None:
    """What a person has filled in at the suspension with this key; None where nobody has, and where the
    answer is to another question.
    """
    async with get_client() as client:
        answers = await client.filter_flow_run_input(run.id, f"suspended-{key}-response", 1, set())
    if answers and not answers[0].decoded_value.get("question", "").endswith(_number(key)):
        WATCHER.get().note("an answer that is not to this run's question is not taken; the run asks again")
        return None
    return answers[0] if answers else None


async def stay(message: str, asked: Asked | None = None) -> NoReturn:
    """Ends this process of a run that a person has suspended; the run stays so, with this message.

    Resume asks what is `asked`; without it the run goes on unasked.
    """
    run = flow_run()
    assert run is not None  # noqa: S101 - only a flow run is suspended
    details: dict[str, Any] = {}
    if asked:
        word = asked.word
        keys = keyset_from_base_key(f"suspended-{word.id}")  # as Prefect calls those of a suspension
        await _form_of(asked).asave(keys, run.id)
        details = {"pause_key": word.id, "run_input_keyset": keys}
    async with get_client() as client:
        now = (await client.read_flow_run(run.id)).state
        if now is None or not now.is_paused():  # resumed or cancelled in this moment
            raise Pause(state=now)
        until = now.state_details.pause_timeout  # the person has said how long it can be resumed
        state: State[Any] = Suspended(message=message, pause_expiration_time=until)
        state.state_details = state.state_details.model_copy(update=details)
        await client.set_flow_run_state(run.id, state, force=True)  # from Suspended to Suspended
    raise Pause(state=state)


async def _cancel_after(seconds: float, run: FlowRun, message: str) -> None:
    """Has the server cancel a run when it was suspended for so long, and nothing has happened since.

    Where the server takes no automations, Prefect ends the run as Failed a minute later.
    """
    waited = EventTrigger(
        match={"prefect.resource.id": _resource(run)},
        after={"prefect.flow-run.Suspended"},
        expect={"prefect.flow-run.*"},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=seconds),
    )
    cancel = ChangeFlowRunState(state=StateType.CANCELLED, name="Expired", message=message)
    automation = AutomationCore(name=AUTOMATION, trigger=waited, actions=[cancel])
    with suppress(*SERVER_FAILS):
        async with get_client() as client:
            await _remove_automations(client, run)
            await client.create_automation(automation)


async def _remove_automations(client: PrefectClient, run: FlowRun) -> None:
    """Removes a run's automation, and those of runs whose time is over."""
    now = datetime.now(UTC)
    with suppress(*SERVER_FAILS):
        for automation in await client.read_automations_by_name(AUTOMATION):
            trigger: Any = automation.trigger
            is_ours = trigger.match.root.get("prefect.resource.id") == _resource(run)
            created: Any = getattr(automation, "created", None)
            if is_ours or (created and created + trigger.within + timedelta(seconds=_GRACE) < now):
                await client.delete_automation(automation.id)


def _resource(run: FlowRun) -> str:
    return f"prefect.flow-run.{run.id}"
