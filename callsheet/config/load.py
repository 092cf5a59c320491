"""Loads a config: a YAML file and the overrides of `--set` become checked settings.

Every error names the file, the line and the key. No message repeats the value of a URL's key, or what is
before the host of any URL, because that may be a password.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path, PurePath
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import ValidationError

from callsheet.config.checks import WrongCell, WrongValue
from callsheet.config.settings import COLUMNS, BatchSettings, LedgerSettings, Section, Settings
from callsheet.config.yaml_lines import KeyPath, dotted, masked, parse, parse_text, split_override
from callsheet.errors import ConfigError
from callsheet.files import with_home

Checked = TypeVar("Checked", bound=BatchSettings)

_NONE: Mapping[str, object] = {}
_NOT_READ = "(none)"  # the batch file, where the config need not name one


def load(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    values: Mapping[str, object] = _NONE,
    values_from: str = "settings",
    reads_batch: bool = True,
) -> Settings:
    """Reads a config file (see `yaml_lines.parse`) and checks all of it.

    Args:
        path: the YAML file.
        overrides: `a.b=value` each, from `--set`. The value is YAML, and for a setting that is text it is the
            text itself.
        values: settings from Python by their dotted names, each a plain value.
        values_from: what a message calls them.
        reads_batch: whether the batch file is read; otherwise the config need not name one.

    Raises:
        ConfigError: unreadable file, bad YAML, unknown or repeated key, unset variable, wrong type or value;
            the message names every wrong key, with its line or its override.
    """
    read = _read(path, overrides, values, values_from=values_from, reads_batch=reads_batch)
    return _checked(Settings, path, *read)


def load_without_service(
    path: Path, overrides: Sequence[str] = (), *, values: Mapping[str, object] = _NONE
) -> BatchSettings:
    """As `load`, for what asks no service and reads no batch file.

    The `service` section is not read, and may be wrong; the batch file need not be named.
    """
    read = _read(path, overrides, values, unread=("service",), reads_batch=False)
    return _checked(BatchSettings, path, *read)


def load_ledger(overrides: Sequence[str] = ()) -> str:
    """The URL of a ledger without a config: the default one, or that of `--set ledger.url=...`.

    Raises:
        ConfigError: another setting is named, or its home folder is not known.
    """
    url = LedgerSettings().url
    for override in overrides:
        place, url = split_override(override)
        if place != ("ledger", "url"):
            raise ConfigError(
                f"--set {masked(override)}: without a config only ledger.url can be set",
                hint="For one batch, name its config file.",
            )
    try:
        return with_home(url)
    except ValueError as error:
        raise ConfigError(f"--set ledger.url: {error}", hint="Write the whole path.") from None


def _read(
    path: Path,
    overrides: Sequence[str],
    values: Mapping[str, object],
    unread: Collection[str] = (),
    *,
    values_from: str = "settings",
    reads_batch: bool,
) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """The file's plain values with the overrides, and the place of each one."""
    try:
        text = Path(with_home(str(path))).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        hint = "The working directory is not there any more."
        with suppress(OSError):
            hint = f"It was looked for in {Path(with_home(str(path))).absolute().parent}."
        raise ConfigError(f"{path}: there is no such config file", hint=hint) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: {reason}") from None
    texts = [split_override(override) for override in overrides]
    plain = {_named(name, values_from): value for name, value in values.items()}
    places: dict[KeyPath, str] = {}
    # With a block from elsewhere nothing of the file's section is used, and its variables may not be set.
    has_block = {**dict(texts), **plain}.get(("service", "block"), "null") not in ("null", None)
    instead = {"service"} if has_block else set[str]()
    config = parse(text, str(path), places, unread={*unread, *instead})
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: has no settings", hint="A config begins with 'batch: <name>'.")
    for place, value in texts:
        key = ".".join(place)
        where = "--set " + masked(f"{key}=..." if key.endswith("url") else f"{key}={value}")
        if place[0] not in unread:
            section = _section(config, place, where, places)
            value_of = parse_text if _type_of(place) is str else parse
            section[place[-1]] = value_of(value, where, places, place)
    for place, given in plain.items():
        if place[0] not in unread:
            where = f"{values_from}[{'.'.join(place)!r}]"
            section = _section(config, place, where, places)
            places[place] = where
            section[place[-1]] = str(given) if isinstance(given, PurePath) else given
    if not reads_batch and isinstance(section := config.get("input") or {}, dict):
        config["input"] = {"path": _NOT_READ} | section
    return config, places


def _named(name: object, values_from: str) -> tuple[str, ...]:
    """The place of a setting from Python."""
    place = tuple(name.split(".")) if isinstance(name, str) else ()
    if not (place and all(place)):
        raise ConfigError(f"{values_from}[{name!r}]: a setting has a name like 'budget.limit'")
    return place


def _section(
    config: dict[str, Any], place: tuple[str, ...], where: str, places: dict[KeyPath, str]
) -> dict[str, Any]:
    """The section of a setting, which is about to be replaced; made where it is missing."""
    section = config
    for depth, name in enumerate(place[:-1], start=1):
        section[name] = section.get(name) or {}
        section = section[name]
        places.setdefault(place[:depth], where)
        if not isinstance(section, dict):
            raise ConfigError(f"{where}: {dotted(place[:depth])} is a single value and has no keys")
    for replaced in [old for old in places if old[: len(place)] == place]:
        del places[replaced]
    return section


def _checked(
    schema: type[Checked], path: Path, config: dict[str, Any], places: Mapping[KeyPath, str]
) -> Checked:
    try:
        return schema.model_validate(config).given_at(Path(with_home(str(path))).absolute(), places)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        problems = dict.fromkeys(_explain(each, str(path), places) for each in errors)
        causes = [each.get("ctx", {}).get("error") for each in errors]
        hints = dict.fromkeys(cause.hint for cause in causes if isinstance(cause, WrongValue))
        raise ConfigError("\n".join(problems), hint=" ".join(hints)) from None


def _type_of(place: KeyPath) -> Any:
    """The type of the setting at a place, without its checks and None beside it; None for no setting."""
    found: Any = Settings
    for key in place:
        if isinstance(found, type) and issubclass(found, Section):
            field = found.model_fields.get(str(key))
            found = field.annotation if field else None
        else:
            found = get_args(found)[1] if get_origin(found) is dict else None
        while get_origin(found) is Annotated or NoneType in get_args(found):
            found = get_args(found)[0]
    return found


def _explain(error: Any, file: str, places: Mapping[KeyPath, str]) -> str:
    """One of pydantic's errors as text: where, which key, what is wrong."""
    location, value = tuple(part for part in error["loc"] if part != "[key]"), error["input"]
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, WrongCell):
        location, value = (*location, *cause.place), cause.cell
    known = (location[:end] for end in range(len(location), 0, -1) if location[:end] in places)
    place = next(known, location[:1])  # pydantic adds names of its own
    where = places.get(place, file)
    if error["type"] == "missing":
        return f"{where}: the key {dotted(location)} is missing"
    if error["type"] == "extra_forbidden" or "[key]" in error["loc"]:
        section = _type_of(location[:-1])
        if "[key]" in error["loc"]:
            valid = get_args(get_args(section)[0]) or COLUMNS
        else:
            valid = tuple(section.model_fields)
        similar = difflib.get_close_matches(str(location[-1]), valid, n=1)
        guess = f"did you mean {similar[0]}?" if similar else f"expected one of {', '.join(valid)}"
        return f"{where}: unknown key {dotted(location)}; {guess}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    shown = isinstance(value, str | int | Decimal) and "url" not in str(place[-1:])
    return f"{where}: {dotted(place)} {message}" + (f" (it is {masked(str(value))[:80]!r})" if shown else "")
