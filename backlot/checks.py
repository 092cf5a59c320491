"""What a generation request must satisfy beyond its shape: the model's lists, the role rules, the images.

What is wrong is refused with 400 `invalid_parameter`, its name in `param` (INTERFACE 2.2-2.4, 7).
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
from backlot.accounts import Kind
from backlot.catalogue import Model
from backlot.errors import invalid
from backlot.media.recipe import Reference, size
from backlot.media.studio import in_worker, reduce

MAX_INLINE_BYTES = 10 * 2**20
DATA_URL = re.compile(r"data:(image/(?:png|jpeg|webp));base64,", re.IGNORECASE)

V = TypeVar("V", str, int)


@dataclass(frozen=True, slots=True)
class Terms:
    """A request with every default filled in, and its price. Sizes are in pixels, `duration` in seconds."""

    model: Model
    resolution: str
    width: int
    height: int
    format: Literal["png", "jpeg", "webp", "mp4"]
    duration: int
    sound: bool
    unit_price: Decimal
    quantity: int


def check(models: Mapping[str, Model], kind: Kind, request: wire.ImageRequest | wire.VideoRequest) -> Terms:
    """Hold a request against its model.

    Raises:
        Refused: 400 `invalid_parameter`.
    """
    model = models.get(request.model)
    if model is None:
        raise invalid(f"There is no model '{request.model}'.", "model")
    if model.type != kind:
        raise invalid(f"Model '{model.id}' makes {model.type}s; this endpoint makes {kind}s.", "model")
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
    """The value sent, which the model must list; the list's first entry when none was sent."""
    if name not in request.model_fields_set:
        return supported[0]
    if value not in supported:
        listed = ", ".join(map(str, supported))
        raise invalid(
            f"Model '{request.model}' does not support {name} '{value}'; it supports {listed}.", name
        )
    return value


def check_roles(model: Model, images: Sequence[wire.ImageReference]) -> None:
    """The role rules of INTERFACE 2.4 and the model's counts (INTERFACE 2.10)."""
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
    """A reference image as it will be used, and the hash that the safety check knows it by."""

    reference: Reference
    sha256: str


async def read_images(images: Sequence[wire.ImageReference]) -> list[InputImage]:
    """Decode inline images (in worker processes); take https URLs by name alone, for nothing is fetched.

    Raises:
        Refused: 400; `param` is `images[n].url`.
    """
    read = []
    for position, image in enumerate(images):
        param = f"images[{position}].url"
        if inline := DATA_URL.match(image.url):
            encoded = image.url[inline.end() :]
            if decoded_size(encoded) > MAX_INLINE_BYTES:
                raise invalid("An inline image holds at most 10 MiB decoded.", param)
            try:
                digest, data = await in_worker(decode, encoded, inline[1].lower())
            except ValueError as error:
                raise invalid(f"Not a usable inline image: {error}.", param) from None
            read.append(InputImage(Reference(image.role, "", data), digest))
        elif is_https(image.url):
            digest = hashlib.sha256(image.url.encode()).hexdigest()
            read.append(InputImage(Reference(image.role, image.url, b""), digest))
        else:
            raise invalid(
                "Expected an https URL, or data:<mime>;base64,<data> of image/png, image/jpeg, image/webp.",
                param,
            )
    return read


def decoded_size(encoded: str) -> int:
    """How many bytes base64 text stands for."""
    return len(encoded) // 4 * 3 - encoded[-2:].count("=")


def decode(encoded: str, mime_type: str) -> tuple[str, bytes]:
    """The SHA-256 of a base64 picture's bytes, in hex, and its reduced form. Runs in a worker.

    Raises:
        ValueError: it is not base64, or not a picture of that type.
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
