"""One thread ahead: what comes next is made while what is there is used. Knows nothing of what it is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items in the same order, each made in a thread while the one before is in use.

    What `items` raises is raised here, in its turn.
    """

    def one() -> list[T]:
        return list(islice(items, 1))

    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(one)
        while item := coming.result():
            coming = thread.submit(one)
            yield from item
