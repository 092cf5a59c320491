"""Loads a config: a YAML file and the overrides of `--set` become checked settings.

Every error names the file, the line and the key. No message repeats the value of a URL's key, or what is
before the host of any URL, because that may be a password.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import ValidationError

from callsheet.config.checks import WrongCell, WrongValue
from callsheet.config.settings import COLUMNS, BatchSettings, LedgerSettings, Section, Settings
from callsheet.config.yaml_lines import Place, dotted, masked, override_with, parse, set_value, split_override
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
    """Reads a config file and checks all of it.

    Args:
        path: the YAML file. `${NAME}` and `${NAME:-default}` in a value read the environment (the default
            also where the variable is empty); `$${` is a literal `${`.
        overrides: `a.b=value` each, from `--set`. The value is YAML, and for a setting that is text it is the
            text itself.
        values: settings from Python by their dotted names, each a plain value.
        values_from: what a message calls them.
        reads_batch: whether the batch file is read; otherwise the config need not name one.

    Raises:
        ConfigError: unreadable file, bad YAML, unknown or repeated key, unset variable, wrong type or value;
            the message names every wrong key, with its line or its override.
    """
    return _checked(
        Settings, path, *_read(path, overrides, values, values_from=values_from, reads_batch=reads_batch)
    )


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
) -> tuple[dict[str, Any], dict[Place, str]]:
    """The file's plain values with the overrides, and the place of each one."""
    try:
        text = Path(with_home(str(path))).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such config file", hint=_looked_for(path)) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    places: dict[Place, str] = {}
    # With a block from elsewhere nothing of the file's section is used, and its variables may not be set.
    instead = {"service"} if _names_a_block(overrides, values) else set[str]()
    config = parse(text, lambda line: f"{path}, line {line}", places, unread={*unread, *instead})
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: has no settings", hint="A config begins with 'batch: <name>'.")
    for override in overrides:
        if split_override(override)[0][0] not in unread:
            override_with(config, override, places, _is_text)
    for name, value in values.items():
        if str(name).partition(".")[0] not in unread:
            set_value(config, name, value, places, f"{values_from}[{name!r}]")
    if not reads_batch and isinstance(section := config.get("input") or {}, dict):
        config["input"] = {"path": _NOT_READ} | section
    return config, places


def _looked_for(path: Path) -> str:
    try:
        return f"It was looked for in {Path(with_home(str(path))).absolute().parent}."
    except OSError:  # the working directory was removed
        return "The working directory is not there any more."


def _names_a_block(overrides: Sequence[str], values: Mapping[str, object]) -> bool:
    given = dict(map(split_override, overrides)) | {(*str(name).split("."),): values[name] for name in values}
    return given.get(("service", "block"), "null") not in ("null", None)


def _checked(
    schema: type[Checked], path: Path, config: dict[str, Any], places: Mapping[Place, str]
) -> Checked:
    try:
        return schema.model_validate(config).given_at(places)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        problems = dict.fromkeys(_explain(each, str(path), places) for each in errors)
        causes = [each.get("ctx", {}).get("error") for each in errors]
        hints = dict.fromkeys(cause.hint for cause in causes if isinstance(cause, WrongValue))
        raise ConfigError("\n".join(problems), hint=" ".join(hints)) from None


def _is_text(place: Place) -> bool:
    """Whether the setting at a place is text, for which `--set` takes the value as it is."""
    annotation: Any = Settings
    for key in place:
        annotation = _bare(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Section):
            field = annotation.model_fields.get(str(key))
            annotation = field.annotation if field else None
        else:
            annotation = get_args(annotation)[1] if get_origin(annotation) is dict else None
    return _bare(annotation) is str


def _bare(annotation: Any) -> Any:
    """A type without its checks, and without None beside it."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    types = [member for member in get_args(annotation) if member is not NoneType]
    return _bare(types[0]) if NoneType in get_args(annotation) and len(types) == 1 else annotation


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
        section = _bare(section.model_fields[key].annotation)
    return tuple(section.model_fields)
