"""`init --project` and `up`: a folder with Prefect flows and tasks, which their owner may change.

The files are those of this repository. In an installation they are inside the package, because people who use
Prefect have folders `flows` and `tasks` of their own, which a package of these names would hide.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from callsheet.errors import ConfigError

PARTS = ("flows", "tasks", "configs", "automations", "prefect.yaml")


def make_project(folder: Path) -> None:
    """Writes the parts of a project (`PARTS`) into a folder; never over what is there.

    Raises:
        ConfigError: one of them is there already, or the folder cannot be written; nothing was written.
    """
    check_free(
        *(folder / part for part in PARTS), hint="Name another folder: callsheet init --project FOLDER"
    )
    package = Path(__file__).parents[1]
    installed = package / "project"  # otherwise the files are in the root of the repository
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in PARTS:
            source = (installed if installed.exists() else package.parent) / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, folder / part)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None


def check_free(*files: Path, hint: str) -> None:
    """Checks that nothing has these names.

    Raises:
        ConfigError: something has.
    """
    existing = [str(file) for file in files if os.path.lexists(file)]
    if existing:
        raise ConfigError(f"{' and '.join(existing)}: already there; nothing was written", hint=hint)


def up(
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port of the server on this machine. Without it: the server that Prefect is configured for, "
            "or 4200.",
            show_default=False,
        ),
    ] = None,
    backlot: Annotated[
        bool, typer.Option("--backlot", help="Also start a service to buy from that costs nothing.")
    ] = False,
    inbox: Annotated[
        bool,
        typer.Option(
            "--inbox", help="Also look each minute for batch files, as the deployment `inbox` says."
        ),
    ] = False,
) -> None:
    """Start the Prefect UI with all that it needs, and stay until Ctrl-C.

    Run it in the folder of your project, which `callsheet init --project` makes. It starts a Prefect server
    (one that runs already is used), the deployments of prefect.yaml, and a worker that carries out their
    runs.

    The worker has the environment of this terminal: set CALLSHEET_BASE_URL and CALLSHEET_API_KEY first, or
    try it with --backlot.

    Ctrl-C ends what it has started, and nothing else. Runs at work stop in order; the next run goes on from
    there. Run the command again whenever you like: schedules, switches and parameters that you have set in
    the UI stay, but for what has changed in prefect.yaml since.
    """
    if not (Path("prefect.yaml").exists() and Path("flows/up.py").exists()):
        raise ConfigError(
            f"{shlex.quote(str(Path.cwd()))} is no folder of a Callsheet project: it has no prefect.yaml and "
            "flows/up.py",
            hint="Go to the folder of your project, or make one: callsheet init --project FOLDER",
        )
    words = [f"--{name}" for name, given in (("backlot", backlot), ("inbox", inbox)) if given]
    words += ["--port", str(port)] if port else []
    sys.stdout.flush()
    sys.stderr.flush()
    # `python -m` finds the modules of the folder here.
    os.execv(sys.executable, [sys.executable, "-m", "flows.up", *words])  # noqa: S606 - our own program
