"""The contact sheet as files: what a run writes, what the next one leaves alone, and what cannot be shown."""

from __future__ import annotations

import asyncio
import html
import io
import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from PIL import Image

from callsheet.records import State, dollars
from callsheet.report.contact_sheet import sheet
from callsheet.report.contact_sheet.thumbnails import Decoder, Seen, Thumbnails
from callsheet.report.remedies import remedies
from callsheet.session import Bounds
from tests.cli.test_rows import printed
from tests.conftest import Project
from tests.report.contact_sheets import settings_for, with_sheet
from tests.servers.backlots import finish_videos
from tests.servers.forks import forks
from tests.servers.s3 import Server
from tests.waiting import LONGEST, wait_until

Make = Callable[..., Project]
SMALL = {"model": "sketch-1", "aspect_ratio": "1:1"}
IMAGE = SMALL | {"resolution": "0.5K", "output_format": "png"}
VIDEO = {"model": "dailies-1", "duration": 1}
SHEET = Path("out/report/contact-sheet")


@pytest.fixture
def project(project: Make) -> Make:
    """Projects with a contact sheet."""
    return lambda rows, **service: with_sheet(project(rows, **service))


def images(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"id": name, "prompt": f"an image of {name}", **IMAGE, **more} for name in names]


def written(content: str) -> Any:
    """What a script gives to the page."""
    return json.loads(
        re.fullmatch(r"callsheet\.\w+\((?:[^{\[]+,)?(.*)\)\n(?:// \w+\n)?", content, re.DOTALL)[1]
    )


def cards(number: int = 0) -> list[dict[str, Any]]:
    return written((SHEET / f"data/jobs-{number:04d}.js").read_text())


def summary() -> dict[str, Any]:
    return written((SHEET / "data/summary.js").read_text())


def thumbnail(card: dict[str, Any]) -> Image.Image | None:
    """The picture of a card; None where it has none."""
    if not card["files"] or card["files"][0]["thumbnail"] is None:
        return None
    return Image.open(SHEET / card["files"][0]["thumbnail"])


def have_pictures() -> dict[str, bool]:
    """Whether each card has a picture, by its row."""
    return {card["row_id"]: thumbnail(card) is not None for card in cards()}


def files(folder: Path = SHEET) -> dict[str, int]:
    """When each file of the page was written."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_run_does_not_wait_for_very_many_thumbnails_and_report_makes_them(
    project: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project(images("a", "b"))
    made.bounds = Bounds(thumbnails=1)
    busy = made.folder / "python-on-a-busy-machine"
    busy.write_text("#!/bin/sh\nexec sleep 3600\n")
    busy.chmod(0o700)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(busy))  # by which the process that makes thumbnails starts
        made.run()
    assert not any(have_pictures().values())
    assert "callsheet report CONFIG makes them" in caplog.text
    done = callsheet("report", "batch.yaml", folder=made.folder)
    assert (done.returncode, (made.folder / SHEET / "index.html").as_uri() in done.stdout) == (0, True)
    assert all(have_pictures().values())
    assert summary()["states"] == {"stored": 2}


def test_every_job_is_a_card_whatever_its_state(project: Make) -> None:
    faults = {"rules": [{"prompt": "nobody knows", "do": "drop", "when": "after_charging"}]}
    rows = [
        *images("stored", shot="hero"),
        {"id": '"><b>', "prompt": "<script>alert(1)</script> & 'more'", **IMAGE},
        {"id": "refused", "prompt": "a forbidden-test-word", **IMAGE},
        {"id": "doubt", "prompt": "nobody knows", **IMAGE},
        {"id": "video", "prompt": "a video", **VIDEO},
        {"id": "rejected", "prompt": "", **IMAGE},
    ]
    made = project(rows, faults=faults)
    run = made.run()
    assert run.details.contact_sheet == "out/report/contact-sheet/index.html"
    shown = {card["row_id"]: card for card in cards()}
    states = {row: card["state"] for row, card in shown.items()}
    ends = {"refused": "failed", "doubt": "in_doubt", "video": "stored"}
    assert states == {"stored": "stored", '"><b>': "stored"} | ends
    stored, refused = shown["stored"], shown["refused"]
    assert (stored["cost"], stored["asked"], stored["carried"]) == (
        "0.0035",
        "1:1 · 0.5K",
        [["shot", "hero"]],
    )
    assert (refused["code"], refused["files"]) == ("content_policy_violation", [])
    assert "safety check" in refused["reason"]
    assert "no answer" in shown["doubt"]["reason"]
    sent = {"aspect_ratio": "1:1", "output_format": "png", "resolution": "0.5K"}
    assert (stored["sent"], refused["sent"], shown["doubt"]["sent"]) == (None, sent, sent)
    assert (stored["steps"], shown["doubt"]["steps"]) == ([], remedies(State.IN_DOUBT))
    assert refused["steps"] == remedies(State.FAILED, ["content_policy_violation"])
    assert shown["video"]["files"][0]["duration"] == 1
    for card in (stored, shown["video"]):
        picture = thumbnail(card)
        assert picture
        assert max(picture.size) in (256, 320)  # none is enlarged
    about = summary()
    assert about["states"] == {"stored": 3, "failed": 1, "in_doubt": 1}
    assert (about["outcome"], about["jobs"], about["rejected"]) == ("partial", 5, 1)
    assert (about["spent"], about["inDoubt"]) == (dollars(run.spent), "0.0035")

    page = (SHEET / "index.html").read_text()  # has the cards also for who has no JavaScript
    pattern = r'<article class="[^"]*" data-row-id="([^"]*)" data-state="(\w+)">(.*)</article>'
    articles = re.findall(pattern, page)
    assert {html.unescape(row_id): state for row_id, state, _ in articles} == states
    assert html.escape(rows[1]["prompt"]) in articles[1][2]
    assert "<script>alert" not in page


def test_a_new_row_adds_its_thumbnail_and_the_config_limits_how_many_jobs_are_shown(project: Make) -> None:
    """The thumbnails that there are stay as they are; without a job to show there is no page."""
    made = project(images("one", "two"))
    assert made.run("report.contact_sheet=0").details.contact_sheet is None
    assert not SHEET.exists()
    made.run()
    before = files(SHEET / "thumbs")
    for row in made.manifest().iter_rows(named=True):
        Path(row["url"]).unlink()  # nothing can make these two again
    made.rows(*images("three", "two", "one"))
    made.run("report.contact_sheet=2")
    assert [card["row_id"] for card in cards()] == ["three", "two"]
    assert (summary()["jobs"], have_pictures()) == (3, {"two": True, "three": True})
    after = files(SHEET / "thumbs")
    assert (len(before), len(after)) == (2, 3)
    assert before.items() <= after.items()


def test_what_has_not_changed_of_the_page_is_left(project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards that say the same are not made again; and what is not as it was written, is."""
    monkeypatch.setattr(sheet, "PER_PART", 2)
    rows = images(*"abcde", shot="grid")
    made = project(rows)
    index, *parts = [SHEET / "index.html", *(SHEET / f"data/jobs-{number:04d}.js" for number in range(3))]

    def report() -> None:
        printed("report", str(made.config))

    def made_again(by: Callable[[], Any] = made.run) -> list[Path]:
        before = {path: path.stat().st_ino if path.exists() else 0 for path in (index, *parts)}
        by()
        return [path for path, inode in before.items() if path.stat().st_ino != inode]

    made.run()
    whole = parts[2].read_bytes()
    assert (made_again(), summary()["outcome"]) == ([], "complete")
    made.rows(*rows[:2], rows[2] | {"shot": "hero"}, *rows[3:])
    assert (made_again(), cards(1)[0]["carried"]) == ([parts[1]], [["shot", "hero"]])
    parts[2].write_bytes(whole[:100])
    assert (made_again(report), parts[2].read_bytes()) == ([parts[2]], whole)
    index.unlink()
    assert made_again() == [index, parts[0]]
    (SHEET / f"thumbs/{cards(0)[0]['files'][0]['sha256']}.jpg").unlink()
    assert (made_again(report), have_pictures()["a"]) == ([index, parts[0]], True)


def test_files_that_wait_for_a_thumbnail_are_looked_at_a_few_at_a_time(tmp_path: Path) -> None:
    async def missing() -> list[Seen | None]:
        thumbnails = Thumbnails(settings_for(tmp_path))
        try:
            looks = [thumbnails.look_at(f"{n}", str(tmp_path / f"{n}.png"), "image/png") for n in range(200)]
            assert len(asyncio.all_tasks()) < 20
            assert thumbnails.waiting == 200
            await thumbnails.finish()
            assert thumbnails.waiting == 0
            return [await look for look in looks]
        finally:
            await thumbnails.close()

    assert asyncio.run(missing()) == [None] * 200


def test_a_mark_of_a_job_that_is_not_shown_is_counted(project: Make) -> None:
    """The cards are as they were."""
    made = project(images("shown", "hidden"))
    made.run("report.contact_sheet=1")
    assert callsheet("review", "batch.yaml", "--keep", "hidden", folder=made.folder).returncode == 0
    made.run("report.contact_sheet=1")
    overview = written((SHEET / "data/overview.js").read_text())
    assert (len(overview["rows"]), overview["counts"]["kept"]) == (1, 1)


def test_a_file_that_is_damaged_or_gone_has_a_card_without_a_picture_until_it_is_back(project: Make) -> None:
    """To the checks, a damaged file is unreadable, and none of them rejects it."""
    damage = {"empty": b"", "beginning": b"\xff\xd8\xff\xe0 no image", "zeros": b"\x00" * 100_000}
    made = project([*images(*damage, "whole", "gone"), {"id": "zeros-video", "prompt": "a video", **VIDEO}])
    made.run("report.contact_sheet=0")
    for row in made.manifest().iter_rows(named=True):
        if row["row_id"] == "gone":
            gone = Path(row["url"]).rename("kept"), row["url"]
        elif row["row_id"] != "whole":
            Path(row["url"]).write_bytes(damage[row["row_id"].removesuffix("-video")])
    made.set(checks={"blank": "reject", "size": "reject", "duplicate": "reject"})
    assert made.run().outcome == "complete"
    assert [row for row, pictured in have_pictures().items() if pictured] == ["whole"]
    assert len(have_pictures()) == 6
    flagged = made.manifest().filter(pl.col("flags") == ["unreadable"])
    assert {*flagged["row_id"]} == {*damage, "zeros-video"}
    assert made.manifest()["decision"].null_count() == 6
    gone[0].rename(gone[1])
    made.run()
    assert [row for row, pictured in have_pictures().items() if pictured] == ["whole", "gone"]


def test_a_page_that_cannot_be_written_does_not_end_the_run(
    project: Make, caplog: pytest.LogCaptureFixture
) -> None:
    made = project(images("one"))
    (made.folder / "out/report").mkdir(parents=True)
    (made.folder / SHEET).write_text("in the way")
    run = made.run()
    assert (run.outcome, run.details.contact_sheet) == ("complete", None)
    assert "the contact sheet is not written" in caplog.text


def test_a_batch_that_is_known_only_from_the_ledger_has_its_cards(
    project: Make, new_database: Callable[[], str]
) -> None:
    """In PostgreSQL too; the samples of a row are neighbours, also those that were bought later."""
    refused = {"id": "refused", "prompt": "a forbidden-test-word", **IMAGE}
    made = project([*images("one", shot="hero"), refused])
    made.set(ledger={"url": new_database()})
    made.run()
    made.rows(refused, *images("one", shot="hero", samples=2))
    made.run()
    (made.folder / "out/report/plan.parquet").unlink()
    made.collect()
    shown = [(card["row_id"], card["sample"], card["state"], card["carried"]) for card in cards()]
    assert sorted(shown) == [
        ("one", 1, "stored", [["shot", "hero"]]),
        ("one", 2, "stored", [["shot", "hero"]]),
        ("refused", 1, "failed", [["shot", ""]]),
    ]
    assert [row for row, *_ in shown] in (["one", "one", "refused"], ["refused", "one", "one"])
    assert [(card["ordinal"], card["of"]) for card in cards() if card["row_id"] == "one"] == [(1, 2), (2, 2)]
    assert have_pictures() == {"one": True, "refused": False}


def test_the_page_fills_while_the_run_goes_on(project: Make) -> None:
    rows = [*images("image"), {"id": "doubt", "prompt": "nobody knows", **IMAGE}]
    rows.append({"id": "video", "prompt": "a video", **VIDEO})
    faults = {"rules": [{"prompt": "nobody knows", "do": "drop", "when": "after_charging"}]}
    made = project(rows, faults=faults, video_seconds=3600)
    made.set(poll={"timeout": LONGEST})
    run = threading.Thread(target=made.run)
    run.start()

    def filled() -> bool:
        try:
            states = {card["row_id"]: card["state"] for card in cards()}
            about = summary()
        except FileNotFoundError:
            return False
        is_filled = states == {"image": "stored", "doubt": "in_doubt", "video": "pending"}
        return (about["outcome"], about["inDoubt"], is_filled) == (None, "0.0035", True)

    wait_until(filled, "the page did not show the image, the doubt and the pending video beside each other")
    finish_videos(made.backlot.service)
    run.join()
    have = have_pictures()
    assert (summary()["outcome"], have["image"], have["video"]) == ("partial", True, True)


def test_a_decoder_gives_whole_thumbnails_and_one_that_dies_is_started_again(tmp_path: Path) -> None:
    """Also one that a pipe does not hold at once. Transparent parts are white."""
    noise = bytes(random.Random(1).choices((0, 255), k=320 * 320 * 3))
    Image.frombytes("RGB", (320, 320), noise).save(tmp_path / "noise.png")
    Image.new("RGB", (900, 600), "red").save(tmp_path / "red.png")
    Image.new("RGBA", (10, 10), (0, 0, 0, 0)).save(tmp_path / "clear.png")

    async def make() -> None:
        async with aclosing(Decoder(None)) as decoder:
            red, large, clear = (str(tmp_path / f"{name}.png") for name in ("red", "noise", "clear"))
            _, white = await decoder.decode(clear, "image/png")
            assert Image.open(io.BytesIO(white)).getpixel((5, 5)) == (255, 255, 255)
            looks = await asyncio.gather(*(decoder.decode(file, "image/png") for file in [large, red] * 2))
            assert len(looks[0][1]) > 1 << 16
            assert all(jpeg.endswith(b"\xff\xd9") for _, jpeg in looks)
            sizes = [Image.open(io.BytesIO(jpeg)).size for _, jpeg in looks]
            assert sizes == [(320, 320), (320, 213)] * 2
            assert looks[1][0] == Seen(900, 600, blank=True)
            decoder._process.kill()  # as the system does when it has no memory left
            await decoder._process.wait()
            assert await decoder.decode(red, "image/png") == (None, b"")
            assert await decoder.decode(red, "image/png") == looks[1]
            assert decoder.works

    asyncio.run(make())


# ---- the command


def callsheet(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return forks().run("-m", "callsheet", *arguments, cwd=folder)


def test_a_run_prints_the_pages_address_and_open_gives_it_to_the_browser(
    project: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = project(images("one"))
    none = callsheet("open", "batch.yaml", folder=made.folder)
    assert (none.returncode, none.stdout) == (2, "")
    assert "there is no contact sheet yet" in none.stderr
    assert "callsheet run CONFIG" in none.stderr
    address = (made.folder / SHEET / "index.html").as_uri()
    assert address in callsheet("run", "batch.yaml", folder=made.folder).stdout
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > opened\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    done = callsheet("open", "batch.yaml", folder=made.folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{address}\n", "")
    assert (made.folder / "opened").read_text() == f"{address}\n"
    answer = json.loads(callsheet("open", "batch.yaml", "--json", folder=made.folder).stdout)
    assert answer == {"batch": "test", "contact_sheet": address, "opened": True}


# ---- S3


def on_s3(made: Project, s3: Server, prefix: str, **report: Any) -> None:
    made.set(
        storage={"url": f"s3://{s3.bucket}/{prefix}/media", "endpoint_url": s3.endpoint_url},
        report={"url": f"s3://{s3.bucket}/{prefix}/report", **report},
    )


def test_on_s3_the_page_has_thumbnails_and_the_addresses_as_text(
    project: Make, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    made = project([{"id": "one", "prompt": "a small image", **SMALL}])
    on_s3(made, s3, "unsigned")
    run = made.run()
    assert run.details.contact_sheet == f"s3://{s3.bucket}/unsigned/report/contact-sheet/index.html"
    listed = s3.client().list_objects_v2(Bucket=s3.bucket, Prefix="unsigned/report/contact-sheet/")
    objects = {
        entry["Key"].rpartition("contact-sheet/")[2]: s3.client().get_object(
            Bucket=s3.bucket, Key=entry["Key"]
        )
        for entry in listed["Contents"]
    }
    assert objects["index.html"]["ContentType"] == "text/html"
    assert objects["page.js"]["ContentType"] == "text/javascript"
    (card,) = written(objects["data/jobs-0000.js"]["Body"].read().decode())
    file = card["files"][0]
    assert file["href"] is None
    assert objects[file["thumbnail"]]["ContentType"] == "image/jpeg"
    assert file["url"].startswith(f"s3://{s3.bucket}/unsigned/media/")
    assert "X-Amz-Signature" not in objects["index.html"]["Body"].read().decode()
    done = callsheet("open", "batch.yaml", folder=made.folder)
    assert (done.returncode, done.stdout) == (0, f"{run.details.contact_sheet}\n")
    assert "aws s3 sync" in done.stderr
    assert "report.links_valid_for" in done.stderr
