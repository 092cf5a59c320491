"""How a batch stands: status, report, quote and the tables by model say the same of the same jobs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from decimal import Decimal

from callsheet.records import Change, State
from callsheet.standing import read_standing
from callsheet.steps.submit import AHEAD, BLOCK
from callsheet.watch import LogWatcher
from tests.cli.test_rows import printed
from tests.conftest import Project, images

Make = Callable[..., Project]
COUNTS = ("stored", "failed", "in_doubt", "lost")


def rows(*prompts: str) -> list[dict[str, str]]:
    return [{"id": prompt.replace(" ", "-"), "prompt": prompt, "model": "sketch-1"} for prompt in prompts]


def test_a_failed_job_whose_row_is_gone_is_none_of_the_batch_in_any_count(project: Make) -> None:
    refused = {"prompt": "a lamp", "endpoint": "images", "do": "error", "status": 500}
    made = project(rows("a mug", "a lamp", "a chair"), faults={"rules": [refused]})
    report = made.run()
    assert (report.stored, report.failed) == (2, 1)
    assert "1 job" in printed("failed", str(made.config))
    made.rows(*rows("a mug", "a chair"))
    report = made.run()
    status = json.loads(printed("status", str(made.config), "--json"))
    assert {name: status[name] for name in COUNTS} == {"stored": 2, "failed": 0, "in_doubt": 0, "lost": 0}
    assert {name: getattr(report, name) for name in COUNTS} == {name: status[name] for name in COUNTS}
    assert json.loads(printed("failed", str(made.config), "--json"))["failed"] == []
    url = f"ledger.url=sqlite:///{made.folder}/out/ledger.db"
    [in_the_list] = json.loads(printed("status", "--set", url, "--json"))["batches"]
    assert {name: in_the_list[name] for name in COUNTS} == {name: status[name] for name in COUNTS}


def test_what_a_budget_has_left_is_planned_in_the_status_and_to_buy_in_the_quote(project: Make) -> None:
    made = project(rows("a mug", "a lamp", "a chair"))
    made.set(budget={"limit": "0.0030"})
    report = made.run()
    status = json.loads(printed("status", str(made.config), "--json"))
    assert (status["stored"], status["planned"], report.not_bought, made.quote().to_buy) == (2, 1, 1, 1)


class Stops(LogWatcher):
    """Ends the run, as Ctrl-C and Suspend do, when the first file is stored."""

    def __init__(self) -> None:
        self.has_ended = False

    def changed(self, change: Change) -> None:
        if change.state is State.STORED and not self.has_ended:
            self.has_ended = True
            os.kill(os.getpid(), signal.SIGINT)


def test_what_a_stopped_run_has_left_is_planned_in_the_status_whether_the_ledger_was_given_it_or_not(
    project: Make,
) -> None:
    made = project(images(AHEAD + BLOCK + 10))
    made.set(limits={"concurrency": 1})
    stored = made.run(watcher=Stops()).stored
    left = AHEAD + BLOCK + 10 - stored
    status = json.loads(printed("status", str(made.config), "--json"))
    assert (status["planned"], status["submitting"], status["stored"]) == (left, 0, stored)
    assert f"goes on: {left} jobs not bought yet" in printed("status", str(made.config))


def test_the_shares_of_the_models_come_to_the_whole_batch(project: Make) -> None:
    made = project([*rows("a mug", "a lamp"), {"id": "still", "prompt": "a chair", "model": "still-1"}])
    made.run()
    standing = made.read(read_standing, of_attempts=["request"])
    shares = standing.shares["model"]
    assert sum(share.jobs for share in shares) == standing.counting.height == 3
    assert sum((share.spent for share in shares), Decimal(0)) == standing.spent == made.charged
    assert sum((share.quoted for share in shares), Decimal(0)) == standing.quoted
    assert sum(share.files for share in shares) == standing.files.height
    assert standing.jobs["cost"].sum() == standing.spent
    assert standing.states == {State.STORED: 3}


def test_the_shares_are_of_the_models_that_were_delivered_and_say_as_which_they_were_ordered(
    project: Make,
) -> None:
    other = {"prompt": "a lamp", "do": "says", "fields": {"model": "still-1"}}
    made = project(rows("a mug", "a lamp", "a chair"), faults={"rules": [other]})
    made.run()
    printed("review", str(made.config), "--keep", "a-lamp")
    standing = made.read(read_standing, of_attempts=["request"])
    shares = {
        share.value: (share.jobs, share.files, share.review.kept, share.spent, share.ordered_as)
        for share in standing.shares["model"]
    }
    each = made.charged / 3
    assert shares == {"sketch-1": (2, 2, 0, 2 * each, {}), "still-1": (1, 1, 1, each, {"sketch-1": 1})}
    assert "still-1 (1 ordered as" in printed("status", str(made.config))
    by_model = json.loads(printed("review", str(made.config), "--json"))["by_model"]
    assert [line.get("ordered_as") for line in by_model] == [None, {"sketch-1": 1}]
