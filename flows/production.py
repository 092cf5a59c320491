"""`run-production`: batches in their order, each one after a person has looked at what the last has made."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid5

from prefect.client.schemas.objects import StateType

from callsheet.config.form import ConfigFiles, Overrides, load_form
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import ApprovalNeeded, ApprovalRefused, NothingKept
from callsheet.ledger import approvals, marks
from callsheet.ledger.approvals import Question
from callsheet.ledger.ledger import Ledger
from callsheet.plain_text import counted, printable
from callsheet.pricing import approval
from callsheet.pricing.plan import ALL, PLAN
from callsheet.pricing.quote import quote_batch
from callsheet.pricing.references import work_folder
from callsheet.records import State
from callsheet.report.pilot import made_last
from callsheet.steps import batch
from callsheet.watch import Asked
from flows.names import batch_flow, begin, final_state, settings_of
from tasks import suspend
from tasks.artifacts import look_in_markdown, served_sheet
from tasks.service_block import connect
from tasks.steps import STEPS, ask_to_go_on

_UNDER_WAY = (State.SUBMITTING, State.PENDING, State.GENERATED)


def _last(parameters: Mapping[str, Any]) -> BatchSettings:
    """The batch that a production has planned last, by its parameters."""

    def planned(settings: BatchSettings) -> float:
        plan = work_folder(settings, make=False) / PLAN
        return plan.stat().st_mtime if plan.exists() else 0.0

    given = {"overrides": parameters.get("overrides")}
    return max((settings_of(given | {"config": config}) for config in parameters["configs"]), key=planned)


@batch_flow("run-production", killed=_last)
async def run_production(
    configs: ConfigFiles,
    *,
    approved: bool = False,
    overrides: Overrides = (),
) -> Any:
    """Buys several batches in their order, such as stills and then the films that are made of them.

    Between two of them the run waits until a person has looked at the files, and resumes it. Then it goes on
    with what is kept.

    Args:
        configs: The config files in their order, for example `stills.yaml` and `films.yaml`.
        approved: Buy without asking anybody, and without waiting for somebody to look.
        overrides: Any other settings of all of them, each as `storage.sidecar=true`.
    """
    before: Settings | None = None
    for config in configs:
        settings = load_form(config, overrides)
        await begin(settings)
        if before and not approved:
            await _look(before, settings)
        summary = await batch.generate(settings, approved=approved, steps=STEPS)
        await ask_to_go_on(settings, ALL, summary)
        state = final_state(summary)
        if state.type is not StateType.COMPLETED or summary.outcome == "stopped":
            break
        before = settings
    return state


async def _look(made: Settings, settings: Settings) -> None:
    """Waits until a person has looked at a batch, and has seen what the one made of it would cost.

    A run that begins again with the answer goes on; so does one with nothing to buy that has to finish what a
    run before it has left, or where nothing is to look at.

    Raises:
        ApprovalNeeded: the run has no deployment, so nobody can be asked in the UI.
        Pause: (Prefect's) the run waits for a person; it begins again with the answer.
    """
    ui = suspend.UI.of_this_run(settings)
    async with await Ledger.open(made.ledger.url, made.batch, looks=True) as ledger:
        counts = await ledger.read(marks.counts)
    said = (
        f"{made.batch} is bought: {counted(counts.kept, 'file')} kept, {counts.rejected:,} rejected, "
        f"{counts.to_review:,} to review; it goes on with what is kept by then"
    )
    within = settings.budget.approve_within
    if ui and await _has_looked(ui, made):
        return
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        known = await ledger.read(approvals.of_batch)
        if ui and any(one.flow_run == ui.flow_run for one in known):
            return
        quote = None
        async with await connect(settings) as client:
            with suppress(NothingKept):  # of which it could be made
                quote = await quote_batch(settings, client)
        is_under_way = quote is not None and any(quote.totals.states.get(state) for state in _UNDER_WAY)
        if quote and not quote.to_buy and (is_under_way or not counts.to_review):
            return
        if quote:
            question = approval.question_about(quote, Question.QUOTE, ui.flow_run if ui else None)
            await ledger.write(approvals.ask, question)
    if ui and quote:
        asked = Asked(Question.QUOTE, quote, said, await made_last(made), served_sheet(made))
        await ui.ask(asked, question, within)
    elif ui:  # nothing is kept yet, so there is nothing to price
        nothing = f"{said}. Nothing is kept yet, so {settings.batch} has no price: keep what is good first."
        shown = look_in_markdown(nothing, await made_last(made), served_sheet(made))
        await ui.look(shown, _key(ui, made), within)
    raise ApprovalNeeded(
        f"{said}; the next batch is {settings.batch}",
        hint="Keep what is good with callsheet review, then run the next config.",
    )


async def _has_looked(ui: suspend.UI, made: Settings) -> bool:
    """Whether a person has been asked to look at a batch of which nothing was kept, and goes on.

    Raises:
        ApprovalRefused: the person has refused.
    """
    answer = await suspend.answer_of(ui.run, _key(ui, made))
    if answer is None:
        return False
    said = suspend.ApprovalForm.load_from_flow_run_input(answer)
    if said.decision == "refuse":
        note = f": {printable(said.note)}" if said.note else ""
        raise ApprovalRefused(f"{printable(said.name)} has ended the production after {made.batch}{note}")
    return True


def _key(ui: suspend.UI, made: Settings) -> str:
    return uuid5(ui.run.id, made.batch).hex
