"""What each failure means and what to do about it, one function for each phase.

This is the table of `docs/architecture.md, "Verdicts"`. The functions decide, and do no I/O. Any failure of a
poll or a download that the table does not list is tried again: reading is free, and nothing may be lost to a
guess. So is a poll's 404 without the interface's error body, which does not come from the service.
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
    Unreadable,
)
from callsheet.records import ModelType

_jitter = random.SystemRandom()


class Verdict(StrEnum):
    """What to do about a failure."""

    # of a submission
    NOT_SENT = "not_sent"  # nothing happened: back off and try again
    WINDOW_FULL = "window_full"  # this model type waits for `RateLimit.retry_after` seconds
    LANES_FULL = "lanes_full"  # too many generations at once: wait for a lane; as above, no failed attempt
    SAYS_NO = "says_no"  # its own failure: back off, a bounded number of tries, then failed
    GATEWAY = "gateway"  # not the service's words: the job stays planned; too many in a row stop the buying
    IN_DOUBT = "in_doubt"  # it may be paid for: never repeated without a person or a policy
    REFUSED = "refused"  # failed for good; the code is kept
    STOP_BALANCE = "stop_balance"  # no more submissions; what is bought is still collected
    STOP_KEY = "stop_key"  # the run stops, because nothing will work; of a poll, too

    # of a poll or a download
    AGAIN = "again"  # back off and read again: it is free
    NOT_FOUND = "not_found"  # accepted, and not known by this key: after several, in doubt
    RENEW = "renew"  # the URL may no longer work: poll the video for a fresh one
    GONE = "gone"  # there is no such file: as RENEW; lost when said more than once after `deletes_at`


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
        case _:  # a gateway may have passed the request on
            return Verdict.IN_DOUBT


def may_pass(error: ServiceError) -> bool:
    """Whether a request that is free may succeed later: the service is away, too busy, or fails."""
    if isinstance(error, Refusal):
        return error.status == 429 or error.status >= 500
    return not isinstance(error, Unreadable)


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
    """What a failed download of an image's or a video's file means.

    An image has one URL, so it is tried again: a lagging server at the network's edge may answer 404 for a
    file that exists. Other refusals are not about the key or the balance: the key is not sent here.
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


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after failed tries: twice as long each time, and half of it random.

    So what failed together is not tried again together.
    """

    first: float = 1.0  # seconds
    longest: float = 60.0

    def __call__(self, tries: int) -> float:
        """Seconds to wait after this many failed tries, from 1."""
        return min(self.longest, self.first * 2.0 ** min(tries - 1, 30)) * _jitter.uniform(0.5, 1.0)
