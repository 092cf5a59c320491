"""On a real Prefect server: events of a batch, the files of `automations/` that act on them, schedules."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from zoneinfo import ZoneInfo

import pytest
import yaml
from prefect.blocks.webhook import Webhook
from prefect.client.schemas.objects import StateType
from prefect.server.schemas.schedules import CronSchedule

from callsheet.cli.init import make_project
from callsheet.errors import ConfigError
from callsheet.pricing.plan import ToBuyAgain
from callsheet.report.summary import ReviewResult
from flows import automations
from flows.generate import generate_batch
from tasks.events import reviewed
from tests.cli.test_commands import CALLSHEET
from tests.conftest import Project, images
from tests.flows.test_forms import bought
from tests.servers.prefect import ROOT, PrefectServer, Up, free_port, prefect_server
from tests.servers.proxies import ReverseProxy
from tests.servers.sockets import Server, reply, serve, unused_port
from tests.steps.test_stopping import make_quick
from tests.waiting import wait_until


def said(listener: Server, about: str) -> list[str]:
    """The texts about a batch that were posted to a webhook; runs of other tests are told there, too."""
    texts = [json.loads(request.partition(b"\r\n\r\n")[2])["text"] for request in listener.requests]
    return [text for text in texts if about in text]


def call(url: str) -> None:
    """Has the automations of the project that is deployed call a URL."""
    Webhook(method="POST", url=url).save("callsheet", overwrite=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        asyncio.run(automations.make())


def events(crew: PrefectServer, run: str) -> list[dict[str, Any]]:
    """The events of Callsheet that are linked to a run."""
    related = {"id": [f"prefect.flow-run.{run}"]}
    asked = {"filter": {"event": {"prefix": ["callsheet."]}, "related": related}}
    return list(crew.post("events/filter", asked)["events"])


def test_a_night_that_stops_in_doubt_is_red_says_why_and_tells_automations(
    crew: PrefectServer, project: Callable[..., Project]
) -> None:
    cut_off = {"endpoint": "images", "prompt": "cut off", "do": "drop", "when": "after_charging"}
    rows = [{"id": name, "prompt": name, "model": "sketch-1"} for name in ("cut off", "fine", "too much")]
    made = project(rows, faults={"rules": [cut_off, {"prompt": "fine", "do": "other_format"}]})
    made.set(batch=made.folder.name, budget={"limit": "0.0030"}, checks={"delivered": "flag"})
    made.at_absolute_paths()
    without_config = f"{made.folder.name}-without-config"
    crew.start("generate-batch/nightly", tag=without_config, config="configs/none.yaml")
    red_run = crew.ended(without_config)
    with serve(reply(204)) as listener:
        call(listener.url)
        crew.start("generate-batch/nightly", tag=made.folder.name, config=str(made.config))
        run = crew.ended(made.folder.name)
        wait_until(lambda: len(said(listener, made.folder.name)) == 2, "the webhook is never called", 0.2)
    assert (run["state"]["type"], run["state"]["name"]) == ("FAILED", "InDoubt")
    assert "1 stored, 1 in doubt" in run["state"]["message"]
    assert "row cut off in doubt: " in crew.log(run, until="3 jobs: 1 stored, 1 in doubt")
    assert run["run_count"] == 1
    assert {"callsheet", f"batch:{made.folder.name}"} <= set(run["tags"])
    assert made.manifest().height == 1
    [told] = said(listener, f"Batch {made.folder.name} has stopped")
    used = "% of budget.limit is used"
    [warned] = said(listener, used)
    assert warned.startswith(f"Batch {made.folder.name}: "), "before the wall, and once"
    begins = "1 bought, 0.0015 USD; 3 jobs: 1 stored, 1 in doubt"
    assert told.startswith(f"Batch {made.folder.name} has stopped: {begins}")
    settles = "A run of the deployment resolve shows the jobs in doubt with the evidence, and settles them."
    assert told.endswith(settles)
    assert run["state"]["message"].endswith(settles)
    page = crew.artifacts(run)[f"costs-{made.folder.name}".replace("_", "-")]
    resolve = crew.deployment("resolve-doubts/resolve")["id"]
    ui = f"{crew.api.removesuffix('/api')}/v2"
    link = rf"\[Settle the jobs in doubt\]\({ui}/deployments/deployment/{resolve}/run\?(\S+)\)"
    [query] = re.findall(link, page)
    assert json.loads(parse_qs(query)["parameters"][0]) == {"config": str(made.config)}
    [morning] = crew.ask("artifacts/latest", artifacts={"key": {"any_": ["morning"]}})
    assert morning["description"].startswith("1 bought, 0.0015 USD; 1 in doubt; ")
    page_of_run = f"{ui}/runs/flow-run/{run['id']}"
    for words in (
        f"[{made.folder.name}: 1, at most 0.0015 USD](",
        f"[{run['name']}, InDoubt](",
        f"[{red_run['name']}, Failed](",  # it has no batch
        "Used today: 0.0030 USD, without a limit",
        "Balance: 99.9970 USD",
        "1 bought, 0.0015 USD | 1 stored, 1 in doubt",
        f"{made.folder.name}: 100 {used}",
        "## Money\n\n- Used today",  # otherwise it would stand in the list of red runs
    ):
        assert words in morning["data"].replace("\\", "").replace("*", ""), morning["data"]
    assert morning["data"].count(page_of_run) == 2
    wait_until(lambda: len(events(crew, run["id"])) == 4, "not all events come", 1)
    seen = {one["event"]: one for one in events(crew, run["id"])}
    quoted = seen["callsheet.batch.quoted"]
    assert quoted["resource"]["prefect.resource.id"] == f"callsheet.batch.{made.folder.name}"
    assert {"to_buy": 3, "fits": 2, "quoted": "0.0045"}.items() <= quoted["payload"].items()
    doubt = seen["callsheet.job.in_doubt"]
    assert (doubt["payload"]["row_id"], doubt["payload"]["batch"]) == ("cut off", made.folder.name)
    assert doubt["payload"]["reason"]
    warning = seen["callsheet.batch.warned"]["payload"]
    assert (warning["setting"], warning["amount"]) == ("budget.limit", "0.0030")
    stopped = seen["callsheet.batch.stopped"]["payload"]
    assert (stopped["stop_reason"], stopped["stored"], stopped["in_doubt"]) == ("budget", 1, 1)
    assert stopped["in_doubt_exposure"] == "0.0015"
    difference = "1 of 1 image is not as ordered in format: jpeg ordered, png came"
    assert stopped["not_as_ordered"] == [difference]
    assert f"## Not as ordered\n\n- {difference}" in page


def test_a_night_that_is_over_before_it_begins_says_why_and_tells_automations(
    prefect: PrefectServer, project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two commonest: the key is refused, or the service is down for longer than the run waits."""
    made = project([{"id": "a", "prompt": "a", "model": "sketch-1"}])
    made.set(limits={"patience": 0.001})
    monkeypatch.setenv("CALLSHEET_API_KEY", "sk_wrong")

    def tells(text: str) -> bool:
        return bool(said(listener, text))

    with serve(reply(204)) as listener, unused_port() as port:
        call(listener.url)
        nobody = f"http://127.0.0.1:{port}"
        for reason, words, url in (("key", "401", made.backlot.base_url), ("service", "not sent", nobody)):
            name = f"over-by-{reason}"
            made.set(batch=name, service={"base_url": url})
            ended = bought(made)
            assert (ended.name, ended.type) == ("Stopped", StateType.FAILED)
            assert words in str(ended.message)
            assert asyncio.run(ended.aresult(raise_on_failure=False)).exit_code == 4, "as callsheet run"
            told = f"Batch {name} has stopped: {ended.message}"
            wait_until(partial(tells, told), "the webhook is never called", 0.2)
            run = prefect.run(f"batch:{name}")
            assert run["name"] == f"{name}: stopped ({reason})"
            page = prefect.artifacts(run)[f"costs-{name}"]
            assert words in page
            assert "goes on from here, once what stopped it is dealt with" in page
            wait_until(partial(events, prefect, run["id"]), "the event is never kept", 1)
            [stopped] = events(prefect, run["id"])
            assert stopped["event"] == "callsheet.batch.stopped"
            assert stopped["payload"]["stop_reason"] == reason


def test_the_morning_has_the_batches_of_every_ledger_of_the_project(
    prefect: PrefectServer, project: Callable[..., Project]
) -> None:
    made = project([{"id": "a", "prompt": "a", "model": "sketch-1"}])
    stills, films = (f"{made.folder.name}-{name}" for name in ("stills", "films"))
    made.set(batch=stills)
    assert made.run().stored == 1
    configs = made.folder / "configs"
    configs.mkdir()
    (configs / "stills.yaml").write_text(made.config.read_text())
    (configs / "unknown.yaml").write_text("batch: [")
    made.set(batch=films, ledger={"url": "sqlite:///out/films.db"})
    made.set(report={"url": "out/films"}, storage={"url": "out/films"})
    assert bought(made).name == "Complete"
    [morning] = prefect.ask("artifacts/latest", artifacts={"key": {"any_": ["morning"]}})
    assert morning["description"].startswith("2 bought, 0.0030 USD")
    page = morning["data"].replace("\\", "").replace("*", "")
    for words in (f"| {stills} |", f"| {films} |", "Used today of other ledgers: 0.0015 USD"):
        assert words in page, page


def test_a_balance_below_what_is_scheduled_for_the_next_day_is_told(
    crew: PrefectServer, project: Callable[..., Project], caplog: pytest.LogCaptureFixture
) -> None:
    made = project(images(1), balance="0.0050")
    name = made.folder.name
    made.set(batch=name)
    nightly = crew.deployment("generate-batch/nightly")
    thrice = {"interval": 8 * 3600, "anchor_date": str(datetime.now(UTC) + timedelta(hours=5))}
    deployment = {key: nightly[key] for key in ("flow_id", "entrypoint", "tags", "parameter_openapi_schema")}
    deployment |= {"name": name, "schedules": [{"schedule": thrice, "active": True}]}
    created = crew.post("deployments/", deployment)
    try:
        crew.begin(generate_batch, f"generate-batch/{name}", tag=name, config=str(made.config))
        run = crew.run(name)
        [morning] = crew.ask("artifacts/latest", artifacts={"key": {"any_": ["morning"]}})
    finally:
        crew.request("DELETE", f"deployments/{created['id']}")
    told = (
        "the balance of 0.0035 USD is below what is scheduled for the next day: "
        "3 runs, about 0.0045 USD by the last ones"
    )
    assert told in morning["data"].replace("\\", ""), morning["data"]
    assert told in caplog.text
    wait_until(lambda: "callsheet.batch.warned" in str(events(crew, run["id"])), "no event comes", 1)


def test_a_question_and_the_end_of_a_review_call_a_webhook(
    crew: PrefectServer, project: Callable[..., Project]
) -> None:
    made = project([{"id": "a", "prompt": "a", "model": "sketch-1"}])
    name = made.folder.name
    made.set(batch=name, budget={"approve_above": "0.0010"})
    with serve(reply(204)) as listener:
        call(listener.url)
        crew.begin(generate_batch, "generate-batch/nightly", tag=name, config=str(made.config))
        wait_until(lambda: said(listener, name), "nobody is told of the question", 0.2)
        reviewed(ReviewResult(name, 2, 1, 0, None), ToBuyAgain(1, Decimal("0.0015")))
        wait_until(lambda: len(said(listener, name)) == 2, "nobody is told of the review", 0.2)
    assert said(listener, name) == [
        f"Batch {name} asks: buy 1 job for 0.0015 USD?",
        f"Batch {name} is reviewed: 2 kept, 1 job to buy again for 0.0015 USD",
    ]


def test_doubts_that_a_killed_run_left_and_files_that_a_check_rejects_are_told_by_the_next_run(
    prefect: PrefectServer, project: Callable[..., Project]
) -> None:
    rows = [{"id": name, "prompt": name, "model": "sketch-1"} for name in ("a", "b", "nothing")]
    made = project(rows, image_seconds=20, faults={"rules": [{"prompt": "nothing", "nth": 1, "do": "blank"}]})
    made.set(checks={"blank": "reject"}, limits={"concurrency": 2})
    [workspace] = made.backlot.service.workspaces.values()
    with subprocess.Popen([*CALLSHEET, "run", str(made.config)], stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: workspace.busy == 2, "not both are on the wire")
        process.kill()
    make_quick(made)
    ended = bought(made)
    assert ended.name == "InDoubt"
    assert asyncio.run(ended.aresult(raise_on_failure=False)).exit_code == 3, "as callsheet run"
    run = str(ended.state_details.flow_run_id)
    wait_until(lambda: len(events(prefect, run)) == 5, "not all events come", 1)
    doubts = [one for one in events(prefect, run) if one["event"] == "callsheet.job.in_doubt"]
    assert {one["payload"]["row_id"] for one in doubts} == {"a", "b"}
    assert {one["payload"]["reason"] for one in doubts} == {"the run ended before the answer came"}
    [told] = [one for one in events(prefect, run) if one["event"] == "callsheet.media.rejected"]
    [(key, url, decision)] = made.manifest().select("job_key", "url", "decision").iter_rows()
    assert decision == "rejected"
    assert told["resource"]["prefect.resource.id"] == f"callsheet.job.{key}"
    assert told["payload"] == {
        "batch": "test",
        "row_id": "nothing",
        "sample": 1,
        "index": 0,
        "url": url,
        "check": "blank",
        "flags": ["blank"],
    }


def test_a_collector_that_cannot_begin_for_an_hour_calls_a_webhook(crew: PrefectServer) -> None:
    collector = crew.deployment("collect-media/collector")
    of = {"flow_id": collector["flow_id"], "deployment_id": collector["id"], "parameters": {}}
    with serve(reply(204)) as listener:
        call(listener.url)
        for number in range(4):
            assert not said(listener, "collector"), f"after {number} that were cancelled"
            run = crew.post("flow_runs/", of)
            crew.post(f"flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLED"}})
        wait_until(lambda: said(listener, "No run of the collector could begin"), "nobody is told", 0.2)


def test_automations_are_made_renewed_and_left_switched_off_and_wait_for_their_block(
    crew: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "automations/mine.yaml"
    file.parent.mkdir()
    monkeypatch.chdir(tmp_path)

    def made(block: str, within: int = 120) -> list[str]:
        content = yaml.safe_load((ROOT / "automations/dead-runs.yaml").read_text())
        content["trigger"]["within"] = within
        content["actions"] = [{"type": "call-webhook", "block_document_id": block, "payload": "{}"}]
        file.write_text(yaml.safe_dump(content | {"name": tmp_path.name}))
        return asyncio.run(automations.make())

    [line] = made("nobody")
    assert line.startswith(
        "automations: mine.yaml is not made: the server has no Webhook block 'nobody'. Save"
    )
    Webhook(method="POST", url="http://127.0.0.1:9").save("somebody", overwrite=True)
    assert made("somebody") == [f"automations/mine.yaml: the automation {tmp_path.name} is made"]

    def on_server() -> dict[str, Any]:
        [automation] = [one for one in crew.ask("automations") if one["name"] == tmp_path.name]
        return automation

    first = on_server()
    assert made("somebody") == []
    assert on_server()["trigger"]["id"] == first["trigger"]["id"], "it goes on waiting for what it waits for"
    crew.request("PATCH", f"automations/{first['id']}", {"enabled": False})
    assert made("somebody", within=60) == [
        f"automations/mine.yaml: the automation {tmp_path.name} is as the file has it now"
    ]
    now = on_server()
    assert (now["id"], now["enabled"], now["trigger"]["within"]) == (first["id"], False, 60)
    file.write_text("[]")
    with pytest.raises(ConfigError, match=r"mine\.yaml: there is no automation in it"):
        asyncio.run(automations.make())


@pytest.mark.soak
def test_a_run_that_died_before_it_began_holds_no_slot_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a server with Prefect's defaults, which forgets its leases when it is started anew."""
    make_project(tmp_path / "studio")
    file = tmp_path / "studio/automations/not-begun.yaml"
    file.write_text(file.read_text().replace("within: 300", "within: 30"))
    monkeypatch.chdir(tmp_path / "studio")
    home, port = tmp_path / "prefect", free_port()

    def taken(server: PrefectServer, run: dict[str, Any]) -> str:
        """As a worker takes it; returns the state that it comes into."""
        pending = {"state": {"type": "PENDING"}}
        return str(server.post(f"flow_runs/{run['id']}/set_state", pending)["state"]["name"])

    with prefect_server(home, port) as server:
        command = [sys.executable, "-m", "flows.deployments"]
        subprocess.run(command, env=server.environment, check=True, capture_output=True)
        for tag in ("dies", "waits"):
            server.start("collect-media/collector", tag=tag, config="configs/example.yaml")
        assert taken(server, server.run("dies")) == "Pending"
        assert taken(server, server.run("waits")) == "Cancelled"
    with prefect_server(home, port) as server:
        assert server.ended("dies")["state"]["name"] == "Crashed"
        server.start("collect-media/collector", tag="begins", config="configs/example.yaml")
        assert taken(server, server.run("begins")) == "Pending"


@pytest.mark.soak
def test_a_run_whose_process_is_gone_becomes_crashed(
    prefect: PrefectServer, project: Callable[..., Project]
) -> None:
    """Nobody is left who could say so: not even a worker. `callsheet up` has made the automation."""
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(300)]
    made = project(rows, image_seconds=2, concurrency=2)
    made.set(batch=made.folder.name)
    made.at_absolute_paths()
    with subprocess.Popen(
        [sys.executable, "-m", "flows.generate", str(made.config)],
        cwd=ROOT,
        env=os.environ | {"PREFECT_API_URL": prefect.api, "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"},
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(lambda: list(made.folder.glob("out/media/**/*.jpeg")), "nothing is stored")
        process.kill()
    run = prefect.ended(f"batch:{made.folder.name}")
    assert (run["state"]["type"], run["state"]["name"]) == ("CRASHED", "Crashed")
    assert "buys nothing twice" in run["state"]["message"]


# ---- schedules fire, on every day of a year


@contextmanager
def scheduled(server: PrefectServer, deployment: str, **parameters: Any) -> Iterator[str]:
    """Within it, a deployment has a schedule of one minute with these parameters; yields its id.

    It is switched on from the beginning: what switches a schedule on later takes its parameters away.
    """
    path = f"deployments/{server.deployment(deployment)['id']}/schedules"
    soon = datetime.now(UTC) + timedelta(seconds=10)
    every = {"interval": 60, "anchor_date": soon.isoformat(), "timezone": "UTC"}
    [made] = server.post(path, [{"schedule": every, "active": True, "parameters": parameters}])
    try:
        yield made["id"]
    finally:
        server.request("DELETE", f"{path}/{made['id']}")


@pytest.mark.soak
def test_a_schedule_of_one_minute_buys_a_batch_and_goes_on_where_its_last_run_was_killed(
    the_up: Up, crew: PrefectServer, project: Callable[..., Project]
) -> None:
    """Nobody starts a run: the server plans it, and the worker of `callsheet up` carries it out.

    Of a run that is killed the worker says what it has left, also in the terminal; the next one buys the
    rest, and is red for the doubt about what was on the wire.
    """
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(4)]
    made = project(rows, image_seconds=3)
    made.set(batch=made.folder.name, limits={"concurrency": 1})
    made.at_absolute_paths()
    tag = f"batch:{made.folder.name}"

    def ended(state: str) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            of_state = {"state": {"type": {"any_": [state]}}, "tags": {"all_": [tag]}}
            return [run for run in crew.ask("flow_runs", flow_runs=of_state) if " stored, " in run["name"]]

        wait_until(found, f"no run becomes {state}", 1)
        return found()[0]

    with scheduled(crew, "generate-batch/nightly", config=str(made.config)):
        wait_until(lambda: list(made.folder.glob("out/media/**/*.jpeg")), "no schedule fires", 0.2)
        with sqlite3.connect(made.folder / "out/ledger.db") as ledger:
            [(process,)] = ledger.execute("SELECT pid FROM runs")
        os.kill(process, signal.SIGKILL)
        killed = ended("CRASHED")
        of_next = ended("FAILED")
    assert re.fullmatch(
        rf"{made.folder.name}: killed, \d of 4 stored(, \d in doubt)?, 0.00\d+ USD", killed["name"]
    )
    wait_until(lambda: "Run the batch again" in str(crew.now(killed)["state"]["message"]), "no word", 1)
    wait_until(lambda: f"{made.folder.name}: 4 jobs: " in the_up.text, the_up.text, 0.3)
    page = crew.artifacts(killed)[f"costs-{made.folder.name}".replace("_", "-")]
    for words in ("the process of the run was killed", "A run of the deployment nightly goes on from here"):
        assert words.replace("_", "\\_") in page
    assert (of_next["state"]["name"], of_next["auto_scheduled"]) == ("InDoubt", True)
    assert made.report()["stored"] == 3
    assert len(made.sold) == 4, "nothing is bought twice"


def test_a_scheduled_night_waits_for_a_service_that_is_down_and_buys_once_it_is_back(
    crew: PrefectServer, project: Callable[..., Project]
) -> None:
    made = project(images(2))

    def nights() -> list[dict[str, Any]]:
        begun = {"tags": {"all_": [f"batch:{made.folder.name}"]}}
        return list(crew.ask("flow_runs", flow_runs=begun))

    def waits() -> bool:
        return any("waits for the service" in str(run["state"]["message"]) for run in nights())

    with ReverseProxy(made.backlot.base_url) as proxy:
        made.set(batch=made.folder.name, service={"base_url": proxy.url})
        made.at_absolute_paths()
        proxy.stop()
        with scheduled(crew, "generate-batch/nightly", config=str(made.config)):
            wait_until(waits, "no night says that it waits", 1)
        assert not made.sold
        proxy.start()
        wait_until(lambda: all(run["state"]["type"] == "COMPLETED" for run in nights()), "it does not end", 1)
    assert all(run["auto_scheduled"] for run in nights())
    assert len(made.sold) == made.report()["stored"] == 2


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_the_nightly_schedule_fires_once_on_each_day_of_a_year(crew: PrefectServer, zone: str) -> None:
    """Also on the day that has no two o'clock, and on the day that has it twice."""
    [nightly] = crew.deployment("generate-batch/nightly")["schedules"]
    schedule = CronSchedule.model_validate(nightly["schedule"] | {"timezone": zone})
    start = datetime(2027, 1, 1, tzinfo=ZoneInfo(zone))
    dates = asyncio.run(schedule.get_dates(365, start=start))
    days = [date.astimezone(ZoneInfo(zone)).date() for date in dates]
    assert days == [(start + timedelta(days=n)).date() for n in range(365)]
    hours = {date.astimezone(ZoneInfo(zone)).hour for date in dates}
    assert hours in ({1, 2}, {2, 3}), "two o'clock; by the version of Python one or three where there is none"
