"""What is said of what a ledger came to, beside the month before (`callsheet costs`)."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from callsheet.ledger.costs import Spent
from callsheet.plain_text import counted
from callsheet.present import amounts
from callsheet.present.page import Facts, Page, Table
from callsheet.records import dollars
from callsheet.report.month import CostLine, LedgerCosts


def screen(spent: LedgerCosts) -> Page:
    """A line for each part, and what all came to in both times."""
    all_costs = [spent.total, spent.before]
    lines = [_line(line, spent.by, all_costs) for line in spent.lines]
    last_day = spent.since - timedelta(days=1)
    facts = [
        ("Now", f"{spent.since} to {spent.until}: {in_words(spent.total)}"),
        ("Before", f"{spent.before_since} to {last_day}: {in_words(spent.before)}"),
    ]
    return [Table(lines, (spent.by,), limit=len(lines)), Facts(facts)]


def in_words(costs: Spent) -> str:
    """What it came to, in a line."""
    if costs == Spent():
        return "nothing"
    parts = [
        f"{amounts.spent(costs.spent)}, {counted(costs.bought, 'job')} bought",
        amounts.in_doubt(costs.in_doubt_exposure) if costs.in_doubt_exposure else "",
        f"{costs.kept:,} kept{amounts.a_kept_file(costs.cost_per_kept)}" if costs.kept else "",
        f"{dollars(costs.above_quoted)} above the quotes" if costs.above_quoted else "",
        f"{dollars(costs.credits)} came back" if costs.credits else "",
    ]
    return "; ".join(filter(None, parts))


def _line(line: CostLine, by: str, all_costs: list[Spent]) -> dict[str, str]:
    """A line of the table; what there is nowhere has no column."""
    costs = line.costs
    cells = {by: "" if line.value is None else line.value, "bought": f"{costs.bought:,}"}
    cells["USD spent"] = dollars(costs.spent)
    if any(part.in_doubt_exposure for part in all_costs):
        cells["USD in doubt"] = dollars(costs.in_doubt_exposure)
    if any(part.kept for part in all_costs):
        cells["kept"] = f"{costs.kept:,}"
        cells["USD a kept"] = "" if costs.cost_per_kept is None else dollars(costs.cost_per_kept)
    if any(part.above_quoted for part in all_costs):
        cells["USD above quotes"] = dollars(costs.above_quoted)
    if any(part.credits for part in all_costs):
        cells["USD back"] = dollars(costs.credits)
    if all_costs[1] != Spent() and line.before is not None:
        cells["USD month before"] = dollars(line.before.spent)
    return cells


def table(spent: LedgerCosts) -> pl.DataFrame:
    """The lines for other programs: money is exact."""
    money = pl.Decimal(18, 6)
    columns: dict[str, pl.DataType] = {spent.by: pl.String(), "bought": pl.Int64(), "spent": money}
    columns |= {"in_doubt_exposure": money, "kept": pl.Int64(), "cost_per_kept": money}
    columns |= {"above_quoted": money, "credits": money, "spent_before": money}
    lines = [
        (line.value, *dict(line.costs).values(), line.before and line.before.spent) for line in spent.lines
    ]
    return pl.DataFrame(lines, columns, orient="row")
