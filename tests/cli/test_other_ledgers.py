"""Two ledgers and one batch: a lost one, a backup that is restored, a second one beside the first.

Nothing is bought twice unless a person says so, and nothing that is paid for is lost or taken for another.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from callsheet import places
from callsheet.config.load import load
from callsheet.errors import OtherLedger
from callsheet.ledger.ledger import Ledger
from tests.cli import test_commands
from tests.conftest import Project
from tests.servers import s3 as s3_server
from tests.servers.backlots import Observed, finish_videos
from tests.servers.forks import forks
from tests.waiting import wait_until

Make = Callable[..., Project]


def callsheet(made: Project, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `callsheet <command> CONFIG <words>` as a process of its own."""
    first = (command, words[0]) if command == "ledger" else (command,)
    return test_commands.callsheet(*first, "batch.yaml", *words[len(first) - 1 :], cwd=made.folder)


def row(name: str, **cells: Any) -> dict[str, Any]:
    return {"id": name, "prompt": f"a {name}", "model": "sketch-1"} | cells


def test_what_another_purchase_left_in_the_spool_is_not_taken_for_this_one(project: Make) -> None:
    made = project([row("vase")])
    made.backlot.service.faults = asked = Observed()
    (made.folder / "out/media").mkdir(parents=True)
    (made.folder / "out/media/test").touch()  # so that the storage takes no file of the batch
    assert callsheet(made, "run").returncode == 3
    spool = made.folder / "out/report/spool"
    [left] = spool.iterdir()
    other = ["--set", "ledger.url=sqlite:///out/other.db", "--set", "storage.url=out/others"]
    assert callsheet(made, "run", *other, "--new-ledger").returncode == 0
    assert asked.prompts["downloads"] == ["a vase", "a vase"]
    assert list(spool.iterdir()) == [left], "it is paid for, and its own ledger still wants it"
    (made.folder / "out/media/test").unlink()
    assert callsheet(made, "collect", "--set", "ledger.new=true").returncode == 0
    assert len(asked.prompts["downloads"]) == 2
    assert not list(spool.iterdir())


def test_a_new_ledger_beside_a_report_with_paid_jobs_buys_nothing_until_a_person_means_it(
    project: Make,
) -> None:
    made = project([row("vase"), row("bowl")])
    assert callsheet(made, "run").returncode == 0
    report, spent = made.report(), spent_at(made)
    new = ["--set", "ledger.url=sqlite:///out/new.db", "--set", "storage.url=out/new"]
    refused = callsheet(made, "run", *new, "--yes")
    assert refused.returncode == 2
    for words in ("out/report/report.json", "another ledger", "2 jobs paid for", "--new-ledger"):
        assert words in refused.stderr
    assert report["written_at"][:10] in refused.stderr
    assert callsheet(made, "collect", *new).returncode == 2
    assert callsheet(made, "report", *new).returncode == 2
    assert (spent_at(made), made.report()) == (spent, report)
    quote = callsheet(made, "quote", *new)
    assert quote.returncode == 0
    assert "out/report/report.json is of another ledger" in quote.stdout
    [warning] = json.loads(callsheet(made, "quote", *new, "--json").stdout)["warnings"]
    assert "another ledger" in warning

    assert callsheet(made, "run", *new, "--new-ledger").returncode == 0
    assert spent_at(made) == 2 * spent
    assert callsheet(made, "run", *new).returncode == 0, "the report is its own now"
    assert callsheet(made, "run").returncode == 2
    assert spent_at(made) == 2 * spent
    manifest = made.manifest()
    assert callsheet(made, "review", "--keep", "vase").returncode == 0
    assert made.manifest().equals(manifest), "the report is another ledger's"


def test_a_backup_that_is_older_than_the_report_buys_nothing_and_one_that_knows_more_goes_on(
    project: Make,
) -> None:
    """It knows more after a run that was killed before it wrote a report, or with one that was put back."""
    made = project([row("vase")])
    assert callsheet(made, "run").returncode == 0
    backup, older = made.folder / "backup.db", made.report()
    assert callsheet(made, "ledger", "backup", "--to", "backup.db").returncode == 0
    made.rows(row("vase"), row("bowl"))
    assert callsheet(made, "run").returncode == 0
    report, spent = made.report(), spent_at(made)
    newer = (made.folder / "out/ledger.db").read_bytes()
    replace_ledger(made, backup.read_bytes())
    for command in ("run", "collect", "report"):
        refused = callsheet(made, command)
        assert refused.returncode == 2
        for words in ("out/report/report.json", "2 jobs paid for", "this ledger knows of 1"):
            assert words in refused.stderr
    assert "this ledger knows of 1" in callsheet(made, "quote").stdout
    assert (spent_at(made), made.report()) == (spent, report)
    replace_ledger(made, newer)
    for text in (json.dumps(older), "["):
        (made.folder / "out/report/report.json").write_text(text)
        assert callsheet(made, "run").returncode == 0
    assert (made.report()["paid_jobs"], spent_at(made)) == (2, spent)
    replace_ledger(made, backup.read_bytes())
    assert callsheet(made, "run", "--new-ledger").returncode == 0, "what was stored has another name now"
    assert spent_at(made) == spent + Decimal("0.0015")


def test_a_report_url_is_of_one_batch_and_no_command_of_another_writes_there(project: Make) -> None:
    """The films' report took the place of the stills'; of a restored ledger nothing was known then."""
    made = project([row("vase"), row("bowl"), row("cup")])
    assert callsheet(made, "run").returncode == 0
    assert callsheet(made, "ledger", "backup", "--to", "backup.db").returncode == 0
    made.rows(*(row(name, prompt=f"a better {name}") for name in ("vase", "bowl", "cup")))
    assert callsheet(made, "run").returncode == 0
    before, spent = files_of(made.folder / "out"), spent_at(made)
    films = ["--set", "batch=films"]
    for command, *words in (["run", "--yes"], ["run", "--new-ledger"], ["quote"], ["collect"], ["report"]):
        test_commands.refused(
            callsheet(made, command, *words, *films),
            "out/report/report.json is of the batch test, and this is the batch films",
            "out/{batch}/report",
        )
    assert callsheet(made, "reconcile", *films).returncode == 2
    assert (spent_at(made), files_of(made.folder / "out")) == (spent, before)
    assert callsheet(made, "run", *films, "--set", "report.url=out/films").returncode == 0
    assert spent_at(made) == spent + Decimal("0.0045"), "both have their media in one folder"
    replace_ledger(made, (made.folder / "backup.db").read_bytes())
    assert callsheet(made, "run").returncode == 2
    assert spent_at(made) == spent + Decimal("0.0045")


def test_a_batch_has_its_place_from_its_first_purchase_on(project: Make) -> None:
    """A run that is killed before it has written a report has taken its places all the same."""
    made = project([row("vase")])
    assert callsheet(made, "run").returncode == 0
    (made.folder / "out/report/report.json").unlink()
    films = ["--set", "batch=films"]
    for command in ("run", "quote"):
        refused = callsheet(made, command, *films)
        test_commands.refused(refused, "is of the batch test, and this is the batch films")
    settings = load(made.config, ["batch=films"])

    async def taken() -> None:
        """As of two runs that have both found the place free."""
        async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
            await places.take(ledger, settings)

    with pytest.raises(OtherLedger, match="of the batch test, and this is the batch films"):
        asyncio.run(taken())
    assert callsheet(made, "run").returncode == 0
    assert spent_at(made) == Decimal("0.0015")


def files_of(folder: Path) -> dict[Path, bytes]:
    """What is in the files of a folder; without those that SQLite has beside a ledger."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if not path.name.startswith("ledger.db-")}


def test_where_ledger_and_report_are_lost_the_owner_file_beside_the_media_tells_that_the_batch_is_bought(
    project: Make,
) -> None:
    made = project([row("vase")])
    assert callsheet(made, "run").returncode == 0
    spent = spent_at(made)
    shutil.rmtree(made.folder / "out/report")
    for path in (made.folder / "out").glob("ledger.db*"):
        path.unlink()
    said = "out/media/.callsheet-ledger-test is of another ledger"
    assert said in callsheet(made, "quote").stdout
    test_commands.refused(callsheet(made, "run", "--yes"), said, "--new-ledger")
    assert not list((made.folder / "out").glob("ledger.db*")), "a ledger that may not buy is not made"
    assert spent_at(made) == spent


def test_the_same_config_from_another_folder_begins_no_new_ledger(
    project: Make, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = project([row("vase")])
    made.set(input={"path": str(made.folder / "prompts.csv")})
    assert callsheet(made, "run").returncode == 0
    spent, elsewhere = spent_at(made), tmp_path_factory.mktemp("cron")

    def there(command: str, *words: str) -> subprocess.CompletedProcess[str]:
        return test_commands.callsheet(command, str(made.config), *words, cwd=elsewhere)

    folders = (str(elsewhere / "out/ledger.db"), f"the config lies in another folder, {made.folder}")
    for command in ("run", "collect", "report"):
        test_commands.refused(there(command), *folders, "--new-ledger")
    assert "the config lies in another folder" in there("quote").stdout
    assert not list(elsewhere.rglob("*.db"))
    own = ["--set", f"ledger.url=sqlite:///{made.folder}/out/ledger.db"]
    assert there("run", *own).returncode == 0, "the ledger is named, wherever the run starts"
    assert spent_at(made) == spent
    assert there("run", "--new-ledger").returncode == 0, "a person means it"
    assert there("run").returncode == 0, "it is there now"
    assert spent_at(made) == 2 * spent

    made.set(batch="other", report={"url": "out/other"})
    (elsewhere / "out/ledger.db").unlink()
    (made.folder / "configs").mkdir()
    made.config.rename(made.folder / "configs/batch.yaml")
    words = ["run", "configs/batch.yaml"]
    assert test_commands.callsheet(*words, cwd=made.folder).returncode == 0, (
        "a folder of configs is here, too"
    )
    words[1] = str(made.folder / words[1])
    test_commands.refused(test_commands.callsheet(*words, cwd=elsewhere), *folders)
    inside = test_commands.callsheet("run", "batch.yaml", cwd=made.folder / "configs")
    owner_file = f"{made.folder}/out/other/.callsheet-ledger"
    test_commands.refused(inside, f"{owner_file} is of another one: it buys the batch other")
    assert not list((made.folder / "configs").rglob("*.db"))


@pytest.mark.parametrize(("where", "shared"), [("disk", "report and media"), ("s3", "media")])
def test_of_two_ledgers_that_buy_one_batch_at_the_same_moment_one_buys_nothing(
    project: Make,
    request: pytest.FixtureRequest,
    new_database: Callable[[], str],
    where: str,
    shared: str,
) -> None:
    """As on two machines; and what has the first one's id goes on, wherever it is moved or restored."""
    made = project([row("vase"), row("bowl")])
    environment, media = {}, str(made.folder / "media")
    if where == "s3":
        server: s3_server.Server = request.getfixturevalue("s3")
        environment, media = server.environment(), f"s3://{server.bucket}/{made.folder.name}-{shared[:6]}"
    made.set(storage={"url": f"{media}/files"})

    def settings(ledger: str, name: str) -> list[str]:
        report = f"{media}/report" if shared != "media" else str(made.folder / name / "report")
        return ["--set", f"ledger.url={ledger}", "--set", f"report.url={report}"]

    ledgers = (f"sqlite:///{made.folder}/one.db", new_database())
    machines = [settings(ledger, f"machine-{n}") for n, ledger in enumerate(ledgers)]
    words = ["-m", "callsheet", "run", str(made.config)]
    with ExitStack() as stack:
        logs = [stack.enter_context((made.folder / f"{n}.log").open("w+")) for n in range(2)]
        runs = [
            stack.enter_context(
                forks().start(*words, *machine, cwd=made.folder, env=os.environ | environment, stderr=log)
            )
            for machine, log in zip(machines, logs, strict=True)
        ]
        codes = [run.wait() for run in runs]
        said = [log.seek(0) or log.read() for log in logs]
    assert sorted(codes) == [0, 2], said
    assert spent_at(made) == Decimal("0.0030")
    winner, loser = codes.index(0), codes.index(2)
    for text in (said[loser], run_in(made, *machines[loser], **environment).stderr):
        assert "another ledger" in text
        assert "--new-ledger" in text
    assert run_in(made, *machines[winner], **environment).returncode == 0

    to = f"sqlite:///{made.folder}/moved.db" if winner else new_database()
    move = ("ledger", "move", str(made.config), *machines[winner], "--to", to)
    assert test_commands.callsheet(*move, cwd=made.folder, **environment).returncode == 0
    moved = settings(to, f"machine-{winner}")
    made.rows(row("vase"), row("bowl"), row("cup"))
    assert run_in(made, *moved, **environment).returncode == 0
    assert spent_at(made) == Decimal("0.0045")
    assert run_in(made, *machines[loser], "--new-ledger", **environment).returncode == 0
    assert spent_at(made) == Decimal("0.0090"), "it was said that it buys again"
    assert run_in(made, *moved, **environment).returncode == 2, "and the places are the other's now"


def run_in(made: Project, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return test_commands.callsheet("run", str(made.config), *words, cwd=made.folder, **environment)


def test_a_storage_whose_disk_is_not_mounted_stops_the_buying_until_it_is_there_or_a_person_means_it(
    project: Make,
) -> None:
    made = project([row("vase"), row("bowl")])
    disk, aside = made.folder / "out/media", made.folder / "aside"
    assert callsheet(made, "run").returncode == 0
    spent = spent_at(made)
    made.rows(row("vase"), row("bowl"), row("cup"))
    disk.rename(aside)
    for is_empty_folder in (False, True):
        if is_empty_folder:
            disk.mkdir()
        done = callsheet(made, "run", "--json")
        assert (done.returncode, json.loads(done.stdout)["stop_reason"]) == (4, "storage"), done.stderr
        ways_on = ("out/media is not the place", "mount it", "--new-place")
        told = " ".join(callsheet(made, "run").stdout.split())
        assert [words for words in ways_on if words not in told] == [], told
        assert spent_at(made) == spent
        assert not disk.exists() or not list(disk.rglob("*")), "nothing is written where the disk belongs"
    made.set(batch="second", report={"url": "out/second"})
    assert callsheet(made, "run").returncode == 4, "the ledger knows the place of the other batch, too"
    made.set(batch="test", report={"url": "out/report"})

    disk.rmdir()
    aside.rename(disk)
    assert callsheet(made, "run").returncode == 0
    assert spent_at(made) == Decimal("1.5") * spent
    (disk / ".callsheet-ledger-test").unlink()
    made.rows(row("vase"), row("jug"))
    assert callsheet(made, "run").returncode == 0, "its files are there: only the owner file is gone"
    shutil.rmtree(disk)
    made.rows(row("pot"))
    assert callsheet(made, "run").returncode == 4
    assert callsheet(made, "run", "--new-place").returncode == 0
    made.rows(row("jar"))
    assert callsheet(made, "run").returncode == 0, "it is the place now"


@pytest.mark.parametrize("is_empty_folder", [False, True])
def test_what_is_paid_for_waits_in_the_spool_while_the_disk_is_not_mounted(
    project: Make, is_empty_folder: bool
) -> None:
    made = project([row("vase"), row("film", model="dailies-1", duration=1)], video_seconds=3600)
    made.set(poll={"interval": 0.1, "timeout": 0.1})
    assert callsheet(made, "run").returncode == 3, "the video is not done"
    disk, aside = made.folder / "out/media", made.folder / "aside"
    disk.rename(aside)
    if is_empty_folder:
        disk.mkdir()
    finish_videos(made.backlot.service)
    made.backlot.service.faults = asked = Observed()
    made.rows(row("vase"), row("film", model="dailies-1", duration=1), row("cup"))
    for command, code in (("collect", 3), ("run", 4)):
        done = callsheet(made, command)
        told = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == code, told
        assert "out/media is not the place" in told
        assert "out/report/spool" in told
        assert not disk.exists() or not list(disk.rglob("*")), "nothing is written where the disk belongs"
        assert len(list((made.folder / "out/report/spool").iterdir())) == 1

    if is_empty_folder:
        disk.rmdir()
    aside.rename(disk)
    assert callsheet(made, "collect").returncode == 0
    assert len(list((disk / "test").iterdir())) == 2
    assert asked.prompts["downloads"] == ["a film"], "it is downloaded once"


def test_an_export_of_another_ledger_is_left_alone(project: Make) -> None:
    made = project([row("vase")])
    assert callsheet(made, "run").returncode == 0
    words = ["--to", "out/export", "--as", "imagefolder"]
    assert callsheet(made, "export", *words).returncode == 0
    files = {path: path.read_bytes() for path in (made.folder / "out/export").rglob("*") if path.is_file()}
    other = ["ledger.url=sqlite:///out/new.db", "report.url=out/new", "storage.url=out/new"]
    other = [word for setting in other for word in ("--set", setting)]
    assert callsheet(made, "run", *other).returncode == 0
    refused = callsheet(made, "export", *words, *other)
    assert refused.returncode == 2
    assert "another ledger" in refused.stderr
    assert files == {path: path.read_bytes() for path in files}
    assert callsheet(made, "ledger", "backup", "--to", "copy.db").returncode == 0
    assert callsheet(made, "export", *words, "--set", "ledger.url=sqlite:///copy.db").returncode == 0


def test_a_backup_goes_to_a_file_of_this_machine_and_to_no_address(project: Make) -> None:
    """`--to s3://bucket/copy.db` made a folder `s3:` here, and said that the ledger was backed up."""
    made = project([row("vase")])
    assert callsheet(made, "run").returncode == 0
    before = sorted(made.folder.iterdir())
    for place in ("s3://bucket/copy.db", "sqlite:///copy.db", ""):
        refused = callsheet(made, "ledger", "backup", "--to", place)
        assert refused.returncode == 2
        assert "--to" in refused.stderr
        assert "is not a file of this machine" in refused.stderr
    assert sorted(made.folder.iterdir()) == before


def spent_at(made: Project) -> Decimal:
    return made.backlot.service.workspaces["default"].spent


def replace_ledger(made: Project, content: bytes) -> None:
    """Puts another ledger in the place of the project's, as a person who restores a backup does."""
    for path in (made.folder / "out").glob("ledger.db*"):
        path.unlink()
    (made.folder / "out/ledger.db").write_bytes(content)


IMPATIENT = """
from callsheet.cli.main import main
from tests.ledger.waits import set_waits
set_waits(busy=0.2)
main()
"""


def kill_with_an_answer_in_the_journal(made: Project) -> Path:
    """A run is killed when the service has answered, and its ledger could not be written; its journal."""
    spool = made.folder / "out/report/spool"
    words = ("-c", IMPATIENT, "run", "batch.yaml", "--set", "stop_after=100")
    with (
        (made.folder / "run.log").open("w") as log,
        forks().start(*words, cwd=made.folder, env=dict(os.environ), stdout=log, stderr=log) as run,
    ):
        wait_until(lambda: sent(made), "the run has sent nothing")
        with closing(sqlite3.connect(made.folder / "out/ledger.db", isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            wait_until(lambda: list(spool.glob("answers-*")), "the answer is not in the journal")
            run.kill()
            run.wait()
    [path] = spool.glob("answers-*")
    return path


def sent(made: Project) -> bool:
    with closing(sqlite3.connect(made.folder / "out/ledger.db")) as database:
        return bool(database.execute("SELECT 1 FROM attempts WHERE state = 'submitting'").fetchall())


@pytest.fixture
def restored(project: Make) -> tuple[Project, Path]:
    """A ledger restored from a backup that is older than its last run, which was killed; and its journal."""
    made = project([row("cup")], image_seconds=1.5)
    assert callsheet(made, "run").returncode == 0
    assert callsheet(made, "ledger", "backup", "--to", "backup.db").returncode == 0
    made.rows(row("cup"), row("vase"))
    journal = kill_with_an_answer_in_the_journal(made)
    replace_ledger(made, (made.folder / "backup.db").read_bytes())
    assert spent_at(made) == Decimal("0.0030")
    return made, journal


def test_a_restored_ledger_takes_up_what_its_last_run_had_paid_for(restored: tuple[Project, Path]) -> None:
    made, journal = restored
    assert callsheet(made, "run").returncode == 0
    assert spent_at(made) == Decimal("0.0030")
    assert not journal.exists()
    report = made.report()
    assert (report["stored"], report["spent"], report["submissions"]) == (2, "0.0030", 0)
    costs = made.costs()
    assert costs["row_id"].to_list() == ["cup", "vase"]
    assert costs["quoted"].to_list() == [Decimal("0.0015")] * 2


def test_a_restored_ledger_buys_nothing_before_it_has_taken_up_what_was_paid_for(
    restored: tuple[Project, Path],
) -> None:
    made, journal = restored
    made.rows(row("cup"), row("vase", prompt="another vase"))
    refused = callsheet(made, "run")
    assert refused.returncode == 2
    for words in (journal.name, "1 answer paid for", "row vase", "Restore the newer ledger", "move it away"):
        assert words in refused.stderr
    assert spent_at(made) == Decimal("0.0030")
    assert journal.exists()
    assert callsheet(made, "collect").returncode == 0, "by the plan that was bought last"
    assert not journal.exists()
    assert callsheet(made, "run").returncode == 0
    assert spent_at(made) == Decimal("0.0045")
