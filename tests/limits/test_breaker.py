"""The breaker pauses the buying while the service fails, probes, and ends it if that does not help."""

from __future__ import annotations

import asyncio

import pytest

from callsheet.errors import Doubtful, InvalidApiKey, KeyRefused, ServiceError
from callsheet.limits import breaker
from callsheet.limits.breaker import Breaker, Trouble
from tests.limits.virtual_time import now, virtual


class Service:
    """Answers free requests with these errors, one after another, and then well."""

    def __init__(self, *errors: ServiceError) -> None:
        self.errors = list(errors)
        self.asked = 0
        self.notes: list[str] = []

    async def ask(self) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)

    def breaker(self, stop_after: int = 3) -> Breaker:
        return Breaker(stop_after, self.ask, self.notes.append, backoff=float)


@virtual
async def test_after_a_doubt_one_job_at_a_time_passes_and_only_after_a_free_answer() -> None:
    service, inside, most = Service(), 0, 0
    guard = service.breaker(stop_after=100)
    guard.wrong("doubt", "cut off")

    async def one() -> None:
        nonlocal inside, most
        async with guard.passing():
            inside, most = inside + 1, max(most, inside + 1)
            await asyncio.sleep(0)
            inside -= 1
            guard.wrong("doubt", "cut off")

    await asyncio.gather(*(one() for _ in range(5)))
    assert (most, service.asked) == (1, 5)


@virtual
async def test_when_a_job_is_accepted_those_that_wait_pass_together() -> None:
    service = Service()
    guard = service.breaker()
    guard.wrong("doubt", "cut off")
    gate, inside = asyncio.Event(), 0

    async def one() -> None:
        nonlocal inside
        async with guard.passing():
            inside += 1
            await gate.wait()

    jobs = [asyncio.create_task(one()) for _ in range(4)]
    while not inside:  # noqa: ASYNC110 - turns of the event loop, not time
        await asyncio.sleep(0)
    assert inside == 1
    guard.accepted()
    while inside < 4:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*jobs)
    assert service.asked == 1


@pytest.mark.parametrize("name", ["doubt", "loss"])
@virtual
async def test_too_many_doubts_or_losses_in_a_row_pause_probe_once_and_stop(name: Trouble) -> None:
    service = Service()
    guard = service.breaker(stop_after=3)
    for _ in range(3):
        guard.wrong(name, "cut off")
    async with guard.passing():
        assert guard.stop is None, "one probe"
    guard.wrong(name, "cut off")
    async with guard.passing():
        assert isinstance(guard.stop, Doubtful)
        assert "4 jobs in a row" in str(guard.stop)
    assert len(service.notes) == 1


@virtual
async def test_a_probe_that_works_ends_the_pause_and_the_count_begins_again() -> None:
    service = Service()
    guard = service.breaker(stop_after=2)
    guard.wrong("doubt", "a")
    guard.wrong("doubt", "b")
    async with guard.passing():
        guard.accepted()
    guard.wrong("doubt", "c")
    async with guard.passing():
        assert guard.stop is None
    assert service.notes[-1].startswith("the service works again")


@virtual
async def test_what_is_wrong_with_a_model_stops_that_one_and_what_is_wrong_with_all_stops_all() -> None:
    whole = Service().breaker(stop_after=3)
    broken, other = whole.of("broken"), whole.of("other")
    for _ in range(3):
        broken.wrong("doubt", "502")
        other.accepted()
    async with other.passing():
        assert other.stop is None
    async with broken.passing():
        broken.wrong("doubt", "502")
    async with broken.passing():
        assert "of broken ended in doubt" in str(broken.stop)
    assert (other.stop, whole.stop, [*whole.stopped()]) == (None, None, ["broken"])
    for _ in range(2):  # and nothing works meanwhile: two of it are enough
        other.wrong("doubt", "502")
        third = whole.of("third")
        third.wrong("doubt", "502")
        for each in other, third:
            async with each.passing():
                pass
    assert isinstance(other.stop, Doubtful)
    assert isinstance(third.stop, Doubtful)


@virtual
async def test_a_key_that_is_refused_meanwhile_is_what_stops_the_buying() -> None:
    guard = Service(InvalidApiKey("no", status=401)).breaker()
    guard.wrong("doubt", "cut off")
    async with guard.passing():
        assert isinstance(guard.stop, KeyRefused)


@virtual
async def test_a_gateway_that_says_how_long_to_wait_is_asked_again_no_sooner() -> None:
    service = Service()
    guard = service.breaker()
    for _ in range(breaker.GATEWAY):
        guard.wrong("gateway", "403 blocked", told=50.0)
    async with guard.passing():
        assert now() == 50
