"""The other runs of a batch, while one buys: it shares the limits with them, and finishes what they leave.

Which runs are dead, and whose a job is, is for the ledger to say. Nothing is bought here.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from callsheet.ledger import leases, queries
from callsheet.limits.pace import WINDOW, Shape
from callsheet.limits.turns import Learned
from callsheet.records import Attempt, File, ModelType
from callsheet.session import Run
from callsheet.watch import WATCHER

LOOK = 0.5  # seconds between two looks of a run that waits for the others
SOON = 2.0  # seconds between two looks of a run that buys in a crew
_KNOWN = 1.5 * SOON  # seconds until all others have seen a run that joins
_FINDING_OUT = 75.0  # seconds: a window, whenever it began, and the first answer of the next one
_LATELY = 10.0  # seconds in which a run shows how fast it goes
_IDLE = 2  # looks in a row without a job in hand: between two attempts at a job there is a moment without


class Others:
    """The other runs of a run's batch.

    Args:
        run: the run that watches them.
        videos: where accepted videos go.
        files: where paid files go.
    """

    def __init__(
        self, run: Run, videos: MemoryObjectSendStream[Attempt], files: MemoryObjectSendStream[File]
    ) -> None:
        self._run, self._videos, self._files = run, videos, files
        self._is_alone = not (run.leads or run.joined)
        self._free = 0  # jobs that were free when all had been tried

    async def until_limits_are_known(self) -> None:
        """Waits while the first run finds out limits that it uses up alone: about a minute, and only once.

        Runs that look for the number of lanes side by side refuse each other's requests.
        """
        begin, said = anyio.current_time(), False
        while await self._finds_out(known := await self._run.learned()):
            if self._run.stop or anyio.current_time() > begin + _FINDING_OUT:
                break
            if not said:
                WATCHER.get().note("the first run finds out the limits; this one waits for about a minute")
                said = True
            await anyio.sleep(SOON)
        if known:
            self._run.limits.recall(known)

    async def _finds_out(self, known: Learned | None) -> bool:
        if known is None or not known.windows:  # no answer has come yet
            return True
        sent = await self._sent(_LATELY)
        now = datetime.now(UTC)
        began = min((at for _, at in sent), default=now)  # not _LATELY ago where the first run has just begun
        seconds = max(SOON, (now - began).total_seconds())
        counts = Counter(model_type for model_type, _ in sent)
        return any(
            Shape(window["shape"]) is Shape.UNKNOWN
            and counts[ModelType(model_type)] * WINDOW / seconds > window["limit"] / 2
            for model_type, window in known.windows.items()
        )

    async def _sent(self, seconds: float) -> list[tuple[ModelType, datetime]]:
        moment = datetime.now(UTC) - timedelta(seconds=seconds)
        return await self._run.ledger.read(partial(queries.sent_since, moment=moment))

    async def join(self) -> None:
        """Waits until the others know of this run, and takes in what they have sent until then.

        Until they know, they use its part of the window too.
        """
        self._run.limits.wait(2 * _KNOWN)  # at most: `found` ends it
        await anyio.sleep(_KNOWN)
        self._run.limits.found((kind, at.timestamp()) for kind, at in await self._sent(WINDOW))

    async def watch(self, *, joins: bool) -> None:
        """Looks at them again and again, until it is cancelled."""
        if joins:
            await self.join()
        while True:
            await anyio.sleep(self._run.ledger.lease / 8 if self._is_alone else SOON)
            await self.look()
            if not self._is_alone:
                knows_better = await self._run.hear()
                if self._run.leads or knows_better:
                    await self._run.remember()  # for the others, and those that begin soon

    async def look(self) -> bool:
        """Takes over from those that are over, and shares the limits with those that buy.

        Returns:
            Whether any of them has jobs in hand.
        """
        run = self._run
        left, buying = await run.ledger.read(
            lambda connection, batch: (
                leases.have_left_work(connection, batch),
                leases.others_that_buy(connection, batch, run.ledger.run_id),
            )
        )
        run.limits.share(1 + buying)
        if left:
            await self._take_over()
        return any(other.jobs for other in await run.ledger.others())

    async def left_more(self) -> bool:
        """Whether others have left jobs that this run can buy, after it has tried all.

        The first run of a crew waits until the others have nothing in hand.
        """
        idle = 0
        while not self._run.stop:
            idle = 0 if await self.look() else idle + 1
            before, self._free = self._free, await self._run.ledger.read(queries.free_jobs)
            if self._free and self._free != before:
                return True
            if not self._run.leads or idle == _IDLE:
                return False
            await anyio.sleep(LOOK)
        return False

    async def _take_over(self) -> None:
        run = self._run
        with run.unless_ended():
            videos, files, doubts = await run.ledger.take_over()
            run.left_in_doubt(doubts)
            run.limits.adopt(len(videos))
            run.open_jobs.begin(len(videos))
            for video in videos:
                await self._videos.send(video)
            for file in files:
                await self._files.send(file)
