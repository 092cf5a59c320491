"""What a model takes: the parameters of a request with all defaults filled in, or why it cannot be bought.

It rejects what the service would answer with 400 because of the model (INTERFACE 2.2 to 2.4, 4.4). Pure: no
files, no network, no clock, and no prices.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callsheet.cells import BY_MODEL, as_text
from callsheet.plain_text import and_more
from callsheet.records import ModelType
from callsheet.service.models import Catalogue, Model

OUTPUT_FORMATS = ("jpeg", "png", "webp")
"""INTERFACE 2.3; the first is the default."""

REFERENCE = "reference_image"
FIRST_FRAME = "first_frame"
ROLES = (FIRST_FRAME, "last_frame", REFERENCE)
MOST_IMAGES = 20
"""INTERFACE 8: images in a request."""

_PIXELS = re.compile(r"\s*(\d{2,5})\s*[x*\u00d7]\s*(\d{2,5})\s*", re.IGNORECASE)
_RATIO = re.compile(r"\s*(\d+(?:\.\d+)?)\s*[:x/*\u00d7-]\s*(\d+(?:\.\d+)?)\s*", re.IGNORECASE)
_RESOLUTION = re.compile(r"(\d+(?:\.\d+)?)([pK])", re.IGNORECASE)
_NEAR = 1.3  # times the side of a resolution
CLOSE = 1.03
"""How many times a ratio may be another one and still be taken for it: the pixels of a ratio are rounded."""

_WORDS = {
    **dict.fromkeys(("landscape", "horizontal", "wide", "widescreen"), "16:9"),
    **dict.fromkeys(("portrait", "vertical", "tall"), "9:16"),
    "square": "1:1",
}


@dataclass(frozen=True, slots=True)
class Combination:
    """What a row asks for, apart from its prompt. None: the row does not say.

    Attributes:
        duration: seconds.
        images: role and column of each image, in the order of the request; the role is None if not given.
    """

    model: str
    aspect_ratio: str | None = None
    resolution: str | None = None
    output_format: str | None = None
    duration: int | None = None
    sound: bool | None = None
    images: tuple[tuple[str | None, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Reject:
    """Why a row cannot be bought: the wrong column, its value, and the reason."""

    column: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """What will be sent besides the prompt and the images, with all defaults filled in."""

    type: ModelType
    parameters: Mapping[str, str | int | bool]


_SETTINGS = ("aspect_ratio", "resolution", "output_format", "duration", "sound")


class _Rejected(Exception):
    def __init__(self, column: str, value: object, reason: str) -> None:
        self.reject = Reject(column, as_text(value) or "", reason)


def resolve(
    combination: Combination, catalogue: Catalogue, defaults: Mapping[str, Any] = {}
) -> Resolved | Reject:
    """Resolves one combination by its model in the catalogue.

    `defaults` are the config's for `output_format`, `duration` and `sound`, which only one type of model
    takes; the other type ignores them.
    """
    try:
        return _resolved(combination, _model(combination.model, catalogue), defaults)
    except _Rejected as rejected:
        return rejected.reject


def rejects_of(combination: Combination, catalogue: Catalogue, defaults: Mapping[str, Any]) -> list[Reject]:
    """All that is wrong with one combination: as `resolve`, which stops at the first."""
    rejects: list[Reject] = []
    while isinstance(reject := resolve(combination, catalogue, defaults), Reject):
        rejects.append(reject)
        of_images = reject.column not in _SETTINGS
        if reject.column == "model" or not (
            combination.images if of_images else getattr(combination, reject.column)
        ):
            break
        unset: dict[str, Any] = {"images": ()} if of_images else {reject.column: None}
        combination = replace(combination, **unset)
    return rejects


def _model(name: str, catalogue: Catalogue) -> Model:
    model = catalogue.get(name)
    if model is None:
        similar = difflib.get_close_matches(name, catalogue, n=3)
        guess = (
            f"did you mean {' or '.join(similar)}?" if similar else f"it has {_listed(catalogue) or 'none'}"
        )
        raise _Rejected("model", name, f"the service has no model {name}; {guess}")
    if model.unreadable:
        raise _Rejected("model", name, f"the service's entry for {name} cannot be read: {model.unreadable}")
    if model.type not in {ModelType.IMAGE, ModelType.VIDEO}:
        raise _Rejected("model", name, f"{name} makes {model.type}, which cannot be bought in a batch")
    return model


def _resolved(combination: Combination, model: Model, defaults: Mapping[str, Any]) -> Resolved:
    is_image = model.type == ModelType.IMAGE
    own_media, other_media = ("images", "videos") if is_image else ("videos", "images")
    for column in ("duration", "sound") if is_image else ("output_format",):
        if (value := getattr(combination, column)) is not None:
            raise _Rejected(column, value, f"{column} is for {other_media}, and {model.id} makes {own_media}")
    _check_images(combination, model)
    choices: dict[str, tuple[Any, ...]] = {
        "aspect_ratio": model.supported_aspect_ratios,
        "resolution": model.supported_resolutions,
        **({"output_format": OUTPUT_FORMATS} if is_image else {"duration": model.supported_durations}),
    }
    parameters: dict[str, Any] = {"model": model.id}
    for column, offered in choices.items():
        value = getattr(combination, column)
        value = _chosen(column, defaults.get(column) if value is None else value, offered, model)
        if value is not None:
            parameters[column] = value
    if not is_image:
        parameters["sound"] = bool(defaults.get("sound") if combination.sound is None else combination.sound)
        if parameters["sound"] and not model.supports_sound:
            raise _Rejected("sound", True, f"{model.id} makes videos without sound")
    return Resolved(ModelType(model.type), parameters)


def _chosen(column: str, value: Any, offered: tuple[Any, ...], model: Model) -> Any:
    """The value, or the model's first entry if there is no value; None if the model lists no entries."""
    if value is None:
        return offered[0] if offered else None
    if value not in offered:
        of_pixels = {"aspect_ratio": _ratio_of_pixels, "resolution": _resolution_of_pixels}.get(column)
        if of_pixels and (meant := of_pixels(value, offered)):
            return meant
        offers = f"it offers {_listed(offered)}" if offered else f"it takes no {column}"
        nearest = _nearest(column, value, offered)
        guess = f"; did you mean {nearest}?" if nearest is not None and len(offered) > 1 else ""
        raise _Rejected(column, value, f"{column} {value} is not offered by {model.id}; {offers}{guess}")
    return value


def _ratio_of_pixels(text: str, offered: Sequence[str]) -> str | None:
    """The offered aspect ratio of a size in pixels (`1820x1024`), within 3 %; None where there is none."""
    match = _PIXELS.fullmatch(text)
    if not match or min(int(match[1]), int(match[2])) < 64:
        return None
    return next(iter(_by_distance(int(match[1]) / int(match[2]), offered, CLOSE)), None)


def _resolution_of_pixels(text: str, offered: Sequence[str]) -> str | None:
    """The offered resolution that is nearest to a size in pixels (`1024x1024`), by the side of a square that
    has as many; None where none is near.
    """
    match, distances = _PIXELS.fullmatch(text), dict[str, float]()
    side = math.sqrt(int(match[1]) * int(match[2])) if match else 0
    for listed in offered if side else ():
        if parts := _RESOLUTION.fullmatch(listed):
            wanted = float(parts[1]) * (1024 if parts[2].upper() == "K" else 4 / 3)  # of 16:9
            distances[listed] = max(side / wanted, wanted / side)
    nearest = min(distances, key=distances.__getitem__, default=None)
    return nearest if nearest and distances[nearest] <= _NEAR else None


def _nearest(column: str, value: Any, offered: Sequence[Any]) -> Any:
    """The offered value that a wrong one may mean; None where none is near."""
    if column == "duration":
        return min(offered, key=lambda entry: (abs(entry - value), entry), default=None)
    text = str(value).strip().lower()
    if column == "aspect_ratio":
        match = _RATIO.fullmatch(_WORDS.get(text, text))
        if match and float(match[1]) and float(match[2]):
            return next(iter(_by_distance(float(match[1]) / float(match[2]), offered, 2)), None)
    names = {str(entry).lower(): entry for entry in offered}
    begins = [name for name in names if name.startswith(text) or text.startswith(name)]
    close = begins or difflib.get_close_matches(text, names, n=1)
    return names[close[0]] if close else None


def _by_distance(ratio: float, offered: Sequence[str], factor: float) -> list[str]:
    """The offered ratios that differ by less than so many times, the nearest first."""
    distances = {}
    for listed in offered:
        if (match := _RATIO.fullmatch(listed)) and float(match[1]) and float(match[2]):
            listed_ratio = float(match[1]) / float(match[2])
            distances[listed] = max(ratio / listed_ratio, listed_ratio / ratio)
    return sorted((listed for listed in distances if distances[listed] <= factor), key=distances.__getitem__)


def _check_images(combination: Combination, model: Model) -> None:
    """Checks the rules of INTERFACE 2.2 and 2.4, and the model's roles and counts."""
    if len(combination.images) > MOST_IMAGES:
        reason = f"{len(combination.images)} images are given; a request takes at most {MOST_IMAGES}"
        raise _Rejected(combination.images[-1][1], len(combination.images), reason)
    roles = [_checked_role(role, column, model) for role, column in combination.images]
    column_of = {role: column for role, (_, column) in zip(roles, combination.images, strict=True)}
    for role, count in Counter(roles).items():
        limit = model.supported_references[role]
        if count > limit:
            reason = f"{model.id} takes at most {limit} {role}; {count} are given"
            raise _Rejected(column_of[role], count, reason)
    if "last_frame" in column_of and "first_frame" not in column_of:
        raise _Rejected(column_of["last_frame"], "last_frame", "a last_frame needs a first_frame")
    if REFERENCE in column_of and len(column_of) > 1:
        reason = "a reference_image cannot be combined with a first_frame or last_frame"
        raise _Rejected(column_of[REFERENCE], REFERENCE, reason)


def image_role(model: str, catalogue: Catalogue) -> str:
    """The role of an image that goes where the model takes one."""
    return _image_role(catalogue[model]) if model in catalogue else REFERENCE


def _image_role(model: Model) -> str:
    is_video = model.type == ModelType.VIDEO
    return FIRST_FRAME if is_video and FIRST_FRAME in model.supported_references else REFERENCE


def _checked_role(named_role: str | None, column: str, model: Model) -> str:
    """The role of an image. For an image model it may be left out: there is only one."""
    named_role = _image_role(model) if named_role == BY_MODEL else named_role
    role = named_role or (REFERENCE if model.type == ModelType.IMAGE else None)
    if role is None:
        raise _Rejected(column, "", f"an image for a video needs a role; expected {_listed(ROLES)}")
    if role not in model.supported_references:
        supported = _listed(model.supported_references) or "no images"
        raise _Rejected(column, role, f"{model.id} takes no {role}; it takes {supported}")
    return role


def _listed(values: Collection[object]) -> str:
    return and_more([str(value) for value in values][:20], len(values))
