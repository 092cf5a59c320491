"""Turns every failed request into a `ServiceError`: the transport's exceptions, and the error answers.

Does no I/O, and does not decide what a failure means: `verdicts.py` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from callsheet.errors import (
    CallsheetError,
    ContentPolicyViolation,
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
from callsheet.service.answers import describe, header_number, rate_headers
from callsheet.service.connection import Response, Unsent
from callsheet.service.models import ErrorEnvelope, parse

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

_HINTS: dict[type[Refusal], str] = {
    InvalidApiKey: "Check CALLSHEET_API_KEY (service.api_key_env), or the Prefect block.",
    QuotaExceeded: "Top up the workspace's balance; the same command goes on from here.",
}


@contextmanager
def transport_failures(request_name: str, hint: str = "") -> Iterator[None]:
    """Turns every exception of the transport, and of the layers below it, into `NotSent` or `MaybeSent`.

    `NotSent` needs certainty: only the transport's `Unsent` gives it.

    Args:
        request_name: method and path, for the message.
        hint: the error's hint.
    """
    try:
        yield
    except CallsheetError:
        raise
    except Unsent as error:
        why = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise NotSent(f"{request_name}: not sent: {describe(why)}", hint=hint) from error
    except Exception as error:
        raise MaybeSent(f"{request_name}: sent, but no answer came: {describe(error)}", hint=hint) from error


def refusal(request_name: str, response: Response, *, api_key: str, hint: str = "") -> Refusal:
    """The error for an answer that is not a 2xx, by its status and code.

    Args:
        request_name: method and path, for the message.
        response: the answer, with its body read.
        api_key: removed from the message, because some services repeat the key that they refuse.
        hint: the error's hint where the body is not the interface's.
    """
    status = response.status
    try:
        body = ErrorEnvelope.model_validate(parse(response.content)).error
    except ValueError:
        message = f"{request_name}: answered {status} {response.reason}"
        error = _BY_STATUS.get(status, UnexpectedAnswer)(
            f"{message}, without the service's error body", status=status, code=f"http_{status}", hint=hint
        )
    else:
        error_type = _error_type(status, body.code)
        text = body.message.replace(api_key, "sk_...")[:500]  # it may repeat a whole data URL
        param = f", {body.param}" if body.param else ""
        error = error_type(
            f"{request_name}: {text} ({status} {body.code}{param})",
            status=status,
            code=body.code,
            param=body.param,
            hint=_HINTS.get(error_type, ""),
        )
    if isinstance(error, RateLimit):
        error.retry_after = _retry_after(response.headers)
    if response.request.method == "POST":
        error.rate = rate_headers(response.headers)
    return error


def _error_type(status: int, code: str) -> type[Refusal]:
    """The error type of an answer that has the interface's error body (INTERFACE 7)."""
    error_type = _BY_STATUS.get(status) or _BY_STATUS_AND_CODE.get((status, code))
    if error_type is None and status >= 500 and status not in _GATEWAY:
        error_type = ServerError
    return error_type or UnexpectedAnswer


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait for the window. With the header the window is full, even where it cannot be read."""
    if "retry-after" not in headers:
        return None
    seconds = header_number(headers, "retry-after")
    return WINDOW if seconds is None or seconds > _LONGEST_RETRY_AFTER else float(seconds)


def without_secrets(url: str) -> str:
    """A URL without its secrets: the signature in the query, and a password before the host."""
    return re.sub("//[^/]*@", "//...@", url.partition("?")[0])
