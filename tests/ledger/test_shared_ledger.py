"""Runs whose ledger knows more than one batch, is in PostgreSQL, or has too little room for all jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal

from typer.testing import CliRunner

from callsheet.cli.main import app
from tests.conftest import Project

Make = Callable[..., Project]
IMAGE = {"prompt": "an image", "model": "sketch-1", "aspect_ratio": "1:1"}  # 0.0015 USD
VIDEO = {"prompt": "a video", "model": "dailies-1", "duration": 1}


def test_a_batch_that_shares_requests_with_another_takes_its_files(project: Make, url: str) -> None:
    made = project([{"id": "a", **IMAGE}, {"id": "b", **IMAGE, "prompt": "another"}])
    made.set(ledger={"url": url})
    assert made.run().submissions == 2
    bought = {row["prompt"]: row["url"] for row in made.manifest().iter_rows(named=True)}
    made.rows(
        {"id": "x", **IMAGE, "note": "mine"}, {"id": "y", **IMAGE}, {"id": "z", **IMAGE, "prompt": "new"}
    )
    made.set(batch="other", reuse="ledger")
    quote = json.loads(CliRunner().invoke(app, ["quote", str(made.config), "--json"]).stdout)
    assert (quote["already_bought"], quote["quoted"]) == (1, "0.0030")
    summary = made.run()
    assert (summary.stored, summary.submissions, summary.exit_code) == (3, 2, 0)
    assert summary.spent == Decimal("0.0030")
    manifest = {row["row_id"]: row for row in made.manifest().iter_rows(named=True)}
    assert manifest["x"]["url"] == bought["an image"]
    assert (manifest["x"]["cost"], manifest["x"]["note"]) == (0, "mine")
    assert manifest["y"]["url"] not in bought.values(), "two equal rows are two pictures"
    assert made.run().submissions == 0


def test_jobs_too_dear_are_skipped_and_the_run_ends_at_the_wall(project: Make) -> None:
    made = project(
        [{"id": "a", **IMAGE}, {"id": "video", **VIDEO}, {"id": "b", **IMAGE}, {"id": "c", **IMAGE}]
    )
    made.set(budget={"limit": "0.0030"})
    stopped = made.run()
    assert (stopped.stored, stopped.stop_reason, stopped.exit_code) == (1, "budget", 4)
    made.set(budget={"on_exceed": "skip"})
    skipped = made.run()
    assert (skipped.stored, skipped.stop_reason, skipped.exit_code) == (2, "budget", 4)
    assert "skipped 2 jobs (the first: row video)" in (skipped.stop_message or "")
    assert skipped.spent == Decimal("0.0030")


def test_a_refusal_makes_room_for_a_job_that_did_not_fit(project: Make) -> None:
    made = project([{"id": "no", **IMAGE, "prompt": "forbidden-test-word"}, {"id": "b", **IMAGE}])
    made.set(budget={"limit": "0.0015", "on_exceed": "skip"})
    summary = made.run()
    assert (summary.stored, summary.failed, summary.stop_reason) == (1, 1, None)
