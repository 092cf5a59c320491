"""How long the submissions of a batch take, by the account's limits a minute (INTERFACE 8). Pure.

How long the service takes for a generation is not known, and not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping

SLOWEST_RPM, FASTEST_RPM = 10, 600
"""Submissions a minute that are assumed while the account's limit is not known."""


def submission_time(to_buy: Mapping[str, int], rpm: Mapping[str, int]) -> str:
    """The time that the submissions take, in words.

    Args:
        to_buy: jobs to buy by model type. Images and videos are submitted at the same time.
        rpm: submissions a minute by model type; a type whose limit is not known is absent.
    """
    jobs = {model_type: count for model_type, count in to_buy.items() if count}
    if not jobs:
        return "0 min: nothing to buy"
    shortest = max(_minutes(count, rpm.get(model_type, FASTEST_RPM)) for model_type, count in jobs.items())
    longest = max(_minutes(count, rpm.get(model_type, SLOWEST_RPM)) for model_type, count in jobs.items())
    if longest == 1:
        return "about 1 min"
    if shortest == longest:
        return f"at least {shortest:,} min, by the limits a minute"
    unknown = " and ".join(f"{model_type}s" for model_type in sorted(jobs.keys() - rpm.keys()))
    return (
        f"{shortest:,} to {longest:,} min; the account's limit of {unknown} a minute is not known yet, "
        f"{SLOWEST_RPM} to {FASTEST_RPM} is assumed"
    )


def _minutes(jobs: int, rpm: int) -> int:
    """Minutes until the last submission: the first window opens at once, each later one after a minute."""
    return max(1, -(-jobs // rpm) - 1)


def in_words(seconds: float) -> str:
    """A time that people read: `40 s`, `12 min`, `3 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60:,} h {minutes % 60} min"
