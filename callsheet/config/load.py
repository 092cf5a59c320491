"""Loads a config: a YAML file and the overrides of `--set` become checked settings.

Every error names the file, the line and the key. No message repeats the value of a URL's key, or what is
before the host of any URL, because that may be a password.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from callsheet.config.checks import WrongCell
from callsheet.config.settings import COLUMNS, Settings
from callsheet.config.yaml_lines import Place, dotted, masked, override_with, parse
from callsheet.errors import ConfigError


def load(path: Path, overrides: Sequence[str] = ()) -> Settings:
    """Reads a config file and checks all of it.

    Args:
        path: the YAML file. `${NAME}` and `${NAME:-default}` in a value read the environment (the default
            also where the variable is empty); `$${` is a literal `${`.
        overrides: `a.b=value` each, from `--set`; the value is YAML.

    Raises:
        ConfigError: unreadable file, bad YAML, unknown or repeated key, unset variable, wrong type or value;
            the message names every wrong key, with its line or its override.
    """
    config, places = _read(path)
    for override in overrides:
        override_with(config, override, places)
    try:
        return Settings.model_validate(config)
    except ValidationError as error:
        problems = [_explain(problem, str(path), places) for problem in error.errors(include_url=False)]
        raise ConfigError("\n".join(dict.fromkeys(problems))) from None


def _read(path: Path) -> tuple[dict[str, Any], dict[Place, str]]:
    """The file's plain values, and the place of each one."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such config file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    places: dict[Place, str] = {}
    config = parse(text, lambda line: f"{path}, line {line}", places)
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: has no settings", hint="A config begins with 'batch: <name>'.")
    return config, places


def _explain(error: Any, file: str, places: Mapping[Place, str]) -> str:
    """One of pydantic's errors as text: where, which key, what is wrong."""
    location, value = tuple(part for part in error["loc"] if part != "[key]"), error["input"]
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, WrongCell):
        location, value = (*location, *cause.place), cause.cell
    place = _place_in_file(location, places)
    where = places.get(place, file)
    if error["type"] == "missing":
        return f"{where}: the key {dotted(location)} is missing"
    if error["type"] == "extra_forbidden" or "[key]" in error["loc"]:
        valid = COLUMNS if "[key]" in error["loc"] else _keys_at(location[:-1])
        similar = difflib.get_close_matches(str(location[-1]), valid, n=1)
        guess = f"did you mean {similar[0]}?" if similar else f"expected one of {', '.join(valid)}"
        return f"{where}: unknown key {dotted(location)}; {guess}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    shown = isinstance(value, str | int | Decimal) and "url" not in str(place[-1:])
    return f"{where}: {dotted(place)} {message}" + (f" (it is {masked(str(value))[:80]!r})" if shown else "")


def _place_in_file(location: Place, places: Mapping[Place, str]) -> Place:
    """The longest beginning of a pydantic location that the config has; pydantic adds names of its own."""
    return next(
        (location[:end] for end in range(len(location), 0, -1) if location[:end] in places), location[:1]
    )


def _keys_at(location: Place) -> tuple[str, ...]:
    section: Any = Settings
    for key in location:
        section = section.model_fields[key].annotation
    return tuple(section.model_fields)
