"""A run of a batch in which nothing has changed ends at once; each thing that has changed alone is noticed.

That a run has looked at the batch is told by its quote: one that ends at once has none.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from callsheet.present.results import topic
from callsheet.pricing.quote import Quote
from callsheet.report.summary import Summary
from callsheet.steps import unchanged
from callsheet.watch import LogWatcher
from tests.cli.test_rows import printed
from tests.conftest import Make, Project, images
from tests.pictures import picture
from tests.servers import s3 as servers
from tests.steps.test_asking import dearer
from tests.steps.test_productions import another
from tests.waiting import wait_until


@dataclass
class Quotes(LogWatcher):
    """The quotes that a run has made."""

    made: list[Quote] = field(default_factory=list)

    def quoted(self, quote: Quote) -> None:
        self.made.append(quote)


def looks(made: Project, *overrides: str) -> tuple[Summary, bool]:
    """A run's summary, and whether it has looked at the batch."""
    watcher = Quotes()
    summary = made.run(*overrides, watcher=watcher)
    return summary, bool(watcher.made)


@pytest.fixture
def bought(project: Make) -> Project:
    """A batch of which all is bought, and a run says so at once."""
    made = project(images(3))
    made.run()
    assert looks(made)[1] is False
    return made


def a_row(made: Project) -> None:
    made.rows(*images(4))


def a_row_of_the_same_length(made: Project) -> None:
    text = (made.folder / "prompts.csv").read_text()
    (made.folder / "prompts.csv").write_text(text.replace("s0", "t0"))


def a_mark_by_another_process(made: Project) -> None:
    printed("review", str(made.config), "--reject", "s1")


def a_price(made: Project) -> None:
    dearer(made)


def the_config(made: Project) -> None:
    made.set(input={"path": "prompts.csv", "template": "{prompt}, at night"})


def the_report(made: Project) -> None:
    (made.folder / "out/report/report.json").unlink()


def the_manifest(made: Project) -> None:
    (made.folder / "out/report/manifest.parquet").unlink()


def the_plan(made: Project) -> None:
    (made.folder / "out/report/plan.parquet").unlink()


def the_answer(made: Project) -> None:
    """One digit of it is another."""
    path = made.folder / "out/report" / unchanged.ANSWER
    path.write_text(path.read_text().replace('"stored":3', '"stored":4'))


def an_answer_of_a_dead_run(made: Project) -> None:
    (made.folder / "out/report/spool").mkdir(exist_ok=True)
    (made.folder / "out/report/spool/answers-x.jsonl").write_text("{}\n")


@pytest.mark.parametrize(
    "change",
    [
        *(a_row, a_row_of_the_same_length, a_mark_by_another_process, a_price, the_config),
        *(the_report, the_manifest, the_plan, the_answer, an_answer_of_a_dead_run),
    ],
)
def test_what_has_changed_is_noticed(bought: Project, change: Callable[[Project], None]) -> None:
    change(bought)
    assert looks(bought)[1]


def test_a_newer_version_looks_once(bought: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "version", lambda _: "99.0.0")
    assert [looks(bought)[1] for _ in range(2)] == [True, False]


def test_what_is_the_same_is_not_looked_at(bought: Project) -> None:
    text = (bought.folder / "prompts.csv").read_bytes()
    (bought.folder / "prompts.csv").write_bytes(text)
    assert looks(bought)[1] is False, "saved again"
    bought.set(batch="second", report={"url": "out/second"})
    assert looks(bought)[1] is True
    bought.set(batch="test", report={"url": "out/report"})
    summary, has_looked = looks(bought)
    assert not has_looked, "another batch of the ledger has changed"
    (bought.folder / "out/report" / unchanged.ANSWER).unlink()
    before = bought.run()
    same = {name: value for name, value in summary.as_json().items() if name not in ("seconds", "written_at")}
    assert same == {name: before.as_json()[name] for name in same}


def test_collect_leaves_a_report_as_it_is_in_which_nothing_has_changed(bought: Project) -> None:
    before = bought.report()
    collected = bought.collect()
    assert topic(collected).startswith("nothing to fetch; 3 of 3 stored, ")
    assert bought.report() == before
    assert looks(bought)[1] is False, "the next run goes by the same report"
    a_row(bought)
    a_price(bought)
    assert bought.collect().jobs == 3
    assert bought.report() == before, "rows and prices are nothing to a run that does not buy"
    a_mark_by_another_process(bought)
    assert bought.collect().rejected == 1
    assert bought.report()["rejected"] == 1


def test_a_file_that_is_gone_from_storage_is_noticed_where_something_is_to_buy(bought: Project) -> None:
    shutil.rmtree(bought.folder / "out/media")
    assert looks(bought)[1] is False
    bought.rows(*images(4))
    summary, has_looked = looks(bought)
    assert (has_looked, summary.stop_reason) == (True, "storage")


def test_a_batch_with_something_left_to_do_is_looked_at(project: Make) -> None:
    made = project([*images(1), *images(1, "bad", model="none")])
    made.run("budget.limit=0.0001")
    assert looks(made)[1], "nothing was bought"
    assert not looks(made)[1], "a rejected row is nothing to do"


def test_links_are_made_anew_when_half_their_time_is_over(bought: Project) -> None:
    bought.set(report={"links_valid_for": 86_400})
    assert [looks(bought)[1] for _ in range(2)] == [True, False]
    path = bought.folder / "out/report" / unchanged.ANSWER
    answer = json.loads(path.read_bytes().partition(b"\n")[2])
    written_at = datetime.fromisoformat(answer["summary"]["written_at"])
    answer["summary"]["written_at"] = (written_at - timedelta(hours=12)).isoformat()
    content = json.dumps(answer)
    path.write_text(f"{hashlib.sha256(content.encode()).hexdigest()}\n{content}")
    assert [looks(bought)[1] for _ in range(2)] == [True, False]


def test_links_that_temporary_credentials_have_signed_are_made_anew(
    project: Make, s3: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.sign_in(monkeypatch)
    made = project(images(1))
    made.set(
        storage={"url": f"s3://{s3.bucket}/briefly/media"},
        report={"contact_sheet": 10, "links_valid_for": 86_400},
    )
    assert [looks(made)[1] for _ in range(2)] == [True, False]
    made.set(report={"links_valid_for": 90_000})
    with monkeypatch.context() as briefly:
        briefly.setenv("AWS_SESSION_TOKEN", "token")
        assert looks(made)[1]
    assert [looks(made)[1] for _ in range(2)] == [True, False]


def test_a_reference_image_that_has_changed_is_noticed(project: Make) -> None:
    made = project()
    (made.folder / "lamp.png").write_bytes(picture(1))
    made.rows({"id": "a", "prompt": "a lamp", "model": "still-1", "images": '["lamp.png"]'})
    made.run()
    assert not looks(made)[1]
    (made.folder / "lamp.png").write_bytes(picture(2))
    assert looks(made)[1]


def test_an_image_that_another_one_comes_before_is_noticed(project: Make) -> None:
    """A relative path is looked for beside the batch file first."""
    made = project()
    (made.folder / "lamp.png").write_bytes(picture(1))
    (made.folder / "rows").mkdir()
    made.rows({"id": "a", "prompt": "a lamp", "model": "still-1", "images": '["lamp.png"]'})
    (made.folder / "prompts.csv").rename(made.folder / "rows/prompts.csv")
    made.set(input={"path": "rows/prompts.csv"})
    made.run()
    assert not looks(made)[1]
    (made.folder / "rows/lamp.png").write_bytes(picture(2))
    assert looks(made)[1]


def test_one_of_two_images_with_the_same_bytes_is_noticed(project: Make) -> None:
    made = project()
    for name in ("a.png", "b.png"):
        (made.folder / name).write_bytes(picture(1))
    made.rows({"id": "a", "prompt": "two lamps", "model": "still-1", "images": '["a.png", "b.png"]'})
    made.run()
    assert not looks(made)[1]
    (made.folder / "a.png").write_bytes(picture(2))
    assert looks(made)[1]


# ---- what rows are made from besides one local file


def changes_of(made: Project, *changes: Callable[[], object]) -> list[bool]:
    """Whether a run after each of these changes has looked, when the one before it has not."""
    looked = []
    for change in changes:
        assert not looks(made)[1]
        change()
        looked.append(looks(made)[1])
    return looked


def test_files_of_a_glob_are_compared(project: Make) -> None:
    made = project()
    folder = made.folder / "rows"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.csv").write_text(f"id,prompt,model\n{name},image {name},sketch-1\n")
    made.set(input={"path": "rows/*.csv"})
    made.run()
    content = (folder / "b.csv").read_text()
    assert changes_of(
        made,
        lambda: (folder / "b.csv").write_text(content.replace("image b", "image d")),
        lambda: (folder / "c.csv").write_text(content.replace("b", "c")),
        (folder / "a.csv").unlink,
    ) == [True, True, True]


def test_images_of_a_folder_and_the_texts_beside_them_are_compared(project: Make) -> None:
    made = project()
    folder = made.folder / "photos"
    folder.mkdir()
    for number, name in enumerate(("cup", "lamp")):
        (folder / f"{name}.png").write_bytes(picture(number))
        (folder / f"{name}.txt").write_text(f"a {name} at night")
    made.set(input={"path": "photos", "defaults": {"model": "still-1"}}, budget={"repeats": "buy"})
    made.run()
    assert changes_of(
        made,
        lambda: (folder / "cup.txt").write_text("a cup at noon."),
        lambda: (folder / "lamp.png").write_bytes(picture(2)),
        lambda: shutil.copy(folder / "cup.png", folder / "vase.png"),  # which has no prompt
    ) == [True, True, True]
    assert looks(made)[1], "an image is rejected, and may have its text by then"


def test_batch_files_on_s3_are_compared(
    project: Make, s3: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.sign_in(monkeypatch, "reader")

    def put(name: str, prompt: str) -> None:
        body = f"id,prompt,model\n{name},{prompt},sketch-1\n".encode()
        s3.client().put_object(Bucket=s3.bucket, Key=f"unchanged/{name}.csv", Body=body)

    put("a", "image 1")
    made = project()
    made.set(input={"path": f"s3://{s3.bucket}/unchanged/*.csv"})
    made.run()
    assert changes_of(made, lambda: put("a", "image 2"), lambda: put("b", "image 2")) == [True, True]
    made.set(input={"path": f"s3://{s3.bucket}/unchanged/a.csv"})
    made.run()
    assert changes_of(made, lambda: put("a", "image 3")) == [True]


def test_images_on_s3_are_compared(
    project: Make, s3: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.sign_in(monkeypatch, "reader")

    def put(number: int) -> None:
        s3.client().put_object(Bucket=s3.bucket, Key="unchanged/lamp.png", Body=picture(number))

    put(1)
    made = project()
    url = f"s3://{s3.bucket}/unchanged/lamp.png"
    made.rows({"id": "a", "prompt": "a lamp", "model": "still-1", "images": f'["{url}"]'})
    made.set(budget={"repeats": "buy"})
    for number in (2, 3):
        wait_until(lambda: not looks(made)[1], "an image that was put just before never counts as old", 0.3)
        put(number)
        assert looks(made)[1]


def test_what_another_batch_has_kept_is_compared(project: Make) -> None:
    stills = project(images(3, model="still-1"))
    stills.run()
    printed("review", str(stills.config), "--keep", "s0")
    given = {"kept": "batch.yaml", "columns": {"prompt": "prompt"}}
    films = another(stills, "films", input={**given, "defaults": {"model": "silent-1", "duration": 2}})
    films.run()
    [still] = stills.manifest().filter(row_id="s0")["url"]
    assert changes_of(
        films,
        lambda: printed("review", str(stills.config), "--keep", "s1"),
        lambda: stills.set(review={"samples": 4}),
        lambda: Path(still).write_bytes(picture(3)),
    ) == [True, True, True]
