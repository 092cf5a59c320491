"""What a form asks for before a run: a config file, and some of its settings.

Each group of fields is a part of a section of `settings.py`, and has its types, bounds and texts. An empty
field leaves what the config says. Knows nothing of Prefect, whose UI draws a form from its JSON schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from callsheet.config import settings
from callsheet.config.checks import Count, Dollars, SomeSeconds, Text
from callsheet.config.load import load
from callsheet.config.settings import Section, Settings
from callsheet.config.yaml_lines import dotted, split_override
from callsheet.errors import ConfigError

FOLDER = Path("configs")


class _FileChoice:
    """Adds to the JSON schema of a text the files that are in `FOLDER` of the working directory just then."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        path = {"type": "string", "minLength": 1}
        files = sorted(file.as_posix() for file in FOLDER.glob("*.yaml"))
        if not files:
            return path
        # The path comes first: the UI shows any text in the first choice that is text, while one types.
        choice = {"type": "string", "enum": files, "title": f"Choose from {FOLDER}/"}
        return {"anyOf": [path | {"title": "Path"}, choice]}


ConfigFile = Annotated[Text, _FileChoice()]
"""The path of a config file."""

Overrides = Annotated[
    Sequence[str], WithJsonSchema({"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}})
]
"""Settings to change, each as `a.b=value`."""

RowIds = Annotated[Sequence[str], WithJsonSchema({"type": "array", "items": {"type": "string"}})]
"""The ids of rows of the batch file."""


class Group(Section):
    """Some settings of a section, each of which may be left out: None leaves what the config says."""

    section: ClassVar[type[Section]]

    @model_serializer(mode="wrap")
    def _only_what_is_given(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        """An empty field is absent: beside null, a value would take one more click."""
        drawn: dict[str, Any] = handler.resolve_ref_schema(handler(schema))
        drawn["description"] = _without_null(cls.section.__doc__)
        for name, field in drawn["properties"].items():
            [value] = [choice for choice in field["anyOf"] if choice != {"type": "null"}]
            meaning = _without_null(cls.section.model_fields[name].description)
            drawn["properties"][name] = value | {"title": name, "description": meaning}
        return drawn


def _without_null(text: str | None) -> str:
    """A setting's documentation without what null means, which a form cannot say."""
    return " ".join((text or "").split()).partition(" Null: ")[0]


class ServiceForm(Group):
    """Where to buy."""

    section = settings.Service

    block: Text | None = None


class InputForm(Group):
    """Which batch file."""

    section = settings.Input

    path: Text | None = None


class BudgetForm(Group):
    """What may be spent."""

    section = settings.Budget

    limit: Dollars | None = None
    approve_above: Dollars | None = None
    pilot: Count | None = None
    per_day: Dollars | None = None


class LimitsForm(Group):
    """How fast."""

    section = settings.Limits

    image_rpm: Count | None = None
    video_rpm: Count | None = None
    concurrency: Count | None = None


class PollForm(Group):
    """How long to wait for videos."""

    section = settings.Poll

    timeout: SomeSeconds | None = None


class ReconcileForm(Group):
    """When to fail."""

    section = settings.Reconcile

    threshold: Dollars | None = None


def load_form(config: str, overrides: Sequence[str] = (), **groups: Group) -> Settings:
    """Reads a config file, with the overrides (`a.b=value`) and then the fields of a form in place of its own
    values.

    Raises:
        ConfigError: as `load` raises it; or a setting has both an override and a field.
    """
    values = {
        f"{section}.{name}": value
        for section, group in groups.items()
        for name, value in group
        if value is not None
    }
    for override in overrides:
        place, _ = split_override(override)
        for name in values:
            if place in (own := (*name.split("."),), own[:1]):
                raise ConfigError(
                    f"{dotted(own)} is given twice: as a parameter, and by the override {'.'.join(place)}",
                    hint="Leave the field empty, or the override out.",
                )
    return load(Path(config), overrides, values=values, values_from="parameters")
