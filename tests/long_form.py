"""Which cases of a test run in `make soak` alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_soak(cases: Iterable[Any], *always: Any) -> list[Any]:
    """The cases; those that are not in `always` run in `make soak` alone."""
    return [each if each in always else pytest.param(each, marks=pytest.mark.soak) for each in cases]
