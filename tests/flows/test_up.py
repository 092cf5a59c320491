"""`callsheet up`: one command to the Prefect UI, which ends what it has started, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import polars as pl
import psutil
import pytest
import yaml

from callsheet.cli.init import make_project
from callsheet.errors import ConfigError, ProcessEnded
from flows import reach_this_machine_without_proxy, servers
from flows.deployments import deploy, in_this_folder
from flows.up import _backlot, _logs
from tests.cli.test_commands import callsheet, refused
from tests.servers import http
from tests.servers.forks import forks
from tests.servers.prefect import READY, ROOT, PrefectServer, Up, free_port, up
from tests.servers.sockets import reply, serve
from tests.waiting import wait_until


def all_end(processes: list[psutil.Process]) -> None:
    wait_until(lambda: not psutil.wait_procs(processes, timeout=0.1)[1], f"left behind: {processes}")


def a_project(folder: Path, *, pool: str = "crew") -> Path:
    """A folder with a batch, and a `prefect.yaml` of one deployment of its name, that is switched off."""
    make_project(folder)
    prompts = "".join(f"s{n},image {n},sketch-1\n" for n in range(400))
    (folder / "prompts.csv").write_text("id,prompt,model\n" + prompts)
    report = {"contact_sheet": 0, "plots": False}
    config = {"batch": folder.name, "service": {"base_url": "${CALLSHEET_BASE_URL}"}, "report": report}
    (folder / "batch.yaml").write_text(yaml.safe_dump(config | {"input": {"path": "prompts.csv"}}))
    content = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    [by_hand] = [each for each in content["deployments"] if each["name"] == "by-hand"]
    mine = by_hand | {"name": folder.name, "schedules": [{"cron": "0 3 * * *", "active": False}]}
    mine["work_pool"]["name"] = pool
    (folder / "prefect.yaml").write_text(yaml.safe_dump(content | {"deployments": [mine]}))
    return folder


def stored(folder: Path) -> int:
    """How many jobs a stopped run has stored; there is none in another state but planned."""
    costs = pl.read_parquet(folder / f"out/{folder.name}/report/costs.parquet")
    assert set(costs["state"]) == {"stored"}
    assert pl.read_parquet(folder / f"out/{folder.name}/report/manifest.parquet").height == costs.height
    return costs.height


@dataclass
class Studio:
    """A running `up --backlot` in a project, and its server."""

    up: Up
    folder: Path
    server: PrefectServer


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    folder, port = tmp_path_factory.mktemp("up"), free_port()
    environment = {
        "PREFECT_HOME": str(folder / "prefect"),
        "BACKLOT_PORT": str(free_port()),
        "BACKLOT_IMAGE_SECONDS": "0.5",
    }
    mine = a_project(folder / "mine")
    with up(mine, "--port", str(port), "--backlot", **environment) as running:
        running.until(READY)
        yield Studio(running, mine, PrefectServer(f"http://127.0.0.1:{port}/api", {}))


def test_one_command_starts_the_ui_the_deployments_a_worker_and_a_backlot(
    the_up: Up, crew: PrefectServer
) -> None:
    """Here the one that all tests use: its worker carries out the runs of theirs."""
    backlot = f"http://127.0.0.1:{the_up.environment['BACKLOT_PORT']}"
    names = [each["name"] for each in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]]
    ui = f"{crew.api.removesuffix('/api')}/v2"
    for words in (f"{backlot} with the key sk_backlot", f"{ui}/deployments?limit=25  ({', '.join(names)})"):
        assert words in the_up.text
    wait_until(lambda: "The deployment inbox: inbox: there is no such folder" in the_up.text, the_up.text)
    known = http.get(f"{backlot}/v2/models", headers={"Authorization": "Bearer sk_backlot"})
    assert known.is_success
    page = crew.api.removesuffix("/api")
    opened = http.get(page, headers={"Accept": "text/html"}, follow_redirects=True)
    assert opened.url.path.startswith("/v2"), "the one that Prefect opens"
    assert "<div id=" in opened.text
    sends_usage_data = crew.get("admin/settings")["server"]["analytics_enabled"]
    assert not sends_usage_data
    settings = http.get(f"{page}/ui-settings").json()
    assert (settings["api_url"], settings["default_ui"]) == (crew.api, "v2")
    [home] = Path(the_up.environment["PREFECT_HOME"]).glob("callsheet/ui")
    assert list(home.iterdir()), "its installation may be another user's"


@pytest.mark.soak
def test_a_server_that_runs_already_is_used_and_lives_on_when_all_else_is_gone(
    studio: Studio, tmp_path: Path
) -> None:
    """Even SIGKILL leaves no process behind; a run at work stops in order."""
    other = a_project(tmp_path / "other", pool="others")
    base_url = f"http://127.0.0.1:{studio.up.environment['BACKLOT_PORT']}"
    service = {"CALLSHEET_BASE_URL": base_url, "CALLSHEET_API_KEY": "sk_backlot"}
    home = {"PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_API_URL": studio.server.api}
    with up(other, **home, **service) as running:
        running.until(READY)
        ui = f"{studio.server.api.removesuffix('/api')}/v2"
        for words in (f"UI         {ui}  (the server ran already)", f"{ui}/deployments?limit=25"):
            assert words in running.text
        studio.server.start("generate-batch/other", tag="other", config="batch.yaml")
        wait_until(lambda: list(other.glob("out/media/**/*.jpeg")), running.text)
        processes = running.family()
        running.process.kill()
        all_end(processes)
    assert studio.server.run("other")["state"]["name"] == "BrokenOff"
    assert 0 < stored(other) < 400


@pytest.mark.soak
def test_ctrl_c_ends_all_that_it_has_started_after_the_runs_at_work(studio: Studio) -> None:
    """The last test of the server: the same command would go on from here."""
    studio.server.start("generate-batch/mine", tag="mine", config="batch.yaml")
    wait_until(lambda: list(studio.folder.glob("out/media/**/*.jpeg")), studio.up.text)
    assert studio.server.run("mine")["state"]["name"] == "Running"
    processes = studio.up.family()
    assert len(processes) >= 4  # the server, the backlot, the worker, and the run
    studio.up.process.send_signal(signal.SIGINT)
    assert studio.up.ended() == 0, studio.up.text
    all_end(processes)
    assert 0 < stored(studio.folder) < 400
    [log] = Path(studio.up.environment["PREFECT_HOME"]).glob("callsheet/*/worker.log")
    assert "Finished in state BrokenOff" in log.read_text()
    assert "Traceback" not in studio.up.text


@pytest.mark.soak
@pytest.mark.parametrize("victim", ["flows.own_worker", "flows.servers", "flows.up"])
def test_whatever_is_killed_leaves_no_process_behind_and_no_answer_unrecorded(
    tmp_path: Path, victim: str
) -> None:
    """The run stops in order by itself where nobody is left who could tell it."""
    mine, port = a_project(tmp_path / "mine"), free_port()
    environment = {"PREFECT_HOME": str(tmp_path / "prefect"), "BACKLOT_PORT": str(free_port())}
    slow = {"BACKLOT_IMAGE_SECONDS": "3"}
    with up(mine, "--port", str(port), "--backlot", **environment, **slow) as running:
        running.until(READY)
        server = PrefectServer(f"http://127.0.0.1:{port}/api", {})
        server.start("generate-batch/mine", tag="mine", config="batch.yaml")
        wait_until(lambda: list(mine.glob("out/media/**/*.jpeg")), running.text)
        processes = running.family()
        [killed] = [
            process
            for process in (psutil.Process(running.process.pid), *processes)
            if victim in " ".join(process.cmdline())
        ]
        killed.kill()
        all_end(processes)
        assert running.ended() != 0
    states = {*pl.read_parquet(mine / "out/mine/report/costs.parquet")["state"]}
    assert "stored" in states
    assert states <= {"stored", "generated", "in_doubt"}, "the backlot ends with `up`, which has started it"
    with up(mine, "--port", str(port), **environment) as running:
        running.until(READY)
        ended = server.ended("mine")["state"]["name"]
    assert ended == ("BrokenOff" if victim == "flows.own_worker" else "Crashed"), (
        "the server was needed for it"
    )


@pytest.mark.soak
@pytest.mark.parametrize("moment", ["prefect.runner._workspace_supervisor", "prefect.engine"])
def test_a_run_in_its_first_seconds_ends_in_order_with_its_worker(
    crew: PrefectServer, tmp_path: Path, moment: str
) -> None:
    folder = a_project(tmp_path / "young", pool="young")
    environment = crew.environment | {"CALLSHEET_BASE_URL": "http://127.0.0.1:9", "CALLSHEET_API_KEY": "sk_x"}
    command = [sys.executable, "-m", "flows.deployments"]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    command = [sys.executable, "-m", "flows.own_worker", "--pool", "young", "--type", "process"]
    with (tmp_path / "worker.log").open("w") as log:
        worker = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.PIPE, stderr=log)
    crew.start("generate-batch/young", tag=moment, config="batch.yaml")

    def has_begun() -> bool:
        with suppress(psutil.Error):  # a child has ended just now
            runs = psutil.Process(worker.pid).children()
            return any(moment in " ".join(run.cmdline()) for run in runs)
        return False

    try:
        wait_until(has_begun, "the run never begins", 0.01)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait()  # with its stdin open, whose end would tell it a second time
    ended = crew.run(moment)
    crew.request("DELETE", f"deployments/{crew.deployment('generate-batch/young')['id']}")
    assert ended["state"]["name"] == "BrokenOff", ended["state"]
    assert ended["state"]["message"].startswith("stopped by SIGTERM")


def test_a_worker_that_dies_is_reported_with_the_errors_of_its_log(tmp_path: Path) -> None:
    lines = (
        "12:00:00.000 | INFO    | worker - fine",
        "12:00:00.500 | ERROR   | Task run 'read' - in doubt",  # the flow run says the same
        "12:00:01.000 | ERROR   | Flow run 'x' - in doubt",
        "",
    )
    (tmp_path / servers.WORKER_LOG).write_text("\n".join(lines))
    shown: list[str] = []

    async def stay() -> None:
        worker = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(3)")
        await servers.stay(None, worker, tmp_path, show=shown.append)

    with pytest.raises(
        ProcessEnded, match="the Prefect worker has ended by itself, with exit code 3"
    ) as error:
        asyncio.run(stay())
    assert shown == ["12:00:01.000 | ERROR   | Flow run 'x' - in doubt"]
    assert str(tmp_path) in error.value.hint
    assert error.value.exit_code == 4


def test_a_second_up_leaves_what_a_person_has_set_and_takes_what_has_changed_in_the_file(
    crew: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = a_project(tmp_path / "studio")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def deployed() -> list[str]:
        named, _ = in_this_folder()
        return asyncio.run(deploy(named, crew.environment))

    def in_file(**changed: object) -> None:
        content = yaml.safe_load((folder / "prefect.yaml").read_text())
        content["deployments"][0] |= changed
        (folder / "prefect.yaml").write_text(yaml.safe_dump(content))

    def now() -> tuple[list[tuple[str, bool, dict[str, str]]], dict[str, str]]:
        there = crew.deployment("generate-batch/studio")
        schedules = [
            (each["schedule"]["cron"], each["active"], each["parameters"]) for each in there["schedules"]
        ]
        return schedules, there["parameters"]

    assert deployed() == []
    path = f"deployments/{crew.deployment('generate-batch/studio')['id']}"
    [schedule] = crew.deployment("generate-batch/studio")["schedules"]
    cron = {"cron": "30 4 * * *", "timezone": "Europe/Berlin"}
    by_hand = {"schedule": cron, "active": True, "parameters": {"approved": True}}
    mine = {"config": "batch.yaml", "first": 3}
    for at, change in ((f"{path}/schedules/{schedule['id']}", by_hand), (path, {"parameters": mine})):
        crew.request("PATCH", at, change)
    set_by_a_person = [("30 4 * * *", True, {"approved": True})]

    in_file(parameters={"config": "configs/example.yaml", "crew": 2})
    assert deployed() == ["studio: parameter crew is as prefect.yaml has it now: 2"]
    assert now() == (set_by_a_person, mine | {"crew": 2})

    in_file(schedules=[{"cron": "0 5 * * *", "active": True}])
    command = [sys.executable, "-m", "flows.deployments"]
    environment = crew.environment | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()[0]
    assert said == "studio: schedules are as prefect.yaml has them now: 0 5 * * * UTC, switched on", (
        done.stderr
    )
    assert now() == ([("0 5 * * *", True, {})], mine | {"crew": 2})
    crew.request("DELETE", path)


def test_outside_of_a_project_it_says_where_to_go_or_how_to_make_one(tmp_path: Path) -> None:
    refused(callsheet("up", cwd=tmp_path), "no folder of a Callsheet project", "callsheet init --project")


def test_authorities_that_are_not_there_are_named_before_prefect_fails_on_them(tmp_path: Path) -> None:
    missing = {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
    said = f"SSL_CERT_FILE names {tmp_path / 'ca.pem'}, which is not there"
    folder = a_project(tmp_path / "project")
    refused(callsheet("up", "--port", str(free_port()), cwd=folder, **missing), said)
    by_hand = forks().run("-m", "flows.generate", "batch.yaml", cwd=folder, env=os.environ | missing)
    assert by_hand.returncode == 2
    assert said in by_hand.stderr


@pytest.mark.parametrize("words", [("flows.deployments",), ("flows.generate", "batch.yaml")])
def test_a_server_that_is_not_there_is_said_in_words(tmp_path: Path, words: tuple[str, ...]) -> None:
    folder, api = a_project(tmp_path / "project"), f"http://127.0.0.1:{free_port()}/api"
    environment = os.environ | {"PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_API_URL": api}
    done = forks().run("-m", *words, cwd=folder, env=environment)
    assert done.returncode == 2
    assert f"the Prefect server at {api} fails" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_project_is_not_written_over_another(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    refused(callsheet("init", "--project", str(tmp_path)), "already there; nothing was written")
    assert [file.name for file in tmp_path.iterdir()] == ["flows"]


def test_logs_are_new_files_of_this_user_whatever_is_there(tmp_path: Path) -> None:
    (tmp_path / f"{os.getpid()}").symlink_to("elsewhere")
    folders = [_logs(tmp_path) for _ in range(2)]
    assert len({*folders}) == 2
    assert [(folder.stat().st_mode & 0o777, [*folder.iterdir()]) for folder in folders] == [(0o700, [])] * 2
    assert not (tmp_path / "elsewhere").exists()


def test_a_backlot_that_cannot_listen_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKLOT_HOST", "::1")
    with (
        pytest.raises(ConfigError, match="cannot listen on ::1 port"),
        _backlot(tmp_path / "backlot.log"),
    ):
        pass


@pytest.mark.parametrize("content", ["deployments: []", "[1", "name: x", "deployments: [{name: x}]"])
def test_a_prefect_yaml_without_deployments_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (tmp_path / "prefect.yaml").write_text(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"prefect\.yaml: "):
        in_this_folder()


@pytest.mark.soak
def test_a_port_that_another_program_has_is_an_error(tmp_path: Path) -> None:
    mine = a_project(tmp_path / "mine")
    home = {"PREFECT_HOME": str(tmp_path / "prefect")}
    with serve(reply(501)) as other:
        port = other.url.rpartition(":")[2]
        with up(mine, "--port", port, **home) as running:
            assert running.ended() == 2
        for words in (f"port {port} of this machine", "Another program has it"):
            assert words in running.text
        with up(mine, "--backlot", **home, BACKLOT_PORT=port) as running:
            assert running.ended() == 2
        assert f"cannot listen on 127.0.0.1 port {port}" in running.text
        assert "Traceback" not in running.text


@pytest.mark.soak
def test_an_address_of_a_server_that_cannot_be_one_is_an_error(tmp_path: Path) -> None:
    api = "http://127.0.0.1:99999/api"
    with up(
        a_project(tmp_path / "mine"), PREFECT_HOME=str(tmp_path / "prefect"), PREFECT_API_URL=api
    ) as running:
        assert running.ended() == 2
    assert f"the Prefect server at {api} does not answer" in running.text
    assert "Traceback" not in running.text


@pytest.mark.parametrize("unreadable", ["", "fd07::/64", "::1/128", "[::1]", "[fd07::1]:443"])
def test_prefects_client_reaches_this_machine_directly_whatever_no_proxy_says(
    unreadable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is httpx's, which raises InvalidURL on a network of IPv6 and on brackets."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # where nothing answers
    for name in "NO_PROXY", "no_proxy":
        monkeypatch.setenv(name, f"{unreadable}, 10.0.0.0/8,*.test,fd07::1")
    reach_this_machine_without_proxy()
    with serve(reply(200, b"{}")) as server, httpx.Client() as client:
        assert client.get(server.url).status_code == 200
    written = os.environ["NO_PROXY"]
    assert written == "10.0.0.0/8,*.test,fd07::1,localhost,127.0.0.1,::1"
    reach_this_machine_without_proxy()
    assert os.environ["NO_PROXY"] == os.environ["no_proxy"] == written, "a second time changes nothing"
