"""The wheel has every file that the programs in it need, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("callsheet", "flows", "tasks", "backlot")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this folder, without network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


def test_the_wheel_has_every_module_and_data_file_of_the_packages(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert packed == files | {"flows/prefect.yaml"}
    assert {"callsheet/py.typed", "backlot/py.typed", "backlot/catalogue.yaml"} <= packed
    dashboard = ("templates/overview.html", "static/htmx.min.js", "static/swagger-ui/swagger-ui-bundle.js")
    assert {f"backlot/dashboard/{name}" for name in dashboard} <= packed
    assert {f"callsheet/cli/demo/{name}" for name in ("demo.yaml", "prompts.csv", "lamp.png")} <= packed


def test_the_demo_finds_its_files_inside_a_wheel_and_keeps_what_a_user_has_changed(
    wheel: Path, tmp_path: Path
) -> None:
    """The wheel itself is the import path: a folder of the project would be found on disk otherwise."""
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "from callsheet.cli import demo; assert '.whl' in demo.__file__\n"
        "print(demo.demo_config())"
    )
    (tmp_path / "out/demo").mkdir(parents=True)
    (tmp_path / "out/demo/prompts.csv").write_text("mine")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.stdout == "out/demo/demo.yaml\n", done.stderr
    assert (tmp_path / "out/demo/demo.yaml").read_bytes() == (
        ROOT / "callsheet/cli/demo/demo.yaml"
    ).read_bytes()
    assert (tmp_path / "out/demo/lamp.png").read_bytes() == (
        ROOT / "callsheet/cli/demo/lamp.png"
    ).read_bytes()
    assert (tmp_path / "out/demo/prompts.csv").read_text() == "mine"
