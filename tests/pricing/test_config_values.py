"""Values of the config that the catalogue does not have: an error that names file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from callsheet.batches.read import read_batch
from callsheet.config.load import load
from callsheet.errors import ConfigError
from callsheet.pricing.plan import Plan, make_plan
from tests.pricing.plans import CATALOGUE, NOW, PNG


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def plan(lines: str, *overrides: str, rows: str = "prompt,model\nx,still-1\ny,reel-1\n") -> Plan:
        """Plans a batch with these lines in the config's `input`."""
        Path("shots.csv").write_text(rows)
        Path("run.yaml").write_text(
            f"batch: shots\nservice: {{base_url: http://127.0.0.1:1}}\ninput:\n  path: shots.csv\n{lines}"
        )
        settings = load(Path("run.yaml"), overrides)
        return make_plan(read_batch(settings), CATALOGUE, settings, Path("plan.parquet"), now=NOW)

    return plan


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            "  matrix:\n    model:\n    - still-1\n    - reel-9\n",
            "run.yaml, line 8: `input.matrix.model.1`: the service has no model reel-9; did you mean reel-1?",
        ),
        (
            "  matrix:\n    model: [reel-1]\n    duration: [5,\n      7]\n",
            "line 8: `input.matrix.duration.1`: duration 7 is not offered by reel-1; it offers 5, 10",
        ),
        (
            "  matrix: {resolution: [1K, 8K]}\n",
            "line 5: `input.matrix.resolution.1`: resolution 8K is not offered by reel-1; it offers "
            "720p, 1080p; resolution 8K is not offered by still-1; it offers 1K, 2K, 4K",
        ),
        ("  matrix: {output_format: [png, gif]}\n", "`input.matrix.output_format.1`: "),
        ("  matrix: {model: [still-1], sound: [false]}\n", "`input.matrix.sound.0`: sound is for videos"),
        (
            "  matrix: {first_frame: [look.png, none.png]}\n",
            "first_frame.1`: none.png: there is no such file",
        ),
        ("  matrix: {model: [still-1], first_frame: [look.png]}\n", "first_frame.0`: still-1 takes no first"),
        ("  matrix: {images: [[{url: 'ftp://h/a.png'}]]}\n", "`input.matrix.images.0`: ftp://h/a.png: "),
        ("  matrix: {images: [[{link: a}]]}\n", "`input.matrix.images.0`: is not a JSON list of images"),
    ],
)
def test_a_matrix_value_that_no_model_in_use_takes_is_an_error_of_the_config(plan, lines, expected):
    Path("look.png").write_bytes(PNG)
    with pytest.raises(ConfigError) as caught:
        plan(lines)
    assert expected in caught.value.message
    assert not Path("plan.parquet").exists()


def test_every_wrong_value_is_named_at_once(plan):
    with pytest.raises(ConfigError) as caught:
        plan("  matrix: {model: [still-9, reel-1], duration: [7, 10]}\n", "input.matrix.sound=[true, false]")
    assert [line.partition("`: ")[0] for line in caught.value.message.splitlines()] == [
        "run.yaml, line 5: `input.matrix.model.0",
        "run.yaml, line 5: `input.matrix.duration.0",
    ]
    with pytest.raises(ConfigError, match=r"input.matrix.model=\[reel-2\]: `input.matrix.model.0`"):
        plan("", "input.matrix.model=[reel-2]")


def test_a_matrix_value_that_one_model_in_use_takes_rejects_only_the_other_combinations(plan):
    """As a model does that the service does not have, where rows name it."""
    made = plan("  matrix: {resolution: [2K, 1080p, '']}\n")
    assert (made.jobs, made.rejects.height) == (4, 2)
    made = plan("  matrix: {model: [still-1, reel-1], duration: [5]}\n", rows="prompt\nx\n")
    assert (made.jobs, made.rejects.height) == (1, 1)
    made = plan("  matrix: {resolution: [1K, 8K]}\n", rows="prompt,model\nx,still-9\n")
    assert (made.jobs, made.rejects["column"].unique().to_list()) == (0, ["model"])


def test_a_default_model_that_the_service_does_not_have_is_an_error_where_a_row_uses_it(plan):
    with pytest.raises(ConfigError) as caught:
        plan("  defaults:\n    model: still-2\n", rows="prompt,model\nx,\ny,reel-1\n")
    assert caught.value.message == (
        "run.yaml, line 6: `input.defaults.model`: the service has no model still-2; did you mean still-1?"
    )
    assert plan("  defaults: {model: still-2}\n").jobs == 2
    assert plan("  defaults: {model: still-2}\n", "input.matrix.model=[reel-1]", rows="prompt\nx\n").jobs == 1
    rejected = plan("  defaults: {model: still-1}\n", rows="prompt,model\nx,\ny,still-2\n")
    assert (rejected.jobs, rejected.rejected_rows) == (1, 1)


@pytest.mark.parametrize(
    ("default", "rows", "expected"),
    [
        ("resolution: 8K", "prompt,model\nx,still-1\n", "resolution 8K is not offered by still-1"),
        (
            "aspect_ratio: '21:9'",
            "prompt,model,aspect_ratio\nx,still-1,1:1\ny,still-1,\n",
            "21:9 is not offered",
        ),
        ("duration: 7", "prompt,model\nx,reel-1\ny,still-1\n", "duration 7 is not offered by reel-1"),
        ("output_format: gif", "prompt,model\nx,still-1\n", "output_format gif is not offered by still-1"),
        ("reference_image: none.png", "prompt,model\nx,still-1\n", "none.png: there is no such file"),
    ],
)
def test_a_default_that_no_model_takes_of_the_rows_that_use_it_is_an_error_of_the_config(
    plan, default, rows, expected
):
    with pytest.raises(ConfigError) as caught:
        plan(f"  defaults:\n    {default}\n", rows=rows)
    column = default.partition(":")[0]
    assert caught.value.message.startswith(f"run.yaml, line 6: `input.defaults.{column}`: ")
    assert expected in caught.value.message


def test_a_default_is_of_those_rows_that_use_it_and_of_the_type_that_has_it(plan):
    used_by_none = plan("  defaults: {resolution: 8K}\n", rows="prompt,model,resolution\nx,still-1,1K\n")
    assert used_by_none.jobs == 1
    of_videos = plan("  defaults: {duration: 7, sound: true}\n", rows="prompt,model\nx,still-1\n")
    assert of_videos.jobs == 1
    taken_by_one = plan("  defaults: {resolution: 1080p}\n")
    assert (taken_by_one.jobs, taken_by_one.rejects.height) == (1, 1)
    matrix = plan(
        "  defaults: {resolution: 8K}\n  matrix: {resolution: [1K]}\n", rows="prompt,model\nx,still-1\n"
    )
    assert matrix.jobs == 1


def test_a_wrong_storage_key_does_not_speak_of_models(plan):
    with pytest.raises(ConfigError, match="is no carried column of the batch file") as caught:
        plan("", "storage.key={shelf}/{row_id}.{ext}")
    assert caught.value.hint == ""
