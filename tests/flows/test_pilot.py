"""A pilot: some jobs are bought first, then a person is asked about the rest; and runs of chosen jobs."""

from __future__ import annotations

import json
import os
import pty
from contextlib import suppress

from callsheet.present.asked import dialog
from callsheet.present.markdown import markdown
from callsheet.report.summary import Summary
from tests.cli.test_commands import callsheet
from tests.cli.test_rows import printed
from tests.conftest import Make, Project
from tests.servers.forks import forks
from tests.steps.test_again import Person, side_by_side

ROWS = [
    *({"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(6)),
    *({"id": f"v{n}", "prompt": f"video {n}", "model": "dailies-1", "duration": 1} for n in range(2)),
]
PILOT = ("budget.pilot=3",)


def run(made: Project, *overrides: str, says: bool | None) -> tuple[Summary, Person]:
    person = Person(says=says)
    return made.run(*PILOT, *overrides, watcher=person), person


def rows(made: Project) -> set[str]:
    return set(made.manifest()["row_id"])


def test_the_pilot_is_bought_and_shown_and_the_rest_after_a_yes(project: Make) -> None:
    made = project(ROWS)
    quoted = json.loads(callsheet("quote", str(made.config), "--set", "budget.pilot=3", "--json").stdout)
    assert (quoted["to_buy"], quoted["pilot_to_buy"], quoted["pilot_quoted"]) == (8, 3, "0.0110")
    summary, person = run(made, says=True)
    [asked] = person.asked
    assert {job.row for job in asked.pilot} == {"s0", "v0", "s1"}
    assert all(job.thumbnail.startswith(b"\xff\xd8") for job in asked.pilot)
    assert asked.quote.to_buy == 5
    assert (summary.stored, summary.submissions, summary.exit_code) == (8, 8, 0)
    assert person.finished_with == [summary], "it is one run"
    [kept] = summary.approvals
    assert (kept.question, kept.decision, kept.shown.jobs) == ("pilot", "approved", 5)


def test_without_a_yes_the_pilot_is_kept_and_a_later_yes_goes_on_from_it(project: Make) -> None:
    made = project(ROWS)
    stopped, _ = run(made, says=None)
    assert (stopped.outcome, stopped.stop_reason, stopped.exit_code) == ("stopped", "approval", 4)
    assert (stopped.stored, stopped.submissions, rows(made)) == (3, 3, {"s0", "v0", "s1"})
    printed("review", str(made.config), "--keep", "s0", "--reject", "v0")
    again, person = run(made, says=False)
    assert (again.stop_reason, again.submissions) == ("approval", 0)
    [asked] = person.asked  # at once: the pilot is there
    assert {job.row: job.decision for job in asked.pilot} == {"s0": "kept", "v0": "rejected", "s1": ""}
    shown = markdown(dialog(asked.word, asked.quote, asked.pilot, asked.contact_sheet))
    assert "Of the pilot: 1 kept, 1 rejected, 1 not looked at" in shown
    assert ") | v0, dailies-1, stored, **rejected** |" in shown, (
        "beside its picture: no cell of a dialog wraps"
    )
    done = made.run(*PILOT, approved=True)
    assert (done.stored, done.submissions, len(made.costs())) == (8, 5, 8)


def test_the_rest_is_asked_about_once_and_anew_when_the_plan_is_another_one(project: Make) -> None:
    made = project(ROWS)
    stopped, person = run(made, "budget.limit=0.0130", says=True)
    assert stopped.stop_reason == "budget"
    assert len(person.asked) == 1
    done, person = run(made, says=None)
    assert (done.stored, person.asked) == (8, [])
    made.rows(*ROWS, {"id": "new", "prompt": "another", "model": "sketch-1"})
    asked_again, person = run(made, says=None)
    assert (asked_again.stop_reason, len(person.asked)) == ("approval", 1)


def test_a_pilot_that_is_all_there_is_or_meets_the_budget_asks_nobody(project: Make) -> None:
    made = project(ROWS[:3])
    stopped, person = run(made, "budget.limit=0.0020", says=True)
    assert (stopped.stop_reason, stopped.exit_code, person.asked) == ("budget", 4, [])
    done, person = run(made, says=None)
    assert (done.stored, person.asked, done.approvals) == (3, [], ())


def test_a_pilot_whose_jobs_fail_is_tried_once_and_then_asked_about(project: Make) -> None:
    refused = {"endpoint": "images", "prompt": "image 0", "do": "error", "status": 500}
    made = project(ROWS, faults={"rules": [refused]})
    made.set(retry_failed="all", attempts=2)
    summary, person = run(made, says=False)
    [asked] = person.asked
    assert [(job.row, job.state) for job in asked.pilot if not job.thumbnail] == [("s0", "failed")]
    assert (summary.stop_reason, summary.failed, summary.stored) == ("approval", 1, 2)
    assert (asked.quote.to_buy, asked.word.shown.jobs) == (5, 5), "this run does not try it again"
    assert made.quote(*PILOT).to_buy == 6, "the next one does"


def test_the_price_of_the_pilot_alone_is_held_against_approve_above(project: Make) -> None:
    made = project(ROWS)
    made.set(budget={"approve_above": "0.0110"})
    summary, person = run(made, says=None)
    assert [asked.word.question for asked in person.asked] == ["pilot"]
    assert summary.submissions == 3
    other = ("batch=other", "report.url=out/other", "budget.approve_above=0.0109")
    summary, person = run(made, *other, says=None)
    assert [asked.word.question for asked in person.asked] == ["quote"]
    assert (person.asked[0].quote.to_buy, summary.submissions) == (3, 0)


def test_two_runs_with_a_pilot_beside_each_other_buy_nothing_twice(project: Make) -> None:
    made = project(ROWS, image_seconds=0.1)
    assert {summary.exit_code for summary in side_by_side(made, *PILOT)} <= {0, 3}
    assert made.run(*PILOT).stored == 8, "nobody is asked: the rest is approved"
    assert made.costs().height == 8
    assert made.charged == made.costs()["cost"].sum()


def test_on_the_terminal_the_files_are_shown_before_the_question(project: Make) -> None:
    made = project(ROWS[:4])
    terminal, end = pty.openpty()
    command = ("-m", "callsheet", "run", str(made.config), "--pilot", "2")
    environment = os.environ | {"COLUMNS": "200"}
    with forks().start(*command, stdin=end, stdout=end, stderr=end, env=environment) as process:
        os.close(end)
        seen = b""
        while not seen.endswith(b"[y/N] "):
            seen += os.read(terminal, 4096)
        os.write(terminal, b"yes\n")
        with suppress(OSError):  # how a terminal ends
            while os.read(terminal, 4096):
                pass
        process.wait()
    os.close(terminal)
    assert b"out/media/test/s0-1-0.jpeg" in seen
    assert b"Buy the other 2 jobs for " in seen
    assert (process.returncode, len(rows(made))) == (0, 4)


# ---- chosen jobs


def test_the_first_jobs_are_bought_then_the_next(project: Make) -> None:
    made = project(ROWS[:4])
    quoted = json.loads(callsheet("quote", str(made.config), "--first", "2", "--json").stdout)
    assert (quoted["to_buy"], quoted["quoted"], quoted["jobs"]) == (2, "0.0030", 4)
    done = callsheet("run", str(made.config), "--first", "2", "--json")
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["outcome"], summary["stored"]) == (0, "partial", 2)
    assert rows(made) == {"s0", "s1"}
    assert callsheet("run", str(made.config), "--first", "2").returncode == 0
    assert rows(made) == {"s0", "s1", "s2", "s3"}
    assert made.run().outcome == "complete"


def test_only_the_named_rows_are_bought_and_an_unknown_one_buys_nothing(project: Make) -> None:
    refused = {"endpoint": "images", "prompt": "image 1", "do": "error", "status": 500}
    made = project(ROWS, faults={"rules": [refused]})
    made.set(attempts=1)

    def only(*names: str) -> int:
        words = [word for name in names for word in ("--only", name)]
        return callsheet("run", str(made.config), *words).returncode

    unknown = callsheet("run", str(made.config), "--only", "s3", "--only", "s33")
    assert unknown.returncode == 2
    assert "'s33'" in unknown.stderr
    assert made.charged == 0
    assert only("s3", "v1") == 0
    assert rows(made) == {"s3", "v1"}
    assert only("s3") == 0, "there is nothing to do"
    assert len(made.costs()) == 2
    assert only("s0", "s1") == 3, "a chosen job that fails is not a success"
    assert callsheet("run", str(made.config), "--only", "s3", "--pilot", "1").returncode == 2
