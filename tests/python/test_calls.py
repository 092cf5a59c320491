"""`import callsheet`: what a script or a notebook calls keeps what the commands keep."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import callsheet
from callsheet.errors import ApprovalNeeded, CallsheetError, ConfigError, InputError
from tests.conftest import Project

ROWS = {"id": ["a", "b", "c"], "prompt": ["one", "two", "three"], "shelf": [7, 8, 9]}


class Stream:
    """A table that is nothing but a stream, and can be read once."""

    def __init__(self, table: pa.Table) -> None:
        self._batches = iter([table.to_reader(max_chunksize=1)])

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return next(self._batches).__arrow_c_stream__(requested_schema)


@pytest.fixture
def made(project: Callable[..., Project]) -> Project:
    """A project whose config names no batch file."""
    made = project()
    made.settings["input"] = {"defaults": {"model": "sketch-1"}}
    made.set()
    return made


def spent(made: Project) -> Decimal:
    """What the service has charged."""
    [workspace] = made.backlot.service.workspaces.values()
    return Decimal("100") - workspace.balance


def test_a_table_in_memory_takes_the_place_of_the_batch_file_and_what_is_read_has_exact_decimals(
    made: Project,
) -> None:
    """From pandas, polars, pyarrow and a bare stream the jobs are the same; to pandas and to Arrow."""
    done = callsheet.run(made.config, Stream(pa.table(ROWS)))
    assert (done.outcome, done.stored, done.spent) == ("complete", 3, Decimal("0.0045"))
    assert spent(made) == done.spent
    manifest = callsheet.manifest(made.config)
    assert manifest["row_id"].tolist() == ["a", "b", "c"]
    assert manifest["shelf"].tolist() == [7, 8, 9]
    tables: tuple[Callable[..., Any], ...] = (pd.DataFrame, pl.DataFrame, pa.table)
    for table in tables:
        quoted = callsheet.quote(made.config, table(ROWS))
        assert (quoted.to_buy, quoted.already_bought) == (0, 3), table
    assert callsheet.run(made.config, pd.DataFrame(ROWS)).submissions == 0
    for read, column in (
        (callsheet.manifest, "cost"),
        (callsheet.costs, "quoted"),
        (callsheet.plan, "price"),
    ):
        frame, table = read(made.config), read(made.config, as_arrow=True)
        assert isinstance(frame, pd.DataFrame)
        assert isinstance(table, pa.Table)
        assert isinstance(frame[column].dtype, pd.ArrowDtype)
        assert frame[column].sum() == Decimal("0.0045")
        assert pa.types.is_decimal(table.schema.field(column).type)
    assert callsheet.manifest(made.config, as_arrow=True).schema.field("cost").type == pa.decimal128(18, 6)


def test_a_result_has_the_fields_of_json_with_money_as_decimal(made: Project) -> None:
    quote = callsheet.quote(str(made.config), pd.DataFrame(ROWS), {"budget.limit": "0.0030"})
    assert (quote.to_buy, quote.fits, quote["quoted"]) == (3, 2, Decimal("0.0045"))
    assert dict(quote)["budget_left"] == Decimal("0.0030")
    done = callsheet.run(made.config, pd.DataFrame(ROWS), {"budget.limit": Decimal("0.0030")})
    assert (done.outcome, done.stop_reason, done.stored, done["spent"]) == (
        "stopped",
        "budget",
        2,
        Decimal("0.003"),
    )
    assert callsheet.collect(made.config).stored == 2
    status = callsheet.status(made.config)
    assert (status.stored, status.spent, status.other_runs) == (2, Decimal("0.003"), ())
    for result in (quote, done, status):
        as_json = json.loads(json.dumps(result.as_json()))
        assert as_json.keys() == dict(result).keys()
        with pytest.raises(KeyError):
            result["details"]


def test_labels_of_pandas_rows_are_no_column_and_a_named_index_is_one(made: Project) -> None:
    frame = pd.DataFrame(ROWS)
    assert callsheet.quote(made.config, frame[frame["shelf"] > 7]).jobs == 2
    carried = callsheet.plan(made.config, as_arrow=True).schema.field("carried").type
    assert carried.names == ["shelf"]
    callsheet.quote(made.config, frame.set_index("id"))
    assert callsheet.plan(made.config)["row_id"].tolist() == ["a", "b", "c"]


# ---- wrong input


def test_rows_that_are_no_batch_are_refused_in_words_and_cost_nothing(made: Project) -> None:
    no_batch: list[tuple[Any, tuple[str, ...]]] = [
        ([{"prompt": "x"}], ("rows: list is not a table", "pandas.DataFrame(rows)")),
        ("prompts.csv", ("rows: str is not a table", "__arrow_c_stream__")),
        (pd.Series([1]), ("rows: ",)),
        (pd.DataFrame({"text": ["x"]}), ("rows: there is no column 'prompt'", "input.columns")),
        (pd.DataFrame({"prompt": []}), ("rows: has no rows",)),
        (pd.DataFrame({"prompt": ["x", 1]}), ("rows: cannot be read", "prompt")),
        (pd.DataFrame([["x", "y"]], columns=["prompt", "prompt"]), ("prompt",)),
        (pa.table([["x"], ["y"]], names=["prompt"] * 2), ("rows: there are two columns named 'prompt'",)),
    ]
    for rows, words in no_batch:
        with pytest.raises(InputError) as refused:
            callsheet.run(made.config, rows)
        said = f"{refused.value} {refused.value.hint}"
        assert all(word in said for word in words), said
        assert "/" not in said, "a temporary file means nothing to the caller"
    assert spent(made) == 0


def test_marks_that_are_none_are_refused_in_words(made: Project) -> None:
    for marks, words in (
        (["a"], r"marks: list is not a table"),
        (pd.DataFrame({"row_id": ["a", 1], "decision": ["kept"] * 2}), "marks: cannot be read: .*row_id"),
        (pa.table([["a"], ["b"]], names=["row_id"] * 2), "marks: there are two columns named 'row_id'"),
        (pl.DataFrame({"row_id": ["a"], "decision": [["kept"]]}), "marks: a cell of decision has several"),
    ):
        with pytest.raises(InputError, match=words):
            callsheet.review(made.config, marks)


def test_a_wrong_row_is_a_reject_with_its_number(made: Project) -> None:
    rows = pl.DataFrame({"prompt": ["x", "y"], "model": ["sketch-1", "no-such-model"]})
    assert callsheet.quote(made.config, rows).rejected_rows == 1
    [reject] = made.rejects()
    assert (reject["line"], reject["column"], reject["value"]) == ("2", "model", "no-such-model")
    with pytest.raises(InputError, match="1 row of rows is rejected; the first, on line 2: model: the serv"):
        callsheet.run(made.config, rows, {"input.strict": True})
    (made.folder / "short.csv").write_text("id,prompt\n1\n2\n")
    short = {"input.path": str(made.folder / "short.csv"), "input.strict": True, "input.defaults.model": "m"}
    with pytest.raises(InputError, match=r"2 rows of .* are rejected; the first, on line 2: the line has 1"):
        callsheet.run(made.config, settings=short)
    assert spent(made) == 0


def test_a_wrong_setting_is_named_and_costs_nothing(made: Project) -> None:
    for name, value, words in (
        ("bugdet.limit", 1, "did you mean budget"),
        ("budget.limit", 0.1, "not a binary float"),
        ("budget.limit", "five", "'five'"),
        ("batch.name", "x", "single value"),
        ("", 1, "budget.limit"),
        ("input.path", "other.csv", "exclude each other"),
    ):
        with pytest.raises(ConfigError) as refused:
            callsheet.run(made.config, pl.DataFrame(ROWS), {name: value})
        assert f"settings[{name!r}]" in str(refused.value)
        assert words in str(refused.value)
    assert spent(made) == 0


def test_why_a_service_cannot_be_reached_is_said_as_the_network_said_it(made: Project) -> None:
    nobody = {"service.base_url": "http://127.0.0.1:1"}
    with pytest.raises(CallsheetError, match="not sent: ConnectionRefusedError"):
        callsheet.quote(made.config, pa.table(ROWS), nobody)


def test_what_is_not_there_yet_is_named(made: Project) -> None:
    with pytest.raises(ConfigError, match="`input` has no rows; expected one of path, kept, stored"):
        callsheet.run(made.config)
    for read, name in ((callsheet.manifest, "manifest"), (callsheet.plan, "quote")):
        with pytest.raises(InputError, match=rf"out/report/{name}\.parquet: there is no such file yet"):
            read(made.config)
    with pytest.raises(CallsheetError, match="there is no such config file"):
        callsheet.status("nowhere.yaml")


# ---- promises


def test_above_the_approval_and_with_a_wrong_key_a_run_raises_and_with_a_yes_it_buys(
    made: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.set(budget={"approve_above": "0.0010"})
    with pytest.raises(ApprovalNeeded) as needed:
        callsheet.run(made.config, pl.DataFrame(ROWS))
    assert "above budget.approve_above" in str(needed.value)
    assert "yes=True" in needed.value.hint
    assert spent(made) == 0
    assert callsheet.run(made.config, pl.DataFrame(ROWS), yes=True).stored == 3
    monkeypatch.setenv("CALLSHEET_API_KEY", "sk_wrong")
    with pytest.raises(callsheet.errors.InvalidApiKey):
        callsheet.run(made.config, pl.DataFrame(ROWS))


def test_plain_calls_work_where_an_event_loop_is_running_and_their_coroutines_side_by_side(
    made: Project,
) -> None:
    table = pl.DataFrame(ROWS)

    async def cell() -> list[int]:
        own = {name: {"batch": name, "report.url": f"out/{name}"} for name in ("here", "left", "right")}
        here = callsheet.run(made.config, table, own["here"])
        runs = [callsheet.run_async(made.config, table, own[name]) for name in ("left", "right")]
        return [done.stored for done in (here, *await asyncio.gather(*runs))]

    assert asyncio.run(cell()) == [3, 3, 3]
    assert spent(made) == Decimal("0.0135")


def test_importing_callsheet_loads_nothing_slow() -> None:
    slow = ("pandas", "pyarrow", "polars", "pydantic", "sqlalchemy", "asyncio", "prefect", "yaml")
    loaded = f"import sys, callsheet; sys.exit(any(name in sys.modules for name in {slow}))"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
