"""Which jobs of a plan a run is for: some that a person names, or a pilot that is bought before the rest.

The same plan gives the same pilot, whatever is bought of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import polars as pl

from callsheet.errors import InputError
from callsheet.plain_text import counted, has_own_id, line_of, printable

_KIND = ["model", "type", "resolution", "duration", "sound", "price"]  # what sets the price


@dataclass(frozen=True, slots=True)
class Choice:
    """The jobs that a person names: only those of the rows with these names (`row_id_of`), and of those only
    so many that are not bought, the `first` in the file's order. Without any, all jobs.
    """

    first: int | None = None
    only: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.first is not None or bool(self.only)

    def line(self) -> str:
        """The choice in words."""
        jobs = "the jobs"
        if self.first is not None:
            are = "is" if self.first == 1 else "are"
            jobs = f"the first {counted(self.first, 'job')} that {are} not bought"
        return f"{jobs} of {counted(len(self.only), 'row')}" if self.only else jobs


ALL = Choice()


def row_id_of(name: str, jobs: pl.DataFrame) -> str:
    """The id of a row of these jobs by its name: its id, or `line 4` where it has none of its own.

    Raises:
        InputError: the name is a line, and no such row is there, or one in each of several files.
    """
    line = line_of(name)
    if line is None or (jobs["row_id"] == name).any():
        return name
    on_line: list[str] = jobs.filter(line=line)["row_id"].unique(maintain_order=True).to_list()
    without_id = [row_id for row_id in on_line if not has_own_id(row_id)]
    if len(without_id) == 1:
        return without_id[0]
    if without_id:
        hint = f"Name one of them by its id, which is made of its content: {', '.join(without_id)}."
        raise InputError(f"{len(without_id)} rows, each of another file, are on line {line}", hint=hint)
    if on_line:
        hint = "A row is named by its line only where it has no id."
        raise InputError(f"the row on line {line} has an id: {printable(on_line[0])}", hint=hint)
    hint = "rejects.csv, next to the report, has the rows that were rejected, with their lines."
    raise InputError(f"the batch has no row on line {line} that can be bought", hint=hint)


def chosen(choice: Choice, jobs: pl.DataFrame) -> pl.Series:
    """The jobs that a person names: a Boolean for every job with its standing.

    Raises:
        InputError: a row is not in the plan, or a line is that of several rows.
    """
    mask = pl.repeat(True, jobs.height, dtype=pl.Boolean, eager=True)
    if choice.only:
        row_ids = set(jobs["row_id"])
        chosen_ids = [row_id_of(name, jobs) for name in choice.only]
        if unknown := [row_id for row_id in chosen_ids if row_id not in row_ids]:
            raise InputError(
                f"the batch has no job of row {printable(unknown[0])!r}",
                hint="Nothing was bought. rejects.csv, next to the report, has the rows that were rejected.",
            )
        mask = jobs["row_id"].is_in(chosen_ids)
    if choice.first is not None:
        mask = mask & jobs["to_buy"]
        mask = mask & (mask.cum_sum() <= min(choice.first, jobs.height))
    return mask


def pilot(jobs: pl.DataFrame, number: int) -> pl.Series:
    """So many jobs of a plan, spread over the models, and in each model over what sets the price.

    The models take turns, in the order in which the file first has them; so do the kinds of each model. Of
    each kind the first jobs of the file are taken. Where rows ask for several things, as with a matrix, rows
    from all over the file are taken whole, until there are so many jobs or more: so what a row has asked for
    can be compared. They are the same ones each time, also where rows are moved.

    Returns:
        A Boolean for every job, in the plan's order.
    """
    has_several = jobs.select("row_id", "sample").is_duplicated().any()
    order = _by_hash(jobs["row_id"]) if has_several else pl.Series("order", range(jobs.height), pl.UInt32)
    position = pl.col("position")
    kinds = (
        jobs.select(*_KIND, order)
        .with_row_index("position")
        .with_columns(rank=pl.col("order").rank("ordinal").over(_KIND) - 1)
        .with_columns(kind=position.min().over(_KIND), place=position.min().over("model"))
        .filter(pl.col("rank") < number)
        .sort("rank", "kind")
        .with_columns(turn=pl.int_range(pl.len()).over("model"))
        .sort("turn", "place")
    )
    positions = kinds.head(min(number, kinds.height))["position"]
    if has_several:
        return _whole_rows(jobs["row_id"], positions)
    mask = pl.repeat(False, jobs.height, dtype=pl.Boolean, eager=True)
    return mask.scatter(positions, True)


def _by_hash(row_ids: pl.Series) -> pl.Series:
    """An order of rows by their ids alone, in which neighbours of the file are far from each other."""
    hashes = {row_id: hashlib.sha256(row_id.encode()).digest() for row_id in row_ids.unique()}
    ranks = {row_id: rank for rank, row_id in enumerate(sorted(hashes, key=hashes.__getitem__))}
    return pl.Series("order", [ranks[row_id] for row_id in row_ids], pl.UInt32)


def _whole_rows(rows: pl.Series, positions: pl.Series) -> pl.Series:
    """All jobs of the rows of these jobs, in their order, until they are as many: a Boolean for every job."""
    first = pl.DataFrame({"row_id": rows.gather(positions).unique(maintain_order=True)})
    counted = first.join(rows.value_counts(), on="row_id", how="left", maintain_order="left")
    chosen_rows = counted.filter(pl.col("count").cum_sum() - pl.col("count") < positions.len())
    return rows.is_in(chosen_rows["row_id"].implode())
