"""One small batch with everything in it that can happen, for runs that are killed; and its three records.

The records are the ledger, the storage, and the service's own. They are read here without Callsheet's code,
so that one mistake cannot be on both sides.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import psycopg
import yaml
from psycopg.rows import dict_row

from tests.servers.forks import ROOT, forks
from tests.waiting import wait_until

LANES = 4
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"model": "dailies-1", "duration": 1}
MICRO = Decimal(1_000_000)

# id: the row, and the state it ends in when nothing crashes.
ROWS: dict[str, tuple[dict[str, Any], str]] = {
    **{f"image-{n}": ({"prompt": f"image-{n}", **IMAGE}, "stored") for n in range(6)},
    **{f"video-{n}": ({"prompt": f"video-{n}", **VIDEO}, "stored") for n in range(2)},
    "sour": ({"prompt": "sour", **IMAGE}, "stored"),
    "refused": ({"prompt": "refused forbidden-test-word", **IMAGE}, "failed"),
    "cut": ({"prompt": "cut", **IMAGE}, "in_doubt"),
    "gone": ({"prompt": "gone", **IMAGE}, "lost"),
    "taken": ({"prompt": "taken", **IMAGE}, "stored"),
    "torn": ({"prompt": "torn", **IMAGE}, "stored"),
    "early": ({"prompt": "early", **VIDEO}, "stored"),
    "late": ({"prompt": "late", **VIDEO}, "stored"),
    "spoiled": ({"prompt": "spoiled spoiled-in-the-lab", **VIDEO}, "failed"),
}
RULES = [
    {"prompt": "sour", "endpoint": "images", "nth": 1, "do": "error", "status": 500},
    {"prompt": "cut", "endpoint": "images", "do": "drop", "when": "after_charging"},
    {"prompt": "gone", "endpoint": "images", "do": "expire_url", "deleted": True},
    {"prompt": "torn", "endpoint": "downloads", "nth": 1, "do": "truncate"},
    # Whether the first poll or the second finds it done, it gets a URL that has expired.
    {"prompt": "early", "endpoint": "status", "nth": [1, 2], "do": "expire_url"},
    {"prompt": "late", "endpoint": "status", "nth": 2, "do": "expire_url"},
]
FOREIGN_FILE = b"somebody else's file"
NEWEST = """
    SELECT attempts.*, media.url, media.sha256, media.bytes, media.stored_at, checks.checked_at
    FROM attempts LEFT JOIN media USING (job_key, attempt)
    LEFT JOIN checks USING (job_key, attempt, "index") WHERE NOT superseded
"""


@dataclass(frozen=True)
class Bought:
    """A generation in the service's records. `cost` is dollars; charged only when `state` is `completed`."""

    id: str
    prompt: str
    state: str
    cost: Decimal


class Service(Protocol):
    """The service's own records."""

    def bought(self) -> list[Bought]:
        """Every generation that was ever accepted, when nothing is in flight any more."""


@dataclass
class KilledBatch:
    """A folder with the batch, a service to buy from, and what the ledger said after each kill.

    `postgresql` is the ledger's address where it is not the SQLite file in the folder.
    """

    folder: Path
    environment: dict[str, str]
    service: Service
    rows: dict[str, tuple[dict[str, Any], str]]
    crashes: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    postgresql: str = ""

    def set_up(self, **sections: Any) -> None:
        """Writes the batch and its config, and puts a foreign file where `taken` is going to be."""
        self.folder.mkdir(parents=True)
        rows = [{"id": name} | row for name, (row, _) in self.rows.items()]
        with (self.folder / "prompts.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(column for row in rows for column in row)))
            writer.writeheader()
            writer.writerows(rows)
        config: dict[str, Any] = {
            "batch": "crash",
            "service": {"base_url": "${CALLSHEET_BASE_URL}"},
            "input": {"path": "prompts.csv"},
            "limits": {"concurrency": LANES},
            "poll": {"interval": 0.1, "timeout": 20},
            "report": {"contact_sheet": 0, "plots": False},  # for looking, and most of a run's work
            "checks": {"duplicate": "off"},  # which takes a while to start
        }
        if "taken" in self.rows:  # otherwise nothing is bought
            sections["ledger"] = {"new": True} | sections.get("ledger", {})
        self.postgresql = sections.get("ledger", {}).get("url", "").replace("+psycopg", "")
        (self.folder / "batch.yaml").write_text(yaml.safe_dump(config | sections))
        if "taken" in self.rows:
            self.foreign_file.parent.mkdir(parents=True)
            self.foreign_file.write_bytes(FOREIGN_FILE)

    @property
    def foreign_file(self) -> Path:
        return self.folder / "out/media/crash/taken-1-0.jpeg"

    @property
    def sqlite(self) -> Path:
        return self.folder / "out/ledger.db"

    def run(self, *, kill_after: float | None = None, **request: Any) -> int:
        """Runs the batch in a forked process; its exit code."""
        code = forked_run(self.folder, request, os.environ | self.environment, kill_after)
        if code == -9:
            if self.postgresql:
                wait_for_backends(self.postgresql)
            self.crashes.append(self.ledger())
        return code

    def known(self) -> dict[str, dict[str, Any]]:
        """What the ledger has, and the answers that only the journal has."""
        known = self.ledger()
        for path in self.folder.rglob("answers-*.jsonl"):
            for answer in map(json.loads, path.read_text().splitlines()):
                row = known[answer["attempt"]["row_id"]]
                row |= {"state": "generated", "generation_id": answer["generation_id"]}
        return known

    def log(self) -> str:
        return (self.folder / "run.log").read_text()

    def ledger(self) -> dict[str, dict[str, Any]]:
        """The ledger's newest attempts with their file, by row id; money in dollars."""
        rows = read_postgresql(self.postgresql) if self.postgresql else read_sqlite(self.sqlite)
        for row in rows:
            for column in ("quoted", "cost"):
                row[column] = None if row[column] is None else row[column] / MICRO
        assert len({row["row_id"] for row in rows}) == len(rows)
        return {row["row_id"]: row for row in rows}

    def stored(self) -> list[str]:
        """The rows that are stored by now."""
        return [name for name, row in self.ledger().items() if row["state"] == "stored"]

    def compare(self) -> None:
        """Asserts that the three records agree, now that the batch has been run to its end."""
        ledger = self.ledger()
        assert ledger.keys() == self.rows.keys()
        self._compare_states(ledger)
        self._compare_store(ledger)
        self._compare_money(ledger)

    def _compare_states(self, ledger: dict[str, dict[str, Any]]) -> None:
        """Every job has its one end, and what was known before a crash is known after it."""
        on_the_wire: set[str] = set()
        for crash in self.crashes:
            sent = {name for name, row in crash.items() if row["state"] == "submitting"}
            assert len(sent) <= LANES, "more was in flight than there are lanes"
            on_the_wire |= sent
            for name, row in crash.items():
                if row["state"] in ("pending", "generated", "stored", "lost", "failed"):
                    assert ledger[name]["state"] == self.rows[name][1], name
                    assert ledger[name]["generation_id"] == row["generation_id"], "bought again"
                if row["state"] == "stored":
                    for column in ("url", "sha256", "stored_at"):
                        assert ledger[name][column] == row[column], "stored again"
        for name, row in ledger.items():
            expected = "in_doubt" if name in on_the_wire else self.rows[name][1]
            assert row["state"] == expected, f"{name}: {row['error_message']}\n{self.log()}"

    def _compare_store(self, ledger: dict[str, dict[str, Any]]) -> None:
        """What the ledger calls stored is there, whole, and nothing else is."""
        stored = {row["url"]: row for row in ledger.values() if row["state"] == "stored"}
        assert len(stored) == sum(row["state"] == "stored" for row in ledger.values())
        root = self.folder / "out/media"
        there = {str(path.relative_to(self.folder)) for path in root.rglob("[!.]*") if path.is_file()}
        if "taken" in self.rows:
            assert self.foreign_file.read_bytes() == FOREIGN_FILE
            there.remove(str(self.foreign_file.relative_to(self.folder)))
        assert there == stored.keys()
        for url, row in stored.items():
            content = (self.folder / url).read_bytes()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (row["bytes"], row["sha256"])
            assert row["checked_at"], "not checked"
        spool = self.folder / "out/crash/report/spool"
        assert not spool.exists() or not list(spool.iterdir()), "the spool keeps what nobody needs"

    def _compare_money(self, ledger: dict[str, dict[str, Any]]) -> None:
        """Each generation is bought once and costs what the ledger says; only doubt may differ."""
        names = {row["prompt"]: name for name, (row, _) in self.rows.items()}
        bought = self.service.bought()
        service = {names[each.prompt]: each for each in bought}
        assert len(service) == len(bought), "the service has sold a job twice"
        doubted = Decimal(0)  # the only money that may be spent without the ledger knowing
        for name, row in ledger.items():
            sold = service.get(name)
            charged = sold.cost if sold and sold.state == "completed" else Decimal(0)
            if row["state"] == "in_doubt":
                assert row["cost"] is None
                assert charged in (0, row["quoted"])
                doubted += charged
            else:
                assert row["cost"] == charged, name
                assert row["generation_id"] == (sold.id if sold else None), name
        spent = sum((row["cost"] or 0 for row in ledger.values()), Decimal(0))
        total = sum((each.cost for each in bought if each.state == "completed"), Decimal(0))
        assert spent + doubted == total


def forked_run(
    folder: Path, request: dict[str, Any], environment: dict[str, str], kill_after: float | None = None
) -> int:
    """Runs a batch in a forked process (`forked_run.py`); its exit code, -9 where it was killed.

    Args:
        request: what happens to it.
        kill_after: it is killed from outside after so many seconds.
    """
    words = ("-m", "tests.crash.forked_run", json.dumps({"folder": str(folder), **request}))
    with (
        (folder / "run.log").open("a") as log,
        forks().start(*words, stdout=log, stderr=log, env=environment, cwd=ROOT) as process,
    ):
        if kill_after is not None:
            time.sleep(kill_after)
            process.kill()
        return process.wait()


def read_sqlite(path: Path) -> list[dict[str, Any]]:
    """The newest attempts with their file; none where a run was killed before there were tables."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'media'").fetchone():
            return []
        return [dict(row) for row in database.execute(NEWEST)]


def read_postgresql(url: str) -> list[dict[str, Any]]:
    """The same from PostgreSQL."""
    with psycopg.connect(url, row_factory=dict_row) as database:
        if not database.execute("SELECT 1 FROM pg_tables WHERE tablename = 'media'").fetchone():
            return []
        return database.execute(NEWEST).fetchall()


def wait_for_backends(url: str) -> None:
    """Waits until the server has ended what a killed client had asked of it: a commit, perhaps."""
    others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(url, autocommit=True) as database:
        wait_until(lambda: not database.execute(others).fetchone(), "a killed client's query still runs")
