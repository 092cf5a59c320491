"""`resolve-doubts`: what may have been paid for, with the evidence, and a person's decision in the UI.

Nothing is settled without an answer, and an answer counts only for the doubts that were shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

from prefect.flow_runs import asuspend_flow_run
from prefect.input import RunInput
from prefect.states import Completed
from pydantic import Field

from callsheet.config.form import ConfigFile, Overrides, ServiceForm, load_form
from callsheet.config.settings import Settings
from callsheet.errors import ConfigError
from callsheet.ledger import queries
from callsheet.ledger.doubts import settle
from callsheet.ledger.ledger import Ledger
from callsheet.plain_text import counted, row_name
from callsheet.records import Doubt, dollars
from callsheet.report import balance_evidence
from flows.names import batch_flow, begin
from tasks import artifacts, suspend
from tasks.pressed import flow_run
from tasks.service_block import connect

_SHOWN = 50  # doubts
_DAY = 86_400  # seconds that the run waits for an answer


class ResolveForm(RunInput):
    """The fields that a person fills in the Prefect UI."""

    decision: Literal["charged", "not charged", "leave"] = Field(
        title="Decision",
        description="Charged: they were paid for, and are lost. Not charged: the next run buys them again. "
        "Leave: they stay in doubt.",
    )
    name: str = Field(title="Your name", description="Kept in the ledger.", min_length=1, max_length=100)
    why: str = Field("", title="Why", description="Kept in the ledger.", max_length=1_000)


@batch_flow("resolve-doubts")
async def resolve_doubts(
    config: ConfigFile, *, service: ServiceForm = ServiceForm(), overrides: Overrides = ()
) -> Any:
    """Shows what may have been paid for, with the evidence, and asks whether it was.

    Args:
        config: The config file, from the working directory.
        overrides: Settings to change, each as `ledger.url=...`.
    """
    settings = load_form(config, overrides, service=service)
    await begin(settings)
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        became = await _resolved(settings, ledger, config)
    await artifacts.name_run(settings.batch, became)
    return Completed(message=f"{settings.batch}: {became}", data=None)


async def _resolved(settings: Settings, ledger: Ledger, config: str) -> str:
    """Asks, or settles by the answer; what has become of the doubts, in words."""
    doubts = [one for one in await ledger.read(queries.doubts) if not one.is_accepted]
    if not doubts:
        return "nothing is in doubt"
    run, shown = flow_run(), "\n".join(f"{one.job_key} {one.attempt}" for one in doubts)
    if run is None or run.deployment_id is None:
        raise ConfigError(
            f"{counted(len(doubts), 'job')} in doubt, and nobody can be asked here",
            hint=f"Start a run of the deployment, or type callsheet resolve {config}.",
        )
    await artifacts.name_run(settings.batch, f"{len(doubts):,} in doubt, to settle")
    key = hashlib.sha256(shown.encode()).hexdigest()[:32]
    answer = await suspend.answer_of(run, key)
    if answer is None:
        form = ResolveForm.with_initial_data(description=await _in_markdown(settings, ledger, doubts))
        await asuspend_flow_run(wait_for_input=form, key=key, timeout=_DAY)
        raise AssertionError("a suspended run has ended")
    said = ResolveForm.load_from_flow_run_input(answer)
    what = counted(len(doubts), "job")
    if said.decision == "leave":
        return f"{what} left in doubt by {said.name}"
    charged = said.decision == "charged"
    await ledger.write(settle, doubts, charged=charged, by=said.name, why=said.why or None)
    return f"{what} settled as {said.decision} by {said.name}"


async def _in_markdown(settings: Settings, ledger: Ledger, doubts: Sequence[Doubt]) -> str:
    evidence = await balance_evidence.evidence(ledger, doubts, lambda: connect(settings))
    rows = [
        (
            *(artifacts.text(row_name(one.row_id, one.sample)), artifacts.text(one.model)),
            f"{one.submitted_at:%Y-%m-%d %H:%M:%S}",
            "unpriced" if one.price is None else dollars(one.price),
        )
        for one in doubts[:_SHOWN]
    ]
    more = len(doubts) - len(rows)
    return artifacts.page(
        f"**{counted(len(doubts), 'job')} of {artifacts.text(settings.batch)} may have been paid for.** "
        "No answer says whether the service has accepted what was sent.",
        "\n".join(f"- **{name}**: {artifacts.text(fact)}" for name, fact in evidence.facts()),
        artifacts.table(["row", "model", "sent (UTC)", "USD"], rows),
        f"and {more:,} more: callsheet resolve lists all" if more > 0 else "",
        "Other buyers in this workspace, and late costs, make these figures less certain.",
    )
