"""The options that every benchmark here has, and its figures as JSON where they are wanted."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def options(doc: str | None) -> argparse.ArgumentParser:
    """A parser with a module's text as its help, and `--json`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser


def save(chosen: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Writes the figures where `--json` says."""
    if chosen.json:
        chosen.json.write_text(json.dumps(figures))
