"""A run of a deployment that a person must approve: on a real Prefect server and worker, by the UI's API."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.conftest import Project
from tests.servers import http
from tests.servers.prefect import PrefectServer
from tests.waiting import wait_until

ROWS = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(3)]  # 0.0015 USD each
Make = Callable[..., Project]


@pytest.fixture
def waiting(crew: PrefectServer, project: Make) -> Callable[..., tuple[Project, str]]:
    """Starts a run that must be approved; returns its project and its tag when it waits for a person."""

    def start(first: int | None = None, **budget: Any) -> tuple[Project, str]:
        made = project(ROWS)
        made.set(batch=made.folder.name, budget={"approve_above": "0.0010"} | budget)
        made.at_absolute_paths()
        crew.start("generate-batch/nightly", tag=made.folder.name, config=str(made.config), first=first)
        assert asked(crew, made.folder.name)
        return made, made.folder.name

    return start


def asked(crew: PrefectServer, tag: str, since: str = "") -> dict[str, Any]:
    """The run once it waits in another state than `since`, and the `description` that the UI shows then."""
    wait_until(lambda: is_asking(crew.run(tag), since), f"the run of {tag} does not ask", 0.3)
    run = crew.run(tag)
    keys = run["state"]["state_details"]["run_input_keyset"]
    for part in ("schema", "description"):  # the server gets one after the other
        wait_until(lambda part=part: is_ready(crew, run, keys[part]), f"the {part} does not come", 0.1)
    shown = http.get(f"{crew.api}/flow_runs/{run['id']}/input/{keys['description']}").json()
    return run | {"description": shown}


def is_asking(run: dict[str, Any], since: str) -> bool:
    assert run["state"]["type"] not in ("COMPLETED", "FAILED", "CRASHED"), run["state"]
    return run["state"]["name"] == "Suspended" and run["state"]["id"] != since


def is_ready(crew: PrefectServer, run: dict[str, Any], key: str) -> bool:
    return http.get(f"{crew.api}/flow_runs/{run['id']}/input/{key}").is_success


def answer(crew: PrefectServer, run: dict[str, Any], **fields: str) -> str:
    """Fills the fields as the UI does; returns whether the server accepts them."""
    answered = crew.post(f"flow_runs/{run['id']}/resume", {"run_input": {"name": "Ada"} | fields})
    return str(answered["status"])


def bought(made: Project) -> Decimal:
    [workspace] = made.backlot.service.workspaces.values()
    return workspace.spent


def test_a_run_waits_frees_the_worker_and_buys_up_to_the_limit_that_a_person_sets(
    crew: PrefectServer, waiting: Callable[..., tuple[Project, str]]
) -> None:
    made, tag = waiting()
    run = asked(crew, tag)
    assert "Buy 3 jobs of" in run["description"]
    assert "for 0.0045 USD" in run["description"]
    assert "| sketch-1, 0.25K |" in run["description"]
    assert answer(crew, run) == "REJECT", "there is no answer without a decision"
    assert answer(crew, run, decision="approve", limit="1e3") == "REJECT"
    assert bought(made) == 0
    assert answer(crew, run, decision="approve", limit="0.003", note="two will do") == "ACCEPT"
    ended = crew.ended(tag)
    assert (ended["state"]["type"], ended["state"]["name"]) == ("COMPLETED", "StoppedAtBudget")
    assert bought(made) == Decimal("0.0030")
    assert not [one for one in crew.ask("automations") if run["id"] in str(one["trigger"])], "none is left"
    [approval] = made.report()["approvals"]
    assert {
        "decision": "approved",
        "decided_by": "Ada",
        "place": "ui",
        "quoted": "0.0045",
        "budget_limit": "0.0030",
        "note": "two will do",
        "flow_run": run["id"],
    }.items() <= approval.items()
    assert len(approval["plan"]) == 64
    assert "approved, up to 0.0030 USD by Ada (ui)" in crew.artifacts(ended)[f"costs-{key(tag)}"]


def test_an_answer_counts_for_the_prices_that_were_shown_and_a_refusal_buys_nothing(
    crew: PrefectServer, waiting: Callable[..., tuple[Project, str]]
) -> None:
    made, tag = waiting()
    first = asked(crew, tag)
    models = made.backlot.service.models
    dearer = [
        rate.model_copy(update={"unit_price": rate.unit_price * 2}) for rate in models["sketch-1"].rates
    ]
    models["sketch-1"] = models["sketch-1"].model_copy(update={"rates": tuple(dearer)})
    assert answer(crew, first, decision="approve") == "ACCEPT"
    second = asked(crew, tag, since=first["state"]["id"])
    assert "for 0.0090 USD" in second["description"]
    assert answer(crew, second, decision="refuse", note="too dear") == "ACCEPT"
    ended = crew.ended(tag)
    assert ended["state"]["type"] == "CANCELLED"
    assert "Ada has refused the quote of 0.0090 USD: too dear" in ended["state"]["message"]
    assert bought(made) == 0
    decisions = [(one["decision"], one["quoted"]) for one in made.report()["approvals"]]
    assert decisions == [("approved", "0.0045"), ("refused", "0.0090")]


@pytest.mark.soak
def test_a_question_that_nobody_answers_ends_the_run_as_cancelled(
    crew: PrefectServer, waiting: Callable[..., tuple[Project, str]]
) -> None:
    made, tag = waiting(first=2, approve_within=10)
    assert "Buy 2 jobs of" in asked(crew, tag)["description"]
    ended = crew.ended(tag)
    assert ended["state"]["type"] == "CANCELLED"
    assert "Nobody has approved it within 0:00:10" in ended["state"]["message"]
    assert bought(made) == 0


@pytest.mark.soak
def test_a_run_that_nobody_approved_asks_again_when_it_is_retried(
    crew: PrefectServer, waiting: Callable[..., tuple[Project, str]]
) -> None:
    made, tag = waiting(approve_within=10)
    ended = crew.ended(tag)
    retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}  # as the UI's button
    crew.post(f"flow_runs/{ended['id']}/set_state", retry)
    wait_until(lambda: crew.run(tag)["state"]["type"] != "CANCELLED", "it is not retried", 0.3)
    run = asked(crew, tag)
    assert answer(crew, run, decision="approve") == "ACCEPT"
    assert crew.ended(tag)["state"]["name"] == "Complete"
    assert bought(made) == Decimal("0.0045")
    assert [one["decision"] for one in made.report()["approvals"]] == [None, "approved"]


@pytest.mark.soak
def test_a_pilot_is_bought_shown_and_the_rest_bought_after_a_yes(
    crew: PrefectServer, waiting: Callable[..., tuple[Project, str]]
) -> None:
    made, tag = waiting(approve_above=None, pilot=2)
    run = asked(crew, tag)
    assert bought(made) == Decimal("0.0030")
    assert "Buy the other 1 job of" in run["description"]
    assert run["description"].count("![s") == run["description"].count("](data:image/jpeg;base64,") == 2
    assert answer(crew, run, decision="approve") == "ACCEPT"
    ended = crew.ended(tag)
    assert (ended["state"]["name"], bought(made)) == ("Complete", Decimal("0.0045"))
    [approval] = made.report()["approvals"]
    assert (approval["question"], approval["decision"], approval["jobs"]) == ("pilot", "approved", 1)


def key(batch: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in batch.lower())
