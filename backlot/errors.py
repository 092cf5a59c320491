"""Every error answer of the service, with its status and code (INTERFACE 2.1, 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from starlette.exceptions import HTTPException

Code = Literal[
    "invalid_parameter",
    "parameter_missing",
    "invalid_api_key",
    "quota_exceeded",
    "not_found",
    "content_policy_violation",
    "rate_limit",
    "server_error",
]
CODES: dict[str, int] = {
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


class Refused(HTTPException):
    """An error answer. Without a `status`, it has the code's usual one; `param` is the parameter at fault."""

    headers: dict[str, str]

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status or CODES[code], sendable(message), dict(headers or {}))
        self.code = code
        self.param = param and sendable(param)


def sendable(text: str) -> str:
    """A text without lone surrogates, which JSON can have in its escapes, and no answer can carry back."""
    return text.encode(errors="replace").decode()


def invalid(message: str, param: str | None = None) -> Refused:
    """A 400 with `invalid_parameter`."""
    return Refused("invalid_parameter", message, param)


class SettingsError(Exception):
    """The settings, the catalogue or the faults file is wrong; the message names the file and the key."""
