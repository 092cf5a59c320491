"""`callsheet up`: one command to the Prefect UI, which ends what it has started, and nothing else."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
import yaml

from callsheet.cli.project import make_project
from callsheet.errors import ConfigError, ProcessEnded
from tests.cli.test_commands import callsheet, refused
from tests.servers import http
from tests.servers.prefect import ROOT, PrefectServer, free_port
from tests.servers.up import READY, Up, up
from tests.waiting import LONGEST, wait_until


def all_end(processes: list[psutil.Process]) -> None:
    wait_until(lambda: not psutil.wait_procs(processes, timeout=0.1)[1], f"left behind: {processes}")


@contextmanager
def other_program() -> Iterator[str]:
    """A web server that is neither Prefect's nor a backlot; yields its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield str(server.server_address[1])
        server.shutdown()


def a_project(folder: Path, *, pool: str = "crew", rows: int = 3) -> Path:
    """A folder with a batch, and a `prefect.yaml` of one deployment, `mine`, that is switched off."""
    make_project(folder)
    prompts = "".join(f"s{n},image {n},sketch-1\n" for n in range(rows))
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


def ask(path: str, content: Any = None, of: str = "") -> Any:
    return http.post(f"{of}/{path}", json=content or {}, timeout=LONGEST).raise_for_status().json()


def deployment(api: str, name: str) -> Any:
    return http.get(f"{api}/deployments/name/generate-batch/{name}").raise_for_status().json()


def start(api: str, name: str) -> str:
    """Starts a run of a deployment, as the UI does; returns its id."""
    path = f"deployments/{deployment(api, name)['id']}/create_flow_run"
    return str(ask(path, {"parameters": {"config": "batch.yaml"}}, of=api)["id"])


def state(api: str, run: str) -> str:
    answer = http.get(f"{api}/flow_runs/{run}", timeout=LONGEST).raise_for_status().json()
    return str(answer["state"]["name"])


def stored(folder: Path) -> int:
    """How many jobs a stopped run has stored; there is none in another state but planned."""
    costs = pl.read_parquet(folder / f"out/{folder.name}/report/costs.parquet")
    assert set(costs["state"]) == {"stored"}
    assert pl.read_parquet(folder / f"out/{folder.name}/report/manifest.parquet").height == costs.height
    return costs.height


@dataclass
class Studio:
    """A running `up --backlot`, where it is, and the environment in which it was started."""

    up: Up
    folder: Path
    port: int
    environment: dict[str, str]

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.environment['BACKLOT_PORT']}"


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    folder = tmp_path_factory.mktemp("up")
    environment = {
        "PREFECT_HOME": str(folder / "prefect"),
        "BACKLOT_PORT": str(free_port()),
        "BACKLOT_IMAGE_SECONDS": "0.5",
    }
    mine = a_project(folder / "mine", rows=400)
    port = free_port()
    with up(mine, "--port", str(port), "--backlot", **environment) as running:
        running.until(READY)
        yield Studio(running, mine, port, environment)


def test_one_command_starts_the_ui_the_deployments_a_worker_and_a_backlot(
    the_up: Up, crew: PrefectServer
) -> None:
    """Here the one that all tests use: its worker carries out the runs of theirs."""
    backlot = f"http://127.0.0.1:{the_up.environment['BACKLOT_PORT']}"
    names = [each["name"] for each in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]]
    for words in (f"{backlot} with the key sk_backlot", f"/deployments  ({', '.join(names)})"):
        assert words in the_up.text
    known = http.get(f"{backlot}/v2/models", headers={"Authorization": "Bearer sk_backlot"})
    assert known.is_success
    page = crew.api.removesuffix("/api")
    assert "<div id=" in http.get(page, headers={"Accept": "text/html"}, follow_redirects=True).text
    settings = http.get(f"{page}/ui-settings").json()
    assert (settings["api_url"], settings["default_ui"]) == (crew.api, "v1"), "the other one sends usage data"
    [home] = Path(the_up.environment["PREFECT_HOME"]).glob("callsheet/ui")
    assert list(home.iterdir()), "its installation may be another user's"


@pytest.mark.soak
def test_a_server_that_runs_already_is_used_and_lives_on_when_all_else_is_gone(
    studio: Studio, tmp_path: Path
) -> None:
    """Even SIGKILL leaves no process behind; a run at work stops in order."""
    other = a_project(tmp_path / "other", pool="others", rows=400)
    service = {"CALLSHEET_BASE_URL": studio.base_url, "CALLSHEET_API_KEY": "sk_backlot"}
    home = {"PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_API_URL": studio.api}
    with up(other, **home, **service) as running:
        running.until(READY)
        assert "(the server ran already)" in running.text
        run = start(studio.api, "other")
        wait_until(lambda: list(other.glob("out/media/**/*.jpeg")), running.text)
        processes = running.family()
        running.process.kill()
        all_end(processes)
    assert state(studio.api, run) == "BrokenOff"
    assert 0 < stored(other) < 400


@pytest.mark.soak
def test_ctrl_c_ends_all_that_it_has_started_after_the_runs_at_work(studio: Studio) -> None:
    """The last test of the server: the same command would go on from here."""
    run = start(studio.api, "mine")
    wait_until(lambda: list(studio.folder.glob("out/media/**/*.jpeg")), studio.up.text)
    assert state(studio.api, run) == "Running"
    processes = studio.up.family()
    assert len(processes) >= 5  # the server, the backlot, the worker, what ends it in order, and the run
    studio.up.process.send_signal(signal.SIGINT)
    assert studio.up.ended() == 0, studio.up.text
    all_end(processes)
    assert 0 < stored(studio.folder) < 400
    [log] = Path(studio.environment["PREFECT_HOME"]).glob("callsheet/*/*/worker.log")
    assert "Finished in state BrokenOff" in log.read_text()
    assert "Traceback" not in studio.up.text


def test_a_worker_that_dies_is_reported_with_the_errors_of_its_log(tmp_path: Path) -> None:
    from flows import servers as parts

    lines = ("12:00:00.000 | INFO    | worker - fine", "12:00:01.000 | ERROR   | Flow run 'x' - in doubt", "")
    (tmp_path / parts.WORKER_LOG).write_text("\n".join(lines))
    shown: list[str] = []

    async def stay() -> None:
        server, worker = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", "input(); raise SystemExit(3)", stdin=asyncio.subprocess.PIPE
            )
            for _ in range(2)
        ]
        working = parts.unless_they_end(server, worker, tmp_path, show=shown.append)
        staying = asyncio.ensure_future(working)
        try:
            while not shown:  # noqa: ASYNC110 - it is told by a file
                await asyncio.sleep(0.01)
            assert worker.stdin
            worker.stdin.write(b"\n")
            await staying
        finally:
            server.kill()
            await server.wait()

    with pytest.raises(
        ProcessEnded, match="the Prefect worker has ended by itself, with exit code 3"
    ) as error:
        asyncio.run(stay())
    assert shown == ["12:00:01.000 | ERROR   | Flow run 'x' - in doubt"]
    assert str(tmp_path) in error.value.hint
    assert error.value.exit_code == 4


def test_outside_of_a_project_it_says_where_to_go_or_how_to_make_one(tmp_path: Path) -> None:
    refused(callsheet("up", cwd=tmp_path), "no folder of a Callsheet project", "callsheet init --project")


def test_a_project_is_not_written_over_another(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    refused(callsheet("init", "--project", str(tmp_path)), "already there; nothing was written")
    assert [file.name for file in tmp_path.iterdir()] == ["flows"]


@pytest.mark.parametrize("content", ["deployments: []", "[1", "name: x", "deployments: [{name: x}]"])
def test_a_prefect_yaml_without_deployments_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    from flows.deployments import in_this_folder

    (tmp_path / "prefect.yaml").write_text(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"prefect\.yaml: "):
        in_this_folder()


@pytest.mark.soak
def test_a_port_that_another_program_has_is_an_error(tmp_path: Path) -> None:
    mine = a_project(tmp_path / "mine")
    home = {"PREFECT_HOME": str(tmp_path / "prefect")}
    with other_program() as port:
        with up(mine, "--port", port, **home) as running:
            assert running.ended() == 2
        for words in (f"port {port} of this machine", "Another program has it", "CALLSHEET_BASE_URL"):
            assert words in running.text
        with up(mine, "--backlot", **home, BACKLOT_PORT=port) as running:
            assert running.ended() == 2
        assert f"another program listens at http://127.0.0.1:{port}" in running.text
        assert "Traceback" not in running.text
