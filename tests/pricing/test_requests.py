"""Requests: every row resolved, priced and keyed; and rows that cannot be bought."""

from __future__ import annotations

import base64
import hashlib
import json
import unicodedata
from datetime import date
from decimal import Decimal
from pathlib import Path

import anyio
import polars as pl
from hypothesis import given
from hypothesis import settings as quick
from hypothesis import strategies as st

from callsheet.cells import FAILED_FORMULAS, NOTHING
from callsheet.pricing import references
from callsheet.records import ModelType, canonical
from tests.pricing.plans import MIXED, NOW, PNG, Maker, jobs


def test_every_job_is_priced_in_the_file_s_order_and_what_cannot_be_bought_is_a_reject(plan):
    planned = plan(MIXED)
    assert [(each.row_id, each.sample, each.type, each.quoted) for each in jobs(planned)] == [
        ("a", 1, ModelType.IMAGE, Decimal("0.0833")),
        ("a", 2, ModelType.IMAGE, Decimal("0.0833")),
        ("b", 1, ModelType.VIDEO, Decimal("0.771")),
        ("f", 1, ModelType.IMAGE, Decimal("0.0407")),
    ]
    assert (planned.rows, planned.rejected_rows, planned.jobs, planned.unpriced_rows) == (6, 3, 4, 1)
    assert (planned.batch, planned.table["price"].sum(), planned.made_at) == ("shots", Decimal("0.9783"), NOW)
    listed = planned.rejects.select("line", "column", "value", "reason").rows()
    assert listed == [
        (4, "duration", "7", "duration is for videos, and still-1 makes images"),
        (5, "model", "proof-1", "proof-1 has no rates in the catalogue, which does not mean that it is free"),
        (6, "model", "reel-9", "the service has no model reel-9; did you mean reel-1?"),
    ]
    unpriced = plan(MIXED, allow_unpriced=True)
    assert (unpriced.jobs, unpriced.unpriced_rows, unpriced.table["price"].sum()) == (5, 1, Decimal("0.9783"))
    assert [each.price for each in jobs(unpriced) if each.model == "proof-1"] == [None]
    assert unpriced.rejects["line"].to_list() == [4, 6]
    assert unpriced.table["price"].null_count() == 1


def test_a_request_has_every_default_filled_in(plan):
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


def test_a_rejected_row_is_counted_once_in_each_file(plan, tmp_path):
    for name in "ab":
        text = "prompt,duration,sound\n,x,maybe\nok,,\nshort\nlong,5,yes\n"
        (tmp_path / f"{name}.csv").write_text(text)
    planned = plan.of(plan.settings(tmp_path / "?.csv", matrix={"resolution": ["1K", "2K"]}))
    assert (planned.rows, planned.rejected_rows, planned.jobs) == (8, 6, 4)
    assert len(planned.rejects) == 2 * (3 + 1 + 2)


GOLDEN = {
    "a-1": "4bb3dfb3b3a8f94811801c30d5debd221cc598d3c88c1b66c60934a28487ebff",
    "a-2": "fbd64b7bc3203adc9f3bd8b1d63ae3e3ade914a9ba7bc403de9232ca7160435a",
    "b-1": "b76d3f879bdbcb5c3bcf431c4b91395b04146713c5e3a9c2b1472851913d8bd6",
    "f-1": "f8a517bdced468a6a4f2d27c89a555ac7ace47caee89681062430163ba2e655e",
}


def test_a_key_is_the_hash_of_batch_row_sample_and_what_the_row_asks_for(plan):
    """Written down: if a key changed, everything would be bought again."""
    asked = {
        "a": {"model": "still-1", "output_format": "png", "prompt": "a cat", "resolution": "2K"},
        "b": {"duration": "10", "model": "reel-1", "prompt": 'say "hi", \U0001f600', "sound": "true"},
        "f": {"model": "still-1", "prompt": "a bird"},
    }
    planned = jobs(plan(MIXED))
    more = jobs(plan(MIXED.replace("png,2,first", "png,3,first")))
    assert [each.key for each in more if each not in planned] == [more[2].key], "the others keep their keys"
    for each in planned:
        identity = {"asked": asked[each.row_id], "batch": "shots", "row_id": each.row_id}
        identity |= {"sample": each.sample}
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert each.key == hashlib.sha256(text.encode()).hexdigest()
    assert {f"{each.row_id}-{each.sample}": each.key for each in planned} == GOLDEN


no_prompts = {"", *NOTHING, *(text.lower() for text in FAILED_FORMULAS)}
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


@given(texts.filter(lambda text: text.strip().lower() not in no_prompts))
@quick(max_examples=25, deadline=None)
def test_a_request_has_any_prompt_unchanged(tmp_path_factory, prompt):
    plan = Maker(tmp_path_factory.mktemp("prompt"))
    path = plan.folder / "shots.parquet"
    pl.DataFrame({"prompt": [prompt]}).write_parquet(path)
    [only] = jobs(plan.of(plan.settings(path)))
    assert only.request["prompt"] == prompt
    pair = canonical([only.request, only.sample])
    assert only.request_key == hashlib.sha256(unicodedata.normalize("NFC", pair).encode()).hexdigest()


def test_the_matrix_buys_each_row_once_for_every_combination(plan):
    planned = plan(
        "id,prompt,aspect_ratio\n1,x,9:16\n2,y,\n",
        matrix={"model": ["still-1", "reel-1"], "aspect_ratio": ["1:1", "16:9"]},
    )
    listed = [(each.row_id, each.model, each.request["aspect_ratio"]) for each in jobs(planned)]
    four = [("still-1", "1:1"), ("still-1", "16:9"), ("reel-1", "1:1"), ("reel-1", "16:9")]
    assert listed == [("1", *each) for each in four] + [("2", *each) for each in four]
    assert planned.table["price"].sum() == 4 * Decimal("0.0407") + 4 * 5 * Decimal("0.0513")


def test_a_combination_that_cannot_be_bought_or_is_there_already_leaves_the_others(plan):
    planned = plan("prompt\nx\n", matrix={"model": ["still-1", "reel-1"], "duration": [5, 10]})
    listed = [(each.model, each.request.get("duration")) for each in jobs(planned)]
    assert listed == [("reel-1", 5), ("reel-1", 10)]
    assert planned.rejects.select("line", "value").rows() == [(2, "5"), (2, "10")]
    planned = plan("prompt\nx\n", matrix={"resolution": ["", "1K", "2K"]})
    assert [each.request["resolution"] for each in jobs(planned)] == ["1K", "2K"]
    reason = "input.matrix asks for the same request twice"
    assert planned.rejects.rows() == [(2, "model", "still-1", reason)]


def test_of_rows_that_ask_for_the_same_only_the_first_is_a_job_where_a_setting_says_so(plan):
    text = "id,prompt,samples\na,a cat,\nb,a cat,2\nc,a dog,\nd,a cat,\n"
    made = plan(text, repeated="once")
    assert [(each.row_id, each.sample) for each in jobs(made)] == [("a", 1), ("b", 2), ("c", 1)]
    assert (made.rows, made.rejected_rows) == (4, 0)
    assert made.notes == ("2 rows ask for what another row asks for: left out by input.repeated",)
    made = plan(text)
    assert len(jobs(made)) == 5
    assert made.notes == ()


def test_local_images_are_hashes_in_the_plan_and_bytes_in_the_request(plan, tmp_path):
    """Another image under the same name is another job."""
    path = tmp_path / "look.png"
    path.write_bytes(PNG)
    text = f"id,prompt,reference_image\n1,x,{path}|https://h/y.png\n2,y,{path}\n3,z,\n"
    planned = plan(text)
    sha256 = hashlib.sha256(PNG).hexdigest()
    first, second, third = jobs(planned)
    assert first.request["images"] == [
        {"role": "reference_image", "url": f"sha256:{sha256}"},
        {"role": "reference_image", "url": "https://h/y.png"},
    ]
    assert first.inlined == second.inlined == {sha256: str(path)}
    assert "images" not in third.request
    assert third.inlined == {}
    sent = anyio.run(references.fill, second)
    assert sent["images"][0]["url"] == "data:image/png;base64," + base64.b64encode(PNG).decode()
    path.write_bytes(PNG + b"new")
    same = [each.key in planned.table["key"] for each in jobs(plan(text))]
    assert same == [False, False, True]


def test_a_list_of_images_without_roles_is_for_image_models(plan):
    listed = '"[{""url"": ""https://h/1.png""}]"'
    planned = plan(f"prompt,model,images\nx,still-1,{listed}\ny,reel-1,{listed}\n")
    (only,) = jobs(planned)
    assert only.request["images"] == [{"role": "reference_image", "url": "https://h/1.png"}]
    assert planned.rejects.select("line", "column").rows() == [(3, "images")]


def test_images_that_cannot_be_sent_are_rejects(plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.png").write_text("no image")
    planned = plan("prompt,look\nx,none.png\ny,text.png\n", columns={"reference_image": "look"})
    assert planned.rejects.select("line", "column", "value", "reason").rows() == [
        (2, "look", "none.png", f"there is no such file; tried {tmp_path}/none.png and none.png"),
        (3, "look", "text.png", "is not a PNG, JPEG or WebP image"),
    ]


def test_a_request_over_25_mib_is_rejected_by_its_exact_size(plan, tmp_path, monkeypatch):
    path = tmp_path / "look.png"
    path.write_bytes(PNG)
    text = f"prompt,reference_image\né,{path}\n"
    (job,) = jobs(plan(text))
    body = json.dumps(anyio.run(references.fill, job), ensure_ascii=False, separators=(",", ":"))
    assert references.LARGEST_REQUEST == 25 * 1024 * 1024
    monkeypatch.setattr(references, "LARGEST_REQUEST", len(body.encode()) - 1)
    assert str(len(body.encode())) in plan(text).rejects["reason"][0]


def test_carried_values_are_in_the_plan_as_json_values(plan, tmp_path):
    day = date(2026, 1, 2)
    cells = {"prompt": ["x"], "day": [day], "cost": [Decimal("1.10")], "tags": [["a"]], "key": [1]}
    pl.DataFrame(cells).write_parquet(tmp_path / "in.parquet")
    planned = plan.of(plan.settings(tmp_path / "in.parquet"))
    assert jobs(planned)[0].carried == {"day": "2026-01-02", "cost": "1.10", "tags": ["a"], "key": 1}
