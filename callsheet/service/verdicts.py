"""What each failure means: the table of `docs/architecture.md, "Verdicts"`, a function for each phase.

Pure: no I/O and no clock.

What the table does not list:

- another 4xx, or a redirect, to a submission: refused for good. Nothing was carried out, and asking the same
  again would end the same. But 408 is in doubt: gateways say it also when what is behind them was too slow.
- another 5xx to a submission: with the interface's error body the service says no (the client calls that a
  `ServerError`); without it, in doubt, as 502 and 504 always are: a gateway may have passed the request on.
- any other failure of a poll or a download: try again. Reading is free, and nothing may be lost to a guess.
  A poll's 404 without the interface's error body is one of them: it is not the service that says so.
"""

from __future__ import annotations

import random
from enum import StrEnum

from callsheet.errors import (
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


class Verdict(StrEnum):
    """What to do about a failure."""

    NOT_SENT = "not_sent"
    """Nothing happened: back off and try again."""

    WINDOW_FULL = "window_full"
    """That type waits for as long as `RateLimit.retry_after` says. Not a failed attempt."""

    LANES_FULL = "lanes_full"
    """Too many at once: wait for a lane. Not a failed attempt."""

    SAYS_NO = "says_no"
    """The service could not, and nothing happened: back off, a bounded number of tries, then failed."""

    IN_DOUBT = "in_doubt"
    """It may have been carried out and paid for: never again without a person or a policy."""

    REFUSED = "refused"
    """Failed for good; the code is kept."""

    STOP_KEY = "stop_key"
    """The key is not taken: the run stops, because nothing will work. Nothing is lost."""

    STOP_BALANCE = "stop_balance"
    """The balance is used up: no more submissions; what is bought is still collected."""

    AGAIN = "again"
    """Back off and read again: it is free."""

    NOT_FOUND = "not_found"
    """The service does not know the generation. Said repeatedly, it has failed."""

    GONE = "gone"
    """The URL works no more. A video is polled again for a fresh one; an image is lost."""


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
            return Verdict.REFUSED
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


def download(error: ServiceError | MediaError) -> Verdict:
    """What a failed download means."""
    match error:
        case InvalidApiKey():
            return Verdict.STOP_KEY
        case Refusal(status=403 | 404 | 410):
            return Verdict.GONE
        case _:
            return Verdict.AGAIN


FIRST, LONGEST = 1.0, 60.0
"""Seconds: what `backoff` begins with, and its ceiling."""


def backoff(tries: int, jitter: random.Random) -> float:
    """Seconds to wait after so many failed tries: doubled each time up to `LONGEST`, half of it by chance.

    Args:
        tries: how many have failed, from 1.
        jitter: where chance comes from; it keeps jobs that failed together from coming back together.
    """
    return min(LONGEST, FIRST * 2.0 ** min(tries - 1, 30)) * jitter.uniform(0.5, 1.0)
