"""A process that looks at files, one after the other, with a low priority: it makes their thumbnails, and
says what it sees and measures of them, for the checks.

    python -P -m callsheet.report.contact_sheet.decoder

Stdin has a line for each file: JSON with `path`, `type` and `hashed` (whether a perceptual hash is wanted).
Stdout has for each a line of JSON, what `look` returns and the length of a JPEG in `jpeg`, and then the JPEG.
The process ends with its stdin. It is apart from the run so that a damaged file, or one that is made to crash
a decoder, cannot harm what costs money.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import suppress
from typing import Any

from PIL import ExifTags, Image, ImageChops, ImageOps

from callsheet.processes import give_way

EDGE = 320
"""Pixels of a thumbnail's longer side."""

_QUALITY = 72
_MOST_PIXELS = 120_000_000  # of an image: 360 MB while it is decoded
_DARK = 12  # of 255: the first frame of a video that fades in
_FRAMES = 360  # of a video that are looked at for one that is not dark, and for one that is another picture
_BLACK = 24  # of 255: the lightest pixel of a black frame, which a codec does not keep exactly
_ONE_COLOUR = 8  # of 255: how much the pixels of one colour differ, for the same reason
_STILL = (64, 36)  # the size in which frames are compared: what moves is larger than a codec's noise
_MOVED = 6  # of 255: how much frames that show the same picture differ in that size
_SILENT = 0.001  # of full scale, -60 dB: a peak that nobody hears
_TURNED = 5  # and above: the EXIF orientations that exchange width and height


def main() -> None:
    """Answers every line of stdin."""
    with suppress(OSError):
        give_way()
    Image.MAX_IMAGE_PIXELS = _MOST_PIXELS // 2  # Pillow refuses twice as many
    for line in sys.stdin.buffer:
        request = json.loads(line)
        seen, jpeg = decode(request["path"], request["type"], hashed=request["hashed"])
        sys.stdout.buffer.write(json.dumps(seen | {"jpeg": len(jpeg)}).encode() + b"\n" + jpeg)
        sys.stdout.buffer.flush()


def decode(path: str, mime_type: str, *, hashed: bool) -> tuple[dict[str, Any], bytes]:
    """What is seen of a file, and a small JPEG of the image, or of a video's first frame that is not dark.

    Returns:
        `width` and `height`, in pixels as it is shown; `blank`: an image of one colour, or a video with black
        frames alone; `hash`: a perceptual hash as 16 hex digits, of an image that is not blank, if `hashed`;
        of a video also what `_watched` measures.
        An empty dict and no JPEG where the file cannot be shown.
    """
    try:
        seen: dict[str, Any]
        if mime_type.startswith("video/"):
            image, seen = _watched(path)  # those that begin with the same given frame are no duplicates
        else:
            image, (width, height) = _opened(path)
            extrema: Any = image.getextrema()  # a pair for each band
            blank = all(high - low <= _ONE_COLOUR for low, high in extrema)
            hash_ = perceptual_hash(image) if hashed and not blank else None
            seen = {"width": width, "height": height, "blank": blank, "hash": hash_}
        content = io.BytesIO()
        image.save(content, "JPEG", quality=_QUALITY)
        return seen, content.getvalue()
    except Exception:  # noqa: BLE001 - decoders raise anything for a damaged file
        return {}, b""


def perceptual_hash(image: Image.Image) -> str:
    """The perceptual hash of an image, as 16 hex digits; nearly equal images differ in few of its 64 bits.

    A bit says whether one of the 64 lowest frequencies of the image in grey, its cosine transform, is above
    their median. It is `imagehash.phash` bit for bit, whose hashes are in ledgers; that package needs SciPy,
    150 MB, for this transform alone.
    """
    import numpy as np  # here, because it takes 0.1 s to load

    grey = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.LANCZOS), dtype=float)
    waves = np.cos(np.pi / 64 * np.outer(range(8), range(1, 64, 2)))
    # Rounded, so that what is zero in a symmetric image is zero on every processor.
    low = np.round(waves @ grey @ waves.T, 6)
    return np.packbits(low > np.median(low)).tobytes().hex()


def _opened(path: str) -> tuple[Image.Image, tuple[int, int]]:
    """An image, small, without transparency and upright; and its size as it is shown."""
    image = Image.open(path)
    width, height = image.size
    image.draft("RGB", (2 * EDGE, 2 * EDGE))  # a JPEG is decoded at a fraction of its size
    image.thumbnail((EDGE, EDGE), Image.Resampling.BICUBIC, reducing_gap=2.0)
    if image.getexif().get(ExifTags.Base.Orientation, 1) >= _TURNED:
        width, height = height, width
    upright = ImageOps.exif_transpose(image)
    if upright.has_transparency_data:
        upright = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright)
    return upright.convert("RGB"), (width, height)


def _watched(path: str) -> tuple[Image.Image, dict[str, Any]]:
    """A video's first frame that is not dark, or the first; and what is seen and measured in one pass.

    All packets are read, and decoded are only as many as are needed: frames until one is not dark and one
    is another picture than the first, and sound until something is heard.

    Returns:
        Of what is measured: `duration` in seconds and `fps`; `has_sound`: whether anything can be heard;
        `silent`: it has a sound track, and nothing can be heard; `still`: all frames show the same picture.
        Where the file breaks off none of it is known.
    """
    import av

    pictures, sounds = _Pictures(), _Sounds()
    begin, end, count, is_whole = None, 0, 0, True
    with av.open(path) as opened:
        container: Any = opened  # its types are incomplete
        video, audio = container.streams.video[0], container.streams.audio[:1]
        video.thread_count = 1
        try:
            for packet in container.demux(video, *audio):
                if packet.stream.type == "audio":
                    if not sounds.heard:
                        sounds.hear(packet.decode())
                    continue
                if packet.pts is not None:
                    begin = packet.pts if begin is None else min(begin, packet.pts)
                    end, count = max(end, packet.pts + (packet.duration or 0)), count + 1
                if pictures.wants_more:
                    pictures.look(packet.decode())
        except (av.FFmpegError, ValueError):  # the second where its sound changes its form
            is_whole = False
        seconds = float((end - (begin or 0)) * video.time_base)
    if pictures.first is None:
        raise ValueError("a video without a frame")
    seen: dict[str, Any] = {
        "width": pictures.size[0],
        "height": pictures.size[1],
        "blank": pictures.black,
        "still": is_whole and pictures.frames == count and not (pictures.moved or pictures.black),
    }
    if is_whole and seconds > 0:
        seen |= {"duration": round(seconds, 3), "fps": round(count / seconds, 3)}
    if is_whole:
        seen |= {"has_sound": sounds.heard, "silent": bool(audio) and not sounds.heard}
    return pictures.bright or pictures.first, seen


class _Pictures:
    """What is seen of a video's frames, as far as they are looked at.

    Attributes:
        frames: how many.
        size: in pixels.
        first, bright: the first frame, and the first that is not dark, small.
        black: all are black.
        moved: one shows another picture than the first.
    """

    def __init__(self) -> None:
        self.frames = 0
        self.size = (0, 0)
        self.first: Image.Image | None = None
        self.bright: Image.Image | None = None
        self.black = True
        self.moved = False
        self._first_grey: Image.Image | None = None

    @property
    def wants_more(self) -> bool:
        """Whether another frame could say more."""
        return self.frames < _FRAMES and not (self.bright and self.moved)

    def look(self, frames: Any) -> None:
        """Looks at the next frames."""
        for frame in frames:
            self.frames += 1
            self.size = frame.width, frame.height
            scale = min(1, EDGE / max(self.size))
            width, height = (max(1, round(side * scale)) for side in self.size)
            image: Image.Image = frame.reformat(width, height, format="rgb24").to_image()
            self.first = self.first or image
            whole: Any = image.convert("L")
            self.black = self.black and whole.getextrema()[1] <= _BLACK
            if not self.bright and whole.resize((1, 1), Image.Resampling.BOX).tobytes()[0] > _DARK:
                self.bright, self.black = image, False
            grey = whole.resize(_STILL, Image.Resampling.BOX)
            self._first_grey = self._first_grey or grey
            difference: Any = ImageChops.difference(self._first_grey, grey).getextrema()
            self.moved = self.moved or difference[1] > _MOVED


class _Sounds:
    """Whether anything is heard in a video's sound track."""

    def __init__(self) -> None:
        import av

        self.heard = False
        self._as_floats: Any = av.AudioResampler(format="fltp")

    def hear(self, frames: Any) -> None:
        """Listens to the next frames."""
        for frame in frames:
            for samples in self._as_floats.resample(frame):
                for plane in samples.planes:
                    values = memoryview(plane).cast("B")[: 4 * samples.samples].cast("f")
                    self.heard = self.heard or max(values) > _SILENT or min(values) < -_SILENT


if __name__ == "__main__":
    main()
