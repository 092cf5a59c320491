"""Iterating while threads make the next items. Does not know what the items are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, repeat
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def parallel_map(function: Callable[[A], B], items: Iterable[A], threads: int) -> Iterator[B]:
    """As `map`, with `threads` calls at a time; the results come in the order of the items.

    The items are taken in the caller's thread, at most `threads` of them in advance. An error that `function`
    or `items` raises is raised here, after the results before it.
    """
    with ThreadPoolExecutor(threads) as pool:

        def started() -> Iterator[Future[B]]:
            try:
                for item in items:
                    yield pool.submit(function, item)
            except Exception as error:  # noqa: BLE001  # raised again below, in its turn
                failed: Future[B] = Future()
                failed.set_exception(error)
                yield failed

        running: deque[Future[B]] = deque()
        for future in started():
            running.append(future)
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def read_ahead(items: Iterator[A]) -> Iterator[A]:
    """The same items in the same order; a thread makes the next one while the caller uses the last.

    An error that `items` raises is raised here, after the items before it.
    """
    for item in parallel_map(lambda _: list(islice(items, 1)), repeat(None), threads=1):
        if not item:
            return
        yield from item
