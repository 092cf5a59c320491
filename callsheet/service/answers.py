"""Reading the service's answers: JSON bodies into the types of `models.py`, and the rate-limit headers.

Does no I/O. What cannot be read is `MaybeSent`: the request was carried out, or may have been.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from callsheet.errors import MaybeSent
from callsheet.records import Catalogue, Model
from callsheet.service.models import RateHeaders, VideoAnswer, parse

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

_DIGITS = re.compile("[0-9]{1,15}")
_model_entries = TypeAdapter(tuple[dict[str, Any], ...])


def read_answer(response: httpx.Response, validate: Callable[[Any], T]) -> T:
    """The body of a 2xx answer, validated.

    Args:
        response: the answer, with its body read.
        validate: turns parsed JSON into the wanted type.

    Raises:
        MaybeSent: the body is not JSON, or not of the wanted type. The message has the generation's id where
            the body has one.
    """
    content: Any = None
    try:
        content = parse(response.content)
        return validate(content)
    except (ValueError, ArithmeticError) as error:
        answer = content if isinstance(content, dict) else {}
        generation_id = str(answer.get("id") or "")
        words = f"; it says {VideoAnswer.model_validate(answer).said()}" if answer.get("error") else ""
        unreadable = MaybeSent(
            f"{request_name(response.request)}: answered {response.status_code}, but the answer cannot be "
            f"read: {describe(error)}{words}" + (f"; it is about {generation_id}" if generation_id else ""),
            hint="Is this the service of the interface's version 2?",
        )
        unreadable.generation_id = generation_id or None
        raise unreadable from error


def read_catalogue(response: httpx.Response) -> Catalogue:
    """The models of an answer by id. An entry that cannot be read has the reason in `unreadable`.

    Raises:
        MaybeSent: the answer is not a list of objects.
    """
    catalogue: dict[str, Model] = {}
    for model in map(_read_model, read_answer(response, _entries)):
        other = catalogue.get(model.id, model)
        ambiguous = other.ambiguous or set(other.pricing.rates) != set(model.pricing.rates)
        catalogue[model.id] = model.model_copy(update={"ambiguous": ambiguous})
    return catalogue


def _entries(content: Any) -> tuple[dict[str, Any], ...]:
    models = [entry for entry in content if entry is not None] if isinstance(content, list) else content
    return _model_entries.validate_python(models)


def _read_model(entry: Mapping[str, Any]) -> Model:
    try:
        return Model.model_validate({**entry, "unreadable": "", "ambiguous": False})
    except ValidationError as error:
        model_id = str(entry.get("id", ""))
        return Model(id=model_id, type="unknown", unreadable=describe(error))


def rate_headers(headers: Mapping[str, str]) -> RateHeaders | None:
    """The rate-limit headers of an answer to a submission (INTERFACE 8); None where one is missing or odd."""
    limit, remaining, reset = (
        header_number(headers, f"x-ratelimit-{name}") for name in ("limit", "remaining", "reset")
    )
    if limit is None or remaining is None or reset is None:
        return None
    return RateHeaders(limit, remaining, reset, unix(headers.get("date", "")))


@functools.lru_cache(maxsize=16)
def unix(date: str) -> float | None:
    """A `Date` in Unix seconds; None where it cannot be read. The answers of one second have the same."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, ArithmeticError):
        return None


def header_number(headers: Mapping[str, str], name: str) -> int | None:
    """A header of digits (INTERFACE 8), by its name in lower case.

    None where it is missing, or is not a number of at most 15 digits.
    """
    text = headers.get(name, "")
    return int(text) if _DIGITS.fullmatch(text) else None


def request_name(request: httpx.Request) -> str:
    """Method and path, for messages."""
    return f"{request.method} {request.url.raw_path.decode().partition('?')[0]}"


def describe(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}"
    return f"{type(error).__name__}: {error}".rstrip(": ")
