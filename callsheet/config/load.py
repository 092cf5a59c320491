"""Loads a config: a YAML file and the overrides of `--set` become checked settings.

Every error names the file, the line and the key. No message repeats the value of a URL's key, or what is
before the host of any URL, because that may be a password. Numbers with a point become `Decimal` straight
from the text, because a price must not pass through a float. Also which settings of a run that is at work a
person can change.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import reduce
from operator import getitem
from pathlib import Path, PurePath
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import ValidationError

from callsheet.config.setting_types import KeyPath, WrongValue
from callsheet.config.settings import COLUMNS, SOURCES, BatchSettings, LedgerSettings, Section, Settings
from callsheet.errors import ConfigError
from callsheet.files import with_home


def parse(
    text: str, source: str, places: dict[KeyPath, str], place: KeyPath = (), unread: Collection[str] = ()
) -> Any:
    """Reads YAML text as dicts, lists, text, numbers, booleans and None.

    `${NAME}` and `${NAME:-default}` in a value read the environment (the default also where the variable is
    empty); `$${` is a literal `${`.

    Args:
        source: names the text for a person: a file, or the override of one setting.
        places: receives the name of each value: of a file with its line, `run.yaml, line 7`.
        place: the setting of which the text is the value; empty for a file.
        unread: top-level keys that are left out with their values.

    Raises:
        ConfigError: bad YAML, a key given twice, an environment variable that is not set, or an empty value.
    """

    def name_of_line(line: int) -> str:
        return source if place else f"{source}, line {line}"

    line, problem = 1, "an alias contains itself, or values are nested too deeply"
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None and place:
            raise _empty_value(name_of_line(1), place)
        if isinstance(node, yaml.MappingNode):
            node.value = [(key, value) for key, value in node.value if str(key.value) not in unread]
        return _read_node(node, name_of_line, places, place) if node else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = f"is not valid YAML: {error.problem}"
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"is not valid YAML: {error.reason}"
    except RecursionError:
        pass
    raise ConfigError(f"{name_of_line(line)}: {problem}", where=name_of_line(line))


def parse_text(text: str, source: str, places: dict[KeyPath, str], place: KeyPath) -> str | None:
    """The value of a setting that is text: as it is, but for its variables; `null` is None.

    Raises:
        ConfigError: an environment variable is not set, or the value is empty.
    """
    places[place] = source
    value = _with_environment(text, source)
    if not value:
        raise _empty_value(source, place)
    return None if value == "null" else value


def _read_node(
    node: Any, name_of_line: Callable[[int], str], places: dict[KeyPath, str], place: KeyPath
) -> Any:
    line = name_of_line(node.start_mark.line + 1)
    if place:
        places.setdefault(place, line)
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, key_line = str(key_node.value), name_of_line(key_node.start_mark.line + 1)
            if not isinstance(key_node, yaml.ScalarNode):
                hint = "Put a text that begins with a bracket or a brace in quotes."
                message = f"{key_line}: a list or a mapping stands where a key must be"
                raise ConfigError(message, hint=hint, where=key_line)
            if key in values:
                message = f"{key_line}: the key {dotted((*place, key))} is given twice"
                raise ConfigError(message, where=key_line)
            places[*place, key] = key_line
            if value_node.value == "" and value_node.style is None and _type_of(place) is str:
                # {product} is a mapping in YAML
                raise ConfigError(f"{line}: {dotted(place)} {NOT_QUOTED}", where=line)
            if (place or node.flow_style) and value_node.value == "" and value_node.style is None:
                raise _empty_value(key_line, (*place, key))
            values[key] = _read_node(value_node, name_of_line, places, (*place, key))
        return values
    if isinstance(node, yaml.SequenceNode):
        items = enumerate(node.value)
        return [_read_node(item, name_of_line, places, (*place, position)) for position, item in items]
    text = _with_environment(node.value, line)
    if node.style is not None:  # in quotes, or a block of text
        return text
    if node.value and not text:
        raise _empty_value(line, place)
    return _typed(text)


def _empty_value(source: str, place: KeyPath) -> ConfigError:
    """An empty value is an error, because an empty `budget.limit` must not mean that there is no limit.

    A whole section on a line of its own with nothing in it is as if it were left out: it may be in comments.
    """
    hint = "Write null for none, or give a variable a default: ${NAME:-...}."
    return ConfigError(f"{source}: {dotted(place)} is empty", hint=hint, where=source)


_WORDS = {"": None, "~": None, "null": None} | yaml.SafeLoader.bool_values
_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?")


def _typed(text: str) -> Any:
    """The value of an unquoted scalar.

    Text is also what YAML 1.1 reads as a date or as a number to base 60: 16:9 is a ratio.
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    with suppress(ValueError, InvalidOperation):  # more digits than Python reads
        if _WHOLE_NUMBER.fullmatch(text):
            return int(text)
        if _DECIMAL.fullmatch(text):
            return Decimal(text)
    return text


_VARIABLE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")


def _with_environment(text: str, source: str) -> str:
    """Text in which the variables are replaced by their values."""

    def value(match: re.Match[str]) -> str:
        if match.group() == "$${":
            return "${"
        name, default = match["name"], match["default"]
        if name is None:
            raise ConfigError(
                f"{source}: '${{' does not begin ${{NAME}} or ${{NAME:-default}}",
                hint="Write a literal '${' as '$${'.",
            )
        variable = os.environ.get(name)
        if default is not None:
            return variable or default
        if variable is None:
            raise ConfigError(
                f"{source}: the environment variable {name} is not set",
                hint=f"Set it, or give a default: ${{{name}:-...}}. "
                "A run in Prefect has the variables of its worker.",
            )
        return variable

    return _VARIABLE.sub(value, text)


def split_override(override: str) -> tuple[tuple[str, ...], str]:
    """The place and the value of an `a.b=value`.

    Raises:
        ConfigError: the override does not look like that.
    """
    key, equals, value = override.partition("=")
    place = tuple(key.strip().split("."))
    if not equals or not all(place):
        raise ConfigError(f"{masked(override)}: must look like a.b=value")
    return place, value


def masked(text: str) -> str:
    """Text of a config that may be shown: without what is before the host of a URL, because of passwords."""
    return re.sub(r"//.*@", "//...@", text, flags=re.DOTALL)


def dotted(place: KeyPath) -> str:
    """A place as people write it: `budget.limit`, in backquotes."""
    return "`" + masked(".".join(str(part) for part in place)) + "`"


Checked = TypeVar("Checked", bound=BatchSettings)

_NOT_READ = "(none)"  # the batch file, where the config need not name one


def load(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    values: Mapping[str, object] = {},
    values_from: str = "settings",
    reads_batch: bool = True,
) -> Settings:
    """Reads a config file (`parse`) and checks all of it.

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
    return _load(Settings, path, overrides, values, values_from=values_from, reads_batch=reads_batch)


def load_without_service(
    path: Path, overrides: Sequence[str] = (), *, values: Mapping[str, object] = {}
) -> BatchSettings:
    """As `load`, for what asks no service and reads no batch file.

    The `service` section is not read, and may be wrong; the batch file need not be named.
    """
    return _load(BatchSettings, path, overrides, values, unread={"service"}, reads_batch=False)


def load_ledger(overrides: Sequence[str]) -> str:
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


def _load(
    schema: type[Checked],
    path: Path,
    overrides: Sequence[str],
    values: Mapping[str, object],
    *,
    unread: Collection[str] = (),
    values_from: str = "settings",
    reads_batch: bool,
) -> Checked:
    texts = [split_override(override) for override in overrides]
    plain = {tuple(str(name).split(".")): value for name, value in values.items()}
    if bad_names := [name for name in values if not isinstance(name, str) or not all(name.split("."))]:
        raise ConfigError(f"{values_from}[{bad_names[0]!r}]: a setting has a name like 'budget.limit'")
    places: dict[KeyPath, str] = {}
    # With a block from elsewhere nothing of the file's section is used, and its variables may not be set.
    has_block = {**dict(texts), **plain}.get(("service", "block"), "null") not in ("null", None)
    config = parse(_text_of(path), str(path), places, unread={*unread, "service"} if has_block else unread)
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: has no settings", hint="A config begins with 'batch: <name>'.")
    for place, text in texts:
        if place[0] not in unread:
            _override(config, place, text, places)
    for place, value in plain.items():
        if place[0] not in unread:
            source = f"{values_from}[{'.'.join(place)!r}]"
            section = _section(config, place, source, places)
            places[place] = source
            section[place[-1]] = str(value) if isinstance(value, PurePath) else value
    _choose_source(config, {*dict(texts), *plain}, reads_batch=reads_batch)
    try:
        return schema.model_validate(config).given_at(Path(with_home(str(path))).absolute(), places)
    except ValidationError as error:
        raise _all_wrong(error, str(path), places) from None


def _override(config: dict[str, Any], place: tuple[str, ...], text: str, places: dict[KeyPath, str]) -> None:
    """Sets one setting of a config to the value of an `a.b=value`."""
    key = ".".join(place)
    source = masked(f"{key}=..." if key.endswith("url") else f"{key}={text}")  # as it was typed
    section = _section(config, place, source, places)
    value_of = parse_text if _type_of(place) is str else parse
    section[place[-1]] = value_of(text, source, places, place)


def _choose_source(config: dict[str, Any], changed: Collection[KeyPath], *, reads_batch: bool) -> None:
    """Where a changed setting says where the rows are, the config's own one does not count."""
    section = config.get("input") or {}
    if not isinstance(section, dict):
        return
    sources = {name for name in SOURCES if ("input", name) in changed}
    if any(section.get(name) is not None for name in sources):
        section = {name: value for name, value in section.items() if name not in {*SOURCES} - sources}
    if not reads_batch and not any(section.get(name) for name in SOURCES):
        section = section | {"path": _NOT_READ}
    config |= {"input": section} if section else {}


def _all_wrong(error: ValidationError, file: str, places: Mapping[KeyPath, str]) -> ConfigError:
    """All that pydantic finds wrong with a config, a line for each."""
    errors = error.errors(include_url=False)
    problems = dict.fromkeys(_explain(details, file, places) for details in errors)
    causes = [details.get("ctx", {}).get("error") for details in errors]
    hints = dict.fromkeys(cause.hint for cause in causes if isinstance(cause, WrongValue))
    *_, where = _place_of(errors[0], file, places)
    return ConfigError("\n".join(problems), hint=" ".join(filter(None, hints)), where=where)


def _text_of(path: Path) -> str:
    try:
        return Path(with_home(str(path))).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        hint = "The working directory is not there any more."
        with suppress(OSError):
            hint = f"It was looked for in {Path(with_home(str(path))).absolute().parent}."
        message = f"{path}: there is no such config file{_suggestion(path)}"
        raise ConfigError(message, hint=hint, where=str(path)) from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: cannot be read: it is a folder{_suggestion(path)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: {reason}") from None


_CONFIGS = (".yaml", ".yml")


def _suggestion(path: Path) -> str:
    """Which config beside a path may be meant, as a question after the error; empty where none is like it."""
    with suppress(OSError):
        files = [file for file in Path(with_home(str(path))).parent.iterdir() if file.suffix in _CONFIGS]
        names = sorted(
            (file.name for file in files if file.name != path.name and file.is_file()), reverse=True
        )
        configs = {Path(name).stem.lower(): name for name in names}  # of two with one stem the .yaml
        typed = path.stem if path.suffix in _CONFIGS else path.name
        for stem in difflib.get_close_matches(typed.lower(), configs, n=1):
            return f"; did you mean {path.with_name(configs[stem])}?"
    return ""


def _section(
    config: dict[str, Any], place: tuple[str, ...], source: str, places: dict[KeyPath, str]
) -> dict[str, Any]:
    """The section of a setting, which is about to be replaced; made where it is missing."""
    section = config
    for depth, name in enumerate(place[:-1], start=1):
        section[name] = section.get(name) or {}
        section = section[name]
        places.setdefault(place[:depth], source)
        if not isinstance(section, dict):
            raise ConfigError(f"{source}: {dotted(place[:depth])} is a single value and has no keys")
    for replaced in [old for old in places if old[: len(place)] == place]:
        del places[replaced]
    return section


def _type_of(place: KeyPath) -> Any:
    """The type of the setting at a place (of several the first) without its checks; None for no setting."""
    annotation: Any = Settings
    for key in place:
        if isinstance(annotation, type) and issubclass(annotation, Section):
            field = annotation.model_fields.get(str(key))
            annotation = field.annotation if field else None
        else:
            annotation = get_args(annotation)[1] if get_origin(annotation) is dict else None
        while get_origin(annotation) in (Annotated, Union, UnionType):
            annotation = get_args(annotation)[0]
    return annotation


_NO_REUSE = (
    "leave it out: a batch buys its own files, and takes those of another one as its input by "
    "input.stored: CONFIG (or input.kept)"
)
REMOVED: Mapping[KeyPath, str] = {
    ("reuse",): _NO_REUSE,
    ("input", "reuse"): _NO_REUSE,
    ("input", "pattern"): "for lines of the form `name | prompt` set input.split: named_lines; for any other "
    "form, write a table (.csv) with columns such as id and prompt",
}
"""Settings that earlier versions had, and what to do now."""


def _place_of(error: Any, file: str, places: Mapping[KeyPath, str]) -> tuple[KeyPath, KeyPath, str]:
    """What one of pydantic's errors is about; the nearest to it that the config has; where that stands."""
    location = tuple(part for part in error["loc"] if part != "[key]")
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, WrongValue) and cause.place:
        location = (*location, *cause.place)
    known_places = (location[:end] for end in range(len(location), 0, -1) if location[:end] in places)
    place = next(known_places, location[:1])  # pydantic adds names of its own
    return location, place, places.get(place, file)


def _explain(error: Any, file: str, places: Mapping[KeyPath, str]) -> str:
    """One of pydantic's errors as text: where, which key, what is wrong."""
    location, place, source = _place_of(error, file, places)
    cause = error.get("ctx", {}).get("error")
    value = cause.cell if isinstance(cause, WrongValue) and cause.place else error["input"]
    if error["type"] == "missing":
        return f"{source}: the key {dotted(location)} is missing"
    if location in REMOVED:
        return f"{source}: {dotted(location)} is no setting any more; {REMOVED[location]}"
    if error["type"] == "extra_forbidden" or "[key]" in error["loc"]:
        section = _type_of(location[:-1])
        if "[key]" in error["loc"]:
            valid = get_args(get_args(section)[0]) or COLUMNS
        else:
            valid = tuple(section.model_fields)
        similar = difflib.get_close_matches(str(location[-1]), valid, n=1)
        guess = f"did you mean {similar[0]}?" if similar else f"expected one of {', '.join(valid)}"
        return f"{source}: unknown key {dotted(location)}; {guess}"
    shown = isinstance(value, str | int | Decimal) and value != "" and "url" not in str(place[-1:])
    actual = " (it is null)" if value is None else f" (it is {masked(str(value))[:80]!r})" if shown else ""
    return f"{source}: {dotted(place)} {_problem(error, _type_of(location))}{actual}"


NOT_QUOTED = "should be text: put it in quotes"
EXPECTED = {
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "should be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    **dict.fromkeys(("decimal_type", "decimal_parsing"), "should be an amount in US dollars, such as 20.00"),
    "decimal_max_digits": "should have at most 12 digits before the point and 6 after it",
    "list_type": "should be a list, such as [a, b]",
    "too_short": "should have at least 1 item",
    "string_too_short": "is empty",
    "string_too_long": "should be one character",
    "greater_than_equal": "should be at least {ge:g}",
    "greater_than": "should be more than {gt:g}",
    "less_than_equal": "should be at most {le:g}",
}
"""What a setting should be, by the type of pydantic's error; its own words are about Python."""


def in_words(error: ValidationError) -> str:
    """What is wrong with settings that are of no file, a line for each."""
    places = [tuple(part for part in details["loc"] if part != "[key]") for details in error.errors()]
    errors = zip(places, error.errors(), strict=True)
    return "\n".join(f"{dotted(place)} {_problem(details, _type_of(place))}" for place, details in errors)


def _problem(error: Any, type_: Any) -> str:
    """What is wrong with a value, in words that say what is allowed."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "string_type":  # YAML reads 2026 as a number, yes as a boolean, and a brace as a mapping
        return "should be text" if error["input"] is None else NOT_QUOTED
    if kind in ("model_type", "dict_type"):
        names = f", some of {', '.join(type_.model_fields)}" if hasattr(type_, "model_fields") else ""
        return f"should have keys with values{names}"
    if kind == "literal_error":
        return f"should be {context['expected'].replace('False, True', 'false, true')}"
    if kind in ("decimal_max_places", "decimal_whole_digits"):
        kind = "decimal_max_digits"
    if expected := EXPECTED.get(kind):
        return expected.format(**context)
    message: str = error["msg"]
    return message.removeprefix("Value error, ").removeprefix("Input ")


CHANGEABLE = (
    *("budget.limit", "budget.per_day", "budget.ledger"),
    *("limits.image_rpm", "limits.video_rpm", "limits.concurrency"),
    *("stop_after", "poll.interval", "poll.timeout"),
)
"""By their dotted names."""


def changed_values(
    config: Path, values: Sequence[str], overrides: Sequence[str] = ()
) -> tuple[BatchSettings, Mapping[str, Any]]:
    """The config with some `a.b=value`, and these values as JSON has them, money as text.

    `overrides` change the config, and nothing of the runs.

    Raises:
        ConfigError: one of them is no setting, has a wrong value, or cannot be changed during a run.
    """
    settings = load_without_service(config, [*overrides, *values])
    names = [".".join(split_override(value)[0]) for value in values]
    if fixed := [name for name in names if name not in CHANGEABLE]:
        raise ConfigError(
            f"{fixed[0]} cannot be changed while a run is at work",
            hint=f"Change the config for the next run. These can be changed: {', '.join(CHANGEABLE)}.",
        )
    plain = settings.model_dump(mode="json")
    return settings, {name: reduce(getitem, name.split("."), plain) for name in names}


def with_value(settings: Checked, name: str, value: Any) -> Checked:
    """The settings with another value of the one with this dotted name, as JSON or Python has it."""
    section, _, key = name.rpartition(".")
    if not section:
        return settings.model_copy(update={key: value})
    old: Section = getattr(settings, section)
    new = type(old).model_validate(old.model_dump() | {key: value})
    return settings.model_copy(update={section: new})
