"""Answers that are not as the interface has them: what can be stored is stored, and nothing is given up."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from callsheet.cli.main import app
from callsheet.present.results import line, next_steps, problem
from tests.conftest import Make, Project
from tests.servers import http
from tests.servers.proxies import Failure, ReverseProxy, http_answer

Behind = Callable[..., tuple[Project, ReverseProxy]]
Change = Callable[[dict[str, Any]], None]
IMAGES, VIDEOS, FILES = "/v2/images/generations", "/v2/videos/generations/", "/v2/downloads/"
IMAGE = {"id": "a", "prompt": "an image", "model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"id": "a", "prompt": "a video", "model": "dailies-1", "duration": 1}
PRICE = {"image": Decimal("0.0015"), "video": Decimal("0.0080")}


@pytest.fixture
def behind(project: Make) -> Iterator[Behind]:
    """A batch whose service is behind what changes its answers."""
    with ExitStack() as stack:

        def make(*rows: dict[str, Any], **service: Any) -> tuple[Project, ReverseProxy]:
            made = project(rows, **service)
            proxy = stack.enter_context(ReverseProxy(made.backlot.base_url))
            made.set(service={"base_url": proxy.url})
            return made, proxy

        yield make


def changed(begins: str, change: Change) -> Callable[[str, bytes, bytes], bytes]:
    """Changes the JSON object of each answer whose path begins so."""

    def rewrite(path: str, head: bytes, body: bytes) -> bytes:
        if not path.startswith(begins) or not body.startswith(b"{"):
            return head + body
        content = json.loads(body)
        change(content)
        lines = head.split(b"\r\n")
        kept = [line for line in lines[1:] if line and not line.lower().startswith(b"content-length")]
        return http_answer(lines[0].partition(b" ")[2], json.dumps(content).encode(), *kept)

    return rewrite


def nulls(*path: str | int) -> Change:
    def change(content: dict[str, Any]) -> None:
        place: Any = content
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = None

    return change


def command(made: Project, *words: str) -> str:
    done = CliRunner().invoke(app, [*words[:1], str(made.config), *words[1:]])
    return done.stdout + done.stderr


CHANGES: dict[str, tuple[Change, str]] = {  # of an answer, and where the cost is from then
    "quantity": (nulls("usage", "quantity"), "usage"),
    "total-cost": (nulls("usage", "total_cost"), "computed"),
    "usage": (nulls("usage"), "quoted"),
    "no-quantity": (lambda answer: answer["usage"].update(total_cost=None, quantity=0), "quoted"),
    "no-price": (lambda answer: answer["usage"].update(total_cost=-1, unit_price=0), "quoted"),
    "deletes-at": (nulls("data", 0, "deletes_at"), "usage"),
    "mime-type": (nulls("data", 0, "mime_type"), "usage"),
    "year-1": (lambda answer: answer["data"][0].update(deletes_at="0001-01-01T00:00:00Z"), "usage"),
    "more": (lambda answer: answer.update(status=None, model=None, usage="free"), "quoted"),
}


@pytest.mark.parametrize("row", [IMAGE, VIDEO], ids=["image", "video"])
def test_what_has_an_id_and_a_file_is_stored_whatever_else_is_missing(
    row: dict[str, Any], behind: Behind
) -> None:
    """A batch of as many jobs as there are changes: each finished generation has another one."""
    made, gateway = behind(*(row | {"id": f"row-{n}"} for n in range(len(CHANGES))))
    left, changes = [*CHANGES], dict[str, str]()

    def finished(answer: dict[str, Any]) -> None:
        if answer.get("data"):
            name = changes.setdefault(answer["id"], left[0])
            left[:] = [each for each in left if each != name]
            CHANGES[name][0](answer)

    gateway.rewrite = changed(IMAGES if row is IMAGE else VIDEOS, finished)
    summary = made.run()
    price, jobs = PRICE["image" if row is IMAGE else "video"], len(CHANGES)
    assert (summary.stored, summary.submissions, summary.spent) == (jobs, jobs, jobs * price)
    for costs in made.costs().iter_rows(named=True):
        source = CHANGES[changes[costs["generation_id"]]][1]
        assert (costs["cost"], costs["cost_source"]) == (price, source)
        words = {"usage": "charged", "computed": "computed", "quoted": "as quoted"}[source]
        assert words in " ".join(command(made, "show", costs["row_id"]).split())
    assert {*made.manifest()["mime_type"]} == {"image/jpeg" if row is IMAGE else "video/mp4"}
    ending = ".jpeg" if row is IMAGE else ".mp4"
    assert all(url.endswith(ending) for url in made.manifest()["url"])
    estimated = [source for _, source in CHANGES.values() if source != "usage"]
    assert summary.estimated_costs == made.report()["estimated_costs"] == len(estimated)
    assert "not the service's word" in line(summary)


def test_an_image_without_a_file_is_in_doubt_with_its_id_and_is_settled_by_a_person(behind: Behind) -> None:
    """Whoever says that it was not charged is warned."""
    made, gateway = behind(IMAGE, IMAGE | {"id": "b"})
    gateway.rewrite = changed(IMAGES, nulls("data"))
    made.set(on_doubt="retry")
    summary = made.run()
    assert (summary.in_doubt, summary.submissions) == (2, 2), "they have ids: they are not bought again"
    shown = " ".join(command(made, "resolve").split())
    assert "no file came with it" in shown
    for generation_id in made.costs()["generation_id"]:
        assert generation_id in shown
    assert made.collect().in_doubt == 2
    assert gateway.count("GET", VIDEOS) == 0, "an image is not asked for as a video"
    command(made, "resolve", "a", "--charged")
    warning = command(made, "resolve", "b", "--not-charged")
    assert "1 accepted generation, req-" in warning
    assert "paid for twice" in warning
    settled = made.collect()
    assert (settled.lost, settled.spent) == (1, PRICE["image"])


# ---- the true type


def picture(file_format: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(buffer, file_format)
    return buffer.getvalue()


def test_a_file_is_stored_under_its_true_type_and_ending(behind: Behind) -> None:
    made, gateway = behind(IMAGE, IMAGE | {"id": "b"})
    made.set(storage={"sidecar": True})
    left, sent = ["webp", "gif"], dict[str, str]()

    def another(path: str, head: bytes, body: bytes) -> bytes:
        if not path.startswith(FILES):
            return head + body
        true = sent.get(path) or sent.setdefault(path, left.pop())
        return http_answer(b"200 OK", picture(true), b"Content-Type: image/jpeg")

    gateway.rewrite = another
    assert made.run().stored == 2
    for file in made.manifest().to_dicts():
        true = Path(file["url"]).suffix.removeprefix(".")
        assert file["mime_type"] == f"image/{true}"
        assert (made.folder / file["url"]).read_bytes() == picture(true)
        assert json.loads((made.folder / f"{file['url']}.json").read_text())["mime_type"] == f"image/{true}"
    assert sorted(Path(url).suffix for url in made.manifest()["url"]) == [".gif", ".webp"]
    assert made.run().submissions == 0


def test_a_name_that_another_file_has_is_not_taken_by_the_true_ending(behind: Behind) -> None:
    """Row `a` becomes `a.webp`, a name that row `A` has already: on some disks both are one file."""
    made, gateway = behind(
        IMAGE | {"id": "A", "output_format": "webp"}, IMAGE | {"id": "a", "output_format": "png"}
    )
    made.set(storage={"key": "{row_id}.{ext}"})
    content = picture("webp")
    gateway.rewrite = lambda path, head, body: (
        http_answer(b"200 OK", content) if path.startswith(FILES) else head + body
    )
    assert made.run().stored == 2
    urls = made.manifest()["url"].to_list()
    assert len({url.lower() for url in urls}) == 2
    assert all(url.endswith(".webp") for url in urls)


def test_half_a_file_whose_length_is_not_told_is_never_stored(behind: Behind) -> None:
    made, gateway = behind(IMAGE, VIDEO | {"id": "b"})
    made.set(poll={"timeout": 1})

    def half(path: str, head: bytes, body: bytes) -> bytes:
        if not path.startswith(FILES):
            return head + body
        return b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nConnection: close\r\n\r\n" + body[: len(body) // 2]

    gateway.rewrite = half
    first = made.run()
    assert (first.stored, first.lost, first.pending) == (0, 0, 2)
    gateway.rewrite = None
    second = made.run()
    assert (second.stored, second.submissions) == (2, 0)


# ---- polls


def test_a_completed_video_without_a_file_is_shown_and_settled_by_a_person(behind: Behind) -> None:
    made, gateway = behind(VIDEO)

    def no_data(answer: dict[str, Any]) -> None:
        if answer.get("data"):
            answer["data"] = []

    gateway.rewrite = changed(VIDEOS, no_data)
    summary = made.run()
    assert (summary.in_doubt, summary.pending) == (1, 0)
    for words in (["show", "a"], ["status", "-v"], ["resolve"]):
        assert "completed without a file" in " ".join(command(made, *words).split()), words
    assert "completed without a file" in problem(summary.details.problems[0])
    before = gateway.count("GET", VIDEOS)
    assert made.collect().in_doubt == 1
    assert gateway.count("GET", VIDEOS) == before + 1, "it is asked for once"
    gateway.rewrite = None
    assert made.collect().stored == 1, "the file has come after all"


def test_the_address_of_a_file_that_came_without_an_id_is_kept_for_a_person(behind: Behind) -> None:
    made, gateway = behind(IMAGE)
    gateway.rewrite = changed(IMAGES, nulls("id"))
    assert made.run().in_doubt == 1
    for words in (["show", "a"], ["resolve"]):
        [address] = re.findall(r"a file is at (http\S+)", " ".join(command(made, *words).split()))
        assert http.get(address).headers["content-type"] == "image/jpeg"


def test_a_status_that_is_not_known_is_left_for_later_and_shown_and_can_be_given_up(behind: Behind) -> None:
    made, gateway = behind(VIDEO, VIDEO | {"id": "b", "prompt": "another"}, video_seconds=0)
    made.set(poll={"timeout": 1.5})
    ids: list[str] = []

    def cancel(answer: dict[str, Any]) -> None:
        ids.append(answer["id"])
        if answer["id"] == ids[0]:
            error = {"code": "server_error", "message": "Cancelled by the operator."}
            answer.update(status="cancelled", error=error, data=None, usage=None)
        elif answer["status"] == "completed":
            answer["status"] = "Completed"

    gateway.rewrite = changed(VIDEOS, cancel)
    summary = made.run()
    assert (summary.stored, summary.pending, summary.in_doubt) == (1, 1, 0)
    [row] = made.costs().filter(made.costs()["state"] == "pending")["row_id"].to_list()
    for words in (["show", row], ["status", "-v"], ["resolve"]):
        assert "Cancelled by the operator." in " ".join(command(made, *words).split()), words
    assert "Cancelled by the operator." in problem(summary.details.problems[0])
    assert any("--give-up settles one" in step for step in next_steps(summary))

    made.set(poll={"timeout": 600})
    before = gateway.count("GET", VIDEOS)
    assert made.collect().pending == 1
    assert gateway.count("GET", VIDEOS) == before + 1, "it is asked for once, and not for poll.timeout"

    command(made, "resolve", row, "--give-up", "--charged")
    assert made.collect().lost == 1


def test_an_answer_about_another_video_is_no_answer(behind: Behind) -> None:
    made, gateway = behind(VIDEO)
    wrong = iter(["req-of-another"] * 2)

    def other(answer: dict[str, Any]) -> None:
        answer["id"] = next(wrong, answer["id"])
        if answer["id"] == "req-of-another":
            answer.update(status="failed", error={"code": "server_error", "message": "No."})

    gateway.rewrite = changed(VIDEOS, other)
    assert (made.run().stored, made.run().failed) == (1, 0)


# ---- lost


def earlier(hours: int) -> Change:
    """To the client it is the same as a clock of its own that is so many hours ahead."""

    def change(answer: dict[str, Any]) -> None:
        for item in answer.get("data") or ():
            moment = datetime.fromisoformat(item["deletes_at"]) - timedelta(hours=hours)
            item["deletes_at"] = moment.isoformat()

    return change


BUSY = http_answer(b"503 Service Unavailable", b"busy", b"Content-Type: text/plain")


@pytest.mark.parametrize(
    ("row", "failure"),
    [
        (IMAGE, {"answer": BUSY, "times": 3}),
        (VIDEO, {"cut": True, "times": 3}),
        (IMAGE, {"status": 404, "times": 1}),
        (VIDEO, {"status": 404, "times": 1}),
    ],
    ids=["image-503", "video-cut", "image-404-once", "video-404-once"],
)
def test_a_passed_deletes_at_alone_loses_nothing(
    row: dict[str, Any], failure: dict[str, Any], behind: Behind
) -> None:
    made, gateway = behind(row)
    gateway.rewrite = changed("/v2/", earlier(2))
    gateway.fail(Failure("GET", FILES, reaches_service=False, **failure))
    summary = made.run()
    assert (summary.stored, summary.lost) == (1, 0)


def test_a_file_that_the_service_says_is_gone_after_its_deletion_is_lost(behind: Behind) -> None:
    made, gateway = behind(IMAGE, VIDEO | {"id": "b"})
    gateway.rewrite = changed("/v2/", earlier(2))
    gateway.fail(Failure("GET", FILES, status=410, reaches_service=False))
    assert made.run().lost == 2
    assert gateway.count("GET", FILES) == 2 + 3, "more than once; of a video also its fresh URL"


def test_a_service_whose_clock_is_behind_has_not_deleted_a_file_yet(behind: Behind) -> None:
    """For this machine `deletes_at` has passed; by the `Date` of the answers it has not."""
    made, gateway = behind(IMAGE)
    made.set(poll={"timeout": 1})
    gateway.rewrite = changed("/v2/", earlier(2))
    date = (datetime.now(UTC) - timedelta(hours=2)).strftime("%a, %d %b %Y %H:%M:%S GMT").encode()
    gone = http_answer(b"404 Not Found", b"", b"Date: " + date)
    gateway.fail(Failure("GET", FILES, answer=gone, reaches_service=False))
    summary = made.run()
    assert (summary.lost, summary.pending) == (0, 1)
    gateway.fail()
    assert made.run().stored == 1


def test_a_file_without_a_deletes_at_is_never_lost_by_a_clock(behind: Behind) -> None:
    made, gateway = behind(IMAGE)
    made.set(poll={"timeout": 1})
    gateway.rewrite = changed(IMAGES, nulls("data", 0, "deletes_at"))
    gateway.fail(Failure("GET", FILES, status=404, reaches_service=False))
    began = time.monotonic()
    summary = made.run()
    assert (summary.lost, summary.pending) == (0, 1)
    assert time.monotonic() - began > 1
    gateway.fail()
    assert made.run().stored == 1


def test_a_failed_video_costs_what_the_service_says_that_it_charged_for_it(behind: Behind) -> None:
    made, gateway = behind(*(VIDEO | {"id": f"row-{n}"} for n in range(4)))
    charged = {"total_cost": 0.008, "billable_unit": "video_second", "unit_price": 0.008, "quantity": 1}
    usages = [charged, charged, {"total_cost": None, "quantity": 0}, None]  # the last two say nothing
    of: dict[str, Any] = {}

    def failed(answer: dict[str, Any]) -> None:
        usage = of.setdefault(answer["id"], usages[len(of) % 4])
        error = {"message": "the finished film was refused", "code": "content_policy_violation"}
        answer.update(status="failed", error=error, data=None, usage=usage)

    gateway.rewrite = changed(VIDEOS, failed)
    summary = made.run()
    assert (summary.failed, summary.spent) == (4, Decimal("0.016"))
    costs = made.costs().sort("cost")
    assert costs["cost"].to_list() == [0, 0, Decimal("0.008"), Decimal("0.008")]
    assert costs["cost_source"].to_list() == [None, None, "usage", "usage"]
    assert "4 jobs failed, charged 0.0160 USD" in re.sub(r"\s+", " ", command(made, "failed"))
    again = made.run("retry_failed=all", "budget.limit=0.016")
    assert (again.stop_reason, again.submissions, again.spent) == ("budget", 0, Decimal("0.016"))


@pytest.mark.parametrize("code", ["not_charged", "charged"])
def test_a_service_s_code_that_reads_like_a_person_s_decision_is_a_failure_like_any_other(
    behind: Behind, code: str
) -> None:
    made, gateway = behind(IMAGE | {"prompt": "forbidden-test-word"})
    gateway.rewrite = changed(IMAGES, lambda answer: answer["error"].update(code=code))
    assert (made.run().failed, made.run().submissions) == (1, 0)
    [story] = json.loads(command(made, "failed", "--json"))["failed"]
    assert (story["error_code"], story["decision"]) == (code, None)
    assert made.run("retry_failed=all").submissions == 1
