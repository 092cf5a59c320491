"""Approve: the quote is shown on the run's page, and a person is asked in the UI where one must approve it.

Plain functions, not tasks: they take no time, and the quote belongs to the page of the whole run.
"""

from __future__ import annotations

from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError, Stop
from callsheet.ledger import approvals
from callsheet.ledger.approvals import Question
from callsheet.ledger.ledger import Ledger
from callsheet.pricing import approval
from callsheet.pricing.plan import ALL, Choice, Plan, last_plan
from callsheet.pricing.quote import Quote, quote_plan
from callsheet.report.summary import Summary
from callsheet.service.client import Client
from callsheet.session import Run
from callsheet.steps import approve as library
from callsheet.watch import Asked
from tasks import artifacts, suspend
from tasks.pressed import Pressed, pressed
from tasks.service_block import connect


async def show(plan: Plan, settings: Settings, client: Client, ledger: Ledger, choice: Choice = ALL) -> Quote:
    """Makes the quote (`steps/approve.py`), and shows it as an artifact and as the run's name."""
    quote = await library.show(plan, settings, client, ledger, choice)
    await artifacts.show_quote(quote)
    return quote


async def approve(
    run: Run, quote: Quote, approved: bool, *, pilot: bool = False, plan: str | None = None
) -> tuple[Quote, Stop | None]:
    """Asks a person in the UI (`steps/approve.py`).

    Raises:
        Pause: (Prefect's) the run waits for a person; it begins again with the answer.
    """
    ui = suspend.UI.of_this_run(run.settings)
    return await library.approve(run, quote, approved, pilot=pilot, plan=plan, ui=ui)


async def ask_to_go_on(settings: Settings, choice: Choice, summary: Summary) -> None:
    """Where a person has suspended this run of a deployment, asks in the UI whether to buy what is left.

    It is the question about the quote, which Resume shows; whoever answers may set another limit.

    Raises:
        Pause: (Prefect's) the run waits for a person; it begins again with the answer.
    """
    if await pressed() is not Pressed.SUSPEND or (plan := last_plan(settings)) is None:
        return
    ui = suspend.UI.of_this_run(settings)
    async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
        try:
            async with await connect(settings) as client:
                left = await quote_plan(plan, settings, client, ledger, choice)
        except CallsheetError:  # then Resume asks nothing
            return
        if not left.to_buy:
            return
        # By the newest word: a person may have set another limit than the config's.
        left = left.with_limit(await ledger.read(approvals.said_limit))
        question = approval.question_about(left, Question.QUOTE, ui.flow_run if ui else None)
        await ledger.write(approvals.ask, question)
    shown = artifacts.question_in_markdown(Asked(Question.QUOTE, left, "the run was suspended"))
    await suspend.stay(summary.line(), question, shown)
