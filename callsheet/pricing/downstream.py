"""What hangs on a kept file, through all batches that are made from it: what it would cost to choose another.

It reads configs, rows and ledgers, and prices them by the catalogue of now. It buys nothing, and writes
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

from callsheet.cells import carried_as_json
from callsheet.config.load import load
from callsheet.config.settings import Settings
from callsheet.errors import CallsheetError, InputError, NothingKept
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.origins import Origin, hanging_on, with_origins
from callsheet.ledger.policy import policy_of
from callsheet.pricing.cast import KeptFiles
from callsheet.pricing.plan import price_batch
from callsheet.pricing.references import parse_name
from callsheet.pricing.sources import read_rows
from callsheet.records import MADE_FROM_FIELDS, ModelType, Record
from callsheet.service.client import Client
from callsheet.standing import read_standing


@dataclass(frozen=True, slots=True)
class Hanging(Record):
    """The jobs of a batch that hang on a file: `images` and `videos`, and how many of them are `bought`. In
    dollars, `price` is that of all, and `quoted` what those that are bought would cost again.
    """

    batch: str
    config: str
    images: int
    videos: int
    bought: int
    price: Decimal
    quoted: Decimal


@dataclass(frozen=True, slots=True)
class Downstream(Record):
    """What hangs on a kept file (`made_from`, with `records.MADE_FROM_FIELDS`), by batch.

    `left_out` are configs that cannot be read or priced, each with the reason.
    """

    file: str
    made_from: Mapping[str, Any]
    batches: tuple[Hanging, ...]
    bought: int
    quoted: Decimal
    currency: str = "USD"
    left_out: Mapping[str, str] = field(default_factory=dict)


async def price_downstream(
    file: str,
    configs: Sequence[Path],
    overrides: Sequence[str],
    connect: Callable[[Settings], Awaitable[Client]],
) -> Downstream:
    """Finds and prices what hangs on a file such as `cast.yaml#nova`.

    Args:
        configs: of the batches that may; none: those in the folder of the file's own config, without what is
            none and cannot be read.

    Raises:
        InputError: it is no such name, or names no kept file, or several.
        CallsheetError: a config that is given cannot be read or priced.
    """
    name = parse_name(file)
    if name is None:
        raise InputError(f"{file!r} is no kept file", hint="Name its config and row, as cast.yaml#nova.")
    try:
        _, made_from = await KeptFiles("").find(name, "")
    except InputError as error:
        raise InputError(f"{file} {error.message}") from None
    left_out: dict[str, str] = {}
    jobs: list[pl.DataFrame] = []
    config_of: dict[str, str] = {}
    for path in configs or await asyncio.to_thread(_beside, Path(name.config)):
        try:
            settings = await asyncio.to_thread(load, path, overrides)
            if settings.batch not in config_of:
                with suppress(NothingKept):  # so nothing is made from it yet
                    jobs.append(await _jobs(settings, connect))
                config_of[settings.batch] = str(path)
        except CallsheetError as error:
            if configs:
                raise
            left_out[str(path)] = error.message
    every_job = pl.concat(jobs) if jobs else None
    origin = Origin(*(made_from[name] for name in MADE_FROM_FIELDS))
    hanging = () if every_job is None else tuple(_by_batch(hanging_on(every_job, origin), config_of))
    quoted = sum((of_batch.quoted for of_batch in hanging), Decimal(0))
    bought = sum(of_batch.bought for of_batch in hanging)
    return Downstream(file, made_from, hanging, bought, quoted, left_out=left_out)


def _beside(config: Path) -> list[Path]:
    return sorted(path for path in config.parent.iterdir() if path.suffix in (".yaml", ".yml"))


async def _jobs(settings: Settings, connect: Callable[[Settings], Awaitable[Client]]) -> pl.DataFrame:
    """The jobs of a batch that are made from kept files, as `with_origins` has them, each with its `price` of
    now, and whether it is `already_bought`.
    """
    batch = await read_rows(settings)
    async with (
        await connect(settings) as client,
        await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger,
    ):
        plan = await price_batch(batch, settings, client, ledger)
        standing = await ledger.read(read_standing, plan.table, policy_of(settings))
    table = standing.planned
    carried = table.select(carried_as_json(table.schema["carried"])).to_series()
    columns = ("row_id", "sample", "type", "price", "already_bought")
    jobs = table.select(pl.lit(settings.batch).alias("batch"), pl.col("key").alias("job_key"), *columns)
    return with_origins(jobs, carried)


def _by_batch(hanging: pl.DataFrame, config_of: Mapping[str, str]) -> Iterator[Hanging]:
    for (batch,), jobs in hanging.group_by("batch", maintain_order=True):
        bought, images = jobs.filter("already_bought"), jobs.filter(type=ModelType.IMAGE.value).height
        price, quoted = (Decimal(part["price"].sum() or 0) for part in (jobs, bought))
        yield Hanging(
            batch=str(batch),
            config=config_of[str(batch)],
            images=images,
            videos=jobs.height - images,
            bought=bought.height,
            price=price,
            quoted=quoted,
        )
