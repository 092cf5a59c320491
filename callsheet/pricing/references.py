"""Reference images: what a row's cells name -> the `images` of its request, and the bytes to inline.

A local or S3 image is read while planning, checked (INTERFACE 2.2, 8) and stands in the plan by its sha256;
`fill` puts its bytes into the request, and only if they are still the same. Public `https://` images are the
service's to fetch: nothing is asked over the network here, apart from S3.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio.to_thread

from callsheet.batches import sources
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
_CACHE_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reference:
    """An image that a row names: where it is, its role (None: not said), and the column that names it."""

    source: str
    role: str | None
    column: str


@dataclass(frozen=True, slots=True)
class Sent:
    """An image as the plan holds it.

    Attributes:
        url: what stands in the request: a URL, or `sha256:<hex>` for an image to inline.
        sha256: in hex, where it is to be inlined.
        grows: by how many bytes the request grows when the image is inlined.
    """

    url: str
    sha256: str | None = None
    grows: int = 0


def named(cells: Mapping[str, str | None]) -> list[Reference] | Reject:
    """The images that a row's four cells name, in the order of the request.

    Args:
        cells: `images` (a JSON list of {url, role}), then `first_frame`, `last_frame`, `reference_image` (one
            or more, separated by '|').
    """
    found: list[Reference] = []
    if text := cells["images"]:
        try:
            listed = json.loads(text)
            json.dumps(listed, ensure_ascii=False).encode()  # half a surrogate pair is JSON, and no text
        except ValueError as error:
            return Reject("images", text, f"is no JSON: {error}")
        except RecursionError:
            return Reject("images", text, "is nested too deeply")
        if not isinstance(listed, list):
            return Reject("images", text, 'is no JSON list of {"url": ..., "role": ...}')
        for each in listed:
            if not _is_reference(each):
                return Reject("images", json.dumps(each), 'is no {"url": "...", "role": "..."}')
            found.append(Reference(each["url"].strip(), each.get("role"), "images"))
    for role in ROLES:
        parts = (part.strip() for part in (cells[role] or "").split("|"))
        found += [Reference(part, role, role) for part in parts if part]
    return found


def _is_reference(each: Any) -> bool:
    return (
        isinstance(each, dict)
        and set(each) <= {"url", "role"}
        and isinstance(each.get("url"), str)
        and bool(each["url"].strip())
        and isinstance(each.get("role"), str | None)
    )


def look(source: str, endpoint_url: str | None = None) -> Sent | str:
    """What an image source stands for in a request, or why it cannot be sent. Reads local and S3 files.

    The caller keeps the answers, so that each distinct source is read once.
    """
    if source.startswith("https://"):
        return Sent(source) if _ADDRESS.fullmatch(source) else "is no https:// address without spaces"
    if source.startswith("data:"):
        return _data_url_problem(source) or Sent(source)
    if "://" in source and not source.startswith("s3://"):
        return "is no https:// or s3:// address, no data: URL and no local path"
    try:
        content = sources.read_file(source, LARGEST_IMAGE, endpoint_url)
    except InputError as error:
        return error.message
    mime_type = recognise_image(content)
    if mime_type is None:
        return "is no PNG, JPEG or WebP image"
    sha256 = hashlib.sha256(content).hexdigest()
    inlined = len(f"data:{mime_type};base64,") + 4 * -(-len(content) // 3)
    return Sent(_PLACEHOLDER + sha256, sha256, inlined - len(_PLACEHOLDER + sha256))


def _data_url_problem(url: str) -> str | None:
    match = _DATA_URL.fullmatch(url)
    if match is None:
        return "is no data URL of the form data:image/png;base64,... (or jpeg, webp)"
    try:
        content = base64.b64decode(match[2], validate=True)
    except binascii.Error as error:
        return f"is no data URL: {error}"
    if len(content) > LARGEST_IMAGE:
        return f"has {len(content):,} bytes; at most {LARGEST_IMAGE:,} are allowed"
    mime_type = recognise_image(content)
    return None if mime_type == match[1] else f"says {match[1]}, and its bytes are {mime_type or 'no image'}"


async def fill(job: Job, *, endpoint_url: str | None = None) -> dict[str, Any]:
    """The request's body exactly as it is sent: each `sha256:<hex>` replaced by the image as a data URL.

    Args:
        job: a job of the plan.
        endpoint_url: `storage.endpoint_url`, for images on S3.

    Raises:
        InputError: an image cannot be read, or is not the one that was priced.
    """
    body = dict(job.request)
    if not job.inlined:
        return body
    images = []
    for image in body["images"]:
        sha256 = image["url"].removeprefix(_PLACEHOLDER)
        if image["url"].startswith(_PLACEHOLDER) and sha256 in job.inlined:
            url = await anyio.to_thread.run_sync(_inlined.get, job, sha256, endpoint_url)
            images.append(image | {"url": url})
        else:
            images.append(image)
    return body | {"images": images}


class _Inlined:
    """The data URLs last used, by sha256, up to a number of bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._urls: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, job: Job, sha256: str, endpoint_url: str | None) -> str:
        with self._lock:
            if sha256 not in self._urls:
                self._urls[sha256] = _data_url(job, sha256, endpoint_url)
            self._urls.move_to_end(sha256)
            while len(self._urls) > 1 and sum(map(len, self._urls.values())) > self._most:
                self._urls.popitem(last=False)
            return self._urls[sha256]


_inlined = _Inlined(_CACHE_BYTES)


def _data_url(job: Job, sha256: str, endpoint_url: str | None) -> str:
    source = job.inlined[sha256]
    try:
        content = sources.read_file(source, LARGEST_IMAGE, endpoint_url)
    except InputError as error:
        raise InputError(f"row {job.row_id}: the image {source}: {error.message}") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(
            f"row {job.row_id}: the image {source} has changed since it was priced",
            hint="Run again: the plan is then made from the image as it is now.",
        )
    return f"data:{recognise_image(content)};base64,{base64.b64encode(content).decode()}"
