"""Images as rows: what is sent, what is not, and what is bought again; what comes out goes in nowhere."""

from __future__ import annotations

import asyncio
import base64
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from PIL import Image

from callsheet.config.load import load
from callsheet.errors import InputError
from callsheet.present.results import stopped
from callsheet.pricing.quote import Quote
from callsheet.pricing.references import Reading, fill
from callsheet.watch import LogWatcher
from tests.cli.test_rows import printed
from tests.conftest import Make, Project
from tests.pictures import HEIC, large, picture
from tests.servers import s3 as servers
from tests.steps.test_productions import another

MOVES = {"model": "reel-1", "prompt": "A slow push in"}
EDIT = {"model": "still-1", "prompt": "Make it night"}


def sent_images(made: Project, of: Quote) -> list[Any]:
    folder = made.folder / "out/report/images"
    reading = Reading(None, fit=True, folder=folder)
    jobs = [*of.plan.jobs_in_order()]
    return [asyncio.run(fill(job, reading=reading))["images"][0] for job in jobs]


@pytest.fixture
def six(project: Make) -> Project:
    made = project()
    photos = made.folder / "photos"
    photos.mkdir()
    for number, name in enumerate(("a.png", "b.jpg", "c.webp", "d.bmp")):
        kind = {"b.jpg": "JPEG", "c.webp": "WEBP", "d.bmp": "BMP"}.get(name, "PNG")
        (photos / name).write_bytes(picture(number, kind))
    (photos / "e.heic").write_bytes(HEIC)
    (photos / "f.png").write_bytes(large())
    made.set(input={"path": "photos", "defaults": MOVES})
    return made


def test_of_six_images_those_that_fit_are_bought_and_the_others_are_when_they_are_made_to(
    six: Project,
) -> None:
    before = six.quote()
    assert (before.to_buy, before.plan.rejected_rows) == (3, 3)
    reasons = {value.rpartition("/")[2]: reason for _, _, value, reason in before.plan.rejects.rows()}
    assert "photos/d.bmp is a BMP image" in reasons["d.bmp"]
    assert "input.fit: true" in reasons["d.bmp"]
    assert "save it as JPEG" in reasons["e.heic"]
    assert "12,0" in reasons["f.png"]
    assert "input.fit: true" in reasons["f.png"]
    assert six.run().stored == 3

    six.set(input={"fit": True})
    after = six.quote()
    assert (after.already_bought, after.to_buy, after.plan.rejected_rows) == (3, 2, 1)
    [note] = [note for note in after.plan.notes if "JPEG" in note]
    assert note.startswith("2 images are sent as JPEGs, as input.fit says: at most 4,096 pixels")
    original = (six.folder / "photos/f.png").read_bytes()
    assert six.run().stored == 5
    assert (six.folder / "photos/f.png").read_bytes() == original
    sizes = []
    for image in sent_images(six, after):
        content = base64.b64decode(image["url"].partition(",")[2])
        sizes.append(len(content))
        assert image["role"] == "first_frame"
        assert Image.open(io.BytesIO(content)).format in ("PNG", "JPEG", "WEBP")
    assert max(sizes) <= 10 << 20
    assert len(six.sold) == 5


def test_the_job_is_that_of_the_original_whatever_was_made_of_it(six: Project) -> None:
    six.set(input={"fit": True, "path": "photos/*.bmp"})
    assert six.run().stored == 1
    for made in (six.folder / "out/report/images").iterdir():
        made.write_bytes(picture(8, "JPEG"))  # as another version of the decoder makes it
    assert six.quote().to_buy == 0
    six.set(input={"fit": False})
    assert six.quote().to_buy == 0, "what is bought stays bought"


def test_each_model_of_a_matrix_gets_the_image_as_it_takes_one(project: Make) -> None:
    made = project()
    (made.folder / "cup.png").write_bytes(picture(1))
    made.set(
        input={
            "path": "cup.png",
            "defaults": {"prompt": "The cup turns"},
            "matrix": {"model": ["reel-1", "dailies-1", "still-1"]},
        }
    )
    roles = {job.model: job.request["images"][0]["role"] for job in made.quote().plan.jobs_in_order()}
    assert roles == {
        "reel-1": "first_frame",
        "dailies-1": "reference_image",
        "still-1": "reference_image",
    }
    assert made.run().stored == 3
    made.set(input={"role": "reference_image"})
    again = made.quote()
    assert again.to_buy == 1, "what was a reference image is the same request"


def test_an_edited_image_is_a_new_job_and_a_moved_folder_is_not(project: Make) -> None:
    made = project()
    photos = made.folder / "photos"
    photos.mkdir()
    for number, name in enumerate("abc"):
        (photos / f"{name}.png").write_bytes(picture(number))
    made.set(input={"path": "photos", "defaults": MOVES | {"model": "silent-1"}})
    assert made.run().stored == 3
    photos.rename(made.folder / "moved")
    made.set(input={"path": "moved"})
    assert made.quote().to_buy == 0
    Path("moved/b.png").write_bytes(picture(7))
    edited = made.quote()
    assert [job.row_id for job in edited.jobs_in_order()] == ["b"]
    assert any("another file of an image" in note for note in edited.plan.notes)
    assert edited.repeats == 1
    assert made.run().stop_reason == "approval"
    printed("review", "batch.yaml", "--reject", "b")
    rejected = made.quote()
    assert (rejected.to_buy, rejected.repeats) == (1, 0), "another image is what the row needs"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_an_image_that_is_half_a_copy_is_rejected_by_its_name_and_is_bought_when_it_is_whole(
    project: Make, kind: str
) -> None:
    made = project()
    image = Image.effect_noise((200, 150), 60).convert("RGB")
    encoded = io.BytesIO()
    image.save(encoded, kind)
    whole = encoded.getvalue()
    blocks = len(whole) // 2 // 4096 * 4096
    broken = {
        "half": whole[: len(whole) // 2],
        "head": whole[:12],
        "zeros": whole[:blocks] + bytes(len(whole) - blocks),
        "cut": whole[:-2],
    }
    (made.folder / "photos").mkdir()
    for name, content in (broken | {"whole": whole, "more": whole + bytes(10)}).items():
        (made.folder / f"photos/{name}.png").write_bytes(content)
    made.set(input={"path": "photos", "defaults": EDIT})
    quote = made.quote()
    reasons = {value.rpartition("/")[2]: reason for _, _, value, reason in quote.plan.rejects.rows()}
    assert {*reasons} == {f"{name}.png" for name in broken}
    assert reasons["half.png"].startswith(f"photos/half.png is a {kind} image without its end: copy it again")
    assert quote.to_buy == 2
    (made.folder / "photos/half.png").write_bytes(whole)
    assert made.quote().to_buy == 3

    data = base64.b64encode(broken["half"]).decode()
    address = f"data:image/{kind.lower()};base64,{data}"
    made.rows({"id": "x", "prompt": "x", "model": "still-1", "reference_image": "photos/cut.png"})
    made.set(input={"path": "prompts.csv"})
    [reject] = made.quote().plan.rejects.rows()
    assert reject[:3] == (2, "reference_image", "photos/cut.png")
    made.rows({"id": "x", "prompt": "x", "model": "still-1", "reference_image": address})
    [reject] = made.quote().plan.rejects.rows()
    assert "without its end" in reject[3]


def test_an_image_with_a_damaged_part_is_rejected(project: Make) -> None:
    made, content = project(), bytearray(large_png())
    content[len(content) // 2 : len(content) // 2 + 512] = bytes(512)
    (made.folder / "a.png").write_bytes(content)
    made.set(input={"path": "a.png", "defaults": EDIT})
    [(_, _, _, reason)] = made.quote().plan.rejects.rows()
    assert "a.png is a PNG image that is damaged" in reason


def large_png() -> bytes:
    encoded = io.BytesIO()
    Image.effect_noise((200, 150), 60).save(encoded, "PNG")
    return encoded.getvalue()


# ---- what comes out does not go in again


@pytest.fixture
def edits(project: Make) -> Project:
    """Edits of the two images of a folder, which are stored in that folder."""
    made = project()
    (made.folder / "photos").mkdir()
    for name in "ab":
        (made.folder / f"photos/{name}.png").write_bytes(picture(ord(name)))
    made.set(input={"path": "photos", "defaults": EDIT}, storage={"url": "photos/edits"})
    return made


def left_out(made: Project, *overrides: str) -> list[str]:
    return [note for note in made.quote(*overrides).plan.notes if "left out" in note]


@pytest.mark.parametrize(
    "overrides",
    [
        ["storage.url=linked/edits"],
        ["storage.url=file://{folder}/photos/edits"],
        ["input.path=linked"],
        ["storage.url=elsewhere"],
        ["input.path=photos/**/*.*g"],
        ["input.path=photos/**/*.*g", "storage.url={folder}/linked/edits"],
        ["storage.url=photos"],
        ["storage.url=photos", "input.path={folder}/linked"],
        ["storage.url=photos", "storage.key={row_id}-{sample}-{index}.{ext}"],
        ["report.url=photos/about", "input.fit=true"],
    ],
)
def test_edits_that_are_stored_in_the_folder_of_their_images_are_never_edited(
    edits: Project, overrides: list[str]
) -> None:
    Path("linked").symlink_to("photos")
    Path("photos/edits").mkdir()
    Path("elsewhere").symlink_to("photos/edits")
    given = [override.replace("{folder}", str(edits.folder)) for override in overrides]
    summaries = [edits.run(*given) for _ in range(3)]
    assert {summary.jobs for summary in summaries} == {2}
    assert len(edits.sold) == 2
    assert manifest_at(edits, given)["row_id"].to_list() == ["a", "b"]


def manifest_at(of: Project, overrides: list[str]) -> pl.DataFrame:
    return pl.read_parquet(of.folder / load(of.config, overrides).report.url / "manifest.parquet")


def test_a_place_in_the_folder_of_images_is_said_before_and_after_something_is_stored_there(
    edits: Project,
) -> None:
    assert left_out(edits) == ["what Callsheet makes in photos/edits is left out"]
    edits.run()
    [note] = left_out(edits)
    assert note == "2 files of photos are made by Callsheet, and left out: photos/edits"
    for name in ("a", "b"):
        shutil.copy(f"photos/edits/test/{name}-1-0.jpeg", f"photos/{name} at night.jpeg")
    [note] = left_out(edits)
    assert (
        "4 files of photos are made by Callsheet, and left out: photos/edits, photos/a at night.jpeg" in note
    )
    assert edits.quote().to_buy == 0


def test_batches_that_store_in_the_folder_of_their_images_buy_nothing_of_each_other(edits: Project) -> None:
    edits.set(storage={"url": "photos/night"})
    day = another(edits, "day", storage={"url": "photos/day"})
    for _ in range(3):
        assert (edits.run().jobs, day.run().jobs) == (2, 2)
    moved = edits.run("storage.url=photos/night2")
    assert (moved.jobs, len(edits.sold)) == (2, 4)
    printed("export", "batch.yaml", "--to", "photos/for the client", "--as", "imagefolder")
    shutil.copytree("photos/for the client/train", "photos/copied by hand")
    assert (edits.run().jobs, day.run().jobs) == (2, 2)
    assert len(edits.sold) == 4


def test_what_another_ledger_has_made_is_known_by_its_owner_file(edits: Project) -> None:
    edits.set(storage={"url": "photos"})
    edits.run()
    day = another(edits, "day", ledger={"url": "sqlite:///out/day.db"}, storage={"url": "photos/day"})
    for _ in range(3):
        assert (day.run().jobs, edits.run().jobs) == (2, 2)
    printed("export", "batch.yaml", "--to", "photos/client", "--as", "imagefolder")
    assert (day.run().jobs, len(day.sold)) == (2, 4)


def test_images_that_are_all_made_by_callsheet_are_named_by_their_batch_to_be_read(edits: Project) -> None:
    edits.run()
    films = another(edits, "films", input={"path": "photos/edits/test", "defaults": EDIT})
    with pytest.raises(InputError, match="2 files of photos/edits/test are made by Callsheet") as caught:
        films.quote()
    assert "input.stored" in caught.value.hint
    films.set(input={"path": None, "stored": "batch.yaml"})
    assert films.quote().to_buy == 2
    films.set(input={"path": "photos/edits/test/a-1-0.jpeg", "stored": None})
    assert films.quote().to_buy == 1, "one file is named"


def test_images_on_s3_that_the_ledger_has_stored_are_no_input_either(
    edits: Project, s3: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.sign_in(monkeypatch)
    client, folder = s3.client(), f"s3://{s3.bucket}/loop"
    for number, key in enumerate(("loop/a.png", "loop/.trash/b.png", "loop/@eaDir/c.png")):
        client.put_object(Bucket=s3.bucket, Key=key, Body=picture(number))
    for _ in range(3):
        for storage in ("edits", "more"):
            place = [f"input.path={folder}/", f"storage.url={folder}/{storage}"]
            assert edits.run(*place, "report.url=out/report").jobs == 1
    source = f"{s3.bucket}/loop/edits/test/a-1-0.jpeg"
    client.copy_object(Bucket=s3.bucket, Key="loop/copy.jpeg", CopySource=source)
    assert edits.run(*place).jobs == 1
    assert edits.run(f"input.path={folder}/*.*g", *place[1:]).jobs == 1
    assert len(edits.sold) == 1


class Meanwhile(LogWatcher):
    """Does something between the quote and the first submission, and keeps the notes."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self.notes: list[str] = []

    def quoted(self, quote: Quote) -> None:
        self._act()

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_job_whose_image_goes_or_changes_before_it_is_sent_is_not_bought_and_the_others_are(
    project: Make,
) -> None:
    made = project()
    vanishing = made.folder / "vanishing"
    vanishing.mkdir()
    for number, name in enumerate("abcdef"):
        (vanishing / f"{name}.png").write_bytes(picture(number))
    made.set(input={"path": "vanishing", "defaults": MOVES})
    gone = (vanishing / "b.png").read_bytes()

    def meanwhile() -> None:
        (vanishing / "b.png").unlink(missing_ok=True)
        (vanishing / "d.png").write_bytes(picture(9))

    watcher = Meanwhile(meanwhile)
    first = made.run(watcher=watcher)
    assert (first.stored, first.failed, first.submissions) == (4, 0, 4)
    assert (first.outcome, first.stop_reason, first.exit_code) == ("partial", None, 3)
    of_b = "row b: the image vanishing/b.png: there is no such file"
    of_d = "row d: the image vanishing/d.png: has changed since it was priced"
    assert sorted(note.partition(". ")[0] for note in watcher.notes) == [
        f"not bought: {of_b}",
        f"not bought: {of_d}",
    ]
    [(what, said), (_, hint)] = stopped(first)
    assert what == "Not bought"
    assert said.startswith("2 of 6 jobs: row ")
    assert of_b in said
    assert of_d in said
    assert "The same command buys them" in hint
    assert len(made.sold) == 4

    (vanishing / "b.png").write_bytes(gone)
    assert made.quote().to_buy == 2
    done = made.run()
    assert (done.stored, done.outcome, done.submissions) == (6, "complete", 2)


def test_images_on_s3_that_are_gone_or_refused_when_they_are_sent_leave_their_rows_alone(
    project: Make, s3: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.sign_in(monkeypatch)
    made = project()
    (made.folder / "own.png").write_bytes(picture(1))
    for number, name in enumerate(("gone.png", "there.png"), start=2):
        s3.client().put_object(Bucket=s3.bucket, Key=name, Body=picture(number))
    sources = {name: f"s3://{s3.bucket}/{name}.png" for name in ("gone", "there")} | {"own": "own.png"}
    made.rows(*({"id": name, "first_frame": at, **MOVES} for name, at in sources.items()))
    first = made.run(watcher=Meanwhile(lambda: s3.client().delete_object(Bucket=s3.bucket, Key="gone.png")))
    assert (first.stored, first.stop_reason, first.exit_code) == (2, None, 3)
    assert "row gone: the image s3://" in str(first.stop_message)
    assert made.quote().plan.rejects.select("line", "column").rows() == [(2, "first_frame")]

    s3.client().put_object(Bucket=s3.bucket, Key="there.png", Body=picture(7))
    rows = (
        {"id": name, "first_frame": sources[name], **MOVES, "prompt": "A pan"} for name in ("there", "own")
    )
    made.rows(*rows)
    with monkeypatch.context() as patch:
        watcher = Meanwhile(lambda: patch.setenv("AWS_SECRET_ACCESS_KEY", "another"))
        second = made.run(watcher=watcher)
    assert (second.submissions, second.stop_reason, second.exit_code) == (1, None, 3)
    assert "S3 refused the request: SignatureDoesNotMatch" in str(second.stop_message)


def test_the_last_frame_of_a_video_is_an_image_and_the_job_is_that_of_the_video(project: Make) -> None:
    made = project([{"id": "a", "prompt": "waves", "model": "dailies-1", "duration": 1}])
    assert made.run().stored == 1
    [video] = made.manifest()["url"].to_list()
    made.rows({"id": "b", "prompt": "and on", "model": "reel-1", "first_frame": f"{video}#last_frame"})
    quote = made.quote()
    [job] = [each for each in quote.plan.jobs_in_order() if each.row_id == "b"]
    assert job.request["images"][0]["url"] == f"sha256:{made.manifest()['sha256'][0]}"
    for kept in (made.folder / "out/report/images").iterdir():
        kept.unlink()
    assert made.run().outcome == "complete"
    made.rows({"id": "b", "prompt": "and on", "model": "reel-1", "first_frame": video})
    [reason] = made.quote().plan.rejects["reason"]
    assert reason == "is a video, and no image; its last frame is one, by its name with #last_frame"


@pytest.mark.parametrize("mode", ["L", "LA", "P", "CMYK", "I;16", "RGBA", "1"])
def test_every_kind_of_pixels_becomes_a_jpeg(mode: str, tmp_path: Path) -> None:
    from callsheet.pricing.references import jpeg

    content = io.BytesIO()
    Image.new(mode, (5000, 40)).save(content, "TIFF")
    made = Image.open(io.BytesIO(jpeg(content.getvalue())))
    assert (made.format, made.mode, made.size) == ("JPEG", "RGB", (4096, 33))
