"""YAML as plain values, with the place of each one, for error messages that name the line.

Reads the environment where a value says `${NAME}`. Knows no key and no setting. Numbers with a point become
`Decimal` straight from the text, because a price must not pass through a float.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from callsheet.errors import ConfigError

Place = tuple[str | int, ...]
"""A value's way from the top of the file: ('budget', 'limit')."""

Where = Callable[[int], str]
"""A line as people find it: 'run.yaml, line 7'."""


def parse(text: str, where: Where, places: dict[Place, str], place: Place = ()) -> Any:
    """YAML text as dicts, lists, text, numbers, booleans and None; `places` learns where each value stands.

    Args:
        text: one YAML document. `${NAME}` and `${NAME:-default}` in a value read the environment (the default
            also where the variable is empty); `$${` is a literal `${`.
        where: names a line of the text.
        places: filled with a place for each value.
        place: where the whole text belongs.

    Raises:
        ConfigError: bad YAML, a key given twice, an environment variable that is not set, nothing where
            only a variable can have left it so.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None and place:
            raise _empty(where(1), place)
        return _plain(node, where, places, place) if node else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{where(line)}: is not valid YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{where(line)}: is not valid YAML: {error.reason}") from None
    except RecursionError:
        raise ConfigError(f"{where(1)}: an alias contains itself, or values are nested too deeply") from None


def _plain(node: yaml.Node, where: Where, places: dict[Place, str], place: Place) -> Any:
    line = node.start_mark.line + 1
    if place:
        places.setdefault(place, where(line))
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, at = str(key_node.value), where(key_node.start_mark.line + 1)
            if key in values:
                raise ConfigError(f"{at}: the key {dotted((*place, key))} is given twice")
            places[*place, key] = at
            if node.flow_style and _says_nothing(value_node):
                raise _empty(at, (*place, key))
            values[key] = _plain(value_node, where, places, (*place, key))
        return values
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each, where, places, (*place, at)) for at, each in enumerate(node.value)]
    text = _environment(node.value, where(line))
    if not isinstance(node, yaml.ScalarNode) or node.style is not None:
        return text
    if node.value and not text:
        raise _empty(where(line), place)
    return _typed(text)


def _says_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and not node.value


def _empty(where: str, place: Place) -> ConfigError:
    """Nothing stands in for a value on purpose: an empty `budget.limit` is not to mean that there is no wall.

    A block's key with nothing under it is YAML's own way to say null, and stays that.
    """
    hint = "Write null for none, or give a variable a default: ${NAME:-...}."
    return ConfigError(f"{where}: {dotted(place)} is empty", hint=hint)


_resolver = yaml.resolver.Resolver()


def _typed(text: str) -> Any:
    """What an unquoted scalar means."""
    tag = _resolver.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]  # untyped there
    kind = tag.removeprefix("tag:yaml.org,2002:")
    if kind == "null":
        return None
    if kind == "bool":
        return SafeConstructor.bool_values[text.lower()]
    try:
        if kind == "int" and re.fullmatch(r"[-+]?[0-9]+", text):
            return int(text)
        if kind == "float":
            return Decimal(text)
    except (ValueError, InvalidOperation):  # more digits than Python reads, or no number after all
        return text
    # The rest is text, also what YAML 1.1 would take for a date or for a number to base 60: 16:9 is a ratio.
    return text


_VARIABLE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")


def _environment(text: str, where: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match.group() == "$${":
            return "${"
        name, default = match["name"], match["default"]
        if name is None:
            raise ConfigError(
                f"{where}: '${{' begins neither ${{NAME}} nor ${{NAME:-default}}",
                hint="A literal one is '$${'.",
            )
        found = os.environ.get(name)
        if default is not None:
            return found or default
        if found is None:
            raise ConfigError(
                f"{where}: the environment variable {name} is not set",
                hint=f"Set it, or give a default: ${{{name}:-...}}.",
            )
        return found

    return _VARIABLE.sub(value, text)


def override_with(config: dict[str, Any], override: str, places: dict[Place, str]) -> None:
    """Writes one `a.b=value` (the value is YAML) into plain values.

    Raises:
        ConfigError: not of that form, or `a` is a single value; the message names the override, but no
            password in a URL.
    """
    key, equals, text = override.partition("=")
    place = tuple(key.strip().split("."))
    if not equals or not all(place):
        raise ConfigError(f"--set {masked(override)}: takes the form a.b=value")
    where = "--set " + masked(f"{key}=..." if place[-1].endswith("url") else override)
    section = config
    for at, part in enumerate(place[:-1], start=1):
        section[part] = section.get(part) or {}
        section = section[part]
        places.setdefault(place[:at], where)
        if not isinstance(section, dict):
            raise ConfigError(f"{where}: {dotted(place[:at])} is a single value and has no keys")
    for stale in [each for each in places if each[: len(place)] == place]:
        del places[stale]
    section[place[-1]] = parse(text, lambda _: where, places, place)


def masked(text: str) -> str:
    """Text of a config as it may be shown: without what stands before the host of a URL, say a password."""
    return re.sub(r"//.*@", "//...@", text, flags=re.DOTALL)


def dotted(place: Place) -> str:
    """A place as people write it: `budget.limit`, in backquotes."""
    return "`" + masked(".".join(str(part) for part in place)) + "`"
