"""Batches whose cells name a kept file of another batch: a cast, stills with it, and films of these."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.cli.test_rows import printed, refusal
from tests.conftest import Make, Project
from tests.steps.test_productions import another, manifest, requests

CAST = [
    {"id": name, "prompt": f"a portrait of {name}", "model": "still-1", "samples": 3}
    for name in ("nova", "odo")
]
SHOTS: list[dict[str, Any]] = [
    {"id": "s1", "prompt": "Nova on a pier", "reference_image": "cast.yaml#nova"},
    {"id": "s2", "prompt": "Both on a boat", "reference_image": "cast.yaml#nova|cast.yaml#odo/2"},
    {"id": "s3", "prompt": "An empty quay", "reference_image": ""},
]


@pytest.fixture
def cast(project: Make) -> Project:
    """Two portraits of three samples, bought, of which one each is kept."""
    made = project(CAST)
    made.set(report={"url": "out/batch/report"})
    cast = another(made, "cast", input={"path": "cast.csv"})
    made.folder.joinpath("prompts.csv").rename(made.folder / "cast.csv")
    assert cast.run().stored == 6
    printed("review", "cast.yaml", "--keep", "nova/1", "--keep", "odo/2")
    return cast


@pytest.fixture
def shots(cast: Project) -> Project:
    cast.rows(*SHOTS)
    return another(cast, "shots", input={"path": "prompts.csv", "defaults": {"model": "still-1"}})


def test_a_cell_names_the_kept_file_of_a_row_of_another_batch(cast: Project, shots: Project) -> None:
    hashes = {f"{row['row_id']}/{row['sample']}": row["sha256"] for row in manifest(cast).to_dicts()}
    sent = {
        row: [image["url"] for image in request.get("images", [])]
        for row, request in requests(shots.quote()).items()
    }
    nova, odo = f"sha256:{hashes['nova/1']}", f"sha256:{hashes['odo/2']}"
    assert sent == {"s1": [nova], "s2": [nova, odo], "s3": []}
    assert shots.run().stored == 3
    of_nova = {"batch": "cast", "row": "nova", "sample": 1, "sha256": hashes["nova/1"]}
    of_odo = {"batch": "cast", "row": "odo", "sample": 2, "sha256": hashes["odo/2"]}
    rows = {row["row_id"]: row for row in manifest(shots).to_dicts()}
    assert [rows[row]["made_from"] for row in ("s1", "s2", "s3")] == [of_nova, of_nova, None]
    assert [rows[row]["also_made_from"] for row in ("s1", "s2", "s3")] == [None, [of_odo], None]
    assert shots.quote().to_buy == 0
    shown = printed("show", "shots.yaml", "s2")
    assert "made from  cast: nova, sample 1; cast: odo, sample 2" in shown
    assert "also_made_from" not in shown


def test_a_name_that_means_no_file_or_several_is_a_reject_that_says_what_to_do(
    cast: Project, shots: Project
) -> None:
    printed("review", "cast.yaml", "--keep", "nova/3", "--clear", "odo/2")
    names = (
        "cast.yaml#nova",
        "cast.yaml#odo",
        "cast.yaml#ada",
        "none.yaml#nova",
        "cast.yaml#nova/3",
        "shots.yaml#s1",
    )
    cast.rows(*({"id": f"s{at}", "prompt": name, "reference_image": name} for at, name in enumerate(names)))
    quote = shots.quote()
    assert [*requests(quote)] == ["s4"]
    assert (quote.plan.rows, quote.plan.rejected_rows) == (6, 5)
    assert dict(quote.plan.rejects.select("value", "reason").iter_rows()) == {
        "cast.yaml#nova": "cast.yaml#nova has 2 files that are kept (nova/1, nova/3): "
        "name one, as cast.yaml#nova/1",
        "cast.yaml#odo": "cast.yaml#odo has 3 files, and none is kept: callsheet review cast.yaml",
        "cast.yaml#ada": "cast.yaml#ada is no row of which the batch cast has a file",
        "none.yaml#nova": "none.yaml#nova is of a batch with a wrong config: "
        "none.yaml: there is no such config file",
        "shots.yaml#s1": "shots.yaml#s1 is of a batch of which nothing is bought yet: "
        "callsheet run shots.yaml",
    }
    assert quote.plan.rejects["column"].unique().to_list() == ["reference_image"]


def test_a_film_of_a_kept_still_has_the_cast_and_the_last_frame_of_a_kept_film_beside_it(
    cast: Project, shots: Project
) -> None:
    shots.run()
    printed("review", "shots.yaml", "--keep", "s1", "--keep", "s3")
    cast.rows(*(shot | {"with": "cast.yaml#odo"} for shot in SHOTS))
    shots.run()
    columns, role = {"reference_image": "with"}, "reference_image"
    films = another(
        cast,
        "films",
        input={"kept": "shots.yaml", "columns": columns, "role": role, "defaults": {"model": "reel-1"}},
    )
    assert films.run().stored == 2
    [of_s1] = manifest(films).filter(row_id="s1/1").to_dicts()
    assert of_s1["made_from"]["batch"] == "shots"
    assert [file["batch"] for file in of_s1["also_made_from"]] == ["cast"]

    printed("review", "films.yaml", "--keep", "s1/1/1")
    name = "films.yaml#s1/1/1#last_frame"
    cast.rows({"id": "s4", "prompt": "and on", "model": "still-1", "images": f'["{name}"]'})
    on = another(cast, "on", input={"path": "prompts.csv"})
    assert on.run().stored == 1
    [still] = manifest(on).to_dicts()
    assert still["made_from"] == {"batch": "films", "row": "s1/1", "sample": 1, "sha256": of_s1["sha256"]}


def test_another_kept_file_is_what_a_quote_says_first_with_all_that_hangs_on_it(
    cast: Project, shots: Project
) -> None:
    shots.run()
    printed("review", "shots.yaml", "--keep", "s1", "--keep", "s2", "--keep", "s3")
    films = another(
        cast, "films", input={"kept": "shots.yaml", "defaults": {"model": "silent-1", "duration": 2}}
    )
    assert films.run().stored == 3
    assert shots.quote().old_files == ()

    printed("review", "cast.yaml", "--reject", "nova/1", "--keep", "nova/2")
    said = "nova/1 of cast is rejected (kept: nova/2): 2 stills and 2 films hang on it"
    screen = printed("quote", "shots.yaml")
    assert screen.splitlines()[1].split(maxsplit=1) == ["Source", said]
    assert (shots.quote().to_buy, shots.quote().repeats) == (2, 0), "a person wants it so"
    assert films.quote().old_files == (), "their stills are kept"

    assert shots.run().stored == 5
    assert shots.quote().old_files == (), "they are bought again"
    assert films.quote().old_files == (), "and not looked at yet"
    printed("review", "shots.yaml", "--keep", "s1")
    assert films.quote().old_files == (
        "s1/1 of shots is of an earlier request (kept: s1/2): 1 film hangs on it",
    )


def test_a_file_that_is_made_from_an_old_one_has_the_flag_source_wherever_it_is_seen(
    cast: Project, shots: Project
) -> None:
    shots.set(report={"contact_sheet": 100})
    shots.run()
    assert "Source" not in printed("status", "shots.yaml")
    printed("review", "cast.yaml", "--clear", "odo/2")
    flag = "source: odo/2 of cast is not kept any more"
    assert json.loads(printed("status", "shots.yaml", "--json"))["outdated"] == {"s2/1": flag}
    assert "Source     1 file is made from what is not kept any more, or was replaced: s2/1" in printed(
        "status", "shots.yaml"
    )
    assert f"flags      {flag}" in printed("show", "shots.yaml", "s2")
    assert "flags" not in printed("show", "shots.yaml", "s1")
    printed("report", "shots.yaml")
    flags = dict(manifest(shots).select("row_id", "flags").iter_rows())
    assert flags == {"s1": None, "s2": [flag], "s3": None}
    assert flag in (shots.folder / "out/shots/report/contact-sheet/data/jobs-0000.js").read_text()


def test_a_batch_with_nothing_to_do_looks_again_at_what_its_cells_name(cast: Project, shots: Project) -> None:
    shots.run()
    printed("review", "cast.yaml", "--reject", "nova/1", "--keep", "nova/2")
    assert shots.run().stored == 5


def test_what_a_row_is_bought_as_later_takes_the_place_of_what_was_kept_before(
    cast: Project, shots: Project
) -> None:
    assert shots.run().stored == 3
    columns = ("id", "prompt", "model", "samples")
    (cast.folder / "cast.csv").write_text(",".join(columns) + "\nnova,Nova with short hair,still-1,1\n")
    assert cast.run().outcome == "complete"
    printed("review", "cast.yaml", "--keep", "nova/4")
    [new] = manifest(cast).filter(row_id="nova", current=True)["sha256"]
    quote = shots.quote()
    assert requests(quote)["s1"]["images"][0]["url"] == f"sha256:{new}"
    assert quote.old_files[0].startswith(
        "nova/1 of cast is of an earlier request (kept: nova/4): 2 stills hang on it"
    )


def test_a_quote_with_if_prices_what_hangs_on_a_file_through_all_configs_beside_it(
    cast: Project, shots: Project
) -> None:
    shots.run()
    printed("review", "shots.yaml", "--keep", "s1", "--keep", "s3")
    given = {"kept": "shots.yaml", "defaults": {"model": "silent-1", "duration": 2}}
    films = another(cast, "films", input=given)
    assert films.run().stored == 2
    printed("review", "films.yaml", "--keep", "s1/1/1", "--keep", "s3/1/1")
    columns = {"first_frame": "last_frame"}
    given = {"kept": "films.yaml", "columns": columns, "defaults": {"model": "silent-1", "duration": 2}}
    another(cast, "on", input=given)
    (cast.folder / "notes.yaml").write_text("nothing: of ours\n")

    priced = json.loads(printed("quote", "--if", "cast.yaml#nova", "--json"))
    assert [priced["made_from"][name] for name in ("batch", "row", "sample")] == ["cast", "nova", 1]
    counts = {
        each["batch"]: (each["images"], each["videos"], each["bought"], each["quoted"])
        for each in priced["batches"]
    }
    assert counts == {
        "shots": (2, 0, 2, "0.0800"),
        "films": (0, 1, 1, counts["films"][3]),
        "on": (0, 1, 0, "0.0000"),
    }
    of_a_film = manifest(films)["cost"][0]
    assert Decimal(counts["films"][3]) == of_a_film
    assert (priced["bought"], Decimal(priced["quoted"])) == (3, Decimal("0.08") + of_a_film)
    assert [*priced["left_out"]] == ["batch.yaml", "notes.yaml"]
    assert [each["price"] for each in priced["batches"]] == ["0.0800", str(of_a_film)[:6], str(of_a_film)[:6]]
    screen = printed("quote", "--if", "cast.yaml#nova", "shots.yaml", "films.yaml")
    assert screen.startswith("cast.yaml#nova (nova of cast): 2 stills and 1 film hang on it")
    assert "To buy again 3 jobs for " in screen
    assert len(shots.sold) == 6 + 3 + 2

    error = refusal("quote", "--if", "films.yaml#s9")
    assert error.message == "films.yaml#s9 is no row of which the batch films has a file"
    assert refusal("quote", "--if", "nova").message == "'nova' is no kept file"
    assert "Missing argument" in refusal("quote").message


def test_a_default_names_a_kept_file_for_all_rows_and_a_matrix_cannot(cast: Project, shots: Project) -> None:
    cast.rows(*({name: shot[name] for name in ("id", "prompt")} for shot in SHOTS))
    shots.set(input={"defaults": {"model": "still-1", "reference_image": "cast.yaml#odo"}})
    [odo] = manifest(cast).filter(row_id="odo", sample=2)["sha256"]
    sent = [request["images"][0]["url"] for request in requests(shots.quote()).values()]
    assert sent == [f"sha256:{odo}"] * 3
    matrix = {"reference_image": ["cast.yaml#odo", "cast.yaml#nova"]}
    shots.set(input={"defaults": {"model": "still-1"}, "matrix": matrix})
    error = refusal("quote", "shots.yaml")
    assert "cast.yaml#odo: is a kept file, which only a cell or a default names" in error.message
