"""Reads the YAML files that a user writes, with errors in plain words. Knows no setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from backlot.errors import SettingsError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML has it
TYPES = {str: "text", list: "a list", dict: "keys and values", type(None): "nothing"}


def read_yaml(path: Path, expected: type) -> Any:
    """The content of a file, which must be a `dict` or a `list`.

    Raises:
        SettingsError: it cannot be read, or has something else.
    """
    try:
        content = yaml.load(path.read_text("utf-8"), _LOADER)  # noqa: S506 - a safe one
    except OSError as error:
        raise SettingsError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SettingsError(f"{path}{line}: is not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: is not valid YAML: {error}") from None
    if not isinstance(content, expected):
        actual = TYPES.get(type(content), "a single value")
        raise SettingsError(f"{path}: expected {TYPES[expected]}, but the file has {actual}")
    return content


def problems(error: ValidationError) -> list[tuple[str, str]]:
    """Each wrong key, with dots between its parts, and what is wrong with it."""
    return [
        (".".join(map(str, problem["loc"])), _reason(problem)) for problem in error.errors(include_url=False)
    ]


def _reason(problem: Any) -> str:
    match problem["type"]:
        case "extra_forbidden":
            return "unknown key"
        case "missing":
            return "is missing"
        case "union_tag_not_found":
            return "`do` is missing"
        case "union_tag_invalid":
            return f"unknown fault '{problem['ctx']['tag']}'; expected {problem['ctx']['expected_tags']}"
        case "value_error":
            return str(problem["ctx"]["error"])
        case _:
            return f"{problem['msg']} (it is {problem['input']!r})"
