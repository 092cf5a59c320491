"""Runs of deployments that a person must approve, of an inbox and of productions too: by the UI's API.

On a real Prefect server. Where a worker makes no difference, this process carries the runs out; what one does
with a run that waits and goes on is in test_suspend.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.generate import generate_batch
from flows.inbox import WATCH_INBOX, watch_inboxes
from flows.production import run_production
from flows.resolve import resolve_doubts
from tests.cli.test_rows import printed
from tests.conftest import Make, Project, images
from tests.servers import http
from tests.servers.prefect import PrefectServer
from tests.steps.test_asking import dearer
from tests.waiting import wait_until

ROWS = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(3)]  # 0.0015 USD each
Waiting = Callable[..., tuple[Project, str]]


@pytest.fixture
def waiting(crew: PrefectServer, project: Make) -> Waiting:
    """Begins a run that must be approved; returns its project and its tag when it waits for a person."""

    def begin(first: int | None = None, **budget: Any) -> tuple[Project, str]:
        made = project(ROWS)
        made.set(batch=made.folder.name, budget={"approve_above": "0.0010"} | budget)
        parameters = {"config": str(made.config), "first": first}
        run = crew.begin(generate_batch, "generate-batch/nightly", tag=made.folder.name, **parameters)
        assert run["state"]["name"] == "Suspended", run["state"]
        return made, made.folder.name

    return begin


def asked(crew: PrefectServer, tag: str) -> dict[str, Any]:
    """The run once it waits for a person, and the `description` and `schema` that the UI shows then."""
    wait_until(lambda: is_asking(crew.run(tag)), f"the run of {tag} does not ask", 1)
    run = crew.run(tag)
    keys = run["state"]["state_details"]["run_input_keyset"]
    for part in ("schema", "description"):  # the server gets one after the other
        wait_until(lambda part=part: is_ready(crew, run, keys[part]), f"the {part} does not come", 0.1)
    at = f"flow_runs/{run['id']}/input"
    return run | {part: crew.get(f"{at}/{keys[part]}") for part in ("schema", "description")}


def is_asking(run: dict[str, Any]) -> bool:
    assert run["state"]["type"] not in ("COMPLETED", "FAILED", "CRASHED"), run["state"]
    return bool(run["state"]["name"] == "Suspended")


def is_ready(crew: PrefectServer, run: dict[str, Any], key: str) -> bool:
    return http.get(f"{crew.api}/flow_runs/{run['id']}/input/{key}").is_success


def answer(crew: PrefectServer, run: dict[str, Any], **fields: str) -> str:
    """Fills the fields of what was `asked` as the UI does; returns whether the server accepts them."""
    return str(answered(crew, run, **fields)["status"])


def answered(crew: PrefectServer, run: dict[str, Any], **fields: str) -> dict[str, Any]:
    """The same with all that the server says."""
    shown = run["schema"]["properties"].items()
    filled_in = {name: field["const"] for name, field in shown if "const" in field}
    given = {"run_input": {"name": "Ada"} | filled_in | fields}
    return dict(crew.post(f"flow_runs/{run['id']}/resume", given))


def retry(crew: PrefectServer, tag: str, flow: Any = generate_batch) -> dict[str, Any]:
    """What the button Retry does, and the run when it asks again."""
    becomes(crew, tag, "SCHEDULED", "AwaitingRetry")
    crew.go_on(flow, tag)
    return asked(crew, tag)


def becomes(crew: PrefectServer, tag: str, state: str, name: str) -> None:
    """Puts a run into a state."""
    new = {"state": {"type": state, "name": name}, "force": True}
    crew.post(f"flow_runs/{crew.run(tag)['id']}/set_state", new)


def test_a_run_asks_until_somebody_approves_what_was_shown_and_buys_up_to_the_limit_that_is_set(
    crew: PrefectServer, waiting: Waiting
) -> None:
    """An answer counts for the prices that were shown, a refusal buys nothing, and Retry asks again."""
    made, tag = waiting()
    run = asked(crew, tag)
    assert "Buy 3 jobs of" in run["description"]
    assert "for 0.0045 USD" in run["description"]
    assert "| sketch-1 | 0.25K |" in run["description"]
    assert answer(crew, run) == "REJECT", "there is no answer without a decision"
    assert answer(crew, run, decision="approve", limit="1e3") == "REJECT"
    dearer(made)
    assert answer(crew, run, decision="approve") == "ACCEPT"
    crew.go_on(generate_batch, tag)
    run = asked(crew, tag)
    assert "for 0.0090 USD" in run["description"]
    assert answer(crew, run, decision="refuse", note="too dear") == "ACCEPT"
    refused = crew.go_on(generate_batch, tag)
    assert refused["state"]["type"] == "CANCELLED"
    assert "Ada has refused the quote, 3 jobs for 0.0090 USD: too dear" in refused["state"]["message"]
    assert refused["name"] == f"{tag}: refused, nothing bought; 0 of 3 stored, 0.0000 USD"
    assert made.charged == 0
    fields = {"decision": "approve", "limit": "0.006", "note": "two will do"}
    assert answer(crew, retry(crew, tag), **fields) == "ACCEPT"
    ended = crew.go_on(generate_batch, tag)
    assert (ended["state"]["type"], ended["state"]["name"]) == ("COMPLETED", "StoppedAtBudget")
    assert made.charged == Decimal("0.0060")
    assert not [one for one in crew.ask("automations") if run["id"] in str(one["trigger"])], "none is left"
    decisions = [(one["decision"], one["quoted"]) for one in made.report()["approvals"]]
    assert decisions == [("approved", "0.0045"), ("refused", "0.0090"), ("approved", "0.0090")]
    approval = made.report()["approvals"][-1]
    assert {
        "decided_by": "Ada",
        "place": "ui",
        "budget_limit": "0.0060",
        "note": "two will do",
        "flow_run": run["id"],
    }.items() <= approval.items()
    assert len(approval["plan"]) == 64
    [costs] = [text for key, text in crew.artifacts(ended).items() if key.startswith("costs-")]
    for words in (
        "approved, up to 0.0060 USD by Ada (ui)",
        "A run of the deployment nightly goes on from here",
    ):
        assert words in costs


def test_an_answer_is_kept_although_another_run_has_bought_all_meanwhile(
    crew: PrefectServer, waiting: Waiting
) -> None:
    made, tag = waiting()
    assert made.run(approved=True).stored == 3
    assert answer(crew, asked(crew, tag), decision="approve", note="at last") == "ACCEPT"
    assert crew.go_on(generate_batch, tag)["state"]["name"] == "Complete"
    assert [one["note"] for one in made.report()["approvals"] if one["place"] == "ui"] == ["at last"]


def test_a_yes_to_the_first_jobs_buys_them_and_none_of_a_batch_that_has_changed_since(
    crew: PrefectServer, waiting: Waiting
) -> None:
    made, tag = waiting(first=2)
    assert answer(crew, asked(crew, tag), decision="approve") == "ACCEPT"
    made.rows(*(row | {"prompt": f"another {row['prompt']}"} for row in ROWS))
    crew.go_on(generate_batch, tag)
    assert made.charged == 0
    assert answer(crew, asked(crew, tag), decision="approve") == "ACCEPT"
    assert crew.go_on(generate_batch, tag)["state"]["name"] == "Partial"
    assert made.charged == Decimal("0.0030")


def test_an_answer_to_another_question_is_refused_and_the_run_stays_suspended(
    crew: PrefectServer, waiting: Waiting
) -> None:
    made, tag = waiting()
    old_tab = asked(crew, tag)
    assert answer(crew, old_tab, decision="approve") == "ACCEPT"
    made.rows(*images(60))
    crew.go_on(generate_batch, tag)
    run = asked(crew, tag)
    refused = answered(crew, old_tab, decision="approve")
    assert (refused["status"], crew.now(run)["state"]["name"]) == ("REJECT", "Suspended")
    name = run["schema"]["properties"]["question"]["const"]
    assert name.startswith("60 jobs, 0.0900 USD, question ")
    assert f"'question'. Failure reason: '{name}' was expected" in refused["details"]["reason"]
    without = {"run_input": {"name": "Ada", "decision": "approve"}}
    assert crew.post(f"flow_runs/{run['id']}/resume", without)["status"] == "REJECT"

    # As where a server has not looked.
    key = run["state"]["state_details"]["run_input_keyset"]["response"]
    response = {"key": key, "value": json.dumps(without["run_input"])}
    crew.request("POST", f"flow_runs/{run['id']}/input", response)
    run = retry(crew, tag)
    assert made.charged == 0
    assert answer(crew, run, decision="approve") == "ACCEPT"
    assert crew.go_on(generate_batch, tag)["state"]["name"] == "Complete"
    assert len(made.sold) == 60


@pytest.mark.soak
def test_a_question_that_nobody_answers_cancels_the_run_and_retrying_it_asks_again(
    crew: PrefectServer, waiting: Waiting
) -> None:
    made, tag = waiting(first=2, approve_within=10)
    ended = crew.ended(tag)
    assert (ended["state"]["type"], ended["state"]["name"]) == ("CANCELLED", "Expired")
    said = f"Nobody has approved it within 10 s; nothing of {tag} was bought."
    assert ended["state"]["message"] == said
    assert made.charged == 0
    run = retry(crew, tag)
    assert "Buy 2 jobs of" in run["description"]
    assert answer(crew, run, decision="approve") == "ACCEPT"
    assert crew.go_on(generate_batch, tag)["state"]["name"] == "Partial"
    assert made.charged == Decimal("0.0030")
    assert [one["decision"] for one in made.report()["approvals"]] == [None, "approved"]


@pytest.mark.soak
def test_a_pilot_is_bought_shown_and_the_rest_bought_after_a_yes(crew: PrefectServer, project: Make) -> None:
    made = project(ROWS)
    tag = made.folder.name
    made.set(batch=tag, budget={"pilot": 2})
    made.at_absolute_paths()
    crew.start("generate-batch/nightly", tag=tag, config=str(made.config))
    run = asked(crew, tag)
    assert made.charged == Decimal("0.0030")
    assert "Buy the other 1 job of" in run["description"]
    assert run["description"].count("![s") == run["description"].count("](data:image/jpeg;base64,") == 2
    [pilot] = [shown for key, shown in crew.artifacts(run).items() if key.startswith("pilot-")]
    assert pilot.count("](data:image/jpeg;base64,") == 2
    cards = [one["description"] for one in crew.ask("artifacts", flow_runs={"id": {"any_": [run["id"]]}})]
    assert any(card.startswith("2 jobs: pilot of") for card in cards)
    assert pilot.count("[Look at ") == run["description"].count("[Look at ") == 1
    assert answer(crew, run, decision="approve") == "ACCEPT"
    ended = crew.ended(tag)
    assert (ended["state"]["name"], made.charged) == ("Complete", Decimal("0.0045"))
    [approval] = made.report()["approvals"]
    assert (approval["question"], approval["decision"], approval["jobs"]) == ("pilot", "approved", 1)


def test_what_a_run_left_in_doubt_before_it_was_suspended_is_its_own_when_it_goes_on(
    crew: PrefectServer, project: Make
) -> None:
    """It is red for it, as if it had never waited; a later run is not."""
    cut_off = {"endpoint": "images", "prompt": "image 0", "do": "drop", "when": "after_charging"}
    made = project(ROWS, faults={"rules": [cut_off]})
    tag = made.folder.name
    made.set(batch=tag, budget={"pilot": 2})
    parameters = {"config": str(made.config)}
    run = crew.begin(generate_batch, "generate-batch/nightly", tag=tag, **parameters)
    assert run["state"]["name"] == "Suspended", run["state"]
    [unless] = [one["actions"] for one in crew.ask("automations") if run["id"] in str(one["trigger"])]
    assert unless[0]["message"] == (
        "Nobody has approved it within 1 day; nothing more was bought. "
        f"Of {tag} so far: 1 job bought, 0.0015 USD spent, at most 0.0015 USD in doubt."
    )
    assert answer(crew, asked(crew, tag), decision="approve") == "ACCEPT"
    ended = crew.go_on(generate_batch, tag)
    assert (ended["state"]["type"], ended["state"]["name"]) == ("FAILED", "InDoubt"), ended["state"]
    assert "3 jobs: 2 stored, 1 in doubt" in ended["state"]["message"]
    later = crew.begin(generate_batch, "generate-batch/nightly", tag=f"{tag}-later", **parameters)
    assert (later["state"]["type"], later["state"]["name"]) == ("COMPLETED", "Partial"), later["state"]


# ---- an inbox


def put(inbox: Path, name: str, *prompts: str) -> None:
    """Writes a batch file, a minute ago."""
    file = inbox / name
    file.write_text("\n".join(["prompt", *prompts]))
    os.utime(file, (time.time() - 60,) * 2)


async def looked(until: Callable[[list[str]], bool]) -> list[str]:
    """Looks as `callsheet up --inbox` does, but more often, until that is so; returns what it has said."""
    said: list[str] = []
    looking = asyncio.create_task(watch_inboxes([("inbox", WATCH_INBOX)], said.append, every=0.1))
    await asyncio.to_thread(wait_until, lambda: looking.done() or until(said), "nothing comes of it", 0.3)
    assert looking.cancel(), "it never ends by itself"
    return said


def test_a_file_is_quoted_at_once_bought_when_approved_moved_when_done_and_never_bought_twice(
    crew: PrefectServer, project: Make
) -> None:
    """By looks that are no runs, with what the parameters of the deployment `inbox` are meanwhile."""
    made = project()
    name = made.folder.name
    made.set(batch=name, input={"defaults": {"model": "sketch-1"}})
    made.at_absolute_paths()
    made.set(report={"url": str(made.folder / "out/{batch}")})
    inbox = made.folder / "inbox"
    deployment = crew.deployment("watch-inbox/inbox")
    runs_of_looks = {"deployments": {"id": {"any_": [deployment["id"]]}}}

    def set_to(parameters: dict[str, Any]) -> None:
        crew.request("PATCH", f"deployments/{deployment['id']}", {"parameters": parameters})

    set_to({"config": str(made.config), "inbox": str(inbox)})
    try:
        wrong = asyncio.run(looked(bool))
        assert wrong == [f"The deployment inbox: {inbox}: there is no such folder. mkdir -p {inbox}"]
        inbox.mkdir()
        put(inbox, "shots.csv", "one", "two")
        batch = f"{name}-shots.csv"
        of_batch = {"tags": {"all_": [f"batch:{batch}"]}}
        assert asyncio.run(looked(lambda _: bool(crew.ask("flow_runs", flow_runs=of_batch)))) == []
        question = asked(crew, f"batch:{batch}")  # which finds one run: the later looks have started none
        assert question["name"] == f"{batch}: 2 jobs, 0.0030 USD"
        assert "**Buy 2 jobs of" in question["description"]
        assert made.charged == 0
        assert answer(crew, question, decision="approve") == "ACCEPT"
        wait_until(lambda: not list(inbox.glob("*.csv")), "the file is not moved", 0.3)
        assert made.charged == Decimal("0.0030")
        [moved] = (inbox / "done").iterdir()
        assert moved.name.endswith("-shots.csv")
        assert json.loads((made.folder / "out" / batch / "report.json").read_text())["stored"] == 2
        put(inbox, "shots.csv", "one", "two")
        asyncio.run(looked(lambda _: not list(inbox.glob("*.csv"))))
        assert made.charged == Decimal("0.0030"), "nothing is bought or asked twice"
        put(inbox, "odd.csv")
        [said] = asyncio.run(looked(bool))
        assert f"The deployment inbox: {inbox}/odd.csv stays: its run {name}-odd.csv" in said
        assert "no other begins by itself. Retry that run, or write the file anew" in said
        assert crew.ask("flow_runs", **runs_of_looks) == []
    finally:
        set_to(deployment["parameters"])
    crew.start("watch-inbox/inbox", tag=f"{name}-by-hand", config=str(made.config), inbox=str(inbox))
    message = crew.ended(f"{name}-by-hand")["state"]["message"]
    assert message.startswith(f"1 file in {inbox}; {inbox}/odd.csv stays: its run"), message


def test_doubts_are_settled_in_the_ui_row_by_row_as_what_is_gone_proposes(
    crew: PrefectServer, project: Make
) -> None:
    """And only those that were shown, with an answer."""
    rows = [
        {"id": "one", "prompt": "not charged", "model": "sketch-1"},
        {"id": "two", "prompt": "charged", "model": "still-1"},
        {"id": "three", "prompt": "not charged", "model": "sketch-1"},
    ]
    drop = {"endpoint": "images", "do": "drop"}
    faults = [
        drop | {"prompt": "not charged", "when": "before_charging"},
        drop | {"prompt": "charged", "when": "after_charging"},
    ]
    made = project(rows, faults={"rules": faults})
    made.set(batch=made.folder.name)
    assert made.run().in_doubt == 3
    tag = f"{made.folder.name}-doubts"
    crew.begin(resolve_doubts, "resolve-doubts/resolve", tag=tag, config=str(made.config))
    run = asked(crew, tag)
    for words in ("**3 jobs of", "row two: 0.0400 USD. It seems to have been charged"):
        assert words in run["description"]
    fields = run["schema"]["properties"]
    proposed = {each["title"]: each["default"] for name, each in fields.items() if name.startswith("job_")}
    assert proposed == {"Row one": "not charged", "Row two": "charged", "Row three": "not charged"}
    assert "still-1, 0.0400 USD, sent 2" in str(fields)
    assert made.collect().in_doubt == 3, "nothing is settled without an answer"
    each = {name: field["default"] for name, field in fields.items() if name.startswith("job_")}
    [third] = [name for name, field in fields.items() if field["title"] == "Row three"]
    given = each | {third: "leave in doubt", "why": "it is on the account"}
    assert answer(crew, run, **given, question="another") == "REJECT"
    assert answer(crew, run, **given) == "ACCEPT"
    ended = crew.go_on(resolve_doubts, tag)
    said = "1 settled as charged, 1 settled as not charged, 1 left in doubt, by Ada"
    assert ended["state"]["message"].endswith(said)
    assert ended["name"] == f"{made.folder.name}: {said}"
    summary = made.collect()
    assert (summary.in_doubt, summary.lost, summary.failed) == (1, 1, 1)


# ---- a production: batches in their order; between two the run waits until a person has looked at the files


FILM = {"id": "f", "prompt": "a film", "model": "dailies-1", "duration": 1}


@dataclass
class Production:
    """Two batches in a folder, one after the other, and the runs that buy them."""

    crew: PrefectServer
    made: Project
    configs: list[str]

    def begin(self, tag: str = "", **parameters: Any) -> dict[str, Any]:
        given = {"tag": self.made.folder.name + tag, "configs": self.configs, **parameters}
        return self.crew.begin(run_production, "run-production/production", **given)

    def answered(self, decision: str = "approve", tag: str = "") -> dict[str, Any]:
        """The run when it has gone on with a person's answer."""
        run = asked(self.crew, self.made.folder.name + tag)
        assert answer(self.crew, run, decision=decision, name="ada", question="another") == "REJECT"
        assert answer(self.crew, run, decision=decision, name="ada") == "ACCEPT"
        return self.crew.go_on(run_production, self.made.folder.name + tag)

    def films_are_made_of_kept_stills(self) -> None:
        stills, films = self.configs
        config: dict[str, Any] = yaml.safe_load(Path(films).read_text())
        config["input"] = {"kept": stills, "defaults": {"model": "dailies-1", "duration": 1}}
        Path(films).write_text(yaml.safe_dump(config))

    def shown(self) -> str:
        return str(asked(self.crew, self.made.folder.name)["description"]).replace("\\", "")

    @property
    def stored(self) -> list[int]:
        """How many jobs of each batch are stored."""
        return [int(yaml.safe_load(printed("status", each, "--json"))["stored"]) for each in self.configs]


def another(made: Project, name: str, rows: str) -> str:
    """The config of a batch beside that of the project."""
    (made.folder / f"{name}.csv").write_text(rows)
    config: dict[str, Any] = yaml.safe_load(made.config.read_text())
    config |= {"batch": f"{made.folder.name}-{name}"}
    config["input"]["path"] = str(made.folder / f"{name}.csv")
    config["report"]["url"] = str(made.folder / f"out/{name}/report")
    (made.folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    return str(made.folder / f"{name}.yaml")


@pytest.fixture
def production(crew: PrefectServer, project: Make) -> Production:
    """Two stills, and then a film."""
    made = project(images(2))
    made.set(batch=f"{made.folder.name}-stills")
    made.at_absolute_paths()
    film = another(made, "films", "id,prompt,model,duration\nf,a film,dailies-1,1\n")
    return Production(crew, made, [str(made.config), film])


def test_a_production_waits_between_two_batches_and_goes_on_with_the_answer(production: Production) -> None:
    made = production.made
    run = production.begin()
    assert (run["state"]["name"], production.stored) == ("Suspended", [2, 0]), run["state"]
    shown, tag = production.shown(), made.folder.name
    assert f"Buy 1 job of {tag}-films for 0.0080 USD?" in shown
    assert f"{tag}-stills is bought: 0 files kept, 0 rejected, 2 to review" in shown
    assert shown.count("data:image/jpeg") == 2, "what the first batch has made"

    printed("review", production.configs[0], "--keep", "s0")
    run = production.answered()
    assert (run["state"]["name"], production.stored) == ("Complete", [2, 1]), run["state"]
    assert len(made.sold) == 3, "nothing was bought twice"


def test_the_dialog_of_a_production_names_what_is_made_from_an_old_file(production: Production) -> None:
    made = production.made
    cast = another(made, "cast", "id,prompt,model,samples\nnova,Nova,still-1,2\n")
    printed("run", cast, "--quiet")
    printed("review", cast, "--keep", "nova/1")
    made.rows({"id": "s0", "prompt": "on a pier", "model": "still-1", "reference_image": f"{cast}#nova"})
    printed("run", production.configs[0], "--quiet")
    printed("review", production.configs[0], "--keep", "s0")
    production.films_are_made_of_kept_stills()
    printed("run", production.configs[1], "--quiet")
    printed("review", cast, "--reject", "nova/1", "--keep", "nova/2")
    printed("review", production.configs[0], "--clear", "s0")
    assert production.begin()["state"]["name"] == "Suspended"
    shown, tag = production.shown(), made.folder.name
    assert "1 file is made from what is not kept any more, or was replaced: s0/1" in shown
    assert f"{tag}-films has no price" in shown


def test_a_refused_production_ends_as_a_batch_does(production: Production) -> None:
    production.begin()
    run = production.answered("refuse")
    assert (run["state"]["type"], production.stored) == ("CANCELLED", [2, 0])
    assert "ada has refused" in run["state"]["message"]


def test_with_a_yes_given_before_nobody_is_asked_and_all_is_bought(production: Production) -> None:
    run = production.begin(approved=True)
    assert (run["state"]["name"], production.stored) == ("Complete", [2, 1]), run["state"]
    assert production.begin("-2")["state"]["name"] == "Suspended", "two files are to review"
    printed("review", production.configs[0], "--keep", "s0", "--reject", "s1")
    assert production.begin("-3")["state"]["name"] == "Complete", "nothing is to look at, and nothing to buy"


def test_a_batch_that_is_not_complete_ends_the_production(production: Production) -> None:
    production.made.set(budget={"limit": "0.0020"})
    assert (production.begin()["state"]["name"], production.stored) == ("StoppedAtBudget", [1, 0])


def test_where_nothing_is_kept_yet_the_run_waits_and_then_asks_about_what_is_kept(
    production: Production,
) -> None:
    [stills, _] = production.configs
    production.films_are_made_of_kept_stills()
    run = production.begin()
    assert run["state"]["name"] == "Suspended", run["state"]
    shown = production.shown()
    assert f"Nothing is kept yet, so {production.made.folder.name}-films has no price" in shown
    assert shown.count("data:image/jpeg") == 2

    printed("review", stills, "--keep", "s0")
    run = production.answered()
    assert (run["state"]["name"], production.stored) == ("Suspended", [2, 0]), "no price was shown before"
    assert f"Buy 1 job of {production.made.folder.name}-films" in production.shown()
    run = production.answered()
    assert (run["state"]["name"], production.stored) == ("Complete", [2, 1]), run["state"]

    run = production.begin("-2")
    assert run["state"]["name"] == "Suspended", "a file is still to review"
    printed("review", stills, "--keep", "s1")
    run = production.answered(tag="-2")
    assert run["state"]["name"] == "Suspended", "it is another film than none"
    run = production.answered(tag="-2")
    assert (run["state"]["name"], production.stored) == ("Complete", [2, 2])


def test_a_production_finishes_what_another_run_has_left_before_anybody_is_asked(
    crew: PrefectServer, project: Make
) -> None:
    made = project([FILM], video_seconds=1)
    made.set(batch=f"{made.folder.name}-films")
    made.at_absolute_paths()
    stills = another(made, "stills", "id,prompt,model\ns,a still,sketch-1\n")
    assert made.run("poll.timeout=0.01").pending == 1
    production = Production(crew, made, [stills, str(made.config)])
    assert production.begin()["state"]["name"] == "Complete", "though a still is to review"
    assert production.stored == [1, 1]


@pytest.mark.parametrize("answer", ["refuse", "silence"])
def test_after_a_no_or_silence_a_retry_asks_again_and_buys_nothing(
    production: Production, answer: str
) -> None:
    production.begin(f"-{answer}")
    tag = f"{production.made.folder.name}-{answer}"
    if answer == "refuse":
        production.answered(answer, tag=f"-{answer}")
    else:
        becomes(production.crew, tag, "CANCELLED", "Expired")  # as the server does after a day
    assert "Buy 1 job of" in retry(production.crew, tag, run_production)["description"]
    assert production.stored == [2, 0]


def test_a_refusal_buys_nothing_of_an_earlier_batch_either(production: Production) -> None:
    production.made.set(review={"buy_again": True})
    production.begin()
    printed("review", production.configs[0], "--reject", "s0", "--reject", "s1")
    assert production.answered("refuse")["state"]["type"] == "CANCELLED"
    assert len(production.made.sold) == 2


def test_a_yes_buys_nothing_for_what_was_kept_after_the_question(production: Production) -> None:
    [stills, _] = production.configs
    production.films_are_made_of_kept_stills()
    production.made.run()
    printed("review", stills, "--keep", "s0")
    production.begin()
    assert "Buy 1 job of" in production.shown()
    printed("review", stills, "--keep", "s1")
    assert production.answered()["state"]["name"] == "Suspended"
    assert "Buy 2 jobs of" in production.shown()
    assert production.stored == [2, 0]
