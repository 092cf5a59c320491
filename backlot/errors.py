"""Every error answer of the service, with its status and code (INTERFACE 2.1, 7)."""

from __future__ import annotations

from collections.abc import Mapping

CODES = {
    "invalid_parameter": 400,
    "parameter_missing": 400,
    "invalid_api_key": 401,
    "quota_exceeded": 402,
    "not_found": 404,
    "content_policy_violation": 422,
    "rate_limit": 429,
    "server_error": 500,
}
"""The codes of INTERFACE 7, each with its usual status."""


class Refused(Exception):
    """An error answer.

    Attributes:
        code: one of `CODES`.
        status: the HTTP status; without one, the code's usual status.
        param: the parameter at fault, or None.
        headers: more headers of the answer, such as `Retry-After`.
    """

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.status = status or CODES[code]
        self.headers = dict(headers or {})


def invalid(message: str, param: str | None = None) -> Refused:
    """A 400 with `invalid_parameter`."""
    return Refused("invalid_parameter", message, param)


class SettingsError(Exception):
    """The settings, the catalogue or the faults file is wrong; the message names the file and the key."""
