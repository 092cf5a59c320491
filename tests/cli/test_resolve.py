"""Doubt is settled by people: what they are shown, what their word does, and what the ledger keeps of it."""

from __future__ import annotations

import getpass
import json
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from backlot.server import Backlot
from backlot.settings import WorkspaceSettings
from tests.cli.test_commands import callsheet
from tests.cli.test_rows import printed, refusal
from tests.conftest import Project
from tests.servers.backlots import finish_videos

Make = Callable[..., Project]
IMAGE = {"prompt": "an image", "model": "sketch-1", "aspect_ratio": "1:1"}  # 0.0015 USD
CUT_OFF = {"endpoint": "images", "do": "drop"}


@pytest.fixture
def doubtful(project: Make) -> Callable[..., Project]:
    """A batch that has been run: the first submissions were cut off, each before or after it was charged."""

    def make(*ends: str, rows: int = 4) -> Project:
        rules = [CUT_OFF | {"nth": nth, "when": when} for nth, when in enumerate(ends, 1)]
        made = project([{"id": f"row-{n}", **IMAGE} for n in range(rows)], faults={"rules": rules})
        assert made.run().in_doubt == len(ends)
        return made

    return make


def resolve(made: Project, *words: str, code: int, **environment: str) -> dict[str, Any]:
    """Runs `callsheet resolve CONFIG WORDS --json` in this process; it must end with `code`."""
    answer: dict[str, Any] = json.loads(
        printed("resolve", str(made.config), *words, "--json", code=code, **environment)
    )
    return answer


def test_the_list_says_what_is_in_doubt_and_the_evidence_says_what_is_gone(doubtful: Make) -> None:
    made = doubtful("after_charging", "before_charging", "after_charging")
    answer = resolve(made, code=3)
    assert [doubt["price"] for doubt in answer["in_doubt"]] == ["0.0015"] * 3
    first = answer["in_doubt"][0]
    assert {"job_key", "row_id", "model", "submitted_at", "what"} <= set(first)
    assert answer["in_doubt_exposure"] == "0.0045"
    evidence = answer["evidence"]
    assert evidence["balance_then"] == "100.0000"
    assert evidence["spent_since"] == "0.0015"
    assert evidence["balance_expected"] == "99.9985"
    assert evidence["balance"] == "99.9955"
    assert evidence["gone"] == "0.0030", "two of the three were charged"
    assert evidence["in_doubt_since"] == "0.0045"
    today = datetime.now(UTC).date().isoformat()
    assert evidence["days"] == [{"date": today, "service": "0.0045", "ledger": "0.0015"}]
    for_people = printed("resolve", str(made.config), code=3)
    for word in (first["row_id"], first["job_key"][:12], "sketch-1", "0.0015", "0.0030 USD more", "99.9955"):
        assert word in for_people
    assert evidence["fits"] is None
    assert "it is not plain which jobs are 0.0030 USD: nothing is proposed" in for_people
    assert "To settle by this evidence" not in for_people


def test_the_proposed_commands_settle_the_job_whose_price_is_gone_and_the_others(project: Make) -> None:
    rules = [
        CUT_OFF | {"prompt": IMAGE["prompt"], "nth": [1, 2], "when": "before_charging"},
        CUT_OFF | {"prompt": "a dear one", "when": "after_charging"},
    ]
    dear = {"id": "dear", "prompt": "a dear one", "model": "still-1"}  # 0.0400 USD
    images = [{"id": f"row-{n}", **IMAGE} for n in range(2)]
    made = project([*images, dear], faults={"rules": rules})
    assert made.run().in_doubt == 3
    made.rows(*images, dear, {"id": "new", **IMAGE, "prompt": "another"})
    assert made.run().in_doubt == 3
    doubts = resolve(made, code=3)
    assert doubts["evidence"]["gone"] == "0.0400", "later runs do not wash it away"
    keys = {doubt["row_id"]: doubt["job_key"] for doubt in doubts["in_doubt"]}
    assert doubts["evidence"]["fits"] == [[keys["dear"]]]
    text = printed("resolve", str(made.config), code=3)
    proposed = [line.strip() for line in text.splitlines() if line.endswith("--why 'by the balance'")]
    for line, code in zip(proposed, (3, 0), strict=True):
        printed(*shlex.split(line)[1:], code=code)
    summary = made.run()
    assert (summary.lost, summary.stored, summary.spent) == (1, 3, Decimal("0.0445"))


def test_charged_is_spent_and_lost_and_not_charged_is_bought_again_unasked(doubtful: Make) -> None:
    made = doubtful("after_charging", "before_charging")
    doubts = resolve(made, code=3)["in_doubt"]
    settled = resolve(made, doubts[0]["row_id"], "--charged", "--why", "the balance says so", code=3)
    assert [doubt["job_key"] for doubt in settled["settled"]] == [doubts[0]["job_key"]]
    assert (settled["left"], settled["settled_by"]) == (1, getpass.getuser())
    again = resolve(made, doubts[1]["job_key"][:9], "--not-charged", code=0)
    assert again["left"] == 0
    assert json.loads(printed("quote", str(made.config), "--json"))["quoted"] == "0.0015"
    summary = made.run()
    assert (summary.stored, summary.lost, summary.in_doubt, summary.submissions) == (3, 1, 0, 1)
    assert summary.spent == Decimal("0.0060"), "three stored, and the one that was charged"
    costs = {row["row_id"]: row for row in made.costs().iter_rows(named=True) if row["state"] != "failed"}
    assert costs[doubts[0]["row_id"]]["state"] == "lost"
    assert "settled as charged by" in costs[doubts[0]["row_id"]]["error_message"]
    assert resolve(made, code=0)["in_doubt"] == []


def test_the_evidence_is_of_the_batch_s_service_alone_and_the_list_works_without_it(
    doubtful: Make, start_backlot: Callable[..., Backlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial on another service in the same ledger says nothing of this one's balance."""
    made = doubtful("after_charging")
    elsewhere = start_backlot()
    with monkeypatch.context() as other:
        other.setenv("CALLSHEET_API_KEY", elsewhere.api_key)
        made.run("batch=trial", "report.url=out/trial", f"service.base_url={elsewhere.base_url}")
        evidence = resolve(made, "--set", f"service.base_url={elsewhere.base_url}", code=3)["evidence"]
        assert "the ledger has sent jobs of the batch 'test' to" in evidence["missing"]
        assert evidence["gone"] is None, "another service's balance is no evidence"
    evidence = resolve(made, code=3)["evidence"]
    assert (evidence["balance_then"], evidence["spent_since"]) == ("100.0000", "0.0045")
    assert evidence["gone"] == "0.0015"
    assert [(day["service"], day["ledger"]) for day in evidence["days"]] == [("0.0060", "0.0045")]

    made.set(service={"base_url": "http://127.0.0.1:9"})
    callsheet("ledger", "service-moved", str(made.config))
    answer = resolve(made, code=3)
    assert len(answer["in_doubt"]) == 1
    assert "not sent" in answer["evidence"]["missing"]
    assert answer["evidence"]["balance"] is answer["evidence"]["gone"] is None
    assert "missing" in printed("resolve", str(made.config), code=3)
    assert "CALLSHEET_API_KEY" in resolve(made, code=3, CALLSHEET_API_KEY="")["evidence"]["missing"]
    assert resolve(made, "row-", "--charged", code=0)["left"] == 0


def test_bad_use_is_told_and_settles_nothing(doubtful: Make) -> None:
    made = doubtful("after_charging", "after_charging", rows=2)
    for words, hint in (
        (["nobody", "--charged"], "nobody"),
        (["row-", "--charged"], "may mean 2 jobs"),
        (["row-0", "nobody", "--charged"], "nobody"),
        (["--all"], "--charged"),
        (["--charged"], "--all"),
        (["row-0"], "--charged"),
        (["--all", "--charged", "--not-charged"], "either"),
        (["--all", "row-0", "--charged"], "--all"),
        (["--why", "because"], "--why"),
        (["--give-up"], "KEY"),
        (["--give-up", "--all", "--charged"], "KEY"),
        (["--give-up", "row-0"], "--charged"),
    ):
        error = refusal("resolve", str(made.config), *words)
        assert hint in error.message + error.hint
    assert len(resolve(made, code=3)["in_doubt"]) == 2


def test_a_row_s_id_never_means_another_row_whose_id_begins_so(project: Make) -> None:
    """`resolve r1 --not-charged` settled r10, which was charged, and the next run paid for it again."""
    lost = {"rules": [CUT_OFF | {"nth": 2, "when": "after_charging"}]}
    made = project([{"id": name, **IMAGE} for name in ("r1", "r10")], faults=lost)
    made.run("limits.concurrency=1")
    [doubt] = resolve(made, code=3)["in_doubt"]
    assert doubt["row_id"] == "r10"
    error = refusal("resolve", str(made.config), "r1", "--not-charged")
    assert "row r1 has nothing in doubt; nothing was settled" in error.message
    made.rows(*({"id": name, **IMAGE} for name in ("r1", "r10", "r")))
    made.run("budget.limit=0.0001")
    error = refusal("resolve", str(made.config), "r", "--not-charged")
    assert "row r has nothing" in error.message, "a row that was never sent is a row, too"
    assert len(resolve(made, "r10", "--charged", code=0)["settled"]) == 1


def test_both_attempts_at_a_job_bought_again_in_doubt_are_settled_together(project: Make) -> None:
    twice = {"rules": [CUT_OFF | {"nth": [1, 2], "when": "after_charging"}]}
    made = project([{"id": "one", **IMAGE}], faults=twice)
    made.set(on_doubt="retry")
    assert made.run().stored == 1
    assert [doubt["attempt"] for doubt in resolve(made, code=3)["in_doubt"]] == [1, 2]
    assert len(resolve(made, "one", "--charged", code=0)["settled"]) == 2
    summary = made.run()
    assert (summary.stored, summary.submissions, summary.spent) == (1, 0, Decimal("0.0045"))


# ---- accepted videos: no doubt about money


VIDEO = {"model": "dailies-1", "duration": 1}  # 0.0080 USD


@pytest.fixture
def accepted(project: Make, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An image is in doubt, and so are two accepted videos: another project's key does not know them."""
    faults = {"rules": [CUT_OFF | {"when": "after_charging"}]}
    rows = [{"id": "image", **IMAGE}, *({"id": f"v{n}", "prompt": f"video {n}", **VIDEO} for n in range(2))]
    made = project(rows, faults=faults, video_seconds=3600)
    other = WorkspaceSettings(balance=Decimal(100), projects={"other": ("sk_other",)})
    made.backlot.service.add_workspace("other", other)
    assert made.run("poll.timeout=0.2").pending == 2
    with monkeypatch.context() as wrong:
        wrong.setenv("CALLSHEET_API_KEY", "sk_other")
        assert made.collect().in_doubt == 3
    return made


def test_an_accepted_video_is_listed_apart_and_not_settled_and_the_right_key_still_gets_it(
    accepted: Project,
) -> None:
    answer = resolve(accepted, code=3)
    assert [(one["row_id"], one["generation_id"]) for one in answer["in_doubt"]] == [("image", None)]
    assert sorted(one["row_id"] for one in answer["accepted"]) == ["v0", "v1"]
    assert answer["in_doubt_exposure"] == "0.0175"
    assert answer["evidence"]["in_doubt_since"] == "0.0015"
    assert answer["evidence"]["in_flight"] == "0.0160"
    text = printed("resolve", str(accepted.config), code=3)
    doubts, listed = text.split("2 accepted videos, no doubt about money")
    for one in answer["accepted"]:
        assert one["generation_id"] in listed
        assert one["job_key"][:12] in listed
        assert one["job_key"][:12] not in doubts
    assert f"callsheet collect {accepted.config}" in listed
    assert "--give-up" in listed
    one = answer["accepted"][0]
    for word, charge in ((one["row_id"], "--charged"), (one["job_key"][:9], "--not-charged")):
        error = refusal("resolve", str(accepted.config), word, charge)
        assert one["generation_id"] in error.message
        assert "nothing was settled" in error.message
        for said in ("callsheet collect", "--give-up", "paid for twice"):
            assert said in error.hint
    settled = resolve(accepted, "--all", "--charged", code=3)
    assert [each["row_id"] for each in settled["settled"]] == ["image"]
    assert sorted(each["row_id"] for each in settled["left_out"]) == ["v0", "v1"]
    assert settled["left"] == 2
    nothing = printed("resolve", str(accepted.config), "--all", "--not-charged", code=3)
    for said in ("nothing was settled", "Left out: 2 accepted videos", one["generation_id"]):
        assert said in nothing
    finish_videos(accepted.backlot.service)
    summary = accepted.run()
    assert (summary.stored, summary.lost, summary.submissions) == (2, 1, 0)
    assert summary.spent == Decimal("0.0175"), "the videos at their cost, and the image that was charged"


def test_a_person_can_give_an_accepted_video_up_either_way(accepted: Project) -> None:
    charged = resolve(accepted, "v0", "--give-up", "--charged", "--why", "the key is gone", code=3)
    assert [one["generation_id"] is not None for one in charged["settled"]] == [True]
    given_up = printed("resolve", str(accepted.config), "v1", "--give-up", "--not-charged", code=3)
    assert "paid for twice" in given_up
    summary = accepted.run("poll.timeout=0.2")
    assert (summary.lost, summary.pending, summary.in_doubt, summary.submissions) == (1, 1, 1, 1)
    assert summary.spent == Decimal("0.0080"), "what was given up as charged; the other is bought again"
    assert "the key is gone" in printed("show", str(accepted.config), "v0")


def test_a_video_that_stays_pending_can_be_given_up_by_name_but_not_with_all(project: Make) -> None:
    made = project([{"id": f"v{n}", "prompt": f"video {n}", **VIDEO} for n in range(2)], video_seconds=3600)
    assert made.run("poll.timeout=0.2").pending == 2
    assert resolve(made, code=0)["accepted"] == []
    error = refusal("resolve", str(made.config), "v0", "--charged")
    assert "row v0 is pending" in error.message
    assert "--give-up" in error.hint
    assert resolve(made, "--all", "--charged", code=0)["settled"] == []
    settled = resolve(made, "v0", "--give-up", "--charged", code=0)["settled"]
    assert [one["row_id"] for one in settled] == ["v0"]
    summary = made.run("poll.timeout=0.2")
    assert (summary.lost, summary.pending, summary.submissions) == (1, 1, 0)
    assert summary.spent == Decimal("0.0080")
