"""What each failure means and what to do about it, one function for each phase.

This is the table of `docs/architecture.md, "Verdicts"`. The functions decide, and do no I/O. Cases that the
table does not list:

- Another 4xx with the interface's error body to a submission: refused for good. Nothing was carried out, and
  the same request would get the same answer. The exception is 408, which is in doubt: gateways send it when
  the service behind them is too slow.
- Another 5xx to a submission: with the interface's error body, the service reports that it failed (the client
  raises `ServerError`). Without that body it is in doubt. 502 and 504 are always in doubt, because a gateway
  may have passed the request on.
- Any other failure of a poll or a download: try again. Reading is free, and nothing may be lost to a guess.
  A poll's 404 without the interface's error body is one of them: it does not come from the service.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from callsheet.errors import (
    GatewayAnswer,
    InvalidApiKey,
    MediaError,
    NotFound,
    NotSent,
    QuotaExceeded,
    RateLimit,
    Refusal,
    ServerError,
    ServiceError,
)
from callsheet.records import ModelType


class Verdict(StrEnum):
    """What to do about a failure."""

    NOT_SENT = "not_sent"
    """Nothing happened: back off and try again."""

    WINDOW_FULL = "window_full"
    """This model type waits for `RateLimit.retry_after` seconds. Not a failed attempt."""

    LANES_FULL = "lanes_full"
    """Too many generations at once: wait for a lane. Not a failed attempt."""

    SAYS_NO = "says_no"
    """The service reports its own failure, and nothing happened: back off, a bounded number of tries, then
    failed."""

    GATEWAY = "gateway"
    """The words of a gateway, not of the service: nothing was bought, and the job stays planned. Too many of
    them one after another stop the buying."""

    IN_DOUBT = "in_doubt"
    """It may have been carried out and paid for: never repeated without a person or a policy."""

    REFUSED = "refused"
    """Failed for good; the code is kept."""

    STOP_KEY = "stop_key"
    """The service does not accept the key: the run stops, because nothing will work. Nothing is lost."""

    STOP_BALANCE = "stop_balance"
    """The balance is used up: no more submissions; what is bought is still collected."""

    AGAIN = "again"
    """Back off and read again: it is free."""

    NOT_FOUND = "not_found"
    """The service does not know the generation under this key. Read again; after several in a row the attempt
    is in doubt, with its id as evidence. It was accepted, so it is never failed and never free."""

    RENEW = "renew"
    """The URL may no longer work. Poll the video for a fresh one."""

    GONE = "gone"
    """The service says that there is no such file. A video is polled for a fresh URL. It is lost only when
    the service says so more than once after `deletes_at`, by its own clock."""


def submit(error: ServiceError) -> Verdict:  # noqa: PLR0911 - one return for each row of the table
    """What a failed submission means."""
    match error:
        case NotSent():
            return Verdict.NOT_SENT
        case RateLimit(retry_after=None):
            return Verdict.LANES_FULL
        case RateLimit():
            return Verdict.WINDOW_FULL
        case InvalidApiKey():
            return Verdict.STOP_KEY
        case QuotaExceeded():
            return Verdict.STOP_BALANCE
        case ServerError():
            return Verdict.SAYS_NO
        case Refusal(status=status) if status < 500 and status != 408:
            return Verdict.GATEWAY if isinstance(error, GatewayAnswer) else Verdict.REFUSED
        case _:
            return Verdict.IN_DOUBT


def poll(error: ServiceError) -> Verdict:
    """What a failed poll means."""
    match error:
        case InvalidApiKey():
            return Verdict.STOP_KEY
        case NotFound():
            return Verdict.NOT_FOUND
        case _:
            return Verdict.AGAIN


def download(error: ServiceError | MediaError, model_type: ModelType) -> Verdict:
    """What a failed download means.

    An image has one URL, so it is tried again: a lagging server at the network's edge may answer 404 for a
    file that exists. Other refusals are not about the key or the balance: the key is not sent here.

    Args:
        error: the failure.
        model_type: whether the file is of an image or of a video.
    """
    match error:
        case Refusal(status=403 | 404 | 410):
            return Verdict.GONE
        case Refusal(status=400 | 401 | 402) if model_type is ModelType.VIDEO:
            return Verdict.RENEW
        case _:
            return Verdict.AGAIN


def is_late(error: ServiceError | MediaError, deletes_at: datetime | None) -> bool:
    """Whether a file's `deletes_at` had passed at an answer, by the service's clock.

    This machine's clock counts where the answer has no `Date`. Without `deletes_at` it is never late.
    """
    date = error.date if isinstance(error, Refusal) else None
    now = datetime.now(UTC) if date is None else datetime.fromtimestamp(date, UTC)
    return deletes_at is not None and now >= deletes_at


@dataclass
class _Waits:
    """Seconds: the first wait of `backoff`, and the longest."""

    first: float = 1.0
    longest: float = 60.0


_waits = _Waits()


def set_backoff(first: float = 1.0, longest: float = 60.0) -> None:
    """Changes the waits of `backoff` in this process, so that tests need not wait; without arguments, resets.

    Args:
        first: seconds of the first wait.
        longest: seconds of the longest wait.
    """
    _waits.first, _waits.longest = first, longest


def backoff(tries: int, jitter: random.Random) -> float:
    """Seconds to wait after this many failed tries: doubled each time up to a limit, and half of it random.

    Args:
        tries: how many have failed, from 1.
        jitter: the source of randomness; it keeps jobs that failed together from trying again together.
    """
    return min(_waits.longest, _waits.first * 2.0 ** min(tries - 1, 30)) * jitter.uniform(0.5, 1.0)
