"""Faults on demand: which requests a rule matches, and what goes wrong then. None unless someone asks.

    seed: 7
    rules:
      - {endpoint: images, nth: 3, do: error, status: 502}
      - {prompt: storm, do: drop, when: after_charging}
      - {endpoint: status, probability: 0.1, do: delay, seconds: 2}

The rules of a generation apply after every check except limits and balance. All matching rules apply, in the
file's order, until one of them ends the request.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from backlot.accounts import Window, lanes_full
from backlot.errors import Code, Refused
from backlot.media.recipe import Recipe
from backlot.settings import Money, Shape, read_as

Endpoint = Literal["images", "videos", "models", "model", "status", "balance", "costs", "downloads"]

HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


class Dropped(Exception):
    """Closes the connection without another byte."""


class Page(Exception):
    """Answers with an HTML page, as a proxy would, and not with the interface's body."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


Nth = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...],
    BeforeValidator(lambda nth: nth if isinstance(nth, list | tuple) else (nth,)),
]
"""One number or several."""


class Rule(Shape):
    """The requests that a rule matches: all that have every value that the rule names.

    `prompt` is a part of the prompt's text. `nth` counts, from 1, the requests that match the other values.
    """

    acts_on: ClassVar[frozenset[Endpoint]] = frozenset(get_args(Endpoint))

    endpoint: Endpoint | None = None
    model: str | None = None
    prompt: str | None = None
    nth: Nth | None = None
    probability: float = Field(default=1, ge=0, le=1)

    @model_validator(mode="after")
    def can_act(self) -> Self:
        """Refuses a rule that can never apply."""
        if self.endpoint and self.endpoint not in self.acts_on:
            raise ValueError(f"this fault acts on {', '.join(sorted(self.acts_on))} only")
        if self.nth == ():
            raise ValueError("nth names no request")
        if self.prompt is not None and self.endpoint in {"models", "model", "balance", "costs"}:
            raise ValueError(f"{self.endpoint} has no prompt")
        if self.model is not None and self.endpoint in {"models", "balance", "costs"}:
            raise ValueError(f"{self.endpoint} has no model")
        return self

    def matches(self, endpoint: Endpoint, model: str, prompt: str) -> bool:
        """Whether the rule matches the request, before `nth` and `probability`."""
        return (
            endpoint in self.acts_on
            and self.endpoint in {None, endpoint}
            and self.model in {None, model}
            and (self.prompt is None or self.prompt in prompt)
        )


class FailRequest(Rule):
    """Answers 500 or 503 with the interface's error body, or 502 with an HTML page."""

    do: Literal["error"]
    status: Literal[500, 502, 503] = 500


class Limit(Rule):
    """Answers 429: with `Retry-After` as for a full window, or without as for the concurrency limit."""

    do: Literal["rate_limit"]
    kind: Literal["window", "concurrency"] = "window"


class Delay(Rule):
    """Waits before anything happens."""

    do: Literal["delay"]
    seconds: float = Field(ge=0, allow_inf_nan=False)


class Drop(Rule):
    """Closes the connection without an answer, before or after the request is carried out and charged."""

    do: Literal["drop"]
    when: Literal["before_charging", "after_charging"]


class Truncate(Rule):
    """Closes the connection in the middle of the file."""

    acts_on = frozenset({"downloads"})
    do: Literal["truncate"]


class WrongType(Rule):
    """Answers with an HTML page, with status 200, instead of the file."""

    acts_on = frozenset({"downloads"})
    do: Literal["wrong_type"]


class ExpireUrl(Rule):
    """Answers with URLs that have already expired; with `deleted`, `deletes_at` has passed too."""

    acts_on = frozenset({"images", "status"})
    do: Literal["expire_url"]
    deleted: bool = False


class FailVideo(Rule):
    """Accepts the video, and fails it when it is due. Nothing is charged."""

    acts_on = frozenset({"videos"})
    do: Literal["fail_video"]
    code: Code = "server_error"
    message: str = "The upstream model timed out."


class NeverFinish(Rule):
    """Accepts the video, and leaves it pending for ever."""

    acts_on = frozenset({"videos"})
    do: Literal["never_finish"]


class Surcharge(Rule):
    """Charges more than `unit_price` times `quantity`."""

    acts_on = frozenset({"images", "videos"})
    do: Literal["surcharge"]
    amount: Money


class ExtraFields(Rule):
    """Adds fields that the interface does not have, at every level of a generation's answer."""

    acts_on = frozenset({"images", "videos", "status"})
    do: Literal["extra_fields"]
    fields: dict[str, Any] = Field(default={"x_note": "a field of a later version"})


class NullSize(Rule):
    """Answers null for width and height."""

    acts_on = frozenset({"images", "status"})
    do: Literal["null_size"]


class Blank(Rule):
    """Makes an image of one colour, or a black video."""

    acts_on = frozenset({"images", "videos"})
    do: Literal["blank"]


class WrongSize(Rule):
    """Makes it half as wide as was asked for."""

    acts_on = frozenset({"images", "videos"})
    do: Literal["wrong_size"]


class Smaller(Rule):
    """Makes it half as wide and half as high as was asked for."""

    acts_on = frozenset({"images", "videos"})
    do: Literal["smaller"]


class OtherFormat(Rule):
    """Makes a PNG instead of an image of another format, and a JPEG instead of a PNG."""

    acts_on = frozenset({"images"})
    do: Literal["other_format"]


class Short(Rule):
    """Makes a video of so many seconds. All that was asked for is charged."""

    acts_on = frozenset({"videos"})
    do: Literal["short"]
    seconds: int = Field(default=1, ge=1)


class Silent(Rule):
    """Makes a video with a sound track in which nothing is to be heard; without `track`, without one."""

    acts_on = frozenset({"videos"})
    do: Literal["silent"]
    track: bool = True


class Still(Rule):
    """Makes a video of which all frames show the same picture."""

    acts_on = frozenset({"videos"})
    do: Literal["still"]


class Says(Rule):
    """Says another thing of what was made than is true; null: nothing."""

    acts_on = frozenset({"images", "status"})
    do: Literal["says"]
    fields: dict[Literal["model", "width", "height", "duration", "fps", "has_sound", "mime_type"], Any] = (
        Field(min_length=1)
    )


AnyRule = Annotated[
    FailRequest
    | Limit
    | Delay
    | Drop
    | Truncate
    | WrongType
    | ExpireUrl
    | FailVideo
    | NeverFinish
    | Surcharge
    | ExtraFields
    | NullSize
    | Blank
    | WrongSize
    | Smaller
    | OtherFormat
    | Short
    | Silent
    | Still
    | Says,
    Field(discriminator="do"),
]
RULE: TypeAdapter[Rule] = TypeAdapter(AnyRule)
R = TypeVar("R", bound=Rule)


class FaultsFile(Shape):
    """A file of faults. With the same `seed`, the same requests draw the same faults."""

    seed: int = 0
    rules: tuple[AnyRule, ...] | None = None


@dataclass(slots=True)
class Active:
    """A rule at work: how many requests had every value that it names, and to how many of them it applied.

    `number` tells it from other rules of this server; `random` draws whether it applies.
    """

    number: int
    rule: Rule
    random: random.Random
    matched: int = 0
    applied: int = 0


class Faults:
    """The rules of one server, which can be added and removed while it runs."""

    def __init__(self, rules: Iterable[Rule] = (), seed: int = 0) -> None:
        self.seed = seed
        self.added = 0
        self.active: list[Active] = []
        for rule in rules:
            self.add(rule)

    def add(self, rule: Rule) -> None:
        """Applies a rule from now on, after all others."""
        drawing = random.Random(f"{self.seed}/{self.added}")  # noqa: S311 - repeatable on purpose
        self.active.append(Active(self.added, rule, drawing))
        self.added += 1

    def remove(self, number: str) -> None:
        """Applies a rule no longer; without a rule of this number, nothing changes."""
        self.active = [active for active in self.active if str(active.number) != number]

    def match(self, endpoint: Endpoint, model: str = "", prompt: str = "") -> Matched:
        """The faults of this request; every call counts as one request."""
        matched = []
        for active in self.active:
            rule = active.rule
            if not rule.matches(endpoint, model, prompt):
                continue
            active.matched += 1
            drawn = active.random.random() < rule.probability
            if drawn and (rule.nth is None or active.matched in rule.nth):
                active.applied += 1
                matched.append(rule)
        return Matched(matched)


class Matched(tuple[Rule, ...]):
    """The faults of one request, in the file's order."""

    __slots__ = ()

    def find(self, fault: type[R]) -> R | None:
        """The first fault of this class."""
        return next((rule for rule in self if isinstance(rule, fault)), None)

    async def before(self, window: Window, concurrency: int, now: float) -> None:
        """Applies what happens before the request is carried out.

        Raises:
            Refused, Page, Dropped: the request ends here.
        """
        for rule in self:
            match rule:
                case Delay():
                    await asyncio.sleep(rule.seconds)
                case FailRequest(status=502):
                    raise Page(502)
                case FailRequest():
                    raise Refused("server_error", "The server had an internal failure.", status=rule.status)
                case Limit(kind="window"):
                    raise window.full(now)
                case Limit():
                    raise lanes_full(concurrency)
                case Drop(when="before_charging"):
                    raise Dropped

    def after(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer as it is sent, after the request was carried out.

        Raises:
            Dropped: no answer is sent.
        """
        for rule in self:
            match rule:
                case Drop(when="after_charging"):
                    raise Dropped
                case NullSize():
                    for item in body.get("data", []):
                        item["width"] = item["height"] = None
                case Says():
                    for part in (body, *body.get("data", [])):
                        part.update({name: rule.fields[name] for name in rule.fields if name in part})
                case ExtraFields():
                    for part in (body, *body.get("data", []), body.get("usage"), body.get("error")):
                        if part is not None:
                            part.update(rule.fields)
        return body

    def made(self, recipe: Recipe) -> Recipe:
        """What is made instead of what was asked for."""
        for rule in self:
            match rule:
                case WrongSize() | Smaller():
                    recipe = replace(recipe, width=max(recipe.width // 4 * 2, 2))
                    if isinstance(rule, Smaller):
                        recipe = replace(recipe, height=max(recipe.height // 4 * 2, 2))
                case OtherFormat():
                    recipe = replace(recipe, format="jpeg" if recipe.format == "png" else "png")
                case Short():
                    recipe = replace(recipe, duration=min(rule.seconds, recipe.duration))
                case Silent():
                    recipe = replace(recipe, sound=recipe.sound and rule.track, silent=True)
                case Still():
                    recipe = replace(recipe, still=True)
                case Blank():
                    recipe = replace(recipe, blank=True)
        return recipe

    @property
    def surcharge(self) -> Decimal:
        """Dollars charged on top of the price."""
        return sum((rule.amount for rule in self if isinstance(rule, Surcharge)), Decimal(0))


def read_faults(path: Path | None) -> Faults:
    """The faults of a file; without a file, none.

    Raises:
        SettingsError: the file cannot be read, or a rule is wrong.
    """
    if path is None:
        return Faults()
    file = read_as(TypeAdapter(FaultsFile), path)
    return Faults(file.rules or (), file.seed)
