"""Every exception that Callsheet raises on purpose, each a type that says what to do about it.

The whole tree:

    CallsheetError
    ├── ConfigError               the config file is wrong (file, line, key)
    │   └── OtherService          jobs of the batch were sent to another service
    ├── InputError                a batch file or reference image cannot be read (file, line)
    │   └── TooLarge              a file has more bytes than may be read of it
    ├── Stop                      an orderly early end; what is bought is safe
    │   ├── BudgetReached         the next job does not fit the budget
    │   ├── BalanceTooLow         the workspace cannot pay for what is planned
    │   ├── ApprovalNeeded        a person must approve first, and has not
    │   │   └── ApprovalRefused   a person has said no
    │   ├── KeyRefused            the service does not accept the API key
    │   ├── ServiceDown           the service fails for every job, or cannot be reached
    │   ├── StorageDown           storage refuses every file
    │   ├── Doubtful              too many jobs in a row ended in doubt or were lost
    │   ├── PriceChanged          the service charges more than was quoted, or for another model
    │   ├── NoLane                other work holds every lane of the workspace
    │   └── Interrupted           Ctrl-C, SIGTERM, or a cancel in the Prefect UI
    ├── StorageError              the store of the media or the report refused a read or a write
    │   └── StorageConflict       a file with other bytes already has the name
    ├── LedgerError               the ledger cannot be opened, read or written
    │   ├── LedgerUnavailable     its database fails now, and may work again later
    │   ├── OtherVersion          it is of another Callsheet, a newer or an older one
    │   ├── LedgerMoved           it was moved to another database
    │   ├── OtherLedger           this is not the batch's ledger, or an older copy of it
    │   └── UnknownAnswers        a journal has paid answers of a run that the ledger does not know
    ├── NotTaken                  a run at work does not answer to what a person has changed for it
    ├── OutputError               stdout cannot be written
    ├── ProcessEnded              what `callsheet up` has started ended by itself
    ├── MediaError                a download is not the file that was promised
    └── ServiceError              a request to the service did not succeed
        ├── NotSent               the request never left: nothing happened, try again
        ├── MaybeSent             the request left, and no readable answer came: it may have been carried out
        │   └── Unreadable        a 2xx came that is none of the interface's
        └── Refusal               the service answered with an error (status, code)
            ├── InvalidApiKey         401
            ├── QuotaExceeded         402
            ├── NotFound              404 not_found
            ├── RateLimit             429 (retry_after)
            ├── ServerError           a 5xx in the service's own words
            └── GatewayAnswer         no error body of the interface: not the service's words

Code that handles an error looks at its type and the fields above, never at its message.
This module imports nothing else of Callsheet.
"""

from __future__ import annotations

import re


class CallsheetError(Exception):
    """The base of all errors here.

    Args:
        message: what is wrong, and where.
        hint: what a person can do about it; shown on a line of its own.
        where: the file and the line, or the option, as the message begins; empty where it is no place.

    Attributes:
        exit_code: the exit code of the command that the error ends. From an open run, which may have bought
            something, an error with 2 leaves with 3 instead (`session.open_run`).
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where


class ConfigError(CallsheetError):
    """The config is wrong; the message names the file, the line and the key."""


class OtherService(ConfigError):
    """Jobs of the batch were sent to another service than the one that the config names."""


class InputError(CallsheetError):
    """A batch file or a reference image cannot be read; the message names the file and the line."""


class NothingKept(InputError):
    """Another batch has no file yet of which this one could be made."""


class TooLarge(InputError):
    """A file has more bytes than may be read of it."""


class Stop(CallsheetError):
    """An orderly early end. Nothing is lost: the same command goes on later.

    `reason` is the `stop_reason` of `run --json`.
    """

    exit_code = 4
    reason: str


class BudgetReached(Stop):
    """What is spent, in flight and in doubt leaves too little of the budget for the next job."""

    reason = "budget"


class BalanceTooLow(Stop):
    """The workspace's balance does not cover the next job, or the service answered 402."""

    reason = "balance"


class ApprovalNeeded(Stop):
    """A person must say yes first, and has not."""

    reason = "approval"


class ApprovalRefused(ApprovalNeeded):
    """A person has said no."""


class KeyRefused(Stop):
    """The service does not accept the API key (401), or knows none of the batch's generations by it."""

    reason = "key"


class ServiceDown(Stop):
    """The service fails for every job, or cannot be reached, and trying again has not helped."""

    reason = "service"


class StorageDown(Stop):
    """Storage refuses every file, so nothing more is bought."""

    reason = "storage"


class Doubtful(Stop):
    """Too many jobs in a row ended in doubt or were lost: what goes wrong for all of them must be found."""

    reason = "doubt"


class PriceChanged(Stop):
    """The service charges more than was quoted, or delivers another model than was ordered."""

    reason = "price"


class NoLane(Stop):
    """Other work holds every lane of the workspace, and none came free for a long time."""

    reason = "lanes"


class Interrupted(Stop):
    """Ctrl-C, SIGTERM, or Suspend or Cancel in the Prefect UI.

    A run that is interrupted while it buys ends in order, writes its report and exits with 4. The exit code
    here is for an interrupt before the buying began, and for a second one, which ends the run at once.
    """

    exit_code = 130
    reason = "interrupted"


class StorageError(CallsheetError):
    """The store of the media or the report refused a read or a write."""


class StorageConflict(StorageError):
    """A file with other bytes already has the name; nothing was overwritten."""


class LedgerError(CallsheetError):
    """The ledger cannot be opened, read or written."""


class LedgerUnavailable(LedgerError):
    """The ledger's database fails: it cannot be reached, is locked, or its disk is full."""


class OtherVersion(LedgerError):
    """The ledger is of another Callsheet: a newer one, or an older one and must be upgraded first."""


class LedgerMoved(LedgerError):
    """The ledger was moved to another database, or a move of it has not ended."""


class OtherLedger(LedgerError):
    """What the batch has bought, or may have, is in another ledger, or in a newer copy of this one; or the
    report in its `report.url` is another batch's.
    """


class UnknownAnswers(LedgerError):
    """Journals have answers that are paid for, of runs that the ledger does not know; nothing was bought."""


class NotTaken(CallsheetError):
    """A run at work does not answer to what a person has changed: whether it goes by that is not known."""

    exit_code = 3


class OutputError(CallsheetError):
    """The result of a command cannot be written to stdout. The command itself has been carried out."""

    exit_code = 3


class ProcessEnded(CallsheetError):
    """A server or worker that `callsheet up` has started ended by itself; the hint names its log."""

    exit_code = 4


class MediaError(CallsheetError):
    """A download is not the file that was promised: short, of another type, or unreadable."""


SERVICE_CODES = (
    "invalid_parameter",
    "parameter_missing",
    "invalid_api_key",
    "quota_exceeded",
    "not_found",
    "content_policy_violation",
    "rate_limit",
    "server_error",
)
"""The codes of the service's own errors (INTERFACE 7); others are a gateway's."""


class ServiceError(CallsheetError):
    """A request to the service did not succeed.

    Attributes:
        retry_after: seconds to wait (`Retry-After`); None where no answer says so. A 429 has it when the
            window is full, and has none when the lanes are full (INTERFACE 7).
        rate: the rate-limit headers of an answer to a submission (INTERFACE 8): the limit, what remains, the
            window's end and the service's clock, both in Unix seconds; None where there are none.
        generation_id: the service's id where an answer had one, and nothing that can be stored.
    """

    exit_code = 4
    retry_after: float | None = None
    rate: tuple[int, int, int, float | None] | None = None
    generation_id: str | None = None


class NotSent(ServiceError):
    """The request never left this machine: nothing happened, and trying again is safe."""


class MaybeSent(ServiceError):
    """The request left and no readable answer came: a paid request is in doubt."""


class Unreadable(MaybeSent):
    """A 2xx came that is none of the interface's: often something else is at the address."""


class Refusal(ServiceError):
    """The service answered with an error (INTERFACE 2.1, 7).

    A 5xx and a 429 end a command with 4, as the service is down or too busy. Any other refusal of a request
    that is free comes from a wrong config, and ends it with 2.

    Attributes:
        status: the HTTP status.
        code: the service's code; `http_<status>` where the answer had none.
        date: the service's clock when it answered (`Date`), in Unix seconds; None where missing.
    """

    date: float | None = None

    def __init__(self, message: str, *, status: int, code: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code or f"http_{status}"
        self.exit_code = 4 if status in (401, 402, 429) or status >= 500 else 2


class InvalidApiKey(Refusal):
    """401: the service does not accept the key."""


class QuotaExceeded(Refusal):
    """402: the workspace's balance is used up."""


class NotFound(Refusal):
    """404 `not_found`: the service does not know the model or the generation."""


class RateLimit(Refusal):
    """429: the limit of the window or of concurrent generations is reached."""


class ServerError(Refusal):
    """A 5xx with the interface's error body: the service itself reports its failure."""


class GatewayAnswer(Refusal):
    """An error without the interface's error body: the words of a gateway, a proxy or a firewall between."""


def code_of(error: CallsheetError) -> str:
    """What a program knows an error by: its type's name in the tree above, as `approval_needed`."""
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == __name__)
    return re.sub(r"\B(?=[A-Z])", "_", name).lower()


def as_stop(error: CallsheetError) -> Stop:
    """The stop with the contract's `stop_reason` for an error that ends the buying of an open run."""
    match error:
        case Stop():
            return error
        case InvalidApiKey():
            stop: type[Stop] = KeyRefused
        case QuotaExceeded():
            stop = BalanceTooLow
        case ServiceError() | MediaError():
            stop = ServiceDown
        case _:  # the media's store, or the spool's disk
            stop = StorageDown
    return stop(error.message, hint=error.hint)


def ends_as(error: CallsheetError) -> Stop | None:
    """The stop as which an error ends a command or a flow run, by its `reason`.

    None where it ends as a failure: something is wrong with what a person has given, or with the ledger.
    """
    if isinstance(error, Stop):
        return error
    is_of_service = isinstance(error, ServiceError) and error.exit_code == Stop.exit_code
    return as_stop(error) if is_of_service else None


def known_error(error: BaseException) -> CallsheetError | None:
    """The error that a command or a call ends with; of a group (steps run side by side) the first.

    None where one of them is not Callsheet's own: a bug.
    """
    if isinstance(error, BaseExceptionGroup):
        errors = [known_error(inner_error) for inner_error in error.exceptions]
        return None if None in errors else errors[0]
    return error if isinstance(error, CallsheetError) else None
