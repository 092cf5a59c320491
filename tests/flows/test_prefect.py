"""Runs on a real Prefect server: what the deployments are, what a run shows there, and what it ends as."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from prefect import tags
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings

from callsheet import errors
from callsheet.config.load import load
from callsheet.errors import CallsheetError, Refusal, ends_as
from callsheet.ledger import changes
from callsheet.ledger.ledger import Ledger
from callsheet.present import results
from callsheet.present.markdown import markdown
from callsheet.present.page import Facts
from callsheet.pricing.plan import ToBuyAgain
from callsheet.report.summary import Details, Summary
from callsheet.service.client import Client
from callsheet.session import open_run
from flows.change import change_batch
from flows.collect import collect_media
from flows.generate import generate_batch
from flows.names import final_state, state_of
from flows.quote import quote_batch
from flows.reconcile import reconcile_costs
from tasks import artifacts
from tasks.steps import STEPS
from tests.cli.test_commands import callsheet
from tests.cli.test_reconcile import CUT_OFF, STUDIO, doubtful, rows, spend
from tests.cli.test_rows import printed
from tests.conftest import Make, Project, images
from tests.flows.test_crew import asks
from tests.flows.test_suspend import suspend
from tests.servers.prefect import ROOT, PrefectServer
from tests.servers.proxies import Failure, ReverseProxy
from tests.servers.sockets import unused_port
from tests.steps.test_again import samples, with_check
from tests.waiting import wait_until


def test_what_buys_has_no_limit_and_what_buys_nothing_is_limited_to_one_run(crew: PrefectServer) -> None:
    """Prefect ends a run of a limited deployment that cannot renew its slot; see prefect.yaml."""
    deployed = {one["name"]: one for one in crew.ask("deployments")}
    limited = {name for name, one in deployed.items() if one["concurrency_options"]}
    assert limited == {"collector", "reconcile", "inbox"}
    assert deployed.keys() - limited == {
        *("by-hand", "nightly", "buy-again", "production", "quote", "change", "resolve", "inbox-file")
    }
    for name in limited:
        assert deployed[name]["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
        assert deployed[name]["global_concurrency_limit"]["limit"] == 1
    schedules = {name: one["schedules"] for name, one in deployed.items() if one["schedules"]}
    crons = {name: [each["schedule"]["cron"] for each in each_of] for name, each_of in schedules.items()}
    assert crons == {
        "nightly": ["0 2 * * *"],
        "collector": ["*/15 * * * *"],
        "reconcile": ["0 6 * * *"],
    }
    assert not any(each["active"] for each_of in schedules.values() for each in each_of), "until switched on"


def test_a_run_buys_a_batch_in_rounds_and_shows_it(
    prefect: PrefectServer, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker does with a deployment is in test_events.py, test_crew.py and test_suspend.py."""
    images = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(2)]
    made = project([*images, {"id": "video", "prompt": "a video", "model": "dailies-1", "duration": 1}])
    monkeypatch.setattr("flows.generate.STEPS", with_check(STEPS, lambda row_id, n: row_id == "s1" and n < 3))
    with tags(made.folder.name):
        asyncio.run(generate_batch(str(made.config), overrides=["review.buy_again=true"]))
    run = prefect.run(made.folder.name)
    assert (run["state"]["type"], run["state"]["name"]) == ("COMPLETED", "Complete"), run["state"]["message"]
    cost = f"{made.costs()['quoted'].sum():.4f} USD"
    assert run["name"] == f"test: 5 bought, {cost}; 5 of 5 stored, {cost}"
    assert "batch:test" in run["tags"]
    assert samples(made) == [("s0", 1), ("s1", 1), ("s1", 2), ("s1", 3), ("video", 1)]
    names = Counter(one["name"] for one in prefect.ask("task_runs", flow_runs={"id": {"any_": [run["id"]]}}))
    rounds = dict.fromkeys(("submit", "poll", "download", "record"), 3)
    assert names == rounds | {"read": 1, "price": 4}, "the last time it finds nothing to buy again"
    artifacts = prefect.artifacts(run)
    assert artifacts["progress-test"] == 100.0
    assert "test: complete" in artifacts["costs-test"]
    assert "| sketch-1 | 4 | 4 | 0 | 2 | 0.0060 |" in artifacts["costs-test"]
    assert "to buy again" not in artifacts["costs-test"].lower()
    assert "| video | dailies-1 | " in artifacts["costs-test"]
    assert "dailies-1" in artifacts["quote-test"]


def test_a_run_in_which_nothing_has_changed_has_its_name_and_costs_and_no_task_runs(
    prefect: PrefectServer, project: Make
) -> None:
    made = project(images(2))

    def night(number: int, flow: Any = generate_batch) -> tuple[dict[str, Any], int]:
        """A run, and how many tasks it has carried out."""
        tag = f"{made.folder.name}-{number}"
        with tags(tag):
            asyncio.run(flow(str(made.config)))
        run = prefect.run(tag)
        return run, len(prefect.ask("task_runs", flow_runs={"id": {"any_": [run["id"]]}}))

    assert night(1)[1] > 0
    run, tasks = night(2)
    assert (run["name"], tasks) == ("test: nothing to buy; 2 of 2 stored, 0.0030 USD", 0)
    assert run["state"]["name"] == "Complete"
    assert run["state"]["message"].startswith("nothing to buy; 2 jobs: 2 stored; 0.0030 USD spent")
    shown = prefect.artifacts(run)
    assert shown.keys() == {"costs-test"}
    assert "test: complete" in shown["costs-test"]

    printed("review", str(made.config), "--reject", "s1")
    assert night(3)[1] > 0, "a mark is a change"
    run, tasks = night(4)
    assert tasks == 0
    assert "To buy again 1 job for 0.0015 USD" in prefect.artifacts(run)["costs-test"]
    run, tasks = night(5, collect_media)
    assert (run["name"], tasks) == ("test: nothing to fetch; 2 of 2 stored, 0.0030 USD", 0)


def test_a_server_that_takes_no_artifacts_ends_no_run(prefect: PrefectServer, project: Make) -> None:
    made = project([{"id": "a", "prompt": "an image", "model": "sketch-1"}])
    with (
        ReverseProxy(prefect.api.removesuffix("/api")) as proxy,
        temporary_settings({PREFECT_API_URL: f"{proxy.url}/api"}),
    ):
        proxy.fail(Failure("POST", "/api/artifacts/", status=404, reaches_service=False))
        state: Any = asyncio.run(generate_batch(str(made.config), return_state=True))
        assert proxy.count("POST", "/api/artifacts/") == 4, "quote, progress, costs and morning"
    assert (state.name, len(made.sold)) == ("Complete", 1)


def test_a_run_that_waits_for_the_service_says_so_in_its_state_and_goes_on(
    crew: PrefectServer, project: Make
) -> None:
    made, tag = project(images(1)), "waits"
    told: list[str] = []

    def come_back() -> None:
        def waits() -> bool:
            runs = crew.ask("flow_runs", flow_runs={"tags": {"all_": [tag]}})
            told.extend(run["state"]["message"] or "" for run in runs)
            return bool(told) and "waits for the service" in told[-1]

        wait_until(waits, "no state says it", 0.2)
        proxy.start()

    with ReverseProxy(made.backlot.base_url) as proxy, ThreadPoolExecutor(1) as beside:
        made.set(service={"base_url": proxy.url})
        proxy.stop()
        coming_back = beside.submit(come_back)
        run = crew.begin(generate_batch, "generate-batch/by-hand", tag=tag, config=str(made.config))
        coming_back.result()
    assert (run["state"]["name"], len(made.sold)) == ("Complete", 1), run["state"]["message"]


def test_suspend_is_heeded_while_a_run_waits_for_the_service(crew: PrefectServer, project: Make) -> None:
    made, tag = project(images(1)), "waits-suspended"

    def press() -> None:
        def waits() -> bool:
            runs = crew.ask("flow_runs", flow_runs={"tags": {"all_": [tag]}})
            return any("waits for the service" in (run["state"]["message"] or "") for run in runs)

        wait_until(waits, "it does not wait", 0.2)
        suspend(crew, crew.run(tag))

    with unused_port() as port, ThreadPoolExecutor(1) as beside:
        made.set(service={"base_url": f"http://127.0.0.1:{port}"})
        pressing = beside.submit(press)
        run = crew.begin(generate_batch, "generate-batch/by-hand", tag=tag, config=str(made.config))
        pressing.result()
    assert run["state"]["name"] == "Suspended"
    assert run["state"]["message"].startswith("suspended in the Prefect UI")
    made.set(service={"base_url": made.backlot.base_url})
    assert crew.post(f"flow_runs/{run['id']}/resume", {})["status"] == "ACCEPT"
    assert crew.go_on(generate_batch, tag)["state"]["name"] == "Complete"


def test_a_server_that_fails_for_a_while_ends_no_run_of_a_deployment_and_its_progress_goes_on(
    crew: PrefectServer, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "EVERY", 0.1)
    made = project([{"id": "a", "prompt": "an image", "model": "sketch-1"}], image_seconds=2)
    tag = made.folder.name
    with (
        ReverseProxy(crew.api.removesuffix("/api")) as proxy,
        temporary_settings({PREFECT_API_URL: f"{proxy.url}/api"}),
    ):
        proxy.fail(
            Failure("PATCH", "/api/artifacts/", status=404, reaches_service=False, times=1),
            Failure("GET", "/api/deployments/", status=404, reaches_service=False),
        )
        run = crew.begin(generate_batch, "generate-batch/by-hand", tag=tag, config=str(made.config))
        moved = proxy.count("PATCH", "/api/artifacts/")
    assert (run["state"]["name"], len(made.sold)) == ("Complete", 1), run["state"]["message"]
    assert moved > 2, "the first one is not answered, the last one is the end"


RETRIES = {f"PREFECT_{what}_DEFAULT_RETRIES": "2" for what in ("FLOWS", "TASKS")}
WHAT_IS_TRIED_AGAIN = """
import importlib, pkgutil
import prefect, flows, tasks
from flows.generate import generate_batch, main
for package in (flows, tasks):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, prefect.Flow | prefect.Task):
                print("no retries of" if value.retries == 0 else "retries of", name, flush=True)
main(generate_batch)
"""


def test_a_profile_that_sets_retries_sets_those_of_no_flow_and_no_task_and_repeats_no_purchase(
    prefect: PrefectServer, project: Make
) -> None:
    cut_off = {"endpoint": "images", "do": "drop", "when": "after_charging"}
    made = project(images(20), faults={"rules": [cut_off]})
    made.set(batch=made.folder.name, stop_after=2, limits={"concurrency": 1})
    made.at_absolute_paths()
    environment = os.environ | RETRIES | {"PREFECT_API_URL": prefect.api}
    command = [sys.executable, "-c", WHAT_IS_TRIED_AGAIN, str(made.config)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert {"no retries of generate_batch", "no retries of submit"} <= {*done.stdout.splitlines()}
    assert "\nretries of" not in f"\n{done.stdout}"
    run = prefect.run(f"batch:{made.folder.name}")
    assert (run["state"]["name"], run["run_count"]) == ("InDoubt", 1), done.stderr
    assert "Traceback" not in done.stderr
    assert len(asks(made, "SELECT id FROM runs")) == 1
    assert made.report()["in_doubt"] == len(made.sold) == 3, "two, and the one that is tried after them"


# ---- what a run ends as


def summary(**values: Any) -> Summary:
    counts = ("failed", "in_doubt", "lost", "pending", "rejected_rows", "rate_limited")
    known = (
        dict.fromkeys(counts, 0)
        | {name: Decimal(0) for name in ("quoted", "spent", "in_doubt_exposure")}
        | dict.fromkeys(("batch", "currency", "manifest", "costs", "report", "ledger_id"), "out/report")
        | dict.fromkeys(("jobs", "stored", "submissions", "seconds", "paid_jobs"), 9)
        | {"outcome": "complete", "stop_reason": None, "written_at": datetime.now(UTC)}
    )
    return Summary(**known | values)


@pytest.mark.parametrize(
    "values, name, state_type",
    [
        ({}, "Complete", StateType.COMPLETED),
        ({"outcome": "partial", "failed": 2}, "Partial", StateType.COMPLETED),
        ({"outcome": "stopped", "stop_reason": "budget"}, "StoppedAtBudget", StateType.COMPLETED),
        (
            {"outcome": "partial", "pending": 1, "details": Details(stop_message="storage refuses")},
            "Stopped",
            StateType.FAILED,
        ),
        ({"outcome": "partial", "in_doubt": 1}, "InDoubt", StateType.FAILED),
        ({"outcome": "partial", "lost": 1}, "Lost", StateType.FAILED),
        ({"outcome": "partial", "lost": 1, "in_doubt": 1}, "InDoubt", StateType.FAILED),
        ({"outcome": "stopped", "stop_reason": "budget", "in_doubt": 1}, "InDoubt", StateType.FAILED),
        ({"outcome": "stopped", "stop_reason": "balance"}, "Stopped", StateType.FAILED),
        ({"outcome": "stopped", "stop_reason": "doubt", "in_doubt": 10}, "InDoubt", StateType.FAILED),
        ({"outcome": "stopped", "stop_reason": "interrupted"}, "BrokenOff", StateType.FAILED),
        ({"outcome": "stopped", "stop_reason": "approval"}, "Cancelled", StateType.CANCELLED),
    ],
)
def test_the_final_state_says_how_the_batch_stands(
    values: dict[str, Any], name: str, state_type: StateType
) -> None:
    state = final_state(summary(**values))
    assert (state.name, state.type) == (name, state_type)
    missing = "0 of 9 jobs not bought: 9 stored" if name == "StoppedAtBudget" else "9 jobs: 9 stored"
    assert (state.message or "").startswith(missing)
    assert results.line(summary(**values)).partition(": ")[2] in (state.message or "")
    settles = "callsheet resolve CONFIG shows the jobs in doubt" in (state.message or "")
    assert settles == (name == "InDoubt")


ENDS: dict[type[CallsheetError] | tuple[type[Refusal], int], tuple[int, str | None, str]] = {
    errors.ConfigError: (2, None, "Failed"),
    errors.OtherService: (2, None, "Failed"),
    errors.InputError: (2, None, "Failed"),
    errors.NothingKept: (2, None, "Failed"),
    errors.TooLarge: (2, None, "Failed"),
    errors.BudgetReached: (4, "budget", "Stopped"),
    errors.BalanceTooLow: (4, "balance", "Stopped"),
    errors.ApprovalNeeded: (4, "approval", "Cancelled"),
    errors.ApprovalRefused: (4, "approval", "Cancelled"),
    errors.KeyRefused: (4, "key", "Stopped"),
    errors.ServiceDown: (4, "service", "Stopped"),
    errors.StorageDown: (4, "storage", "Stopped"),
    errors.Doubtful: (4, "doubt", "InDoubt"),
    errors.PriceChanged: (4, "price", "Stopped"),
    errors.NoLane: (4, "lanes", "Stopped"),
    errors.Interrupted: (130, "interrupted", "BrokenOff"),
    errors.StorageError: (2, None, "Failed"),
    errors.StorageConflict: (2, None, "Failed"),
    errors.LedgerError: (2, None, "Failed"),
    errors.LedgerUnavailable: (2, None, "Failed"),
    errors.OtherVersion: (2, None, "Failed"),
    errors.LedgerMoved: (2, None, "Failed"),
    errors.OtherLedger: (2, None, "Failed"),
    errors.UnknownAnswers: (2, None, "Failed"),
    errors.NotTaken: (3, None, "Failed"),
    errors.OutputError: (3, None, "Failed"),
    errors.ProcessEnded: (4, None, "Failed"),
    errors.MediaError: (2, None, "Failed"),
    errors.ServiceError: (4, "service", "Stopped"),
    errors.NotSent: (4, "service", "Stopped"),
    errors.MaybeSent: (4, "service", "Stopped"),
    errors.Unreadable: (4, "service", "Stopped"),
    (errors.Refusal, 400): (2, None, "Failed"),
    (errors.InvalidApiKey, 401): (4, "key", "Stopped"),
    (errors.QuotaExceeded, 402): (4, "balance", "Stopped"),
    (errors.NotFound, 404): (2, None, "Failed"),
    (errors.RateLimit, 429): (4, "service", "Stopped"),
    (errors.ServerError, 500): (4, "service", "Stopped"),
    (errors.GatewayAnswer, 403): (2, None, "Failed"),
    (errors.GatewayAnswer, 503): (4, "service", "Stopped"),
}
"""What a command and a flow run end as, by their error: the exit code, the stop reason, the final state."""


def test_an_error_ends_a_command_and_a_flow_run_alike() -> None:
    def kinds_of(kind: type[CallsheetError]) -> set[type[CallsheetError]]:
        kinds = {kind}.union(*map(kinds_of, kind.__subclasses__()))
        return {kind for kind in kinds if kind.__module__ == errors.__name__}

    named = {kind[0] if isinstance(kind, tuple) else kind for kind in ENDS}
    assert named == kinds_of(CallsheetError) - {CallsheetError, errors.Stop}
    for kind, (exit_code, reason, name) in ENDS.items():
        make = partial(kind[0], status=kind[1]) if isinstance(kind, tuple) else kind
        error = make("it is so", hint="Do it.")
        state = state_of(error)
        of_type = StateType.CANCELLED if name == "Cancelled" else StateType.FAILED
        assert (state.name, state.type, state.message) == (name, of_type, "it is so. Do it."), kind
        stop = ends_as(error)
        assert (error.exit_code, stop and stop.reason) == (exit_code, reason), kind
        if reason and reason != "budget":  # with its report written, that is green
            assert final_state(summary(outcome="stopped", stop_reason=reason)).name == name, kind


def test_a_doubt_makes_the_run_red_that_leaves_it_and_no_later_one_also_when_it_is_settled(
    prefect: PrefectServer, project: Make
) -> None:
    """Red means something new to do; what an earlier run left is said below."""
    made = project([*rows("a"), *doubtful("b")], faults={"rules": [CUT_OFF | {"when": "after_charging"}]})

    def ended() -> tuple[str | None, str]:
        state: Any = asyncio.run(generate_batch(str(made.config), return_state=True))
        of_run = {"id": {"any_": [str(state.state_details.flow_run_id)]}}
        [costs] = prefect.ask("artifacts", flow_runs=of_run, artifacts={"key": {"any_": ["costs-test"]}})
        assert f"1 {'lost' if 'Lost' in costs['data'] else 'in doubt'}" in state.message
        return state.name, costs["data"]

    name, page = ended()
    assert name == "InDoubt"
    assert page.index("## In doubt\n") < page.index("## The batch")
    name, page = ended()
    assert name == "Partial", "a night is not red for it for ever"
    assert page.index("## The batch") < page.index("## In doubt by earlier runs")
    assert not callsheet("resolve", str(made.config), "b", "--charged").returncode
    name, page = ended()
    assert name == "Partial"
    assert page.index("## The batch") < page.index("## Lost by earlier runs")
    made.rows(*rows("a"), *doubtful("b", "c"))
    assert ended()[0] == "InDoubt", "a new one"


def test_the_costs_link_to_the_contact_sheet_where_it_is_served() -> None:
    address = "http://127.0.0.1:5000/"

    def page(sheet: str | None) -> str:
        return markdown(results.document(summary(), "batch.yaml", sheet, ToBuyAgain(), {}, of_this_run=()))

    assert f"mark them]({address})" in page(address)
    assert "mark them" not in page(None)


def test_what_to_do_about_a_fact_begins_a_line_of_its_own() -> None:
    page = [Facts([("Not bought", "1 of 4 jobs"), ("", "A higher limit goes on.")])]
    assert markdown(page) == "- **Not bought**: 1 of 4 jobs\\\n  A higher limit goes on.\n"


def test_batches_whose_names_have_other_letters_have_an_artifact_each(
    prefect: PrefectServer, project: Make
) -> None:
    made, keys = project(images(1)), []
    for name in ("写真", "照片", "照片2", "März", "shots_1"):
        state: Any = asyncio.run(
            quote_batch(str(made.config), overrides=[f"batch={name}"], return_state=True)
        )
        of_run = {"id": {"any_": [str(state.state_details.flow_run_id)]}}
        keys += [artifact["key"] for artifact in prefect.ask("artifacts", flow_runs=of_run)]
    assert len({*keys}) == len(keys) == 5
    assert keys[-1] == "quote-shots-1", "the others keep their key"
    assert [key.rpartition("-")[0] for key in keys[:4]] == ["quote", "quote", "quote-2", "quote-m-rz"]


# ---- reconcile-costs


def reconciled(server: PrefectServer, made: Project, **parameters: Any) -> tuple[dict[str, Any], Any]:
    """A run of the flow in this process when it has ended, and its only artifact, if it has one."""
    state: Any = asyncio.run(reconcile_costs(str(made.config), return_state=True, **parameters))
    of_run = {"id": {"any_": [str(state.state_details.flow_run_id)]}}
    [run] = server.ask("flow_runs", flow_runs=of_run)
    return run, next(iter(server.ask("artifacts", flow_runs=of_run)), None)


def test_books_that_agree_complete_the_run_with_their_table_and_over_the_threshold_it_is_failed(
    prefect: PrefectServer, project: Make
) -> None:
    made = project(
        [*rows("a"), *doubtful("b")], faults={"rules": [CUT_OFF | {"when": "after_charging"}]}, **STUDIO
    )
    made.set(batch="Shots.of_May")
    made.run()
    charged, shown = reconciled(prefect, made)
    assert charged["state"]["type"] == "COMPLETED", "a doubt that was charged is explained"
    assert "0.0000 USD unexplained" in charged["state"]["message"]
    assert "batch:Shots.of_May" in charged["tags"]
    assert (shown["key"], shown["type"]) == ("reconcile-shots-of-may", "table")
    day, total = json.loads(shown["data"])
    assert (day["quoted"], day["usage"], day["billed"]) == ("0.0030", "0.0015", "0.0030")
    assert (day["reason"], total["UTC day"]) == ("doubts that were charged 0.0015", "total")
    assert shown["description"].startswith("**0.0015 USD** between the accounts\n")
    for words in ("100.0000 USD on", f"callsheet resolve {made.config}", "row b"):
        assert words in shown["description"]
    before = datetime.now(UTC).date() - timedelta(days=2)
    earlier, _ = reconciled(prefect, made, start=before, end=before.isoformat())
    assert earlier["state"]["message"].startswith(f"{before} to {before}: 0.0000 USD")
    spend(made, "sk_second")
    failed, shown = reconciled(prefect, made)
    assert (failed["state"]["type"], failed["state"]["name"]) == ("FAILED", "Failed")
    assert failed["name"] == "Shots.of_May: a difference of 0.0415 USD, 0.0400 unexplained"
    assert shown["description"].startswith("**0.0415 USD** between the accounts, 0.0400 unexplained\n")
    assert "0.0400 USD unexplained, above reconcile.threshold 0.0000" in failed["state"]["message"]
    assert "unexplained 0.0400" in json.loads(shown["data"])[0]["reason"]
    assert (made.folder / "out/report/reconcile.parquet").exists()
    accepted, _ = reconciled(prefect, made, overrides=["reconcile.threshold=0.05"])
    assert accepted["state"]["type"] == "COMPLETED"
    made.set(batch="other", service={"base_url": "http://127.0.0.1:9"}, report={"url": "out/other"})
    unreachable, _ = reconciled(prefect, made)
    assert unreachable["state"]["type"] == "FAILED"
    assert "not sent" in unreachable["state"]["message"], "an error is said in words"


@pytest.mark.usefixtures("prefect")
def test_a_run_of_change_batch_says_where_there_is_nothing_to_change(project: Make) -> None:
    """What it does to runs at work is in tests/cli/test_steer.py: it calls the same step."""
    made = project([{"id": "a", "prompt": "an image", "model": "sketch-1"}])
    made.run()
    state: Any = asyncio.run(change_batch(str(made.config), ["budget.limit=2"], return_state=True))
    assert state.name == "Failed"
    assert "no run of test is at work" in state.message


def test_a_form_of_change_batch_changes_what_was_touched_alone_in_the_name_of_who_has_filled_it(
    prefect: PrefectServer, project: Make
) -> None:
    made = project([{"id": "a", "prompt": "an image", "model": "sketch-1"}])
    settings = load(made.config)

    async def changed() -> list[str]:
        said = []
        service = Client(made.backlot.base_url, made.backlot.api_key)
        ledger = await Ledger.open(settings.ledger.url, "test", service=made.backlot.base_url)
        async with service as client, ledger, open_run(settings, client, ledger) as at_work:
            for form in ({"buying": "pause"}, {"changes": ["budget.limit=3"]}, {}, {"buying": "go on"}):
                state: Any = await change_batch(str(made.config), **form, name="anna", return_state=True)
                said.append(state.message)
            of_ledger = await at_work.ledger.read(partial(changes.since, number=0))
        return said + [f"{one.setting} {one.value} {one.changed_by}" for one in of_ledger]

    said = asyncio.run(changed())
    assert said == [
        "1 run of test: the buying is paused",
        "1 run of test: budget.limit is 3",
        "there is nothing to change. Fill in changes, or choose for the buying.",
        "1 run of test: the buying goes on",
        "paused True anna",
        "budget.limit 3 anna",
        "paused False anna",
    ]
    names = {each["name"] for each in prefect.ask("flow_runs", flow_runs={"tags": {"all_": ["batch:test"]}})}
    assert {"test: the buying is paused", "test: budget.limit is 3", "test: the buying goes on"} <= names
