"""Every exception that Callsheet raises on purpose, each a type that says what to do about it.

The whole tree:

    CallsheetError
    ├── ConfigError               the config file is wrong (file, line, key)
    ├── InputError                a batch file or reference image cannot be read (file, line)
    ├── Stop                      an orderly early end; what is bought is safe
    │   ├── BudgetReached         the next job does not fit the budget
    │   ├── BalanceTooLow         the workspace cannot pay for what is planned
    │   ├── ApprovalNeeded        dearer than `budget.approve_above`, and nobody said yes
    │   ├── KeyRefused            the service does not take the API key
    │   ├── ServiceDown           the service fails for every job
    │   └── Interrupted           Ctrl-C, SIGTERM, or a cancel in the Prefect UI
    ├── StorageError              the media or report store refused a read or a write
    │   └── StorageConflict       the name is taken by other bytes
    ├── LedgerError               the ledger cannot be opened or written
    ├── MediaError                what was downloaded is not the file that was promised
    └── ServiceError              a request to the service did not succeed
        ├── NotSent               it never left: nothing happened, try again
        ├── MaybeSent             it left, and no readable answer came: it may have been carried out
        └── Refusal               the service answered with an error (status, code, param)
            ├── InvalidParameter          400 invalid_parameter
            ├── ParameterMissing          400 parameter_missing
            ├── InvalidApiKey             401 invalid_api_key
            ├── QuotaExceeded             402 quota_exceeded
            ├── NotFound                  404 not_found
            ├── ContentPolicyViolation    422 content_policy_violation
            ├── RateLimit                 429 rate_limit (retry_after)
            ├── ServerError               500 server_error
            └── UnexpectedAnswer          a status or body that the interface does not know

No caller reads a message to decide what to do: the type, and the fields drawn above, are enough.
This module imports nothing of Callsheet.
"""

from __future__ import annotations


class CallsheetError(Exception):
    """The root. `hint` says what a person can do about it; `exit_code` is the command's.

    From an open run, which may have bought, an error comes with 3 in place of 2 (`run.open_run`).
    `reason` is the word that `run --json` gives as `stop_reason` where the error ends the buying.

    Args:
        message: what is wrong, and where.
        hint: what to do about it; shown on a line of its own.
    """

    exit_code = 2
    reason = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(CallsheetError):
    """The config is wrong; the message names the file, the line and the key."""


class InputError(CallsheetError):
    """A batch file or a reference image cannot be read; the message names the file and the line."""

    reason = "input"


class Stop(CallsheetError):
    """An orderly early end. Nothing is lost: the same command goes on later."""

    exit_code = 4


class BudgetReached(Stop):
    """Spent, in flight and in doubt leave no room for the next job."""

    reason = "budget"


class BalanceTooLow(Stop):
    """The workspace's balance does not cover the next job (or the service answered 402)."""

    reason = "balance"


class ApprovalNeeded(Stop):
    """The quote is above `budget.approve_above`, and nobody has said yes."""

    reason = "approval"


class KeyRefused(Stop):
    """The service does not take the API key (401)."""

    reason = "key"


class ServiceDown(Stop):
    """The service fails for every job, and probing it for minutes has not helped."""

    reason = "service_down"


class Interrupted(Stop):
    """Ctrl-C, SIGTERM, or a cancel in the Prefect UI.

    A run that stops politely ends with 4 and its report; the exit code here is for one that goes at once.
    """

    exit_code = 130
    reason = "interrupted"


class StorageError(CallsheetError):
    """The media or report store refused a read or a write."""

    reason = "storage"


class StorageConflict(StorageError):
    """The name is already taken by a file with other bytes; nothing was overwritten."""


class LedgerError(CallsheetError):
    """The ledger cannot be opened, read or written."""


class MediaError(CallsheetError):
    """A download is not the file that was promised: short, of another type, or unreadable."""


class ServiceError(CallsheetError):
    """A request to the service did not succeed."""


class NotSent(ServiceError):
    """The request never left this machine: nothing happened, and trying again is safe."""

    reason = "unreachable"


class MaybeSent(ServiceError):
    """The request left and no readable answer came: for a paid request this is doubt."""


class Refusal(ServiceError):
    """The service answered with an error (INTERFACE 2.1, 7).

    Attributes:
        status: the HTTP status.
        code: the service's code; `http_<status>` where the answer had none.
        param: the offending parameter, where the service names one.
        rate: what the answer to a submission says about its window (INTERFACE 8): the limit, what remains,
            the window's end and the service's clock in Unix seconds; None where it says nothing.
    """

    code = "unexpected_answer"
    rate: tuple[int, int, int, float | None] | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        param: str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code or type(self).code
        self.param = param


class InvalidParameter(Refusal):
    """400 `invalid_parameter`."""

    code = "invalid_parameter"


class ParameterMissing(Refusal):
    """400 `parameter_missing`."""

    code = "parameter_missing"


class InvalidApiKey(Refusal):
    """401 `invalid_api_key`."""

    exit_code = 4
    code = "invalid_api_key"


class QuotaExceeded(Refusal):
    """402 `quota_exceeded`."""

    exit_code = 4
    code = "quota_exceeded"


class NotFound(Refusal):
    """404 `not_found`."""

    code = "not_found"


class ContentPolicyViolation(Refusal):
    """422 `content_policy_violation`."""

    code = "content_policy_violation"


class RateLimit(Refusal):
    """429 `rate_limit`.

    Attributes:
        retry_after: seconds to wait when the window is full; None when the lanes are full (INTERFACE 7).
    """

    code = "rate_limit"
    retry_after: float | None = None


class ServerError(Refusal):
    """500 `server_error` with the interface's error body, or 503: the service itself says no."""

    code = "server_error"


class UnexpectedAnswer(Refusal):
    """A status or body that the interface does not know: a proxy's page, most often."""
