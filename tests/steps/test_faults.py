"""What goes wrong at the service, and the one state that each job must end in: paid once, never lost."""

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

from backlot.errors import Refused
from backlot.faults import AnyRule, Faults, Matched
from backlot.settings import WorkspaceSettings
from callsheet.ledger import charges
from tests.cli.test_commands import CALLSHEET
from tests.conftest import Make, Project
from tests.servers.backlots import finish_videos
from tests.servers.proxies import Failure, ReverseProxy, http_answer
from tests.steps.test_stopping import attempts

IMAGE = {"id": "job", "prompt": "an image", "model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"id": "job", "prompt": "a video", "model": "dailies-1", "duration": 1}


@pytest.fixture
def faulty(project: Make) -> Make:
    """A project of one job, whose service commits a fault."""

    def make(row: dict[str, Any], *rules: dict[str, Any], **service: Any) -> Project:
        return project([row], faults={"rules": list(rules)}, **service)

    return make


def test_an_image_that_is_answered_later_than_the_config_waits_is_in_doubt(project: Make) -> None:
    """It may be made and charged for by then."""
    made = project([IMAGE], image_seconds=60)
    made.set(service={"timeout": 0.5})
    summary = made.run()
    assert (summary.in_doubt, summary.submissions) == (1, 1)
    assert "no answer within 0.5 s" in made.costs()["error_message"].item()
    made.set(service={"timeout": 300})
    assert made.run().submissions == 0


def test_a_job_that_is_answered_500_is_tried_four_times_in_all(faulty: Make) -> None:
    made = faulty(IMAGE, {"endpoint": "images", "do": "error", "status": 500})
    summary = made.run()
    assert (summary.failed, summary.submissions, summary.exit_code, made.charged) == (1, 4, 3, 0)


@pytest.mark.parametrize("lost, ends", [(1, ["in_doubt", "stored"]), ([1, 2], ["in_doubt", "in_doubt"])])
def test_doubt_is_bought_again_where_the_policy_accepts_the_risk(
    faulty: Make, lost: int | list[int], ends: list[str]
) -> None:
    made = faulty(IMAGE, {"endpoint": "images", "nth": lost, "do": "drop", "when": "after_charging"})
    made.set(on_doubt="retry", attempts=2)
    summary = made.run()
    assert made.costs()["state"].to_list() == ends
    assert (summary.submissions, summary.exit_code) == (2, 0 if summary.stored else 3)
    assert summary.spent + summary.in_doubt_exposure == made.charged
    made.set(on_doubt="hold")
    assert made.run().submissions == 0


class Refusing(Faults):
    """A service whose endpoint answers with these statuses, one after the other, and then works."""

    def __init__(self, endpoint: str, *answers: int) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.answers = list(answers)

    def match(self, endpoint: Any, model: str = "", prompt: str = "") -> Matched:
        if endpoint == self.endpoint and self.answers:
            status = self.answers.pop(0)
            code = {401: "invalid_api_key", 402: "quota_exceeded"}.get(status, "not_found")
            raise Refused("server_error" if status >= 500 else code, "No.", status=status)
        return super().match(endpoint, model, prompt)


@pytest.mark.parametrize(
    "answers, state",
    [((404, 404, 404), "in_doubt"), ((404, 404, 500, 404, 404), "stored")],
)
def test_a_video_is_unknown_to_the_service_when_it_says_so_three_times_in_a_row(
    faulty: Make, answers: tuple[int, ...], state: str
) -> None:
    made = faulty(VIDEO)
    made.backlot.service.faults = Refusing("status", *answers)
    made.run()
    assert made.costs()["state"].to_list() == [state]


@pytest.mark.parametrize(
    ("row", "answers"), [(IMAGE, (404, 410, 401)), (VIDEO, (402,))], ids=["image", "video"]
)
def test_a_download_that_is_refused_for_a_while_is_not_lost_and_says_nothing_of_the_key_or_the_balance(
    faulty: Make, row: dict[str, Any], answers: tuple[int, ...]
) -> None:
    """It is asked for without the key. A video is polled for a fresh URL; the other jobs are bought."""
    made = faulty(row)
    made.rows(row | {"id": "a"}, *({"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(5)))
    made.set(limits={"concurrency": 1})
    made.backlot.service.faults = Refusing("downloads", *answers)
    summary = made.run()
    assert (summary.stored, summary.stop_reason, summary.exit_code) == (6, None, 0)


class KeyWithdrawn(Faults):
    """The key is refused as soon as the first video is finished, and no download URL works."""

    withdrawn = False

    def match(self, endpoint: Any, model: str = "", prompt: str = "") -> Matched:
        if endpoint == "downloads":
            self.withdrawn = True
            raise Refused("not_found", "No.", status=403)
        if endpoint == "status" and self.withdrawn:
            raise Refused("invalid_api_key", "No.", status=401)
        return super().match(endpoint, model, prompt)


def test_a_key_that_is_refused_when_a_video_is_polled_for_a_fresh_url_ends_the_run(faulty: Make) -> None:
    """At once, and the video is left for the run with the right key."""
    made = faulty(VIDEO)
    made.backlot.service.faults = KeyWithdrawn()
    summary = made.run()
    assert (summary.pending, summary.stop_reason, summary.exit_code) == (1, None, 3)
    assert "401 invalid_api_key" in (summary.stop_message or "")
    assert made.run().stored == 0
    made.backlot.service.faults = Faults()
    assert made.run().stored == 1


def test_a_video_is_not_lost_because_asking_for_a_fresh_url_failed_once(project: Make) -> None:
    then = {
        "503": {"do": "error", "status": 503},
        "429": {"do": "rate_limit", "kind": "window"},
        "expired again": {"do": "expire_url"},
    }
    rules = [
        {"endpoint": "status", "prompt": name, "nth": nth} | fault
        for name, second in then.items()
        for nth, fault in ((1, {"do": "expire_url"}), (2, second))
    ]
    made = project(
        [VIDEO | {"id": name, "prompt": name} for name in then], faults={"rules": rules}, video_seconds=0
    )
    assert (made.run().stored, made.run().submissions) == (3, 0)


def test_a_video_that_the_service_cannot_be_asked_about_is_left_for_the_next_run(faulty: Make) -> None:
    """Its URL works no more and its time is over, but only an answer can say that it is lost."""
    unasked = {"endpoint": "status", "nth": list(range(2, 100)), "do": "error", "status": 503}
    expired = {"endpoint": "status", "nth": 1, "do": "expire_url"}
    made = faulty(VIDEO, expired, unasked, video_seconds=0, media_ttl=1)
    made.set(poll={"timeout": 2.5})  # the file is deleted up to two seconds after it was made
    first = made.run()
    assert (first.lost, first.pending, first.exit_code, first.stop_reason) == (0, 1, 3, None)
    assert first.stop_message
    made.backlot.service.faults = Faults()
    assert made.run().lost == 1


def test_a_refused_job_is_sent_once_a_run_and_in_all_as_often_as_attempts_says(project: Make) -> None:
    """Also where jobs that did not fit the budget are looked at again until nothing else is under way."""
    refused = IMAGE | {"id": "refused", "prompt": "a forbidden-test-word"}
    made = project([refused, IMAGE | {"id": "cheap"}, IMAGE | {"id": "dear", "model": "still-1"}])
    made.set(retry_failed=True, attempts=3, budget={"limit": "0.0100", "on_exceed": "skip"})
    assert [made.run().submissions for _ in range(5)] == [2, 1, 1, 0, 0]
    assert made.run("attempts=4").submissions == 1, "a person asks once more"


def test_the_key_of_another_project_is_named_and_with_the_right_one_its_videos_are_collected(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project([VIDEO | {"id": f"v{n}"} for n in range(3)], video_seconds=3600)
    other = WorkspaceSettings(balance=Decimal(100), projects={"other": ("sk_other",)})
    made.backlot.service.add_workspace("other", other)
    first = made.run("poll.timeout=0.5")
    assert (first.pending, first.exit_code, first.submissions) == (3, 3, 3)
    finish_videos(made.backlot.service)
    quoted = made.costs()["quoted"].sum()
    monkeypatch.setenv("CALLSHEET_API_KEY", "sk_other")
    summary = made.collect()
    assert (summary.stop_reason, summary.exit_code) == (None, 3), "nothing is left that was not tried"
    said = f"{summary.stop_message} {summary.details.stop_hint}"
    assert "The API key seems to be another project's" in said
    assert (summary.in_doubt, summary.failed, summary.in_doubt_exposure) == (3, 0, quoted)
    messages = made.costs()["error_message"]
    assert all("req-" in message and "under this key" in message for message in messages)
    assert made.collect().in_doubt == 3, "they are asked for again, and stay as they are"
    monkeypatch.setenv("CALLSHEET_API_KEY", made.backlot.api_key)
    summary = made.collect("on_doubt=retry")
    assert (summary.stored, summary.in_doubt, summary.exit_code, summary.submissions) == (3, 0, 0, 0)
    assert made.costs()["error_code"].to_list() == [None] * 3
    again = made.run("on_doubt=retry")
    assert (again.submissions, again.spent) == (0, quoted)


# ---- what a gateway says is not what the service says: nothing fails, and the same command finishes later

IMAGES = "/v2/images/generations"
JOBS = 12
ROWS = [
    {"id": f"r{n:02}", "prompt": f"boat {n}", "model": "sketch-1", "aspect_ratio": "1:1"} for n in range(JOBS)
]
INGRESS = http_answer(b"404 Not Found", b"404 page not found\n", b"Content-Type: text/plain")
WAF = http_answer(b"403 Forbidden", b"<html><title>Attention Required!</title>", b"Content-Type: text/html")


def says_no(status: bytes, *headers: bytes) -> bytes:
    error = {"message": "Overloaded.", "type": "invalid_request_error", "param": None, "code": "server_error"}
    return http_answer(status, json.dumps({"error": error}).encode(), *headers)


@pytest.fixture
def batch(project: Make) -> Iterator[tuple[Project, ReverseProxy]]:
    """A batch of images whose config names a gateway as the service."""
    made = project(ROWS)
    with ReverseProxy(made.backlot.base_url) as gateway:
        made.set(service={"base_url": gateway.url})
        yield made, gateway


def test_a_gateway_s_refusals_stop_the_buying_and_the_same_command_finishes(
    batch: tuple[Project, ReverseProxy],
) -> None:
    made, gateway = batch
    gateway.fail(Failure("POST", IMAGES, answer=INGRESS, reaches_service=False, skip=2))
    stopped = made.run()
    assert (stopped.stop_reason, stopped.exit_code) == ("service", 4)
    assert (stopped.stored, stopped.failed, stopped.in_doubt) == (2, 0, 0)
    assert gateway.count("POST", IMAGES) < 2 * JOBS, "the brake holds the others back"
    gateway.fail()
    done = made.run()
    assert (done.stored, done.submissions, done.exit_code) == (JOBS, JOBS - 2, 0)


def test_a_gateway_that_restarts_is_waited_for(batch: tuple[Project, ReverseProxy]) -> None:
    made, gateway = batch
    gateway.fail(Failure("POST", IMAGES, answer=INGRESS, reaches_service=False, skip=1, times=4))
    assert (made.run().stored, made.run().submissions) == (JOBS, 0)


def test_a_firewall_that_dislikes_one_prompt_leaves_that_job_and_no_other(
    batch: tuple[Project, ReverseProxy],
) -> None:
    """It is tried as often as `attempts` says, and stays as it was: what is wrong is not the row's fault."""
    made, gateway = batch
    made.rows(ROWS[0] | {"prompt": "x'; DROP TABLE boats"}, *ROWS[1:])
    gateway.refuses = lambda method, body: WAF if method == "POST" and b"DROP TABLE" in body else None
    stopped = made.run()
    assert (stopped.stored, stopped.failed, stopped.not_bought) == (JOBS - 1, 0, 1)
    assert (stopped.stop_reason, stopped.exit_code) == ("service", 4)
    assert "403" in (stopped.stop_message or "")
    gateway.refuses = None
    assert (made.run().stored, made.run().exit_code) == (JOBS, 0)


def test_a_service_that_says_how_long_it_is_overloaded_is_waited_for(
    batch: tuple[Project, ReverseProxy],
) -> None:
    """Without that the four tries of each job are over in a moment, as the backing off here is short."""
    made, gateway = batch
    ends = time.monotonic() + 2
    overloaded = says_no(b"503 Service Unavailable", b"Retry-After: 2")
    gateway.refuses = lambda method, _: overloaded if method == "POST" and time.monotonic() < ends else None
    summary = made.run()
    assert (summary.stored, summary.failed) == (JOBS, 0)
    assert summary.submissions <= 3 * JOBS


def test_a_full_window_uses_up_none_of_a_job_s_tries(project: Make) -> None:
    made = project(ROWS[:1])
    made.set(attempts=2)
    full = http_answer(b"429 Too Many Requests", b"{}", b"Retry-After: 0")
    with ReverseProxy(made.backlot.base_url) as gateway:
        made.set(service={"base_url": gateway.url})
        gateway.fail(
            Failure("POST", IMAGES, answer=full, reaches_service=False, times=2),
            Failure("POST", IMAGES, answer=says_no(b"500 X"), reaches_service=False, times=1),
        )
        assert made.run().stored == 1


# ---- every fault of the backlot, on images and videos, once and again and again: one run, one end for each
#
# The faults of a job's own requests are all here (`endpoint` images, videos, status, downloads); the
# others meet a whole run. Each rule matches the prompts of its own jobs. A job's line in the matrix says
# the state that it ends in and what the service charges for it; the two runs then agree to the cent.


KINDS = {
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
        for name in ("delay", "surcharge", "extra-fields", "blank", "wrong-size", "smaller"):
            yield cell(name, nth, "stored")
        if kind == "image":
            yield cell("null-size", nth, "stored")
            yield cell("says-nothing", nth, "stored")
            yield cell("other-format", nth, "stored")
            yield cell("expire-url", nth, "generated")
            yield cell("deleted", nth, "lost")
        else:
            for name in ("short", "silent", "still"):
                yield cell(name, nth, "stored")
            yield cell("fail-video", nth, "failed", charged=False)
            yield cell("never-finish", nth, "pending", charged=False, then="pending")


OTHERS = {
    "delay": DELAY,
    "surcharge": SURCHARGE,
    "extra-fields": EXTRA_FIELDS,
    "blank": {"do": "blank"},
    "wrong-size": {"do": "wrong_size"},
    "smaller": {"do": "smaller"},
    "other-format": {"do": "other_format"},
    "short": {"do": "short"},
    "silent": {"do": "silent"},
    "still": {"do": "still"},
    "says-nothing": {"do": "says", "fields": {"model": None, "mime_type": None}},
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
        return [{"id": cell.id, "prompt": f"{cell.id}.", **KINDS[cell.type]} for cell in cells]

    lanes = [cell for cell in CELLS if cell.name == "lanes" and cell.state == "stored"]
    stuck = [cell for cell in CELLS if cell.state == "pending"]
    plain = [{"id": name, "prompt": name, **KINDS["image"]} for name in PLAIN]
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
    monkeypatch.setattr(charges, "DEARER", len(CELLS))
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


MANY = 20_000
PROMPTS = 400  # different pictures: what is under test is the run, not the drawing
STRUCK = 0.05
STRUCK_IMAGES = [
    {"do": "error", "status": 500},
    {"do": "error", "status": 502},
    {"do": "error", "status": 503},
    {"do": "rate_limit", "kind": "window"},
    {"do": "rate_limit", "kind": "concurrency"},
    {"do": "delay", "seconds": 0.2},
    {"do": "drop", "when": "before_charging"},
    {"do": "drop", "when": "after_charging"},
    {"do": "expire_url", "deleted": True},
    {"do": "extra_fields"},
    {"do": "null_size"},
]
# Never two among the last three charges: those stop the buying.
SURCHARGED = {"endpoint": "images", "nth": [*range(240, 2 * MANY, 240)], "do": "surcharge", "amount": "0.01"}
STRUCK_DOWNLOADS = [
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
        for endpoint, faults in (("images", STRUCK_IMAGES), ("downloads", STRUCK_DOWNLOADS))
        for fault in faults
    ]
    rows = [
        {"id": f"s{n}", "prompt": f"prompt {n % PROMPTS}", "model": "sketch-1", "aspect_ratio": "1:1"}
        for n in range(MANY)
    ]
    limits = {"window": 1, "image_rpm": 10**6, "concurrency": 64}
    made = project(rows, faults={"seed": 5, "rules": [*rules, SURCHARGED]}, media_ttl=86_400, **limits)
    made.set(budget={"limit": "50.00"})  # otherwise the surcharges stop it at what was quoted
    command = [*CALLSHEET, "run", str(made.config), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        # Near the end, and not at it: what the report and its plots take is no growth.
        quarter, end = memory_at(run, made, MANY // 4), memory_at(run, made, MANY * 9 // 10)
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
    assert sum(summary[name] for name in ("stored", "in_doubt", "lost", "failed")) == MANY
    service = {one.id: one.cost for one in made.sold}
    costs = made.costs()
    assert costs.height == MANY == costs["job_key"].n_unique()
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
