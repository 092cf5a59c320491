"""What goes wrong at the service, and the one state that each job must end in: paid once, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import yaml

from backlot.errors import Refused
from backlot.faults import Faults, Matched
from callsheet.service.client import Client
from tests.conftest import Project

Make = Callable[..., Project]
IMAGE = {"id": "job", "prompt": "an image", "model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"id": "job", "prompt": "a video", "model": "dailies-1", "duration": 1}
TWICE = {"nth": [1, 2]}


@pytest.fixture
def faulty(project: Make, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Project]:
    """A project of one job, whose service commits a fault."""

    def make(row: dict[str, Any], *rules: dict[str, Any], **service: Any) -> Project:
        path = tmp_path_factory.mktemp("faults") / "faults.yaml"
        path.write_text(yaml.safe_dump({"rules": list(rules)}))
        return project([row], faults=path, **service)

    return make


def charged(project: Project) -> Decimal:
    async def ask() -> Decimal:
        async with Client(project.backlot.base_url, project.backlot.api_key) as client:
            return Decimal("100.0000") - await client.balance()

    return asyncio.run(ask())


@pytest.mark.parametrize("row", [IMAGE, VIDEO], ids=["image", "video"])
@pytest.mark.parametrize(
    "fault, state, submissions",
    [
        ({"do": "error", "status": 500, **TWICE}, "stored", 3),
        ({"do": "error", "status": 503, **TWICE}, "stored", 3),
        ({"do": "error", "status": 500}, "failed", 4),
        ({"do": "rate_limit", "kind": "concurrency", "nth": 1}, "stored", 2),
        ({"do": "error", "status": 502}, "in_doubt", 1),
        ({"do": "drop", "when": "before_charging"}, "in_doubt", 1),
        ({"do": "drop", "when": "after_charging"}, "in_doubt", 1),
    ],
    ids=["500-twice", "503-twice", "500", "429", "502-html", "cut-off", "cut-off-charged"],
)
def test_each_answer_to_a_submission_has_its_one_end(
    faulty: Make, row: dict[str, Any], fault: dict[str, Any], state: str, submissions: int
) -> None:
    made = faulty(row, {"endpoint": "images" if row is IMAGE else "videos"} | fault)
    summary = made.run()
    assert made.costs()["state"].to_list() == [state]
    assert summary.submissions == submissions
    assert summary.exit_code == (0 if state == "stored" else 3)
    if state == "in_doubt":
        assert made.costs()["cost"].to_list() == [None]
        assert summary.in_doubt_exposure == made.costs()["quoted"].sum() >= charged(made)
        assert made.run().submissions == 0, "doubt is never bought again by itself"
    else:
        assert summary.spent == charged(made)


def test_doubt_is_bought_again_where_the_policy_accepts_the_risk(faulty: Make) -> None:
    made = faulty(IMAGE, {"endpoint": "images", "nth": 1, "do": "drop", "when": "after_charging"})
    made.set(on_doubt="retry")
    summary = made.run()
    assert (summary.stored, summary.submissions, summary.exit_code) == (1, 2, 0)
    assert made.costs()["state"].to_list() == ["in_doubt", "stored"]
    assert summary.spent + summary.in_doubt_exposure == charged(made)


def test_doubt_that_was_bought_again_in_vain_is_in_doubt_still(faulty: Make) -> None:
    made = faulty(IMAGE, {"endpoint": "images", "do": "drop", "when": "after_charging"})
    made.set(on_doubt="retry", attempts=2)
    summary = made.run()
    assert (summary.in_doubt, summary.submissions, summary.exit_code) == (1, 2, 3)
    assert summary.in_doubt_exposure == charged(made)
    made.set(on_doubt="hold")
    assert made.run().submissions == 0


@pytest.mark.parametrize(
    "fault",
    [{"do": "error", "status": 500, **TWICE}, {"do": "drop", "when": "before_charging", **TWICE}],
    ids=["500", "cut-off"],
)
def test_polling_goes_on_through_errors(faulty: Make, fault: dict[str, Any]) -> None:
    assert faulty(VIDEO, {"endpoint": "status"} | fault).run().stored == 1


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
    [((404, 404, 404), "in_doubt"), ((404, 500, 404, 500, 404), "stored"), ((404, 404, 500, 404), "stored")],
)
def test_a_video_is_unknown_to_the_service_when_it_says_so_three_times_in_a_row(
    faulty: Make, answers: tuple[int, ...], state: str
) -> None:
    made = faulty(VIDEO)
    made.backlot.service.faults = Refusing("status", *answers)
    made.run()
    assert made.costs()["state"].to_list() == [state]


@pytest.mark.parametrize(
    "fault",
    [{"do": "truncate"}, {"do": "wrong_type"}, {"do": "error", "status": 500}],
    ids=["truncated", "wrong-type", "500"],
)
def test_a_broken_download_is_fetched_again(faulty: Make, fault: dict[str, Any]) -> None:
    made = faulty(IMAGE, {"endpoint": "downloads", "nth": 1} | fault)
    assert made.run().stored == 1
    assert charged(made) == Decimal("0.0015")


@pytest.mark.parametrize("status", [401, 402, 403, 404, 410])
def test_an_image_whose_url_is_not_found_for_a_while_is_not_lost(faulty: Make, status: int) -> None:
    made = faulty(IMAGE)
    made.backlot.service.faults = Refusing("downloads", status, status)
    assert (made.run().stored, charged(made)) == (1, Decimal("0.0015"))


def test_an_image_whose_url_does_not_work_stays_paid_for_until_its_deletion(faulty: Make) -> None:
    made = faulty(IMAGE)
    made.backlot.service.faults = Refusing("downloads", *[404] * 1000)
    made.set(poll={"timeout": 0.5})
    first = made.run()
    assert (first.lost, first.pending) == (0, 1)
    made.backlot.service.faults = Faults()
    second = made.run()
    assert (second.stored, second.submissions) == (1, 0)


@pytest.mark.parametrize("row", [IMAGE, VIDEO], ids=["image", "video"])
@pytest.mark.parametrize("status", [401, 402])
def test_a_download_says_nothing_of_the_key_or_the_balance(
    faulty: Make, row: dict[str, Any], status: int
) -> None:
    """It is asked for without the key. A video is polled for a fresh URL; the other jobs are bought."""
    made = faulty(row)
    made.rows(row | {"id": "a"}, *({"id": f"s{n}", "prompt": "x", "model": "sketch-1"} for n in range(5)))
    made.set(limits={"concurrency": 1})
    made.backlot.service.faults = Refusing("downloads", status)
    summary = made.run()
    assert (summary.stored, summary.stop_reason, summary.exit_code) == (6, None, 0)


def test_a_download_that_is_always_refused_is_the_service_s_fault_and_not_the_key_s(faulty: Make) -> None:
    made = faulty(IMAGE)
    made.backlot.service.faults = Refusing("downloads", *[401] * 1000)
    made.set(poll={"timeout": 0.5})
    summary = made.run()
    assert (summary.pending, summary.stop_reason, summary.exit_code) == (1, None, 3)
    assert "401" in (summary.stop_message or "")
    assert "API_KEY" not in summary.details.stop_hint


class KeyWithdrawn(Faults):
    """The key is refused as soon as the first video is finished, and no download URL works."""

    def match(self, endpoint: Any, model: str = "", prompt: str = "") -> Matched:
        if endpoint == "downloads":
            self.withdrawn = True
            raise Refused("not_found", "No.", status=403)
        if endpoint == "status" and getattr(self, "withdrawn", False):
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


def test_an_image_that_can_no_longer_be_had_is_lost_and_paid_for(faulty: Make) -> None:
    made = faulty(IMAGE, {"endpoint": "images", "do": "expire_url"}, media_ttl=1)
    summary = made.run()
    assert (summary.lost, summary.exit_code, summary.spent) == (1, 3, Decimal("0.0015"))


def test_a_videos_expired_url_is_renewed_by_polling_again(faulty: Make) -> None:
    assert (
        faulty(VIDEO, {"endpoint": "status", "nth": 1, "do": "expire_url"}, video_seconds=0).run().stored == 1
    )


@pytest.mark.parametrize(
    "then",
    [{"do": "error", "status": 503}, {"do": "rate_limit", "kind": "window"}, {"do": "expire_url"}],
    ids=["503", "429", "expired-again"],
)
def test_a_video_is_not_lost_because_asking_for_a_fresh_url_failed_once(
    faulty: Make, then: dict[str, Any]
) -> None:
    expired = {"endpoint": "status", "nth": 1, "do": "expire_url"}
    made = faulty(VIDEO, expired, {"endpoint": "status", "nth": 2} | then, video_seconds=0)
    assert (made.run().stored, made.run().submissions) == (1, 0)


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


def test_a_video_that_fails_is_failed_and_free(faulty: Make) -> None:
    made = faulty(VIDEO, {"endpoint": "videos", "do": "fail_video"})
    assert (made.run().failed, charged(made)) == (1, 0)


def test_a_surcharge_is_what_it_cost(faulty: Make) -> None:
    made = faulty(IMAGE, {"endpoint": "images", "do": "surcharge", "amount": "0.0100"})
    summary = made.run()
    assert summary.spent == charged(made) == Decimal("0.0115")
    assert summary.quoted == Decimal("0.0015")


def test_a_refused_job_is_sent_once_a_run_and_in_all_as_often_as_attempts_says(project: Make) -> None:
    """Also where jobs that did not fit the budget are looked at again until nothing else is under way."""
    refused = IMAGE | {"id": "refused", "prompt": "a forbidden-test-word"}
    made = project([refused, IMAGE | {"id": "cheap"}, IMAGE | {"id": "dear", "model": "still-1"}])
    made.set(retry_failed=True, attempts=3, budget={"limit": "0.0100", "on_exceed": "skip"})
    assert [made.run().submissions for _ in range(5)] == [2, 1, 1, 0, 0]
    assert made.run("attempts=4").submissions == 1, "a person asks once more"
