"""The wheel has every file that the programs in it need, and nothing else."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Project
from tests.servers.installed import build_wheel, installed

ROOT = Path(__file__).parents[2]


def files_of(*folders: str) -> set[str]:
    return {
        str(file.relative_to(ROOT))
        for folder in folders
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_the_wheel_has_every_module_and_data_file_and_no_package_of_a_project_s_own_name(
    tmp_path: Path,
) -> None:
    """`flows` and `tasks` are what people call folders of their own."""
    packed = {name for name in zipfile.ZipFile(build_wheel(tmp_path)).namelist() if ".dist-info/" not in name}
    project = {f"callsheet/project/{name}" for name in files_of("flows", "tasks", "configs")}
    assert packed == files_of("callsheet", "backlot") | project | {"callsheet/project/prefect.yaml"}
    assert {"callsheet/py.typed", "backlot/py.typed", "backlot/catalogue.yaml"} <= packed
    dashboard = ("templates/overview.html", "static/htmx.min.js", "static/swagger-ui/swagger-ui-bundle.js")
    assert {f"backlot/dashboard/{name}" for name in dashboard} <= packed
    assert {f"callsheet/cli/demo/{name}" for name in ("demo.yaml", "prompts.csv", "lamp.png")} <= packed


def test_callsheet_works_beside_folders_called_flows_and_tasks(
    project: Callable[..., Project], tmp_path: Path
) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    for name in ("flows", "tasks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not of Callsheet')")
    (tmp_path / "installed").mkdir()
    python = str(installed(tmp_path / "installed"))
    (tmp_path / "out/demo").mkdir(parents=True)
    (tmp_path / "out/demo/prompts.csv").write_text("mine")
    program = f"""
import callsheet
from callsheet.cli.demo import demo_config
print(callsheet.run({str(made.config)!r}).stored, demo_config())
"""
    called = subprocess.run(
        [python, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert called.stdout == "1 out/demo/demo.yaml\n", called.stderr
    assert (tmp_path / "out/demo/lamp.png").exists()
    assert (tmp_path / "out/demo/prompts.csv").read_text() == "mine", "what a user has changed is kept"
    environment = os.environ | {"PYTHONPATH": "."}
    command = [python, "-m", "callsheet", "run", str(made.config)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
