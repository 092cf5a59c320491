"""Suspend: a run of a deployment waits in the Prefect UI until a person has approved or refused.

Either the run asks by itself, or a person has pressed Suspend, and Resume asks. The run's process ends
meanwhile, so that neither the worker nor the deployment's concurrency limit waits with it. With the answer,
Prefect starts the flow from its beginning. The questions about a batch are in `approve.py`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

from prefect import State, get_client
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, FlowRunInput, StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import Pause
from prefect.input import RunInput
from prefect.states import Suspended
from pydantic import Field, create_model

from callsheet.watch import WATCHER
from tasks.pressed import SERVER_FAILS, flow_run
from tasks.private_parts import keys_of_suspension

Form = TypeVar("Form", bound=RunInput)
AUTOMATION = "callsheet: cancel a run that nobody approves"
GRACE = 60  # seconds after which Prefect itself ends a run that the automation has not cancelled


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


def _number(key: str) -> str:
    return f"question {key[:6]}"


async def answer_of(run: FlowRun, key: str) -> FlowRunInput | None:
    """What a person has filled in at the suspension with this key; None where nobody has, and where the
    answer is to another question.
    """
    async with get_client() as client:
        answers = await client.filter_flow_run_input(run.id, keys_of_suspension(key)["response"], 1, set())
    if answers and not answers[0].decoded_value.get("question", "").endswith(_number(key)):
        WATCHER.get().note("an answer that is not to this run's question is not taken; the run asks again")
        return None
    return answers[0] if answers else None


async def stay(message: str, key: str = "", form: type[RunInput] | None = None) -> NoReturn:
    """Ends this process of a run that a person has suspended; the run stays so, with this message.

    Resume shows the `form`, under this key; without one the run goes on unasked.
    """
    run = flow_run()
    assert run is not None  # noqa: S101 - only a flow run is suspended
    details: dict[str, Any] = {}
    if form:
        keys = keys_of_suspension(key)
        await form.asave(keys, run.id)
        details = {"pause_key": key, "run_input_keyset": keys}
    async with get_client() as client:
        now = (await client.read_flow_run(run.id)).state
        if now is None or not now.is_paused():  # resumed or cancelled in this moment
            raise Pause(state=now)
        until = now.state_details.pause_timeout  # the person has said how long it can be resumed
        state: State[Any] = Suspended(message=message, pause_expiration_time=until)
        state.state_details = state.state_details.model_copy(update=details)
        await client.set_flow_run_state(run.id, state, force=True)  # from Suspended to Suspended
    raise Pause(state=state)


async def cancel_after(seconds: float, run: FlowRun, message: str) -> None:
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
            await remove_automations(client, run)
            await client.create_automation(automation)


async def remove_automations(client: PrefectClient, run: FlowRun) -> None:
    """Removes a run's automation, and those of runs whose time is over."""
    now = datetime.now(UTC)
    with suppress(*SERVER_FAILS):
        for automation in await client.read_automations_by_name(AUTOMATION):
            trigger: Any = automation.trigger
            is_ours = trigger.match.root.get("prefect.resource.id") == _resource(run)
            created: Any = getattr(automation, "created", None)
            if is_ours or (created and created + trigger.within + timedelta(seconds=GRACE) < now):
                await client.delete_automation(automation.id)


def _resource(run: FlowRun) -> str:
    return f"prefect.flow-run.{run.id}"
