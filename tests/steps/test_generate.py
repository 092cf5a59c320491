"""The main job, end to end: a batch file becomes priced, paid-for, stored and accounted media."""

from __future__ import annotations

import hashlib
import io
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import av
import polars as pl
import pytest
from PIL import Image
from typer.testing import CliRunner

from callsheet.cli.main import app
from callsheet.config.load import load
from callsheet.errors import ServiceError, StorageError
from callsheet.ledger import spending
from callsheet.ledger.walls import Wall
from callsheet.present.allowances import of_wall
from callsheet.present.priced import facts
from callsheet.present.results import line, topic
from callsheet.pricing.choice import Choice
from callsheet.pricing.plan import last_plan
from callsheet.pricing.quote import Quote
from callsheet.records import Change, State, dollars
from callsheet.storage.spool import work_folder
from callsheet.watch import Asked, LogWatcher
from tests.cli.test_reconcile import spend
from tests.conftest import Make, Project, images
from tests.report.contact_sheets import with_sheet
from tests.servers.backlots import finish_videos
from tests.servers.proxies import ReverseProxy, http_answer
from tests.servers.s3 import Server
from tests.steps.test_asking import dearer

IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"model": "dailies-1", "aspect_ratio": "9:16", "duration": 1}


def test_what_a_run_has_done_is_said_before_how_the_batch_stands(project: Make) -> None:
    videos = [{"id": f"v{n}", "prompt": "a video", **VIDEO} for n in range(2)]
    made = project(images(2), video_seconds=600)
    assert topic(made.run()) == "2 bought, 0.0030 USD; 2 of 2 stored, 0.0030 USD"
    again = made.run()
    assert topic(again) == "nothing to buy; 2 of 2 stored, 0.0030 USD"
    assert line(again).startswith("nothing to buy; 2 jobs: 2 stored; ")
    made.rows(*images(3), *videos)
    pending = made.run("poll.timeout=0.1")
    assert (
        topic(pending)
        == f"3 bought, {dollars(pending.quoted - Decimal('0.0030'))} USD; 3 of 5 stored, 0.0045 USD"
    )
    finish_videos(made.backlot.service)
    assert topic(made.collect()).startswith("2 fetched; 5 of 5 stored, ")
    assert topic(made.collect()).startswith("nothing to fetch; 5 of 5 stored, ")
    made.rows(*images(6), *videos)
    assert topic(made.run("budget.limit=0.0010")).startswith("nothing bought; 5 of 8 stored, ")


def test_images_and_videos_are_bought_stored_and_accounted(project: Make) -> None:
    videos = [
        {"id": "video", "prompt": "a video", **VIDEO},
        {"id": "loud", "prompt": "loud", **VIDEO, "sound": "true"},
    ]
    made = project([*images(3), {"id": "png", "prompt": "png", **IMAGE, "output_format": "png"}, *videos])
    summary = made.run()
    assert (summary.outcome, summary.exit_code, summary.jobs, summary.stored) == ("complete", 0, 6, 6)
    assert summary.spent == summary.quoted == made.charged
    assert not summary.estimated_costs
    assert "not the service's word" not in line(summary)
    manifest = made.manifest()
    assert manifest.height == 6
    for row in manifest.iter_rows(named=True):
        content = Path(row["url"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == row["sha256"]
        assert len(content) == row["bytes"]
        if row["mime_type"] == "video/mp4":
            with av.open(row["url"]) as video:
                assert [stream.type for stream in video.streams] == ["video"] + ["audio"] * row["has_sound"]
        else:
            with Image.open(row["url"]) as picture:
                assert (picture.size, picture.format) == (
                    (row["width"], row["height"]),
                    "PNG" if row["row_id"] == "png" else "JPEG",
                )


def test_a_reordered_file_buys_nothing_again_and_a_changed_prompt_is_a_new_job(project: Make) -> None:
    rows = images(3)
    made = project(rows)
    made.run()
    made.rows(*reversed(rows))
    assert made.run().submissions == 0
    made.rows(rows[0] | {"prompt": "another"}, *rows[1:])
    changed = made.run()
    assert (changed.submissions, changed.outcome) == (1, "complete")
    assert made.manifest()["url"].n_unique() == 4


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, beside the project's files."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_everything_may_be_in_the_home_folder(project: Make, home: Path) -> None:
    """The manifest has whole paths, and another way to write the same folder buys nothing again."""
    made = project(images(1))
    (made.folder / "prompts.csv").rename(home / "prompts.csv")
    places = {
        "input.path": "~/prompts.csv",
        "storage.url": "~/media",
        "ledger.url": "sqlite:///~/ledger.db",
        "report.url": "~/report",
    }
    assert made.run(*(f"{key}={value}" for key, value in places.items())).submissions == 1
    assert not (made.folder / "~").exists()
    [url] = pl.read_parquet(home / "report/manifest.parquet")["url"]
    assert url.startswith(f"{home}/media/")
    assert Path(url).is_file()
    same = (f"{key}={value.replace('~', str(home))}" for key, value in places.items())
    assert made.run(*same).submissions == 0


def test_a_path_of_the_command_line_may_be_in_the_home_folder(project: Make, home: Path) -> None:
    """A shell leaves the `~` of `--to=~/copy.db` and of `sqlite:///~/l.db` to the program."""
    made = project(images(1))
    made.run()
    (home / "marks.csv").write_text("row_id,sample,decision\ns0,1,kept\n")
    config = str(made.config)
    for words in (
        ["review", config, "--from=~/marks.csv"],
        ["ledger", "backup", config, "--to=~/copy.db"],
        ["ledger", "move", config, "--to=sqlite:///~/moved.db"],
        ["init", "--project=~/project"],
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    names = {path.name for path in home.iterdir()}
    assert {"copy.db", "moved.db", "project"} <= names
    assert not (made.folder / "~").exists()
    assert made.run("ledger.url=sqlite:///~/moved.db").submissions == 0
    wrong = CliRunner().invoke(app, ["ledger", "backup", config, "--to=~nobody-here/copy.db"])
    assert wrong.exit_code == 2
    assert "no such home folder is known" in " ".join(wrong.output.replace("│", " ").split())


def test_what_failed_is_sent_again_where_a_setting_says_so_and_a_stop_before_it_is_a_stop(
    project: Make,
) -> None:
    """A refused prompt is not sent again with what the service could not make."""
    refused = {"id": "no", "prompt": "a forbidden-test-word", **IMAGE}
    error = {"endpoint": "images", "prompt": "image 0", "nth": [1, 2], "do": "error", "status": 500}
    made = project([refused, *images(2)], faults={"rules": [error]})
    made.set(attempts=2)
    assert (made.run().failed, made.run().exit_code) == (2, 3)
    assert made.run("retry_failed=gateway").submissions == 0
    again = made.run("retry_failed=server_error")
    assert (again.submissions, again.stored, again.failed, again.exit_code) == (1, 2, 1, 3)
    stopped = made.run("retry_failed=true", "budget.limit=0.0030", "attempts=4")
    assert (stopped.outcome, stopped.stop_reason, stopped.exit_code) == ("stopped", "budget", 4)
    assert made.run("retry_failed=true", "attempts=4").exit_code == 3


@pytest.mark.parametrize("limit, bought", [("0.0059", 3), ("0.0060", 4)])
def test_the_budget_is_a_wall(project: Make, limit: str, bought: int) -> None:
    made = project(images(10))
    made.set(budget={"limit": limit})
    summary = made.run()
    assert (summary.outcome, summary.stop_reason, summary.exit_code) == ("stopped", "budget", 4)
    assert summary.stored == bought
    assert made.charged == summary.spent <= Decimal(limit)
    assert sorted(made.manifest()["row_id"]) == [f"s{n}" for n in range(bought)]


def test_a_balance_that_is_too_small_is_a_wall_too(project: Make) -> None:
    made = project(images(5), balance=Decimal("0.0050"))
    summary = made.run()
    assert (summary.stop_reason, summary.exit_code, summary.stored) == ("balance", 4, 3)
    said = "row s3, 0.0015 USD, does not fit what is left of the balance: 0.0005 USD"
    assert summary.stop_message == said


class Slow(LogWatcher):
    """Somebody who says yes to every quote; but before the first yes all prices have doubled."""

    def __init__(self, made: Project) -> None:
        self.made = made
        self.quotes: list[Quote] = []

    async def approves(self, asked: Asked) -> bool:
        if not self.quotes:
            dearer(self.made)
        self.quotes.append(asked.quote)
        return True


@pytest.mark.parametrize("valid_for, priced", [(0, ["0.0030", "0.0060"]), (60, ["0.0030"])])
def test_a_rate_that_changes_while_somebody_makes_up_his_mind_is_quoted_again(
    project: Make, valid_for: int, priced: list[str]
) -> None:
    made = project(images(2))
    made.set(budget={"approve_above": "0.0010", "quote_valid_for": valid_for})
    watcher = Slow(made)
    summary = made.run(watcher=watcher)
    assert [f"{quote.quoted:.4f}" for quote in watcher.quotes] == priced
    assert (summary.stored, summary.spent) == (2, Decimal("0.0060"))
    if len(priced) > 1:
        rate = "sketch-1 0.25K not_applicable image: 0.0030, was 0.0015"
        assert any(told.startswith(rate) for _, told in facts(watcher.quotes[-1]))


def test_row_ids_may_be_anything_and_a_carried_column_never_takes_a_name_of_the_manifests(
    project: Make,
) -> None:
    ids = ["../up", "a/b", "a b", "ü", ".hidden", "x" * 300, "CON", "a%2Fb"]
    carried = {"cost": "mine", "input_cost": "too"}
    made = project([{"id": name, "prompt": f"row {name[:9]}", **IMAGE, **carried} for name in ids])
    assert made.run().stored == len(ids)
    manifest = made.manifest()
    urls = manifest["url"].to_list()
    assert len(set(urls)) == len(ids)
    assert all(Path(url).resolve().is_relative_to(made.folder / "out/media") for url in urls)
    [its_own] = {*manifest.select("cost", "input_cost", "input_input_cost").iter_rows()}
    assert its_own == (Decimal("0.0015"), "too", "mine")


def test_a_report_that_is_written_anew_names_its_contact_sheet(project: Make) -> None:
    made = with_sheet(project(images(1)))
    made.run()
    told = CliRunner().invoke(app, ["report", str(made.config)], env={"COLUMNS": "500"}).output
    assert "out/report/contact-sheet/index.html" in told


def test_everything_may_live_in_s3(project: Make, s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch file, a reference image, the media and the report; the plan and the spool stay here."""
    made = project(images(1))
    s3.sign_in(monkeypatch)
    client = s3.client()
    picture = io.BytesIO()
    Image.new("RGB", (64, 64), (30, 30, 200)).save(picture, "PNG")
    client.put_object(Bucket=s3.bucket, Key="in/ref.png", Body=picture.getvalue())
    rows = f"id,prompt,model,reference_image\na,x,sketch-1,\nb,y,still-1,s3://{s3.bucket}/in/ref.png\n"
    client.put_object(Bucket=s3.bucket, Key="in/rows.csv", Body=rows.encode())
    made.set(
        input={"path": f"s3://{s3.bucket}/in/rows.csv"},
        storage={"url": f"s3://{s3.bucket}/media"},
        report={"url": f"s3://{s3.bucket}/report"},
    )
    summary = made.run()
    assert (summary.outcome, summary.stored) == ("complete", 2)
    manifest = client.get_object(Bucket=s3.bucket, Key="report/manifest.parquet")["Body"].read()
    for row in pl.read_parquet(manifest).iter_rows(named=True):
        stored = client.get_object(Bucket=s3.bucket, Key=row["url"].removeprefix(f"s3://{s3.bucket}/"))
        assert hashlib.sha256(stored["Body"].read()).hexdigest() == row["sha256"]
        assert stored["ContentType"] == row["mime_type"]
    assert made.run().submissions == 0


def test_storage_that_takes_nothing_is_found_before_the_first_cent(
    project: Make, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project(images(1))
    s3.sign_in(monkeypatch, "reader")
    made.set(storage={"url": f"s3://{s3.bucket}/read-only"})
    with pytest.raises(StorageError, match=s3.bucket):
        made.run()
    assert made.charged == 0


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_folder_for_downloads_that_takes_nothing_is_found_before_the_first_cent(
    project: Make, kind: str
) -> None:
    made = project(images(1))
    spool = work_folder(load(made.config, ())) / "spool"
    spool.write_text("mine") if kind == "file" else spool.symlink_to("nowhere/at/all")
    with pytest.raises(StorageError, match=r"spool.*it is not a folder") as raised:
        made.run()
    assert (raised.value.exit_code, "report.url" in raised.value.hint, made.charged) == (2, True, 0)
    assert not (made.folder / "nowhere").exists()
    spool.unlink()
    assert made.run().stored == 1


def test_unpriced_rows_are_bought_where_the_config_allows_it_and_cost_what_usage_says(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "proof-1"}])
    made.set(budget={"allow_unpriced": True})
    summary = made.run()
    assert (summary.stored, summary.quoted, summary.spent) == (1, 0, Decimal("0.0525"))
    assert summary.spent == made.charged


class Spending(LogWatcher):
    """Somebody else, who buys something dear as soon as the first image is stored."""

    def __init__(self, made: Project) -> None:
        self.made: Project | None = made

    def changed(self, change: Change) -> None:
        if self.made and change.state is State.STORED:
            spend(self.made, self.made.backlot.api_key)
            self.made = None


def test_a_run_whose_balance_is_spent_by_others_stops_and_keeps_what_it_has(project: Make) -> None:
    """402 in the middle: no more submissions, and no job fails for it."""
    made = project(images(30), image_seconds=0.1, balance=Decimal("0.0450"))
    made.set(limits={"concurrency": 1})
    summary = made.run(watcher=Spending(made))
    assert (summary.stop_reason, summary.exit_code, summary.failed) == ("balance", 4, 0)
    assert summary.spent + Decimal("0.0400") == made.charged <= Decimal("0.0450")
    assert summary.stored == summary.spent / Decimal("0.0015") < 30


# ---- a ledger that knows more than one batch, or has too little room for all jobs


SAME = {"prompt": "an image", **IMAGE}  # 0.0015 USD


def test_the_balance_is_asked_for_once_where_something_is_to_buy_and_never_otherwise(project: Make) -> None:
    made = project(images(3))
    with ReverseProxy(made.backlot.base_url) as proxy:
        made.set(service={"base_url": proxy.url})
        assert made.run().stored == 3
        assert proxy.count("GET", "/v2/billing/balance") == 1
        assert made.read(spending.expected_balance, first=datetime.now(UTC)) is not None, (
            "evidence for doubts"
        )
        assert made.run().submissions == 0
        made.rows(*images(4))
        assert made.run(choice=Choice(only=("s0",))).submissions == 0
        assert proxy.count("GET", "/v2/billing/balance") == 1
        assert made.quote().balance is not None
        assert proxy.count("GET", "/v2/billing/balance") == 2
        assert made.run().submissions == 1
        assert proxy.count("GET", "/v2/billing/balance") == 3


@pytest.mark.parametrize("answer", [None, http_answer(b"503 Unavailable", b"<html>maintenance</html>")])
def test_a_run_that_has_nothing_to_buy_needs_no_service(project: Make, answer: bytes | None) -> None:
    made = project([*images(2), {"id": "wrong", "prompt": "x", "model": "sketch-1", "aspect_ratio": "7:1"}])
    with ExitStack() as gateway:
        proxy = gateway.enter_context(ReverseProxy(made.backlot.base_url))
        made.set(service={"base_url": proxy.url}, budget={"quote_valid_for": 0})
        assert made.run().stored == 2
        if answer is None:
            gateway.close()
        else:
            proxy.refuses = lambda method, body: answer
        (made.folder / "out/report/report.json").unlink()
        again = made.run()
        assert (again.exit_code, again.outcome, again.stored, again.rejected_rows) == (0, "complete", 2, 1)
        assert made.report()["stored"] == 2
        plan = last_plan(load(made.config))
        assert plan is not None
        assert "nothing is to buy, so the prices are those of" in plan.notes[-1]
        for new in images(1, "new"), [{"id": "new", "prompt": "x", "model": "of-today"}]:
            made.rows(*images(2), *new)
            with pytest.raises(ServiceError) as caught:
                made.run("limits.patience=0.1")
            assert caught.value.exit_code == 4, "one is to buy, or the last catalogue does not have its model"
        made.rows(*images(2))
        assert made.run().exit_code == 0


def test_jobs_too_dear_are_skipped_and_the_run_ends_at_the_wall(project: Make) -> None:
    made = project(
        [
            {"id": "a", **SAME},
            {"id": "video", "prompt": "a video", **VIDEO},
            {"id": "b", **SAME},
            {"id": "c", **SAME},
        ]
    )
    made.set(budget={"limit": "0.0030"})
    stopped = made.run()
    assert (stopped.stored, stopped.stop_reason, stopped.exit_code) == (1, "budget", 4)
    for words in ("row video, ", "does not fit what is left of the budget: 0.0015 of 0.0030 USD"):
        assert words in (stopped.stop_message or "")
    made.set(budget={"on_exceed": "skip"})
    skipped = made.run()
    assert (skipped.stored, skipped.stop_reason, skipped.exit_code) == (2, "budget", 4)
    for words in ("skipped 2 jobs (the first: row video, ", "is left of the budget: 0.0000 of 0.0030 USD"):
        assert words in (skipped.stop_message or "")
    assert skipped.spent == Decimal("0.0030")


def test_a_refusal_makes_room_for_a_job_that_did_not_fit(project: Make) -> None:
    made = project([{"id": "no", **SAME, "prompt": "forbidden-test-word"}, {"id": "b", **SAME}])
    made.set(budget={"limit": "0.0015", "on_exceed": "skip"})
    summary = made.run()
    assert (summary.stored, summary.failed, summary.stop_reason) == (1, 1, None)


class Walls(LogWatcher):
    """The limits that a run says are nearly used up."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def nears(self, wall: Wall) -> None:
        self.lines.append(of_wall(wall))


def test_a_limit_that_is_nearly_used_up_is_said_once_over_two_runs(project: Make) -> None:
    made = project(images(4))  # of 0.0015 each
    first, second = Walls(), Walls()
    made.run("budget.limit=0.0070", "budget.per_day=1.00", watcher=first)
    assert first.lines == ["85 % of budget.limit is used: 0.0060 of 0.0070 USD"]
    made.rows(*images(5))
    assert made.run("budget.limit=0.0070", watcher=second).stop_reason == "budget"
    assert second.lines == []
    made.run("budget.limit=0.0080", "budget.warn=null", watcher=second)
    assert second.lines == []
