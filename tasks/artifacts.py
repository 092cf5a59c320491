"""What people see of a run in the Prefect UI: the quote, the progress, the costs and the reconciliation.

No run depends on it: when the server does not answer, a note says so and the run goes on.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import anyio
from PIL import Image
from prefect import get_client, runtime
from prefect.artifacts import (
    acreate_markdown_artifact,
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.objects import FlowRun

from callsheet.config.settings import BatchSettings, Settings
from callsheet.plain_text import counted, printable
from callsheet.pricing.facts import (
    as_facts,
    as_table,
    costliest,
    first_rows,
    in_few_columns,
    rejects_in_words,
)
from callsheet.pricing.plan import ToBuyAgain
from callsheet.pricing.quote import Quote
from callsheet.records import State, dollars
from callsheet.report.pilot import PilotJob
from callsheet.report.reconcile import Reconciliation
from callsheet.report.summary import Summary
from callsheet.reviewing.sheets import link_to
from callsheet.session import Run
from callsheet.watch import WATCHER, Asked, Progress
from tasks.events import leaves
from tasks.pressed import SERVER_FAILS, flow_run

T = TypeVar("T")
PATIENCE = 5.0  # seconds for the server to answer
EVERY = 3.0  # seconds between two updates of the progress bar, which cost the server 7 ms each
_ROWS = 1_000  # of a table, the last ones; more help nobody
_OLD = (State.IN_DOUBT, State.LOST)  # a person settles it, or nobody can: an earlier run may have left it
_PROBLEMS = (*_OLD, State.FAILED, State.PENDING)
_APPROVALS = 20  # the last ones
_REJECTS = 20  # reasons
_IN_A_DIALOG, _ON_A_PAGE = 88, 168  # pixels
_ASKED_ROWS = 50  # of the quote above the fields in which to approve


async def name_run(batch: str, topic: str = "", *, tagged: bool = True) -> None:
    """Tags the run with its batch, and names it after that and what it is about.

    Where no config could be read, `batch` is only the name of its file: then the run is not `tagged`.
    """
    if run := flow_run():
        name = f"{batch}: {topic}" if topic else None
        tags = {*run.tags, f"batch:{batch}"} if tagged else None
        async with get_client() as client:
            await _answered(client.update_flow_run(run.id, name=name, tags=tags))


async def show_quote(quote: Quote) -> None:
    """The quote as a table, with the facts beside it as its description; and as the run's name."""
    batch = quote.plan.batch
    await name_run(batch, f"{counted(quote.to_buy, 'job')}, {dollars(quote.quoted)} USD")
    first = f"**{dollars(quote.quoted)} USD** for {counted(quote.to_buy, 'job')}\n\n"  # what a card shows
    facts = first + _facts(quote, rejects_in_words(quote.plan.rejects))
    table = acreate_table_artifact(as_table(quote), key=_key("quote", batch), description=facts)
    await _answered(table)


def question_in_markdown(asked: Asked) -> str:
    """What a person sees above the fields in which to approve: the reason, the quote, and the facts; where
    nothing is priced yet, the pictures.
    """
    quote = asked.quote
    if quote is None:
        return page(
            f"**{text(asked.word.why)}**", _sheet(asked.contact_sheet), _pictures(asked.pilot, _IN_A_DIALOG)
        )
    lines = [line for line in in_few_columns(quote, "to buy", "each", "USD") if line["to buy"] != "0"]
    rows = lines[:_ASKED_ROWS]
    left_out = len(lines) - len(rows)
    prefix = "the other " if quote.is_rest else ""
    rejects = rejects_in_words(quote.plan.rejects)  # the first comes first; the others are among the facts
    price = asked.word.shown.price()
    return page(
        f"**Buy {prefix}{counted(quote.to_buy, 'job')} of {text(quote.plan.batch)} for {price}?** "
        f"You are asked because {text(asked.word.why)}.",
        *(f"{counted(quote.plan.rejected_rows, 'row')} rejected: {text(reason)}." for reason in rejects[:1]),
        _marked(asked.pilot),
        _pictures(asked.pilot, _IN_A_DIALOG),
        _sheet(asked.contact_sheet),
        table(rows),
        f"and {counted(left_out, 'line')} more, in the artifact" if left_out > 0 else "",
        _facts(quote, rejects[1:]),
    )


def _marked(pilot: Sequence[PilotJob]) -> str:
    """What was decided about a pilot, in a line; empty where nothing is."""
    counts = Counter(job.decision for job in pilot if job.thumbnail or job.place)
    left = counts.pop("", 0)
    if not counts:
        return ""
    return "Of the pilot: " + ", ".join(
        [*(f"{count} {decision}" for decision, count in sorted(counts.items())), f"{left} not looked at"]
    )


def _pictures(pilot: Sequence[PilotJob], edge: int) -> str:
    """Each picture of a pilot with its words beside it (a dialog wraps no cell), and below what has none.

    `edge`: pixels of a picture's longer side.
    """
    rows: list[list[str]] = []
    without_picture: list[str] = []
    for job in pilot:
        if not job.thumbnail:
            without_picture.append(
                f"- {_in_words(job)}: {_place(job.place) if job.place else text(job.reason)}"
            )
            continue
        content = BytesIO()
        with Image.open(BytesIO(job.thumbnail)) as image:
            image.thumbnail((edge, edge))
            image.save(content, "JPEG")
        data = base64.b64encode(content.getvalue()).decode()
        rows.append([f"![{text(job.row)}](data:image/jpeg;base64,{data})", _in_words(job)])
    return "\n\n".join(filter(None, [_cells([["", ""], *rows]) if rows else "", "\n".join(without_picture)]))


def _in_words(job: PilotJob) -> str:
    state = job.state.replace("_", " ") + (f", **{job.decision}**" if job.decision else "")
    return f"{text(job.row)}, {text(job.model)}, {state}"


async def show_pilot(asked: Asked, quote: Quote) -> None:
    """The pilot, where the question is about the rest: all its pictures, as a page of its own."""
    batch = quote.plan.batch
    content = page(
        f"# {text(batch)}: the pilot",
        _sheet(asked.contact_sheet),
        _marked(asked.pilot),
        _pictures(asked.pilot, _ON_A_PAGE),
    )
    bought = int(quote.pilot_jobs.sum()) if quote.pilot_jobs is not None else len(asked.pilot)
    await _show_page("pilot", batch, content, counted(bought, "job"))


def _facts(quote: Quote, rejects: Sequence[str]) -> str:
    """What is wrong and what would be sent come first: of a long text the dialog shows the beginning."""
    facts = [f"- **Rejected**: {text(reject)}" for reject in rejects[:_REJECTS]]
    first = table(first_rows(quote.table))
    return "\n".join([*facts, "", first, "", list_of(as_facts(quote)), "", table(costliest(quote))])


@asynccontextmanager
async def progress_of(run: Run) -> AsyncIterator[None]:
    """Within it, a progress bar follows the run; at the end it stands where the run does."""
    key = _key("progress", run.settings.batch)
    begun = acreate_progress_artifact(progress=0.0, key=key, description=run.progress.line())
    artifact = await _answered(begun)

    async def follow() -> None:
        answers = True
        while artifact:  # it goes on when a server that was away is back
            answers = await _update(artifact, run.progress, notes=answers)
            await asyncio.sleep(EVERY)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()
    if artifact:
        await _update(artifact, run.progress)


async def _update(artifact: UUID, progress: Progress, *, notes: bool = True) -> bool:
    """Moves the progress bar; False where the server does not answer."""
    percent = 100.0 * min(1.0, progress.done / progress.jobs) if progress.jobs else 100.0
    update = aupdate_progress_artifact(artifact, progress=percent, description=progress.line())
    return await _answered(update, notes=notes) is not None


async def show_costs(summary: Summary, settings: Settings, again: ToBuyAgain) -> None:
    """The cost summary as a page of its own; `again`: what is to be bought again."""
    deployments = _deployments(await _deployment_name(), runtime.flow_run.flow_name)
    content = _costs(summary, _config(settings), served_sheet(settings), again, deployments)
    await _show_page("costs", summary.batch, content, f"{dollars(summary.spent)} {summary.currency} spent")


async def _deployment_name() -> str | None:
    """That of the run; None without one. Prefect's `runtime` would end the run where no server answers."""
    run = flow_run()
    if run is None or run.deployment_id is None:
        return None
    async with get_client() as client:
        deployment = await _answered(client.read_deployment(run.deployment_id))
    return deployment.name if deployment else None


async def show_killed(client: PrefectClient, run: FlowRun, summary: Summary, settings: BatchSettings) -> None:
    """The cost summary and the name of a run whose process is gone; another one, the worker's, says so."""
    config, batch = str(run.parameters.get("config") or settings.file or "CONFIG"), summary.batch
    name = (await client.read_deployment(run.deployment_id)).name if run.deployment_id else None
    flow_name = (await client.read_flow(run.flow_id)).name
    deployments = _deployments(name, flow_name)
    content = _costs(summary, config, link_to(settings, config), ToBuyAgain(), deployments)
    page = ArtifactCreate(type="markdown", key=_key("costs", batch), data=content, flow_run_id=run.id)
    page.description = f"{dollars(summary.spent)} {summary.currency} spent: costs of {batch}"
    await client.create_artifact(page)
    stored = f"killed, {summary.stored:,} of {summary.jobs:,} stored"
    await client.update_flow_run(run.id, name=f"{batch}: {stored}, {dollars(summary.spent)} USD")


def served_sheet(settings: Settings) -> str | None:
    """The link to the batch's contact sheet in `callsheet up`; None where that does not serve it."""
    return link_to(settings, _config(settings))


def _deployments(name: str | None, flow_name: str | None) -> dict[str, str]:
    """Whose runs do what commands do, by the command; none for a run without a deployment.

    That has a name, and buys unless the run's flow is the collector's.
    """
    if not name:
        return {}
    deployments = {"resolve": "resolve", "collect": "collector"}
    return deployments if flow_name == "collect-media" else deployments | {"run": name}


def _config(settings: Settings) -> str:
    """The batch's config, as a person may type it: the run's parameter, or of a production the file."""
    parameter, file = runtime.flow_run.get_parameters().get("config"), settings.file
    if parameter or file is None:
        return str(parameter or "CONFIG")
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


async def show_books(result: Reconciliation, config: str) -> None:
    """A reconciliation as a table, with the facts and the doubts beside it as its description."""
    lines = [*result.doubt_lines(), *result.accepted_lines(), *map(printable, result.resolving(config))]
    doubts = "\n".join(["```", *lines, "```"]) if lines else ""
    unexplained = result.total("unexplained")
    first = f"**{dollars(result.total('difference'))} USD** between the accounts"  # what a card shows
    first += f", {dollars(unexplained)} unexplained" if unexplained else ""
    description = "\n".join([first, "", result.line(), "", list_of(result.facts()), "", doubts])
    table, key = result.table()[-_ROWS:], _key("reconcile", result.batch)
    await _answered(acreate_table_artifact(table, key=key, description=description))


async def _show_page(kind: str, batch: str, content: str, first: str) -> None:
    description = f"{first}: {kind} of {batch}"  # a card begins with the sum or the count
    await _answered(acreate_markdown_artifact(content, key=_key(kind, batch), description=description))


def _key(kind: str, batch: str) -> str:
    """An artifact's key: one for each batch, so that the page of artifacts keeps the history of each."""
    return re.sub("[^a-z0-9]+", "-", f"{kind}-{batch.lower()}").strip("-")


async def _answered(request: Awaitable[T], *, notes: bool = True) -> T | None:
    """Waits for the server; None, and (where it `notes`) a note, when it cannot be reached."""
    try:
        with anyio.fail_after(PATIENCE):
            return await request
    except (*SERVER_FAILS, TimeoutError):
        if notes:
            WATCHER.get().note("the Prefect server does not answer; the run goes on without it")
        return None


def _costs(
    summary: Summary,
    config: str,
    sheet: str | None,
    again: ToBuyAgain,
    deployments: Mapping[str, str],
) -> str:
    """What is wrong and what to do about it, then the figures; where the files are comes last."""
    details = summary.details
    differ = len({cost for *_, cost in details.dearest}) > 1
    dearest = [{"row": row, "model": model, "USD": dollars(cost)} for row, model, cost in details.dearest]
    places = [("Contact sheet", details.contact_sheet), ("Manifest", summary.manifest)]
    places += [("Costs", summary.costs), ("Report", summary.report)]
    steps = [_sheet(sheet)] if sheet else []
    if again.jobs:  # what was rejected is bought again, priced and approved as anything else
        command = text(f"callsheet run {config} --again")
        steps.append(f"To buy again {again.line()}: a run of the deployment `buy-again`, or {command}.")
    rejected = f"{counted(summary.rejected_rows, 'row')} rejected" if summary.rejected_rows else ""
    return page(
        f"# {text(summary.batch)}: {summary.outcome}",
        list_of(summary.stopped()),
        *_problems(summary, [state for state in _PROBLEMS if state not in _OLD or leaves(state)]),
        _list(rejected, map(text, details.rejected[:_REJECTS])) if rejected else "",
        f"All are in {_place(details.rejects)}." if rejected and details.rejects else "",
        _list("What to do next", [*steps, *map(text, summary.next_steps(config, deployments))]),
        "## The batch",
        list_of(summary.facts()),
        table(summary.by_model()),
        *_problems(summary, [state for state in _OLD if not leaves(state)], " by earlier runs"),
        _list("Approvals", [text(approval.line()) for approval in summary.approvals[-_APPROVALS:]]),
        "## The dearest jobs\n\n" + table(dearest) if differ else "",
        _list("Files", [f"{name}: {_place(place)}" for name, place in places if place]),
    )


def _problems(summary: Summary, states: Sequence[State], by_whom: str = "") -> Iterator[str]:
    """What went wrong, a heading for each of these states."""
    for state in states:
        lines = [text(problem.line()) for problem in summary.details.problems if problem.state is state]
        yield _list(f"{state.replace('_', ' ').capitalize()}{by_whom}", lines)
    if summary.details.other_problems and not by_whom:
        yield f"{counted(summary.details.other_problems, 'job')} with other reasons: see the costs file."


def page(*parts: str) -> str:
    """A page in markdown of the parts that are not empty."""
    return "\n\n".join(filter(None, parts)) + "\n"


def _list(title: str, lines: Iterable[str]) -> str:
    """Lines below a title, in markdown; empty without one."""
    points = [f"- {line}" for line in lines]
    return "\n".join([f"## {title}\n", *points]) if points else ""


def list_of(facts: Iterable[tuple[str, str]]) -> str:
    """Facts as a list in markdown: names and texts; one without a name is about the one before."""
    return "\n".join(f"- **{name}**: {text(fact)}" if name else f"  {text(fact)}" for name, fact in facts)


def table(lines: Sequence[Mapping[str, str]]) -> str:
    """Lines as a table in markdown with their keys as its head; empty without any."""
    return _cells([[*lines[0]], *(map(text, line.values()) for line in lines)]) if lines else ""


def _cells(rows: Sequence[Iterable[str]]) -> str:
    head, *body = map(list, rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *body])


def text(text: str) -> str:
    """Text from users or the service in markdown: one line, and no markup, HTML or end of a cell."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", printable(text))


def _sheet(place: str | None) -> str:
    """A line that leads to a contact sheet; a link where it is served."""
    if place and place.startswith("http://"):
        return f"[Look at the images and videos, and mark them]({place})"
    return f"The contact sheet: {_place(place)}" if place else ""


def _place(url: str) -> str:
    """Where a file is: a link where a browser can open it."""
    return f"<{url}>" if url.startswith(("http://", "https://")) else f"`{printable(url).replace('`', '')}`"
