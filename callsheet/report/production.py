"""What the shots of a production have cost: the rows of its first batch, over all batches made from them.

A film belongs to the shot of the still that it is made from (`input.kept`, `input.stored`), and otherwise to
that of its own row. What a cell names besides, such as a character, belongs to a shot of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from callsheet.config.settings import BatchSettings
from callsheet.errors import ConfigError
from callsheet.ledger.databases import check_exists
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.marks import MediaDecision
from callsheet.pricing.plan import last_plan
from callsheet.records import Record, origins, six_decimals
from callsheet.report.summary import Status, read_status
from callsheet.standing import Standing, read_standing


@dataclass(frozen=True, slots=True)
class Shot(Record):
    """A shot: what it has cost by batch and in all, in dollars; and how many of its files are `kept` in the
    last batch: with one it is `finished`.
    """

    shot: str
    costs: Mapping[str, Decimal]
    spent: Decimal
    kept: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Production(Record):
    """The shots of several batches, in their order, with the names that `status --json` prints.

    `spent_on_finished` is what the finished shots themselves have cost; `cost_per_finished` is all that was
    spent, less what came back by credits, over these; None without one.
    """

    batches: tuple[Status, ...]
    shots: tuple[Shot, ...]
    finished: int
    spent: Decimal
    spent_on_finished: Decimal
    cost_per_finished: Decimal | None
    currency: str = "USD"


async def read_production(batches: Sequence[BatchSettings]) -> Production:
    """Reads what the shots of these batches have cost; the last batch says which are finished.

    Raises:
        ConfigError: two configs have the same batch.
        LedgerError: a ledger is not there, or cannot be read.
    """
    shot_of: dict[tuple[str, str], str] = {}
    costs: defaultdict[str, defaultdict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    kept: Counter[str] = Counter()
    statuses: list[Status] = []
    for settings in batches:
        batch = settings.batch
        if batch in {status.batch for status in statuses}:
            raise ConfigError(f"two of the configs have the batch {batch}", hint="Name each batch once.")
        check_exists(settings.ledger.url)
        plan = await asyncio.to_thread(last_plan, settings) if settings.input.other is None else None
        async with await Ledger.open(settings.ledger.url, batch, looks=True) as ledger:
            standing = await ledger.read(read_standing, of_attempts=["carried"])
            statuses.append(await read_status(ledger, settings))
        for row_id in plan.table["row_id"].unique(maintain_order=True) if plan else ():
            _ = costs[row_id]  # a shot, also where nothing of it is bought
        shot_of |= {(batch, row_id): shot for row_id, shot in _shots(standing, settings, shot_of)}
        for row_id, cost in standing.attempts.select("row_id", "cost").iter_rows():
            costs[shot_of[batch, row_id]][batch] += cost or Decimal(0)
        kept.clear()  # those of the last batch count
        for row_id, decision in standing.files.select("row_id", "decision").iter_rows():
            kept[shot_of[batch, row_id]] += decision == MediaDecision.KEPT
    shots = tuple(
        Shot(shot, dict(of_shot), sum(of_shot.values(), Decimal(0)), kept[shot], finished=kept[shot] > 0)
        for shot, of_shot in costs.items()
    )
    finished = [shot.spent for shot in shots if shot.finished]
    spent = sum((shot.spent for shot in shots), Decimal(0))
    came_back = sum((status.credits for status in statuses), Decimal(0))
    return Production(
        batches=tuple(statuses),
        shots=shots,
        finished=len(finished),
        spent=spent,
        spent_on_finished=sum(finished, Decimal(0)),
        cost_per_finished=six_decimals((spent - came_back) / len(finished)) if finished else None,
    )


def _shots(
    standing: Standing, settings: BatchSettings, shot_of: Mapping[tuple[str, str], str]
) -> Iterator[tuple[str, str]]:
    """Each row of a batch that was bought, with its shot; `shot_of` has those of the batches before."""
    for row_id, carried in standing.attempts.select("row_id", "carried").iter_rows():
        files = origins(json.loads(carried or "{}")) if settings.input.other else []
        yield row_id, shot_of.get((files[0]["batch"], files[0]["row"]), files[0]["row"]) if files else row_id
