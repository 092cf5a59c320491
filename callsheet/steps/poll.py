"""Poll: each accepted video is asked for until it is completed, failed, or past this run's patience.

Polling buys nothing and is free to repeat. A video that outlasts the run's patience stays pending, for the
next run or `collect`; giving up on it here would lose what is paid for.
"""

from __future__ import annotations

from dataclasses import replace

import anyio

from callsheet.errors import KeyRefused, ServiceError
from callsheet.ledger import states
from callsheet.ledger.states import End
from callsheet.records import Attempt, Generation, State
from callsheet.service import verdicts
from callsheet.service.models import Failed, NoFile, Pending
from callsheet.service.verdicts import Verdict
from callsheet.session import Run
from callsheet.steps.download import record_generation
from callsheet.watch import WATCHER

NOT_FOUND_TRIES = 3  # a 404 may come from a replica that lags; so many in a row do not
SAID_TRIES = 3  # errors one after another, after which a person sees them: it may be for ever
NO_FILE_TRIES = 3  # the files may come a moment after the status
LAST_ANSWER = 5.0  # seconds for an answer at the end of the run's patience


async def poll(run: Run) -> None:
    """Polls the videos of earlier runs and of this one, all side by side."""
    with run.files.filling(), run.polling:
        async with anyio.create_task_group() as polling:
            async for video in run.videos:
                polling.start_soon(_follow, run, video)


async def _follow(run: Run, video: Attempt) -> None:
    """Follows one video to its end, or to the end of the run's patience."""
    end = await _watch(run, video)
    if isinstance(end, Pending):
        if (end.said or video.said) and not video.in_doubt:
            with anyio.CancelScope(shield=True):
                await run.ledger.transition(states.unknown_status, video, end.said)
        if end.said:
            left = f"row {video.row_id}: left for a later run: the service says {end.said}"
            WATCHER.get().note(left)
        run.limits.give_up()
        run.awaited_costs.end()
        return
    run.limits.release()
    run.videos_ended += 1
    with anyio.CancelScope(shield=True):  # an end that is known is kept, also when the run is interrupted
        match end:
            case Generation():
                await record_generation(run, video, end)
            case Failed():
                await run.ledger.transition(states.failed, End(video, end.message, end.code, end.usage))
                cost, _ = end.usage.charged()
                run.tell(video, State.FAILED, end.message, cost or None)
            case _ if video.in_doubt:  # and it stays so
                pass
            case ServiceError():
                await _doubt(run, video, f"which the service does not know under this key: {end}")
                if not run.knows_videos:
                    message = f"the service knows none of the videos that this batch has bought: {end}"
                    hint = "The API key seems to be another project's. Run again with the right key: "
                    run.halt(KeyRefused(message, hint=hint + "the videos are asked for again."))
            case NoFile():
                await _doubt(run, video, f"and is completed without a file; the service says {end.said}")
    run.awaited_costs.end()


async def _says(run: Run, video: Attempt, said_before: str, service_says: str) -> str:
    """Keeps the words of polls that answer no status, for `status`, `show` and the sheet; tells them once."""
    if service_says != said_before and not video.in_doubt:
        with anyio.CancelScope(shield=True):
            await run.ledger.transition(states.unknown_status, video, service_says)
    if service_says and service_says not in run.poll_errors:
        run.poll_errors.add(service_says)
        WATCHER.get().note(f"row {video.row_id}: it is polled on, and the service says {service_says}")
    return service_says


async def _doubt(run: Run, video: Attempt, reason: str) -> None:
    """It was accepted, so it is neither failed nor free; later runs ask for it again."""
    message = f"it was accepted as {video.generation_id}, {reason}"
    await run.ledger.transition(states.in_doubt, End(video, message))
    run.tell(video, State.IN_DOUBT, message)
    run.breaker.of(video.model).wrong("loss", f"row {video.row_id}: {message}")


async def _watch(run: Run, video: Attempt) -> Generation | Failed | NoFile | ServiceError | Pending:
    """Asks until the video has ended, or until the run's patience or its key ends: then it is pending.

    An error: the service does not know it. A video that an earlier run has left with words that are no status
    is asked for once, unless the words change.
    """
    assert video.generation_id is not None  # noqa: S101 - a pending attempt has its id
    began = anyio.current_time()
    errors = not_found = no_file = 0
    service_says = video.said
    while True:
        interval, patience = run.settings.poll.interval, began + run.settings.poll.timeout  # may be changed
        wait, retry_after = interval, 0.0
        try:
            left = max(patience - anyio.current_time(), LAST_ANSWER)
            answer = await run.client.video(video.generation_id, within=left)
            errors, not_found, run.knows_videos = 0, 0, True
            no_file = no_file + 1 if isinstance(answer, NoFile) else 0
            if isinstance(answer, Pending):
                service_says = answer.said
                if service_says and service_says == video.said:
                    return answer
                if not service_says and video.said:
                    video = replace(video, said=await _says(run, video, video.said, ""))
            elif not no_file or no_file == NO_FILE_TRIES or video.in_doubt:
                return answer
        except ServiceError as error:
            errors += 1
            verdict = verdicts.poll(error)
            if verdict is Verdict.STOP_KEY:
                run.halt(error)
                return Pending(service_says)
            not_found = not_found + 1 if verdict is Verdict.NOT_FOUND else 0
            if not_found == NOT_FOUND_TRIES:
                return error
            retry_after = error.retry_after or 0.0
            wait = max(interval, run.client.backoff(errors))
            if errors >= SAID_TRIES:
                service_says = await _says(run, video, service_says, str(error))
        left = patience - anyio.current_time()
        if wait > left:
            return Pending(service_says)
        await anyio.sleep(max(wait, min(retry_after, left)))  # the end of its patience is worth a try
