"""The demo's batch, as package data: a config, its prompts and a reference image.

It copies files and knows nothing else; the command is in `command.py`.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from callsheet.errors import ConfigError

FOLDER = Path("out/demo")
"""Where the demo's files are, in the working directory; the paths in the config begin with it."""


def demo_config() -> Path:
    """The demo's config, in `out/demo` with its prompts and image; files that are there already are kept.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in ("demo.yaml", "prompts.csv", "lamp.png"):
            if not (FOLDER / name).exists():
                (FOLDER / name).write_bytes(files(__name__).joinpath(name).read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{FOLDER} cannot be written: {error.strerror}", hint="Run the demo in a folder of yours."
        ) from None
    return FOLDER / "demo.yaml"
