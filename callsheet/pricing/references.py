"""Reference images: the images that a row's cells name, checked and put into the request (INTERFACE 2.2, 8).

A local or S3 image is read while planning; the plan has its sha256 in place of its bytes. When the request is
sent, `fill` puts the bytes in, if they are still the same. The service itself fetches public `https://`
images: of the network, only S3 is used here.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from callsheet.batches import formats
from callsheet.errors import InputError
from callsheet.media_types import recognise_image
from callsheet.pricing.rates import ROLES, Reject
from callsheet.records import Job

LARGEST_IMAGE = 10 * 1024 * 1024
"""Bytes of one image once decoded (INTERFACE 2.2)."""

LARGEST_REQUEST = 25 * 1024 * 1024
"""Bytes of the whole JSON request (INTERFACE 2.2)."""

_DATA_URL = re.compile(r"data:(image/(?:png|jpeg|webp));base64,([A-Za-z0-9+/]*={0,2})", re.ASCII)
_ADDRESS = re.compile(r"https://[^\s/?#]\S*")
_PLACEHOLDER = "sha256:"


class _Listed(BaseModel):
    """An image of the column `images`."""

    model_config = ConfigDict(extra="forbid", strict=True, str_strip_whitespace=True)

    url: Annotated[str, Field(min_length=1)]
    role: str | None = None


_LIST = TypeAdapter(list[_Listed | Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]])


@dataclass(frozen=True, slots=True)
class Reference:
    """An image that a row names: where it is, its role (None: not given), and the column that names it."""

    source: str
    role: str | None
    column: str


@dataclass(frozen=True, slots=True)
class RequestImage:
    """An image as the plan's request has it: a URL that the service fetches, a data URL, or `sha256:<hex>`.

    That last one is inlined later, by which the request grows by so many bytes; it is read at `place`, a path
    or an `s3://` URL.
    """

    url: str
    sha256: str | None = None
    added_bytes: int = 0
    place: str = ""


def parse_references(cells: Mapping[str, str | None]) -> list[Reference] | Reject:
    """The images that a row's four cells name, in the order of the request: `images` (a JSON list of
    {url, role} or of addresses), then `first_frame`, `last_frame`, `reference_image` (one or more, separated
    by '|').
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
        sources_of_role = (source.strip() for source in (cells[role] or "").split("|"))
        listed += [Reference(source, role, role) for source in sources_of_role if source]
    return listed


def examine(source: str, file: str = "", endpoint_url: str | None = None) -> RequestImage | str:
    """An image source as the request has it, or why it cannot be sent. Reads local and S3 files.

    It is a path, or an `https://`, `s3://` or `data:` URL. A relative path is looked for beside `file`, the
    batch file that names it, then in the working directory.
    """
    if source.startswith("https://"):
        is_address = _ADDRESS.fullmatch(source)
        return RequestImage(source) if is_address else "is not an https:// address without spaces"
    if source.startswith("data:"):
        return _data_url_problem(source) or RequestImage(source)
    if "://" in source and not source.startswith("s3://"):
        return "is not an https:// or s3:// address, a data: URL or a local path"
    places, problem = dict.fromkeys((_beside(source, file), source)), ""
    for place in places:
        try:
            content = formats.read_file(place, LARGEST_IMAGE, endpoint_url)
            break
        except InputError as error:
            problem = problem or error.message
    else:
        return problem if len(places) == 1 else f"{problem}; tried {' and '.join(places)}"
    mime_type = recognise_image(content)
    if mime_type is None:
        return "is not a PNG, JPEG or WebP image"
    sha256 = hashlib.sha256(content).hexdigest()
    inlined = len(f"data:{mime_type};base64,") + 4 * -(-len(content) // 3)
    return RequestImage(_PLACEHOLDER + sha256, sha256, inlined - len(_PLACEHOLDER + sha256), place)


def _beside(source: str, file: str) -> str:
    """A relative path in the folder of a batch file; another place stays as it is."""
    folder = file.rpartition("/")[0]
    is_relative = folder and "://" not in source and not source.startswith(("/", "~"))
    return f"{folder}/{source}" if is_relative else source


def _data_url_problem(url: str) -> str | None:
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
    return None


async def fill(job: Job, *, endpoint_url: str | None = None) -> dict[str, Any]:
    """The request's body exactly as it is sent: each `sha256:<hex>` is replaced by the image as a data URL.

    Raises:
        InputError: an image cannot be read, or is not the one that was priced.
    """
    body = dict(job.request)
    if job.inlined:
        body["images"] = await asyncio.to_thread(_filled_images, job, endpoint_url)
    return body


def _filled_images(job: Job, endpoint_url: str | None) -> list[dict[str, Any]]:
    images = []
    for image in job.request["images"]:
        sha256 = image["url"].removeprefix(_PLACEHOLDER)
        source = job.inlined.get(sha256)
        try:
            images.append(image | {"url": _data_url(source, sha256, endpoint_url)} if source else image)
        except InputError as error:
            message = f"row {job.row_id}: the image {source}: {error.message}"
            raise InputError(message, hint=error.hint) from None
    return images


@lru_cache(maxsize=16)  # many rows of a batch may have the same image; each has 14 MB at most
def _data_url(source: str, sha256: str, endpoint_url: str | None) -> str:
    """The data URL of an image that was read while planning.

    Raises:
        InputError: it cannot be read, or has changed.
    """
    content = formats.read_file(source, LARGEST_IMAGE, endpoint_url)
    if hashlib.sha256(content).hexdigest() != sha256:
        hint = "Run again: the new plan uses the image as it is now."
        raise InputError("has changed since it was priced", hint=hint)
    return f"data:{recognise_image(content)};base64,{base64.b64encode(content).decode()}"
