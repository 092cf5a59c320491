"""Batches that are made from what another batch has kept: stills, then films of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from PIL import ExifTags, Image
from playwright.sync_api import expect

from backlot.server import Backlot
from callsheet.cells import BY_MODEL
from callsheet.config.load import load
from callsheet.errors import CallsheetError, ConfigError, InputError
from callsheet.present.priced import warnings
from callsheet.pricing.quote import Quote
from callsheet.records import canonical, dollars
from tests.cli.test_rows import printed, refusal
from tests.conftest import Make, Project
from tests.ledger.test_opening import execute
from tests.pictures import large, picture
from tests.servers import s3 as servers
from tests.servers.browser import Browser

SHOTS = [
    {
        "id": f"shot-{number}",
        "prompt": f"a still of shot {number}",
        "motion": f"the camera moves {number}",
        "model": "still-1",
        "aspect_ratio": ratio,
        "samples": 3,
    }
    for number, ratio in enumerate(("16:9", "9:16", "3:2", "1:1", "16:9", "16:9", "16:9", "16:9"), start=1)
]


@dataclass
class Beside(Project):
    """A batch beside another one, in the same folder and with the same service and ledger."""

    name: str = ""

    @property
    def config(self) -> Path:
        return self.folder / f"{self.name}.yaml"


def another(made: Project, name: str, **sections: Any) -> Project:
    report = made.settings["report"] | {"url": f"out/{name}/report"}
    settings = {**made.settings, "batch": name, "report": report, **sections}
    film = Beside(made.folder, made.backlot, settings, name=name)
    film.set()
    return film


def manifest(of: Project) -> pl.DataFrame:
    return pl.read_parquet(of.folder / load(of.config).report.url / "manifest.parquet")


@pytest.fixture
def stills(project: Make) -> Project:
    """Eight shots of three samples, bought, of which six are kept and one row is rejected."""
    made = project(SHOTS)
    made.settings["batch"] = "stills"
    made.set(report={"url": "out/stills/report"})
    assert made.run().stored == 24
    keep = [word for number in range(1, 7) for word in ("--keep", f"shot-{number}/2")]
    printed("review", "batch.yaml", *keep, "--reject", "shot-7")
    return made


@pytest.fixture
def films(stills: Project) -> Project:
    columns = {"prompt": "motion"}
    given = {"kept": "batch.yaml", "columns": columns, "defaults": {"model": "silent-1", "duration": 2}}
    return another(stills, "films", input=given)


def requests(quote: Quote) -> dict[str, dict[str, Any]]:
    return {job.row_id: dict(job.request) for job in quote.jobs_in_order()}


def test_a_video_is_bought_of_each_still_that_is_kept_and_one_more_when_one_more_is(
    stills: Project, films: Project
) -> None:
    before = films.quote()
    assert [*requests(before)] == [f"shot-{number}/2" for number in range(1, 7)]
    first = requests(before)["shot-1/2"]
    hashes = {(row["row_id"], row["sample"]): row["sha256"] for row in manifest(stills).to_dicts()}
    assert first["prompt"] == "the camera moves 1"
    assert first["images"] == [{"role": "first_frame", "url": f"sha256:{hashes['shot-1', 2]}"}]
    assert (first["model"], first["duration"], first["resolution"]) == ("silent-1", 2, "480p")
    ratios = [request["aspect_ratio"] for request in requests(before).values()]
    assert ratios == ["16:9", "1:1", "1:1", "1:1", "16:9", "16:9"], "the model's own where it has no such one"
    assert before.plan.notes == (
        "stills: 8 rows: 6 with a kept file, 1 to review, 1 with every file rejected",
        "the files of stills: shot-1/2 (still-1, 16:9, 1K), shot-2/2 (still-1, 9:16, 1K), shot-3/2 (still-1, "
        "3:2, 1K), shot-4/2 (still-1, 1:1, 1K), shot-5/2 (still-1, 16:9, 1K), shot-6/2 (still-1, 16:9, 1K)",
        "the aspect ratio of each file of stills is asked for, where the model offers it",
    )
    assert films.run().stored == 6
    assert manifest(films)["model"].unique().to_list() == ["silent-1"]

    printed("review", "batch.yaml", "--keep", "shot-8/1")
    assert [*requests(films.quote())] == ["shot-8/1"]
    assert films.run().stored == 7
    assert films.quote().to_buy == 0
    assert len(films.sold) == 24 + 7


def test_a_decision_that_is_taken_back_leaves_what_is_bought_and_its_row_is_not_current(
    films: Project,
) -> None:
    films.run()
    (films.folder / "marks.csv").write_text("row_id,sample,decision\nshot-3,2,\n")
    printed("review", "batch.yaml", "--from", "marks.csv")
    assert films.quote().to_buy == 0
    films.run()
    current = dict(manifest(films).select("row_id", "current").iter_rows())
    assert [row for row, is_current in current.items() if not is_current] == ["shot-3/2"]
    assert len(films.sold) == 24 + 6


def test_the_status_of_several_configs_says_what_a_finished_shot_has_cost_over_all_its_batches(
    stills: Project, films: Project
) -> None:
    films.run("input.where={row: [shot-1, shot-2]}")
    printed("review", "films.yaml", "--keep", "shot-1/2/1", "--reject", "shot-2/2/1")
    said = json.loads(printed("status", "batch.yaml", "films.yaml", "--json"))
    assert [batch["batch"] for batch in said["batches"]] == ["stills", "films"]
    still, film = (manifest(of)["cost"][0] for of in (stills, films))
    shots = {shot["shot"]: shot for shot in said["shots"]}
    assert [*shots] == [f"shot-{number}" for number in range(1, 9)]
    costs = {"stills": dollars(still * 3), "films": dollars(film)}
    of_shot = {"spent": dollars(still * 3 + film), "kept": 1, "finished": True}
    assert shots["shot-1"] == {"shot": "shot-1", "costs": costs, **of_shot}
    assert (shots["shot-2"]["finished"], shots["shot-2"]["costs"]) == (False, costs)
    assert shots["shot-3"]["costs"] == {"stills": dollars(still * 3)}
    spent = still * 24 + film * 2
    assert (said["finished"], said["spent"]) == (1, dollars(spent))
    assert (said["spent_on_finished"], said["cost_per_finished"]) == (of_shot["spent"], dollars(spent))
    screen = printed("status", "batch.yaml", "films.yaml")
    assert "Finished   1 of 8 shots, by what is kept in films" in screen
    assert f"Cost       {of_shot['spent']} USD for a finished shot, and {dollars(spent)} USD with" in screen
    assert "two of the configs have the batch films" in refusal("status", "films.yaml", "films.yaml").message


def test_the_same_bytes_in_another_folder_or_bucket_buy_nothing_again(
    stills: Project, films: Project, s3: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    films.run()
    (stills.folder / "out/media/stills").rename(stills.folder / "moved")
    with_rejects = films.quote()
    assert with_rejects.plan.rejected_rows == 6
    assert "there is no such file" in with_rejects.plan.rejects["reason"][0]
    (stills.folder / "elsewhere").mkdir()
    (stills.folder / "moved").rename(stills.folder / "elsewhere/stills")
    stills.set(storage={"url": "elsewhere"})
    moved = films.quote()
    assert (moved.to_buy, moved.already_bought, moved.plan.rejected_rows) == (0, 6, 0)

    s3.sign_in(monkeypatch, "reader")
    for file in (stills.folder / "elsewhere/stills").iterdir():
        s3.client().put_object(Bucket=s3.bucket, Key=f"media/stills/{file.name}", Body=file.read_bytes())
    shutil.rmtree(stills.folder / "elsewhere")
    stills.set(storage={"url": f"s3://{s3.bucket}/media"})
    in_a_bucket = films.quote()
    assert (in_a_bucket.to_buy, in_a_bucket.already_bought) == (0, 6)
    [source] = in_a_bucket.plan.table["inlined"].list.first().struct.field("source").str.head(5).unique()
    assert source == "s3://"
    printed("review", "batch.yaml", "--keep", "shot-8/1")
    assert films.run().stored == 7, "what is new is read there"


def test_what_is_stored_and_not_rejected_is_a_row_each_but_for_rows_that_the_batch_no_longer_has(
    stills: Project,
) -> None:
    films = another(stills, "films", input={"stored": "batch.yaml", "defaults": {"model": "silent-1"}})
    quote = films.quote()
    assert quote.to_buy == 21
    assert quote.plan.notes[0] == (
        "stills: 8 rows: 7 with a file that is not rejected, 1 with every file rejected"
    )
    assert requests(quote)["shot-8/3"]["prompt"] == "a still of shot 8", "as it was asked"
    stills.rows(*SHOTS[:-1])
    stills.run()
    assert films.quote().to_buy == 18
    ledger = load(stills.config).ledger.url  # as after an upgrade, which no report is of
    execute(ledger, "UPDATE attempts SET current = NULL", "UPDATE batches SET revision = 'upgraded'")
    assert films.quote().to_buy == 18, "by the plan of this machine"
    stills.collect()
    assert manifest(stills).filter("current").height == 21
    stills.run()
    (stills.folder / "out/stills/report/plan.parquet").unlink()  # as on another machine
    on_another = films.quote()
    assert on_another.to_buy == 18
    assert [*requests(on_another)] == [*requests(films.quote())], "in one order, so its plan stays the same"
    assert (
        on_another.plan.notes[0]
        == "stills: 7 rows: 6 with a file that is not rejected, 1 with every file rejected"
    )
    stills.rows(*SHOTS)
    stills.run()
    assert films.quote().to_buy == 21, "a row that is there again is current again"


def test_films_of_stills_that_were_written_anew_are_named_and_asked_about_and_say_what_they_are_made_from(
    stills: Project, films: Project, s3: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert films.run("input.where={row: [shot-1, shot-2]}").stored == 2
    urls = dict(manifest(stills).filter(sample=2).select("row_id", "url").iter_rows())
    for number in (1, 2, 3):
        Path(urls[f"shot-{number}"]).write_bytes(picture(number, "JPEG"))
    only = "input.where={row: [shot-1, shot-2, shot-3]}"
    quote = films.quote(only)
    assert (quote.to_buy, quote.repeats) == (3, 2)
    assert warnings(quote)[0].startswith("2 of 3 jobs to buy look like some")
    named = "3 new jobs are made from stored files that have other bytes now than the other batch has stored"
    assert named in quote.plan.notes, "also the one that nothing was bought of"
    assert any("2 jobs ask for what was bought" in note for note in quote.plan.notes)
    assert films.run(only).stop_reason == "approval"
    assert films.run(only, approved=True).stored == 5
    sent = hashlib.sha256(picture(1, "JPEG")).hexdigest()
    of_row = manifest(films).filter(row_id="shot-1/2").sort("current")["made_from"].struct.field("sha256")
    before = manifest(stills).filter(row_id="shot-1", sample=2)["sha256"][0]
    assert of_row.to_list() == [before, sent]
    assert films.quote(only).to_buy == 0
    assert named not in films.quote(only).plan.notes

    s3.sign_in(monkeypatch, "reader")
    for name in ("shot-1", "shot-2"):
        key = f"again/stills/{Path(urls[name]).name}"
        s3.client().put_object(Bucket=s3.bucket, Key=key, Body=picture(8, "JPEG"))
        Path(urls[name]).unlink()
    stills.set(storage={"url": f"s3://{s3.bucket}/again"})
    in_a_bucket = films.quote("input.where={row: [shot-1, shot-2]}")
    assert (in_a_bucket.to_buy, in_a_bucket.repeats) == (2, 2)
    assert "2 new jobs are made from stored files" in " ".join(in_a_bucket.plan.notes)


def test_a_film_of_a_still_that_is_made_to_fit_is_made_from_its_file(stills: Project, films: Project) -> None:
    still = Path(manifest(stills).filter(row_id="shot-1", sample=2)["url"][0])
    still.write_bytes(large())
    films.set(input={"fit": True, "where": {"row": "shot-1"}})
    [job] = films.quote().plan.jobs_in_order()
    assert job.carried["made_from"]["sha256"] == hashlib.sha256(large()).hexdigest()


def test_a_film_is_carried_on_from_the_last_frame_of_one_that_is_kept(films: Project) -> None:
    films.run("input.where={row: shot-1}")
    printed("review", "films.yaml", "--keep", "shot-1/2/1")
    on = another(
        films,
        "on",
        input={
            "kept": "films.yaml",
            "columns": {"first_frame": "last_frame"},
            "template": "{prompt}, and goes on",
            "defaults": {"model": "reel-1"},
        },
    )
    request = requests(on.quote())["shot-1/2/1"]
    [film] = manifest(films).to_dicts()
    assert request["images"] == [{"role": "first_frame", "url": f"sha256:{film['sha256']}"}]
    assert request["prompt"] == "the camera moves 1, and goes on"
    assert on.run().stored == 1
    shutil.rmtree(on.folder / "out/on/report/images")  # a frame that was decoded, as on another machine
    assert on.quote().to_buy == 0
    on.set(input={"columns": {}, "template": "on"})
    assert "its last frame is one" in on.quote().plan.rejects["reason"][0]


def test_of_two_models_each_still_has_one_number_and_a_film_is_made_of_the_one_that_is_named(
    project: Make,
) -> None:
    stills = project(SHOTS[3:4])
    stills.set(input={"matrix": {"model": ["sketch-1", "still-1"]}})
    stills.run()
    numbers = ["file_number", "model", "sample"]
    assert manifest(stills).select(numbers).rows() == [
        *((number, "sketch-1", number) for number in (1, 2, 3)),
        *((number, "still-1", number - 3) for number in (4, 5, 6)),
    ]
    assert "The row has shot-4/1, shot-4/2, " in refusal("review", "batch.yaml", "--keep", "shot-4/7").hint
    printed("review", "batch.yaml", "--keep", "shot-4/5")
    given = {"kept": "batch.yaml", "defaults": {"model": "silent-1", "duration": 2}}
    films = another(stills, "films", input=given)
    quote = films.quote()
    assert quote.plan.notes[1] == "the files of test: shot-4/5 (still-1, 1:1, 1K)"
    assert films.run().stored == 1
    [film] = manifest(films).to_dicts()
    [still] = manifest(stills).filter(file_number=5).to_dicts()
    assert (film["row_id"], film["made_from"]["sha256"]) == ("shot-4/5", still["sha256"])
    printed("export", "films.yaml", "--to", "films")
    assert (films.folder / "films/shot-4.mp4").is_file(), "a film is named after its shot"
    printed("review", "batch.yaml", "--keep", "shot-4/2")
    films.run()
    printed("export", "films.yaml", "--to", "films")
    assert sorted(path.name for path in (films.folder / "films").glob("*.mp4")) == [
        "shot-4-2.mp4",
        "shot-4-5.mp4",
    ], "and after its still, where there are several"

    stills.set(input={"matrix": {"model": ["poster-1", "sketch-1", "still-1"]}})
    stills.rows(SHOTS[3] | {"samples": 4})
    stills.run()
    later = manifest(stills).sort("file_number").filter(pl.col("file_number") > 6)
    assert later.select(numbers).rows() == [
        *((sample + 6, "poster-1", sample) for sample in (1, 2, 3, 4)),
        (11, "sketch-1", 4),
        (12, "still-1", 4),
    ]
    assert manifest(stills).filter(decision="kept")["file_number"].to_list() == [2, 5]
    assert films.quote().to_buy == 0


def test_a_row_that_has_bought_several_things_numbers_them_and_what_was_bought_keeps_its_id(
    stills: Project, films: Project
) -> None:
    films.run()
    stills.rows(*({**shot, "prompt": f"{shot['prompt']} at night", "samples": 1} for shot in SHOTS[:1]))
    stills.run()
    key = manifest(stills).filter(pl.col("prompt").str.ends_with("at night"))["job_key"][0]
    stills.rows(*SHOTS[1:])
    printed("review", "batch.yaml", "--keep", "shot-1/1", "--keep", "shot-1/4")
    assert [*requests(films.quote())] == ["shot-1/1", "shot-1/4"]
    assert films.run().stored == 8
    ledger = f"sqlite:///{films.folder}/out/ledger.db"
    former = f"shot-1/1/{key[:8]}"  # as 0.1.0 has named it
    execute(ledger, f"UPDATE attempts SET row_id = '{former}' WHERE row_id = 'shot-1/4'")
    quote = films.quote()
    assert quote.to_buy == 0
    assert former in quote.table["row_id"]


def test_photos_keep_their_ratios_and_what_was_bought_of_them_without_stays_the_same_job(
    project: Make,
) -> None:
    made = project([])
    photos = made.folder / "photos"
    photos.mkdir()
    for name, size in (("wide", (300, 200)), ("upright", (320, 180)), ("thin", (640, 64))):
        exif = Image.Exif()
        if name == "upright":  # as a camera does that was held so
            exif[ExifTags.Base.Orientation] = 6
        Image.new("RGB", size).save(photos / f"{name}.jpeg", exif=exif)
    made.set(input={"path": "photos", "defaults": {"model": "still-1", "prompt": "on white"}})
    quote = made.quote()
    ratios = {row_id: request["aspect_ratio"] for row_id, request in requests(quote).items()}
    assert ratios == {"thin": "1:1", "upright": "9:16", "wide": "3:2"}, "the model offers nothing as thin"
    assert "the aspect ratio of each image is asked for, where the model offers it" in quote.plan.notes
    for job in quote.jobs_in_order():
        images = canonical([{"role": BY_MODEL, "url": job.request["images"][0]["url"]}])
        asked = {"images": images, "model": "still-1", "prompt": "on white"}
        row = {"asked": asked, "batch": "test", "row_id": job.row_id, "sample": 1}
        assert job.key == hashlib.sha256(canonical(row).encode()).hexdigest(), "as without the ratio"

    made.run()
    as_without = "replace(replace(request, '3:2', '1:1'), '9:16', '1:1')"  # as 0.1.0 has bought them
    ledger = f"sqlite:///{made.folder}/out/ledger.db"
    execute(ledger, f"UPDATE attempts SET request = {as_without}, request_key = job_key")
    again = made.quote()
    assert again.to_buy == 0
    said = "default aspect_ratio of still-1 was 1:1 and is 3:2 now"
    assert any(said in note for note in again.plan.notes)
    made.set(input={"defaults": {"model": "still-1", "prompt": "on white", "aspect_ratio": "16:9"}})
    assert {request["aspect_ratio"] for request in requests(made.quote()).values()} == {"16:9"}


def test_the_config_of_the_film_says_more_than_the_stills(films: Project) -> None:
    films.set(
        input={
            "columns": {},
            "defaults": {"model": "reel-1", "prompt": "it moves", "aspect_ratio": "9:16"},
            "role": "reference_image",
        }
    )
    quote = films.quote()
    [*all_of_them] = requests(quote).values()
    assert {request["prompt"] for request in all_of_them} == {"it moves"}
    assert {request["aspect_ratio"] for request in all_of_them} == {"9:16"}
    assert {request["images"][0]["role"] for request in all_of_them} == {"reference_image"}
    assert len(quote.plan.notes) == 2
    films.set(input={"defaults": {"model": "reel-1"}, "template": "{prompt}: {motion}, {width} wide"})
    assert requests(films.quote())["shot-1/2"]["prompt"].startswith("a still of shot 1: the camera moves 1, ")
    columns = films.quote().plan.columns
    assert columns.unused == {}
    assert {"row", "sample", "model", "motion", "made_from"} <= set(columns.carried)


def test_a_batch_cannot_be_made_from_itself_nor_in_a_circle(films: Project) -> None:
    own = another(films, "own", input={"kept": "own.yaml", "defaults": {"model": "reel-1"}})
    with pytest.raises(
        ConfigError, match=r"own\.yaml, line \d+: a batch cannot be made from itself"
    ) as caught:
        own.quote()
    assert caught.value.message.endswith("own.yaml is made from own.yaml")
    a = another(films, "a", input={"kept": "b.yaml", "defaults": {"model": "reel-1"}})
    another(films, "b", input={"stored": "c.yaml", "defaults": {"model": "reel-1"}})
    another(films, "c", input={"kept": "a.yaml", "defaults": {"model": "reel-1"}})
    with pytest.raises(ConfigError) as caught:
        a.quote()
    way = "a.yaml is made from b.yaml, which is made from c.yaml, which is made from a.yaml"
    assert caught.value.message.endswith(f"a batch cannot be made from itself: {way}")


def test_another_batch_of_which_nothing_is_there_says_what_to_do(project: Make) -> None:
    made = project([{"id": "a", "prompt": "x", "model": "sketch-1"}])
    made.set(batch="stills")
    films = another(made, "films", input={"kept": "batch.yaml", "defaults": {"model": "silent-1"}})
    with pytest.raises(InputError, match=r"batch\.yaml: nothing of the batch stills is bought yet"):
        films.quote()
    made.run("batch=other", "report.url=out/other")  # in the same ledger
    with pytest.raises(InputError, match=r"batch\.yaml: nothing of the batch stills is bought yet"):
        films.quote()
    (made.folder / "bad.csv").write_text("id,prompt,model\nbad,forbidden-test-word,sketch-1\n")
    assert made.run("input.path=bad.csv").failed == 1
    with pytest.raises(InputError, match=r"batch\.yaml: has no file that is kept") as caught:
        films.quote()
    assert "callsheet status batch.yaml" in caught.value.hint
    made.run()
    with pytest.raises(InputError, match=r"batch\.yaml: has no file that is kept") as caught:
        films.quote()
    assert caught.value.hint.startswith("stills: 1 row: 0 with a kept file, 1 to review. callsheet review")
    films.set(input={"kept": "none.yaml"})
    with pytest.raises(ConfigError, match=r"none\.yaml: there is no such config file"):
        films.quote()


def test_rows_have_one_source_and_an_override_takes_its_place(films: Project) -> None:
    (films.folder / "one.csv").write_text("prompt\nwaves\n")
    assert films.quote("input.path=one.csv", "input.columns={}").to_buy == 1
    films.set(input={"path": "prompts.csv"})
    with pytest.raises(ConfigError, match="`input` has path and kept; expected one of path, kept, stored"):
        load(films.config)
    films.set(input={"path": None, "kept": None})
    with pytest.raises(ConfigError, match="`input` has no rows; expected one of path, kept, stored"):
        load(films.config)


def test_a_batch_may_be_made_from_one_of_another_service(
    films: Project, start_backlot: Callable[..., Backlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    second = start_backlot()
    monkeypatch.setenv("SECOND_KEY", second.api_key)
    films.set(service={"base_url": second.base_url, "api_key_env": "SECOND_KEY"})
    assert films.run("input.where={row: shot-1}").stored == 1
    assert len(films.sold) == 24
    [film] = second.service.store.select("1 = ?", 1)
    assert film.model == "silent-1"


def test_a_file_says_from_which_file_it_was_made_whatever_becomes_of_the_batches(
    stills: Project, films: Project
) -> None:
    films.set(storage={"sidecar": True})
    films.run()
    [still] = manifest(stills).filter(row_id="shot-1", sample=2).to_dicts()
    origin = {"batch": "stills", "row": "shot-1", "sample": 2, "sha256": still["sha256"]}

    def made_from(of: Project) -> dict[str, Any]:
        return dict(manifest(of).select("row_id", "made_from").iter_rows())

    assert made_from(films)["shot-1/2"] == origin
    assert set(made_from(stills).values()) == {None}
    film = Path(manifest(films).filter(row_id="shot-1/2")["url"][0])
    sidecar = json.loads(Path(f"{film}.json").read_text())
    assert sidecar["made_from"] == origin
    assert "made_from" not in sidecar["carried"]
    assert "stills: shot-1, sample 2" in printed("show", "films.yaml", "shot-1/2")
    printed("export", "films.yaml", "--to", "out/handed", "--as", "csv")
    cells = pl.read_csv("out/handed/manifest.csv").filter(row_id="shot-1/2")["made_from"]
    assert json.loads(cells[0]) == origin
    printed("export", "films.yaml", "--to", "out/shards", "--as", "webdataset")
    with tarfile.open("out/shards/films-000000.tar") as shard:
        name = next(each for each in shard.getnames() if each.startswith("shot-1") and each.endswith("json"))
        assert json.loads(shard.extractfile(name).read())["made_from"] == origin  # type: ignore[union-attr]

    rows = [
        {"id": row, "prompt": request["prompt"], "first_frame": still["url"], "aspect_ratio": "16:9"}
        for row, request in {"shot-1/2": {"prompt": "the camera moves 1"}}.items()
    ]
    films.rows(*rows)
    films.set(input={"path": "prompts.csv", "kept": None, "columns": {}})
    assert films.quote().to_buy == 0, "the same request of a batch file"
    films.run()
    assert made_from(films)["shot-1/2"] == origin


def test_the_contact_sheet_leads_to_the_still_that_a_film_is_made_from(
    stills: Project, films: Project, browser: Browser
) -> None:
    for each in (stills, films):
        each.set(report={"contact_sheet": 100})
        each.run("input.where={row: [shot-1, shot-2]}" if each is films else "batch=stills")
    sheet = films.folder / "out/films/report/contact-sheet/index.html"
    with browser.page() as page:
        page.goto(sheet.as_uri())
        page.locator(".card").first.click()
        link = page.get_by_role("link", name="stills: shot-1, sample 2")
        expect(link).to_be_visible()
        href = str(link.get_attribute("href"))
        assert href == "../../../stills/report/contact-sheet/index.html#search=shot-1"
        with page.expect_popup() as opened:
            page.keyboard.press("m")
        expect(opened.value.locator("#count")).to_contain_text("3 of 24 jobs")
        opened.value.close()


def test_what_failed_of_a_batch_that_is_made_from_another_has_no_rows_to_correct(films: Project) -> None:
    films.run("input.defaults={model: silent-1}", "input.template=forbidden-test-word", "input.columns={}")
    with pytest.raises(CallsheetError, match="has files, and no rows that can be written"):
        from callsheet.batches.read import original_rows

        original_rows(load(films.config), ["shot-1/2"])
    assert films.charged >= Decimal("0")
    assert Path("out/films/report/manifest.parquet").exists()
