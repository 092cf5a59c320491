"""A newer Callsheet upgrades an older ledger, whole or not at all; an older one refuses a newer ledger."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from callsheet import failpoints
from callsheet.errors import LedgerError, OtherVersion
from callsheet.ledger import migrations, tables
from callsheet.ledger.copies import back_up, copy, move
from callsheet.ledger.databases import open_engine, shown
from callsheet.ledger.ledger import Ledger
from tests.ledger.buying import buyer, job, submitting
from tests.ledger.next_release import SCHEMA, be_next
from tests.ledger.other_run import other_run
from tests.ledger.test_copying import bought, content
from tests.ledger.test_opening import execute, files
from tests.servers.forks import ROOT, forks

pytestmark = pytest.mark.anyio


def table(url: str, name: str) -> list[dict[str, Any]]:
    """The rows of a table, read without Callsheet."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"SELECT * FROM {name}").mappings().all()
    engine.dispose()
    return [dict(row) for row in rows]


def about(url: str) -> tuple[int, str]:
    [row] = table(url, "about")
    return row["schema_version"], row["needs"]


def buy(url: str, batch: str) -> None:
    """A run with this Callsheet, which has ended."""
    asyncio.run(bought(url, batch))
    execute(url, "UPDATE runs SET ended_at = started_at")


OLD, NEW = (tables.SCHEMA_VERSION, tables.SINCE), (SCHEMA, "0.3.0")


def open_with_next(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forks().run("-m", "tests.ledger.next_release", url, *arguments, cwd=ROOT)


@pytest.fixture
def older(url: str) -> str:
    """A ledger of this Callsheet, in which something was bought."""
    buy(url, "b")
    return url


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Where a SQLite ledger of `older` is copied to."""
    return tmp_path / "ledger.db.before-0.3.0"


def test_every_schema_has_a_migration() -> None:
    assert [*migrations.MIGRATIONS] == [*range(16, tables.SCHEMA_VERSION + 1)]


def test_an_older_ledger_is_upgraded_when_it_is_opened_to_write_and_a_copy_stays_beside_it(
    older: str, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, notes = content(older), list[str]()
    with monkeypatch.context() as patch:
        be_next(patch.setattr)
        for _ in range(2):
            open_engine(older, note=notes.append).dispose()
        buy(older, "c")
    assert about(older) == NEW
    dearer = {row["row_id"]: row["dearer"] for row in table(older, "attempts") if row["batch"] == "b"}
    assert dearer == {"b a": -40000, "b ä": 83456, "b z_1": -40000}
    [note] = notes
    name = shown(sa.make_url(older))
    assert note.startswith(
        f"the ledger {name} was upgraded from schema {OLD[0]} to {SCHEMA}, which needs Callsheet"
    )
    if older.startswith("sqlite"):
        assert note.endswith(f"0.3.0 or newer; as it was: {backup}")
        assert backup.stat().st_mode & 0o777 == 0o600
        assert content(f"sqlite:///{backup}") == before, "it is a ledger of the older Callsheet"
        assert not list(backup.parent.glob("*.part*"))
    else:
        assert not backup.exists()


async def test_jobs_of_a_row_that_share_a_sample_get_numbers_of_their_own_and_the_first_keeps_it(
    url: str,
) -> None:
    of_b, of_a = (
        [replace(job(f"{model} {sample}"), row_id="cup", sample=sample, model=model) for sample in (1, 2)]
        for model in "ba"
    )
    async with buyer(url) as ledger:
        await submitting(ledger, *of_b, *of_a, job("mug"))
    numbers = {row["job_key"]: row["file_number"] for row in table(url, "attempts")}
    for table_name, column in (("attempts", "file_number"), ("media", "removed_at")):
        execute(url, f"ALTER TABLE {table_name} DROP COLUMN {column}")
    execute(url, "UPDATE about SET schema_version = 21")
    execute(url, "UPDATE runs SET ended_at = started_at")
    open_engine(url).dispose()
    assert {row["job_key"]: row["file_number"] for row in table(url, "attempts")} == numbers
    assert [numbers[one.key] for one in (*of_b, *of_a, job("mug"))] == [1, 2, 3, 4, 1]


def test_an_older_callsheet_refuses_it_and_says_which_one_it_needs(older: str) -> None:
    assert not open_with_next(older).returncode
    for looks in (True, False):
        with pytest.raises(OtherVersion) as refused:
            open_engine(older, looks=looks)
        assert (
            f"needs Callsheet 0.3.0 or newer, for its schema {SCHEMA}; this is 0.2.0" in refused.value.message
        )
        assert "what was bought since" in refused.value.hint
    assert about(older) == NEW


def test_what_only_looks_says_which_command_upgrades_an_older_ledger_and_leaves_it(
    older: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_next(monkeypatch.setattr)
    to = tmp_path / "copy.db"
    looks: list[Callable[[], object]] = [
        lambda: open_engine(older, looks=True),
        lambda: back_up(older, to),
        lambda: copy(older, f"sqlite:///{to}"),
    ]
    for look in looks:
        with pytest.raises(OtherVersion, match="is of an older Callsheet") as refused:
            look()
        assert "callsheet ledger upgrade CONFIG" in refused.value.hint
    assert about(older) == OLD


def test_a_run_at_work_stops_the_upgrade(older: str, backup: Path) -> None:
    with other_run(older, "c") as other:
        other.do("reserve one", "intend one")
        refused = open_with_next(older)
        assert refused.returncode == 1
        assert "a run of an older Callsheet is at work on c; nothing was changed" in refused.stderr
        assert "Wait until it has ended" in refused.stderr
        assert about(older) == OLD
        other.do("generated one", "end")
    assert not backup.exists()
    assert not open_with_next(older).returncode
    assert about(older) == NEW


@pytest.mark.parametrize("how", ["upgraded", "moved"])
def test_what_has_a_ledger_open_neither_reads_nor_writes_it_when_it_is_upgraded(
    older: str, how: str, tmp_path: Path
) -> None:
    """Or moved. A page of the review has no lease, and may be open for days."""
    other = f"sqlite:///{tmp_path}/moved.db"

    async def all_of_it(leave: Callable[[], object]) -> None:
        async with await Ledger.open(older, "b") as ledger:
            leave()
            for work in (ledger.read, ledger.write):
                with pytest.raises(LedgerError, match="was upgraded or moved while it was in use"):
                    await work(lambda connection, _: connection.execute(sa.text("DELETE FROM runs")))

    if how == "upgraded":
        asyncio.run(all_of_it(lambda: open_with_next(older)))
    else:
        asyncio.run(all_of_it(lambda: move(older, other)))
    assert table(older, "runs")


@pytest.mark.parametrize("point, after", [("before ledger.upgrade", OLD), ("after ledger.upgrade", NEW)])
def test_an_upgrade_that_is_killed_is_done_or_not_and_the_next_one_finishes_it(
    older: str, backup: Path, point: str, after: tuple[int, str]
) -> None:
    before = content(older)
    assert open_with_next(older, point).returncode == -9
    assert about(older) == after
    if after == OLD:
        assert content(older) == before
        assert open_with_next(older, point).returncode == -9, "the same copy is not made twice"
    copies = [backup] if older.startswith("sqlite") else []
    assert [*backup.parent.glob("*.before-*")] == copies
    if after == OLD:
        buy(older, "c")  # with the older Callsheet
    done = open_with_next(older)
    assert not done.returncode, done.stderr
    assert about(older) == NEW
    if copies and after == OLD:
        second = backup.with_name(f"{backup.name}-2")
        assert str(second) in done.stdout
        assert content(f"sqlite:///{backup}") == before, "an earlier copy is not written over"
        assert content(f"sqlite:///{second}")["runs"] != before["runs"]


def test_an_upgrade_that_fails_changes_nothing(older: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(older)
    with monkeypatch.context() as patch:
        be_next(patch.setattr)
        fails = {SCHEMA + 1: lambda op: op.execute("UPDATE nothing SET it = 1")}
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS | fails)
        patch.setattr(tables, "SCHEMA_VERSION", SCHEMA + 1)
        with pytest.raises(LedgerError, match=r"cannot be opened: .*nothing"):
            open_engine(older)
    assert content(older) == before
    assert not open_with_next(older).returncode


def test_of_two_that_open_it_at_once_one_upgrades_it_and_the_other_waits(
    older: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_next(monkeypatch.setattr)
    notes: list[str] = []
    with ThreadPoolExecutor(2) as threads:
        others = []

        def begin_others(point: str) -> None:
            if point == "before ledger.upgrade":
                others.extend(threads.submit(open_engine, older, note=notes.append) for _ in range(2))

        monkeypatch.setattr(failpoints, "observer", begin_others)
        open_engine(older, note=notes.append).dispose()
        for other in others:
            other.result().dispose()
    assert len(others) == 2
    assert len(notes) == 1
    assert about(older) == NEW


def test_a_moved_ledger_is_not_upgraded_and_an_older_one_is_moved_as_a_newer_one(
    older: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_next(monkeypatch.setattr)
    new = f"sqlite:///{tmp_path}/new.db"
    assert move(older, new)["attempts"] == 3
    assert about(new) == NEW
    monkeypatch.setattr(tables, "SCHEMA_VERSION", SCHEMA + 1)
    for looks in (True, False):
        with pytest.raises(LedgerError, match="was moved to"):
            open_engine(older, looks=looks)


def test_without_space_for_the_copy_nothing_is_upgraded(tmp_path: Path, backup: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    buy(url, "b")
    before = files(tmp_path)
    full = open_with_next(url, "", "65536")
    assert full.returncode == 1
    assert f"must be upgraded, and {backup}, the copy of it, cannot be written" in full.stderr
    assert "Free some space" in full.stderr
    assert "Traceback" not in full.stderr
    assert about(url) == OLD
    assert files(tmp_path).keys() == before.keys()
    assert not open_with_next(url).returncode
