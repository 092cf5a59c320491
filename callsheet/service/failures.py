"""Turns every failed request into a `ServiceError`: the transport's exceptions, and the error answers.

Does no I/O, and does not decide what a failure means: `verdicts.py` does.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import quote, urljoin

import httpx

from callsheet.errors import (
    SERVICE_CODES,
    CallsheetError,
    ContentPolicyViolation,
    GatewayAnswer,
    InvalidApiKey,
    InvalidParameter,
    MaybeSent,
    NotFound,
    NotSent,
    ParameterMissing,
    QuotaExceeded,
    RateLimit,
    Refusal,
    ServerError,
    UnexpectedAnswer,
)
from callsheet.service.answers import describe, header_number, rate_headers, unix
from callsheet.service.models import ErrorBody, ErrorEnvelope, parse
from callsheet.service.transport import Unsent

WINDOW = 60.0
"""Seconds to wait where a `Retry-After` cannot be read: a whole window (INTERFACE 8)."""

_LONGEST_RETRY_AFTER = 3600  # seconds; with windows of 60 seconds, a longer wait is not a real one

_BY_STATUS: dict[int, type[Refusal]] = {  # whatever the body is
    401: InvalidApiKey,
    402: QuotaExceeded,
    429: RateLimit,
}
_BY_STATUS_AND_CODE: dict[tuple[int, str], type[Refusal]] = {
    (400, "invalid_parameter"): InvalidParameter,
    (400, "parameter_missing"): ParameterMissing,
    (422, "parameter_missing"): ParameterMissing,  # INTERFACE 7 does not give its status
    (404, "not_found"): NotFound,
    (422, "content_policy_violation"): ContentPolicyViolation,
}

# A gateway before the service sends these, and it may have passed the request on.
_GATEWAY = frozenset({502, 504})

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
_LONGEST_SHOWN = 100  # characters of a URL in a message: a data URI is a whole file

_HINTS: dict[type[Refusal], str] = {
    InvalidApiKey: "Check CALLSHEET_API_KEY (service.api_key_env), or the Prefect block.",
    QuotaExceeded: "Top up the workspace's balance; the same command goes on from here.",
}


@contextmanager
def transport_failures(name: str, hint: str = "") -> Iterator[None]:
    """Turns every exception of the transport, and of the layers below it, into `NotSent` or `MaybeSent`.

    `NotSent` needs certainty: only the transport's `Unsent` gives it.

    Args:
        name: method and path, for the message.
        hint: the end of the error's hint; what is known to be wrong comes before it.
    """
    try:
        yield
    except CallsheetError:
        raise
    except Unsent as error:
        why = _root(error)
        raise NotSent(
            f"{name}: not sent: {describe(why)}", hint=f"{_not_connected(why, error.proxy)}{hint}"
        ) from error
    except Exception as error:
        raise MaybeSent(f"{name}: sent, but no answer came: {describe(_root(error))}", hint=hint) from error


def _root(error: BaseException) -> Exception:
    """What went wrong first: httpx and httpcore repackage it, and say less.

    httpcore keeps it as the context alone. An older error of a caller who is dealing with it ends the way.
    """
    cause = error.__cause__ or error.__context__
    if isinstance(error, ExceptionGroup):
        cause = error.exceptions[0]
    known = isinstance(error, httpx.ProxyError) or isinstance(cause, CallsheetError)
    if isinstance(cause, Exception) and not known:
        return _root(cause)
    assert isinstance(error, Exception)  # noqa: S101 - so is every cause that is followed
    return error


def _not_connected(why: Exception, proxy: str | None) -> str:
    """The part of a hint that says why no connection could be made; empty where the address may be wrong."""
    if isinstance(why, ssl.SSLCertVerificationError):
        return (
            f"The server's certificate is not trusted: {why.verify_message or why}. Where a company has an "
            "authority of its own, name the file with its certificate in SSL_CERT_FILE. "
        )
    through = ""
    if proxy:
        through = (
            f"The request goes through the proxy {without_secrets(proxy)}, which the environment names; "
            "NO_PROXY takes a host out. "
        )
    if isinstance(why, ssl.SSLError):
        return f"{through}What answers there does not speak TLS as https:// needs it. "
    return through


def refusal(name: str, response: httpx.Response, *, api_key: str, hint: str = "") -> Refusal:
    """The error for an answer that is not a 2xx, by its status and code.

    Args:
        name: method and path, for the message.
        response: the answer, with its body read.
        api_key: removed from the message, because some services repeat the key that they refuse.
        hint: the end of the error's hint where the body is not the interface's.
    """
    status = response.status_code
    body = _error_body(response)
    if body is None:
        error = _BY_STATUS.get(status, GatewayAnswer)(
            f"{name}: answered {status} {response.reason_phrase}, without the service's error body",
            status=status,
            code=f"http_{status}",
            hint=f"{_gateway(response)}{hint}",
        )
    else:
        error_type = _error_type(status, body.code)
        text = body.message.replace(api_key, "sk_...")[:500]  # it may repeat a whole data URL
        param = f", {body.param}" if body.param else ""
        error = error_type(
            f"{name}: {text} ({status} {body.code}{param})",
            status=status,
            code=body.code,
            param=body.param,
            hint=_HINTS.get(error_type, ""),
        )
    error.retry_after = _retry_after(response.headers)
    error.date = unix(response.headers.get("date", ""))
    if response.request.method == "POST":
        error.rate = rate_headers(response.headers)
    return error


def _error_body(response: httpx.Response) -> ErrorBody | None:
    """The interface's error body (INTERFACE 2.1); None where the answer has none.

    Gateways too answer with a JSON object that has `error` in it: its type or its code is then another one.
    """
    try:
        body = ErrorEnvelope.model_validate(parse(response.content)).error
    except ValueError:
        return None
    is_the_interfaces = body.type == "invalid_request_error" or body.code in SERVICE_CODES
    return body if is_the_interfaces and response.status_code >= 400 else None


def _error_type(status: int, code: str) -> type[Refusal]:
    """The error type of an answer that has the interface's error body (INTERFACE 7)."""
    error_type = _BY_STATUS.get(status) or _BY_STATUS_AND_CODE.get((status, code))
    if error_type is None and status >= 500 and status not in _GATEWAY:
        error_type = ServerError
    return error_type or UnexpectedAnswer


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait; None without the header. One that cannot be read means a whole window.

    Gateways write a date, by the clock of the header `Date`.
    """
    if "retry-after" not in headers:
        return None
    seconds: float | None = header_number(headers, "retry-after")
    until, now = unix(headers["retry-after"]), unix(headers.get("date", ""))
    if until is not None and now is not None:
        seconds = max(0.0, until - now)
    return WINDOW if seconds is None or seconds > _LONGEST_RETRY_AFTER else float(seconds)


def _gateway(response: httpx.Response) -> str:
    """The part of a hint that says what a gateway before the service wants."""
    if response.status_code == 407:
        return "A proxy asks for a user name and a password: http://NAME:PASSWORD@HOST in HTTP_PROXY. "
    if not (location := redirect(response)):
        return ""
    base, found, _ = location.partition("?")[0].partition("/v2/")
    advice = f"; {without_secrets(base)} may be the right address" if found else ""
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


def without_secrets(url: str) -> str:
    """A URL in one line, without its secrets: the signature in the query, and a password before the host."""
    shown = re.sub("//[^/]*@", "//...@", url.partition("?")[0])
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
