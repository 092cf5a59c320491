"""The breaker pauses the buying while the service fails, probes, and ends it if that does not help."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from callsheet.errors import Doubtful, InvalidApiKey, KeyRefused, NotSent, ServiceDown, ServiceError
from callsheet.limits import breaker
from callsheet.limits.breaker import Breaker
from callsheet.service import verdicts


@pytest.fixture(autouse=True)
def without_waiting() -> Iterator[None]:
    verdicts.set_backoff(1e-4, 1e-3)
    yield
    verdicts.set_backoff()


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
        return Breaker(stop_after, self.ask, self.notes.append)


def test_while_all_is_well_every_job_passes_at_once_and_nothing_is_asked() -> None:
    async def scenario() -> None:
        service = Service()
        guard = service.breaker()
        async with guard.passing(), guard.passing(), guard.passing():
            pass
        assert service.asked == 0

    asyncio.run(scenario())


def test_after_a_doubt_one_job_at_a_time_passes_and_only_after_a_free_answer() -> None:
    async def scenario() -> None:
        service, inside, most = Service(), 0, 0
        guard = service.breaker(stop_after=100)
        guard.doubt("cut off")

        async def one() -> None:
            nonlocal inside, most
            async with guard.passing():
                inside, most = inside + 1, max(most, inside + 1)
                await asyncio.sleep(0)
                inside -= 1
                guard.doubt("cut off")

        await asyncio.gather(*(one() for _ in range(5)))
        assert (most, service.asked) == (1, 5)

    asyncio.run(scenario())


def test_when_a_job_is_accepted_those_that_wait_pass_together() -> None:
    async def scenario() -> None:
        service = Service()
        guard = service.breaker()
        guard.doubt("cut off")
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

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["doubt", "loss"])
def test_too_many_doubts_or_losses_in_a_row_pause_probe_once_and_stop(name: str) -> None:
    async def scenario() -> None:
        service = Service()
        guard = service.breaker(stop_after=3)
        for _ in range(3):
            getattr(guard, name)("cut off")
        async with guard.passing():
            assert guard.stop is None, "one probe"
        getattr(guard, name)("cut off")
        async with guard.passing():
            assert isinstance(guard.stop, Doubtful)
            assert "4 jobs in a row" in str(guard.stop)
        assert len(service.notes) == 1

    asyncio.run(scenario())


def test_a_probe_that_works_ends_the_pause_and_the_count_begins_again() -> None:
    async def scenario() -> None:
        service = Service()
        guard = service.breaker(stop_after=2)
        guard.doubt("a")
        guard.doubt("b")
        async with guard.passing():
            guard.accepted()
        guard.doubt("c")
        async with guard.passing():
            assert guard.stop is None
        assert service.notes[-1].startswith("the service works again")

    asyncio.run(scenario())


def test_failures_that_the_service_reports_are_free_and_are_probed_for_longer() -> None:
    async def scenario() -> None:
        guard = Service().breaker()
        for _ in range(breaker.FAILURES):
            guard.failure("500")
        probes = 0
        while guard.stop is None:
            async with guard.passing():
                probes += guard.stop is None
                guard.failure("500")
        assert (probes, type(guard.stop)) == (breaker.PAUSES, ServiceDown)

    asyncio.run(scenario())


def test_a_service_that_answers_nothing_is_down_and_no_paid_request_leaves() -> None:
    async def scenario() -> None:
        service = Service(*[NotSent("refused") for _ in range(100)])
        guard = service.breaker()
        guard.unsent("refused")
        async with guard.passing():
            assert isinstance(guard.stop, ServiceDown)
        assert (service.asked, len(service.notes)) == (breaker.PAUSES, 1)

    asyncio.run(scenario())


def test_a_key_that_is_refused_meanwhile_is_what_stops_the_buying() -> None:
    async def scenario() -> None:
        guard = Service(InvalidApiKey("no", status=401)).breaker()
        guard.doubt("cut off")
        async with guard.passing():
            assert isinstance(guard.stop, KeyRefused)

    asyncio.run(scenario())


def test_a_gateway_that_keeps_answering_ends_the_buying_after_a_few_pauses() -> None:
    async def scenario() -> None:
        service = Service()
        guard = service.breaker()
        sent = 0
        while not guard.stop:
            async with guard.passing():
                if not guard.stop:
                    sent += 1
                    guard.gateway("404 page not found", "Look at the ingress.", 0.0)
        assert isinstance(guard.stop, ServiceDown)
        assert "404 page not found" in str(guard.stop)
        assert guard.stop.hint.startswith("Look at the ingress.")
        assert sent == breaker.GATEWAY + breaker.GATEWAY_PAUSES

    asyncio.run(scenario())


def test_a_gateway_that_says_how_long_to_wait_is_asked_again_no_sooner() -> None:
    async def scenario() -> None:
        service = Service()
        guard = service.breaker()
        for _ in range(breaker.GATEWAY):
            guard.gateway("403 blocked", "", 0.05)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with guard.passing():
            assert loop.time() - began >= 0.05

    asyncio.run(scenario())
