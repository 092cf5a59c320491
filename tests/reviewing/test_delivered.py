"""What was ordered, what the service says came, and what came by its bytes: a difference is a flag."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from callsheet.present import results
from callsheet.present.page import Listed
from callsheet.pricing.plan import ToBuyAgain
from tests.conftest import Project
from tests.reviewing.test_checks import callsheet

Make = Callable[..., Project]
Row = tuple[str, dict[str, Any] | None, list[str]]

IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1", "resolution": "0.5K", "output_format": "png"}
VIDEO = {"model": "dailies-1", "aspect_ratio": "16:9", "resolution": "360p", "duration": 3, "sound": True}
NOTHING = dict.fromkeys(("model", "width", "height", "duration", "fps", "has_sound", "mime_type"))

IMAGES: list[Row] = [
    ("right", None, []),
    ("named", {"do": "says", "fields": {"model": "still-1"}}, ["model: sketch-1 ordered, still-1 said"]),
    ("small", {"do": "smaller"}, ["size: 0.5K ordered, 256 \u00d7 256 came"]),
    (
        "said to be wide",
        {"do": "says", "fields": {"width": 1024}},
        ["size: 1:1 ordered, 1024 \u00d7 512 said, 512 \u00d7 512 came"],
    ),
    ("compressed", {"do": "other_format"}, ["format: png ordered, jpeg came"]),
    (
        "said to be webp",
        {"do": "says", "fields": {"mime_type": "image/webp"}},
        ["format: png ordered, webp said, png came"],
    ),
    ("without a word", {"do": "says", "fields": NOTHING}, []),
]
VIDEOS: list[Row] = [
    ("right", None, []),
    ("named", {"do": "says", "fields": {"model": "reel-1"}}, ["model: dailies-1 ordered, reel-1 said"]),
    ("short", {"do": "short", "seconds": 1}, ["length: 3 s ordered, 1 s came"]),
    (
        "said to be brief",
        {"do": "says", "fields": {"duration": 2.4}},
        ["length: 3 s ordered, 2.4 s said, 3 s came"],
    ),
    ("said to be nearly as long", {"do": "says", "fields": {"duration": 2.5}}, []),
    ("hushed", {"do": "silent"}, ["sound: sound ordered, silence came, sound said"]),
    ("trackless", {"do": "silent", "track": False}, ["sound: sound ordered, no sound came"]),
    (
        "said to be without sound",
        {"do": "says", "fields": {"has_sound": False}},
        ["sound: sound ordered, no sound said, sound came"],
    ),
    ("stopped", {"do": "still"}, ["still: all frames show the same picture"]),
    ("small", {"do": "smaller"}, ["size: 360p ordered, 320 \u00d7 180 came"]),
    (
        "said to be slow",
        {"do": "says", "fields": {"fps": 22.5}},
        ["format: 22.5 frames a second said, 24 came"],
    ),
    ("said to be nearly as fast", {"do": "says", "fields": {"fps": 23.976}}, []),
    ("without a word", {"do": "says", "fields": NOTHING}, []),
]


def flags_of(made: Project) -> dict[str, list[str] | None]:
    return dict(made.manifest().select("row_id", "flags").iter_rows())


def project_of(project: Make, rows: list[Row], order: dict[str, Any], **config: Any) -> Project:
    """A project whose rows are the prompts of these, each with its fault."""
    faults = [{"prompt": f"{prompt}.", **fault} for prompt, fault, _ in rows if fault]
    made = project(
        [{"id": prompt, "prompt": f"{prompt}.", **order} for prompt, *_ in rows], faults={"rules": faults}
    )
    made.set(checks={"delivered": "flag", "size": "flag"}, **config)
    return made


@pytest.mark.parametrize(("rows", "order"), [(IMAGES, IMAGE), (VIDEOS, VIDEO)], ids=["images", "videos"])
def test_each_field_that_is_not_as_ordered_is_a_flag(
    project: Make, rows: list[Row], order: dict[str, Any]
) -> None:
    made = project_of(project, rows, order)
    made.run()
    assert flags_of(made) == {prompt: flags for prompt, _, flags in rows}


def test_the_manifest_has_what_was_said_and_what_was_measured_and_null_for_what_is_not_known(
    project: Make,
) -> None:
    prompts = ("right", "named", "short", "hushed", "said to be without sound", "without a word")
    made = project_of(project, [row for row in VIDEOS if row[0] in prompts], VIDEO)
    made.set(checks={"size": "off", "delivered": "off", "blank": "flag"})
    made.run()
    columns = ("model", "model_delivered", "duration", "duration_measured", "has_sound", "has_sound_measured")
    files = {row["row_id"]: row for row in made.manifest().iter_rows(named=True)}
    assert {row_id: tuple(file[name] for name in columns) for row_id, file in files.items()} == {
        "right": ("dailies-1", "dailies-1", 3, 3, True, True),
        "named": ("dailies-1", "reel-1", 3, 3, True, True),
        "short": ("dailies-1", "dailies-1", 1, 1, True, True),
        "hushed": ("dailies-1", "dailies-1", 3, 3, True, False),
        "said to be without sound": ("dailies-1", "dailies-1", 3, 3, False, True),
        "without a word": ("dailies-1", None, None, 3, None, True),
    }


def test_what_is_not_as_ordered_can_be_rejected(project: Make) -> None:
    """The size by its own check."""
    made = project_of(project, IMAGES, IMAGE)
    made.set(checks={"delivered": "reject", "size": "flag"})
    made.run()
    decided = dict(made.manifest().drop_nulls("decided_by").select("row_id", "decided_by").iter_rows())
    assert decided == dict.fromkeys(("named", "compressed", "said to be webp"), "check:delivered")


def test_what_is_not_as_ordered_is_counted_in_the_summary(project: Make) -> None:
    rules: dict[str, dict[str, Any]] = {
        "short": {"do": "short"},
        "silent": {"do": "silent"},
        "named": {"do": "says", "fields": {"model": "still-1"}},
        "said": {"do": "says", "fields": {"duration": 2.4}},
    }
    rows = [
        *({"prompt": f"short {n}", **VIDEO} for n in range(2)),
        {"prompt": "short and silent", **VIDEO, "duration": 2},
        {"prompt": "said", **VIDEO},
        {"prompt": "named", **IMAGE},
        {"prompt": "right", **IMAGE},
    ]
    made = project(rows, faults={"rules": [{"prompt": prompt, **rule} for prompt, rule in rules.items()]})
    made.set(checks={"delivered": "flag"})
    summary = made.run()
    lines = [
        "3 of 4 videos are shorter than ordered: 3 s ordered, 1 s came; 2 s ordered, 1 s came",
        "1 of 4 videos is not as ordered in length: 3 s ordered, 2.4 s said, 3 s came",
        "1 of 2 images is of another model than ordered: sketch-1 ordered, still-1 said",
        "1 of 4 videos is not as ordered in sound: sound ordered, silence came, sound said",
    ]
    assert results.differences(summary) == lines
    assert made.run().differences == summary.differences, "nothing has changed since"
    document = results.document(summary, "batch.yaml", None, ToBuyAgain(), {}, of_this_run=())
    assert Listed("Not as ordered", lines) in document
    printed = callsheet("report", "batch.yaml")
    assert all(line in " ".join(printed.stdout.split()) for line in lines)
    told = json.loads(callsheet("report", "batch.yaml", "--json").stdout)["differences"]
    length = {"3 s ordered, 1 s came": 2, "2 s ordered, 1 s came": 1, "3 s ordered, 2.4 s said, 3 s came": 1}
    assert told[0] == {"flag": "length", "type": "video", "files": 4, "of": 4, "details": length}
