"""YAML as plain values, and the line of each one for error messages.

Reads the environment where a value contains `${NAME}`. Knows no setting. Numbers with a point become
`Decimal` straight from the text, because a price must not pass through a float.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import PurePath
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from callsheet.errors import ConfigError

Place = tuple[str | int, ...]
"""The keys and positions that lead to a value: ('budget', 'limit')."""

NameOfLine = Callable[[int], str]
"""Names a line for a person: 'run.yaml, line 7'."""


def parse(
    text: str,
    name_of_line: NameOfLine,
    places: dict[Place, str],
    place: Place = (),
    unread: Collection[str] = (),
) -> Any:
    """Reads YAML text as dicts, lists, text, numbers, booleans and None.

    Args:
        text: one YAML document. `${NAME}` and `${NAME:-default}` in a value read the environment (the default
            also where the variable is empty); `$${` is a literal `${`.
        name_of_line: names a line of the text.
        places: receives the name of the line of each value.
        place: the place of the whole text.
        unread: top-level keys that are left out with their values.

    Raises:
        ConfigError: bad YAML, a key given twice, an environment variable that is not set, or an empty value.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None and place:
            raise _empty_value(name_of_line(1), place)
        if isinstance(node, yaml.MappingNode):
            node.value = [(key, value) for key, value in node.value if key.value not in unread]
        return _plain(node, name_of_line, places, place) if node else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name_of_line(line)}: is not valid YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{name_of_line(line)}: is not valid YAML: {error.reason}") from None
    except RecursionError:
        raise ConfigError(
            f"{name_of_line(1)}: an alias contains itself, or values are nested too deeply"
        ) from None


def _plain(node: yaml.Node, name_of_line: NameOfLine, places: dict[Place, str], place: Place) -> Any:
    where = name_of_line(node.start_mark.line + 1)
    if place:
        places.setdefault(place, where)
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, where_key = str(key_node.value), name_of_line(key_node.start_mark.line + 1)
            if key in values:
                raise ConfigError(f"{where_key}: the key {dotted((*place, key))} is given twice")
            places[*place, key] = where_key
            if node.flow_style and _is_blank(value_node):
                raise _empty_value(where_key, (*place, key))
            values[key] = _plain(value_node, name_of_line, places, (*place, key))
        return values
    if isinstance(node, yaml.SequenceNode):
        return [
            _plain(item, name_of_line, places, (*place, position)) for position, item in enumerate(node.value)
        ]
    text = _with_environment(node.value, where)
    if not isinstance(node, yaml.ScalarNode) or node.style is not None:
        return text
    if node.value and not text:
        raise _empty_value(where, place)
    return _typed(text)


def _is_blank(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and not node.value


def _empty_value(where: str, place: Place) -> ConfigError:
    """An empty value is an error, because an empty `budget.limit` must not mean that there is no limit.

    A key on a line of its own with nothing after it is not empty in this sense: in YAML it is null.
    """
    hint = "Write null for none, or give a variable a default: ${NAME:-...}."
    return ConfigError(f"{where}: {dotted(place)} is empty", hint=hint)


_resolver = yaml.resolver.Resolver()


def _typed(text: str) -> Any:
    """The value of an unquoted scalar."""
    tag = _resolver.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]  # untyped there
    value_type = tag.removeprefix("tag:yaml.org,2002:")
    if value_type == "null":
        return None
    if value_type == "bool":
        return SafeConstructor.bool_values[text.lower()]
    try:
        if value_type == "int" and re.fullmatch(r"[-+]?[0-9]+", text):
            return int(text)
        if value_type == "float":
            return Decimal(text)
    except (ValueError, InvalidOperation):  # more digits than Python reads, or not a number
        return text
    # Everything else is text, also what YAML 1.1 reads as a date or as a number to base 60: 16:9 is a ratio.
    return text


_VARIABLE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")


def _with_environment(text: str, where: str) -> str:
    """Text in which the variables are replaced by their values."""

    def value(match: re.Match[str]) -> str:
        if match.group() == "$${":
            return "${"
        name, default = match["name"], match["default"]
        if name is None:
            raise ConfigError(
                f"{where}: '${{' does not begin ${{NAME}} or ${{NAME:-default}}",
                hint="Write a literal '${' as '$${'.",
            )
        variable = os.environ.get(name)
        if default is not None:
            return variable or default
        if variable is None:
            raise ConfigError(
                f"{where}: the environment variable {name} is not set",
                hint=f"Set it, or give a default: ${{{name}:-...}}.",
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
        raise ConfigError(f"--set {masked(override)}: must look like a.b=value")
    return place, value


def override_with(
    config: dict[str, Any], override: str, places: dict[Place, str], is_text: Callable[[Place], bool]
) -> None:
    """Writes one `a.b=value` into plain values.

    Args:
        config: the values.
        override: the value is YAML, except for a setting that is text: there it is the text itself, in which
            only variables are replaced, and `null` is None.
        places: receives the override's name as the place of the value.
        is_text: whether the setting at a place is text.

    Raises:
        ConfigError: the override does not look like that, or `a` is a single value; the message names the
            override, but no password in a URL.
    """
    place, value = split_override(override)
    key = ".".join(place)
    where = "--set " + masked(f"{key}=..." if place[-1].endswith("url") else override)
    section = _section(config, place, where, places)
    if is_text(place):
        section[place[-1]] = _text(value, where, places, place)
    else:
        section[place[-1]] = parse(value, lambda _: where, places, place)


def set_value(
    config: dict[str, Any], name: object, value: object, places: dict[Place, str], where: str
) -> None:
    """Writes one value from Python into plain values, by its dotted name.

    Args:
        config: the values.
        name: `a.b`.
        value: a plain value, or a path.
        places: receives the value's place.
        where: names the value for a person.

    Raises:
        ConfigError: the name does not look like that, or `a` is a single value.
    """
    place = tuple(name.split(".")) if isinstance(name, str) else ()
    if not (place and all(place)):
        raise ConfigError(f"{where}: a setting has a name like 'budget.limit'")
    section = _section(config, place, where, places)
    places[place] = where
    section[place[-1]] = str(value) if isinstance(value, PurePath) else value


def _section(
    config: dict[str, Any], place: Sequence[str], where: str, places: dict[Place, str]
) -> dict[str, Any]:
    """The section of a setting, which is about to be replaced; made where it is missing."""
    section = config
    for depth, name in enumerate(place[:-1], start=1):
        section[name] = section.get(name) or {}
        section = section[name]
        places.setdefault(tuple(place[:depth]), where)
        if not isinstance(section, dict):
            raise ConfigError(f"{where}: {dotted(tuple(place[:depth]))} is a single value and has no keys")
    for replaced in [old for old in places if old[: len(place)] == tuple(place)]:
        del places[replaced]
    return section


def _text(value: str, where: str, places: dict[Place, str], place: Place) -> str | None:
    places[place] = where
    text = _with_environment(value, where)
    if not text:
        raise _empty_value(where, place)
    return None if text == "null" else text


def masked(text: str) -> str:
    """Text of a config that may be shown: without what is before the host of a URL, because of passwords."""
    return re.sub(r"//.*@", "//...@", text, flags=re.DOTALL)


def dotted(place: Place) -> str:
    """A place as people write it: `budget.limit`, in backquotes."""
    return "`" + masked(".".join(str(part) for part in place)) + "`"
