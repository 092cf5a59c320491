"""The plan: every job priced and keyed, frozen in a file that reads without our code."""

from __future__ import annotations

import base64
import hashlib
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as quick
from hypothesis import strategies as st

from callsheet.batches.read import read_batch
from callsheet.config.settings import Settings
from callsheet.errors import InputError, StorageError
from callsheet.pricing import jobs as jobs_module
from callsheet.pricing import references
from callsheet.pricing.plan import Plan, make_plan, open_plan
from callsheet.records import Job, Model, ModelType
from tests.servers.s3_gate import s3_gate

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PNG = b"\x89PNG\r\n\x1a\n" + b"p" * 100
PARTI = Path(__file__).parents[3] / "shared/data/PartiPrompts.tsv"

CATALOGUE = {
    name: Model.model_validate(
        {"id": name, "type": kind, **fields, "pricing": {"currency": "USD", "rates": rates}}
    )
    for name, kind, fields, rates in [
        (
            "still-1",
            "image",
            {
                "supported_aspect_ratios": ["1:1", "16:9", "9:16"],
                "supported_resolutions": ["1K", "2K", "4K"],
                "supported_references": {"reference_image": 4},
            },
            [
                {
                    "resolution": "1K",
                    "sound": "not_applicable",
                    "billable_unit": "image",
                    "unit_price": "0.0407",
                },
                {
                    "resolution": "2K",
                    "sound": "not_applicable",
                    "billable_unit": "image",
                    "unit_price": "0.0833",
                },
            ],
        ),
        (
            "reel-1",
            "video",
            {
                "supported_aspect_ratios": ["16:9", "9:16", "1:1"],
                "supported_durations": [5, 10],
                "supported_resolutions": ["720p", "1080p"],
                "supports_sound": True,
                "supported_references": {"first_frame": 1, "last_frame": 1},
            },
            [
                {
                    "resolution": "720p",
                    "sound": "sound_off",
                    "billable_unit": "video_second",
                    "unit_price": "0.0513",
                },
                {
                    "resolution": "720p",
                    "sound": "sound_on",
                    "billable_unit": "video_second",
                    "unit_price": "0.0771",
                },
                {
                    "resolution": "1080p",
                    "sound": "not_applicable",
                    "billable_unit": "video_second",
                    "unit_price": "0.1",
                },
            ],
        ),
        ("proof-1", "image", {"supported_resolutions": ["1K"]}, []),
    ]
}


class Maker:
    """Makes plans from a batch file's text in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def settings(self, path: Path, **given: Any) -> Settings:
        budget = {"allow_unpriced": given.pop("allow_unpriced", False)}
        name, storage = given.pop("batch", "shots"), given.pop("storage", {})
        source = {"path": str(path), "defaults": {"model": "still-1"}, **given}
        service = {"base_url": "http://127.0.0.1:1"}
        sections = {"service": service, "input": source, "budget": budget, "storage": storage}
        return Settings.model_validate({"batch": name, **sections})

    def __call__(self, text: str, *, to: str = "plan.parquet", **given: Any) -> Plan:
        path = self.folder / "shots.csv"
        path.write_text(text, encoding="utf-8")
        settings = self.settings(path, **given)
        return make_plan(read_batch(settings), CATALOGUE, settings, self.folder / to, now=NOW)


@pytest.fixture
def plan(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def jobs(plan: Plan) -> list[Job]:
    return list(plan.jobs_in_order())


MIXED = """\
id,model,prompt,resolution,duration,sound,output_format,samples,note
a,,a cat,2K,,,png,2,first
b,reel-1,"say ""hi"", \U0001f600",,10,yes,,,second
c,still-1,a dog,,7,,,,third
d,proof-1,a proof,,,,,,fourth
e,reel-9,a reel,,,,,,fifth
f,,a bird,,,,,,sixth
"""


def test_every_job_is_priced_and_stands_in_the_file_s_order(plan):
    made = plan(MIXED)
    assert [(each.row_id, each.sample, each.type, each.quoted) for each in jobs(made)] == [
        ("a", 1, ModelType.IMAGE, Decimal("0.0833")),
        ("a", 2, ModelType.IMAGE, Decimal("0.0833")),
        ("b", 1, ModelType.VIDEO, Decimal("0.771")),
        ("f", 1, ModelType.IMAGE, Decimal("0.0407")),
    ]
    assert (made.batch, made.rows, made.rejected_rows, made.jobs, made.unpriced) == ("shots", 6, 3, 4, 1)
    assert (made.quoted, made.currency, made.made_at) == (Decimal("0.9783"), "USD", NOW)


def test_a_request_is_what_will_be_sent_with_every_default_made_explicit(plan):
    first, _, video, _ = jobs(plan(MIXED))
    assert first.request == {
        "model": "still-1",
        "prompt": "a cat",
        "aspect_ratio": "1:1",
        "resolution": "2K",
        "output_format": "png",
    }
    assert video.request == {
        "model": "reel-1",
        "prompt": 'say "hi", \U0001f600',
        "aspect_ratio": "16:9",
        "resolution": "720p",
        "duration": 10,
        "sound": True,
    }
    assert first.carried == {"note": "first"}


def test_what_cannot_be_bought_is_a_reject_with_its_line(plan):
    found = plan(MIXED).rejects.select("line", "column", "value", "reason").rows()
    assert found == [
        (4, "duration", "7", "duration is for videos, and still-1 makes images"),
        (5, "model", "proof-1", "proof-1 has no rates in the catalogue, and that does not mean free"),
        (6, "model", "reel-9", "the service has no model reel-9; did you mean reel-1?"),
    ]


def test_rejected_rows_are_counted_once_and_in_every_file(plan, tmp_path):
    for name in "ab":
        text = "prompt,duration,sound\n,x,maybe\nok,,\nshort\nlong,5,yes\n"
        (tmp_path / f"{name}.csv").write_text(text)
    settings = plan.settings(tmp_path / "?.csv", matrix={"resolution": ["1K", "2K"]})
    made = make_plan(read_batch(settings), CATALOGUE, settings, tmp_path / "plan.parquet", now=NOW)
    assert (made.rows, made.rejected_rows, made.jobs) == (8, 6, 4)
    assert len(made.rejects) == 2 * (3 + 1 + 1)


def test_a_reject_of_the_price_names_the_column_as_the_file_does(plan):
    made = plan("text,secs\nx,5\n", columns={"prompt": "text", "duration": "secs"})
    assert made.rejects.select("column", "value").rows() == [("secs", "5")]


def test_unpriced_rows_are_jobs_only_where_the_config_allows_it(plan):
    made = plan(MIXED, allow_unpriced=True)
    assert (made.jobs, made.unpriced, made.quoted) == (5, 1, Decimal("0.9783"))
    assert [each.price for each in jobs(made) if each.model == "proof-1"] == [None]
    assert made.rejects["line"].to_list() == [4, 6]
    assert made.keys()["price"].null_count() == 1


def test_keys_are_the_address_of_batch_row_sample_and_request(plan):
    for each in jobs(plan(MIXED)):
        address = {"batch": "shots", "row_id": each.row_id, "sample": each.sample, "request": each.request}
        text = json.dumps(address, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert each.key == hashlib.sha256(text.encode()).hexdigest()


@given(
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40
    ).filter(str.strip)
)
@quick(max_examples=25, deadline=None)
def test_a_request_carries_any_prompt_as_it_is(tmp_path_factory, prompt):
    folder = tmp_path_factory.mktemp("prompt")
    pl.DataFrame({"prompt": [prompt]}).write_parquet(folder / "shots.parquet")
    settings = Maker(folder).settings(folder / "shots.parquet")
    made = make_plan(read_batch(settings), CATALOGUE, settings, folder / "plan.parquet", now=NOW)
    assert [each.request["prompt"] for each in jobs(made)] == [prompt]


def test_a_new_order_changes_no_key_and_a_new_prompt_changes_one(plan):
    before = {each.key for each in jobs(plan("prompt,note\nx,1\ny,2\nx,3\n"))}
    assert {each.key for each in jobs(plan("note,prompt\n4,y\n5,x\n6,x\n"))} == before
    after = {each.key for each in jobs(plan("prompt\nx\nz\nx\n"))}
    assert len(before) == len(after) == 3
    assert len(before & after) == 2
    assert not before & {each.key for each in jobs(plan("prompt\nx\ny\n", batch="others"))}


def test_a_default_written_out_is_the_same_job(plan):
    implicit = jobs(plan("id,prompt\n1,x\n"))
    explicit = jobs(plan("id,prompt,model,aspect_ratio,resolution,output_format\n1,x,still-1,1:1,1K,jpeg\n"))
    assert explicit == implicit


def test_one_more_sample_keeps_the_keys_of_the_others(plan):
    one = [each.key for each in jobs(plan("prompt,samples\nx,1\n"))]
    three = [each.key for each in jobs(plan("prompt,samples\nx,3\n"))]
    assert three[:1] == one
    assert len(set(three)) == 3


def test_the_matrix_buys_each_row_once_for_every_combination(plan):
    made = plan(
        "id,prompt,aspect_ratio\n1,x,9:16\n2,y,\n",
        matrix={"model": ["still-1", "reel-1"], "aspect_ratio": ["1:1", "16:9"]},
    )
    found = [(each.row_id, each.model, each.request["aspect_ratio"]) for each in jobs(made)]
    four = [("still-1", "1:1"), ("still-1", "16:9"), ("reel-1", "1:1"), ("reel-1", "16:9")]
    assert found == [("1", *each) for each in four] + [("2", *each) for each in four]
    assert made.quoted == 4 * Decimal("0.0407") + 4 * 5 * Decimal("0.0513")


def test_a_combination_that_cannot_be_bought_leaves_the_others(plan):
    made = plan("prompt\nx\n", matrix={"model": ["still-1", "reel-1"], "duration": [5, 10]})
    assert [(each.model, each.request.get("duration")) for each in jobs(made)] == [
        ("reel-1", 5),
        ("reel-1", 10),
    ]
    assert made.rejects.select("line", "value").rows() == [(2, "5"), (2, "10")]


def test_a_matrix_that_asks_twice_for_the_same_buys_once(plan):
    made = plan("prompt\nx\n", matrix={"resolution": ["", "1K", "2K"]})
    assert [each.request["resolution"] for each in jobs(made)] == ["1K", "2K"]
    assert made.rejects["reason"].to_list() == ["input.matrix asks for the same request twice"]


def test_local_images_are_held_by_hash_and_sent_by_bytes(plan, tmp_path):
    path = tmp_path / "look.png"
    path.write_bytes(PNG)
    made = plan(f"prompt,reference_image\nx,{path}|https://h/y.png\ny,{path}\nz,\n")
    sha256 = hashlib.sha256(PNG).hexdigest()
    first, second, third = jobs(made)
    assert first.request["images"] == [
        {"role": "reference_image", "url": f"sha256:{sha256}"},
        {"role": "reference_image", "url": "https://h/y.png"},
    ]
    assert first.inlined == second.inlined == {sha256: str(path)}
    assert "images" not in third.request
    assert third.inlined == {}
    sent = anyio.run(references.fill, second)
    assert sent["images"][0]["url"] == "data:image/png;base64," + base64.b64encode(PNG).decode()


def test_images_on_s3_are_read_at_the_same_time_and_each_once(plan, s3, monkeypatch):
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    sources = [f"s3://{s3.bucket}/plan/{name}.png" for name in "dbca"]
    for name in "abcd":
        s3.client().put_object(Bucket=s3.bucket, Key=f"plan/{name}.png", Body=PNG + name.encode())
    rows = "".join(f"{at},x,{source}\n" for at, source in enumerate(sources * 3))
    with s3_gate(s3.endpoint_url, together=4) as gate:
        made = plan("id,prompt,reference_image\n" + rows, storage={"endpoint_url": gate.url})
    assert gate.gets == 4
    hashes = [hashlib.sha256(PNG + name.encode()).hexdigest() for name in "dbca"]
    assert [each.inlined for each in jobs(made)] == [
        {sha256: source} for sha256, source in zip(hashes * 3, sources * 3, strict=True)
    ]


def test_another_image_under_the_same_name_is_another_job(plan, tmp_path):
    path = tmp_path / "look.png"
    path.write_bytes(PNG)
    text = f"id,prompt,reference_image\n1,x,{path}\n"
    (before,) = jobs(plan(text))
    path.write_bytes(PNG + b"new")
    (after,) = jobs(plan(text))
    assert before.key != after.key


def test_a_list_of_images_without_roles_is_for_image_models(plan):
    listed = '"[{""url"": ""https://h/1.png""}]"'
    made = plan(f"prompt,model,images\nx,still-1,{listed}\ny,reel-1,{listed}\n")
    (only,) = jobs(made)
    assert only.request["images"] == [{"role": "reference_image", "url": "https://h/1.png"}]
    assert made.rejects.select("line", "column").rows() == [(3, "images")]


def test_images_that_cannot_be_sent_are_rejects(plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.png").write_text("no image")
    made = plan("prompt,look\nx,none.png\ny,text.png\n", columns={"reference_image": "look"})
    assert made.rejects.select("line", "column", "value", "reason").rows() == [
        (2, "look", "none.png", "there is no such file"),
        (3, "look", "text.png", "is not a PNG, JPEG or WebP image"),
    ]


def test_a_request_over_25_mib_is_rejected_before_it_is_sent(plan, tmp_path):
    names = []
    for at in range(3):
        content = PNG + bytes([at]) * (7 * 1024 * 1024)
        (tmp_path / f"{at}.png").write_bytes(content)
        names.append(str(tmp_path / f"{at}.png"))
    made = plan(f"prompt,reference_image\nx,{'|'.join(names)}\ny,{'|'.join(names[:2])}\n")
    (small,) = jobs(made)
    assert made.rejects.select("line", "column").rows() == [(2, "images")]
    assert "at most 26,214,400 are allowed" in made.rejects["reason"][0]
    body = json.dumps(anyio.run(references.fill, small), ensure_ascii=False, separators=(",", ":"))
    told = int(made.rejects["reason"][0].split()[3])
    assert told > references.LARGEST_REQUEST > len(body.encode())


def test_the_size_of_a_request_is_told_to_the_byte(plan, tmp_path, monkeypatch):
    path = tmp_path / "look.png"
    path.write_bytes(PNG)
    text = f"prompt,reference_image\né,{path}\n"
    (job,) = jobs(plan(text))
    body = json.dumps(anyio.run(references.fill, job), ensure_ascii=False, separators=(",", ":"))
    monkeypatch.setattr(references, "LARGEST_REQUEST", len(body.encode()) - 1)
    assert str(len(body.encode())) in plan(text).rejects["reason"][0]


def test_the_same_input_makes_the_same_bytes(plan, tmp_path):
    plan(MIXED, to="one.parquet")
    plan(MIXED, to="two.parquet")
    for ending in (".parquet", ".rejects.parquet"):
        assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()


def test_the_plan_is_the_same_however_small_the_slices_it_was_made_in(plan, tmp_path, monkeypatch):
    rows = "id,model,prompt,samples,sound\n"
    for at in range(300):
        own = at if at % 3 else ""
        rows += f'{own},reel-1,"a {at % 7}, or\n{at % 5}",{1 + at % 4},{"maybe" if at % 50 == 49 else "no"}\n'
        rows += f"{at},still-1,again,,\n" if at % 40 == 1 else ""
    matrix = {"aspect_ratio": ["1:1", "16:9", "2:1"]}
    whole = plan(rows, to="whole.parquet", matrix=matrix)
    monkeypatch.setattr("callsheet.batches.delimited._BLOCK", 500)
    monkeypatch.setattr("callsheet.pricing.jobs._MOST_JOBS", 7)
    sliced = plan(rows, to="sliced.parquet", matrix=matrix)
    assert jobs(sliced) == jobs(whole)
    assert len({each.key for each in jobs(whole)}) == whole.jobs > 1000
    assert sliced.rejects.equals(whole.rejects)
    assert (sliced.rows, sliced.rejected_rows) == (whole.rows, whole.rejected_rows) == (308, 308)
    for ending in (".parquet", ".rejects.parquet"):
        one, other = (tmp_path / f"{name}{ending}" for name in ("whole", "sliced"))
        assert one.read_bytes() == other.read_bytes()


def test_a_row_of_many_samples_is_made_a_slice_at_a_time(plan, monkeypatch):
    heights = []
    real = jobs_module.JobMaker.make_jobs
    monkeypatch.setattr(jobs_module, "_MOST_JOBS", 100)
    monkeypatch.setattr(
        jobs_module.JobMaker,
        "make_jobs",
        lambda *given: heights.append((made := real(*given)).jobs.height) or made,
    )
    made = plan("prompt,samples\n" + "x,40\n" * 10 + "y,1000\nz,1\n")
    assert made.jobs == 1401
    assert sorted(heights) == [0, 1, 80, 80, 80, 80, 80, 1000]  # made side by side


def test_a_plan_is_read_back_as_it_was(plan):
    made = plan(MIXED)
    again = open_plan(made.path)
    assert again == made
    assert jobs(again) == jobs(made)
    assert again.catalogue == CATALOGUE


def test_a_plan_of_nothing_is_a_plan(plan):
    made = plan("prompt,model\nx,none\n")
    assert (made.jobs, made.quoted, made.rows, len(made.rejects)) == (0, Decimal(0), 1, 1)
    assert jobs(made) == []


def test_a_run_keeps_its_plan_when_another_run_makes_a_new_one(plan):
    first = plan("id,prompt\n1,x\n2,y\n")
    reading = first.jobs_in_order()
    next(reading)
    second = plan("id,prompt\n3,z\n")
    assert [each.row_id for each in reading] == ["2"]
    assert [each.row_id for each in jobs(first)] == ["1", "2"]
    assert first.keys().height == first.scan().collect().height == 2
    assert first.path == second.path
    assert [each.row_id for each in jobs(second)] == ["3"]


def test_a_plan_replaces_the_last_one_and_leaves_nothing_else(plan, tmp_path):
    plan(MIXED)
    plan("prompt\nx\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "plan.parquet",
        "plan.rejects.parquet",
        "shots.csv",
    ]


def test_what_is_no_plan_is_said_so(plan, tmp_path):
    for name, content in (("none.parquet", None), ("text.parquet", b"text")):
        if content:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="is not a plan that can be read"):
            open_plan(tmp_path / name)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        plan(MIXED, to="file/plan.parquet")


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows beyond 1,000 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_so_and_leaves_the_last_plan(plan, tmp_path):
    last = plan(MIXED)
    settings = plan.settings(tmp_path / "shots.csv")
    batch = read_batch(settings)
    with full_disk():
        with pytest.raises(StorageError, match="a temporary file cannot be written") as no_room:
            read_batch(settings)
        with pytest.raises(StorageError, match="the plan cannot be written"):
            make_plan(batch, CATALOGUE, settings, tmp_path / "plan.parquet", now=NOW)
    assert "TMPDIR" in no_room.value.hint
    assert jobs(open_plan(last.path)) == jobs(last)
    assert len(list(tmp_path.iterdir())) == 3


def test_jobs_are_read_slice_by_slice_in_order(plan, monkeypatch):
    monkeypatch.setattr("callsheet.pricing.plan._SLICE", 3)
    made = plan("id,prompt\n" + "".join(f"{at},p\n" for at in range(10)))
    assert [each.row_id for each in jobs(made)] == [str(at) for at in range(10)]


def test_a_plan_opens_without_our_code(plan):
    made = plan(MIXED)
    query = (
        f"select row_id, sample, price, carried.note, request->>'prompt' from '{made.path}' where line = 2"
    )
    assert duckdb.sql(query).fetchall() == [
        ("a", 1, Decimal("0.083300"), "first", "a cat"),
        ("a", 2, Decimal("0.083300"), "first", "a cat"),
    ]
    schema = pl.read_parquet_schema(made.path)
    assert schema["price"] == schema["unit_price"] == pl.Decimal(18, 6)
    assert list(schema) == [
        "key", "row_id", "sample", "line", "type", "model", "resolution", "duration", "sound", "request",
        "inlined", "inlined_bytes", "carried", "billable_unit", "unit_price", "quantity", "price", "currency",
    ]  # fmt: skip


def test_keys_give_price_and_kind_for_the_ledger(plan):
    made = plan(MIXED)
    assert made.keys().rows() == [(each.key, each.quoted, each.type.value) for each in jobs(made)]


def test_carried_values_come_through_the_plan_as_the_ledger_can_hold_them(plan, tmp_path):
    day = date(2026, 1, 2)
    table = pl.DataFrame(
        {"prompt": ["x"], "day": [day], "cost": [Decimal("1.10")], "tags": [["a"]], "key": [1]}
    )
    table.write_parquet(tmp_path / "in.parquet")
    settings = plan.settings(tmp_path / "in.parquet")
    made = make_plan(read_batch(settings), CATALOGUE, settings, tmp_path / "plan.parquet", now=NOW)
    assert jobs(made)[0].carried == {"day": "2026-01-02", "cost": "1.10", "tags": ["a"], "key": 1}


def slow_total(rows: list[dict[str, Any]]) -> Decimal:
    """The obvious reference: one row at a time, straight from the rates above."""
    total = Decimal(0)
    for row in rows:
        for sample in range(row["samples"]):
            assert sample >= 0
            if row["model"] == "still-1":
                total += {"1K": Decimal("0.0407"), "2K": Decimal("0.0833")}[row["resolution"] or "1K"]
            elif row["resolution"] == "1080p":
                total += Decimal("0.1") * (row["duration"] or 5)
            else:
                total += (Decimal("0.0771") if row["sound"] else Decimal("0.0513")) * (row["duration"] or 5)
    return total


stills = st.fixed_dictionaries(
    {
        "model": st.just("still-1"),
        "resolution": st.sampled_from([None, "1K", "2K"]),
        "samples": st.integers(1, 3),
    }
    | {"duration": st.none(), "sound": st.none()}
)
reels = st.fixed_dictionaries(
    {
        "model": st.just("reel-1"),
        "resolution": st.sampled_from([None, "720p", "1080p"]),
        "samples": st.integers(1, 3),
    }
    | {"duration": st.sampled_from([None, 5, 10]), "sound": st.sampled_from([None, True, False])}
)


@given(st.lists(stills | reels, min_size=1, max_size=30))
@quick(max_examples=30, deadline=None)
def test_the_quote_is_the_sum_of_the_obvious_reference(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("quote")
    table = pl.DataFrame(
        rows, schema={"model": str, "resolution": str, "samples": int, "duration": int, "sound": bool}
    )
    table.with_columns(prompt=pl.lit("x")).write_csv(folder / "shots.csv")
    settings = Maker(folder).settings(folder / "shots.csv")
    made = make_plan(read_batch(settings), CATALOGUE, settings, folder / "plan.parquet", now=NOW)
    assert made.rejects.is_empty()
    assert made.quoted == slow_total(rows) == sum((each.quoted for each in jobs(made)), Decimal(0))


@pytest.mark.skipif(not PARTI.exists(), reason="PartiPrompts.tsv is not part of the project")
def test_a_real_batch_is_priced_whole_by_a_matrix_over_models_and_ratios(plan, tmp_path):
    matrix = {"model": ["still-1", "reel-1"], "aspect_ratio": ["1:1", "16:9", "9:16"]}
    settings = plan.settings(PARTI, columns={"prompt": "Prompt"}, matrix=matrix)
    made = make_plan(read_batch(settings), CATALOGUE, settings, tmp_path / "plan.parquet", now=NOW)
    total = Decimal(0)
    prompts = [line.split("\t")[0] for line in PARTI.read_text(encoding="utf-8").splitlines()[1:]]
    for prompt in prompts:
        assert prompt
        for _ in range(3):
            total += Decimal("0.0407") + 5 * Decimal("0.0513")
    assert (made.rows, made.jobs, made.rejects.height) == (1632, 1632 * 6, 0)
    assert made.quoted == total
    assert made.keys()["key"].n_unique() == made.jobs
    assert [each.request["prompt"] for each in jobs(made)][::6] == prompts


def test_a_job_of_another_price_is_still_the_same_job(plan):
    made = plan("prompt\nx\n")
    settings = plan.settings(plan.folder / "shots.csv")
    model = CATALOGUE["still-1"]
    rates = tuple(rate.model_copy(update={"unit_price": rate.unit_price * 2}) for rate in model.pricing.rates)
    dearer = model.model_copy(update={"pricing": model.pricing.model_copy(update={"rates": rates})})
    again = make_plan(
        read_batch(settings), {"still-1": dearer}, settings, plan.folder / "again.parquet", now=NOW
    )
    (before,), (after,) = jobs(made), jobs(again)
    assert after == replace(before, price=after.price)
    assert after.quoted == 2 * before.quoted
