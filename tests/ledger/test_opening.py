"""A ledger is opened beside a writer. What is none, or of another schema, is refused and left as it is."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from callsheet.errors import LedgerError, OtherVersion
from callsheet.files import network_disk
from callsheet.ledger import queries, services, states
from callsheet.ledger.copies import back_up
from callsheet.ledger.databases import exists, open_engine
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.states import End
from tests.ledger import reading
from tests.ledger.buying import buyer, job, submitting
from tests.ledger.other_run import other_run

pytestmark = pytest.mark.anyio


RUNS = sa.text("SELECT count(*) FROM runs")
MESSAGE = sa.text("SELECT error_message FROM attempts")


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def tables(url: str) -> list[str]:
    engine = sa.create_engine(url)
    names = sa.inspect(engine).get_table_names()
    engine.dispose()
    return names


def files(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in folder.iterdir()}


def refusal(url: str) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        asyncio.run(Ledger.open(url, "b"))
    assert caught.value.hint
    return caught.value


async def test_a_ledger_is_opened_and_read_while_another_run_is_in_the_middle_of_a_write(url: str) -> None:
    engine = open_engine(url)
    with engine.begin():
        ledger = await Ledger.open(url, "b")
        await ledger.read(services.check, "http://127.0.0.1:1")
        await ledger.close()
    engine.dispose()


@pytest.mark.parametrize(
    "url, why, to_check",
    [
        ("sqlite://", "in memory", "path of a file"),
        ("sqlite:///:memory:", "in memory", "path of a file"),
        ("sqlite:///out/ledger.db?mode=ro", "a path", "path of a file"),
        ("sqlite:////tmp/what?now=1/ledger.db", "a path", "path of a file"),
        ("sqlite:///file:ledger?mode=memory&cache=shared&uri=true", "a path", "path of a file"),
        ("sqlite:///file:out/ledger.db", "a path", "path of a file"),
        ("sqlite:////dev/null/ledger.db", "/dev/null/ledger.db cannot be opened", "its folder"),
        ("postgresql+psycopg://me:secret@127.0.0.1:9/x", "127.0.0.1:9/x cannot be opened", "the server"),
        ("postgresql+psycopg://me:p@ssecret@127.0.0.1:9/x", "//127.0.0.1:9/x cannot be opened", "the server"),
        ("postgresql+psycopg://me:a/secret?@secret#@127.0.0.1:9/x", "//127.0.0.1:9/x cannot", "the server"),
        (
            "postgresql+psycopg://127.0.0.1:9/x?user=me&password=p@secret",
            "not the URL of a database",
            "psycopg://",
        ),
        ("postgresql+psycopg://127.0.0.1:9/x?user=me&password=secret", "127.0.0.1:9/x cannot", "the server"),
        (
            "postgresql+psycopg://secret@shop:p@127.0.0.1:9/x",
            "//127.0.0.1:9/x cannot be opened",
            "the server",
        ),
        ("postgresql+psycopg://m/e:p@secret@127.0.0.1:9/x", "not the URL of a database", "postgresql+"),
        ("mysql://me:secret@h/x", "not the URL of a database", "postgresql+psycopg://"),
        ("p://me:secret@h:x/", "not the URL of a database", "postgresql+psycopg://"),
    ],
)
def test_what_cannot_be_opened_says_why_and_what_to_check_without_a_password(
    url: str, why: str, to_check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal(url)
    assert why in error.message
    assert to_check in error.hint
    assert "secret" not in error.message + error.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["what?/l.db", "l?.db", "50%25/#1?x.db", "a@b:c/l.db"])
def test_the_path_of_a_ledger_is_what_is_written(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/{name}"
    open_engine(url).dispose()
    assert (tmp_path / name).is_file()
    assert exists(url)
    open_engine(url).dispose()
    assert {file for file in tmp_path.rglob("*") if file.is_file()} == {tmp_path / name}


def test_a_new_ledger_on_a_network_disk_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the tests counts as one here, by the system's own list of disks."""
    notes: list[str] = []
    open_engine(f"sqlite:///{tmp_path}/local.db", note=notes.append).dispose()
    assert notes == []
    disks = sorted(psutil.disk_partitions(all=True), key=lambda disk: len(disk.mountpoint))
    kind = [disk.fstype for disk in disks if tmp_path.resolve().is_relative_to(disk.mountpoint)][-1]
    monkeypatch.setattr("callsheet.files._NETWORK_DISKS", {kind})
    for looks in (True, False, False):
        open_engine(f"sqlite:///{tmp_path}/far.db", looks=looks, note=notes.append).dispose()
    [note] = notes
    assert note.startswith(f"the ledger {tmp_path}/far.db is on a network disk ({kind})")
    assert "PostgreSQL" in note


@pytest.mark.parametrize(
    ("kind", "is_network"),
    [
        ("nfs4", True),
        ("cifs", True),
        ("fuse.sshfs", True),
        ("fuse.fuse-overlayfs", False),
        ("fuseblk", False),
    ],
)
def test_a_disk_is_known_as_the_system_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_network: bool
) -> None:
    """The innermost of the disks that hold the path, and of several mounted there the last."""
    disk = type(psutil.disk_partitions(all=True)[0])
    mounted = [(tmp_path, "ext4"), (tmp_path, kind), (tmp_path.parent, "nfs"), (tmp_path / "x", "nfs")]
    disks = [disk("any", str(folder), name, "rw") for folder, name in mounted]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: disks)  # noqa: A006 - psutil's own name
    assert network_disk(tmp_path / "l.db") == (kind if is_network else "")


@pytest.mark.parametrize("pip, install", [("pip", "-m pip install"), (None, "uv pip install --python")])
def test_a_driver_that_is_not_installed_is_named_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, pip: str | None, install: str
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setattr("callsheet.ledger.databases.find_spec", lambda _: pip)
    error = refusal("postgresql+psycopg://me:secret@127.0.0.1:9/x")
    assert "a database driver that is not installed: psycopg" in error.message
    assert install in error.hint
    assert sys.executable in error.hint
    assert error.hint.endswith(" 'psycopg[binary]'")


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE songs (title TEXT)",
        "CREATE TABLE about (text TEXT)",
        "CREATE TABLE about (schema_version INTEGER); INSERT INTO about VALUES (2)",
        "CREATE TABLE runs (id); CREATE TABLE attempts (id); CREATE TABLE media (id)",
        "CREATE VIEW one AS SELECT 1",
    ],
)
def test_the_database_of_another_program_is_left_as_it_is(tmp_path: Path, schema: str) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(schema)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    error = refusal(f"sqlite:///{path}")
    assert "not a ledger" in error.message
    assert str(path) in error.message
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [file.name for file in tmp_path.iterdir()] == ["other.db"]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_a_database_that_is_not_in_utf_8_is_refused_with_the_command_that_makes_one(
    new_database: Callable[..., str], encoding: str
) -> None:
    """Before it has any table: it could not have a prompt, or what a refusal says."""
    url = new_database(encoding)
    error = refusal(url)
    assert f"stores text in {encoding}, and not in UTF-8" in error.message
    assert "createdb --template template0 --encoding UTF8 --locale C NAME" in error.hint
    assert tables(f"{url}&client_encoding=utf8") == []


async def test_the_words_of_a_refusal_are_kept_whatever_the_environment_s_encoding(
    new_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    address = sa.make_url(new_database()).update_query_dict({"client_encoding": "LATIN1"})
    async with buyer(address.render_as_string(hide_password=False)) as ledger:
        [attempt] = await submitting(ledger, job("a"))
        await ledger.transition(states.failed, End(attempt, "不行 \U0001f600", "content_policy_violation"))
        message = await ledger.read(lambda connection, _: connection.scalar(MESSAGE))
        assert message == "不行 \U0001f600"


def test_nothing_is_prepared_in_a_connection_that_a_pooler_may_give_to_others(
    new_database: Callable[..., str],
) -> None:
    """As pgbouncer does after each transaction: psycopg prepares a statement from its sixth time on."""
    engine = open_engine(new_database())
    with engine.connect().execution_options(reading=True) as connection:
        for _ in range(10):
            connection.execute(RUNS)
        assert connection.scalar(sa.text("SELECT count(*) FROM pg_prepared_statements")) == 0
    engine.dispose()


def test_a_server_that_refuses_the_login_is_not_repeated_where_it_says_the_login(
    new_database: Callable[[], str],
) -> None:
    """Nor is it in the midst of a run; and a password is read as it is, with `@` and whatever it holds."""
    url = new_database()
    name = sa.make_url(url).database
    execute(
        url,
        "CREATE ROLE \"secret.one\" LOGIN PASSWORD 'p@ss/w?rd@2'",
        f'GRANT ALL ON DATABASE {name} TO "secret.one"',
    )
    execute(url, 'ALTER SCHEMA public OWNER TO "secret.one"')
    address = sa.make_url(url)
    theirs = f"postgresql+psycopg://secret.one:p@ss/w?rd@2@/{name}?host={address.query['host']}"
    open_engine(theirs).dispose()
    execute(url, 'ALTER ROLE "secret.one" NOLOGIN')
    assert 'role "..." is not permitted to log in' in refusal(theirs).message


async def test_a_postgresql_database_may_have_tables_of_other_programs_under_other_names(
    new_database: Callable[[], str],
) -> None:
    url, shared = new_database(), new_database()
    execute(url, "CREATE TABLE media (id INTEGER)")
    with pytest.raises(LedgerError, match="not a ledger"):
        await Ledger.open(url, "b")
    assert tables(url) == ["media"], "it is left as it is"
    execute(shared, "CREATE TABLE songs (id INTEGER)")
    for _ in range(2):
        async with buyer(shared):
            pass


@pytest.mark.parametrize("content", [b"this is not a database " * 50, b"\0" * 5000, b"short"])
def test_a_file_that_is_not_a_database_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    error = refusal(f"sqlite:///{path}")
    assert "not a database" in error.message
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal", "ledger.db-shm"])
def test_a_new_ledger_is_not_written_through_a_link(name: str, tmp_path: Path) -> None:
    (notes := tmp_path / "notes.txt").write_text("")
    link = tmp_path / name
    link.symlink_to("nowhere" if name == "ledger.db" else notes)
    error = refusal(f"sqlite:///{tmp_path}/ledger.db")
    assert f"{link} is a link" in error.message
    assert (notes.read_text(), (tmp_path / "nowhere").exists()) == ("", False)


def rights(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def test_only_its_user_can_read_a_new_ledger_and_its_backup(tmp_path: Path) -> None:
    """It has signed addresses. A ledger that is there keeps its rights, and may be a link."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    async with buyer(url):
        back_up(url, tmp_path / "backup.db")
        names = ("backup.db", "ledger.db", "ledger.db-shm", "ledger.db-wal")
        assert rights(tmp_path) == dict.fromkeys(names, 0o600)
    (tmp_path / "ledger.db").chmod(0o640)
    (tmp_path / "link.db").symlink_to("ledger.db")
    async with buyer(f"sqlite:///{tmp_path}/link.db"):
        assert rights(tmp_path) == dict.fromkeys([*names, "link.db"], 0o640) | {"backup.db": 0o600}


async def test_an_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()
    async with buyer(f"sqlite:///{tmp_path}/ledger.db"):
        pass


@pytest.mark.soak
def test_runs_that_begin_at_once_open_the_same_new_ledger(tmp_path: Path) -> None:
    """SQLite says at once that it is locked where two connections make the same new file one with a -wal."""
    with ThreadPoolExecutor(3) as threads:
        for number in range(400):
            url = f"sqlite:///{tmp_path}/{number}.db"
            for engine in threads.map(open_engine, [url] * 3):
                engine.dispose()


async def test_a_ledger_whose_last_user_was_killed_is_opened(tmp_path: Path) -> None:
    """Its newest commits are only in the write-ahead log."""
    copy = tmp_path / "copy"
    copy.mkdir()
    async with buyer(f"sqlite:///{tmp_path}/ledger.db"):
        for name in ("ledger.db", "ledger.db-wal"):
            (copy / name).write_bytes((tmp_path / name).read_bytes())
    async with buyer(f"sqlite:///{copy}/ledger.db") as ledger:
        assert await ledger.read(lambda connection, _: connection.scalar(RUNS)) == 2


async def test_a_ledger_that_is_too_old_to_be_upgraded_is_refused_and_left_alone(url: str) -> None:
    await (await Ledger.open(url, "b")).close()
    execute(url, "UPDATE about SET schema_version = 14", "DROP TABLE learned")
    for looks in (True, False):
        with pytest.raises(
            OtherVersion, match="has schema 14; this Callsheet upgrades from 15 on"
        ) as refused:
            await Ledger.open(url, "b", looks=looks)
        assert "another ledger.url" in refused.value.hint
    assert "learned" not in tables(url)


async def test_looking_at_a_ledger_that_is_not_there_finds_an_empty_one_and_makes_none(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    (tmp_path / "empty.db").touch()
    database = new_database()
    for url in (f"sqlite:///{tmp_path}/out/new.db", f"sqlite:///{tmp_path}/empty.db", database):
        async with await Ledger.open(url, "b", looks=True) as ledger:
            counts = await asyncio.gather(*(ledger.read(lambda each, _: each.scalar(RUNS)) for _ in range(4)))
            assert counts == [0] * 4
    assert files(tmp_path) == {"empty.db": 0}
    assert not tables(database)


async def test_a_person_who_may_only_read_a_postgresql_ledger_can_look_at_it(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    with other_run(url) as run:
        run.do("reserve a b c", "intend a", "intend b", "doubt b")
        run.kill()
    database = sa.make_url(url).database
    reader = f"reader_of_{database}"
    execute(url, f"CREATE ROLE {reader} LOGIN", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}")
    execute(url, f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC")
    theirs = sa.make_url(url).set(username=reader).render_as_string(hide_password=False)
    async with await Ledger.open(theirs, "b", looks=True) as ledger:
        assert await ledger.read(lambda connection, _: connection.scalar(RUNS)) == 1
        seen = await ledger.read(reading.everything)
        assert [doubt.row_id for doubt in await ledger.read(queries.doubts)] == ["a", "b"]
        with pytest.raises(LedgerError, match="permission denied"):
            await ledger.write(lambda connection, _: connection.execute(sa.text("DELETE FROM runs")))
    async with buyer(url) as ledger:  # which takes over
        assert await ledger.read(reading.everything) == seen
