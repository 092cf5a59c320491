"""YAML as plain values, and the line of each one for error messages.

Reads the environment where a value contains `${NAME}`. Knows no setting. Numbers with a point become
`Decimal` straight from the text, because a price must not pass through a float.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml

from callsheet.errors import ConfigError

KeyPath = tuple[str | int, ...]
"""The keys and positions that lead to a value: ('budget', 'limit')."""


def parse(
    text: str, where: str, places: dict[KeyPath, str], place: KeyPath = (), unread: Collection[str] = ()
) -> Any:
    """Reads YAML text as dicts, lists, text, numbers, booleans and None.

    `${NAME}` and `${NAME:-default}` in a value read the environment (the default also where the variable is
    empty); `$${` is a literal `${`.

    Args:
        where: names the text for a person: a file, or the override of one setting.
        places: receives the name of each value: of a file with its line, `run.yaml, line 7`.
        place: the setting of which the text is the value; empty for a file.
        unread: top-level keys that are left out with their values.

    Raises:
        ConfigError: bad YAML, a key given twice, an environment variable that is not set, or an empty value.
    """

    def name_of_line(line: int) -> str:
        return where if place else f"{where}, line {line}"

    line, wrong = 1, "an alias contains itself, or values are nested too deeply"
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None and place:
            raise _empty_value(name_of_line(1), place)
        if isinstance(node, yaml.MappingNode):
            node.value = [(key, value) for key, value in node.value if str(key.value) not in unread]
        return _plain(node, name_of_line, places, place) if node else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        wrong = f"is not valid YAML: {error.problem}"
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        wrong = f"is not valid YAML: {error.reason}"
    except RecursionError:
        pass
    raise ConfigError(f"{name_of_line(line)}: {wrong}")


def parse_text(text: str, where: str, places: dict[KeyPath, str], place: KeyPath) -> str | None:
    """The value of a setting that is text: as it is, but for its variables; `null` is None.

    Raises:
        ConfigError: an environment variable is not set, or the value is empty.
    """
    places[place] = where
    value = _with_environment(text, where)
    if not value:
        raise _empty_value(where, place)
    return None if value == "null" else value


def _plain(node: Any, name_of_line: Callable[[int], str], places: dict[KeyPath, str], place: KeyPath) -> Any:
    where = name_of_line(node.start_mark.line + 1)
    if place:
        places.setdefault(place, where)
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, where_key = str(key_node.value), name_of_line(key_node.start_mark.line + 1)
            if not isinstance(key_node, yaml.ScalarNode):
                hint = "Put a text that begins with a bracket or a brace in quotes."
                raise ConfigError(f"{where_key}: a list or a mapping stands where a key must be", hint=hint)
            if key in values:
                raise ConfigError(f"{where_key}: the key {dotted((*place, key))} is given twice")
            places[*place, key] = where_key
            if (place or node.flow_style) and value_node.value == "" and value_node.style is None:
                raise _empty_value(where_key, (*place, key))
            values[key] = _plain(value_node, name_of_line, places, (*place, key))
        return values
    if isinstance(node, yaml.SequenceNode):
        items = enumerate(node.value)
        return [_plain(item, name_of_line, places, (*place, position)) for position, item in items]
    text = _with_environment(node.value, where)
    if node.style is not None:  # in quotes, or a block of text
        return text
    if node.value and not text:
        raise _empty_value(where, place)
    return _typed(text)


def _empty_value(where: str, place: KeyPath) -> ConfigError:
    """An empty value is an error, because an empty `budget.limit` must not mean that there is no limit.

    A whole section on a line of its own with nothing in it is as if it were left out: it may be in comments.
    """
    hint = "Write null for none, or give a variable a default: ${NAME:-...}."
    return ConfigError(f"{where}: {dotted(place)} is empty", hint=hint)


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


def masked(text: str) -> str:
    """Text of a config that may be shown: without what is before the host of a URL, because of passwords."""
    return re.sub(r"//.*@", "//...@", text, flags=re.DOTALL)


def dotted(place: KeyPath) -> str:
    """A place as people write it: `budget.limit`, in backquotes."""
    return "`" + masked(".".join(str(part) for part in place)) + "`"
