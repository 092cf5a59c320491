"""Suspend and Cancel in the Prefect UI, on a real server and worker: no more is sent, a report is written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL

from callsheet.pricing.quote import Quote
from callsheet.records import Change, State
from callsheet.watch import LogWatcher
from flows.generate import generate_batch
from tests.conftest import Make, Project, images
from tests.flows.test_approval import answer, asked
from tests.flows.test_crew import asks, of_its_crew
from tests.servers import http
from tests.servers.prefect import PrefectServer
from tests.steps.test_stopping import make_quick
from tests.waiting import LONGEST, wait_until

LANES = 4
ROWS = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(700)]
SLOW = {"image_seconds": 2, "concurrency": LANES, "image_rpm": 10**6}  # no window, when it is quick later
PRICE = Decimal("0.0015")


@pytest.fixture
def buying(crew: PrefectServer, project: Make) -> tuple[Project, dict[str, Any]]:
    """A run that buys four images in two seconds, and so takes longer than a test waits for anything.

    Its project, and the flow run when the first image is stored.
    """
    made = project(ROWS, **SLOW)
    made.set(batch=made.folder.name, limits={"concurrency": LANES})
    made.at_absolute_paths()
    crew.start("generate-batch/by-hand", tag=made.folder.name, config=str(made.config))
    wait_until(lambda: list(made.folder.glob("out/media/**/*.jpeg")), "nothing is stored")
    return made, crew.run(made.folder.name)


def suspend(crew: PrefectServer, run: dict[str, Any]) -> str:
    """Presses the button, as the UI does; returns whether the server accepts it."""
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    details = {"pause_timeout": until, "pause_reschedule": True}
    state = {"type": "PAUSED", "name": "Suspended", "state_details": details}
    return str(crew.post(f"flow_runs/{run['id']}/set_state", {"state": state, "force": True})["status"])


def suspended(crew: PrefectServer, made: Project) -> dict[str, Any]:
    """The run once its process has said its last word, and what Resume shows above its fields."""
    tag = made.folder.name
    wait_until(lambda: crew.run(tag)["state"]["message"], "the run never ends", 1)
    return asked(crew, tag)


def errors(crew: PrefectServer, run: dict[str, Any]) -> list[str]:
    """What a run's log has of the levels ERROR and CRITICAL."""
    lines = crew.ask("logs", logs={"flow_run_id": {"any_": [run["id"]]}, "level": {"ge_": 40}})
    return [line["message"] for line in lines]


def is_done_with(crew: PrefectServer, run: dict[str, Any]) -> bool:
    """Whether the worker has cancelled a run: until then it may write other words."""
    cancelled = {"event": {"name": ["prefect.runner.cancelled-flow-run"]}}
    return run["id"] in str(crew.post("events/filter", {"filter": cancelled}))


def test_suspend_stops_the_buying_resume_goes_on_up_to_another_limit_and_cancel_ends_it(
    crew: PrefectServer, the_up: Any, buying: tuple[Project, dict[str, Any]]
) -> None:
    """No more is sent, a report is written, and nothing that a person does is an error."""
    made, run = buying
    assert suspend(crew, run) == "ACCEPT"
    shown = suspended(crew, made)
    sent = len(made.sold)
    stopped = made.report()
    assert (stopped["outcome"], stopped["stop_reason"]) == ("stopped", "interrupted")
    assert (stopped["stored"], stopped["in_doubt"], stopped["pending"]) == (sent, 0, 0)
    assert shown["state"]["type"] == "PAUSED"
    assert shown["state"]["message"].startswith(
        f"{sent} bought, {made.charged:.4f} USD; 700 jobs: {sent} stored; "
    )
    assert shown["state"]["message"].endswith("stopped: suspended in the Prefect UI")
    assert f"Buy {len(ROWS) - sent} jobs of" in shown["description"]
    assert 'data-row-id="s0"' in sheet(crew, run)

    limit = f"{(sent + 600) * PRICE:.4f}"
    assert answer(crew, shown, decision="approve", question="another") == "REJECT"
    assert answer(crew, shown, decision="approve", limit=limit, note="as far as this") == "ACCEPT"
    wait_until(lambda: len(made.sold) >= sent + LANES, "it does not go on", 0.3)
    cancelling = {"type": "CANCELLING", "name": "Cancelling"}
    crew.post(f"flow_runs/{run['id']}/set_state", {"state": cancelling, "force": True})
    ended = crew.ended(made.folder.name)
    assert ended["id"] == run["id"]
    bought = len(made.sold)
    wait_until(lambda: is_done_with(crew, run), "the worker is never done with it", 1)
    ended = crew.run(made.folder.name)
    assert (ended["state"]["type"], ended["state"]["name"]) == ("CANCELLED", "Cancelled")
    did = f"{bought} bought, {made.charged:.4f} USD"  # also before it was suspended
    assert ended["state"]["message"].startswith(f"{did}; 700 jobs: {bought} stored; ")
    assert ended["state"]["message"].endswith("stopped: cancelled in the Prefect UI")
    report = made.report()
    assert (report["stored"], report["in_doubt"], len(made.sold)) == (bought, 0, bought)
    [approval] = report["approvals"]
    assert (approval["jobs"], approval["budget_limit"]) == (len(ROWS) - sent, limit)
    assert (approval["decided_by"], approval["note"]) == ("Ada", "as far as this")
    shown_of_progress = crew.ask("artifacts", flow_runs={"id": {"any_": [run["id"]]}})
    assert any(f" of {limit} USD spent" in one["description"] for one in shown_of_progress), "its budget"
    assert errors(crew, run) == []
    assert ended["name"] not in the_up.text, "the terminal shows errors alone"
    make_quick(made)
    goes_on = made.run(f"budget.limit={(bought + 20) * PRICE}")
    assert goes_on.stored == len(made.sold) == bought + 20, "nothing is bought twice"


def sheet(crew: PrefectServer, run: dict[str, Any]) -> str:
    """The contact sheet to which the costs of a run of `callsheet up` have a link."""
    [costs] = [text for key, text in crew.artifacts(run).items() if key.startswith("costs-")]
    [link] = re.findall(r"^- \[Look at .*\]\((.*)\)$", costs, re.MULTILINE)
    with http.Client() as client:
        client.get(link).raise_for_status()
        return str(client.get(link.partition("?")[0]).text)


class Presses(LogWatcher):
    """A person who presses a button when the quote is there, or when the first image is stored."""

    def __init__(self, state: dict[str, Any], *, at_once: bool) -> None:
        self.state, self.at_once, self.has_pressed = state, at_once, False

    def quoted(self, quote: Quote) -> None:
        if self.at_once:
            self.press()

    def changed(self, change: Change) -> None:
        if change.state is State.STORED and not self.has_pressed:
            self.press()

    def press(self) -> None:
        context = FlowRunContext.get()
        assert context and context.flow_run
        url = f"{PREFECT_API_URL.value()}/flow_runs/{context.flow_run.id}/set_state"
        http.post(url, json={"force": True, "state": self.state}, timeout=LONGEST).raise_for_status()
        self.has_pressed = True


@pytest.mark.parametrize(
    ("state", "at_once"), [({"type": "CANCELLING"}, True), ({"type": "PAUSED", "name": "Suspended"}, False)]
)
@pytest.mark.usefixtures("prefect")
def test_a_run_that_a_command_has_started_is_cancelled_by_either_button(
    project: Make, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], at_once: bool
) -> None:
    """No worker sends it a signal, and no deployment could resume it."""
    made = project(ROWS, **SLOW)
    made.set(limits={"concurrency": LANES})
    monkeypatch.setattr("flows.names.Events", lambda batch: Presses(state, at_once=at_once))
    ended = asyncio.run(generate_batch(str(made.config), return_state=True))
    assert ended.is_cancelled()
    stored = len(made.sold)
    assert made.report()["stored"] == stored < len(ROWS)
    assert (stored == 0) is at_once, "what is pressed before the first image is sent comes in time"
    bought = f"{stored} bought, {made.charged:.4f} USD; 700 jobs: {stored} stored; "
    assert str(ended.message).startswith(bought if stored else "700 jobs: nothing bought; ")
    assert str(ended.message).endswith("stopped: cancelled in the Prefect UI")


@pytest.fixture
def suspended_at_once(crew: PrefectServer, project: Make) -> Callable[..., tuple[Project, dict[str, Any]]]:
    """Begins a run that is suspended when its first image is stored: its project, and what is asked."""

    def begin(**parameters: Any) -> tuple[Project, dict[str, Any]]:
        made = project(images(12), image_seconds=1, concurrency=1)
        made.set(batch=made.folder.name, limits={"concurrency": 1})
        given = {"tag": made.folder.name, "config": str(made.config), **parameters}
        button = {"type": "PAUSED", "name": "Suspended"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("flows.names.Events", lambda batch: Presses(button, at_once=False))
            crew.begin(generate_batch, "generate-batch/by-hand", **given)
        make_quick(made)
        return made, asked(crew, made.folder.name)

    return begin


def test_a_run_of_the_first_jobs_that_is_resumed_buys_the_others_of_these(
    crew: PrefectServer, suspended_at_once: Any
) -> None:
    made, shown = suspended_at_once(first=6)
    assert len(made.sold) < 6
    answer(crew, shown, decision="approve")
    crew.go_on(generate_batch, made.folder.name)
    assert len(made.sold) == 6


def test_a_yes_to_what_is_left_buys_no_rows_that_were_added_since(
    crew: PrefectServer, suspended_at_once: Any
) -> None:
    made, shown = suspended_at_once()
    sent = len(made.sold)
    made.rows(*images(24))
    answer(crew, shown, decision="approve")
    assert crew.go_on(generate_batch, made.folder.name)["state"]["name"] == "Suspended"
    assert f"Buy {24 - sent} jobs of" in asked(crew, made.folder.name)["description"]
    assert len(made.sold) == sent


@pytest.mark.soak
def test_suspend_ends_the_other_runs_of_a_crew_and_resume_starts_others(
    crew: PrefectServer, project: Make
) -> None:
    made = project(ROWS, **SLOW)
    made.set(batch=made.folder.name)
    made.at_absolute_paths()
    crew.start("generate-batch/by-hand", tag=made.folder.name, config=str(made.config), crew=2)
    wait_until(lambda: len(asks(made, "SELECT id FROM runs")) == 2, "the other run never begins", 0.3)
    run = crew.run(made.folder.name)
    suspend(crew, run)
    shown = suspended(crew, made)
    [other] = of_its_crew(crew, run)
    wait_until(lambda: is_done_with(crew, other), "the other run is never cancelled", 1)
    sent = len(made.sold)
    assert made.run("budget.limit=0").stored == len(made.sold) == sent < len(ROWS)
    make_quick(made)
    assert answer(crew, shown, decision="approve") == "ACCEPT"
    assert crew.ended(made.folder.name)["state"]["name"] == "Complete"
    assert len(of_its_crew(crew, run)) == 2
    assert len(made.sold) == len(ROWS)


@pytest.mark.soak
def test_a_suspended_collector_leaves_its_videos_and_resume_goes_on(
    crew: PrefectServer, project: Make
) -> None:
    videos = [{"id": f"v{n}", "prompt": "x", "model": "dailies-1", "duration": 1} for n in range(2)]
    made = project(videos, video_seconds=3600)
    made.set(batch=made.folder.name, poll={"timeout": 0.5})
    made.at_absolute_paths()
    assert made.run().pending == 2
    made.set(poll={"timeout": 3600})
    crew.start("collect-media/collector", tag=made.folder.name, config=str(made.config))
    wait_until(lambda: len(asks(made, "SELECT id FROM runs")) == 2, "the collector never begins", 0.3)
    run = crew.run(made.folder.name)
    suspend(crew, run)
    wait_until(lambda: crew.run(made.folder.name)["state"]["message"], "the run never ends", 1)
    run = crew.run(made.folder.name)
    assert run["state"]["name"] == "Suspended"
    assert run["state"]["message"].startswith("nothing fetched; 2 jobs: 2 pending; ")
    made.backlot.service.clock = lambda before=made.backlot.service.clock: before() + 3600
    assert crew.post(f"flow_runs/{run['id']}/resume", {})["status"] == "ACCEPT"
    assert crew.ended(made.folder.name)["state"]["name"] == "Complete"


@pytest.mark.soak
def test_a_run_that_is_resumed_before_it_has_ended_leaves_its_state_to_the_next_process(
    crew: PrefectServer, buying: tuple[Project, dict[str, Any]]
) -> None:
    made, run = buying
    suspend(crew, run)
    assert crew.post(f"flow_runs/{run['id']}/resume", {})["status"] == "ACCEPT"
    wait_until(lambda: len(asks(made, "SELECT id FROM runs")) == 2, "it is never resumed", 0.3)
    make_quick(made)
    ended = crew.ended(made.folder.name)
    assert ended["state"]["name"] == "Complete"
    assert made.report()["stored"] == len(made.sold) == len(ROWS)
