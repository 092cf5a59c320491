"""The config file: its schema, and how a YAML file becomes checked settings.

Knows nothing of what the settings are for. Every error names the file, the line and the key, and no message
repeats the value of a URL's key, or what stands before the host of any URL, because that may be a password.
"""

from __future__ import annotations

import codecs
import difflib
import re
import string
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import httpx
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from callsheet.config.yaml_lines import Place, dotted, masked, override_with, parse
from callsheet.errors import ConfigError

FileColumn = Literal[
    "id",
    "model",
    "prompt",
    "aspect_ratio",
    "resolution",
    "output_format",
    "duration",
    "sound",
    "images",
    "first_frame",
    "last_frame",
    "reference_image",
    "samples",
]
"""The columns of a batch file that Callsheet understands; every other one is carried into the manifest."""

COLUMNS: tuple[FileColumn, ...] = get_args(FileColumn)

STORAGE_PLACEHOLDERS = ("batch", "row_id", "sample", "index", "ext", "job_key", "model", "generation_id")


def _batch_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise ValueError(
            "takes 1 to 100 letters, digits, '-', '_' and '.', and begins with a letter or digit, "
            "because files are named after it"
        )
    return value


def _no_float(value: Any) -> Any:
    if isinstance(value, float):
        raise ValueError("money is not a binary float: give it as text or as a Decimal")  # noqa: TRY004  # the same
    return value


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("should be a number")  # noqa: TRY004  # pydantic reports a ValueError
    return value


def _http(value: str) -> str:
    if not re.match(r"https?://[^/\s]", value):
        raise ValueError("must begin with http:// or https:// and name a host")
    try:
        url = httpx.URL(value)  # which decodes the host, and may fail in it, only when it is asked for
        possible = url.host and 0 <= (url.port or 0) < 1 << 16
    except (httpx.InvalidURL, ValueError):
        possible = False
    if not possible:  # in our words: theirs may repeat what is a password
        raise ValueError("is no address: its host or its port is not a possible one")
    return value.rstrip("/")


def _template(value: str) -> str:
    try:
        parts = list(string.Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{error}; write a literal brace twice") from None
    for _, name, spec, how in parts:
        if name is not None and (not name or spec or how):
            raise ValueError(f"{{{name}}} is not the bare name of a column; write a literal brace twice")
    return value


def _check_placeholders(value: str, placeholders: Sequence[str]) -> None:
    try:
        fields = list(string.Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{error}; write a literal brace twice") from None
    for _, name, spec, conversion in fields:
        if name is not None and (name not in placeholders or spec or conversion):
            expected = ", ".join(f"{{{placeholder}}}" for placeholder in placeholders)
            raise ValueError(f"{{{name}}} is not a placeholder; expected {expected}")


def _report_placeholders(value: str) -> str:
    _check_placeholders(value, ("batch",))
    return value


def _storage_placeholders(value: str) -> str:
    _check_placeholders(value, STORAGE_PLACEHOLDERS)
    if value.startswith("/") or ".." in value.split("/"):
        raise ValueError("stays inside storage.url: it neither begins with '/' nor has a '..'")
    return value


def _codec(value: str) -> str:
    try:
        "".encode(value)
        return codecs.lookup(value).name
    except LookupError:
        raise ValueError(f"there is no text encoding called {value!r}") from None


def _one_reason(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """A cell's types fail one by one, and each would say that the value should be of its own."""
    try:
        return check(value)
    except ValidationError:
        raise ValueError("should be text, a number, true or false, or for images a list") from None


class _WrongCell(ValueError):
    """A value that its column cannot have, and where it stands within `defaults` or `matrix`."""

    def __init__(self, reason: str, cell: Cell, *at: str | int | None) -> None:
        super().__init__(reason)
        self.cell = cell
        self.at = tuple(part for part in at if part is not None)


Cell = Annotated[bool | int | Decimal | str | list[dict[str, str]], WrapValidator(_one_reason)]
"""A value for a column, as YAML gives it. Only `images` takes a list."""

Name = Annotated[str, StringConstraints(min_length=1)]
Count = Annotated[int, BeforeValidator(_no_truth_value), Field(ge=1)]
Seconds = Annotated[float, BeforeValidator(_no_truth_value)]
Dollars = Annotated[Decimal, BeforeValidator(_no_float), Field(ge=0, max_digits=18, decimal_places=6)]


class Section(BaseModel):
    """A part of the config: frozen, and every key is known. The text under a field is its documentation."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )


class Service(Section):
    """The service to buy from."""

    base_url: Annotated[str, AfterValidator(_http)]
    """The base address without the version: `https://...`, or `http://127.0.0.1:...` for a backlot."""

    api_key_env: Name = "CALLSHEET_API_KEY"
    """The environment variable that holds the API key. The key itself never stands in a config."""

    api_key_block: Name | None = None
    """The name of a Prefect Secret block that holds the API key, in place of the environment variable."""


class Input(Section):
    """The batch file, and how its columns become requests."""

    path: Name
    """A CSV, TSV, Parquet or Excel file (text also as `.gz`, `.zst`), a glob, or an `s3://` URL."""

    columns: dict[FileColumn, Name] = {}
    """Which column of the file gives which value, where the names differ: `{prompt: text}`."""

    defaults: dict[FileColumn, Cell] = {}
    """Values for columns that the file lacks and for empty cells: `{model: still-1}`."""

    template: Annotated[Name, AfterValidator(_template)] | None = None
    """A prompt made from columns: `"{adjective} photo of {product}"`. Write a literal brace twice."""

    matrix: dict[FileColumn, Annotated[list[Cell], Field(min_length=1)]] = {}
    """Buys each row once for every combination of these values, which take the place of the row's own."""

    strict: bool = False
    """Whether one rejected row stops the whole batch before anything is bought."""

    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] | None = None
    """What separates the cells of a text file. Found from the header where it is not given."""

    quote: Annotated[str, StringConstraints(min_length=1, max_length=1)] | None = None
    """What encloses cells with delimiters in them. Found from the header where it is not given."""

    encoding: Annotated[str, AfterValidator(_codec)] | None = None
    """The text file's encoding, where no byte order mark says it. UTF-8 where it is not given."""

    @field_validator("defaults", "matrix", mode="after")
    @classmethod
    def _a_row_has_its_own_id(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "id" in value:
            raise ValueError("an id is the row's own: it has no default and no matrix")
        return value

    @field_validator("defaults", "matrix", mode="after")
    @classmethod
    def _as_a_file_would_have_it(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if value:
            from callsheet.rows import fixed_values  # polars, which `--help` can do without
        for column, cells in value.items():
            places = enumerate(cells) if info.field_name == "matrix" else [(None, cells)]
            for at, cell in places:
                try:
                    fixed_values({column: cell})
                except ValueError as error:
                    raise _WrongCell(str(error), cell, column, at) from None
        return value

    @field_validator("matrix", mode="after")
    @classmethod
    def _each_value_once(cls, value: dict[str, list[Cell]]) -> dict[str, list[Cell]]:
        if "samples" in value:
            raise ValueError("samples is a number of a row's own: give it as a column or a default")
        for column, cells in value.items():
            if any(cell in cells[:at] for at, cell in enumerate(cells)):
                raise ValueError(f"{column} lists a value twice; for several of the same, use samples")
        return value

    @model_validator(mode="after")
    def _one_source_of_prompts(self) -> Input:
        if self.template is not None and "prompt" in {*self.columns, *self.defaults, *self.matrix}:
            raise ValueError(
                "the prompt comes from template or from a column, default or matrix, not from both"
            )
        return self


class Budget(Section):
    """What may be spent."""

    limit: Dollars | None = None
    """The most that the batch may cost in US dollars: spent, in flight and in doubt. None: no limit."""

    per_day: Dollars | None = None
    """The most that all batches of the ledger may cost in one UTC day, in US dollars. None: no limit."""

    on_exceed: Literal["stop", "skip", "refuse"] = "stop"
    """`stop` buys in the file's order until a job does not fit; `skip` passes over jobs that do not fit, for
    cheaper ones; `refuse` buys nothing unless all fits."""

    approve_above: Dollars | None = None
    """A person is asked before a quote above this many US dollars is bought. None: never."""

    quote_valid_for: Annotated[Seconds, Field(ge=0)] = 900.0
    """Seconds for which a quote holds. Where nothing was bought by then, say because somebody took long to
    approve it, the rates are read again, and all is priced and approved anew if one has changed."""

    allow_unpriced: bool = False
    """Whether to buy what the catalogue has no price for. No budget can hold what has no price."""


class Limits(Section):
    """The account's limits, where they are known. What is not given is learned from the service's answers."""

    image_rpm: Count | None = None
    """Image submissions a minute."""

    video_rpm: Count | None = None
    """Video submissions a minute."""

    concurrency: Count | None = None
    """Generations in flight at once, images and pending videos together."""


class Poll(Section):
    """How pending videos are asked after."""

    interval: Annotated[Seconds, Field(ge=0.1)] = 5.0
    """Seconds between two polls of a video."""

    timeout: Annotated[Seconds, Field(gt=0)] = 300.0
    """Seconds after which this run leaves a video pending, for the next run or `collect` to take up."""


class Storage(Section):
    """Where the media go."""

    url: Name = "out/media"
    """A folder, or `s3://bucket/prefix`."""

    endpoint_url: Annotated[str, AfterValidator(_http)] | None = None
    """The address of an S3 server other than Amazon's, for every `s3://` URL of the config."""

    key: Annotated[Name, AfterValidator(_storage_placeholders)] = "{batch}/{row_id}-{sample}-{index}.{ext}"
    """A file's name inside `url`: batch, row_id, sample, index, ext, job_key, model, generation_id."""


class LedgerSettings(Section):
    """The record of what was bought."""

    url: Name = "sqlite:///out/ledger.db"
    """A database's SQLAlchemy URL."""


class Report(Section):
    """The files that say what a batch made and cost."""

    url: Annotated[Name, AfterValidator(_report_placeholders)] = "out/{batch}/report"
    """A folder, or `s3://bucket/prefix`. `{batch}` is the batch's name."""


class Settings(Section):
    """A whole config. Every section but `batch`, `service` and `input` may be left out."""

    batch: Annotated[str, AfterValidator(_batch_name)]
    """The batch's name, the ledger's scope: letters, digits, `-`, `_` and `.`."""

    service: Service
    input: Input
    budget: Budget = Budget()
    limits: Limits = Limits()
    poll: Poll = Poll()

    on_doubt: Literal["hold", "retry"] = "hold"
    """What to do with a job that may have been paid for: leave it to a person, or buy it again."""

    retry_failed: bool = False
    """Whether a run buys anew the jobs that failed in an earlier one."""

    reuse: Literal["batch", "ledger"] = "batch"
    """`ledger`: what another batch of the ledger has stored for the same request is taken, not bought."""

    attempts: Count = 4
    """How often a job that the service answers 500 is tried in all."""

    stop_after: Count = 10
    """How many jobs one after another may end in doubt or lost before the run stops buying."""

    storage: Storage = Storage()
    ledger: LedgerSettings = LedgerSettings()
    report: Annotated[Report, Field(validate_default=True)] = Report()

    @field_validator("report", mode="after")
    @classmethod
    def _named_after_the_batch(cls, report: Report, info: ValidationInfo) -> Report:
        """Replaces `{batch}`, so that `report.url` is where the report goes."""
        if "batch" not in info.data:  # it is wrong, and pydantic reports it
            return report
        return report.model_copy(update={"url": report.url.format(batch=info.data["batch"])})

    @model_validator(mode="before")
    @classmethod
    def _an_empty_section_is_left_out(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                key: each for key, each in value.items() if each is not None or key not in cls.model_fields
            }
        return value


def load(path: Path, overrides: Sequence[str] = ()) -> Settings:
    """Reads a config file and checks it whole.

    Args:
        path: the YAML file. `${NAME}` and `${NAME:-default}` in a value read the environment (the default
            also where the variable is empty); `$${` is a literal `${`.
        overrides: `a.b=value` each, from `--set`; the value is YAML.

    Raises:
        ConfigError: unreadable file, bad YAML, unknown or repeated key, unset variable, wrong type or value;
            every wrong key is named, with its line or its override.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such config file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    places: dict[Place, str] = {}
    config = parse(text, lambda line: f"{path}, line {line}", places)
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: holds no settings", hint="A config begins with 'batch: <name>'.")
    for override in overrides:
        override_with(config, override, places)
    try:
        return Settings.model_validate(config)
    except ValidationError as error:
        problems = [_explain(each, str(path), places) for each in error.errors(include_url=False)]
        raise ConfigError("\n".join(dict.fromkeys(problems))) from None


def _explain(error: Any, file: str, places: Mapping[Place, str]) -> str:
    """One of pydantic's errors as: where, which key, what is wrong."""
    location, value = tuple(part for part in error["loc"] if part != "[key]"), error["input"]
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, _WrongCell):
        location, value = (*location, *cause.at), cause.cell
    place = _known(location, places)
    where = places.get(place, file)
    if error["type"] == "missing":
        return f"{where}: the key {dotted(location)} is missing"
    if error["type"] == "extra_forbidden" or "[key]" in error["loc"]:
        known = COLUMNS if "[key]" in error["loc"] else _keys_at(location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1)
        guess = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        return f"{where}: unknown key {dotted(location)}; {guess}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    shown = isinstance(value, str | int | Decimal) and "url" not in str(place[-1:])
    return f"{where}: {dotted(place)} {message}" + (f" (it is {masked(str(value))[:80]!r})" if shown else "")


def _known(location: Place, places: Mapping[Place, str]) -> Place:
    """The longest part of a pydantic location that the config names: unions add parts of their own."""
    return next(
        (location[:end] for end in range(len(location), 0, -1) if location[:end] in places), location[:1]
    )


def _keys_at(location: Place) -> tuple[str, ...]:
    section: Any = Settings
    for part in location:
        section = section.model_fields[part].annotation
    return tuple(section.model_fields)
