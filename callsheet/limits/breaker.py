"""The circuit breaker: pauses the buying while the service fails, before that costs a whole batch.

It counts what went wrong one after another. After the first doubt, requests leave one at a time, each after a
free request has been answered. After too many of the same, buying pauses; when that has not helped, it ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import anyio

from callsheet.errors import Doubtful, InvalidApiKey, KeyRefused, ServiceDown, ServiceError, Stop

FAILURES = 20  # jobs in a row that pause the buying when the service reports its own failure for each; free
GATEWAY = 5  # answers of a gateway in a row that pause the buying: free, and hardly ever about one job
ASKED = 6  # times in a row that the service does not answer a free request; then it counts as down

_HINT = "What is bought is still collected. The same command goes on later."

Trouble = Literal["doubt", "loss", "failure", "gateway", "unsent"]
"""What went wrong with a job.

`doubt`: it may have been paid for, and no answer says so. `loss`: it was accepted, and its file cannot be
had: it is lost, or the service does not know the video any more. `failure`: it was given up, because the
service reported its own failure. `gateway`: a gateway answered, and not the service. `unsent`: it could not
leave this machine.
"""


_PAUSES: dict[Trouble, int] = {"doubt": 1, "loss": 1, "gateway": 3, "failure": 6}
"""How many pauses are made before the buying ends, each longer than the one before.

After each, one job is sent. The pauses for a gateway take up to half a minute together, in which one that
restarts comes back.
"""


class Breaker:
    """Lets jobs through to the service, or not. `stop` says why the buying must end; None while it may go on.

    Each model has one of its own (`of`): what is wrong with one says nothing of the others. What goes wrong
    for several of them, and nothing works meanwhile, counts for each of these. `stop` of the one that they
    are `of` ends the buying of all.

    Args:
        stop_after: doubts or losses, one after another, that pause the buying (the setting `stop_after`).
        ask: sends a free request; raises `ServiceError` where the service does not answer it.
        note: is told when buying pauses, and when it goes on.
        backoff: the seconds of a pause, by its number.
    """

    def __init__(
        self,
        stop_after: int,
        ask: Callable[[], Awaitable[object]],
        note: Callable[[str], None],
        backoff: Callable[[int], float],
        *,
        parent: Breaker | None = None,
        model: str = "",
    ) -> None:
        self.stop: Stop | None = None
        self._parent, self._model = parent or self, model
        self._of: dict[str, Breaker] = {}
        self._together: Counter[Trouble] = Counter()  # of all models, one after another
        self.stop_after = stop_after
        self._ask, self._note, self._backoff = ask, note, backoff
        self._streaks: Counter[Trouble] = Counter()  # of each, one after another
        self._reason = self._hint = ""
        self._retry_after = 0.0  # seconds to wait, by the last answer
        self._probes = 0  # paid probes since the last job that worked
        self._probing = self._noted = False
        self._change = asyncio.Event()

    def of(self, model: str) -> Breaker:
        """The breaker of a model, which is of one endpoint."""
        if model not in self._of:
            self._of[model] = Breaker(
                self.stop_after, self._ask, self._note, self._backoff, parent=self, model=model
            )
        return self._of[model]

    def stopped(self) -> dict[str, Stop]:
        """The models of which nothing more is bought, and why."""
        return {model: breaker.stop for model, breaker in self._of.items() if breaker.stop}

    def worked(self) -> None:
        """The service accepted a job, or found out that it failed for a reason of the job's."""
        self._streaks = Counter({"loss": self._streaks["loss"]})
        self._parent._together = Counter({"loss": self._parent._together["loss"]})
        self._recovered()

    def stored(self) -> None:
        """A file was stored."""
        del self._streaks["loss"], self._parent._together["loss"]
        self._recovered()

    def wrong(self, trouble: Trouble, reason: str, *, hint: str = "", retry_after: float = 0.0) -> None:
        """Something went wrong with a job; `reason`: in the words of the service or the network.

        Of a gateway, `hint` is what a person can do, and `retry_after` the seconds that its answer says.
        """
        self._streaks[trouble] += 1
        self._parent._together[trouble] += 1
        self._reason = reason
        if trouble == "gateway":
            self._hint, self._retry_after = hint, retry_after

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
        alone = self._streaks["doubt"] or self._streaks["gateway"] or self._streaks["unsent"]
        return not alone and self._too_often is None

    @property
    def _too_often(self) -> Trouble | None:
        """What has gone wrong so often in a row that the buying pauses; None without such."""
        stop_after, together = self._parent.stop_after, self._parent._together
        allowed = {"doubt": stop_after, "loss": stop_after, "gateway": GATEWAY, "failure": FAILURES}
        for trouble in _PAUSES:
            if (streak := self._streaks[trouble]) and max(streak, together[trouble]) >= allowed[trouble]:
                return trouble
        return None

    async def _probe(self) -> None:
        if trouble := self._too_often:
            if self._probes >= _PAUSES[trouble]:
                self.stop = self._end(trouble)
                return
            self._probes += 1
            self._note(f"buying pauses: {self._reason}")
            self._noted = True
            retry_after = self._retry_after if self._streaks["gateway"] else 0.0
            await anyio.sleep(max(self._pause(self._probes), retry_after))
        await self._until_answered()

    async def _until_answered(self) -> None:
        for number in range(1, ASKED + 1):
            try:
                await self._ask()
            except InvalidApiKey as error:
                self.stop = self._parent.stop = KeyRefused(str(error), hint=error.hint)
                return
            except ServiceError as error:
                self._reason = str(error)
                if not self._noted:
                    self._note(f"buying waits until the service answers again: {error}")
                    self._noted = True
                await anyio.sleep(self._pause(number))
            else:
                return
        down = ServiceDown(f"the service does not answer: {self._reason}", hint=_HINT)
        self.stop = self._parent.stop = down

    def _end(self, trouble: Trouble) -> Stop:
        of_model = f" of {self._model}" if self._model else ""
        if trouble == "gateway":
            hint = f"{self._hint} Nothing failed, and nothing is lost. The same command goes on later."
            message = f"a gateway answers in place of the service{of_model}: {self._reason}"
            return ServiceDown(message, hint=hint.strip())
        if trouble == "failure":
            return ServiceDown(f"the service fails for every job{of_model}: {self._reason}", hint=_HINT)
        ended = "in doubt" if trouble == "doubt" else "without a file that can be had"
        return Doubtful(
            f"{self._streaks[trouble]} jobs in a row{of_model} ended {ended}, and a pause did not help; "
            f"the last: {self._reason}",
            hint="Find out why before you buy more: `callsheet resolve CONFIG` lists what is in doubt.",
        )

    def _pause(self, number: int) -> float:
        return self._backoff(number + 2)

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
