"""Whether other files have the names in storage that the next files would get: a second look before buying.

Nothing is written over: a file whose name is taken gets another one. Only the first names are looked up.
"""

from __future__ import annotations

import asyncio
import json

from callsheet.config.settings import Settings
from callsheet.errors import StorageError
from callsheet.ledger import names
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.marks import Marks
from callsheet.pricing.plan import Plan
from callsheet.records import ModelType
from callsheet.storage.names import folded
from callsheet.storage.names import name as name_in_store
from callsheet.storage.store import Store

_FIRST = 20


async def taken_names(plan: Plan, marks: Marks, settings: Settings, ledger: Ledger) -> str:
    """How many of the first names to buy are those of files that the ledger does not know; empty if none.

    Nothing is said where names have the generation's id, or where the storage does not say what it has.
    """
    if "{generation_id" in settings.storage.key:
        return ""
    url = settings.storage.url
    wanted = await asyncio.to_thread(_first_names, plan, marks, settings)
    own = await ledger.read(lambda connection, _: names.known(connection, url, wanted))
    store = Store(url, endpoint_url=settings.storage.endpoint_url)
    others = [name for name in wanted if folded(name) not in own]
    try:
        there = await asyncio.gather(*map(store.exists, others))
    except StorageError:  # a key that may not list, for instance: the probe before the buying says more
        return ""
    taken = [name for name, is_there in zip(others, there, strict=True) if is_there]
    if not taken:
        return ""
    return (
        f"{len(taken)} of the first {len(wanted)} names in {url} are taken: {taken[0]}, for instance; "
        "what is there stays, and the new files get other names"
    )


def _first_names(plan: Plan, marks: Marks, settings: Settings) -> list[str]:
    """The names of the first files to buy, each the first of its job."""
    columns = ("key", "row_id", "sample", "type", "model", "request")
    jobs = marks.jobs(plan).filter("to_buy").select(*columns).head(_FIRST)
    return [
        name_in_store(
            settings.storage.key,
            batch=settings.batch,
            row_id=job["row_id"],
            sample=job["sample"],
            index=0,
            ext=_extension(job["type"], json.loads(job["request"])),
            job_key=job["key"],
            model=job["model"],
        )
        for job in jobs.iter_rows(named=True)
    ]


def _extension(model_type: str, request: dict[str, object]) -> str:
    """INTERFACE 2.3: an image's format is `jpeg` unless `output_format` says otherwise."""
    return "mp4" if model_type == ModelType.VIDEO else str(request.get("output_format", "jpeg"))
