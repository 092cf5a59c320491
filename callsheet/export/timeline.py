"""A cut for editors: `cut.otio`, an OpenTimelineIO timeline of the files in a folder for people.

The kept takes of each row stand on the first track, in the order of the rows; without one, its first take.
Its other takes stand above, disabled, and no longer than what stands below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import polars as pl

from callsheet.errors import ConfigError
from callsheet.export.files import NAME, Row
from callsheet.ledger.marks import MediaDecision
from callsheet.storage.store import Store

if TYPE_CHECKING:
    from opentimelineio.opentime import RationalTime
    from opentimelineio.schema import Clip, Track

TIMELINE = "cut.otio"

_FPS = 24.0  # of stills, and of videos that do not say theirs
_SAID = (
    *("row_id", "file_number", "sample", "model", "prompt", "made_from", "decision", "note"),
    *("generation_id", "sha256"),
)


def check_installed() -> None:
    """Looks for OpenTimelineIO, before anything is copied.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import opentimelineio  # noqa: F401
    except ImportError:
        raise ConfigError(
            "--as otio needs OpenTimelineIO, which is not installed", hint="pip install 'callsheet[otio]'"
        ) from None


async def write_timeline(files: pl.DataFrame, store: Store, batch: str, still_seconds: float) -> None:
    """Writes the timeline beside the files.

    `files` have their `NAME`, and are in the order of the rows. A still has `still_seconds`.
    """
    from opentimelineio.adapters import write_to_string
    from opentimelineio.schema import Timeline, Track

    timeline = Timeline(batch)
    tracks = [Track("cut", kind="Video")]
    for row_files in files.partition_by("row_id", maintain_order=True):
        clips = [_clip(file, still_seconds) for file in row_files.iter_rows(named=True)]
        is_chosen = row_files["decision"].eq_missing(MediaDecision.KEPT).to_list()
        if not any(is_chosen):
            is_chosen[0] = True
        start = tracks[0].duration()
        tracks[0].extend(clip for clip, chosen in zip(clips, is_chosen, strict=True) if chosen)
        others = [clip for clip, chosen in zip(clips, is_chosen, strict=True) if not chosen]
        while len(tracks) <= len(others):
            tracks.append(Track(f"take {len(tracks) + 1}", kind="Video"))
        for track, clip in zip(tracks[1:], others, strict=False):
            _put_above(track, clip, start, tracks[0].duration() - start)
    timeline.tracks.extend(tracks)
    await store.write(TIMELINE, write_to_string(timeline).encode(), "application/json")


def _clip(file: Row, still_seconds: float) -> Clip:
    from opentimelineio.opentime import RationalTime, TimeRange
    from opentimelineio.schema import Clip, ExternalReference

    fps, seconds = file["fps"] or _FPS, file["duration"] or still_seconds
    length = TimeRange(RationalTime(0, fps), RationalTime(round(seconds * fps), fps))
    said = {name: file[name] for name in _SAID if file[name] is not None} | {"cost": str(file["cost"])}
    return Clip(
        file[NAME],
        ExternalReference(quote(file[NAME]), available_range=length),
        source_range=length,
        metadata={"callsheet": said},
    )


def _put_above(track: Track, clip: Clip, start: RationalTime, longest: RationalTime) -> None:
    """Puts a take of a row that begins at `start` and has a length of `longest` on a track above it."""
    from opentimelineio.opentime import TimeRange
    from opentimelineio.schema import Gap

    if start > track.duration():
        track.append(Gap(duration=start - track.duration()))
    length = clip.source_range
    clip.source_range = TimeRange(length.start_time, min(length.duration, longest))
    clip.enabled = False
    track.append(clip)
