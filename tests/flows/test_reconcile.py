"""`reconcile-costs` on a real Prefect server: its table, its state, and the deployment's parameters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from flows.reconcile import reconcile_costs
from tests.cli.test_reconcile import CUT_OFF, STUDIO, doubtful, rows, spend
from tests.conftest import Project
from tests.servers import http
from tests.servers.prefect import PrefectServer

Make = Callable[..., Project]


def run_flow(made: Project, **parameters: Any) -> Any:
    """The final state of a flow run in this process, on the configured server."""
    return asyncio.run(reconcile_costs(str(made.config), return_state=True, **parameters))


def artifact(server: PrefectServer, run_id: str) -> dict[str, Any]:
    """The only artifact of a flow run."""
    filters = {"flow_runs": {"id": {"any_": [run_id]}}}
    [found] = http.post(f"{server.api}/artifacts/filter", json=filters).raise_for_status().json()
    return dict(found)


def flow_run(server: PrefectServer, state: Any) -> dict[str, Any]:
    """What the server has of the run that ended in this state."""
    run_id = str(state.state_details.flow_run_id)
    return dict(http.get(f"{server.api}/flow_runs/{run_id}").raise_for_status().json())


def test_books_that_agree_complete_the_run_with_their_table(prefect: PrefectServer, project: Make) -> None:
    made = project(rows("a"))
    made.run()
    ended = flow_run(prefect, run_flow(made))
    assert ended["state"]["type"] == "COMPLETED"
    assert "0.0000 USD unexplained" in ended["state"]["message"]
    assert ended["name"] == "batch"
    shown = artifact(prefect, ended["id"])
    assert (shown["key"], shown["type"]) == ("reconcile-test", "table")
    day, total = json.loads(shown["data"])
    assert (day["quoted"], day["usage"], day["billed"], day["difference"]) == ("0.0015",) * 3 + ("0.0000",)
    assert total["date"] == "total"
    assert "100.0000 USD on" in shown["description"]


def test_over_the_threshold_the_run_is_failed_with_the_table_in_its_artifact(
    prefect: PrefectServer, project: Make
) -> None:
    made = project(
        [*rows("a"), *doubtful("b")], faults={"rules": [CUT_OFF | {"when": "after_charging"}]}, **STUDIO
    )
    made.set(batch="Shots.of_May")
    made.run()
    charged = flow_run(prefect, run_flow(made))
    assert charged["state"]["type"] == "COMPLETED", "a doubt that was charged is explained"
    shown = artifact(prefect, charged["id"])
    assert json.loads(shown["data"])[0]["reason"] == "doubts that were charged 0.0015"
    assert f"callsheet resolve {made.config}" in shown["description"]
    assert "row b" in shown["description"]
    spend(made, "sk_second")
    failed = flow_run(prefect, run_flow(made))
    assert (failed["state"]["type"], failed["state"]["name"]) == ("FAILED", "Failed")
    assert "0.0400 USD unexplained, above reconcile.threshold 0.0000" in failed["state"]["message"]
    shown = artifact(prefect, failed["id"])
    assert shown["key"] == "reconcile-shots-of-may"
    assert "unexplained 0.0400" in json.loads(shown["data"])[0]["reason"]
    assert (made.folder / "out/report/reconcile.parquet").exists()
    accepted = run_flow(made, overrides=["reconcile.threshold=0.05"])
    assert accepted.is_completed()


def test_a_range_is_given_as_dates(prefect: PrefectServer, project: Make) -> None:
    made = project(rows("a"))
    made.run()
    before = datetime.now(UTC).date() - timedelta(days=2)
    ended = flow_run(prefect, run_flow(made, start=before, end=before.isoformat()))
    assert ended["state"]["message"].startswith(f"{before} to {before}: 0.0000 USD")


def test_an_error_fails_the_run_in_words(prefect: PrefectServer, project: Make) -> None:
    made = project()
    made.set(service={"base_url": "http://127.0.0.1:9"})
    state = run_flow(made)
    assert state.is_failed()
    assert "not sent" in state.message
