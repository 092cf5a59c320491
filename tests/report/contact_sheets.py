"""Contact sheets of any size, made without a run: cards in every state, with thumbnails that differ."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from PIL import Image

from callsheet.config.settings import BatchSettings
from callsheet.ledger.marks import Counts
from callsheet.records import State
from callsheet.report.contact_sheet import sheet
from callsheet.report.contact_sheet.cards import FOLDER, Card, Links, MediaFile
from callsheet.report.contact_sheet.thumbnails import thumbnail_name
from callsheet.storage.store import Store
from tests.conftest import Project

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
WRONG = {
    State.FAILED: "POST /v2/images/generations: The prompt does not pass the safety check. (422)",
    State.IN_DOUBT: "POST /v2/images/generations: sent, but no answer came: Server disconnected",
    State.LOST: "the file could not be downloaded before 2026-01-02 12:00:00: 404",
}


def card(number: int, state: State = State.STORED, **fields: Any) -> Card:
    """A card whose fields follow from its number."""
    shape = [(1024, 1024), (1376, 774), (836, 1254)][number % 3]
    sha256 = hashlib.sha256(str(number).encode()).hexdigest()
    stored = state is State.STORED
    file = MediaFile(0, f"media/{number}.jpeg", "image/jpeg", *shape, None, None, None, sha256, 150_000, 1)
    made: dict[str, Any] = {
        "job_key": hashlib.sha256(f"job {number}".encode()).hexdigest(),
        "row_id": f"row-{number:05d}",
        "sample": 1,
        "ordinal": 1,
        "of": 1,
        "type": "image",
        "model": f"model-{number % 4}",
        "prompt": f"Item {number}: a hand-thrown mug among autumn leaves, soft morning light, 35 mm",
        "asked": "1:1 1K",
        "state": state,
        "cost": f"0.0{number % 7}00" if stored else None,
        "quoted": "0.0400",
        "generation_id": f"req-{number:032x}",
        "code": "content_policy_violation" if state is State.FAILED else None,
        "reason": WRONG.get(state),
        "submitted_at": (BEGAN + timedelta(seconds=number)).isoformat(),
        "finished_at": (BEGAN + timedelta(seconds=number + 3)).isoformat() if stored else None,
        "carried": [("shot", ["hero", "grid", "story"][number % 3])],
        "files": [file] if stored else [],
    }
    return Card(**(made | fields))


def picture(number: int) -> bytes:
    """A JPEG of a thumbnail's size, about 10 kB."""
    noise = Image.effect_noise((40, 40), 60).resize((320, 320))
    tint = Image.new("L", noise.size, number * 37 % 256)
    content = io.BytesIO()
    Image.merge("RGB", (noise, tint, noise)).save(content, "JPEG", quality=85)
    return content.getvalue()


async def write(
    settings: BatchSettings,
    cards: Sequence[Card],
    pictures: Sequence[bytes],
    outcome: str | None = None,
    *,
    compared: bool = False,
) -> None:
    """Writes the page with these cards; `compared`: also what there is of each model."""
    store, links = Store(settings.report.url), Links(settings)
    for name in sheet.ASSETS:
        await store.write(f"{FOLDER}/{name}", sheet.asset(name), "text/plain")
    shown = [each.files[0].sha256 for each in cards if each.files]
    counts = Counts(0, 0, len(shown))
    for number, sha256 in enumerate(shown):
        await store.write(thumbnail_name(sha256), pictures[number % len(pictures)], "image/jpeg")
    versions = []
    for start in range(0, len(cards), sheet.PER_PART):
        content = sheet.part(len(versions), cards[start : start + sheet.PER_PART], (), links)
        await store.write(sheet.part_name(len(versions)), content, "text/javascript")
        versions.append(hashlib.sha256(content).hexdigest()[:12])
    await store.write(sheet.INDEX, sheet.index(settings, cards[: sheet.PER_PART], links), "text/html")
    states = Counter(each.state for each in cards)
    header = sheet.Header(len(cards), states, Decimal("1.25"), Decimal("2.5"), 0, outcome)
    summary = sheet.summary(
        header,
        settings,
        ledger_id="a ledger",
        newest_mark=0,
        counts=counts,
        shares_by_name={},
        jobs_shown=len(cards),
        interval=0.1,
        parts=versions,
        of_all=dict.fromkeys((sheet.OVERVIEW, sheet.TEXTS), "-".join(versions)),
        links=links,
    )
    seen = overview(cards) | {"counts": counts._asdict(), "shares": {}}
    if compared:
        models = sorted({each.model for each in cards})
        files = Counter(each.model for each in cards for _ in each.files)
        codes = [models.index(each.model) + 1 for each in cards]
        seen["settings"] = {"model": {"values": models, "codes": codes}}
        seen["shares"]["model"] = [
            {"value": model, "kept": 0, "rejected": 0, "to_review": files[model], "spent": "1.0000"}
            | {"orderedAs": {}}
            for model in models
        ]
    values = {"overview": seen, "texts": texts(cards)}
    for name, value in values.items():
        content = f"callsheet.{name}({json.dumps(value)})\n".encode()
        await store.write(f"{FOLDER}/data/{name}.js", content, "text/javascript")
    await store.write(sheet.NEWS, b'callsheet.news({number:0,marks:[],again:""})', "text/javascript")
    await store.write(sheet.SUMMARY, summary, "text/javascript")


def overview(cards: Sequence[Card]) -> dict[str, Any]:
    """What `overview.py` makes of the jobs of a ledger, of these cards."""

    def ranks(values: Sequence[Any]) -> list[int]:
        rank = {value: number for number, value in enumerate(sorted({*values} - {None}), start=1)}
        return [rank.get(value, 0) for value in values]

    def coded(values: Sequence[Any]) -> dict[str, Any]:
        return {"values": sorted({*values} - {None}), "codes": ranks(values)}

    files = [
        " ".join(
            f"{f.attempt}/{f.index}/{f.decision or ''}/{'flagged' if f.flags else ''}" for f in each.files
        )
        for each in cards
    ]
    names = dict.fromkeys(name for each in cards for name, _ in each.carried)
    columns = {"Model": [each.model for each in cards]}
    columns |= {name: [dict(each.carried).get(name) for each in cards] for name in names}
    return {
        "keys": [each.job_key[:16] for each in cards],
        "rows": [each.row_id for each in cards],
        "samples": [each.sample for each in cards],
        "numbers": [each.number for each in cards],
        "states": coded([each.state.value for each in cards]),
        "files": coded([text or None for text in files]),
        "settings": {},
        "columns": [[name, coded(values)] for name, values in columns.items() if len({*values} - {None}) > 1],
        "costs": ranks([each.cost for each in cards]),
        "times": ranks([each.finished_at or each.submitted_at for each in cards]),
    }


def texts(cards: Sequence[Card]) -> list[str]:
    """The same of what is searched."""
    return [
        "\n".join(
            [each.model, each.row_id, each.prompt, each.reason or "", *dict(each.carried).values()]
        ).lower()
        for each in cards
    ]


def with_sheet(made: Project) -> Project:
    """The same project, with a contact sheet as in a config that does not say otherwise."""
    made.set(report={"contact_sheet": 10_000})
    return made


def settings_for(folder: Path, **more: Any) -> BatchSettings:
    """A config whose report is in `folder`."""
    given = {"batch": "catalogue", "input": {"path": "x.csv"}, "report": {"url": str(folder)}}
    return BatchSettings.model_validate(given | more)


def written(
    folder: Path, cards: Sequence[Card], outcome: str | None = None, *, compared: bool = False
) -> Path:
    """As `write`, from code that is not asynchronous. Returns the path of the page."""
    pictures = [picture(n) for n in range(64)]
    asyncio.run(write(settings_for(folder), cards, pictures, outcome, compared=compared))
    return (folder / sheet.INDEX).absolute()
