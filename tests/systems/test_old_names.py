"""Files keep the names that earlier versions gave them, also those that Windows does not take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from callsheet.storage import names
from tests.conftest import Project

Make = Callable[..., Project]
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}


@pytest.fixture
def earlier() -> Iterator[pytest.MonkeyPatch]:
    """A version that does not change names for Windows, until `undo`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names, "_on_windows", lambda segment: segment)
        yield patch


def shop(project: Make, *rows: str) -> Project:
    made = project(images(*rows))
    made.set(storage={"key": "day 1: {batch}/{row_id}."})
    return made


def images(*rows: str) -> Sequence[dict[str, str]]:
    return [{"id": row, "prompt": f"an image of {row}", **IMAGE} for row in rows]


def files(made: Project) -> dict[str, float]:
    """The stored files, and when each was written."""
    media = made.folder / "out/media"
    paths = (path for path in media.glob("day*/*") if path.is_file())
    return {str(path.relative_to(media)): path.stat().st_mtime for path in paths}


def test_what_is_stored_stays_as_it_is_beside_what_is_new(project: Make, earlier: pytest.MonkeyPatch) -> None:
    made = shop(project, "CON", "a")
    assert made.run().stored == 2
    before = files(made)
    assert {*before} == {"day 1: test/CON.", "day 1: test/a."}
    earlier.undo()
    made.rows(*images("CON", "a", "nul"))
    assert (made.run().stored, len(made.sold)) == (3, 3), "only the new row was bought"
    assert files(made).items() > before.items()
    assert {*files(made)} - {*before} == {"day 1%3A test/nul%2E"}
    urls = sorted(made.manifest()["url"])
    assert [Path(url).is_file() for url in urls] == [True] * 3


def test_what_was_bought_and_not_stored_gets_the_name_that_the_ledger_has(
    project: Make, earlier: pytest.MonkeyPatch
) -> None:
    made = shop(project, "CON")
    in_the_way = made.folder / "out/media/day 1: test"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    assert made.run().pending == 1
    earlier.undo()
    in_the_way.unlink()
    assert (made.run().stored, len(made.sold)) == (1, 1)
    assert {*files(made)} == {"day 1: test/CON."}
