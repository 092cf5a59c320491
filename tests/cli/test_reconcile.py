"""`reconcile`: the accounts of a range side by side, what is certain of a difference, and what is kept."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from backlot.settings import WorkspaceSettings
from tests.cli.test_commands import callsheet
from tests.cli.test_output import ESCAPE
from tests.cli.test_rows import printed, refusal
from tests.conftest import Project
from tests.servers import http
from tests.servers.backlots import finish_videos
from tests.servers.proxies import ReverseProxy
from tests.servers.s3 import Server
from tests.servers.sockets import error_reply, json_reply, serve
from tests.steps.test_odd_answers import changed

Make = Callable[..., Project]
IMAGE = {"prompt": "an image", "model": "sketch-1", "aspect_ratio": "1:1"}  # 0.0015 USD
CUT_OFF = {"endpoint": "images", "prompt": "cut off", "do": "drop"}
CHARGED = CUT_OFF | {"when": "after_charging"}
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
    answer: dict[str, Any] = json.loads(printed("reconcile", str(made.config), *words, "--json", code=code))
    return answer


# ---- the accounts, and the names of their differences


def test_another_key_of_the_project_is_in_the_costs_and_another_project_in_the_balance(
    project: Make,
) -> None:
    made = project(rows("a"), **STUDIO)
    made.run()
    spend(made, "sk_strange")
    answer = reconcile(made)
    assert (answer["days"][0]["date"], answer["days"][0]["reason"]) == (TODAY.isoformat(), "")
    assert (answer["quoted"], answer["usage"], answer["billed"]) == ("0.0015",) * 3
    assert (answer["difference"], answer["unexplained"]) == ("0.0000", "0.0000")
    assert (answer["balance"]["before"], answer["balance"]["after"]) == ("100.0000", "99.9585")
    assert (answer["balance"]["gone"], answer["balance"]["billed"]) == ("0.0415", "0.0015")
    spend(made, "sk_second")
    answer = reconcile(made, code=3)
    assert answer["days"][0]["reason"] == "unexplained 0.0400"
    assert (answer["difference"], answer["unexplained"]) == ("0.0400", "0.0400")
    assert (answer["balance"]["gone"], answer["balance"]["billed"]) == ("0.0815", "0.0415")
    assert reconcile(made, "--set", "reconcile.threshold=0.04")["unexplained"] == "0.0400"
    assert reconcile(made, "--set", "reconcile.threshold=0.0399", code=3)["is_over"]


def test_a_surcharge_and_a_cost_without_the_service_s_word_are_named_and_a_refusal_is_not_quoted(
    project: Make,
) -> None:
    dear = {"endpoint": "images", "prompt": "dear", "do": "surcharge", "amount": "0.01"}
    others = [{"id": name, **IMAGE, "prompt": name} for name in ("dear", "forbidden-test-word")]
    made = project([*others, *doubtful("a")], faults={"rules": [dear, CHARGED]})
    made.run()
    printed("resolve", str(made.config), "--all", "--charged")
    [day] = reconcile(made)["days"]
    assert (day["quoted"], day["usage"], day["billed"]) == ("0.0030", "0.0130", "0.0130")
    assert day["unexplained"] == "0.0000"
    assert day["reason"] == ("surcharge over the quote 0.0100; costs without the service's word 0.0015")


def test_other_batches_of_the_service_are_known_spending_and_another_service_s_are_not_counted(
    project: Make, start_backlot: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their doubts are listed, and settled with their own config."""
    made = project([*rows("a"), *doubtful("b")], faults={"rules": [CHARGED]})
    made.run("batch=other", "report.url=out/other")
    made.rows(*rows("a"))
    made.run()
    elsewhere = start_backlot()
    with monkeypatch.context() as other:
        other.setenv("CALLSHEET_BASE_URL", elsewhere.base_url)
        made.run("batch=strange", "report.url=out/strange", f"service.base_url={elsewhere.base_url}")
    answer = reconcile(made)
    assert (answer["usage"], answer["billed"], answer["difference"]) == ("0.0030", "0.0045", "0.0015")
    assert answer["days"][0]["other_batches"] == "0.0015"
    assert [(each["batch"], each["verdict"]) for each in answer["doubts"]] == [("other", "charged")]
    assert answer["resolve"] == []
    text = callsheet("reconcile", str(made.config)).stdout
    assert "other batches of this ledger: 0.0015" in text
    assert "of the batch other" in text


# ---- doubts: evidence is offered, never applied


def doubts_of(made: Project) -> int:
    with sqlite3.connect(made.folder / "out/ledger.db") as ledger:
        [[count]] = ledger.execute("SELECT count(*) FROM attempts WHERE state = 'in_doubt'").fetchall()
    return int(count)


def test_doubts_that_were_charged_are_listed_with_the_command_that_settles_them(project: Make) -> None:
    made = project([*rows("a"), *doubtful("b", "c")], faults={"rules": [CHARGED]})
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
    printed(*words)
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
    printed(*shlex.split(command)[1:])


def test_an_accepted_video_has_no_verdict_and_is_asked_for_with_the_right_key(
    project: Make, monkeypatch: pytest.MonkeyPatch
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
    finish_videos(made.backlot.service)
    answer = reconcile(made)
    assert answer["billed"] == "0.0080"
    assert (answer["doubts"], answer["resolve"]) == ([], [])
    [one] = answer["accepted"]
    assert (one["row_id"], one["quoted"], one["generation_id"][:4]) == ("v", "0.0080", "req-")
    assert "verdict" not in one
    assert answer["unexplained"] == "0.0000"
    assert answer["days"][0]["reason"] == "in doubt or in flight 0.0080"
    text = callsheet("reconcile", str(made.config)).stdout
    assert "1 video, no doubt about money: a run with the right key asks the service again" in text
    assert f"accepted as {one['generation_id']}: row v" in text
    assert "callsheet resolve" not in text


# ---- ranges, and what is kept of them


def kept(made: Project) -> pl.DataFrame:
    return pl.read_parquet(made.folder / "out/report/reconcile.parquet")


def test_a_range_of_any_length_leaves_out_other_days_and_its_own_are_whole(project: Make) -> None:
    made = project(rows("a"))
    made.run()
    backdate(made, 400)
    first = TODAY - timedelta(days=400)
    day, after = first.isoformat(), (first + timedelta(days=1)).isoformat()
    for words, usage, days in (
        ((), "0.0015", 401),
        (("--start", day, "--end", day), "0.0015", 1),
        (("--end", day), "0.0015", 1),
        (("--start", after), "0.0000", 400),
        (("--start", day, "--end", (TODAY + timedelta(days=9)).isoformat()), "0.0015", 401),
    ):
        answer = reconcile(made, *words)
        assert (answer["usage"], answer["billed"], answer["unexplained"]) == (usage, usage, "0.0000"), words
        assert len(answer["days"]) == days, "a day in the future is not over, nor has it begun"
    assert kept(made).height == 401
    shown = callsheet("reconcile", str(made.config)).stdout
    assert len(shown.splitlines()) < 15, "days without anything are not printed"


def test_the_balances_are_those_before_and_after_the_range(project: Make) -> None:
    made = project(rows("a"))
    made.run()
    backdate(made, 7)
    made.rows(*rows("a", "b", "c", "d"))
    made.run()
    day = (TODAY - timedelta(days=7)).isoformat()
    old = reconcile(made, "--start", day, "--end", day)["balance"]
    assert (old["before"], old["after"]) == ("100.0000", "99.9985")
    assert (old["gone"], old["usage"], old["billed"]) == ("0.0015",) * 3
    assert old["before_at"][:10] == day
    whole = reconcile(made)["balance"]
    assert (whole["before"], whole["after"], whole["usage"]) == ("100.0000", "99.9940", "0.0060")
    [workspace] = made.backlot.service.workspaces.values()
    made.backlot.service.top_up(workspace, Decimal(5))
    shown = callsheet("reconcile", str(made.config)).stdout
    assert "nothing: there are 4.9940 USD more, so money was paid in;" in shown


def test_a_wrong_range_is_an_error_before_anything_is_asked(project: Make) -> None:
    made = project()
    made.set(service={"base_url": "http://127.0.0.1:9"})
    for words, message in (
        (["--start", "yesterday"], "'yesterday' is not a date"),
        (["--end", "2026-02-30"], "'2026-02-30' is not a date"),
        (["--start", "2026-01-02", "--end", "2026-01-01"], "before it begins"),
        (["--start", "2999-01-01"], "in the future"),
        (["--start", "0206-01-01"], "more than ten years ago"),
    ):
        error = refusal("reconcile", str(made.config), *words)
        assert (message in error.message, bool(error.hint)) == (True, True), words
    assert not (made.folder / "out").exists()


def test_a_later_reconciliation_replaces_its_days_and_keeps_the_others(project: Make) -> None:
    """A file that is none of its own is not overwritten."""
    made = project(rows("a"), **STUDIO)
    made.run()
    backdate(made, 3)
    old = TODAY - timedelta(days=3)
    reconcile(made)
    first = kept(made)
    assert first["date"].to_list() == [old + timedelta(days=n) for n in range(4)]
    spend(made, "sk_second")
    reconcile(made, "--start", TODAY.isoformat(), code=3)
    reconcile(made, "--start", (old - timedelta(days=1)).isoformat(), "--end", old.isoformat())
    second = kept(made)
    assert second["date"].to_list() == [old + timedelta(days=n) for n in range(-1, 4)]
    assert second["billed"].to_list() == [Decimal(x) for x in ("0", "0.0015", "0", "0", "0.04")]
    assert second["reason"].to_list() == ["", "", "", "", "unexplained 0.0400"]
    times = second["reconciled_at"].to_list()
    assert times[2:4] == first["reconciled_at"].to_list()[1:3], "other days are left as they are"
    assert times[4] > times[3]
    money = {name for name, dtype in second.schema.items() if dtype == pl.Decimal(18, 6)}
    assert money == {"quoted", "usage", "billed", "difference", "unexplained", "other_batches"}

    file = made.folder / "out/report/reconcile.parquet"
    pl.DataFrame({"mine": [1]}).write_parquet(file)
    before = file.read_bytes()
    error = refusal("reconcile", str(made.config))
    assert "cannot be extended" in error.message
    assert "Move it away" in error.hint
    assert file.read_bytes() == before


def test_a_postgresql_ledger_and_a_report_on_s3(
    project: Make, new_database: Callable[[], str], s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    made = project([*rows("a"), *doubtful("b")], faults={"rules": [CHARGED]}, **STUDIO)
    made.set(ledger={"url": new_database()}, report={"url": f"s3://{s3.bucket}/books"})
    made.run()
    answer = reconcile(made)
    assert answer["file"] == f"s3://{s3.bucket}/books/reconcile.parquet"
    assert answer["days"][0]["reason"] == "doubts that were charged 0.0015"
    spend(made, "sk_second")
    yesterday = (TODAY - timedelta(days=1)).isoformat()
    assert reconcile(made, "--start", yesterday, code=3)["unexplained"] == "0.0400"
    found = s3.client().get_object(Bucket=s3.bucket, Key="books/reconcile.parquet")["Body"].read()
    assert pl.read_parquet(found)["billed"].to_list() == [Decimal(0), Decimal("0.0430")]


def test_a_total_of_the_service_that_is_not_the_sum_of_its_days_is_named(project: Make) -> None:
    made = project(rows("a"))
    made.run()
    with ReverseProxy(made.backlot.base_url) as gateway:
        gateway.rewrite = changed("/v2/billing/costs", lambda answer: answer.update(total_cost=0.0115))
        made.set(service={"base_url": gateway.url})
        rebound = printed("ledger", "service-moved", str(made.config))
        assert gateway.url in rebound
        answer = reconcile(made)
        assert (answer["billed"], answer["beyond"], answer["unexplained"]) == ("0.0015", "0.0100", "0.0000")
        text = " ".join(printed("reconcile", str(made.config)).split())
        assert "Total the service's own total is 0.0100 USD more than the sum of its days" in text


# ---- a service that cannot be asked


def test_an_answer_of_another_shape_is_an_error_in_words(project: Make) -> None:
    made = project()
    for body, message in (
        ({"currency": "USD", "data": [{"date": f"{TODAY}{ESCAPE}", "cost": 1}]}, "data.0.date"),
        ({"currency": "EUR", "data": []}, "currency"),
        ({"currency": "USD", "data": [{"date": TODAY.isoformat(), "cost": "much"}]}, "data.0.cost"),
    ):
        with serve(json_reply(body)) as server:
            made.set(service={"base_url": server.url})
            error = refusal("reconcile", str(made.config), code=4)
        assert error.hint
        assert message in error.message
        assert "billing/costs" in error.message


def test_a_service_that_is_down_fails_or_refuses_the_key_ends_with_4(project: Make) -> None:
    made = project(rows("a"))
    made.set(service={"base_url": "http://127.0.0.1:9"})
    done = callsheet("reconcile", str(made.config), "--json")
    assert (done.returncode, json.loads(done.stdout)["stop_reason"]) == (4, "service")
    assert "not sent" in done.stderr
    assert "Traceback" not in done.stderr
    for failure in (error_reply(500, "server_error"), error_reply(401, "invalid_api_key")):
        with serve(failure) as server:
            made.set(service={"base_url": server.url})
            refusal("reconcile", str(made.config), code=4)
    assert not (made.folder / "out/report").exists()


# ---- what a person sees
