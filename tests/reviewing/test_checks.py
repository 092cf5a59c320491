"""The automatic checks: what each finds in stored files, what follows, and that each is checked once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from PIL import Image, ImageEnhance, ImageOps

from backlot.media.pictures import pattern
from callsheet.config.load import load_without_service
from callsheet.errors import ConfigError
from callsheet.records import RejectedFile
from callsheet.report.contact_sheet.decoder import decode, perceptual_hash
from callsheet.report.contact_sheet.thumbnails import Decoder
from callsheet.reviewing.checks import Pictures
from callsheet.reviewing.delivered import not_as_asked
from callsheet.session import Bounds
from callsheet.steps.record import report_anew
from callsheet.watch import LogWatcher
from tests.conftest import Project
from tests.report.contact_sheets import with_sheet
from tests.servers.backlots import finish_videos
from tests.servers.forks import forks
from tests.servers.s3 import Server
from tests.waiting import LONGEST, wait_until

Make = Callable[..., Project]
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1", "resolution": "0.5K", "output_format": "png"}
VIDEO = {"model": "dailies-1", "duration": 1}
OFF = {"blank": "off", "size": "off", "duplicate": "off", "delivered": "off", "command": None}
FAULTS = {"rules": [{"prompt": "nothing", "do": "blank"}, {"prompt": "narrow", "do": "wrong_size"}]}


class Watching(LogWatcher):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.files: list[RejectedFile] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def rejected(self, file: RejectedFile) -> None:
        self.files.append(file)


def images(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"id": name, "prompt": f"an image of {name}", **IMAGE, **more} for name in names]


def found(made: Project) -> dict[str, tuple[list[str], str | None]]:
    """What the manifest has of each file, by its row: the flags, and who has rejected it."""
    rows = made.manifest().iter_rows(named=True)
    return {
        row["row_id"]: (row["flags"] or [], row["decided_by"] if row["decision"] == "rejected" else None)
        for row in rows
    }


def run(made: Project, **checks: Any) -> Watching:
    """Runs the batch with these checks alone."""
    made.set(checks=OFF | checks)
    watching = Watching()
    assert made.run(watcher=watching).outcome == "complete"
    return watching


def program(folder: Path, body: str) -> str:
    """A program that carries out `body` for each file that it is asked about, as a command."""
    script = folder / "judge.py"
    lines = ["import json, sys, time", "for line in sys.stdin:", "    asked = json.loads(line)"]
    lines += [f"    {line}" for line in body.splitlines()]
    script.write_text("\n".join(lines))
    return f"{sys.executable} '{script}'"


SAY = "print(json.dumps(answer), flush=True)"


# ---- the checks of its own


def test_one_colour_a_black_video_and_another_ratio_than_asked_for_are_found(project: Make) -> None:
    """One check rejects what it finds, the other flags it."""
    rows = [
        *images("nothing", "something", "narrow"),
        {"id": "a video of nothing", "prompt": "nothing", **VIDEO},
        {"id": "a video", "prompt": "a video", **VIDEO},
        {"id": "narrow video", "prompt": "narrow", **VIDEO},
    ]
    made = project(rows, faults=FAULTS)
    watching = run(made, blank="flag", size="reject")
    flags = found(made)
    video_size, by = flags.pop("narrow video")
    assert (video_size[0].startswith("size: 9:16 ordered, "), by) == (True, "check:size")
    assert flags == {
        "nothing": (["blank"], None),
        "something": ([], None),
        "narrow": (["size: 1:1 ordered, 256 \u00d7 512 came"], "check:size"),
        "a video of nothing": (["blank"], None),
        "a video": ([], None),
    }
    assert watching.notes == ["2 files rejected by checks: size 2"]
    told = sorted((file.row_id, file.check) for file in watching.files)
    assert told == [("narrow", "size"), ("narrow video", "size")]
    assert all(Path(file.url).is_file() for file in watching.files)


@pytest.mark.parametrize(
    ("width", "height", "ratio", "resolution", "wrong"),
    [
        (1820, 1024, "16:9", "1K", ""),  # 1.777 times, rounded
        (1024, 1024, "16:9", "1K", "16:9"),
        (1376, 768, "16:9", "1K", ""),  # the area of 1K
        (1024, 576, "16:9", "1K", ""),  # its longer side
        (2048, 1152, "16:9", "1K", "1K"),
        (1024, 1024, "1:1", "2K", "2K"),
        (3840, 2160, "16:9", "4K", ""),
        (720, 1280, "9:16", "720p", ""),
        (960, 960, "1:1", "720p", ""),
        (1920, 1080, "16:9", "720p", "720p"),
        (1280, 720, "16:9", "1080p", "1080p"),
        (512, 512, "1:1", "512x512", ""),
        (500, 500, "1:1", "512x512", "512x512"),
        (300, 100, "auto", "standard", ""),
        (100, 900, None, None, ""),
    ],
)
def test_a_size_is_wrong_where_it_is_certainly_not_what_was_asked_for(
    width: int, height: int, ratio: str | None, resolution: str | None, wrong: str
) -> None:
    request = {"aspect_ratio": ratio, "resolution": resolution} if ratio else {}
    assert not_as_asked(width, height, request) == wrong


def test_nearly_the_same_image_of_another_row_is_found(project: Make) -> None:
    """Samples of one row are no duplicates, nor is what is like an image that is rejected."""
    made = project([{"id": "a", "prompt": "a fox", **IMAGE}, *images("bear")])
    made.set(input={"matrix": {"output_format": ["png", "jpeg"]}})  # of one row, and alike
    run(made, duplicate="flag")
    assert all(each == ([], None) for each in found(made).values())
    assert callsheet("review", "batch.yaml", "--reject", "bear").returncode == 0
    made.rows({"id": "b", "prompt": "a fox", **IMAGE}, {"id": "c", "prompt": "an image of bear", **IMAGE})
    made.set(input={"matrix": {"output_format": ["webp"]}})
    run(made, duplicate="flag")
    alike = {row["row_id"]: row["flags"] for row in made.manifest().iter_rows(named=True) if row["flags"]}
    assert alike == {"b": ["duplicate of row a"]}
    assert found(made)["b"][1] is None


def test_hashes_that_differ_in_few_bits_are_those_of_nearly_equal_images() -> None:
    pictures = Pictures([("a", "ffffffffffffffff")])
    pictures.add("b", "0000000000000000")
    assert pictures.like("c", "fffffffffffffff0") == "a"
    assert pictures.like("c", "ffffffffffffffe0") is None
    assert pictures.like("b", "000000000000000f") is None
    assert Pictures().like("a", "0000000000000000") is None


def drawn(seed: int) -> Image.Image:
    """An image in the composition that all have, without letters."""
    return pattern(random.Random(seed), 0.3, 512, 512)


def hash_of(image: Image.Image, format_: str = "PNG", **options: Any) -> str:
    """The hash of an image that was saved."""
    image.save("image", format_, **options)
    seen, _ = decode("image", f"image/{format_.lower()}", hashed=True)
    return str(seen["hash"])


def test_a_hash_is_what_older_ledgers_have() -> None:
    """Those of `imagehash.phash` 4.3.2, which made them before."""
    made = [perceptual_hash(drawn(seed)) for seed in range(3)]
    assert made == ["9b569b8d9052c679", "d2ce7fc60738b023", "db2d34d3b12d4670"]


def test_an_image_in_another_size_format_frame_or_light_is_nearly_the_same_and_another_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    image = drawn(0)
    pictures = Pictures([("a", hash_of(image))])
    again = {
        "re-encoded": hash_of(image, "JPEG", quality=50),
        "in another format": hash_of(image, "WEBP", quality=80),
        "half the size": hash_of(image.resize((256, 256)), "JPEG"),
        "larger": hash_of(image.resize((800, 800)), "JPEG"),
        "cropped by 2 %": hash_of(image.crop((5, 5, 507, 507))),
        "brighter": hash_of(ImageEnhance.Brightness(image).enhance(1.15), "JPEG"),
    }
    assert [name for name, hash_ in again.items() if not pictures.like("b", hash_)] == []
    others = {"mirrored": hash_of(ImageOps.mirror(image)), "turned": hash_of(image.rotate(90))}
    others |= {f"drawn from {seed}": hash_of(drawn(seed)) for seed in range(1, 40)}
    assert [name for name, hash_ in others.items() if pictures.like("b", hash_)] == []


# ---- each file once


def test_each_file_is_checked_once_and_decoded_once_for_its_thumbnail_and_for_equal_files(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    ask = Decoder._ask

    async def counted(self: Decoder, path: Path, mime_type: str) -> Any:
        looked.append(path.name)
        return await ask(self, path, mime_type)

    monkeypatch.setattr(Decoder, "_ask", counted)
    made = with_sheet(project(images("one", "nothing", "more of nothing"), faults=FAULTS))
    command = program(made.folder, f'answer = {{"score": 1}}; open("asked", "a").write(line)\n{SAY}')
    run(made, blank="flag", command=command)
    assert len(list(Path("out/report/contact-sheet/thumbs").iterdir())) == len(looked) == 2
    made.rows(*images("one", "nothing", "more of nothing", "three"))
    run(made, blank="reject", command=command)
    asked = [json.loads(line)["row"] for line in Path("asked").read_text().splitlines()]
    assert sorted(asked) == ["more of nothing", "nothing", "one", "three"]
    assert len(looked) == 3


def test_what_was_not_checked_or_cannot_be_read_is_checked_later_and_what_a_person_decided_stays(
    project: Make,
) -> None:
    made = project(images("nothing", "nothing to keep", "narrow"), faults=FAULTS)
    run(made)
    assert all(each == ([], None) for each in found(made).values())
    assert callsheet("review", "batch.yaml", "--keep", "nothing to keep").returncode == 0
    [url] = made.manifest().filter(pl.col("row_id") == "narrow")["url"]
    Path(url).rename("elsewhere")
    made.collect("checks.blank=reject", "checks.size=flag")
    known = {"nothing": (["blank"], "check:blank"), "nothing to keep": (["blank"], None)}
    assert found(made) == known | {"narrow": ([], None)}
    assert made.manifest()["decision"].to_list() == ["rejected", "kept", None]
    Path("elsewhere").rename(url)
    run(made, blank="reject", size="flag")
    assert found(made) == known | {"narrow": (["size: 1:1 ordered, 256 \u00d7 512 came"], None)}


def test_a_run_waits_for_very_many_files_only_where_it_buys_again_what_a_check_rejects(project: Make) -> None:
    """Otherwise `callsheet report` checks them."""
    made = project(images("nothing", "more of nothing"), faults=FAULTS)
    made.bounds = Bounds(thumbnails=1)
    assert run(made, blank="reject").notes == ["2 files not checked yet: callsheet report CONFIG checks them"]
    assert all(each == ([], None) for each in found(made).values())
    done = callsheet("report", "batch.yaml")
    assert (done.returncode, "2 files rejected by checks: blank 2" in done.stderr) == (0, True)
    assert all(each == (["blank"], "check:blank") for each in found(made).values())
    made.rows(*images("nothing new", "no nothing"))
    made.set(review={"buy_again": True, "samples": 1})
    run(made, blank="reject")
    assert all(each == (["blank"], "check:blank") for each in found(made).values())


def test_a_run_buys_again_what_a_check_rejects_until_a_file_passes(project: Make) -> None:
    rules = [{"prompt": "nothing", "nth": [1, 2], "do": "blank"}]
    made = project(images("nothing", "something"), faults={"rules": rules})
    made.set(review={"buy_again": True, "samples": 4})
    watching = run(made, blank="reject")
    assert len(made.sold) == 4
    files = made.manifest().filter(pl.col("row_id") == "nothing").sort("sample")
    assert files["decision"].to_list() == ["rejected", "rejected", None]
    assert [file.sample for file in watching.files] == [1, 2]


def test_files_are_checked_while_the_run_goes_on(project: Make) -> None:
    made = project(
        [*images("nothing"), {"id": "video", "prompt": "a video", **VIDEO}], faults=FAULTS, video_seconds=3600
    )
    made.set(poll={"timeout": LONGEST}, checks=OFF | {"blank": "reject"})
    watching = Watching()
    going = threading.Thread(target=made.run, kwargs={"watcher": watching})
    going.start()
    wait_until(lambda: watching.files, "the stored image was not checked beside the pending video")
    assert going.is_alive()
    finish_videos(made.backlot.service)
    going.join()
    assert found(made) == {"nothing": (["blank"], "check:blank"), "video": ([], None)}


def test_a_ledger_in_postgresql_has_the_same(project: Make, new_database: Callable[[], str]) -> None:
    made = project([*images("nothing", "narrow"), {"id": "a", "prompt": "a fox", **IMAGE}], faults=FAULTS)
    made.set(ledger={"url": new_database()})
    run(made, blank="reject", size="flag", duplicate="flag")
    made.rows({"id": "b", "prompt": "a fox", **IMAGE | {"output_format": "webp"}})
    run(made, duplicate="reject")
    assert found(made) == {
        "nothing": (["blank"], "check:blank"),
        "narrow": (["size: 1:1 ordered, 256 \u00d7 512 came"], None),
        "a": ([], None),
        "b": (["duplicate of row a"], "check:duplicate"),
    }


# ---- the program of the user's own


def test_a_program_gives_scores_and_flags_and_rejects(project: Make) -> None:
    judge = f"""
open("asked", "a").write(line)
answer = {{"score": len(asked["prompt"]), "flags": [asked["carried"]["shot"], "\\x1b[2J"], "more": 1}}
answer |= {{"reject": True}} if asked["row"] == "bad" else {{}}
{SAY}"""
    made = project(
        [*images("bad", shot="hero"), *images("good", shot="<b>"), *images("nothing", shot="")], faults=FAULTS
    )
    watching = run(made, blank="reject", command=program(made.folder, judge))
    assert found(made) == {
        "bad": (["hero", r"\x1b[2J"], "check:command"),
        "good": (["<b>", r"\x1b[2J"], None),
        "nothing": (["blank", "", r"\x1b[2J"], "check:blank"),
    }
    assert watching.notes == ["2 files rejected by checks: blank 1, command 1"]
    asked = {row["row"]: row for row in map(json.loads, Path("asked").read_text().splitlines())}
    path = Path(asked["good"].pop("path"))
    assert path.is_absolute()
    [good] = made.manifest().filter(pl.col("row_id") == "good")["url"]
    assert path.samefile(good)
    assert asked["good"] == {
        "row": "good",
        "sample": 1,
        "index": 0,
        "prompt": "an image of good",
        "model": "sketch-1",
        "carried": {"shot": "<b>"},
    }


def test_a_program_that_fails_is_named_once_and_the_run_goes_on_and_a_mended_one_judges_the_rest(
    project: Make,
) -> None:
    made = project(images("one", "two", "nothing"), faults=FAULTS)
    for body, why, wrote in (
        ('sys.exit("no model here")', "it ended", "; it wrote: no model here"),
        ("time.sleep(10_000)", "it took longer than 0.5 s for a file", ""),
        (
            "print('{\"score\": NaN}', flush=True)",
            'its answer is no JSON object with score, flags and reject ({"score": NaN})',
            "",
        ),
    ):
        made.bounds = Bounds(judging=0.5 if "sleep" in body else 600)
        [note] = run(made, blank="flag", command=program(made.folder, body)).notes
        assert note.startswith(f"the program of checks.command judges no more files: {why}")
        assert note.endswith(wrote)
        assert "judge.py" in note
        assert found(made) == {"one": ([], None), "two": ([], None), "nothing": (["blank"], None)}
    [note] = run(made, command="no-such-program --fast").notes
    assert "it cannot be started: [Errno 2] No such file or directory" in note
    assert note.endswith(": no-such-program --fast")
    judge = (
        f'open("asked", "a").write(asked["row"] + " ")\nanswer = {{"flags": ["seen"], "reject": True}}\n{SAY}'
    )
    mended = program(made.folder, judge)
    assert run(made, blank="flag", command=mended).notes == ["3 files rejected by checks: command 3"]
    seen = (["seen"], "check:command")
    assert found(made) == {"one": seen, "two": seen, "nothing": (["blank", "seen"], "check:command")}
    [note] = run(made, blank="flag", command=mended).notes
    assert note.startswith("nothing has changed")
    assert sorted(Path("asked").read_text().split()) == ["nothing", "one", "two"], "each is judged once"


def test_what_the_other_checks_have_found_stays_when_the_program_judges_the_file_later(
    project: Make, new_database: Callable[[], str]
) -> None:
    """Also in PostgreSQL, of a file that is rejected already, and of one that a later file is like."""
    first = [*images("nothing"), {"id": "first", "prompt": "a narrow fox", **IMAGE}]
    made = project(first, faults=FAULTS)
    made.set(ledger={"url": new_database()})
    builtin = {"blank": "reject", "size": "flag", "duplicate": "flag"}
    fails = program(made.folder, "sys.exit()")
    run(made, **builtin, command=fails)
    made.rows(*first, first[1] | {"id": "second", "output_format": "webp"})
    run(made, **builtin, command=fails)
    size, like = "size: 1:1 ordered, 256 \u00d7 512 came", "duplicate of row first"
    flags = {"nothing": ["blank"], "first": [size], "second": [size, like]}
    by = {"nothing": "check:blank"}
    assert found(made) == {row: (flags[row], by.get(row)) for row in flags}
    judge = f'answer = {{"flags": ["seen"], "reject": asked["row"] != "first"}}\n{SAY}'
    run(made, **builtin, command=program(made.folder, judge))
    by |= {"second": "check:command"}
    assert found(made) == {row: ([*flags[row], "seen"], by.get(row)) for row in flags}


def test_an_interrupted_run_does_not_wait_for_the_program(project: Make) -> None:
    made = project(images("one"))
    made.set(checks=OFF | {"command": program(made.folder, 'open("asked", "w").close(); time.sleep(10_000)')})

    def interrupt() -> None:
        wait_until(Path("asked").exists, "the program is not asked")
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=interrupt)
    pressing.start()
    summary = made.run()
    pressing.join()
    assert (summary.stored, found(made)) == (1, {"one": ([], None)})
    assert run(made, blank="flag").notes == []


def test_a_command_that_is_none_is_an_error_of_the_config(project: Make) -> None:
    made = project(images("one"))
    for command, why in ("judge 'a", "No closing quotation"), ("  ", "names no program"):
        made.set(checks={"command": command})
        with pytest.raises(ConfigError, match=why):
            made.run()


def test_of_a_file_on_s3_the_program_gets_a_copy(
    project: Make, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    made = project(images("nothing"), faults=FAULTS)
    made.set(storage={"url": f"s3://{s3.bucket}/checks/media", "endpoint_url": s3.endpoint_url})
    read = f'answer = {{"flags": [open(asked["path"], "rb").read(4)[1:].decode()]}}\n{SAY}'
    run(made, blank="flag", command=program(made.folder, read))
    assert found(made) == {"nothing": (["blank", "PNG"], None)}


def callsheet(*arguments: str) -> Any:
    return forks().run("-m", "callsheet", *arguments, cwd=Path.cwd())


def test_a_run_that_waits_for_checks_or_thumbnails_says_how_far_they_are(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in {"_LOOK": 0.005, "_SAID_AFTER": 0.0, "_SAID_EVERY": 0.0}.items():
        monkeypatch.setattr(f"callsheet.steps.record.{name}", seconds)
    made = project([{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(40)])
    made.run()
    for subject, checks, cards in (("checks", {"blank": "flag"}, 0), ("thumbnails", {}, 100)):
        made.set(report={"contact_sheet": cards})
        notes = run(made, **checks).notes
        assert any(re.match(rf"{subject}: \d+ of \d+ files", note) for note in notes), notes


def test_report_says_how_far_it_is_and_how_long_the_rest_takes(
    project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in {"_LOOK": 0.005, "_SAID_AFTER": 0.0, "_SAID_EVERY": 0.0}.items():
        monkeypatch.setattr(f"callsheet.steps.record.{name}", seconds)
    made = project([{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(40)])
    made.run()
    made.set(checks={"blank": "flag"}, report={"contact_sheet": 100})
    notes: list[str] = []
    asyncio.run(report_anew(load_without_service(made.config), notes.append))
    assert any(re.fullmatch(r"checks: \d+ of 40 files, about \d+ s left", note) for note in notes), notes
