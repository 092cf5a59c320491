"""Callsheet as people install it: an environment that has the wheel, and nothing of this repository.

What the wheel depends on is that of this environment: only the project itself is installed anew.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

from tests.servers.prefect import ROOT


def build_wheel(folder: Path) -> Path:
    """A wheel of this repository, built without network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def installed(folder: Path, wheel: Path) -> Path:
    """The Python of a new environment in a folder, which has the wheel."""
    venv.create(folder / "venv", with_pip=False)
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    # The .pth files of a folder that is named here are not read, and this repository is found by such a file.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "venv/bin/python"
