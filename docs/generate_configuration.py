"""Writes docs/configuration.md from the schema of the config (`make docs`)."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from decimal import Decimal
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from callsheet.config.settings import FileColumn, Section, Settings

PAGE = Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# Configuration

<!-- Generated from callsheet/config/settings.py by `make docs`: change it there. -->

A config is a YAML file. Only `batch`, `service` and `input` are needed. This is the smallest one:

```yaml
batch: product-shots
service: {base_url: "${CALLSHEET_BASE_URL}"}
input: {path: prompts/shots.csv, defaults: {model: still-1}}
```

- An unknown key, or a key that is given twice, is an error that names its line.
- `${NAME}` is replaced by the environment variable `NAME`; a variable that is not set is an error.
  `${NAME:-default}` is `default` where the variable is not set or empty. `$${` is a literal `${`.
- An empty value is an error; `null` means none, where the type below has it. A section with
  nothing in it is as if it were left out.
- Relative paths start at the working directory; `~` and `~user` at a path's beginning are the home folder
  (`sqlite:///~/ledger.db` too).
- Money is in US dollars and read exactly, with or without quotes.
- `--set a.b=value` on the command line replaces one setting, and may be repeated: `--set budget.limit=5.00`.
  The value is YAML. For a setting whose type is text, it is the text itself (`--set 'input.path=*.csv'`), and
  `null` means none.

The columns of the batch file are described in [batches.md](batches.md).
"""

_TYPES: dict[Any, str] = {bool: "true or false", int: "whole number", float: "seconds", Decimal: "US dollars"}


def page() -> str:
    """The whole page."""
    fields = Settings.model_fields
    single = {name: field for name, field in fields.items() if not _is_section(field.annotation)}
    parts = [INTRODUCTION, "## Settings without a section\n", *_table(single), ""]
    for name in (name for name in fields if name not in single):
        section: Any = fields[name].annotation
        parts += [f"## {name}\n", f"{getdoc(section)}\n", *_table(section.model_fields, name), ""]
    return "\n".join(parts)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _table(fields: dict[str, FieldInfo], section: str = "") -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in fields.items():
        key = f"{section}.{name}" if section else name
        meaning = " ".join((field.description or "").split())
        cells = (f"`{key}`", _type(field.annotation, field.metadata), _default(field), meaning)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None:
        return "null"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if isinstance(field.default, float):
        return f"`{field.default:g}`"
    if isinstance(field.default, str) and "{" in field.default:
        return f'`"{field.default}"`'  # YAML reads a brace as a mapping
    return f"`{field.default}`"


def _type(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """The type of a setting in words, with its bounds."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0], [*arguments[1:], *metadata])
    if origin in (Union, types.UnionType):
        return _union(arguments, metadata)
    if annotation == FileColumn:
        return "column"
    if origin is Literal:
        return ", ".join(
            f"`{str(value).lower() if isinstance(value, bool) else value}`" for value in arguments
        )
    if origin is dict:
        return f"{_type(arguments[0])}: {_type(arguments[1])}"
    return f"list of {_type(arguments[0])}s" if origin is list else _plain(annotation, metadata)


def _union(members: Sequence[Any], metadata: Sequence[Any]) -> str:
    optional = types.NoneType in members
    return f"{_type(members[0], metadata)}, or null" if optional else "value"  # a cell takes several types


def _plain(annotation: Any, metadata: Sequence[Any]) -> str:
    if _is_section(annotation):
        return " and ".join(f"`{name}`" for name in annotation.model_fields)
    if any(getattr(bound, "le", None) == 1 for bound in _flat(metadata)):
        return "share, up to 1"
    if annotation is not str:
        return _TYPES[annotation] + _bounds(metadata)
    return "one character" if any(getattr(item, "max_length", 0) == 1 for item in metadata) else "text"


def _flat(metadata: Sequence[Any]) -> list[Any]:
    return [bound for item in metadata for bound in getattr(item, "metadata", [item])]


def _bounds(metadata: Sequence[Any]) -> str:
    for bound in _flat(metadata):
        if isinstance(bound, annotated_types.Ge) and bound.ge:
            return f", at least {bound.ge}"
        if isinstance(bound, annotated_types.Gt):
            return f", more than {bound.gt}"
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
