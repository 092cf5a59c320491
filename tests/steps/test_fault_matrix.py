"""Every fault of the backlot, on images and videos, once and again and again: one run, one end for each.

The faults of a job's own requests are all here (`endpoint` images, videos, status, downloads); the others
meet a whole run and not a job. Each rule matches the prompts of its own jobs. A job's line in the matrix says
the state that it ends in and what the service charges for it; the two runs then agree to the cent.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl
import psutil
import pytest
import yaml

from backlot.faults import AnyRule, Faults
from callsheet.ledger import approvals
from tests.cli.test_commands import CALLSHEET
from tests.conftest import Project
from tests.steps.test_stopping import attempts

ROWS = {
    "image": {"model": "sketch-1", "aspect_ratio": "1:1"},
    "video": {"model": "dailies-1", "duration": 1},
}
PRICE = {"image": Decimal("0.0015"), "video": Decimal("0.0080")}
EXTRA = Decimal("0.0010")  # so little that all of them together do not stop the buying
ERRORS: dict[str, dict[str, Any]] = {
    "500": {"do": "error", "status": 500},
    "502": {"do": "error", "status": 502},
    "503": {"do": "error", "status": 503},
    "window": {"do": "rate_limit", "kind": "window"},
    "lanes": {"do": "rate_limit", "kind": "concurrency"},
    "drop-before": {"do": "drop", "when": "before_charging"},
    "drop-after": {"do": "drop", "when": "after_charging"},
}
DELAY = {"do": "delay", "seconds": 0.2}
EXTRA_FIELDS = {"do": "extra_fields"}
NULL_SIZE = {"do": "null_size"}
EXPIRE = {"do": "expire_url"}
SURCHARGE = {"do": "surcharge", "amount": str(EXTRA)}


@dataclass(frozen=True)
class Cell:
    """A fault at an endpoint: the state it ends in, and whether the service charges for it.

    Attributes:
        nth: which of a job's requests it strikes; None for every one.
        then: the state after another run, with the fault gone.
    """

    type: str
    endpoint: str
    name: str
    nth: int | list[int] | None
    fault: dict[str, Any]
    state: str
    charged: bool = True
    then: str = ""

    @property
    def id(self) -> str:
        """The id of its job's row."""
        return f"{self.type}.{self.endpoint}.{self.name}.{'first' if self.nth == 1 else 'repeated'}"

    @property
    def cost(self) -> Decimal:
        """What the service charges for one job."""
        extra = EXTRA if self.fault == SURCHARGE else Decimal(0)
        return PRICE[self.type] + extra if self.charged else Decimal(0)

    def rule(self) -> dict[str, Any]:
        counted = {} if self.nth is None else {"nth": self.nth}
        return {"endpoint": self.endpoint, "prompt": f"{self.id}.", **counted, **self.fault}


def submissions(kind: str) -> Iterator[Cell]:
    def cell(name: str, nth: Any, state: str, **more: Any) -> Cell:
        return Cell(kind, f"{kind}s", name, nth, OTHERS.get(name) or ERRORS[name], state, **more)

    for name in ("500", "503"):
        yield cell(name, 1, "stored")
        yield cell(name, None, "failed", charged=False)
    yield cell("window", 1, "stored")
    yield cell("window", [1, 2], "stored")
    yield cell("lanes", 1, "stored")
    yield cell("lanes", [1, 2], "stored")
    for nth in (1, None):
        yield cell("502", nth, "in_doubt", charged=False)
        yield cell("drop-before", nth, "in_doubt", charged=False)
        yield cell("drop-after", nth, "in_doubt")
        for name in ("delay", "surcharge", "extra-fields", "blank", "wrong-size"):
            yield cell(name, nth, "stored")
        if kind == "image":
            yield cell("null-size", nth, "stored")
            yield cell("expire-url", nth, "generated")
            yield cell("deleted", nth, "lost")
        else:
            yield cell("fail-video", nth, "failed", charged=False)
            yield cell("never-finish", nth, "pending", charged=False, then="pending")


OTHERS = {
    "delay": DELAY,
    "surcharge": SURCHARGE,
    "extra-fields": EXTRA_FIELDS,
    "blank": {"do": "blank"},
    "wrong-size": {"do": "wrong_size"},
    "null-size": NULL_SIZE,
    "expire-url": EXPIRE,
    "deleted": {**EXPIRE, "deleted": True},
    "fail-video": {"do": "fail_video", "code": "server_error"},
    "never-finish": {"do": "never_finish"},
}


def polls() -> Iterator[Cell]:
    for name, fault in ERRORS.items():
        if name != "window":  # that is waited for as long as the service says, a minute perhaps
            yield Cell("video", "status", name, 1, fault, "stored")
        yield Cell("video", "status", name, None, fault, "pending", then="stored")
    for name in ("delay", "extra-fields", "null-size"):
        for nth in (1, None):
            yield Cell("video", "status", name, nth, OTHERS[name], "stored")
    yield Cell("video", "status", "expire-url", 1, EXPIRE, "stored")
    yield Cell("video", "status", "expire-url", None, EXPIRE, "generated", then="stored")


def downloads(kind: str) -> Iterator[Cell]:
    for name, fault in (
        ERRORS | {"truncate": {"do": "truncate"}, "wrong-type": {"do": "wrong_type"}}
    ).items():
        yield Cell(kind, "downloads", name, 1, fault, "stored")
        yield Cell(kind, "downloads", name, None, fault, "generated", then="stored")
    for nth in (1, None):
        yield Cell(kind, "downloads", "delay", nth, DELAY, "stored")


PLAIN = [f"image.plain.{n}" for n in range(40)]
CELLS = [*submissions("image"), *submissions("video"), *polls(), *downloads("image"), *downloads("video")]


def rows() -> list[dict[str, Any]]:
    """The batch, in an order in which nobody waits for a lane.

    Full lanes come when many are open, because each closes one for a minute; videos that are never done come
    last, because each keeps its own.
    """

    def of(*cells: Cell) -> list[dict[str, Any]]:
        return [{"id": cell.id, "prompt": f"{cell.id}.", **ROWS[cell.type]} for cell in cells]

    lanes = [cell for cell in CELLS if cell.name == "lanes" and cell.state == "stored"]
    stuck = [cell for cell in CELLS if cell.state == "pending"]
    plain = [{"id": name, "prompt": name, **ROWS["image"]} for name in PLAIN]
    others = (cell for cell in CELLS if cell not in lanes and cell not in stuck)
    return [*of(*others), *of(*lanes), *plain, *of(*stuck)]


def test_the_matrix_has_every_fault_of_the_backlot() -> None:
    kinds = {kind.model_fields["do"].annotation.__args__[0] for kind in AnyRule.__origin__.__args__}
    assert {cell.fault["do"] for cell in CELLS} == kinds
    assert len({cell.id for cell in CELLS}) == len(CELLS)


def test_every_fault_has_its_one_end_and_the_books_agree_to_the_cent(
    project: Callable[..., Project],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = tmp_path_factory.mktemp("faults") / "faults.yaml"
    faults.write_text(yaml.safe_dump({"rules": [cell.rule() for cell in CELLS]}))
    made = project(
        rows(),
        faults=faults,
        image_seconds=0.3,
        video_seconds=0,
        window=1,
        image_rpm=10**6,
        video_rpm=10**6,
        concurrency=1000,
    )
    # Doubts that come one after another are no news here, nor are charges above the quotes.
    monkeypatch.setattr(approvals, "DEARER", len(CELLS))
    made.set(poll={"timeout": 4}, stop_after=len(CELLS), budget={"limit": "100"})
    first = made.run()
    ends = {cell.id: cell.state for cell in CELLS} | dict.fromkeys(PLAIN, "stored")
    assert states(made) == ends
    assert first.jobs == len(ends)
    compare(made)

    made.backlot.service.faults = Faults()  # the service is well again
    second = made.run()
    assert second.submissions == 0, "nothing is bought again"
    then = {cell.id: cell.then for cell in CELLS if cell.then}
    assert states(made) == ends | then
    compare(made)


def states(made: Project) -> dict[str, str]:
    return dict(made.costs().select("row_id", "state").iter_rows())


def compare(made: Project) -> None:
    """The ledger's cost of each job is what the service charged; and both add up to the service's books."""
    service = made.backlot.service
    charges = {each.recipe.prompt: each for each in service.store.select("workspace = ?", "default")}
    assert len(charges) == sum(1 for _ in service.store.select("1"))
    expected = {f"{cell.id}.": cell.cost for cell in CELLS}
    expected |= dict.fromkeys(PLAIN, PRICE["image"])
    charged = {prompt: each.cost for prompt, each in charges.items() if each.state == "completed"}
    assert charged == {prompt: cost for prompt, cost in expected.items() if cost}
    unknown = Decimal(0)
    for row in made.costs().iter_rows(named=True):
        cost = expected.get(f"{row['row_id']}.", PRICE["image"])
        if row["state"] in ("in_doubt", "pending"):
            assert row["cost"] is None
            assert cost in (0, row["quoted"])
            unknown += cost
        else:
            assert row["cost"] == cost, row
    spent = service.workspaces["default"].spent
    assert made.costs()["cost"].sum() + unknown == sum(charged.values()) == spent


# ---- the long haul: 20,000 jobs, faults of every kind on 5 % of all requests; flat memory, and equal books


JOBS = 20_000
PROMPTS = 400  # different pictures: what is under test is the run, not the drawing
STRUCK = 0.05
IMAGES = [
    {"do": "error", "status": 500},
    {"do": "error", "status": 502},
    {"do": "error", "status": 503},
    {"do": "rate_limit", "kind": "window"},
    {"do": "rate_limit", "kind": "concurrency"},
    {"do": "delay", "seconds": 0.2},
    {"do": "drop", "when": "before_charging"},
    {"do": "drop", "when": "after_charging"},
    {"do": "expire_url", "deleted": True},
    {"do": "surcharge", "amount": "0.0100"},
    {"do": "extra_fields"},
    {"do": "null_size"},
]
DOWNLOADS = [
    *({"do": "error", "status": status} for status in (500, 502, 503)),
    *({"do": "rate_limit", "kind": kind} for kind in ("window", "concurrency")),
    *({"do": "drop", "when": when} for when in ("before_charging", "after_charging")),
    {"do": "delay", "seconds": 0.2},
    {"do": "truncate"},
    {"do": "wrong_type"},
]


@pytest.mark.soak
def test_20000_jobs_with_5_percent_of_all_faults(project: Callable[..., Project]) -> None:
    rules = [
        {"endpoint": endpoint, "probability": STRUCK / len(faults), **fault}
        for endpoint, faults in (("images", IMAGES), ("downloads", DOWNLOADS))
        for fault in faults
    ]
    rows = [
        {"id": f"s{n}", "prompt": f"prompt {n % PROMPTS}", "model": "sketch-1", "aspect_ratio": "1:1"}
        for n in range(JOBS)
    ]
    limits = {"window": 1, "image_rpm": 10**6, "concurrency": 64}
    made = project(rows, faults={"seed": 5, "rules": rules}, media_ttl=86_400, **limits)
    made.set(budget={"limit": "50.00"})  # otherwise the surcharges stop it at what was quoted
    command = [*CALLSHEET, "run", str(made.config), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        # Near the end, and not at it: what the report and its plots take is no growth.
        quarter, end = memory_at(run, made, JOBS // 4), memory_at(run, made, JOBS * 9 // 10)
        printed, _ = run.communicate()
    assert run.returncode == 3
    assert end <= 1.2 * quarter
    compare_books(made, json.loads(printed))


def memory_at(run: subprocess.Popen[bytes], made: Project, jobs: int) -> int:
    """The run's resident bytes when so many jobs have ended."""
    while attempts(made, "stored", "failed", "in_doubt", "lost") < jobs:
        assert run.poll() is None, "it has ended before"
        time.sleep(0.5)  # a sample
    return int(psutil.Process(run.pid).memory_info().rss)


def compare_books(made: Project, summary: dict[str, Any]) -> None:
    """The ledger, the store and the service's books agree, job by job and to the cent."""
    assert sum(summary[name] for name in ("stored", "in_doubt", "lost", "failed")) == JOBS
    service = {one.id: one.cost for one in made.sold}
    costs = made.costs()
    assert costs.height == JOBS == costs["job_key"].n_unique()
    known = {row["generation_id"]: row["cost"] for row in costs.iter_rows(named=True) if row["generation_id"]}
    assert all(service[name] == cost for name, cost in known.items())
    unknown = Counter(service[name] for name in service.keys() - known.keys())
    assert unknown.total() <= costs.filter(pl.col("state") == "in_doubt").height
    surplus = sum((cost * count for cost, count in unknown.items()), Decimal(0))
    assert Decimal(str(summary["spent"])) + surplus == made.charged == sum(service.values())
    manifest = made.manifest()
    stored = {str(path.relative_to(made.folder)) for path in made.folder.glob("out/media/test/*")}
    assert stored == set(manifest["url"])
    assert manifest.height == summary["stored"]
    assert not list(made.folder.glob("out/report/spool/*"))
