"""Poll: each accepted video is asked for until it is completed, failed, or past this run's patience.

Polling buys nothing and is free to repeat. A video that outlasts the run's patience stays pending, for the
next run or `collect`; giving up on it here would lose what is paid for.
"""

from __future__ import annotations

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from callsheet.errors import KeyRefused, ServiceError
from callsheet.records import Attempt, Failed, File, Generation, Pending
from callsheet.service import verdicts
from callsheet.service.verdicts import Verdict
from callsheet.session import Run
from tasks.step import step

NOT_FOUND_TRIES = 3  # a 404 may be a replica that lags; three in a row are the truth
LAST_ANSWER = 5.0  # seconds for an answer at the end of the run's patience


@step
async def poll(run: Run) -> None:
    """Polls the videos of earlier runs and of this one, all side by side."""
    with run.files.end() as files:
        if run.interrupted:
            return
        async with anyio.create_task_group() as run.polling:
            for video in run.adopted_videos:
                run.polling.start_soon(_follow, run, video, files)
            async for video in run.videos.items:
                run.polling.start_soon(_follow, run, video, files)


async def _follow(run: Run, video: Attempt, files: MemoryObjectSendStream[File]) -> None:
    """Follows one video to its end, or to the end of the run's patience."""
    end = await _watch(run, video)
    if end is None:
        run.limits.give_up()
        run.settle()
        return
    run.limits.release()
    with anyio.CancelScope(shield=True):  # an end that is known is kept, also when the run is interrupted
        if isinstance(end, Failed):
            await run.ledger.failed(video, end.code, end.message)
        else:
            for file in await run.keep(video, end):
                await files.send(file)
    run.settle()


async def _watch(run: Run, video: Attempt) -> Generation | Failed | None:
    """Asks until the video has ended; None when the run's patience or its key ends first."""
    assert video.generation_id is not None  # noqa: S101 - a pending attempt has its id
    patience = anyio.current_time() + run.settings.poll.timeout
    interval = run.settings.poll.interval
    errors = not_found = 0
    while True:
        wait = interval
        try:
            left = max(patience - anyio.current_time(), LAST_ANSWER)
            answer = await run.client.video(video.generation_id, within=left)
            errors = not_found = 0
            if not isinstance(answer, Pending):
                return answer
        except ServiceError as error:
            errors += 1
            verdict = verdicts.poll(error)
            if verdict is Verdict.STOP_KEY:
                run.halt(KeyRefused(str(error), hint=error.hint))
                return None
            not_found = not_found + 1 if verdict is Verdict.NOT_FOUND else 0
            if not_found == NOT_FOUND_TRIES:
                return Failed(video.generation_id, "not_found", str(error))
            wait = max(interval, verdicts.backoff(errors, run.jitter))
        if anyio.current_time() + wait > patience:
            return None
        await anyio.sleep(wait)
