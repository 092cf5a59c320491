"""Checks of a generation request that its schema cannot make: the model's lists, the roles, the images.

A wrong value is refused with 400 `invalid_parameter`, with its name in `param` (INTERFACE 2.2-2.4, 7).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from backlot import wire
from backlot.accounts import ModelType
from backlot.catalogue import Model
from backlot.errors import invalid
from backlot.media.recipe import Reference, size
from backlot.media.workers import in_worker, reduce

MAX_INLINE_BYTES = 10 * 2**20
DATA_URL = re.compile(r"data:(image/(?:png|jpeg|webp));base64,", re.IGNORECASE)

V = TypeVar("V", str, int)


@dataclass(frozen=True, slots=True)
class Terms:
    """A request with every default filled in, and its price. Sizes in pixels, `duration` in seconds."""

    model: Model
    resolution: str
    width: int
    height: int
    format: Literal["png", "jpeg", "webp", "mp4"]
    duration: int
    sound: bool
    unit_price: Decimal
    quantity: int


def check(
    models: Mapping[str, Model], model_type: ModelType, request: wire.ImageRequest | wire.VideoRequest
) -> Terms:
    """Checks a request against its model.

    Raises:
        Refused: 400 `invalid_parameter`.
    """
    model = models.get(request.model)
    if model is None:
        raise invalid(f"There is no model '{request.model}'.", "model")
    if model.type != model_type:
        raise invalid(f"Model '{model.id}' makes {model.type}s; this endpoint makes {model_type}s.", "model")
    ratio = choose(request, "aspect_ratio", request.aspect_ratio, model.supported_aspect_ratios)
    resolution = choose(request, "resolution", request.resolution, model.supported_resolutions)
    width, height = size(ratio, resolution)
    check_roles(model, request.images)
    if isinstance(request, wire.ImageRequest):
        price = model.unit_price(resolution, sound=False)
        return Terms(model, resolution, width, height, request.output_format, 0, False, price, 1)
    duration = choose(request, "duration", request.duration, model.supported_durations)
    if request.sound and not model.supports_sound:
        raise invalid(f"Model '{model.id}' has no sound.", "sound")
    price = model.unit_price(resolution, sound=request.sound)
    return Terms(model, resolution, width, height, "mp4", duration, request.sound, price, duration)


def choose(request: wire.GenerationRequest, name: str, value: V, supported: Sequence[V]) -> V:
    """The value of the request, which the model must list; without one, the list's first entry.

    Raises:
        Refused: 400 `invalid_parameter`.
    """
    if name not in request.model_fields_set:
        return supported[0]
    if value not in supported:
        listed = ", ".join(map(str, supported))
        raise invalid(
            f"Model '{request.model}' does not support {name} '{value}'; it supports {listed}.", name
        )
    return value


def check_roles(model: Model, images: Sequence[wire.ImageReference]) -> None:
    """Checks the role rules of INTERFACE 2.4, and the model's number of images per role (INTERFACE 2.10).

    Raises:
        Refused: 400 `invalid_parameter`.
    """
    for position, image in enumerate(images):
        if image.role not in model.supported_references:
            raise invalid(f"Model '{model.id}' takes no {image.role} images.", f"images[{position}].role")
    counts = Counter(image.role for image in images)
    for role, count in counts.items():
        if count > (most := model.supported_references[role]):
            raise invalid(
                f"Model '{model.id}' takes at most {most} {role} images; there are {count}.", "images"
            )
    if counts["last_frame"] and not counts["first_frame"]:
        raise invalid("A last_frame needs a first_frame.", "images")
    if counts["reference_image"] and (counts["first_frame"] or counts["last_frame"]):
        raise invalid("A reference_image cannot be combined with first_frame or last_frame.", "images")


@dataclass(frozen=True, slots=True)
class InputImage:
    """A reference image as it will be used, and the hash that the safety check compares."""

    reference: Reference
    sha256: str


async def read_images(images: Sequence[wire.ImageReference]) -> list[InputImage]:
    """Decodes inline images in worker processes. An https URL is not fetched; its text is used.

    Raises:
        Refused: 400; `param` is `images[n].url`.
    """
    inputs = []
    for position, image in enumerate(images):
        param = f"images[{position}].url"
        if inline := DATA_URL.match(image.url):
            encoded = image.url[inline.end() :]
            if decoded_size(encoded) > MAX_INLINE_BYTES:
                raise invalid("An inline image has at most 10 MiB after decoding.", param)
            try:
                digest, data = await in_worker(decode, encoded, inline[1].lower())
            except ValueError as error:
                raise invalid(f"Not a usable inline image: {error}.", param) from None
            inputs.append(InputImage(Reference(image.role, "", data), digest))
        elif is_https(image.url):
            digest = hashlib.sha256(image.url.encode()).hexdigest()
            inputs.append(InputImage(Reference(image.role, image.url, b""), digest))
        else:
            raise invalid(
                "Expected an https URL, or data:<mime>;base64,<data> of image/png, image/jpeg, image/webp.",
                param,
            )
    return inputs


def decoded_size(encoded: str) -> int:
    """The number of bytes that base64 text decodes to."""
    return len(encoded) // 4 * 3 - encoded[-2:].count("=")


def decode(encoded: str, mime_type: str) -> tuple[str, bytes]:
    """The SHA-256 of an inline image's bytes, in hex, and the image made small. Runs in a worker.

    Raises:
        ValueError: it is not base64, or not an image of that type.
    """
    data = base64.b64decode(encoded, validate=True)
    return hashlib.sha256(data).hexdigest(), reduce(data, mime_type)


def is_https(url: str) -> bool:
    """Whether the text is an absolute https URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and bool(parts.hostname) and not re.search(r"\s", url)
    except ValueError:
        return False
