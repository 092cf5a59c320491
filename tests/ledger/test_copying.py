"""A ledger is copied whole, between both databases, while runs may be under way."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from callsheet.errors import LedgerError, LedgerMoved, StorageError
from callsheet.ledger import services, states
from callsheet.ledger.copies import back_up, copy, move
from callsheet.ledger.databases import open_engine
from callsheet.ledger.states import End
from callsheet.ledger.tables import attempts, media, metadata
from callsheet.records import State
from tests.ledger.buying import buyer, generation, intend, job, reserve, state_of
from tests.ledger.other_run import other_run
from tests.ledger.test_opening import execute
from tests.servers.forks import forks

pytestmark = pytest.mark.anyio

NAMES = ("a", "ä", "z_1")


def content(url: str | sa.URL) -> dict[str, list[str]]:
    """All rows of all tables, as text in no order."""
    engine = open_engine(url)
    with engine.connect() as connection:
        rows = {
            table.name: sorted(map(str, connection.execute(sa.select(table)).all()))
            for table in metadata.sorted_tables
        }
    engine.dispose()
    return rows


async def bought(url: str, batch: str) -> None:
    """A run that has bought some jobs, and left one in doubt and one reserved."""
    async with buyer(url, batch, balance="12.5") as ledger:
        await ledger.write(services.rebind, "http://127.0.0.1:1")
        reserved, _ = await reserve(ledger, *(job(f"{batch} {name}") for name in NAMES))
        for number, (_, attempt) in enumerate(reserved[:-1]):
            await intend(ledger, attempt)
            if number:
                paid = generation(attempt.row_id, cost="0.123456", files=2)
                await ledger.generated(attempt, paid, [f"{batch}-{number}-{n}.png" for n in range(2)], "out")
        await ledger.transition(states.in_doubt, End(reserved[0][1], "cut off: naïve ☂"))
        await ledger.write(services.learn, "http://127.0.0.1:1", {"windows": {}})


@pytest.fixture
def empty(url: str, tmp_path: Path, new_database: Callable[[], str]) -> str:
    """The URL of an empty database of the other kind."""
    return new_database() if url.startswith("sqlite") else f"sqlite:///{tmp_path}/copy.db"


async def test_a_copy_has_every_row_and_a_run_goes_on_from_it(url: str, empty: str) -> None:
    for batch in ("b", "B", "ö"):
        await bought(url, batch)
    counts = copy(url, empty)
    assert (counts["attempts"], counts["media"], counts["runs"]) == (9, 6, 3)
    assert content(empty) == content(url)
    async with buyer(empty) as ledger:
        reserved, _ = await reserve(ledger, *(job(f"b {name}") for name in NAMES))
        assert [one.row_id for one, _ in reserved] == ["b z_1"], "nothing else may be bought again"
        assert await state_of(ledger, job("b a")) is State.IN_DOUBT


def test_a_copy_is_of_one_moment_while_a_run_buys(url: str, empty: str) -> None:
    with other_run(url) as other:
        other.do("reserve one two three", "intend one")
        assert copy(url, empty)["attempts"] == 3
        other.do("generated one", "intend two", "generated two")
    engine = open_engine(empty)
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(media)) == 0
        states = connection.execute(sa.select(attempts.c.state)).scalars().all()
    engine.dispose()
    assert sorted(states) == [State.PLANNED, State.PLANNED, State.SUBMITTING]


_DAMAGING = {
    "sqlite": (
        "CREATE TRIGGER damage AFTER INSERT ON attempts BEGIN "
        "UPDATE attempts SET quantity = 7 WHERE job_key = NEW.job_key AND row_id LIKE '%a'; END",
    ),
    "postgresql": (
        "CREATE FUNCTION damage() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN IF right(NEW.row_id, 1) = ''a'' THEN NEW.quantity := 7; END IF; RETURN NEW; END'",
        "CREATE TRIGGER damage BEFORE INSERT ON attempts FOR EACH ROW EXECUTE FUNCTION damage()",
    ),
}
"""Statements after which a database keeps one row otherwise than it is given."""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_copy_in_which_one_cell_differs_is_not_kept(
    url: str, kind: str, tmp_path: Path, new_database: Callable[[], str]
) -> None:
    asyncio.run(bought(url, "batch"))
    good, bad = (f"sqlite:///{tmp_path}/{n}.db" if kind == "sqlite" else new_database() for n in range(2))
    copy(url, good)
    assert content(good) == content(url)
    open_engine(bad).dispose()
    execute(bad, *_DAMAGING[kind])
    with pytest.raises(LedgerError, match="the copy differs from the ledger in attempts"):
        copy(url, bad)
    assert not content(bad)["attempts"]


def test_a_ledger_with_rows_is_never_written_over(url: str, empty: str) -> None:
    for database in (url, empty):
        asyncio.run(bought(database, "b"))
    before = content(empty)
    with pytest.raises(LedgerError, match="has a ledger with rows in it already"):
        copy(url, empty)
    assert content(empty) == before
    with pytest.raises(LedgerError, match="has a ledger with rows in it already"):
        move(url, url)


def test_a_moved_ledger_goes_on_at_its_new_place_and_nowhere_else(url: str, empty: str) -> None:
    asyncio.run(bought(url, "b"))
    before = content(url)
    assert move(url, empty)["attempts"] == 3
    assert content(empty) == before
    with pytest.raises(LedgerError, match="was moved to") as moved:
        open_engine(url)
    assert "Set ledger.url" in moved.value.hint
    with pytest.raises(LedgerError, match="was moved to"):
        copy(url, empty)
    asyncio.run(bought(empty, "c"))


def test_a_ledger_is_not_moved_while_a_run_is_at_work(url: str, empty: str) -> None:
    with other_run(url) as other:
        other.do("reserve one")
        with pytest.raises(LedgerError, match="a run is at work on b; nothing was changed"):
            move(url, empty)
        other.do("intend one", "generated one", "end")
    assert move(url, empty)["media"] == 1


def test_a_backup_is_one_whole_file(url: str, tmp_path: Path) -> None:
    asyncio.run(bought(url, "b"))
    file = tmp_path / "backups" / "what? 100%20 #1.db"  # any name, also one that reads otherwise in a URL
    back_up(url, file)
    assert [*file.parent.iterdir()] == [file]
    assert content(sa.URL.create("sqlite", database=str(file))) == content(url)
    with pytest.raises(LedgerError, match="exists already"):
        back_up(url, file)
    with pytest.raises(StorageError, match="too long"):
        back_up(url, file.with_name("n" * 300))


KILLED = """
import os, signal, sys
from callsheet import failpoints
from callsheet.ledger.copies import move
point, url, to = sys.argv[1:]
failpoints.observer = lambda passed: os.kill(os.getpid(), signal.SIGKILL) if passed == point else None
move(url, to)
"""
POINTS = ("before ledger.close", "after ledger.close", "after ledger.open", "after ledger.move")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", ["other", "same"])
def test_a_move_that_is_killed_leaves_one_ledger_at_most_and_the_same_call_ends_it(
    url: str, empty: str, tmp_path: Path, new_database: Callable[[], str], kind: str, point: str
) -> None:
    if kind == "same":
        empty = f"sqlite:///{tmp_path}/copy.db" if url.startswith("sqlite") else new_database()
    buys(url, "one")
    before = content(url)
    killed = forks().run("-c", KILLED, point, url, empty)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    old, new = (has_bought(place) for place in (url, empty))
    assert (old, new) == {POINTS[0]: (True, False), POINTS[1]: (False, False)}.get(point, (False, True))
    if old or new:  # it goes on buying
        buys(url if old else empty, "two")
        before = content(url if old else empty)
    elif kind == "same":
        with pytest.raises(LedgerMoved, match="and that has not ended") as moving:
            open_engine(url)
        assert "ledger move" in moving.value.hint
        with pytest.raises(LedgerMoved, match="is being moved to"):
            move(url, f"sqlite:///{tmp_path}/elsewhere.db")
    for _ in range(2):
        assert move(url, empty)["attempts"] == len(before["attempts"])
    assert content(empty) == before
    with pytest.raises(LedgerMoved, match="was moved to"):
        open_engine(url)
    with pytest.raises(LedgerMoved, match="was moved to"):
        move(url, f"sqlite:///{tmp_path}/elsewhere.db")


def has_bought(url: str) -> bool:
    """Whether a ledger can be opened, and has jobs."""
    try:
        return bool(content(url)["attempts"])
    except LedgerMoved:
        return False


def buys(url: str, name: str) -> None:
    """A process buys a job, and ends."""
    with other_run(url) as other:
        other.do(f"reserve {name}", f"intend {name}", f"generated {name}", "end")
