"""What the page knows of every job while it has the cards of few: by it, the page filters, sorts and counts.

Both are small beside the cards, and columns: a list has the values that a column has, and numbers say which
of them each job has, from 1; 0: none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import polars as pl

from callsheet.report.contact_sheet.cards import cells, request_field
from callsheet.standing import Standing

OF_ATTEMPTS = ("finished_at", "generation_id", "error_code", "error_message")
"""Columns of the attempts that are needed, besides `SENT`."""

_TO_SORT_BY = ("cost", "submitted_at", "finished_at")
_KEY = 16  # characters of a job's key that tell it from the others
_MOST_COLUMNS = 8  # by which one can filter
_TO_SEARCH = ("model", "row_id", "prompt", "generation_id", "error_code", "error_message", "carried")


def overview(jobs: pl.DataFrame, standing: Standing, compared: Collection[str]) -> dict[str, Any]:
    """What filters, sorting and keys need of each of the jobs, in their order.

    `jobs` are from `shown_jobs`. `compared` are the settings of which the page shows shares. The files of a
    job are a text: `attempt/index/decision/flagged`, with a space between two.
    """
    newest = standing.newest.select("job_key", "attempt", "state", "made_by", *_TO_SORT_BY)
    files = standing.files.join(newest, on=["job_key", "attempt"], how="semi").sort("job_key", "index")
    is_flagged = pl.col("flags").list.len() > 0
    file = pl.format(
        "{}/{}/{}/{}",
        *("attempt", "index", pl.col("decision").fill_null("")),
        pl.when(is_flagged).then(pl.lit("flagged")).otherwise(pl.lit("")),
    )
    files = files.group_by("job_key", maintain_order=True).agg(files=file.str.join(" "))
    facts = jobs.join(newest, on="job_key", how="left", maintain_order="left")
    facts = facts.join(files, on="job_key", how="left", maintain_order="left")
    facts = facts.with_columns(made_by=pl.coalesce("made_by", "model"))
    asked = {name: facts["made_by"] if name == "model" else _asked(facts, name) for name in compared}
    carried = _carried(jobs)
    columns = [("Model", facts["made_by"]), *((name, pl.Series(values)) for name, values in carried.items())]
    several = [(name, values) for name, values in columns if values.drop_nulls().n_unique() > 1]
    return {
        "keys": facts["job_key"].str.head(_KEY).to_list(),
        "rows": facts["row_id"].to_list(),
        "samples": facts["sample"].to_list(),
        "numbers": facts["number"].to_list(),
        "states": _coded(facts["state"].fill_null("planned")),
        "files": _coded(facts["files"]),
        "settings": {name: _coded(values) for name, values in asked.items()},
        "columns": [[name, _coded(values)] for name, values in several[:_MOST_COLUMNS]],
        "costs": _ranks(facts["cost"]),
        "times": _ranks(facts.select(pl.coalesce("finished_at", "submitted_at")).to_series()),
    }


def texts(jobs: pl.DataFrame, standing: Standing) -> list[str]:
    """What is searched of each of the jobs: in small letters, and without accents.

    The first line is the model, which is left out for who decides blind.
    """
    newest = standing.newest.select("job_key", *_TO_SEARCH[3:6], sent="request")
    carried = pl.Series(
        "carried", ["\n".join(text for _, text in cells(each)[1]) for each in jobs["carried"]]
    )
    facts = jobs.with_columns(carried).join(newest, on="job_key", how="left", maintain_order="left")
    facts = facts.with_columns(prompt=pl.coalesce(request_field("prompt"), request_field("prompt", "sent")))
    text = pl.concat_str(_TO_SEARCH, separator="\n", ignore_nulls=True).str.normalize("NFKD")
    plain = text.str.replace_all(r"\p{M}", "").str.to_lowercase()
    return facts.select(plain).to_series().to_list()


def _asked(jobs: pl.DataFrame, name: str) -> pl.Series:
    return jobs.select(request_field(name)).to_series()


def _carried(jobs: pl.DataFrame) -> dict[str, list[str | None]]:
    """The carried columns as text, in the order in which jobs first have them."""
    columns: dict[str, list[str | None]] = {}
    for number, carried in enumerate(jobs["carried"]):
        for name, text in cells(carried)[1]:
            if name not in columns:
                columns[name] = [None] * jobs.height
            columns[name][number] = text
    return columns


def _coded(values: pl.Series) -> dict[str, Sequence[Any]]:
    return {"values": values.drop_nulls().unique().sort().to_list(), "codes": _ranks(values)}


def _ranks(values: pl.Series) -> list[int]:
    """The place of each value among the different ones, from 1; 0 where there is none."""
    return values.rank("dense").fill_null(0).to_list()
