"""The command: flags, variables, the config file, and its messages."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from backlot.catalogue import read_catalogue
from backlot.cli import app
from backlot.errors import SettingsError
from backlot.server import serve
from backlot.settings import Settings, read_settings
from tests.servers import http
from tests.waiting import runs, wait_until

from .conftest import balance, client, make_image

FLAGS = (
    "--host --port --state --api-key --image-rpm --video-rpm --concurrency --window --balance "
    "--image-seconds --video-seconds --media-ttl --seed --faults --config"
)


def test_help_explains_every_option_with_its_default() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert CliRunner().invoke(app, ["-h"], env={"COLUMNS": "200"}).output == shown.output
    assert all(flag in shown.output for flag in FLAGS.split())
    assert all(f"(default: {default})" in shown.output for default in (8400, "sk_backlot", 600, "100.0000"))


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_file(tmp_path: Path) -> None:
    """An empty variable is not set: an empty state folder would otherwise be the current folder."""
    config = tmp_path / "backlot.yaml"
    config.write_text('balance: "1.5000"\nseed: 1\nwindow: 1\nsafety: {words: [teapot]}\n')
    environ = {"BACKLOT_SEED": "2", "BACKLOT_WINDOW": "2", "BACKLOT_CONFIG": str(config), "OTHER": "x"}
    settings = read_settings(None, {"window": 3}, environ)
    assert (settings.balance, settings.seed, settings.window) == (Decimal("1.5000"), 2, 3)
    assert settings.safety.words == ("teapot",)
    empty = {"BACKLOT_STATE": "", "BACKLOT_CONFIG": "", "BACKLOT_SEED": ""}
    assert read_settings(None, {}, empty) == Settings()


@pytest.mark.parametrize(
    ("config", "environ", "complaint"),
    [
        ("colour: red", {}, "backlot.yaml: colour: unknown key"),
        ("balance: 1.5", {}, "in quotes"),
        ("window: 0", {}, "backlot.yaml: window"),
        ("", {}, "expected keys and values"),
        (None, {}, "backlot.yaml: no such file or directory"),
        ("port: 1\n\tseed: 2", {}, "backlot.yaml, line 2: is not valid YAML"),
        ("just text", {}, "expected keys and values"),
        ("seed: x", {}, r"seed: .*\(it is 'x'\)"),
        (f"seed: {2**63}", {}, "seed: Input should be less than"),
        ("{}", {"BACKLOT_BALANCE": "0.00001"}, "the environment: balance"),
        ("{}", {"BACKLOT_API_KEY": "secret"}, "the environment: api_key: an API key looks like sk_"),
        ("dashboard_host: 'box:8400'", {}, "dashboard_host"),
        ("workspaces: {a: {projects: {p: [sk_1], q: [sk_1]}}}", {}, "two projects"),
        ("workspaces: {a: {}}", {}, "workspaces.a.projects"),
    ],
)
def test_a_wrong_setting_or_file_names_its_source_and_key(
    tmp_path: Path, config: str | None, environ: dict[str, str], complaint: str
) -> None:
    """In one line."""
    path = tmp_path / "backlot.yaml"
    if config is not None:
        path.write_text(config)
    with pytest.raises(SettingsError, match=complaint) as error:
        read_settings(path, {}, environ)
    assert "\n" not in str(error.value)


def test_a_wrong_catalogue_names_the_file_and_the_key(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    model = "id: m, name: M, type: image, supported_aspect_ratios: ['1:1']"
    for more, complaint in (
        ("", "0.supported_resolutions: is missing"),
        (", supported_resolutions: [.K]", "0.supported_resolutions.0: String should match"),
        (", supported_resolutions: [1K]", "has no rate, listed or not, for 1K"),
    ):
        path.write_text(f"- {{{model}{more}}}")
        with pytest.raises(SettingsError, match=f"{path}: .*{complaint}"):
            read_catalogue(path)


def test_a_config_can_have_workspaces_and_a_catalogue(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(
        "- {id: m, name: M, type: image, supported_aspect_ratios: ['1:1'], supported_resolutions: [1K], "
        "rates: [{resolution: 1K, sound: not_applicable, unit_price: '0.0007'}]}"
    )
    (tmp_path / "backlot.yaml").write_text(
        f"port: 0\nimage_seconds: 0\ncatalogue: {tmp_path / 'models.yaml'}\n"
        'workspaces: {one: {balance: "0.0010", projects: {p: [sk_1]}}, two: {projects: {p: [sk_2]}}}'
    )
    with serve(read_settings(tmp_path / "backlot.yaml", {}, {})) as running:
        one, two = (client(running.base_url, key) for key in ("sk_1", "sk_2"))
        assert make_image(one, model="m").json()["usage"]["total_cost"] == 0.0007
        assert [make_image(api, model="m").status_code for api in (one, two)] == [402, 402]


def test_the_command_prints_two_lines_and_ends_without_an_error() -> None:
    command = [sys.executable, "-m", "backlot", "--port", "0", "--api-key", "sk_mine", "--balance", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline() if process.stdout else ""
    announced = re.fullmatch(
        r"The backlot listens at (http://127\.0\.0\.1:\d+) with the key sk_mine \(.*\)\n", line
    )
    assert announced
    dashboard = process.stdout.readline() if process.stdout else ""
    assert dashboard.startswith(f"Dashboard: {announced[1]}/sign-in?token=")
    assert http.get(dashboard.removeprefix("Dashboard: ").strip()).status_code == 200
    api = client(announced[1], "sk_mine")
    assert balance(api) == "2.0000"
    assert api.get(make_image(api, model="sketch-1").json()["data"][0]["url"]).status_code == 200
    host, _, port = announced[1].removeprefix("http://").partition(":")
    with socket.create_connection(
        (host, int(port))
    ) as connection:  # a client that disconnects is not an error
        connection.sendall(
            b"POST /v2/images/generations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk_mine\r\n"
            b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
    assert api.get("/v2/models").status_code == 200
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (0, "", "")


PARENT = """
import sys, time, httpx
from backlot.server import spawn
with spawn() as (address, process):
    try:
        print(process.pid, flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        time.sleep(0.5)
        print(httpx.get(address + "/openapi.json").status_code, flush=True)
        raise
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_spawned_server_ends_with_its_parent_and_not_before(how: signal.Signals) -> None:
    """A terminal sends Ctrl-C to the whole process group; the parent may still need the server then."""
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout
        server = psutil.Process(int(parent.stdout.readline()))
        os.killpg(parent.pid, how)
        output = parent.stdout.read()
    assert output == ("200\n" if how == signal.SIGINT else "")
    wait_until(lambda: not runs(server), "the server has not ended")


def test_a_port_that_is_in_use_is_an_error_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["--port", str(port)])
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in result.output


def test_a_state_folder_that_cannot_be_used_is_an_error_in_one_line(tmp_path: Path) -> None:
    """It is a file, or inside one; its database is a folder, or of another version."""
    (tmp_path / "file").touch()
    (tmp_path / "folder/backlot.db").mkdir(parents=True)
    (tmp_path / "old").mkdir()
    with closing(sqlite3.connect(tmp_path / "old/backlot.db")) as db:
        db.execute("CREATE TABLE generations (id)")
    for where, complaint in (
        *((name, f"the state folder {tmp_path / name} cannot be used") for name in ("file", "folder")),
        ("file/inside", "cannot be used"),
        ("old", "another version of the backlot; take an empty folder"),
    ):
        result = CliRunner().invoke(app, ["--port", "0", "--state", str(tmp_path / where)])
        assert result.exit_code == 2
        assert complaint in result.output
