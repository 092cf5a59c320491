"""`reconcile`: the accounts side by side, what is certain of a difference, and a result kept by the day."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from typer.testing import CliRunner

from backlot.settings import WorkspaceSettings
from callsheet.cli.main import app
from callsheet.errors import CallsheetError
from tests.cli.test_commands import callsheet
from tests.cli.test_output import ESCAPE, OVERRIDE, unsafe
from tests.conftest import Project
from tests.servers import http
from tests.servers.backlots import finish_videos
from tests.servers.sockets import error_reply, json_reply, serve

Make = Callable[..., Project]
IMAGE = {"prompt": "an image", "model": "sketch-1", "aspect_ratio": "1:1"}  # 0.0015 USD
CUT_OFF = {"endpoint": "images", "prompt": "cut off", "do": "drop"}
KEYS = {"own": ["sk_first", "sk_second"], "strange": ["sk_strange"]}
STUDIO = {
    "api_key": "sk_first",
    "workspaces": {"studio": {"balance": "100", "projects": KEYS}},
}
TODAY = datetime.now(UTC).date()


def rows(*names: str) -> list[dict[str, Any]]:
    return [{"id": name, **IMAGE} for name in names]


def doubtful(*names: str) -> list[dict[str, Any]]:
    return [{"id": name, **IMAGE, "prompt": "cut off"} for name in names]


def spend(made: Project, key: str) -> None:
    """Buys an image of 0.04 dollars with a key, past every ledger."""
    body = {"model": "still-1", "prompt": "a fox"}
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{made.backlot.base_url}/v2/images/generations"
    http.post(url, json=body, headers=headers).raise_for_status()


def backdate(made: Project, days: int) -> None:
    """Moves everything that the ledger and the service have into the past."""
    with sqlite3.connect(made.folder / "out/ledger.db") as ledger:
        for table, names in (("attempts", ("submitted_at", "finished_at")), ("runs", ("started_at",))):
            for name in names:
                moved = f"strftime('%Y-%m-%dT%H:%M:%f', {name}, '-{days} days') || '000Z'"
                ledger.execute(f"UPDATE {table} SET {name} = {moved}")
    made.backlot.service.store.db.execute(
        "UPDATE generations SET finished_at = finished_at - ?", [days * 86_400_000]
    )


def reconcile(made: Project, *words: str, code: int = 0) -> dict[str, Any]:
    """Runs `callsheet reconcile CONFIG WORDS --json` in this process; it must end with `code`."""
    done = CliRunner().invoke(app, ["reconcile", str(made.config), *words, "--json"])
    assert done.exit_code == code, (done.output, done.exception)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def refused(made: Project, *words: str) -> CallsheetError:
    """The error with which the command ends."""
    error = CliRunner().invoke(app, ["reconcile", str(made.config), *words]).exception
    assert isinstance(error, CallsheetError), error
    return error


# ---- the accounts, and the names of their differences


def test_books_that_agree_have_no_difference(project: Make) -> None:
    made = project(rows("a", "b", "c"))
    made.run()
    answer = reconcile(made)
    assert list(answer)[:4] == ["batch", "start", "end", "currency"]
    [day] = answer["days"]
    books = {"quoted": "0.0045", "usage": "0.0045", "in_doubt": "0.0000", "billed": "0.0045"}
    books |= {"difference": "0.0000"}
    assert {name: day[name] for name in books} == {name: answer[name] for name in books} == books
    assert (day["date"], day["reason"], answer["unexplained"]) == (TODAY.isoformat(), "", "0.0000")
    assert (answer["batch"], answer["start"], answer["end"]) == ("test", day["date"], day["date"])
    assert answer["balance"]["before"] == "100.0000"
    assert answer["balance"]["after"] == "99.9955"
    assert (answer["balance"]["gone"], answer["balance"]["billed"]) == ("0.0045", "0.0045")


def test_another_key_of_the_project_is_in_the_costs_and_another_project_in_the_balance(
    project: Make,
) -> None:
    made = project(rows("a"), **STUDIO)
    made.run()
    spend(made, "sk_strange")
    answer = reconcile(made)
    assert (answer["difference"], answer["unexplained"]) == ("0.0000", "0.0000")
    assert (answer["balance"]["gone"], answer["balance"]["billed"]) == ("0.0415", "0.0015")
    spend(made, "sk_second")
    answer = reconcile(made, code=3)
    assert answer["days"][0]["reason"] == "unexplained 0.0400"
    assert (answer["difference"], answer["unexplained"]) == ("0.0400", "0.0400")
    assert (answer["balance"]["gone"], answer["balance"]["billed"]) == ("0.0815", "0.0415")
    assert reconcile(made, "--set", "reconcile.threshold=0.04")["unexplained"] == "0.0400"
    assert reconcile(made, "--set", "reconcile.threshold=0.0399", code=3)["is_over"]


def test_costs_that_lag_are_not_yet_posted(project: Make) -> None:
    made = project(rows("a"), costs_lag=3600)
    made.run()
    answer = reconcile(made)
    assert (answer["usage"], answer["billed"], answer["difference"]) == ("0.0015", "0.0000", "-0.0015")
    assert answer["days"][0]["reason"] == "not yet posted 0.0015"
    assert answer["unexplained"] == "0.0000"


def test_a_surcharge_is_named(project: Make) -> None:
    made = project(rows("a"), faults={"rules": [{"endpoint": "images", "do": "surcharge", "amount": "0.01"}]})
    made.run()
    [day] = reconcile(made)["days"]
    assert (day["quoted"], day["usage"], day["billed"]) == ("0.0015", "0.0115", "0.0115")
    assert day["reason"] == "surcharge over the quote 0.0100"


def test_a_cost_without_the_service_s_word_is_named(project: Make) -> None:
    made = project(doubtful("a"), faults={"rules": [CUT_OFF | {"when": "after_charging"}]})
    made.run()
    CliRunner().invoke(app, ["resolve", str(made.config), "--all", "--charged"])
    [day] = reconcile(made)["days"]
    assert (day["usage"], day["billed"], day["unexplained"]) == ("0.0015", "0.0015", "0.0000")
    assert day["reason"] == "costs without the service's word 0.0015"


def test_a_refused_job_is_not_in_the_quotes(project: Make) -> None:
    made = project([*rows("a"), {"id": "bad", **IMAGE, "prompt": "forbidden-test-word"}])
    made.run()
    assert reconcile(made)["quoted"] == "0.0015"


def test_other_batches_of_the_service_are_known_spending_and_another_service_s_are_not_counted(
    project: Make, start_backlot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project(rows("a"))
    made.run()
    made.run("batch=other")
    elsewhere = start_backlot()
    with monkeypatch.context() as other:
        other.setenv("CALLSHEET_BASE_URL", elsewhere.base_url)
        made.run("batch=strange", f"service.base_url={elsewhere.base_url}")
    answer = reconcile(made)
    assert (answer["usage"], answer["billed"], answer["difference"]) == ("0.0030", "0.0030", "0.0000")
    assert answer["days"][0]["other_batches"] == "0.0015"
    assert "other batches of this ledger: 0.0015" in callsheet("reconcile", str(made.config)).stdout


# ---- doubts: evidence is offered, never applied


def doubts_of(made: Project) -> int:
    done = CliRunner().invoke(app, ["resolve", str(made.config), "--json"])
    return len(json.loads(done.stdout)["in_doubt"])


def test_doubts_that_were_charged_are_listed_with_the_command_that_settles_them(project: Make) -> None:
    made = project(
        [*rows("a"), *doubtful("b", "c")], faults={"rules": [CUT_OFF | {"when": "after_charging"}]}
    )
    made.run()
    answer = reconcile(made)
    [day] = answer["days"]
    assert (day["in_doubt"], day["difference"], day["reason"]) == (
        "0.0030",
        "0.0030",
        "doubts that were charged 0.0030",
    )
    assert answer["unexplained"] == "0.0000"
    listed = [(each["row_id"], each["quoted"], each["verdict"]) for each in answer["doubts"]]
    assert sorted(listed) == [("b", "0.0015", "charged"), ("c", "0.0015", "charged")]
    assert doubts_of(made) == 2, "nothing is applied"
    [command] = answer["resolve"]
    program, *words = shlex.split(command)
    assert program == "callsheet"
    assert "--charged" in words
    assert CliRunner().invoke(app, words).exit_code == 0
    assert doubts_of(made) == 0
    after = reconcile(made)
    assert (after["difference"], after["doubts"], after["resolve"]) == ("0.0000", [], [])


def test_doubts_of_a_day_without_a_difference_were_not_charged(project: Make) -> None:
    made = project([*rows("a"), *doubtful("b")], faults={"rules": [CUT_OFF | {"when": "before_charging"}]})
    made.run()
    today = reconcile(made)
    assert [each["verdict"] for each in today["doubts"]] == ["unclear"], "it may be posted yet"
    assert today["resolve"] == [f"callsheet resolve {made.config}"]
    backdate(made, 5)
    [command] = reconcile(made)["resolve"]
    assert "--not-charged" in command
    assert doubts_of(made) == 1, "nothing is applied"
    assert CliRunner().invoke(app, shlex.split(command)[1:]).exit_code == 0


def test_doubts_of_another_batch_are_listed_but_settled_with_its_own_config(project: Make) -> None:
    made = project(doubtful("b"), faults={"rules": [CUT_OFF | {"when": "after_charging"}]})
    made.run("batch=other")
    answer = reconcile(made)
    assert [(each["batch"], each["verdict"]) for each in answer["doubts"]] == [("other", "charged")]
    assert answer["resolve"] == []
    assert "of the batch other" in callsheet("reconcile", str(made.config)).stdout


@pytest.mark.parametrize("was_charged", [True, False])
def test_an_accepted_video_has_no_verdict_and_is_asked_for_with_the_right_key(
    project: Make, monkeypatch: pytest.MonkeyPatch, was_charged: bool
) -> None:
    """Whatever the accounts say, it is no doubt about money: no command settles it."""
    videos = [{"id": "v", "prompt": "a video", "model": "dailies-1", "duration": 1}]
    made = project(videos, video_seconds=3600, **STUDIO)
    other = WorkspaceSettings(balance=Decimal(100), projects={"other": ("sk_other",)})
    made.backlot.service.add_workspace("other", other)
    made.run("poll.timeout=0.2")
    monkeypatch.setenv("CALLSHEET_API_KEY", "sk_other")
    made.collect()
    monkeypatch.setenv("CALLSHEET_API_KEY", "sk_first")
    if was_charged:
        finish_videos(made.backlot.service)
    else:
        backdate(made, 5)
    answer = reconcile(made)
    assert answer["billed"] == ("0.0080" if was_charged else "0.0000")
    assert (answer["doubts"], answer["resolve"]) == ([], [])
    [one] = answer["accepted"]
    assert (one["row_id"], one["quoted"], one["generation_id"][:4]) == ("v", "0.0080", "req-")
    assert "verdict" not in one
    assert answer["unexplained"] == "0.0000"
    reason = "in doubt or in flight 0.0080" if was_charged else ""
    assert answer["days"][0]["reason"] == reason
    text = callsheet("reconcile", str(made.config)).stdout
    assert "1 video, no doubt about money: a run with the right key asks the service again" in text
    assert f"accepted as {one['generation_id']}: row v" in text
    assert "callsheet resolve" not in text


# ---- a service that cannot be asked


def costs(**changes: Any) -> dict[str, Any]:
    day = TODAY - timedelta(days=1)
    data = [{"date": (day + timedelta(days=n)).isoformat(), "cost": 0.1} for n in range(2)]
    return {"currency": "USD", "data": data, "total_cost": 0.2} | changes


@pytest.mark.parametrize(
    "body, message",
    [
        (costs(data=[]), "each day"),
        (costs(data=[{"day": "2026-01-01", "cost": 1}]), "data.0.date"),
        (costs(data=[{"date": f"{TODAY}{ESCAPE}", "cost": 1}]), "data.0.date"),
        (costs(currency="EUR"), "currency"),
        (costs(data=[{"date": TODAY.isoformat(), "cost": "much"}]), "data.0.cost"),
        ("[]", "cannot be read"),
    ],
    ids=["no days", "no date", "no day", "euro", "no number", "a text"],
)
def test_an_answer_of_another_shape_is_an_error_in_words(project: Make, body: Any, message: str) -> None:
    made = project()
    with serve(json_reply(body)) as server:
        made.set(service={"base_url": server.url})
        error = refused(made)
    assert error.exit_code == 4
    assert message in error.message
    assert "billing/costs" in error.message
    assert error.hint


def test_a_service_that_is_down_fails_or_refuses_the_key_ends_with_4(project: Make) -> None:
    made = project(rows("a"))
    made.set(service={"base_url": "http://127.0.0.1:9"})
    done = callsheet("reconcile", str(made.config), "--json")
    assert done.returncode == 4
    assert json.loads(done.stdout)["stop_reason"] == "service"
    assert "not sent" in done.stderr
    assert "Traceback" not in done.stderr
    for refusal, reason in (
        (error_reply(500, "server_error"), "service"),
        (error_reply(401, "invalid_api_key"), "key"),
    ):
        with serve(refusal) as server:
            made.set(service={"base_url": server.url})
            error = refused(made)
        assert error.exit_code == 4, reason
    assert not (made.folder / "out/report").exists()


def test_a_batch_of_another_service_is_refused(project: Make, start_backlot: Callable[..., Any]) -> None:
    made = project(rows("a"))
    made.run()
    made.set(service={"base_url": start_backlot().base_url})
    error = refused(made)
    assert (error.exit_code, "service-moved" in error.hint) == (2, True)


# ---- what a person sees


def test_a_piped_table_has_a_line_for_each_day_and_aligned_figures(project: Make) -> None:
    made = project(
        [*rows("a"), *doubtful("b")], faults={"rules": [CUT_OFF | {"when": "after_charging"}]}, **STUDIO
    )
    made.run()
    spend(made, "sk_second")
    done = callsheet("reconcile", str(made.config), COLUMNS="60")
    assert done.returncode == 3
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    head = next(line for line in lines if "UTC day" in line)
    day = next(line for line in lines if line.strip().startswith(f"{TODAY} so far"))
    total = next(line for line in lines if line.strip().startswith("total"))
    assert day.index("0.0015") < day.index("0.0430")
    for column in ("quoted", "usage", "billed", "difference"):
        end = head.index(column) + len(column)
        assert day[:end].rstrip() == day[:end], column
        assert total[:end].rstrip() == total[:end], column
    assert "unexplained 0.0400" in day
    assert "unexplained 0.0400" in total
    assert "reconcile.threshold is 0.0000" in done.stdout


def test_no_control_character_reaches_the_terminal(project: Make) -> None:
    made = project(
        doubtful(f"bad{ESCAPE}", f"row{OVERRIDE}", "[red]markup[/red]"),
        faults={"rules": [CUT_OFF | {"when": "after_charging"}]},
    )
    made.run()
    done = callsheet("reconcile", str(made.config))
    assert not unsafe(done.stdout + done.stderr)
    assert r"\x1b[2J" in done.stdout
    assert "row [red]markup[/red]" in done.stdout
