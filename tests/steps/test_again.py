"""What is rejected is bought again: one more sample of the same request, within the budget, never twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pandas as pd

import callsheet
from callsheet.config.load import load
from callsheet.ledger import marks
from callsheet.ledger.marks import FileKey, Finding
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.plan import PLAN
from callsheet.pricing.quote import Quote
from callsheet.python import review, reviews
from callsheet.report.summary import Summary
from callsheet.session import Run
from callsheet.steps import batch
from callsheet.watch import WATCHER, Asked, LogWatcher
from tests.cli.test_commands import callsheet as command
from tests.conftest import Make, Project
from tests.report.contact_sheets import with_sheet
from tests.report.test_contact_sheet import cards
from tests.report.test_contact_sheet import summary as sheet_summary

IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
PRICE = Decimal("0.0015")
AGAIN = "review.buy_again=true"


def images(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"id": name, "prompt": f"an image of {name}", **IMAGE, **more} for name in names]


def decide(made: Project, decision: str, *files: tuple[str, int]) -> None:
    """A person marks these samples, each as the row's id and the number."""
    said = [{"row_id": row_id, "sample": sample, "decision": decision} for row_id, sample in files]
    review(made.config, pd.DataFrame(said), None)


def reject_all(made: Project) -> None:
    stored = reviews(made.config, None, as_arrow=False)
    review(made.config, stored[["row_id", "sample", "job_key"]].assign(decision="rejected"), None)


def samples(made: Project) -> list[tuple[str, int]]:
    """Row and sample of each file, as the manifest has them."""
    return [*made.manifest().select("row_id", "sample").iter_rows()]


def to_buy_again(made: Project, *overrides: str) -> tuple[int, Decimal]:
    """What `status` says is to be bought again, which is what a quote has more of with `--again`."""
    values = dict(override.split("=", 1) for override in overrides)
    again = callsheet.status(made.config, settings=values).to_buy_again
    plain, quoted = made.quote(*overrides), made.quote(AGAIN, *overrides)
    assert (again.jobs, again.quoted) == (quoted.to_buy - plain.to_buy, quoted.quoted - plain.quoted)
    return again.jobs, again.quoted


def side_by_side(made: Project, *overrides: str) -> list[Summary]:
    """Two runs of a batch at once, which nobody has to approve."""
    settings = load(made.config, overrides)

    async def both() -> list[Summary]:
        return await asyncio.gather(*(batch.generate(settings, approved=True) for _ in range(2)))

    return asyncio.run(both())


# ---- one more sample


def test_a_row_with_only_rejected_files_buys_one_more_sample_and_no_other_row_does(project: Make) -> None:
    made = project([*images("bad", "good", "unseen"), *images("mixed", "half", samples="2")])
    assert made.run().stored == 7
    decide(made, "rejected", ("bad", 1), ("mixed", 1), ("half", 2))
    decide(made, "kept", ("good", 1), ("mixed", 2))
    quoted = made.quote(AGAIN)
    assert (quoted.to_buy, quoted.quoted, quoted.plan.jobs, quoted.already_bought) == (1, PRICE, 8, 7)
    assert "1 row has only rejected files: bought again, sample 2 of 3" in quoted.plan.notes
    assert made.quote().to_buy == 0
    told = json.loads(command("quote", str(made.config), "--again", "--json").stdout)
    assert (told["jobs"], told["to_buy"], told["quoted"]) == (8, 1, "0.0015")
    assert "bought again, sample 2 of 3" in command("run", str(made.config), "--again", "--dry-run").stdout
    assert len(made.sold) == 7
    done = json.loads(command("run", str(made.config), "--again", "--json").stdout)
    assert (done["submissions"], done["jobs"], done["stored"], done["outcome"]) == (1, 8, 8, "complete")
    assert samples(made)[:4] == [("bad", 1), ("bad", 2), ("good", 1), ("unseen", 1)]
    assert made.manifest()["current"].all()
    first, second, *_ = made.manifest()["url"]
    assert first != second
    assert made.charged == Decimal(done["spent"]) == 8 * PRICE
    decide(made, "rejected", ("bad", 2))
    decide(made, "", ("bad", 1))
    assert made.run(AGAIN).submissions == 0, "the mark is taken back"


def test_a_sample_that_nobody_has_looked_at_buys_nothing_and_the_samples_have_an_end(project: Make) -> None:
    made = project(images("bad"))
    made.run()
    made.set(review={"samples": 2})
    decide(made, "rejected", ("bad", 1))
    assert made.run(AGAIN).submissions == 1
    assert made.run(AGAIN).submissions == 0, "the newest sample is not looked at"
    decide(made, "rejected", ("bad", 2))
    assert to_buy_again(made, "review.samples=2") == (0, 0)
    assert to_buy_again(made, "review.samples=3") == (1, PRICE)
    assert made.run(AGAIN).submissions == 0
    assert any(
        "1 row (bad) has only rejected files and no sample left" in note
        for note in made.quote(AGAIN).plan.notes
    )
    assert made.run(AGAIN, "review.samples=3").submissions == 1
    assert samples(made) == [("bad", 1), ("bad", 2), ("bad", 3)]
    assert (len(made.sold), made.charged) == (3, 3 * PRICE)


def test_a_sample_that_failed_has_used_its_number_and_a_row_in_doubt_waits(project: Make) -> None:
    refused = {"prompt": "an image of bad", "endpoint": "images", "nth": 2, "do": "error", "status": 500}
    cut = {"prompt": "an image of lost", "endpoint": "images", "nth": 1, "do": "drop"}
    made = project(
        [*images("bad"), *images("lost", samples="2")],
        faults={"rules": [refused, cut | {"when": "after_charging"}]},
    )
    made.set(attempts=1)
    assert (made.run().in_doubt, made.manifest().height) == (1, 2)
    reject_all(made)
    failed = made.run(AGAIN, "review.samples=2")
    assert (failed.submissions, failed.failed, failed.jobs, failed.exit_code) == (1, 1, 4, 3)
    assert made.run(AGAIN, "review.samples=2").submissions == 0
    done = made.run(AGAIN)
    assert (done.submissions, done.jobs, done.stored, done.failed, done.in_doubt) == (1, 5, 3, 1, 1)
    assert samples(made)[:2] == [("bad", 1), ("bad", 3)]


# ---- what is said of it


def test_after_a_stop_of_what_is_bought_again_only_what_a_quote_has_left_is_said(project: Make) -> None:
    """Also where the plan is of a run that was stopped between the requests of a row."""
    made = project([{"id": "bad", "prompt": "an image", "aspect_ratio": "1:1"}, *images("other")])
    made.set(input={"matrix": {"model": ["sketch-1", "still-1"]}}, limits={"concurrency": 1})
    spent = made.run().spent
    decide(made, "rejected", ("bad", 1))
    stopped = made.run(AGAIN, f"budget.limit={spent + PRICE}")
    assert (stopped.submissions, stopped.stop_reason) == (1, "budget")
    jobs, price = to_buy_again(made)
    assert (jobs, price) == (0, 0), "nobody has looked at the new sample"
    reject_all(made)
    assert to_buy_again(made)[0] == 4, "sample 3 of one model, and sample 2 of the others"


def test_a_row_with_a_job_in_doubt_is_not_said_to_be_bought_again(project: Make) -> None:
    cut = {"prompt": "an image of lost", "endpoint": "images", "nth": 1, "do": "drop"}
    made = project(
        [*images("bad"), *images("lost", samples="2")],
        faults={"rules": [cut | {"when": "after_charging"}]},
    )
    assert made.run().in_doubt == 1
    reject_all(made)
    assert to_buy_again(made) == (1, PRICE)


def test_without_a_plan_file_the_ledger_says_what_is_to_be_bought_again(project: Make) -> None:
    """As on another machine: then also of rows that the batch file does not have any more."""
    made = project([*images("bad", "good"), *images("lost", samples="2")])
    made.set(input={"matrix": {"model": ["sketch-1", "still-1"]}})
    made.run()
    decide(made, "rejected", ("bad", 1))
    told = to_buy_again(made)
    (made.folder / "out/report" / PLAN).unlink()
    assert told == to_buy_again(made) == (2, told[1])
    assert to_buy_again(made, "review.samples=1") == (0, 0)


# ---- what a row is


def test_a_changed_prompt_is_a_new_job_and_only_that_is_bought(project: Make) -> None:
    made = project(images("bad"))
    made.run()
    decide(made, "rejected", ("bad", 1))
    made.rows({"id": "bad", "prompt": "a better prompt", **IMAGE})
    done = made.run(AGAIN)
    assert (done.submissions, done.jobs, done.stored, done.details.others) == (1, 2, 2, 1)
    assert made.run(AGAIN).submissions == 0
    reject_all(made)
    assert made.run(AGAIN).submissions == 1
    prompts = made.manifest().select("prompt", "sample", "current").rows()
    assert prompts == [
        ("a better prompt", 1, True),
        ("a better prompt", 2, True),
        ("an image of bad", 1, False),
    ]


def test_with_a_matrix_each_request_of_the_row_is_bought_again(project: Make) -> None:
    made = project([{"id": "bad", "prompt": "an image", "aspect_ratio": "1:1"}])
    made.set(input={"matrix": {"model": ["sketch-1", "still-1"]}})
    made.run()
    assert to_buy_again(made) == (0, 0)
    decide(made, "rejected", ("bad", 1))  # of both models
    assert to_buy_again(made) == (2, made.quote().totals.spent)
    told = json.loads(command("status", str(made.config), "--json").stdout)
    assert told["to_buy_again"] == {"jobs": 2, "quoted": told["spent"]}
    done = made.run(AGAIN)
    assert (done.submissions, done.jobs, done.stored) == (2, 4, 4)
    assert made.manifest().select("model", "sample").rows() == [
        ("sketch-1", 1),
        ("sketch-1", 2),
        ("still-1", 1),
        ("still-1", 2),
    ]
    files = reviews(made.config, None, as_arrow=False)
    one = files[(files["sample"] == 2) & (files["model"] == "still-1")]
    review(made.config, one[["row_id", "sample", "job_key"]].assign(decision="rejected"), None)
    assert made.run(AGAIN).submissions == 0


def test_rows_without_ids_too_also_equal_ones_and_in_another_order(project: Make) -> None:
    rows = [
        {"prompt": prompt, **IMAGE, "shot": shot} for prompt, shot in (("x", "1"), ("x", "2"), ("y", "3"))
    ]
    made = project(rows)
    made.run()
    decide(made, "rejected", (made.manifest().filter(shot="2")["row_id"].item(), 1))
    assert made.run(AGAIN).submissions == 1
    assert made.manifest().select("shot", "sample").rows() == [("1", 1), ("2", 1), ("2", 2), ("3", 1)]
    made.rows(*reversed(rows))
    done = made.run(AGAIN)
    assert (done.submissions, done.jobs, done.stored, done.details.others) == (0, 4, 4, 0)
    assert made.manifest().select("shot", "sample").rows() == [("3", 1), ("2", 1), ("2", 2), ("1", 1)]
    default = made.backlot.service.models["sketch-1"].supported_resolutions[0]
    made.rows(*(row | {"resolution": default} for row in rows))
    done = made.run(AGAIN)
    assert (done.submissions, done.jobs, done.stored, done.details.others) == (0, 4, 4, 0)


def test_all_samples_are_current_where_the_model_is_gone_or_the_row_asks_for_fewer(project: Make) -> None:
    others = [{"id": "b", "prompt": "another", "model": "still-1"}]
    made = project([*images("a"), *others, *images("c", samples="3")])
    made.run()
    decide(made, "rejected", ("a", 1), ("b", 1))
    made.rows(*images("a"), *others, *images("c"))
    done = made.run(AGAIN)
    assert (done.submissions, done.jobs, done.stored, done.details.others) == (2, 7, 7, 0)
    del made.backlot.service.models["sketch-1"]
    reject_all(made)
    done = made.run(AGAIN)
    assert (done.submissions, done.jobs, done.stored, done.details.others) == (1, 8, 8, 0)
    assert made.manifest()["current"].all()


def test_a_csv_of_some_rows_hides_nothing_and_buys_nothing_twice(project: Make) -> None:
    made = with_sheet(project(images(*"abcdef")))
    made.run()
    decide(made, "rejected", ("b", 1), ("e", 1))
    (made.folder / "again.csv").write_text(
        "id,prompt,model,aspect_ratio\ne,an image of e,sketch-1,1:1\nb,a better b,sketch-1,1:1\n"
    )
    done = made.run(AGAIN, "input.path=again.csv")
    assert (done.submissions, done.jobs, done.stored, done.exit_code) == (2, 8, 8, 0)
    assert (done.details.others, done.quoted) == (5, 8 * PRICE)
    assert made.report()["jobs"] == sheet_summary()["jobs"] == made.manifest().height == 8
    shown = [(card["row_id"], card["prompt"][:8], card["sample"]) for card in cards()]
    assert shown[:4] == [
        ("e", "an image", 1),
        ("e", "an image", 2),
        ("b", "an image", 1),
        ("b", "a better", 1),
    ]
    assert sorted(row_id for row_id, *_ in shown[4:]) == [*"acdf"]
    done = made.run(AGAIN)
    assert (done.submissions, done.jobs, done.stored, done.details.others) == (0, 8, 8, 1)
    assert [(card["row_id"], card["sample"]) for card in cards()] == [
        *(("a", 1), ("b", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("e", 2), ("f", 1)),
    ]
    made.run("report.contact_sheet=3")
    assert [card["row_id"] for card in cards()] == ["a", "b", "b"]


# ---- money


def test_two_runs_at_once_buy_the_sample_once(project: Make) -> None:
    made = project(images(*"abcdefgh"), image_seconds=0.05)
    made.run()
    reject_all(made)
    summaries = side_by_side(made, AGAIN)
    assert sum(summary.submissions for summary in summaries) == 8
    assert {summary.exit_code for summary in summaries} <= {0, 3}
    assert (len(made.sold), made.charged) == (16, 16 * PRICE)


# ---- rounds


class Person(LogWatcher):
    """Notes what it is told, and answers so; None is nobody."""

    def __init__(self, *, says: bool | None = None) -> None:
        self.says = says
        self.asked: list[Asked] = []
        self.quotes: list[Quote] = []
        self.notes: list[str] = []
        self.finished_with: list[Summary] = []

    async def approves(self, asked: Asked) -> bool | None:
        self.asked.append(asked)
        return self.says

    def quoted(self, quote: Quote) -> None:
        self.quotes.append(quote)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, summary: Summary) -> None:
        self.finished_with.append(summary)


def with_check(steps: batch.Steps, rejects: Callable[[str, int], bool]) -> batch.Steps:
    """The steps with a check that rejects files by their row and sample, as soon as they are stored."""

    async def looked_at(run: Run) -> Summary:
        summary = await steps.record(run)
        found = [
            Finding(FileKey(*file), ("blank",), rejected_by="blank" if rejects(row_id, sample) else "")
            for *file, row_id, sample, _ in (await run.ledger.read(marks.files)).iter_rows()
        ]
        await run.ledger.write(marks.found, found)
        return summary

    return replace(steps, record=looked_at)


def checked(
    made: Project,
    *overrides: str,
    rejects: Callable[[str, int], bool],
    says: bool | None = None,
    choice: Choice = ALL,
) -> tuple[Summary, Person]:
    """A run with such a check."""
    steps = with_check(batch.Steps(bounds=made.bounds), rejects)
    person = Person(says=says)
    settings, token = load(made.config, [AGAIN, *overrides]), WATCHER.set(person)
    try:
        done = asyncio.run(batch.generate(settings, approved=False, choice=choice, steps=steps))
    finally:
        WATCHER.reset(token)
    return done, person


def test_a_run_goes_on_until_each_row_has_a_file_that_is_not_rejected_or_no_sample_left(
    project: Make,
) -> None:
    made = project(images("good", "second", "third", "bad"))
    needs = {"good": 1, "second": 2, "third": 3, "bad": 9}
    done, person = checked(made, rejects=lambda row_id, sample: sample < needs[row_id])
    assert (done.jobs, done.stored, done.submissions, done.outcome) == (9, 9, 9, "complete")
    assert person.notes[:2] == [
        "3 rows have only rejected files: bought again, sample 2 of 3",
        "2 rows have only rejected files: bought again, sample 3 of 3",
    ]
    assert person.notes[-1] == (
        "1 row (bad) has only rejected files and no sample left: review.samples=4 allows one more"
    )
    assert person.finished_with == [done], "it is one run"
    assert samples(made) == [
        (name, number) for name, last in needs.items() for number in range(1, min(last, 3) + 1)
    ]
    assert (len(made.sold), made.charged) == (9, 9 * PRICE)
    assert checked(made, rejects=lambda *_: False)[0].submissions == 0


def test_there_are_no_rounds_without_the_setting_nor_beyond_the_budget(project: Make) -> None:
    made = project(images("a", "b"))
    done, person = checked(made, "review.buy_again=false", rejects=lambda *_: True)
    assert (done.submissions, person.notes) == (2, [])
    done, person = checked(made, "budget.limit=0.0045", rejects=lambda *_: True)
    assert [each.to_buy for each in person.quotes] == [2], "and no other round"
    assert (done.stop_reason, done.exit_code, done.stored, made.charged) == ("budget", 4, 3, 3 * PRICE)


def test_rounds_are_bought_by_the_approval_that_has_counted_them(project: Make) -> None:
    made = project(images("a", "b", "c"))
    overrides = ("budget.approve_above=0.0010", "budget.pilot=1")
    done, person = checked(made, *overrides, rejects=lambda row_id, _: row_id == "c", says=True)
    assert [asked.quote.quoted for asked in person.asked] == [PRICE, 2 * PRICE]
    assert [asked.quote.at_most for asked in person.asked] == [PRICE, 6 * PRICE]
    assert (done.stored, done.submissions) == (5, 5)
    assert [word.shown.jobs for word in done.approvals] == [1, 2]


def test_chosen_rows_have_rounds_and_the_first_jobs_have_none(project: Make) -> None:
    made = project(images("a", "b"))
    made.run()
    reject_all(made)
    done, _ = checked(made, rejects=lambda *_: True, choice=Choice(only=("b",)))
    assert (done.submissions, samples(made)) == (2, [("a", 1), ("b", 1), ("b", 2), ("b", 3)])
    done, _ = checked(made, rejects=lambda *_: True, choice=Choice(first=1))
    assert (done.submissions, samples(made)[:2]) == (1, [("a", 1), ("a", 2)])


def test_a_batch_file_that_is_changed_meanwhile_is_not_read_by_a_round(project: Make) -> None:
    made = project(images("a"))

    def rejects(row_id: str, sample: int) -> bool:
        made.rows(*images("a", "b", "c"))
        return sample == 1

    done, _ = checked(made, rejects=rejects)
    assert (done.submissions, samples(made)) == (2, [("a", 1), ("a", 2)])


def test_a_round_that_nobody_approves_is_not_bought_and_the_rounds_before_are_reported(project: Make) -> None:
    made = project(images("a", "b"))
    made.run()
    made.rows(*images("a", "b", "c"))
    done, person = checked(made, "budget.approve_above=0.0045", rejects=lambda *_: True)
    assert [asked.quote.quoted for asked in person.asked] == [3 * PRICE], "two rows are rejected besides"
    assert (done.stop_reason, done.exit_code, done.stored, done.submissions) == ("approval", 4, 3, 1)
    assert made.report()["stored"] == 3
    assert person.finished_with == [done]
