"""The other runs of a batch, while one buys: it finishes what they leave.

Which runs are dead, and whose a job is, is for the ledger to say. Nothing is bought here.
"""

from __future__ import annotations

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from callsheet.ledger import leases, queries
from callsheet.ledger.waits import waits
from callsheet.records import Attempt, File
from callsheet.session import Run

LOOK = 0.5  # seconds between two looks of a run that waits for the others
SOON = 2.0  # seconds between two looks of a run that buys in a crew
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

    async def watch(self) -> None:
        """Looks at them again and again, until it is cancelled."""
        while True:
            await anyio.sleep(waits().lease / 8 if self._is_alone else SOON)
            await self.look()

    async def look(self) -> bool:
        """Takes over from those that are over.

        Returns:
            Whether any of them has jobs in hand.
        """
        if await self._run.ledger.read(leases.have_left_work):
            await self._take_over()
        return any(other.jobs for other in await self._run.ledger.others())

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
