"""Take over: a run that buys goes on with what dead runs of its batch have left.

Which runs are dead, and whose a job is, is for the ledger to say. Nothing is bought here.
"""

from __future__ import annotations

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from callsheet.ledger import leases, queries
from callsheet.records import Attempt, File
from callsheet.session import Run


class TakeOver:
    """What a run takes over from others while it buys.

    Args:
        run: the run.
        videos: where accepted videos go.
        files: where paid files go.
    """

    def __init__(
        self, run: Run, videos: MemoryObjectSendStream[Attempt], files: MemoryObjectSendStream[File]
    ) -> None:
        self._run, self._videos, self._files = run, videos, files
        self._free = 0  # jobs that were free when all had been tried

    async def again_and_again(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await anyio.sleep(self._run.ledger.lease / 8)
            await self.look()

    async def look(self) -> None:
        """Takes over from runs that are dead."""
        run = self._run
        if not await run.ledger.read(leases.have_left_work):
            return
        with run.unless_ended():
            videos, files, doubts = await run.ledger.take_over()
            run.left_in_doubt(doubts)
            run.limits.adopt(len(videos))
            run.open_jobs.begin(len(videos))
            for video in videos:
                await self._videos.send(video)
            for file in files:
                await self._files.send(file)

    async def has_freed_jobs(self) -> bool:
        """Whether others have left jobs that this run can buy, after it has tried all."""
        if self._run.stop:
            return False
        await self.look()
        before, self._free = self._free, await self._run.ledger.read(queries.free_jobs)
        return self._free not in (0, before)
