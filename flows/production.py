"""`run-production`: batches in their order, each one after a person has looked at what the last has made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import StateType

from callsheet.config.form import ConfigFiles, Overrides, load_form
from callsheet.config.settings import BatchSettings, Settings
from callsheet.errors import NothingKept
from callsheet.ledger import words
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.words import Reason
from callsheet.present import reasons
from callsheet.present.status import outdated
from callsheet.pricing.choice import ALL
from callsheet.pricing.from_rows import quote_rows
from callsheet.pricing.plan import PLAN
from callsheet.pricing.sources import read_rows
from callsheet.records import UNDER_WAY
from callsheet.report.pilot import made_last
from callsheet.standing import read_standing
from callsheet.steps import batch
from callsheet.steps.approve import ask_about, take_answer
from callsheet.storage.spool import work_folder
from callsheet.watch import Asked
from flows.names import begin, ends_in_a_state, final_state, run_name, say_what_is_left, settings_of
from tasks.approve import UI, ask_to_go_on
from tasks.artifacts import served_sheet
from tasks.service_block import connect
from tasks.steps import STEPS


def _last(parameters: Mapping[str, Any]) -> BatchSettings:
    """The batch that a production has planned last, by its parameters."""

    def planned(settings: BatchSettings) -> float:
        plan = work_folder(settings, make=False) / PLAN
        return plan.stat().st_mtime if plan.exists() else 0.0

    shared = {"overrides": parameters.get("overrides")}
    return max((settings_of(shared | {"config": config}) for config in parameters["configs"]), key=planned)


@flow(
    name="run-production",
    flow_run_name=run_name,
    retries=0,  # said here, a profile cannot say otherwise: a retry would buy
    retry_delay_seconds=0,
    persist_result=False,
    on_crashed=[say_what_is_left(_last)],
)
@ends_in_a_state
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
    batches = [load_form(config, overrides) for config in configs]
    ui = UI.of_this_run(batches[0])
    asked = await _asked_about(batches, ui.flow_run) if ui else None
    previous: Settings | None = None
    for settings in batches:
        await begin(settings, buys=True)
        if previous and not approved:
            await _wait_for_review(previous, settings)
        previous = settings
        if asked and settings.batch != asked:
            continue  # a run that has asked about a later batch buys nothing of this one before the answer
        asked = None
        summary = await batch.generate(settings, approved=approved, steps=STEPS)
        await ask_to_go_on(settings, ALL, summary)
        state = final_state(summary)
        if state.type is not StateType.COMPLETED or summary.outcome == "stopped":
            break
    return state


async def _asked_about(batches: Sequence[Settings], flow_run: str) -> str | None:
    """The batch about which this flow run has asked, and has no yes; None where there is none."""
    for settings in batches:
        async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
            last = await ledger.read(lambda connection, name: words.last_of(connection, flow_run, name))
        if last and not last.lets_begin:
            return settings.batch
    return None


async def _wait_for_review(previous: Settings, settings: Settings) -> None:
    """Waits until a person has looked at a batch, and has seen what the one made of it would cost.

    A run that begins again with a yes to just that goes on; so does one with nothing to buy that has to
    finish what a run before it has left, or where nothing is to look at.

    Raises:
        ApprovalRefused: the person has said no.
        ApprovalNeeded: the run has no deployment, so nobody can be asked in the UI.
        Pause: (Prefect's) the run waits for a person; it begins again with the answer.
    """
    ui = UI.of_this_run(settings)
    async with await Ledger.open(previous.ledger.url, previous.batch, looks=True) as ledger:
        standing = await ledger.read(read_standing, of_files=["sha256"])
    counts, old_files = standing.review, outdated(standing.outdated)
    asker = ui.flow_run if ui else None
    async with await Ledger.open(settings.ledger.url, settings.batch, flow_run=asker) as ledger:
        if refused := await take_answer(ledger, ledger.buyer(settings.budget), ui):
            raise refused
        quote = None
        async with await connect(settings) as client:
            with suppress(NothingKept):  # of which it could be made
                quote = await quote_rows(await read_rows(settings), settings, client, ledger)
        is_under_way = quote is not None and any(quote.totals.states.get(state) for state in UNDER_WAY)
        if quote and not quote.to_buy and (is_under_way or not counts.to_review):
            return
        unpriced = settings.batch if quote is None else ""
        sentence = reasons.made_of_kept(previous.batch, counts, old_files, unpriced)
        word = await ask_about(ledger, settings, quote, Reason.NEXT, sentence)
    if word.lets_begin:
        return
    if ui:
        asked = Asked(word, quote, await made_last(previous), served_sheet(previous))
        await ui.ask(asked, settings.budget.approve_within)
    raise reasons.not_reviewed(sentence, settings.batch)
