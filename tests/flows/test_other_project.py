"""A key of another project: what was bought with the right one is neither lost nor bought again."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from backlot.settings import WorkspaceSettings
from tests.conftest import Project
from tests.servers.backlots import finish_videos

VIDEOS: list[dict[str, Any]] = [
    {"id": f"v{n}", "prompt": f"video {n}", "model": "dailies-1", "duration": 1} for n in range(3)
]


@pytest.fixture
def bought(project: Callable[..., Project]) -> Project:
    """Three videos are bought and not collected yet; `sk_other` is a key of another project."""
    made = project(VIDEOS, video_seconds=3600)
    other = WorkspaceSettings(balance=Decimal(100), projects={"other": ("sk_other",)})
    made.backlot.service.add_workspace("other", other)
    assert made.run("poll.timeout=0.5").pending == 3
    finish_videos(made.backlot.service)
    return made


def test_collecting_with_another_projects_key_says_so_and_writes_nothing_off(
    bought: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted = bought.costs()["quoted"].sum()
    monkeypatch.setenv("CALLSHEET_API_KEY", "sk_other")
    summary = bought.collect()
    assert (summary.stop_reason, summary.exit_code) == (None, 3), "nothing is left that was not tried"
    assert (
        "The API key seems to be another project's" in f"{summary.stop_message} {summary.details.stop_hint}"
    )
    assert (summary.in_doubt, summary.failed, summary.in_doubt_exposure) == (3, 0, quoted)
    messages = bought.costs()["error_message"]
    assert all("req-" in message and "under this key" in message for message in messages)


def test_with_the_right_key_again_the_videos_are_collected(
    bought: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = bought.backlot.api_key
    monkeypatch.setenv("CALLSHEET_API_KEY", "sk_other")
    bought.collect()
    assert bought.collect().in_doubt == 3, "they are asked for again, and stay as they are"
    monkeypatch.setenv("CALLSHEET_API_KEY", key)
    summary = bought.collect("on_doubt=retry")
    assert (summary.stored, summary.in_doubt, summary.exit_code) == (3, 0, 0)
    assert bought.costs()["error_code"].to_list() == [None] * 3
    again = bought.run("on_doubt=retry")
    assert (again.submissions, again.spent) == (0, bought.costs()["quoted"].sum())
