"""The types of single settings and their checks. Knows neither the sections nor the file.

A check returns the value to use, or raises a ValueError with the reason; `load.py` adds file, line and key.
"""

from __future__ import annotations

import codecs
import re
import shlex
import string
import unicodedata
from decimal import Decimal
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from callsheet.files import with_home, wrong_place

KeyPath = tuple[str | int, ...]
"""The keys and positions that lead to a value: ('budget', 'limit')."""


class WrongValue(ValueError):
    """A value that its setting cannot have: the reason, and what to do about it. Of `input.defaults` and
    `input.matrix` also the cell, and its place in them (the column, and in a matrix the position).
    """

    def __init__(self, reason: str, *place: str | int, cell: Any = None, hint: str = "") -> None:
        super().__init__(reason)
        self.hint, self.cell, self.place = hint, cell, place


LONGEST_BATCH_NAME = 200
"""Bytes in UTF-8; file systems allow 255 for a name that has it in it."""


_NO_BATCH_NAME = (
    "must be 1 to 100 letters, digits, '-', '_' and '.', and begin with a letter or digit, because "
    f"files are named after it; and at most {LONGEST_BATCH_NAME} bytes"
)
_NO_ADDRESS = "must begin with http:// or https:// and name a host"
_NO_KEY = "must stay inside storage.url: it may not begin with '/' or contain '..'"
_NO_FIELDS = "should have columns in braces alone; write a literal brace twice"
_NO_PLACE = "should be a folder, or s3://bucket/prefix"
_NO_CELL = "should be text, a number, true or false, or for images a list"
_NO_COLUMN = "should be a column's name, or its number, or a list of names"


def is_of_batch_name(character: str) -> bool:
    """Whether a batch's name may have it: a letter or digit of any script, `-`, `_` or `.`."""
    return character in "-_." or unicodedata.category(character)[0] in "LMN"


def _batch_name(value: str) -> str:
    value = unicodedata.normalize("NFC", value)
    is_short = len(value) <= 100 and len(value.encode()) <= LONGEST_BATCH_NAME
    if not (value[:1].isalnum() and is_short and all(map(is_of_batch_name, value))):
        raise ValueError(_NO_BATCH_NAME)
    return value


def _http_address(value: str) -> str:
    if not re.match(r"https?://[^/\s]", value):
        raise ValueError(_NO_ADDRESS)
    try:
        host = (urlsplit(value).hostname or "").encode("idna")
        host.decode("idna")
        usable = re.fullmatch(rb"[A-Za-z0-9._:%-]+", host) and urlsplit(value).port != 0
    except ValueError:  # a UnicodeError is one, too
        usable = None
    if not usable:
        raise ValueError("is not a valid address: its host or its port cannot be used")
    return value.rstrip("/")


def service_address(value: str) -> str:
    """Checks that an address is one to which `/v2/...` can be added; returns it without a slash at its end.

    Raises:
        ValueError: it is not. The message does not repeat it, because it may have a password.
    """
    value = _http_address(value)
    if "@" in urlsplit(value).netloc:
        hint = "The API key is in the environment variable CALLSHEET_API_KEY, or in the one that "
        hint += "service.api_key_env names."
        raise WrongValue("must not contain a user name or a password", hint=hint)
    if "?" in value or "#" in value:
        hint = "Give the service's address alone: https://api.example.com."
        raise WrongValue("must not contain a query or a fragment", hint=hint)
    if value.endswith("/v2"):
        raise WrongValue("must not end in /v2", hint="Leave it out: Callsheet adds the version.")
    return value


def _check_fields(value: str, names: tuple[str, ...], expected: str) -> str:
    """Checks the fields of a format string: bare (no conversion, no format), and of these names, if any."""
    try:
        fields = list(string.Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{error}; write a literal brace twice") from None
    for _, name, spec, conversion in fields:
        is_known = name in names if names else bool(name)
        if name is not None and (spec or conversion or not is_known):
            raise ValueError(f"{{{name}}} is not {expected}")
    return value


def _template(value: str) -> str:
    return _check_fields(value, (), "the name of a column in braces; write a literal brace twice")


def _column_name(value: Any) -> Any:
    if type(value) is int and value > 0:
        return str(value)
    names = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(name, str) and name for name in names) or (names is value and len(names) < 2):
        raise ValueError(_NO_COLUMN)
    return tuple(names) if names is value else value


def _command(value: str) -> str:
    if not shlex.split(value):  # which says what is wrong with quotes
        raise ValueError("names no program")
    return value


def _local_path(value: str) -> str:
    try:
        return with_home(value)
    except ValueError as error:
        hint = "Write the whole path, or ./~name for a name that begins so."
        raise WrongValue(str(error), hint=hint) from None


def _storage_url(value: str) -> str:
    if problem := wrong_place(value):
        raise WrongValue(problem[0], hint=problem[1])
    return _local_path(value)


def _report_url(value: str) -> str:
    return _storage_url(_check_fields(value, ("batch",), "a placeholder; expected {batch}"))


def _storage_key(value: str) -> str:
    _template(value)
    if value.startswith("/") or ".." in value.split("/"):
        raise ValueError(_NO_KEY)
    return value


def _text_encoding(value: str) -> str:
    try:
        "".encode(value)
        return codecs.lookup(value).name
    except LookupError:
        raise ValueError(f"there is no text encoding named {value!r}") from None


def _one_reason(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """One message for a cell in place of one for each type that it could have."""
    try:
        return check(value)
    except ValidationError:
        raise ValueError(_NO_CELL) from None


def _not_a_float(value: Any) -> Any:
    if isinstance(value, float):
        raise ValueError("money is not a binary float: give it as text or as a Decimal")  # noqa: TRY004  # pydantic reports a ValueError
    return value


def _not_a_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("should be a number")  # noqa: TRY004  # pydantic reports a ValueError
    return value


def text_like(pattern: str, words: str) -> dict[str, Any]:
    """The JSON schema of a text that matches a pattern.

    Where a text does not match, Prefect's form says "'<words>' was expected". With a plain `pattern` it would
    show the pattern, which few people can read.
    """
    return {
        "type": "string",
        "if": {"type": ["string", "null"], "pattern": pattern},
        "else": {"const": words},
    }


def _drawn(words: str, /, **schema: Any) -> WithJsonSchema:
    """How an editor is told of a type (`schema.py`): at least what its check takes."""
    return WithJsonSchema(schema | {"errorMessage": words})


Text = Annotated[str, StringConstraints(min_length=1)]
ColumnName = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_column_name),
    _drawn(
        _NO_COLUMN,
        type=["string", "integer", "array"],
        minLength=1,
        minimum=1,
        minItems=2,
        items={"type": "string", "minLength": 1},
    ),
]
"""The name of a file's column, or its number as text; or the names of several, which are one together."""

Character = Annotated[str, StringConstraints(min_length=1, max_length=1)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_not_a_boolean)]
CountFromZero = Annotated[int, Field(ge=0), BeforeValidator(_not_a_boolean)]
Seconds = Annotated[float, BeforeValidator(_not_a_boolean)]
SomeSeconds = Annotated[float, Field(gt=0), BeforeValidator(_not_a_boolean)]
Dollars = Annotated[
    Decimal,
    BeforeValidator(_not_a_float),
    Field(ge=0, max_digits=18, decimal_places=6),
    # In JSON it is text: a JSON number would pass through a float.
    WithJsonSchema(text_like(r"^[0-9]{1,12}(\.[0-9]{1,6})?$", "an amount in USD, for example 20.00")),
]

Share = Annotated[float, Field(gt=0, le=1), BeforeValidator(_not_a_boolean)]
"""A part of an amount: 0.8 is 80 %."""

RetryFailed = Literal[False, True, "server_error", "gateway", "all"]
"""Which failed jobs are bought again; true is `all`."""

Check = Annotated[
    Literal["off", "flag", "reject"],
    BeforeValidator(lambda value: "off" if value is False else value),
    WithJsonSchema({"enum": ["off", "flag", "reject", False]}),
]
"""What follows from an automatic check. In YAML, `off` is read as false."""

# A class of letters is no part of JSON Schema, so this takes whatever is not ASCII.
_BATCH_NAME = r"^[^\s!-/:-@\[-`{-~][^\s!-,/:-@\[-^`{-~]{0,99}$"
_HTTP = _drawn(_NO_ADDRESS, type="string", pattern=r"^https?://[^/\s]")
_FIELDS = r"([^{}]|\{\{|\}\}|\{[^{}:!]+\})+$"
_BATCH_FIELD = r"(?=([^{}]|\{\{|\}\}|\{batch\})+$)"
_KEY = r"(?!/)(?!(.*/)?\.\.(/|$))"
_URL = r"(s3://[^/]|file://(localhost)?(/|$)|(?!s3:|file:)((?!://)[\s\S])+$)"

BatchName = Annotated[
    str, AfterValidator(_batch_name), _drawn(_NO_BATCH_NAME, type="string", pattern=_BATCH_NAME)
]
HttpAddress = Annotated[str, AfterValidator(_http_address), _HTTP]
Template = Annotated[
    Text, AfterValidator(_template), _drawn(_NO_FIELDS, type="string", pattern="^" + _FIELDS)
]
ServiceAddress = Annotated[str, AfterValidator(service_address), _HTTP]
TextEncoding = Annotated[str, AfterValidator(_text_encoding)]
CommandLine = Annotated[Text, AfterValidator(_command)]
LocalPath = Annotated[Text, AfterValidator(_local_path)]
StorageKey = Annotated[
    Text, AfterValidator(_storage_key), _drawn(_NO_KEY, type="string", pattern=f"^{_KEY}{_FIELDS}")
]
StorageUrl = Annotated[
    Text, AfterValidator(_storage_url), _drawn(_NO_PLACE, type="string", pattern=f"^{_URL}")
]
ReportUrl = Annotated[
    Text, AfterValidator(_report_url), _drawn(_NO_PLACE, type="string", pattern=f"^{_BATCH_FIELD}{_URL}")
]

Cell = Annotated[
    bool | int | Decimal | str | list[dict[str, str]],
    WrapValidator(_one_reason),
    _drawn(
        _NO_CELL,
        type=["boolean", "number", "string", "array"],
        items={"type": "object", "additionalProperties": {"type": "string"}},
    ),
]
"""A value for a column, as YAML gives it. Only `images` takes a list."""

PutArgument = Literal[
    "ACL",
    "ExpectedBucketOwner",
    "GrantFullControl",
    "GrantRead",
    "GrantReadACP",
    "GrantWriteACP",
    "SSEKMSEncryptionContext",
    "SSEKMSKeyId",
    "ServerSideEncryption",
    "StorageClass",
    "Tagging",
]
"""What `storage.put` may have: the arguments of `put_object` that say how S3 keeps a file."""
