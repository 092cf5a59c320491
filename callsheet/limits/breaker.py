"""The circuit breaker: pauses the buying while the service fails, before that costs a whole batch.

It counts what went wrong one after another. After the first doubt, requests leave one at a time, each after a
free request has been answered. After too many of the same, buying pauses; when that has not helped, it ends.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from callsheet.errors import Doubtful, InvalidApiKey, KeyRefused, ServiceDown, ServiceError, Stop
from callsheet.service import verdicts

FAILURES = 20
"""Jobs in a row that pause the buying when the service reports its own failure for each. They are free."""

PAUSES = 6
"""Pauses, each longer than the one before, some minutes together; then the service counts as down."""

GATEWAY = 5
"""Answers of a gateway in a row that pause the buying. They are free, and hardly ever about one job."""

GATEWAY_PAUSES = 3
"""Pauses that outlast a gateway that restarts: up to half a minute together."""

_HINT = "What is bought is still collected. The same command goes on later."


class Breaker:
    """Lets jobs through to the service, or not.

    Args:
        stop_after: doubts or losses, one after another, that pause the buying (the setting `stop_after`).
        ask: sends a free request; raises `ServiceError` where the service does not answer it.
        note: is told when buying pauses, and when it goes on.

    Attributes:
        stop: why the buying must end; None while it may go on.
    """

    def __init__(
        self, stop_after: int, ask: Callable[[], Awaitable[object]], note: Callable[[str], None]
    ) -> None:
        self.stop: Stop | None = None
        self._stop_after = stop_after
        self._ask = ask
        self._note = note
        self._streaks: Counter[str] = Counter()  # of doubts, losses, failures, gateways, unsent requests
        self._why = self._hint = ""
        self._told = 0.0  # seconds to wait, by the last answer
        self._probes = 0  # paid probes since the last job that worked
        self._probing = False
        self._noted = False
        self._change = asyncio.Event()
        self._jitter = random.SystemRandom()

    def accepted(self) -> None:
        """The service accepted a job, or found out that it failed for a reason of the job's."""
        for name in ("doubt", "failure", "gateway", "unsent"):
            self._streaks[name] = 0
        self._recovered()

    def stored(self) -> None:
        """A file was stored."""
        self._streaks["loss"] = 0
        self._recovered()

    def doubt(self, why: str) -> None:
        """A job may have been paid for, and no answer says so."""
        self._count("doubt", why)

    def loss(self, why: str) -> None:
        """A job was paid for, and its file can no longer be had."""
        self._count("loss", why)

    def failure(self, why: str) -> None:
        """A job was given up because the service reported its own failure."""
        self._count("failure", why)

    def gateway(self, why: str, hint: str, told: float) -> None:
        """A gateway answered a submission, and not the service.

        Args:
            why: what it answered.
            hint: what a person can do about it.
            told: seconds to wait, by its answer; 0 where it does not say.
        """
        self._count("gateway", why)
        self._hint, self._told = hint, told

    def unsent(self, why: str) -> None:
        """A request could not leave this machine."""
        self._count("unsent", why)

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Lets a job through: at once while all is well, else alone and after a free request was answered.

        Look at `stop` before you send.
        """
        while not self._well and self._probing:
            await self._change.wait()
        if self._well:
            yield
            return
        self._probing = True
        try:
            await self._probe()
            yield
        finally:
            self._probing = False
            self._changed()

    @property
    def _well(self) -> bool:
        alone = any(self._streaks[name] for name in ("doubt", "gateway", "unsent"))
        return not alone and not self._must_pause

    @property
    def _costly(self) -> bool:
        return max(self._streaks["doubt"], self._streaks["loss"]) >= self._stop_after

    @property
    def _must_pause(self) -> bool:
        return self._costly or self._refused or self._streaks["failure"] >= FAILURES

    @property
    def _refused(self) -> bool:
        return self._streaks["gateway"] >= GATEWAY

    async def _probe(self) -> None:
        if self._must_pause:
            if self._probes >= (1 if self._costly else GATEWAY_PAUSES if self._refused else PAUSES):
                self.stop = self._too_many()
                return
            self._probes += 1
            self._note(f"buying pauses: {self._why}")
            self._noted = True
            await anyio.sleep(max(self._pause(self._probes), self._told if self._refused else 0.0))
        await self._until_answered()

    async def _until_answered(self) -> None:
        for number in range(1, PAUSES + 1):
            try:
                await self._ask()
            except InvalidApiKey as error:
                self.stop = KeyRefused(str(error), hint=error.hint)
                return
            except ServiceError as error:
                self._why = str(error)
                if not self._noted:
                    self._note(f"buying waits until the service answers again: {error}")
                    self._noted = True
                await anyio.sleep(self._pause(number))
            else:
                return
        self.stop = ServiceDown(f"the service does not answer: {self._why}", hint=_HINT)

    def _too_many(self) -> Stop:
        if self._refused and not self._costly:
            hint = f"{self._hint} Nothing failed, and nothing is lost. The same command goes on later."
            return ServiceDown(f"a gateway answers in place of the service: {self._why}", hint=hint.strip())
        if not self._costly:
            return ServiceDown(f"the service fails for every job: {self._why}", hint=_HINT)
        counted = max(self._streaks["doubt"], self._streaks["loss"])
        ended = "in doubt" if self._streaks["doubt"] >= self._streaks["loss"] else "lost"
        return Doubtful(
            f"{counted} jobs in a row ended {ended}, and a pause did not help; the last: {self._why}",
            hint="Find out why before you buy more: `callsheet resolve CONFIG` lists what is in doubt.",
        )

    def _pause(self, number: int) -> float:
        return verdicts.backoff(number + 2, self._jitter)

    def _count(self, name: str, why: str) -> None:
        self._streaks[name] += 1
        self._why = why

    def _recovered(self) -> None:
        if self._well:
            self._probes = 0
            if self._noted:
                self._note("the service works again; buying goes on")
                self._noted = False
            self._changed()

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
