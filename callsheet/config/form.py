"""What a form asks for before a run: a config file, and some of its settings.

Each group of fields is a part of a section of `settings.py`, with its types and bounds. An empty field leaves
what the config says. A field's docstring is its help in the form: one line, with an example. Knows nothing of
Prefect, whose UI draws a form from its JSON schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from callsheet.config.load import dotted, load, split_override
from callsheet.config.setting_types import Count, Dollars, SomeSeconds, Text, text_like
from callsheet.config.settings import Section, Settings
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

_FILES = {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}

ConfigFiles = Annotated[Sequence[Text], Field(min_length=1), WithJsonSchema(_FILES)]
"""The paths of config files, in their order. The UI draws no choice in a list."""

_OVERRIDE = text_like("^[^=]+=", "a setting and its value, for example storage.sidecar=true")

Overrides = Annotated[Sequence[str], WithJsonSchema({"type": "array", "items": _OVERRIDE})]
"""Settings to change, each as `a.b=value`."""

RowIds = Annotated[Sequence[str], WithJsonSchema({"type": "array", "items": {"type": "string"}})]
"""The ids of rows of the batch file."""

PlanHash = Annotated[Text, WithJsonSchema({"type": "string", "minLength": 1, "internal": True})]
"""The hash of a plan, for runs that another one starts: no form asks for it (`flows/deployments.py`)."""


class Group(Section):
    """Some settings of a section, each of which may be left out: None leaves what the config says."""

    @model_serializer(mode="wrap")
    def _only_what_is_given(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        """An empty field is absent: beside null, a value would take one more click."""
        drawn: dict[str, Any] = handler.resolve_ref_schema(handler(schema))
        for name, field in drawn["properties"].items():
            [value] = [choice for choice in field["anyOf"] if choice != {"type": "null"}]
            drawn["properties"][name] = value | {"title": name, "description": field["description"]}
        return drawn


class ServiceForm(Group):
    """Where to buy."""

    block: Text | None = None
    """The CallsheetService block with the address and the key, for example `studio`."""


class InputForm(Group):
    """What to buy."""

    path: Text | None = None
    """A batch file, a glob or an `s3://` URL, for example `prompts/shots.csv`."""


class BudgetForm(Group):
    """What may be spent, in US dollars."""

    limit: Dollars | None = None
    """The most that the batch may cost, for example 20.00."""

    approve_above: Dollars | None = None
    """Ask a person before buying for more than this, or at changed rates, for example 5.00."""

    pilot: Count | None = None
    """Buy so many jobs first, then ask whether to buy the rest, for example 6."""


class LimitsForm(Group):
    """How fast to buy: this run's share of the account's limits."""

    image_rpm: Count | None = None
    """Image submissions a minute, for example 60."""

    video_rpm: Count | None = None
    """Video submissions a minute, for example 10."""

    concurrency: Count | None = None
    """Generations in flight at the same time, for example 8."""


class PollForm(Group):
    """How long to wait for videos."""

    timeout: SomeSeconds | None = None
    """Seconds after which a video is left to a later run, for example 600."""


class ReconcileForm(Group):
    """When to fail."""

    threshold: Dollars | None = None
    """The unexplained difference above which the run fails, in US dollars, for example 0.05."""


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
            if place in (keys := (*name.split("."),), keys[:1]):
                raise ConfigError(
                    f"{dotted(keys)} is given twice: as a parameter, and by the override {'.'.join(place)}",
                    hint="Leave the field empty, or the override out.",
                )
    return load(Path(config), overrides, values=values, values_from="parameters")
