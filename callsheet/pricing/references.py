"""Reference images: the images that a row's cells name, checked and put into the request (INTERFACE 2.2, 8).

A local or S3 image is read while planning; the plan has its sha256 in place of its bytes. When the request is
sent, `fill` puts the bytes in, if they are still the same. The service itself fetches public `https://`
images: of the network, only S3 is used here.

An image that is sent as it is gets decoded before, so that nobody pays for half a copy. Some images are made
to be sent: a JPEG of one that the service does not take, a video's last frame. What was made, and which
images are whole, is kept in the batch's work folder, named after the SHA-256 of the file, so that it is done
once. The file is never changed, and a job is told from others by that SHA-256: what another version of a
decoder makes of the same file is the same job.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import io
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from callsheet.batches import formats
from callsheet.config.settings import BatchSettings
from callsheet.errors import InputError, TooLarge
from callsheet.files import PartialFile, open_regular, with_home
from callsheet.media_types import in_words, is_whole, recognise_image
from callsheet.pricing.parameters import ROLES, Reject
from callsheet.records import Job
from callsheet.storage.spool import work_folder

LARGEST_IMAGE = 10 * 1024 * 1024
"""Bytes of one image once decoded (INTERFACE 2.2)."""

LARGEST_ORIGINAL = 512 * 1024 * 1024
"""Bytes of an image of which a smaller one is made."""

LAST_FRAME = "#last_frame"
"""After the name of a video: its last frame, as an image."""

LARGEST_REQUEST = 25 * 1024 * 1024
"""Bytes of the whole JSON request (INTERFACE 2.2)."""

_DATA_URL = re.compile(r"data:(image/(?:png|jpeg|webp));base64,([A-Za-z0-9+/]*={0,2})", re.ASCII)
_ADDRESS = re.compile(r"https://[^\s/?#]\S*")
_KEPT_FILE = re.compile(r"(?!\w+://)(?P<config>.+?\.ya?ml)#(?P<row>.+)", re.DOTALL)
_PLACEHOLDER = "sha256:"
_LONG_SIDE = 4096  # pixels of the longer side of a JPEG that is made, at most
_BLOCK = 4096  # bytes that a system writes at once
_QUALITIES = (92, 85, 75, 60)  # that are tried; after them half the pixels of each side


class _Listed(BaseModel):
    """An image of the column `images`."""

    model_config = ConfigDict(extra="forbid", strict=True, str_strip_whitespace=True)

    url: Annotated[str, Field(min_length=1)]
    role: str | None = None


_LIST = TypeAdapter(list[_Listed | Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]])
_TEXTS = TypeAdapter(list[str])


@dataclass(frozen=True, slots=True)
class Reference:
    """An image that a row names: where it is, its role (None: not given), and the column that names it."""

    source: str
    role: str | None
    column: str


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a kept file: the config of its batch as it is written, and its row, maybe with a sample."""

    config: str
    row: str


def parse_name(text: str) -> FileName | None:
    """A name such as `cast.yaml#nova/2`; None where the text is none."""
    match = _KEPT_FILE.fullmatch(text.removesuffix(LAST_FRAME))
    return FileName(match["config"], match["row"]) if match else None


@dataclass(frozen=True, slots=True)
class RequestImage:
    """An image as the plan's request has it: a URL that the service fetches, a data URL, or `sha256:<hex>`.

    That last one is inlined later, by which the request grows by so many bytes; it is read at `place`, a path
    or an `s3://` URL. `is_fitted`: a JPEG is sent in its place. `size`: in pixels, `1820x1024`, where it is
    wanted.
    """

    url: str
    sha256: str | None = None
    added_bytes: int = 0
    place: str = ""
    is_fitted: bool = False
    size: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """How images are read: from which S3 server, whether one that the service does not take is made to fit,
    and the folder in which images that were made are kept (None: they are made each time). `sizes`: whether
    their sizes are wanted.
    """

    endpoint_url: str | None = None
    fit: bool = False
    folder: Path | None = None
    sizes: bool = False


def reading_of(settings: BatchSettings) -> Reading:
    """How the images of a batch are read."""
    folder = work_folder(settings, make=False) / "images"
    return Reading(settings.storage.endpoint_url, settings.input.fit, folder, _have_own_ratio(settings))


def _have_own_ratio(settings: BatchSettings) -> bool:
    """Whether the rows are images whose aspect ratios are asked for: the config says nothing else of them."""
    config = settings.input
    is_of_images = config.path is not None and not batch_file(settings)
    return is_of_images and "aspect_ratio" not in config.configured


def batch_file(settings: BatchSettings) -> str:
    """The batch file, beside which images are looked for; empty where there is none."""
    path = settings.input.path
    return path if path and formats.is_batch_file(path) else ""


def parse_references(cells: Mapping[str, str | None]) -> list[Reference] | Reject:
    """The images that a row's four cells name, in the order of the request: `images` (a JSON list of
    {url, role} or of addresses), then `first_frame`, `last_frame`, `reference_image` (one or more, separated
    by '|', each of which may be a JSON list).
    """
    text = cells["images"] or "[]"
    try:
        items = [_Listed(url=item) if isinstance(item, str) else item for item in _LIST.validate_json(text)]
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        expected = 'expected [{"url": "...", "role": "..."}], or a list of addresses'
        return Reject("images", text, f"is not a JSON list of images ({reason}); {expected}")
    listed = [Reference(item.url, item.role, "images") for item in items]
    for role in ROLES:
        for source in map(str.strip, (cells[role] or "").split("|")):
            sources = [source] if source else []
            with suppress(ValidationError):
                sources = _TEXTS.validate_json(source) if source.startswith("[") else sources
            listed += [Reference(inner, role, role) for inner in sources]
    return listed


def examine(source: str, file: str = "", reading: Reading = Reading()) -> RequestImage | str:
    """An image source as the request has it, or why it cannot be sent. Reads local and S3 files.

    It is a path, or an `https://`, `s3://` or `data:` URL. A relative path is looked for beside `file`, the
    batch file that names it, then in the working directory. A video's name with `LAST_FRAME` is that image.
    """
    if source.startswith("https://"):
        return _address_problem(source) or RequestImage(source)
    if source.startswith("data:"):
        return _data_url_problem(source, reading) or RequestImage(source)
    if problem := _no_place(source):
        return problem
    places, problem = dict.fromkeys((beside(source, file), source)), ""
    for place in places:
        try:
            content, sha256, is_fitted = _read(place, reading)
            if not (is_fitted or place.endswith(LAST_FRAME)):
                _check_whole(content, sha256, reading)
            break
        except _Unfit as error:
            return error.message
        except InputError as error:
            problem = problem or error.message
    else:
        return problem if len(places) == 1 else f"{problem}; tried {' and '.join(places)}"
    inlined = len(f"data:{recognise_image(content)};base64,") + 4 * -(-len(content) // 3)
    placeholder = _PLACEHOLDER + sha256
    size = _size(content) if reading.sizes else None
    return RequestImage(placeholder, sha256, inlined - len(placeholder), place, is_fitted, size)


def _size(content: bytes) -> str | None:
    """An image's size in pixels as it is shown: a camera may have turned it. None where it cannot be told."""
    from PIL import ExifTags, Image

    with suppress(Exception), Image.open(io.BytesIO(content)) as image:  # decoders raise anything
        is_turned = image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
        width, height = reversed(image.size) if is_turned else image.size
        return f"{width}x{height}"
    return None


class _Unfit(InputError):
    """A file that is there, and that the service does not take."""


_UNFIT = {
    "a HEIC image": "is a HEIC image, which the service does not take, and which is not read here: save it "
    "as JPEG",
    "a video": f"is a video, and no image; its last frame is one, by its name with {LAST_FRAME}",
    None: "is not a PNG, JPEG or WebP image",
}
"""Why no JPEG is made of a file, by what it is."""


def _read(place: str, reading: Reading) -> tuple[bytes, str, bool]:
    """An image as it is sent, the sha256 of its file, or of the one that it is made of, and whether that is
    made to fit.

    Raises:
        InputError: it cannot be read, or is none that the service takes.
    """
    if place.endswith(LAST_FRAME):
        return *_last_frame(place.removesuffix(LAST_FRAME), reading), False
    limit = LARGEST_ORIGINAL if reading.fit else LARGEST_IMAGE
    try:
        content = formats.read_file(place, limit, reading.endpoint_url)
    except TooLarge as error:
        advice = "" if reading.fit else "; with input.fit: true a smaller JPEG of it is sent"
        raise TooLarge(f"{error.message}{advice}") from None
    sha256 = hashlib.sha256(content).hexdigest()
    if recognise_image(content) and len(content) <= LARGEST_IMAGE:
        return content, sha256, False
    kind = in_words(content[:16])
    if problem := _UNFIT.get(kind):
        raise _Unfit(problem)
    if not reading.fit:
        raise _Unfit(f"is {kind}, which the service does not take; with input.fit: true a JPEG is sent")
    return _cached(f"{sha256}.jpeg", partial(jpeg, content), reading), sha256, True


def _last_frame(place: str, reading: Reading) -> tuple[bytes, str]:
    """A video's last frame as an image, and the sha256 of the video.

    Raises:
        InputError: the video cannot be read.
    """
    with formats.local_copy(place, reading.endpoint_url) as path:
        try:
            local = Path(with_home(str(path)))
            with open_regular(local) as video:
                sha256 = hashlib.file_digest(video, "sha256").hexdigest()
        except FileNotFoundError:
            raise InputError("there is no such file") from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise InputError(f"is not a file name: {error}") from None
        return _cached(f"{sha256}.last_frame", partial(_frame, local), reading), sha256


def beside(source: str, file: str) -> str:
    """A relative path in the folder of a batch file; another place stays as it is."""
    folder = file.rpartition("/")[0]
    is_relative = folder and "://" not in source and not source.startswith(("/", "~"))
    return f"{folder}/{source}" if is_relative else source


def _no_place(source: str) -> str:
    """Why a source is neither a path nor an S3 URL; empty where it may be one."""
    if "://" in source and not source.startswith("s3://"):
        return "is not an https:// or s3:// address, a data: URL or a local path"
    # Of the others, `cast.py` has made a place.
    return "is a kept file, which only a cell or a default names" if parse_name(source) else ""


def _address_problem(url: str) -> str | None:
    if url.endswith(LAST_FRAME):
        return "is a video of which the last frame cannot be read: it is neither local nor on S3"
    return None if _ADDRESS.fullmatch(url) else "is not an https:// address without spaces"


def _data_url_problem(url: str, reading: Reading) -> str | None:
    match = _DATA_URL.fullmatch(url)
    if match is None:
        return "is not a data URL; expected data:image/png;base64,... (or jpeg, webp)"
    try:
        content = base64.b64decode(match[2], validate=True)
    except binascii.Error as error:
        return f"is not a data URL: {error}"
    if len(content) > LARGEST_IMAGE:
        return f"has {len(content):,} bytes; at most {LARGEST_IMAGE:,} are allowed"
    if (mime_type := recognise_image(content)) != match[1]:
        return f"says {match[1]}, but its bytes are {mime_type or 'not an image'}"
    try:
        _check_whole(content, hashlib.sha256(content).hexdigest(), reading)
    except _Unfit as error:
        return error.message
    return None


async def fill(job: Job, *, reading: Reading = Reading()) -> dict[str, Any]:
    """The request's body exactly as it is sent: each `sha256:<hex>` is replaced by the image as a data URL.

    Raises:
        InputError: an image cannot be read, or is not the one that was priced.
    """
    if not job.inlined:
        return dict(job.request)
    images = await asyncio.to_thread(
        lambda: [_filled(image, job, reading) for image in job.request["images"]]
    )
    return {**job.request, "images": images}


def _filled(image: dict[str, Any], job: Job, reading: Reading) -> dict[str, Any]:
    sha256 = image["url"].removeprefix(_PLACEHOLDER)
    if (source := job.inlined.get(sha256)) is None:
        return image
    try:
        return image | {"url": _data_url(source, sha256, reading)}
    except InputError as error:
        message = f"row {job.row_id}: the image {source}: {error.message}"
        raise InputError(message, hint=error.hint) from None


@lru_cache(maxsize=16)  # many rows of a batch may have the same image; each has 14 MB at most
def _data_url(source: str, sha256: str, reading: Reading) -> str:
    """The data URL of an image that was read while planning.

    Raises:
        InputError: it cannot be read, or has changed.
    """
    content = read_as_sent(source, sha256, reading)
    return f"data:{recognise_image(content)};base64,{base64.b64encode(content).decode()}"


def read_as_sent(place: str, sha256: str, reading: Reading) -> bytes:
    """An image that was read while planning, as it is sent.

    Raises:
        InputError: it cannot be read, or has changed.
    """
    content, current_sha256, _ = _read(place, reading)
    if current_sha256 != sha256:
        hint = "Run again: the new plan uses the image as it is now."
        raise InputError("has changed since it was priced", hint=hint)
    return content


# ---- images that are made, or are to be whole


def _check_whole(content: bytes, sha256: str, reading: Reading) -> None:
    """Makes sure that an image was not cut off or damaged, unless that is known of these bytes.

    Raises:
        InputError: it was.
    """
    _cached(f"{sha256}.whole", partial(_decoded, content), reading)


def _decoded(content: bytes) -> bytes:
    """No bytes, once an image is decoded to its end: there is nothing to keep of it but that it is whole."""
    from PIL import Image

    kind = in_words(content[:16])
    if not is_whole(io.BytesIO(content)) or _ends_in_zeros(content):
        raise _Unfit(f"is {kind} without its end: copy it again")
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.draft("RGB", (1, 1))  # a JPEG is decoded at an eighth of its size
            image.load()
    except Image.DecompressionBombError:  # too large to be decoded here
        pass
    except Exception:  # noqa: BLE001 - decoders raise anything for a damaged file
        raise _Unfit(f"is {kind} that is damaged: copy it again") from None
    return b""


def _ends_in_zeros(content: bytes) -> bool:
    """Whether whole blocks of zeros are the end of a WebP: a copy that was broken off. Its decoder takes
    zeros for pixels, and a flat image may end with some, though hardly from the beginning of a block on.
    """
    end = len(content.rstrip(b"\0"))
    return content.startswith(b"RIFF") and len(content) - end >= _BLOCK and end % _BLOCK == 0


def fitted_in_words(count: int) -> str:
    """What a person should know where so many images are sent as JPEGs."""
    images = "1 image is sent as a JPEG" if count == 1 else f"{count:,} images are sent as JPEGs"
    limits = f"{_LONG_SIDE:,} pixels on the longer side, and quality {_QUALITIES[0]}"
    return f"{images}, as input.fit says: at most {limits}"


def _cached(name: str, make: Callable[[], bytes], reading: Reading) -> bytes:
    """What `make` makes, kept under this name where there is a folder."""
    path = reading.folder and reading.folder / name
    if path:
        with suppress(OSError):
            return path.read_bytes()
    content = make()
    if path:
        with suppress(OSError), PartialFile(path) as file:  # it can be made again
            file.file.write(content)
            file.commit()
    return content


def jpeg(content: bytes) -> bytes:
    """An image as a JPEG that is not too large: upright, in RGB, and without transparency."""
    from PIL import Image, ImageOps

    try:
        image: Any = Image.open(io.BytesIO(content))
        image.draft("RGB", (_LONG_SIDE, _LONG_SIDE))  # a JPEG is decoded at a fraction of its size
        image = _in_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # noqa: BLE001 - decoders raise anything for a damaged file
        kind = in_words(content[:16]) or "no image"
        raise _Unfit(f"is {kind} that cannot be read: {error}") from None
    side, profile = _LONG_SIDE, image.info.get("icc_profile")
    while True:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        for quality in _QUALITIES:
            encoded = io.BytesIO()
            image.save(encoded, "JPEG", quality=quality, icc_profile=profile)
            if encoded.tell() <= LARGEST_IMAGE:
                return encoded.getvalue()
        side = max(image.size) // 2


def _in_rgb(image: Any) -> Any:
    """An image in RGB on white; one with 16 bits for each pixel keeps the upper ones."""
    from PIL import Image

    if image.mode.startswith("I"):
        return image.point(lambda value: value / 256).convert("L").convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    if image.mode != "RGB":
        profile = image.info.pop("icc_profile", None) if image.mode in ("RGBA", "P") else None
        image.info.pop("icc_profile", None)  # one of another kind of colours
        image = image.convert("RGB")
        image.info |= {"icc_profile": profile} if profile else {}
    return image


def _frame(path: Path) -> bytes:
    """The last frame of a video as a PNG, or as a JPEG where that is too large."""
    import av

    last: Any = None
    try:
        with av.open(str(path)) as opened:
            video: Any = opened  # its types are incomplete
            for last in video.decode(video=0):  # noqa: B007 - the one that is left at the end
                pass
        image = last.to_image()
    except Exception as error:  # noqa: BLE001 - decoders raise anything for a damaged file
        raise _Unfit(f"its last frame cannot be read: {error}") from None
    encoded = io.BytesIO()
    image.save(encoded, "PNG")
    return encoded.getvalue() if encoded.tell() <= LARGEST_IMAGE else jpeg(encoded.getvalue())
