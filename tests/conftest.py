"""What tests stand on: real servers on this machine, and a project folder of their own."""

from __future__ import annotations

import asyncio
import csv
import functools
import gc
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partialmethod
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa
import typer.testing
import yaml
from _pytest.unraisableexception import gc_collect_iterations_key

from backlot.server import Backlot
from backlot.settings import Settings as BacklotSettings
from backlot.store import Generation
from callsheet.config import schema
from callsheet.config.load import load
from callsheet.ledger.ledger import Ledger
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.from_rows import quote_batch
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from callsheet.service.client import Client
from callsheet.service.verdicts import Backoff
from callsheet.session import Bounds
from callsheet.steps import batch
from callsheet.steps.connect import connect
from callsheet.watch import WATCHER, LogWatcher
from tests.servers import backlots
from tests.servers import browser as browsers
from tests.servers import s3 as s3_server
from tests.servers.postgres import postgres
from tests.servers.prefect import (
    BEHIND_A_PROXY,
    READY,
    PrefectServer,
    Up,
    build_wheel,
    free_port,
    installed,
    prefect_environment,
    up,
)

QUICK = ("limits", "service", "pricing", "batches", "config", "docs", "servers", "packaging")
"""Folders whose files take a moment each."""

IN_MEMORY = Path("/dev/shm")
ENOUGH = 4 * 2**30
"""Bytes: several times what all tests together have in temporary files."""


def pytest_configure(config: pytest.Config) -> None:
    """Temporary files are in memory, where there is enough: on a disk, tests mostly wait for commits.

    TMPDIR says another place. And at the end garbage is collected once, to hear of what was not closed; by
    itself pytest does it five times.
    """
    config.stash[gc_collect_iterations_key] = 1
    if "TMPDIR" not in os.environ and IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ENOUGH:
        os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Says which tests run in one process, where there are several (`--dist loadgroup`), and in which order.

    All that need the Prefect server do, because one is enough; so do all that need the browser, and the tests
    of any other file.
    The servers' tests come first and quick files last, so that no process is busy when the others have ended.
    """

    def place(item: pytest.Item) -> int:
        for number, server in enumerate(("prefect", "browser")):
            if server in item.fixturenames:
                return number
        return 2 + (item.path.parent.name in QUICK)

    for item in items:
        servers = [name for name in ("prefect", "browser") if name in item.fixturenames]
        group = servers[0] if servers else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What is imported and collected lives to the end: the garbage collector need not look at it.

    Nor at all the rest so often: beside what is frozen it is always new, and each look takes 0.15 s.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 200)


PREFECT = pytest.StashKey[ExitStack]()
"""What ends after the last test that uses the Prefect server, which takes a twentieth of a core when idle."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the Prefect server when no more tests use it."""
    if PREFECT in item.session.stash and (nextitem is None or "prefect" not in nextitem.fixturenames):
        item.session.stash[PREFECT].close()


@pytest.fixture(scope="session")
def the_up(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Up:
    """`callsheet up --backlot --inbox` in a project of `init --project`, in an environment that has the wheel
    alone: a real Prefect server with a database of its own, the deployments, and a worker of their pool.
    """
    folder, port = tmp_path_factory.mktemp("up"), free_port()
    environment = prefect_environment(folder / "prefect", port) | {
        "BACKLOT_PORT": str(free_port()),
        "BACKLOT_STATE": str(folder / "backlot"),
        **BEHIND_A_PROXY,
    }
    stack = request.session.stash[PREFECT] = ExitStack()
    request.addfinalizer(stack.close)
    python, project = installed(folder, build_wheel(folder)), folder / "project"
    init = [python, "-m", "callsheet", "init", "--project", project]
    subprocess.run(init, check=True, capture_output=True)
    options = ("--port", str(port), "--backlot", "--inbox")
    running = stack.enter_context(up(project, *options, python=python, **environment))
    running.until(READY)
    return running


@pytest.fixture(scope="session")
def prefect(request: pytest.FixtureRequest, the_up: Up) -> PrefectServer:
    """The Prefect server of `the_up`; flows that run in this process use it too."""
    return request.session.stash[PREFECT].enter_context(_connected(the_up))


@contextmanager
def _connected(the_up: Up) -> Iterator[PrefectServer]:
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import (
        PREFECT_API_SSL_CERT_FILE,
        PREFECT_API_URL,
        PREFECT_LOGGING_LEVEL,
        temporary_settings,
    )

    names = [name for name in the_up.environment if name.startswith("PREFECT_")]
    environment = os.environ | {name: the_up.environment[name] for name in names}
    server = PrefectServer(the_up.environment["PREFECT_API_URL"], environment)
    authorities = environment["PREFECT_API_SSL_CERT_FILE"]
    here = {
        PREFECT_API_URL: server.api,
        PREFECT_API_SSL_CERT_FILE: authorities,
        PREFECT_LOGGING_LEVEL: "CRITICAL",
    }
    with pytest.MonkeyPatch.context() as patch, temporary_settings(here):
        patch.setenv("PREFECT_API_SSL_CERT_FILE", authorities)  # for what tests start
        yield server
        APILogWorker.drain_all(timeout=10)  # otherwise it waits for the server that is gone


@pytest.fixture(scope="session")
def crew(prefect: PrefectServer) -> PrefectServer:
    """The same, for tests that use its deployments and its worker."""
    return prefect


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.Browser]:
    """Chromium, in which tests open pages of their own."""
    with browsers.browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_server.Server]:
    """A real S3 server with an empty bucket."""
    with s3_server.s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def new_database() -> Iterator[Callable[..., str]]:
    """A real PostgreSQL server: makes an empty database and returns its URL."""
    with postgres() as server:
        yield server.new_database


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new ledger, once in each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    make: Callable[[], str] = request.getfixturevalue("new_database")
    return make()


@pytest.fixture
def start_backlot(tmp_path: Path) -> Iterator[Callable[..., Backlot]]:
    """Starts a backlot with these settings; it stops when the test ends."""
    with ExitStack() as stack:

        def start(**settings: Any) -> Backlot:
            quick = {"port": 0, "image_seconds": 0, "video_seconds": 0.2} | settings
            if isinstance(rules := settings.get("faults"), dict):
                quick["faults"] = tmp_path / "faults.yaml"
                quick["faults"].write_text(yaml.safe_dump(rules))
            return stack.enter_context(backlots.serve(BacklotSettings(**quick)))

        yield start


class Statements(dict[Any, Any]):
    """What SQLAlchemy has compiled, by statement and driver: each engine would do so again."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((key[0].driver, *key[1:]), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__((key[0].driver, *key[1:]), compiled)


@pytest.fixture(scope="session", autouse=True)
def made_once() -> Iterator[None]:
    """What each command and each run makes anew, and never changes, is made once in this process.

    That is a fifth of what most tests take: Typer's commands, the config's schema, and compiled SQL.
    """
    statements = Statements()

    def share(connection: sa.Connection) -> None:
        connection.execution_options(compiled_cache=statements)

    sa.event.listen(sa.Engine, "engine_connect", share)
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((typer.testing, "_get_command"), (schema, "schema_text")):
            patch.setattr(module, name, functools.cache(getattr(module, name)))
        yield
    sa.event.remove(sa.Engine, "engine_connect", share)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backing off begins with a hundredth of a second, also where a command opens its client by itself."""
    backoff = partialmethod(Client.__init__, backoff=Backoff(first=0.01))
    monkeypatch.setattr(Client, "__init__", backoff)


def images(count: int, name: str = "s", **more: Any) -> list[dict[str, Any]]:
    """Rows of so many images with the ids `s0`, `s1` and so on, for 0.0015 USD each."""
    return [{"id": f"{name}{n}", "prompt": f"image {n}", "model": "sketch-1", **more} for n in range(count)]


@dataclass
class Project:
    """A folder with a config and a batch file, and a service to buy from."""

    folder: Path
    backlot: Backlot
    settings: dict[str, Any]
    bounds: Bounds = field(default_factory=lambda: Bounds(plots=0.0))

    @property
    def config(self) -> Path:
        return self.folder / "batch.yaml"

    def rows(self, *rows: dict[str, Any]) -> None:
        """Writes the batch file."""
        columns = dict.fromkeys(name for row in rows for name in row)
        with (self.folder / "prompts.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(columns), restval="")
            writer.writeheader()
            writer.writerows(rows)

    def set(self, **sections: Any) -> None:
        """Changes the config, section by section, and writes it."""
        for name, value in sections.items():
            old = self.settings.get(name)
            self.settings[name] = old | value if isinstance(old, dict) and isinstance(value, dict) else value
        self.config.write_text(yaml.safe_dump(self.settings))

    def at_absolute_paths(self) -> None:
        """For runs that start in another folder."""
        self.set(
            input={"path": str(self.folder / "prompts.csv")},
            storage={"url": str(self.folder / "out/media")},
            ledger={"url": f"sqlite:///{self.folder}/out/ledger.db"},
            report={"url": str(self.folder / "out/report")},
        )

    def run(
        self,
        *overrides: str,
        approved: bool = False,
        choice: Choice = ALL,
        watcher: LogWatcher | None = None,
    ) -> Summary:
        """Runs the batch in this process, without Prefect."""
        settings = load(self.config, overrides)
        steps = batch.Steps(bounds=self.bounds)
        token = WATCHER.set(watcher or WATCHER.get())
        try:
            return asyncio.run(batch.generate(settings, approved=approved, choice=choice, steps=steps))
        finally:
            WATCHER.reset(token)

    def collect(self, *overrides: str) -> Summary:
        """Collects the batch in this process, without Prefect."""
        steps = batch.Steps(bounds=self.bounds)
        return asyncio.run(batch.collect(load(self.config, overrides), steps=steps))

    def quote(self, *overrides: str) -> Quote:
        """What the batch would cost now."""
        settings = load(self.config, overrides)

        async def quote() -> Quote:
            async with await connect(settings) as client:
                return await quote_batch(settings, client)

        return asyncio.run(quote())

    def read(self, query: Callable[..., Any], **values: Any) -> Any:
        """What a query of the batch's ledger says, `marks.files` for instance."""
        settings = load(self.config)

        async def read() -> Any:
            async with await Ledger.open(settings.ledger.url, settings.batch) as ledger:
                return await ledger.read(query, **values)

        return asyncio.run(read())

    @property
    def charged(self) -> Decimal:
        """What the service has charged, by its own books, in dollars."""
        return sum((each.spent for each in self.backlot.service.workspaces.values()), Decimal(0))

    @property
    def sold(self) -> list[Generation]:
        """What the service has accepted, by its own books."""
        return list(self.backlot.service.store.select("1 = ?", 1))

    def manifest(self) -> pl.DataFrame:
        return pl.read_parquet(self.folder / "out/report/manifest.parquet")

    def costs(self) -> pl.DataFrame:
        return pl.read_parquet(self.folder / "out/report/costs.parquet")

    def report(self) -> dict[str, Any]:
        text = (self.folder / "out/report/report.json").read_text()
        return dict(json.loads(text))

    def rejects(self) -> list[dict[str, str]]:
        with (self.folder / "out/report/rejects.csv").open(newline="") as file:
            return list(csv.DictReader(file))


Make = Callable[..., Project]
"""The fixture `project`."""


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_backlot: Callable[..., Backlot], impatient: None
) -> Callable[..., Project]:
    """Makes a project in a folder of its own, with a fresh service (whose settings may be given)."""

    def make(rows: Sequence[dict[str, Any]] = (), **service: Any) -> Project:
        backlot = start_backlot(**service)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("CALLSHEET_API_KEY", backlot.api_key)
        monkeypatch.setenv("CALLSHEET_BASE_URL", backlot.base_url)
        settings = {
            "batch": "test",
            "service": {"base_url": backlot.base_url},
            "input": {"path": "prompts.csv"},
            "poll": {"interval": 0.1},
            # two processes less for each run
            "report": {"url": "out/report", "contact_sheet": 0, "plots": False},
            "checks": {"blank": False, "size": False, "duplicate": False, "delivered": False},
        }
        made = Project(tmp_path, backlot, settings)
        made.set()
        if rows:
            made.rows(*rows)
        return made

    return make
