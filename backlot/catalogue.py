"""The models and their exact prices (INTERFACE 2.10), read from a YAML file."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from backlot import wire
from backlot.settings import Money, Shape, read_as

UNITS = {"image": "image", "video": "video_second"}  # the billable units (INTERFACE 2.5)
CREATED_AT = "2026-01-15T09:00:00.000Z"


class Rate(Shape):
    """One price of a model: dollars per image, or per second of video."""

    resolution: str
    sound: Literal["sound_on", "sound_off", "not_applicable"]
    unit_price: Money


class Model(Shape):
    """A model of the catalogue. The first entry of each list is its default.

    `unlisted` has the prices that are charged but are not in the catalogue. `command` is the program that
    makes its files, run by so many `workers`, with `timeout` seconds for a file; without it they are drawn.
    """

    id: str = Field(min_length=1)
    name: str
    type: Literal["image", "video"]
    supported_aspect_ratios: tuple[Annotated[str, Field(pattern=r"^[1-9]\d*:[1-9]\d*$")], ...] = Field(
        min_length=1
    )
    supported_durations: tuple[Annotated[int, Field(ge=1)], ...] = ()
    supported_resolutions: tuple[Annotated[str, Field(pattern=r"^(\d+p|\d+(\.\d+)?K)$")], ...] = Field(
        min_length=1
    )
    supports_sound: bool = False
    supported_references: dict[wire.Role, Annotated[int, Field(ge=1)]] = Field(default={})
    rates: tuple[Rate, ...] = ()
    unlisted: tuple[Rate, ...] = ()
    command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    workers: int = Field(default=1, ge=1)
    timeout: float = Field(default=600, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def everything_has_a_price(self) -> Self:
        """Checks that every combination of resolution and sound has a price, listed or not."""
        if bool(self.supported_durations) != (self.type == "video"):
            raise ValueError("video models have durations, image models have none (INTERFACE 2.10)")
        if not self.command and self.model_fields_set & {"command", "workers", "timeout"}:
            raise ValueError("command is a list with the program and its arguments; workers, timeout need it")
        for resolution in self.supported_resolutions:
            for sound in (True, False) if self.supports_sound else (False,):
                self.unit_price(resolution, sound=sound)
        return self

    def unit_price(self, resolution: str, *, sound: bool) -> Decimal:
        """Dollars for one unit: the listed rate, else the unlisted one (INTERFACE 2.10)."""
        exact = "not_applicable" if self.type == "image" else "sound_on" if sound else "sound_off"
        for rates in (self.rates, self.unlisted):
            for rate_sound in (exact, "not_applicable"):
                for rate in rates:
                    if (rate.resolution, rate.sound) == (resolution, rate_sound):
                        return rate.unit_price
        raise ValueError(f"model {self.id} has no rate, listed or not, for {resolution} with {exact}")

    def as_wire(self) -> dict[str, Any]:
        """The model object of INTERFACE 2.10."""
        listed = self.model_dump(exclude={"rates", "unlisted", "command", "workers", "timeout"})
        rates = [
            rate.model_dump() | {"billable_unit": UNITS[self.type], "unit_price": f"{rate.unit_price:.4f}"}
            for rate in self.rates
        ]
        return {**listed, "pricing": {"currency": "USD", "rates": rates}, "created_at": CREATED_AT}


def read_catalogue(path: Path) -> dict[str, Model]:
    """The models of a catalogue file by id, in the file's order.

    Raises:
        SettingsError: the file cannot be read, or an entry is wrong.
    """
    return {model.id: model for model in read_as(TypeAdapter(list[Model]), path)}
