"""`resolve-doubts`: what may have been paid for, with the evidence, and a person's decision in the UI.

Nothing is settled without an answer, and an answer counts only for the doubts that were shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import sqlalchemy as sa
from prefect import flow
from prefect.flow_runs import asuspend_flow_run
from prefect.input import RunInput
from prefect.states import Completed
from pydantic import Field, create_model

from callsheet.config.form import ConfigFile, Overrides, ServiceForm, load_form
from callsheet.config.settings import Settings
from callsheet.errors import ConfigError
from callsheet.ledger import queries
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.settling import settle
from callsheet.plain_text import counted, row_name
from callsheet.present.accounts import doubts_dialog, doubts_of_job
from callsheet.present.markdown import markdown
from callsheet.records import Doubt
from callsheet.report.evidence import Evidence, gather
from flows.names import begin, ends_in_a_state, run_name
from tasks import artifacts, suspend
from tasks.pressed import flow_run
from tasks.service_block import connect

_SHOWN = 20  # jobs, each with a field of its own
_DAY = 86_400  # seconds that the run waits for an answer
_LEAVE = "leave in doubt"
Decision = Literal["charged", "not charged", "leave in doubt"]


class ResolveForm(RunInput):
    """The fields that a person fills in the Prefect UI, after one for each job (`_form`)."""

    name: str = Field(title="Your name", description="Kept in the ledger.", min_length=1, max_length=100)
    why: str = Field("", title="Why", description="Kept in the ledger.", max_length=1_000)
    question: str = ""


@flow(
    name="resolve-doubts",
    flow_run_name=run_name,
    retries=0,
    retry_delay_seconds=0,
    persist_result=False,
)
@ends_in_a_state
async def resolve_doubts(
    config: ConfigFile, *, service: ServiceForm = ServiceForm(), overrides: Overrides = ()
) -> Any:
    """Shows what may have been paid for, with the evidence, and asks of each job whether it was.

    Args:
        config: The config file, from the working directory.
        overrides: Settings to change, each as `ledger.url=...`.
    """
    settings = load_form(config, overrides, service=service)
    await begin(settings)
    async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
        became = await _resolved(settings, ledger, config)
    await artifacts.name_run(settings.batch, became)
    return Completed(message=f"{settings.batch}: {became}", data=None)


async def _resolved(settings: Settings, ledger: Ledger, config: str) -> str:
    """Asks, or settles by the answer; what has become of the doubts, in words."""
    doubts = [doubt for doubt in await ledger.read(queries.doubts) if not doubt.is_accepted]
    if not doubts:
        return "nothing is in doubt"
    run, attempts = flow_run(), "\n".join(f"{doubt.job_key} {doubt.attempt}" for doubt in doubts)
    if run is None or run.deployment_id is None:
        raise ConfigError(
            f"{counted(len(doubts), 'job')} in doubt, and nobody can be asked here",
            hint=f"Start a run of the deployment, or type callsheet resolve {config}.",
        )
    jobs: dict[str, list[Doubt]] = {}  # all attempts of a job that are in doubt are settled together
    for doubt in doubts:
        jobs.setdefault(doubt.job_key, []).append(doubt)
    await artifacts.name_run(settings.batch, f"{len(jobs):,} in doubt, to settle")
    key = hashlib.sha256(attempts.encode()).hexdigest()[:32]
    answer = await suspend.answer_of(run, key)
    if answer is None:
        evidence = await gather(ledger, doubts, lambda: connect(settings))
        question = markdown(doubts_dialog(settings.batch, len(jobs), evidence))
        topic = f"{counted(len(jobs), 'job')} in doubt"
        form = suspend.form_about(_form(jobs, evidence), topic, key, question)
        await asuspend_flow_run(wait_for_input=form, key=key, timeout=_DAY)
        raise AssertionError("a suspended run has ended")
    filled: Any = _form(jobs).load_from_flow_run_input(answer)
    decided: dict[str, list[Doubt]] = {}
    for number, job_doubts in enumerate(jobs.values()):
        decided.setdefault(getattr(filled, _field(number)), []).extend(job_doubts)

    def settled(connection: sa.Connection, batch: str) -> None:
        for decision, group in decided.items():
            if decision != _LEAVE:
                charged = decision == "charged"
                settle(connection, batch, group, charged=charged, by=filled.name, why=filled.why or None)

    await ledger.write(settled)
    counts = {decision: len({doubt.job_key for doubt in group}) for decision, group in decided.items()}
    left = counts.pop(_LEAVE, 0)
    became = [f"{count:,} settled as {decision}" for decision, count in sorted(counts.items())]
    return ", ".join([*became, *([f"{left:,} left in doubt"] if left else [])]) + f", by {filled.name}"


def _field(number: int) -> str:
    """The name of a job's field; those after the shown ones have one together."""
    return f"job_{number + 1}" if number < _SHOWN else "others"


def _form(jobs: Mapping[str, Sequence[Doubt]], evidence: Evidence | None = None) -> type[ResolveForm]:
    """The dialog: a decision for each job, on what the evidence proposes where it proposes something.

    A field that no answer has leaves its job in doubt.
    """
    proposed = evidence.charged if evidence else None
    charged = {doubt.job_key for doubt in proposed or ()}
    fields: dict[str, Any] = {}
    for number, (job, job_doubts) in enumerate(jobs.items()):
        as_proposed = _LEAVE if proposed is None else "charged" if job in charged else "not charged"
        first, description = job_doubts[0], doubts_of_job(job_doubts)
        title = f"Row {row_name(first.row_id, first.sample)}"
        if number >= _SHOWN:  # one answer for all of these: nothing is proposed
            as_proposed, title = _LEAVE, "All others"
            description = "callsheet resolve settles them one by one."
        fields[_field(number)] = (Decision, Field(as_proposed, title=title, description=description))
    return create_model("ResolveForm", __base__=ResolveForm, **fields)
