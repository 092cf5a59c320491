"""The config as a JSON Schema, with which an editor completes and checks a YAML file.

It is made of `settings.py`: descriptions, defaults and bounds stand there alone, and what a wrong value is
told are the words of `load.py`. A schema sees the file before `${VARIABLES}` are read, so text with one is
taken wherever a value may come from one; and it sees neither other files nor what two settings are together,
so what it takes may still be refused. It takes whatever `load` takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from callsheet.config.load import EXPECTED, NOT_QUOTED, REMOVED
from callsheet.config.settings import Settings

SCHEMA_FILE = ".callsheet-schema.json"  # no glob for batch files takes what begins with a point
MODELINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
"""The first line of a config whose schema is beside it: editors with YAML's language server read it."""

_VARIABLE = r"\$\{"
_AMOUNT: dict[str, Any] = {
    "type": ["number", "string"],
    "minimum": 0,
    "pattern": r"^[0-9]{1,12}(\.[0-9]{1,6})?$",
}
_TEXT_OF = {  # what a quoted value, or that of a variable, is read as
    "integer": r"^[+-]?[0-9]+$",
    "number": r"^[+-]?[0-9.]+([eE][+-]?[0-9]+)?$",
    "boolean": r"^([Tt]rue|[Ff]alse|[Yy]es|[Nn]o|[Oo]n|[Oo]ff)$",
}
_KIND = {"integer": "int_type", "number": "float_type", "boolean": "bool_type", "array": "list_type"}
_BOUNDS = {  # pydantic's names and JSON's, and the error
    "minimum": ("ge", "greater_than_equal"),
    "exclusiveMinimum": ("gt", "greater_than"),
    "maximum": ("le", "less_than_equal"),
}


def schema_text() -> str:
    """The schema as a file."""
    return json.dumps(config_schema(), indent=1, ensure_ascii=False) + "\n"


def write_schema(folder: Path) -> None:
    """Writes the schema of this Callsheet beside the configs of a folder.

    Raises:
        OSError: it cannot be written.
    """
    (folder / SCHEMA_FILE).write_text(schema_text(), encoding="utf-8")


def config_schema() -> dict[str, Any]:
    """The JSON Schema of a config, of draft 7: editors know no later one as well."""
    drawn = Settings.model_json_schema(ref_template="#/definitions/{model}")
    sections = {name: _object(section) for name, section in drawn.pop("$defs").items()}
    settings = _object(drawn)
    for name, setting in settings["properties"].items():
        if "$ref" in setting:
            section = sections[setting["$ref"].rpartition("/")[2]]
            settings["properties"][name] = {"$ref": setting["$ref"]}  # its default is that of its settings
            if name not in drawn["required"]:  # with nothing in it, it is as if it were left out
                section["type"] = ["object", "null"]
    for (*places, name), hint in REMOVED.items():
        section = sections[str(places[0]).capitalize()] if places else settings
        message = f"is no setting any more; {hint}"
        section["properties"][name] = {"not": {}, "deprecationMessage": message, "doNotSuggest": True}
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "A config of Callsheet"}
    return head | settings | {"definitions": sections}


def _object(drawn: Mapping[str, Any]) -> dict[str, Any]:
    properties = {name: _value(value) for name, value in drawn["properties"].items()}
    rest = {name: part for name, part in drawn.items() if name != "title"}
    rest["description"] = _one_line(drawn["description"])
    return rest | {"properties": properties}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _value(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a value, as pydantic has drawn it, with the texts that stand for one, and the message."""
    about = {name: drawn[name] for name in ("description", "default") if name in drawn}
    if "description" in about:
        about["description"] = _one_line(about["description"])
    value = {name: part for name, part in drawn.items() if name not in (*about, "title")}
    choices = value.pop("anyOf", [])
    is_optional = {"type": "null"} in choices
    if is_optional and len(choices) == 2:
        [drawn_value] = [choice for choice in choices if choice != {"type": "null"}]
        value |= drawn_value
        choices = []
    if choices:
        return about | {"anyOf": [_value(choice) for choice in choices]}
    checked = _checked(value)
    if is_optional and "anyOf" in checked:
        checked["anyOf"].append({"type": "null"})
    elif is_optional:
        types = checked["type"]
        checked["type"] = [*([types] if isinstance(types, str) else types), "null"]
    return about | checked


def _checked(value: dict[str, Any]) -> dict[str, Any]:
    """The schema of one value that is there."""
    if "if" in value:  # an amount, as it is drawn for Prefect's form
        return _with_text(_AMOUNT, EXPECTED["decimal_type"])
    if "const" in value or "enum" in value:
        allowed = value.get("enum") or [value["const"]]
        texts = {"type": "string", "pattern": _VARIABLE}
        return {"anyOf": [{"enum": allowed}, texts], "errorMessage": f"should be {_listed(allowed)}"}
    for name, (name_of_pydantic, _) in _BOUNDS.items():
        if name_of_pydantic in value:
            value[name] = value.pop(name_of_pydantic)
    kind = value.get("type")
    if isinstance(kind, list):  # a cell, or the name of a column, which `setting_types.py` has drawn
        return value
    if kind in _TEXT_OF:
        return _with_text(value | {"type": [kind, "string"], "pattern": _TEXT_OF[kind]}, _words(value))
    if kind == "string":
        if (longest := value.pop("maxLength", None)) is not None:
            value["pattern"] = rf"^[\s\S]{{1,{longest}}}$"
        return _with_text(value, NOT_QUOTED)
    for name in ("items", "additionalProperties"):
        if isinstance(value.get(name), dict) and "$ref" not in value[name]:
            value[name] = _value(value[name])
    return value | ({"errorMessage": EXPECTED[_KIND[kind]]} if kind in _KIND else {})


def _with_text(value: dict[str, Any], message: str) -> dict[str, Any]:
    """The schema of a value whose text may have variables."""
    pattern = {"pattern": f"{value['pattern']}|{_VARIABLE}"} if "pattern" in value else {}
    return {"errorMessage": message} | value | pattern


def _words(value: Mapping[str, Any]) -> str:
    """What a number or a boolean should be: `should be a whole number, at least 1`."""
    message = EXPECTED[_KIND[value["type"]]]
    for name, (name_of_pydantic, error) in _BOUNDS.items():
        if name in value:
            bound = EXPECTED[error].format(**{name_of_pydantic: value[name]})
            message += f", {bound.removeprefix('should be ')}"
    return message


def _listed(allowed: Sequence[Any]) -> str:
    texts = [repr(value) if isinstance(value, str) else json.dumps(value) for value in allowed]
    return " or ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
