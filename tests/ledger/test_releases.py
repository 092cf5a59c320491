"""What a release has left on a machine is opened by this Callsheet, which says the same of it, and buys on.

`tests/data/make_release.py` has made the files of each release.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
import yaml
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from backlot.server import Backlot
from callsheet.config.load import load
from callsheet.config.settings import Budget
from callsheet.ledger import gate, leases, words
from callsheet.ledger.databases import open_engine
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.tables import SCHEMA_VERSION, metadata
from callsheet.ledger.words import Decision, Place
from callsheet.present.reasons import why
from callsheet.steps.approve import new_word
from callsheet.steps.batch import generate
from tests.cli.test_commands import callsheet, refused
from tests.cli.test_rows import printed
from tests.data.make_release import said
from tests.ledger.test_migrations import about, table
from tests.ledger.test_opening import execute
from tests.servers.backlots import Observed

RELEASES = Path(__file__).parents[1] / "data/releases"
LEFT = [
    (release.name, database)
    for release in sorted(RELEASES.iterdir())
    for database in ("sqlite", "postgresql")
]
BEFORE = "before 0.1.0"
"""The same as 0.1.0 has left, with the schema of the ledger that was there before."""


@pytest.fixture(params=[*LEFT, (BEFORE, "sqlite"), (BEFORE, "postgresql")], ids=" in ".join)
def left(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a release has left, in the working directory."""
    release, database = request.param
    folder = tmp_path / "left"
    shutil.copytree(RELEASES / ("0.1.0" if release == BEFORE else release), folder)
    url = f"sqlite:///{folder}/ledger.db"
    if database == "postgresql":
        make: Callable[[], str] = request.getfixturevalue("new_database")
        url = make()
        plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain) as connection:
            connection.execute((folder / "ledger.sql").read_bytes())
        config = yaml.safe_load((folder / "batch.yaml").read_text())
        (folder / "batch.yaml").write_text(yaml.safe_dump(config | {"ledger": {"url": url}}))
        (folder / "ledger.db").unlink()
    for answers in (folder / "report/spool").glob("answers-*.jsonl"):
        # Its service is gone; at the port that it had, a server of another test may answer.
        answers.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9", answers.read_text()))
    if release == BEFORE:
        be_15(url)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CALLSHEET_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CALLSHEET_API_KEY", "sk_backlot")
    return folder


def be_15(url: str) -> None:
    """Makes a ledger of 0.1.0 one of schema 15, which was there before."""
    statements = ("ALTER TABLE about DROP COLUMN needs", "UPDATE about SET schema_version = 15")
    execute(url, *statements, "DROP INDEX marks_of_batch", "DROP INDEX marks_of_file")


def states(folder: Path) -> dict[str, list[str]]:
    """By row, the states of its attempts."""
    told = said(folder, printed)["show"]
    return {row: [attempt["state"] for attempt in told[row]["attempts"]] for row in told}


def test_the_commands_say_of_it_what_that_release_said(left: Path) -> None:
    before = in_doubt_at_once(json.loads((left / "said.json").read_text()))
    refused(callsheet("status", "batch.yaml", cwd=left), "older Callsheet", "callsheet ledger upgrade CONFIG")
    upgraded = json.loads(printed("ledger", "upgrade", "batch.yaml", "--json"))
    assert upgraded == {"upgraded": True, "ledger_version": SCHEMA_VERSION}
    assert "has schema" in printed("ledger", "upgrade", "batch.yaml")
    now: dict[str, Any] = said(left, printed)
    assert before["status"].pop("ledger_version") <= now["status"].pop("ledger_version") == SCHEMA_VERSION
    for name, value in before.items():  # a newer one may say more
        assert with_same_keys(now[name], value) == value


def in_doubt_at_once(said: dict[str, Any]) -> dict[str, Any]:
    """What 0.1.0 has said, but that what a dead run had on the wire is in doubt at once."""
    said["status"] |= {"submitting": 0, "in_doubt": 3, "in_doubt_exposure": "0.0045"}
    costs = [row for row in said["costs"] if row["row_id"] == "answered"]
    for told in (*said["show"]["answered"]["attempts"], *costs):
        told |= {"state": "in_doubt", "error_code": "in_doubt", "error_message": leases.NO_ANSWER}
        del told["finished_at"]
    return said


def with_same_keys(now: Any, before: Any) -> Any:
    """What is said now, without what the release could not say yet."""
    if isinstance(now, dict) and isinstance(before, dict):
        return {key: with_same_keys(now[key], before[key]) for key in before if key in now}
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        return [with_same_keys(*pair) for pair in zip(now, before, strict=True)]
    return now


@pytest.mark.parametrize("left", LEFT, indirect=True, ids=" in ".join)
def test_an_open_question_and_what_was_approved_go_on_as_words(left: Path) -> None:
    """The question of a flow run that was suspended is answered by the newer Callsheet."""
    url = url_of(left)
    copied = "question, plan, jobs, quoted, at_most, rates, charges, part, asked_at"
    execute(
        url,
        f"INSERT INTO approvals (id, batch, flow_run, {copied}) SELECT 'open', 'shots', 'flow', {copied} "
        "FROM approvals WHERE decision = 'approved' AND part = ''",
    )

    async def go_on() -> None:
        async with await Ledger.open(url, "shots", flow_run="flow") as ledger:
            asked = await ledger.read(lambda connection, _: words.last_of(connection, "flow"))
            assert asked and asked.decision is None
            [own, part] = [word for word in await ledger.read(words.of_batch) if word.is_yes]
            assert (own.shown.keys, part.shown.keys) == (None, ()), "of a part nobody knows which jobs it was"
            # Of 0.0215 were 0.0185 used, and others had used 0.0125.
            assert (own.shown.sent_with_price, own.up_to) == (Decimal("0.0125"), Decimal("0.0340"))
            yes = replace(asked, decision=Decision.APPROVED, decided_at=asked.asked_at, place=Place.UI)
            await ledger.write(gate.answer, ledger.buyer(Budget()), yes)
            shown = replace(asked.shown, jobs=1, quoted=Decimal("0.0015"), at_most=Decimal("0.0015"))
            asks = ledger.buyer(Budget(approve_above=Decimal(0)), Decimal(100))
            entered = await ledger.write(gate.let_begin, asks, shown, new_word(ledger), in_words=why)
            assert entered.is_yes, "the same plan, and no more to pay"

    asyncio.run(go_on())


@pytest.mark.parametrize("left", LEFT, indirect=True, ids=" in ".join)
def test_decisions_and_what_an_ended_run_left_on_the_wire_are_told_apart_from_then_on(left: Path) -> None:
    url = url_of(left)
    execute(url, "UPDATE attempts SET error_code = 'not_charged' WHERE row_id = 'refused'")  # by the service
    execute(url, "UPDATE runs SET ended_at = lease_until")
    printed("ledger", "upgrade", "batch.yaml")
    kept = {(row["row_id"], row["attempt"]): row for row in table(url, "attempts")}
    told = [(kept[row, 1]["error_code"], kept[row, 1]["settled"]) for row in ("charged", "free", "refused")]
    assert told == [("in_doubt", "charged"), ("in_doubt", "not_charged"), ("not_charged", None)]
    status = json.loads(printed("status", "batch.yaml", "--json"))
    assert (status["submitting"], status["in_doubt"], status["in_doubt_exposure"]) == (0, 3, "0.0045")


def test_its_ledger_is_upgraded_to_the_schema_of_a_new_one(left: Path) -> None:
    engine = open_engine(url_of(left))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_a_run_goes_on_from_it_and_pays_for_nothing_twice(
    left: Path,
    impatient: None,
    start_backlot: Callable[..., Backlot],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its service is at another address, and does not know what the one of that time has sold."""
    backlot = start_backlot()
    backlot.service.faults = asked = Observed()
    monkeypatch.setenv("CALLSHEET_BASE_URL", backlot.base_url)
    first = callsheet("run", "batch.yaml", cwd=left)
    refused(first, "was upgraded from schema 1", "ledger service-moved")
    assert about(url_of(left))[0] == SCHEMA_VERSION
    printed("ledger", "service-moved", "batch.yaml")
    settings = load(Path("batch.yaml"), ["poll.timeout=1"])
    assert asyncio.run(generate(settings, approved=False)).exit_code == 3
    assert sorted(asked.prompts["images"]) == ["not bought yet", "reserved"]
    ends = states(left)
    assert ends.pop("slow")[0] in ("pending", "in_doubt"), "it was accepted; the service does not know it now"
    assert ends == {
        **{row: ["stored"] for row in ("vase", "bowl", "cup", "jug", "clip", "reserved", "new")},
        "spooled": ["stored"],  # its file was in the spool
        "answered": ["generated"],  # its answer was in the journal; nobody has its file any more
        "doubt": ["in_doubt"],
        "free": ["failed", "in_doubt"],
        "refused": ["failed"],
        "charged": ["lost"],
        "lost": ["lost"],
    }
    assert not list((left / "report/spool").iterdir())


def url_of(folder: Path) -> str:
    return str(yaml.safe_load((folder / "batch.yaml").read_text())["ledger"]["url"])
