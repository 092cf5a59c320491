"""The report of a batch whose rows change: what may have cost money counts, whichever file asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any, TypeVar

import httpx

from callsheet.config.load import load
from callsheet.config.settings import Settings
from callsheet.ledger.ledger import Ledger
from callsheet.present.results import facts, line, next_steps
from callsheet.present.results import problem as problem_line
from callsheet.pricing.choice import Choice
from callsheet.records import Progress, State
from callsheet.report.remedies import remedies
from callsheet.report.report import OfRun, write_report
from callsheet.report.summary import Summary, read_status
from callsheet.reviewing.server import opened
from callsheet.storage.store import Store
from callsheet.watch import WATCHER, LogWatcher
from tests.conftest import Project
from tests.servers.backlots import finish_videos

Make = Callable[..., Project]
T = TypeVar("T")
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"model": "dailies-1", "duration": 1}
PRICE = Decimal("0.0015")


class Recorder(LogWatcher):
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.progresses: list[Progress] = []
        self.notes: list[str] = []

    def progress(self, progress: Progress) -> None:
        self.progresses.append(progress)

    def note(self, text: str) -> None:
        self.notes.append(text)


def watched(made: Project, *overrides: str, **options: Any) -> tuple[Summary, Recorder]:
    recorder = Recorder()
    token = WATCHER.set(recorder)
    try:
        return made.run(*overrides, **options), recorder
    finally:
        WATCHER.reset(token)


def images(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"id": name, "prompt": f"an image of {name}", **IMAGE, **more} for name in names]


def test_what_is_bought_counts_whichever_file_asked_for_it_and_the_manifest_is_in_the_file_s_order(
    project: Make,
) -> None:
    """Rows that the batch file does not have any more come last, and are not current."""
    made = project(images("removed", "kept", "changed"))
    assert made.run().exit_code == 0
    made.rows(*images("added", "changed", prompt="another image"), *images("kept"))
    summary, recorder = watched(made)
    assert (summary.jobs, summary.stored, summary.outcome, summary.exit_code) == (5, 5, "complete", 0)
    assert (summary.spent, summary.quoted, summary.details.others) == (5 * PRICE, 5 * PRICE, 2)
    [line] = summary.details.models
    assert (line.jobs, line.states["stored"], line.spent) == (5, 5, 5 * PRICE)
    assert all(progress.done <= progress.jobs == 5 for progress in recorder.progresses)
    assert (recorder.progresses[-1].done, recorder.progresses[-1].quoted) == (5, 5 * PRICE)
    manifest = made.manifest()
    rows = list(manifest.select("row_id", "prompt", "current").iter_rows())
    assert rows[:3] == [
        ("added", "another image", True),
        ("changed", "another image", True),
        ("kept", "an image of kept", True),
    ]
    assert sorted(rows[3:]) == [
        ("changed", "an image of changed", False),
        ("removed", "an image of removed", False),
    ]
    review = ["decision", "decided_by", "decided_at", "note", "flags"]
    assert manifest.columns[-8:] == ["removed_at", "current", "made_from", *review]


def test_of_rows_that_the_batch_file_does_not_have_only_what_may_have_cost_money_counts(
    project: Make,
) -> None:
    """A row in doubt keeps the batch from being complete, and a video that is still made is followed."""
    fault = {"endpoint": "images", "prompt": "an image of doubtful", "do": "drop", "when": "after_charging"}
    refused = {"id": "refused", "prompt": "a forbidden-test-word", **IMAGE}
    video = {"id": "v", "prompt": "a video", **VIDEO}
    made = project([refused, *images("doubtful", "a"), video], faults={"rules": [fault]}, video_seconds=3600)
    first = made.run("poll.timeout=0.2")
    assert (first.failed, first.in_doubt, first.pending, first.stored) == (1, 1, 1, 1)
    finish_videos(made.backlot.service)
    made.rows(*images("b"))
    summary, recorder = watched(made)
    assert (summary.jobs, summary.stored, summary.failed, summary.in_doubt) == (4, 3, 0, 1)
    assert (summary.exit_code, summary.details.others, summary.in_doubt_exposure) == (3, 3, PRICE)
    assert any("resolve" in step for step in next_steps(summary))
    assert all(progress.done <= progress.jobs == 4 for progress in recorder.progresses)


def test_the_progress_of_a_choice_counts_no_job_that_it_is_not_for(project: Make) -> None:
    """One that has failed, and that another run would buy again, is neither among its jobs nor done."""
    made = project([{"id": "refused", "prompt": "a forbidden-test-word", **IMAGE}, *images("a")])
    made.run()
    made.rows({"id": "refused", "prompt": "a forbidden-test-word", **IMAGE}, *images("a", "b"))
    made.set(retry_failed="all")
    summary, recorder = watched(made, choice=Choice(only=("b",)))
    assert (summary.stored, summary.failed) == (2, 1)
    assert all(progress.done <= progress.jobs == 2 for progress in recorder.progresses)
    assert recorder.progresses[-1].states == {State.STORED: 2}


def test_what_was_quoted_is_said_as_it_was_when_a_rate_has_changed_since(project: Make) -> None:
    made = project(images("a"))
    made.run()
    models = made.backlot.service.models
    rates = [rate.model_copy(update={"unit_price": 2 * rate.unit_price}) for rate in models["sketch-1"].rates]
    models["sketch-1"] = models["sketch-1"].model_copy(update={"rates": tuple(rates)})
    made.rows(*images("a", "b"))
    summary = made.run(approved=True)
    assert (summary.quoted, summary.spent) == (3 * PRICE, 3 * PRICE)
    assert made.costs()["quoted"].sum() == 3 * PRICE
    [line] = summary.details.models
    assert line.quoted == 3 * PRICE


def test_what_was_settled_as_not_charged_is_bought_again_by_a_plain_run() -> None:
    settled, failed = remedies(State.FAILED, ["not_charged", "server_error"], "c.yaml")[1:]
    assert settled == "callsheet run c.yaml buys again what was settled as not charged."
    assert failed.startswith("callsheet run c.yaml --set retry_failed=server_error buys again")


class Beside(Ledger):
    """A ledger in which another run buys once this one was read for the first time."""

    other_run: Callable[[], object] | None = None

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        answer = await super().read(*args, **kwargs)
        if other_run := self.other_run:
            self.other_run = None
            await asyncio.to_thread(other_run)
        return answer


async def beside(made: Project, told: Callable[[Ledger, Settings], Awaitable[T]]) -> T:
    """What is told of a batch of which another run buys two more images meanwhile."""
    settings = load(made.config)
    made.rows(*images("a", "b", "c"))
    async with await Beside.open(settings.ledger.url, settings.batch) as ledger:
        ledger.other_run = lambda: made.run("report.url=out/other/report")
        answer = await told(ledger, settings)
    assert made.charged == 3 * PRICE, "the other run has bought"
    return answer


def test_a_report_is_of_one_moment_beside_another_run(project: Make) -> None:
    async def report(ledger: Ledger, settings: Settings) -> Summary:
        store = Store.of(settings.report.url, settings.storage)
        return await write_report(ledger, store, None, OfRun())

    made = project(images("a"))
    made.run()
    summary = asyncio.run(beside(made, report))
    assert summary.spent == made.costs()["cost"].sum() == summary.stored * PRICE
    assert summary.paid_jobs == summary.stored == 1


def test_a_status_is_of_one_moment_beside_another_run(project: Make) -> None:
    made = project(images("a"))
    made.run()
    status = asyncio.run(beside(made, read_status))
    assert status.spent == status.stored * PRICE == PRICE


def test_samples_are_in_order_and_a_batch_without_a_plan_is_reported_from_the_ledger(project: Make) -> None:
    made = project(images("b", samples="3") + images("a"), concurrency=8)
    made.run()
    assert made.manifest().select("row_id", "sample").rows() == [("b", 1), ("b", 2), ("b", 3), ("a", 1)]
    (made.folder / "out/report/plan.parquet").unlink()
    summary = made.collect()
    assert (summary.jobs, summary.stored, summary.exit_code) == (4, 4, 0)
    assert summary.details.rows is None
    assert made.manifest()["current"].to_list() == [True] * 4
    made.rows(*images("b", samples="3"))
    made.run()
    (made.folder / "out/report/plan.parquet").unlink()
    summary = made.collect()
    assert (summary.jobs, summary.stored, summary.details.others) == (4, 4, 1)
    assert dict(made.manifest().select("row_id", "current").iter_rows()) == {"b": True, "a": False}


def test_jobs_that_cost_more_than_quoted_are_named_and_one_without_a_price_is_none(project: Make) -> None:
    fault = {"endpoint": "images", "prompt": "an image of a", "do": "surcharge", "amount": "0.0100"}
    unpriced = {"id": "u", "prompt": "x", "model": "proof-1"}
    made = project([*images("a", "b"), unpriced], faults={"rules": [fault]})
    made.set(budget={"allow_unpriced": True})
    surcharge = dict(facts(made.run()))["Surcharge"]
    assert surcharge == "1 job cost 0.0100 USD more than quoted: row a: 0.0115 USD, quoted 0.0015"
    costs = {row["row_id"]: row for row in made.costs().iter_rows(named=True)}
    assert (costs["u"]["quoted"], costs["b"]["quoted"]) == (None, PRICE)
    assert costs["u"]["cost"] > 0


def test_a_batch_file_with_only_rejected_rows_is_not_complete_whatever_was_bought_before(
    project: Make,
) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "no-such-model"}])
    summary = made.run()
    assert (summary.jobs, summary.rejected_rows, summary.outcome, summary.exit_code) == (0, 1, "partial", 3)
    assert summary.details.rejects.endswith("rejects.csv")
    assert "1 row rejected" in line(summary)

    async def served() -> str:
        async with (
            opened(load(made.config), str(made.config)) as (app, _),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://review") as client,
        ):
            return (await client.get("/contact-sheet/data/summary.js")).text

    assert '"outcome":"partial"' in asyncio.run(served()), "the served page says the same"
    made.rows(*images("a"))
    made.run()
    made.rows({"id": "a", "prompt": "x", "model": "no-such-model"})
    summary = made.run()
    assert (summary.jobs, summary.stored, summary.outcome, summary.exit_code) == (1, 1, "partial", 3)


def test_problems_with_one_reason_are_one_line_and_rows_without_an_id_have_their_line(project: Make) -> None:
    made = project()
    rows = [{"prompt": f"gore {number}", **IMAGE} for number in range(7)]
    made.rows(*rows, {"prompt": "fine", **IMAGE})
    summary = made.run()
    assert (summary.stored, summary.failed) == (1, 7)
    [problem] = summary.details.problems
    assert (problem.state, problem.jobs, len(problem.rows)) == ("failed", 7, 5)
    assert {name.split()[0] for name in problem.rows} == {"line"}
    assert "content_policy_violation" in problem_line(problem)
    assert "and 2 more" in problem_line(problem)
