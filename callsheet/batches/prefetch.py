"""Work ahead: what comes next is made in threads while what is there is used. Knows nothing of what it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, repeat
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def mapped(make: Callable[[A], B], items: Iterable[A], threads: int) -> Iterator[B]:
    """What `make` makes of each item, in their order; as many at once as there are threads.

    The items are taken in the caller's thread, `threads` of them beyond the one whose turn it is. What `make`
    and `items` raise is raised here, in its turn.
    """
    with ThreadPoolExecutor(threads) as pool:

        def begun() -> Iterator[Future[B]]:
            try:
                for item in items:
                    yield pool.submit(make, item)
            except Exception as error:  # noqa: BLE001  # whatever it is, what comes before it goes first
                broken: Future[B] = Future()
                broken.set_exception(error)
                yield broken

        coming: deque[Future[B]] = deque()
        for each in begun():
            coming.append(each)
            if len(coming) > threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def ahead(items: Iterator[A]) -> Iterator[A]:
    """The same items in the same order, each made in a thread while the one before is in use.

    What `items` raises is raised here, in its turn.
    """
    for item in mapped(lambda _: list(islice(items, 1)), repeat(None), threads=1):
        if not item:
            return
        yield from item
