"""Reading what comes back: bodies into the types of `models.py`, failures into a `ServiceError`, and headers.

Does no I/O, and does not decide what a failure means: `verdicts.py` does. A 2xx that cannot be read is
`MaybeSent`: the request was carried out, or may have been.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote, urljoin

import httpx
from pydantic import TypeAdapter, ValidationError

from callsheet.errors import (
    SERVICE_CODES,
    CallsheetError,
    GatewayAnswer,
    InvalidApiKey,
    MaybeSent,
    NotFound,
    NotSent,
    QuotaExceeded,
    RateLimit,
    Refusal,
    ServerError,
    Unreadable,
)
from callsheet.service.models import (
    Catalogue,
    ErrorBody,
    Model,
    RateHeaders,
    VideoAnswer,
    parse,
    with_address,
)
from callsheet.service.transport import Unsent

T = TypeVar("T")

WINDOW = 60.0
"""Seconds to wait where a `Retry-After` cannot be read: a whole window (INTERFACE 8)."""

_LONGEST_RETRY_AFTER = 3600  # seconds; with windows of 60 seconds, a longer wait is not a real one
_LONGEST_SHOWN = 100  # characters of a URL in a message: a data URI is a whole file
_NO_ANSWER = "without sending a response"  # httpcore's words
_DIGITS = re.compile("[0-9]{1,15}")
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_GATEWAY = frozenset({502, 504})  # a gateway sends these, and it may have passed the request on
_BY_STATUS: dict[int, type[Refusal]] = {401: InvalidApiKey, 402: QuotaExceeded, 429: RateLimit}
_OTHER_CERTIFICATE = frozenset({9, 10, 62, 64})  # OpenSSL: not yet valid, expired, another name or address
_LONGEST_HELP = 300  # characters of the address of a page of help
_LONGEST_ADDRESS = 2_000  # characters; a data URI is longer
_NO_BALANCE = "Top up the workspace's balance; the same command goes on from here."
_objects = TypeAdapter(list[dict[str, Any]])


# ---- what was asked for


def read_answer(response: httpx.Response, validate: Callable[[Any], T]) -> T:
    """The body of a 2xx answer that is read; `validate` turns the parsed JSON into the wanted type.

    Raises:
        MaybeSent: the body is not JSON, or not of the wanted type. The message has the generation's id and
            the addresses of its files, where the body has any: a person may need them.
    """
    content: Any = None
    try:
        content = parse(response.content)
        return validate(content)
    except (ValueError, ArithmeticError) as error:
        answer = content if isinstance(content, dict) else {}
        generation_id = str(answer.get("id") or "")
        details = f"; it says {VideoAnswer.model_validate(answer).said()}" if answer.get("error") else ""
        details += f"; it is about {generation_id}" if generation_id else ""
        for file in with_address(answer.get("data")):
            details += f"; a file is at {file['url']}" if len(file["url"]) <= _LONGEST_ADDRESS else ""
        unreadable = Unreadable(
            f"{request_name(response.request)}: answered {response.status_code}, but the answer cannot be "
            f"read: {_describe(error)}{details}",
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
    for entry in read_answer(response, lambda content: _objects.validate_python(_without_nulls(content))):
        try:
            model = Model.model_validate({**entry, "unreadable": "", "ambiguous": False})
        except ValidationError as error:
            model = Model(id=str(entry.get("id", "")), type="unknown", unreadable=_describe(error))
        listed = catalogue.get(model.id, model)
        ambiguous = listed.ambiguous or set(listed.pricing.rates) != set(model.pricing.rates)
        catalogue[model.id] = model.model_copy(update={"ambiguous": ambiguous})
    return catalogue


def _without_nulls(value: Any) -> Any:
    """What is null in the entries of a catalogue is none, as if it was not there."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


# ---- an error in place of it


def refusal(name: str, response: httpx.Response, *, api_key: str, hint: str = "") -> Refusal:
    """The error for an answer that is not a 2xx and is read, by its status and code (INTERFACE 7).

    `name` begins the message, from which the API key is removed: some services repeat the key that they
    refuse. `hint` is the end of the error's hint where the body is not the interface's.
    """
    status, headers = response.status_code, response.headers
    body = _error_body(response)
    if body is None:
        error = _BY_STATUS.get(status, GatewayAnswer)(
            f"{name}: answered {status} {response.reason_phrase}, without the service's error body",
            status=status,
            hint=f"{_gateway(response)}{hint}",
        )
    else:
        error_type = _BY_STATUS.get(status, Refusal)
        if (status, body.code) == (404, "not_found"):
            error_type = NotFound
        elif status >= 500 and status not in _GATEWAY:
            error_type = ServerError
        text = body.message.replace(api_key, "sk_...")[:500]  # it may repeat a whole data URL
        param = f", {body.param}" if body.param else ""
        help_at = (body.doc_url or "").replace(api_key, "sk_...")[:_LONGEST_HELP]
        see = f" See {help_at}" if help_at.startswith(("http://", "https://")) else ""
        error = error_type(
            f"{name}: {text}{see} ({status} {body.code}{param})",
            status=status,
            code=body.code,
            hint=_NO_BALANCE if error_type is QuotaExceeded else "",
        )
    error.retry_after, error.date = _retry_after(headers), _unix(headers.get("date", ""))
    if response.request.method == "POST":
        error.rate = rate_headers(headers)
    return error


def _error_body(response: httpx.Response) -> ErrorBody | None:
    """The interface's error body (INTERFACE 2.1); None where the answer has none.

    Gateways too answer with a JSON object that has `error` in it: its type or its code is then another one.
    """
    try:
        body = ErrorBody.model_validate(parse(response.content)["error"])
    except (ValueError, TypeError, KeyError):
        return None
    is_the_interfaces = body.type == "invalid_request_error" or body.code in SERVICE_CODES
    return body if is_the_interfaces and response.status_code >= 400 else None


def _gateway(response: httpx.Response) -> str:
    """The part of a hint that says what a gateway before the service wants."""
    if response.status_code == 407:
        return "A proxy asks for a user name and a password: http://NAME:PASSWORD@HOST in HTTP_PROXY. "
    if not (location := redirect(response)):
        return ""
    base, separator, _ = location.partition("?")[0].partition("/v2/")
    advice = f"; {without_secrets(base)} may be the right address" if separator else ""
    return f"It redirects to {without_secrets(location)}{advice}. "


def redirect(response: httpx.Response) -> str:
    """Where an answer redirects to, as a whole URL in ASCII; empty where it does not.

    As curl does, bytes that a URL cannot have are escaped as they come, in whichever encoding they are.
    """
    for name, value in response.headers.raw:
        if response.status_code in _REDIRECTS and name.lower() == b"location":
            with suppress(ValueError):  # it is no URL
                return urljoin(str(response.request.url), quote(value, safe=_VISIBLE))
    return ""


# ---- no answer


@contextmanager
def transport_failures(name: str, hint: str = "") -> Iterator[None]:
    """Turns every exception of the transport, and of the layers below it, into `NotSent` or `MaybeSent`.

    `NotSent` needs certainty: only the transport's `Unsent` gives it. `name` begins the message, and `hint`
    is the end of the error's hint; what is known to be wrong comes before it.
    """
    try:
        yield
    except CallsheetError:
        raise
    except Unsent as error:
        cause = _root(error)
        raise NotSent(
            f"{name}: not sent: {_describe(cause)}", hint=f"{_not_connected(cause, error.proxy)}{hint}"
        ) from error
    except Exception as error:
        came = isinstance(error, httpx.RemoteProtocolError) and _NO_ANSWER not in str(error)
        problem = "its answer cannot be read" if came else "no answer came"
        raise MaybeSent(f"{name}: sent, but {problem}: {_describe(_root(error))}", hint=hint) from error


def _root(error: BaseException) -> Exception:
    """What went wrong first: httpx and httpcore repackage it, and say less.

    httpcore keeps it as the context alone. An older error of a caller who is dealing with it ends the way.
    """
    cause = error.__cause__ or error.__context__
    if isinstance(error, ExceptionGroup):
        cause = error.exceptions[0]
    is_explained = isinstance(error, httpx.ProxyError) or isinstance(cause, CallsheetError)
    if isinstance(cause, Exception) and not is_explained:
        return _root(cause)
    assert isinstance(error, Exception)  # noqa: S101 - so is every cause that is followed
    return error


def _not_connected(cause: Exception, proxy: str | None) -> str:
    """The part of a hint that says why no connection could be made; empty where the address may be wrong."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        advice = "Where a company has an authority of its own, name the file with its certificate in "
        advice = "" if cause.verify_code in _OTHER_CERTIFICATE else f"{advice}SSL_CERT_FILE. "
        reason = (cause.verify_message or str(cause)).rstrip(".")
        return f"The server's certificate is not trusted: {reason}. {advice}{goes_through(proxy)}"
    if isinstance(cause, ssl.SSLError):
        return f"{goes_through(proxy)}What answers there does not speak TLS as https:// needs it. "
    return goes_through(proxy)


def goes_through(proxy: str | None) -> str:
    """The part of a hint that names the proxy of a request; empty without one."""
    if not proxy:
        return ""
    return (
        f"The request goes through the proxy {without_secrets(proxy)}, which the environment names; "
        "NO_PROXY takes a host out. "
    )


# ---- headers, and what messages show


def rate_headers(headers: Mapping[str, str]) -> RateHeaders | None:
    """The rate-limit headers of an answer to a submission (INTERFACE 8); None where one is missing or odd."""
    limit, remaining, reset = (
        header_number(headers, f"x-ratelimit-{name}") for name in ("limit", "remaining", "reset")
    )
    if limit is None or remaining is None or reset is None:
        return None
    return RateHeaders(limit, remaining, reset, _unix(headers.get("date", "")))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait; None without the header. One that cannot be read means a whole window.

    Gateways write a date, by the clock of the header `Date`.
    """
    if "retry-after" not in headers:
        return None
    seconds: float | None = header_number(headers, "retry-after")
    until, now = _unix(headers["retry-after"]), _unix(headers.get("date", ""))
    if until is not None and now is not None:
        seconds = max(0.0, until - now)
    return WINDOW if seconds is None or seconds > _LONGEST_RETRY_AFTER else float(seconds)


def header_number(headers: Mapping[str, str], name: str) -> int | None:
    """A header by its name in lower case; None where it is no number of at most 15 digits (INTERFACE 8)."""
    text = headers.get(name, "")
    return int(text) if _DIGITS.fullmatch(text) else None


def _unix(date: str) -> float | None:
    """A `Date` in Unix seconds; None where it cannot be read."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, ArithmeticError):
        return None


def request_name(request: httpx.Request) -> str:
    """Method and path, for messages."""
    return f"{request.method} {request.url.raw_path.decode().partition('?')[0]}"


def without_secrets(url: str) -> str:
    """A URL in one line, without its secrets: a login before the host, and the signature in the query."""
    address, _, query = url.partition("?")
    if "@" in query:  # the question mark may be the password's
        safe_url = re.sub("//.*", "//...", address)
    else:
        safe_url = re.sub("//([^/]*|[^/]*:.*)@", "//...@", address)
    return safe_url if len(safe_url) <= _LONGEST_SHOWN else f"{safe_url[:_LONGEST_SHOWN]}..."


def _describe(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}"
    return f"{type(error).__name__}: {error}".rstrip(": ")
