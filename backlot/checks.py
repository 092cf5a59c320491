"""Checks of a generation request that its schema cannot make: the model's lists, roles, images, safety.

Each refuses a wrong value with 400 `invalid_parameter`, with its name in `param` (INTERFACE 2.2-2.4, 7).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from backlot import wire
from backlot.catalogue import Model
from backlot.errors import Refused, invalid
from backlot.media.pictures import reduce
from backlot.media.recipe import Recipe, Reference, size
from backlot.settings import Safety

MAX_INLINE_BYTES = 10 * 2**20
DATA_URL = re.compile(r"data:(image/(?:png|jpeg|webp));base64,", re.IGNORECASE)
HTTPS_URL = re.compile(r"https://[^\s/?#]\S*", re.IGNORECASE)

V = TypeVar("V", str, int)


def check(model: Model, request: wire.ImageRequest | wire.VideoRequest, seed: int) -> tuple[Recipe, str]:
    """A request with every default of its model, as a recipe without reference images; and its resolution."""
    ratio = choose(request, "aspect_ratio", request.aspect_ratio, model.supported_aspect_ratios)
    resolution = choose(request, "resolution", request.resolution, model.supported_resolutions)
    check_roles(model, request.images)
    width, height = size(ratio, resolution)
    if isinstance(request, wire.ImageRequest):
        return Recipe(model.id, request.prompt, width, height, request.output_format, seed), resolution
    if request.sound and not model.supports_sound:
        raise invalid(f"Model '{model.id}' has no sound.", "sound")
    duration = choose(request, "duration", request.duration, model.supported_durations)
    return Recipe(model.id, request.prompt, width, height, "mp4", seed, duration, request.sound), resolution


def choose(request: wire.GenerationRequest, name: str, value: V, supported: Sequence[V]) -> V:
    """The value of the request, which the model must list; without one, the list's first entry."""
    if name not in request.model_fields_set:
        return supported[0]
    if value not in supported:
        listed = ", ".join(map(str, supported))
        message = f"Model '{request.model}' does not support {name} '{value}'; it supports {listed}."
        raise invalid(message, name)
    return value


def check_roles(model: Model, images: Sequence[wire.ImageReference]) -> None:
    """Checks the role rules of INTERFACE 2.4, and the model's number of images per role (INTERFACE 2.10)."""
    for position, image in enumerate(images):
        if image.role not in model.supported_references:
            raise invalid(f"Model '{model.id}' takes no {image.role} images.", f"images[{position}].role")
    counts = Counter(image.role for image in images)
    for role, count in counts.items():
        if count > (limit := model.supported_references[role]):
            message = f"Model '{model.id}' takes at most {limit} {role} images; there are {count}."
            raise invalid(message, "images")
    if counts["last_frame"] and not counts["first_frame"]:
        raise invalid("A last_frame needs a first_frame.", "images")
    if counts["reference_image"] and (counts["first_frame"] or counts["last_frame"]):
        raise invalid("A reference_image cannot be combined with first_frame or last_frame.", "images")


async def read_images(images: Sequence[wire.ImageReference], *, whole: bool) -> list[tuple[str, Reference]]:
    """The reference images, each with its SHA-256 in hex. Inline ones are decoded in threads.

    They are made small, or left `whole`. An https URL is not fetched; its text is used.
    """
    references = []
    for position, image in enumerate(images):
        param = f"images[{position}].url"
        if inline := DATA_URL.match(image.url):
            encoded = image.url[inline.end() :]
            if len(encoded) // 4 * 3 - encoded[-2:].count("=") > MAX_INLINE_BYTES:
                raise invalid("An inline image has at most 10 MiB after decoding.", param)
            try:
                digest, data, small = await asyncio.to_thread(decode, encoded, inline[1].lower())
            except ValueError as error:
                raise invalid(f"Not a usable inline image: {error}.", param) from None
            reference = Reference(image.role, "", data if whole else small)
        elif HTTPS_URL.fullmatch(image.url):
            digest = hashlib.sha256(image.url.encode()).hexdigest()
            reference = Reference(image.role, image.url, b"")
        else:
            expected = "data:<mime>;base64,<data> of image/png, image/jpeg, image/webp"
            raise invalid(f"Expected an https URL, or {expected}.", param)
        references.append((digest, reference))
    return references


def decode(encoded: str, mime_type: str) -> tuple[str, bytes, bytes]:
    """The SHA-256 of an inline image's bytes, in hex, these bytes, and the image made small.

    Raises:
        ValueError: it is not base64, or not an image of that type.
    """
    data = base64.b64decode(encoded, validate=True)
    return hashlib.sha256(data).hexdigest(), data, reduce(data, mime_type)


def check_safety(rules: Safety, prompt: str, image_hashes: Iterable[str]) -> None:
    """Refuses a prompt or reference image that fails the safety check.

    Raises:
        Refused: 422 `content_policy_violation`; `param` is `prompt` or `images[n].url`.
    """
    if has_word(prompt, rules.words):
        raise Refused("content_policy_violation", "The prompt does not pass the safety check.", "prompt")
    for position, digest in enumerate(image_hashes):
        if digest in rules.images:
            message = "A reference image does not pass the safety check."
            raise Refused("content_policy_violation", message, f"images[{position}].url")


def has_word(prompt: str, words: Iterable[str]) -> bool:
    """Whether a prompt has one of the words: as a whole word, in any case."""
    matches = (re.search(rf"(?<!\w){re.escape(word)}(?!\w)", prompt, re.IGNORECASE) for word in words)
    return any(matches)
