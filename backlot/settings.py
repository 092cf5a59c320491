"""The backlot's settings: one schema for flags, `BACKLOT_*` variables and the config file.

A flag wins over a variable, a variable over the file. An unknown key is an error. What reads the config file
reads the catalogue and the faults too: YAML files of a user, with errors in plain words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from backlot.errors import SettingsError

T = TypeVar("T")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML has it


class Shape(BaseModel):
    """A section of a settings file. An unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def money(value: object) -> object:
    """Refuses a float where money is expected: it may already have lost digits."""
    if isinstance(value, float):
        raise ValueError('write an amount of money in quotes, such as "0.0400"')  # noqa: TRY004 - for pydantic
    return value


Money = Annotated[Decimal, BeforeValidator(money), Field(ge=0, decimal_places=4, allow_inf_nan=False)]
"""US dollars, exact, with at most four fractional digits."""


def read_yaml(path: Path) -> Any:
    """The content of a file. Raises `SettingsError` where it cannot be read."""
    try:
        return yaml.load(path.read_text("utf-8"), LOADER)  # noqa: S506 - a safe one
    except OSError as error:
        raise SettingsError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{path}{line}: is not valid YAML: {getattr(error, 'problem', error)}") from None


def read_as(shape: TypeAdapter[T], path: Path) -> T:
    """The content of a file in a shape. Raises `SettingsError`: it cannot be read, or a key is wrong."""
    try:
        return shape.validate_python(read_yaml(path))
    except ValidationError as error:
        lines = [": ".join(filter(None, (str(path), key, message))) for key, message in problems(error)]
        raise SettingsError("\n".join(lines)) from None


def problems(error: ValidationError) -> list[tuple[str, str]]:
    """Each wrong key, with dots between its parts, and what is wrong with it."""
    return [(".".join(map(str, problem["loc"])), reason(problem)) for problem in error.errors()]


def reason(problem: Any) -> str:
    """What is wrong with a key."""
    match problem["type"]:
        case "extra_forbidden":
            return "unknown key"
        case "missing":
            return "is missing"
        case "model_type":
            return "expected keys and values"
        case "tuple_type":
            return f"expected a list (it is {problem['input']!r})"
        case "value_error":
            return str(problem["ctx"]["error"])
        case _:
            return f"{problem['msg']} (it is {problem['input']!r})"


def check_key(key: str) -> str:
    """Refuses what cannot be an API key (INTERFACE 5.1)."""
    if not re.fullmatch(r"sk_[\x21-\x7e]+", key):
        raise ValueError("an API key looks like sk_..., with ASCII characters and without spaces")
    return key


Key = Annotated[str, AfterValidator(check_key)]

TEST_WORD = "forbidden-test-word"
"""A harmless word that the safety check refuses, for demos and tests."""

SPOILED_WORD = "spoiled-in-the-lab"
"""A harmless word with which a video is accepted, but fails the safety check when it is finished."""


class Safety(Shape):
    """What the safety check refuses (INTERFACE 7: 422).

    Words match whole words of the prompt, in any case. `images` are the SHA-256, in hex, of an inline image's
    bytes or of an https URL's text. A prompt with one of `video_words` is accepted, but its video then fails
    with `content_policy_violation`.
    """

    words: tuple[str, ...] = (TEST_WORD, "gore", "beheading", "nude", "nudity", "porn", "swastika")
    video_words: tuple[str, ...] = (SPOILED_WORD,)
    images: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], ...] = ()


class WorkspaceSettings(Shape):
    """One workspace, whose projects share its balance and limits (INTERFACE 5.4).

    A limit of null is the server's. A balance of null is a workspace without billing: its balance is zero
    (INTERFACE 4.6).
    """

    balance: Money | None = None
    image_rpm: int | None = Field(default=None, ge=0)
    video_rpm: int | None = Field(default=None, ge=0)
    concurrency: int | None = Field(default=None, ge=0)
    projects: dict[str, tuple[Key, ...]]


class Settings(Shape):
    """All settings. The field descriptions are the help texts of the flags."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8400, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    state: Path | None = Field(
        default=None, description="Folder that keeps the state; without it, the state is in memory."
    )
    api_key: Key = Field(default="sk_backlot", description="The API key, of the form sk_...")
    image_rpm: int = Field(default=600, ge=0, description="Image generations accepted per window.")
    video_rpm: int = Field(default=120, ge=0, description="Video generations accepted per window.")
    concurrency: int = Field(default=16, ge=0, description="Generations at once, images and videos together.")
    window: int = Field(default=60, ge=1, description="Length of a rate window in whole seconds.")
    balance: Money = Field(default=Decimal("100.0000"), description="US dollars the workspace starts with.")
    image_seconds: float = Field(
        default=0.3, ge=0, allow_inf_nan=False, description="How long an image takes."
    )
    video_seconds: float = Field(
        default=3.0, ge=0, allow_inf_nan=False, description="How long a video takes."
    )
    media_ttl: int = Field(default=3600, ge=1, description="Seconds until finished media is deleted.")
    seed: int = Field(
        default=0,
        ge=-(2**63),
        lt=2**63,
        description="With another seed, the same prompts give other images and videos.",
    )
    faults: Path | None = Field(default=None, description="YAML file of faults on demand.")
    dashboard_host: str | None = Field(
        default=None,
        pattern=r"^([A-Za-z0-9.-]+|[0-9A-Fa-f]*:[0-9A-Fa-f:]+)$",
        description="Name by which browsers may open the dashboard; needed unless it listens on loopback.",
    )
    # In the config file only:
    workspaces: dict[str, WorkspaceSettings] = Field(default={})
    safety: Safety = Safety()
    catalogue: Path = Path(__file__).with_name("catalogue.yaml")
    costs_lag: float = Field(default=0, ge=0, description="Seconds by which daily costs lag behind charges.")
    read_rpm: int = Field(
        default=60_000, ge=1, description="Requests a minute and workspace to all other endpoints."
    )

    @property
    def keys(self) -> list[str]:
        """The API keys of all projects."""
        projects = [
            project for workspace in self.workspaces.values() for project in workspace.projects.values()
        ]
        return [key for project in projects for key in project] or [self.api_key]

    @model_validator(mode="after")
    def keys_are_unique(self) -> Self:
        """Checks that each key belongs to one project."""
        if len(self.keys) != len(set(self.keys)):
            raise ValueError("the same API key is in two projects")
        return self


def read_settings(config: Path | None, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Settings from flags, then `BACKLOT_*` variables, then the config file. An empty variable is not set.

    Raises:
        SettingsError: something is wrong; the message names the source and the key.
    """
    names = ("config", *Settings.model_fields)
    environment = {name: value for name in names if (value := environ.get(f"BACKLOT_{name.upper()}"))}
    if in_environment := environment.pop("config", None):
        config = config or Path(in_environment)
    content = read_yaml(config) if config else {}
    if not isinstance(content, dict):
        raise SettingsError(f"{config}: expected keys and values")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, entries in (
        (str(config), content),
        ("the environment", environment),
        ("the command line", flags),
    ):
        values |= entries
        sources |= dict.fromkeys(entries, source)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        lines = [
            f"{sources.get(key.partition('.')[0], config)}: {key}: {message}"
            for key, message in problems(error)
        ]
        raise SettingsError("\n".join(lines)) from None
