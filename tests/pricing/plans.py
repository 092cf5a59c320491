"""Plans for the tests: a catalogue, and batch files as text."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from callsheet.batches.read import read_batch
from callsheet.config.settings import Settings
from callsheet.pricing.plan import Plan, make_plan, write_plan
from callsheet.records import Job
from callsheet.service.models import Catalogue, Model
from tests.pictures import picture

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PNG = picture()


def rate(resolution: str, sound: str, unit: str, price: str) -> dict[str, str]:
    return {"resolution": resolution, "sound": sound, "billable_unit": unit, "unit_price": price}


def model(name: str, model_type: str, *rates: dict[str, str], currency: str = "USD", **fields: Any) -> Model:
    pricing = {"currency": currency, "rates": rates}
    return Model.model_validate({"id": name, "type": model_type, "pricing": pricing, **fields})


CATALOGUE: Catalogue = {
    "still-1": model(
        "still-1",
        "image",
        rate("1K", "not_applicable", "image", "0.0407"),
        rate("2K", "not_applicable", "image", "0.0833"),
        supported_aspect_ratios=["1:1", "16:9", "9:16"],
        supported_resolutions=["1K", "2K", "4K"],
        supported_references={"reference_image": 4},
    ),
    "reel-1": model(
        "reel-1",
        "video",
        rate("720p", "sound_off", "video_second", "0.0513"),
        rate("720p", "sound_on", "video_second", "0.0771"),
        rate("1080p", "not_applicable", "video_second", "0.1"),
        supported_aspect_ratios=["16:9", "9:16", "1:1"],
        supported_durations=[5, 10],
        supported_resolutions=["720p", "1080p"],
        supports_sound=True,
        supported_references={"first_frame": 1, "last_frame": 1, "reference_image": 3},
    ),
    "proof-1": model("proof-1", "image", supported_resolutions=["1K"]),
}


MIXED = """\
id,model,prompt,resolution,duration,sound,output_format,samples,note
a,,a cat,2K,,,png,2,first
b,reel-1,"say ""hi"", \U0001f600",,10,yes,,,second
c,still-1,a dog,,7,,,,third
d,proof-1,a proof,,,,,,fourth
e,reel-9,a reel,,,,,,fifth
f,,a bird,,,,,,sixth
"""


class Maker:
    """Makes plans from a batch file's text in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def settings(self, path: Path, **given: Any) -> Settings:
        budget = {"allow_unpriced": given.pop("allow_unpriced", False)}
        name, storage = given.pop("batch", "shots"), given.pop("storage", {})
        source = {"path": str(path), "defaults": {"model": "still-1"}, **given}
        service = {"base_url": "http://127.0.0.1:1"}
        sections = {"service": service, "input": source, "budget": budget, "storage": storage}
        return Settings.model_validate({"batch": name, **sections})

    def of(self, settings: Settings, catalogue: Catalogue = CATALOGUE, *, to: str = "plan.parquet") -> Plan:
        plan = make_plan(read_batch(settings), catalogue, settings, self.folder / to, now=NOW)
        write_plan(plan)
        return plan

    def __call__(
        self, text: str, *, to: str = "plan.parquet", catalogue: Catalogue = CATALOGUE, **given: Any
    ) -> Plan:
        path = self.folder / "shots.csv"
        path.write_text(text, encoding="utf-8", newline="")
        return self.of(self.settings(path, **given), catalogue, to=to)


def jobs(plan: Plan) -> list[Job]:
    return list(plan.jobs_in_order())
