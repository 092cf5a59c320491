"""The forms of the deployments: what the Prefect server knows of them, refuses, and passes to a run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml
from prefect import flow
from prefect.blocks.system import Secret
from prefect.client.schemas.objects import State, StateType

from callsheet.cli.init import make_project
from callsheet.errors import StorageError
from flows.deployments import _deployed, in_this_folder
from flows.generate import generate_batch
from flows.names import ends_in_a_state
from flows.quote import quote_batch
from tasks.service_block import CallsheetService
from tests.cli.test_commands import callsheet, refused
from tests.conftest import Project
from tests.servers.prefect import PrefectServer

ROWS = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(4)]
AMOUNT = "'budget.limit'. Failure reason: 'an amount in USD, for example 20.00' was expected"


def test_the_server_knows_choices_bounds_words_and_the_order_of_use(crew: PrefectServer) -> None:
    known = crew.deployment("generate-batch/by-hand")["parameter_openapi_schema"]
    other, listed = known["properties"]["config"]["anyOf"]
    assert listed["enum"] == sorted(file.as_posix() for file in Path("configs").glob("*.yaml"))
    assert "enum" not in other
    assert known["properties"]["approved"]["type"] == "boolean"
    limit = known["definitions"]["BudgetForm"]["properties"]["limit"]
    assert limit["type"] == "string", "a number would pass through a float"
    assert limit["description"] == "The most that the batch may cost, for example 20.00."
    assert "default" not in limit, "the UI would send it"
    for field in known["definitions"]["LimitsForm"]["properties"].values():
        assert (field["type"], field["minimum"]) == ("integer", 1)
    for name in ("first", "crew"):
        field = known["properties"][name]
        assert field["type"] == "integer"
        assert not {"anyOf", "default"} & field.keys(), "an empty field, not a choice between two types"
    names = sorted(known["properties"], key=lambda name: known["properties"][name]["position"])
    assert names[:4] == ["config", "budget", "first", "approved"]
    assert names[-1] == "overrides"
    assert "plan" not in names, "a crew's own"


def test_each_deployment_asks_for_what_makes_sense_there(crew: PrefectServer) -> None:
    for deployment, groups in {
        "generate-batch/nightly": {"input", "budget", "limits", "service"},
        "quote-batch/quote": {"input", "budget", "service"},
        "collect-media/collector": {"poll", "service"},
        "reconcile-costs/reconcile": {"reconcile", "service"},
    }.items():
        properties = crew.deployment(deployment)["parameter_openapi_schema"]["properties"]
        assert {"config", "overrides"} | groups <= set(properties)
        assert groups == {name for name, field in properties.items() if "$ref" in field}, deployment


@pytest.mark.parametrize(
    "wrong, named",
    [
        *(({"budget": {"limit": value}}, AMOUNT) for value in ("-1", "1,50", "", 0.1)),
        ({"budget": {"limt": "1"}}, "limt"),
        *(({"limits": {"image_rpm": value}}, "limits.image_rpm") for value in (0, "7")),
        ({"service": {"api_key": "sk_1"}}, "api_key"),
        (
            {"overrides": ["budget.limit"]},
            "'overrides[0]'. Failure reason: 'a setting and its value, for example storage.sidecar=true'",
        ),
        ({"approved": "yes"}, "approved"),
        ({"confg": "x.yaml"}, "confg"),
        ({"config": ""}, "config"),
        ({"plan": ""}, "plan"),
    ],
)
def test_the_server_refuses_wrong_values_and_names_the_field(
    crew: PrefectServer, wrong: dict[str, Any], named: str
) -> None:
    tag = uuid4().hex
    with pytest.raises(httpx.HTTPStatusError) as caught:
        crew.start("generate-batch/by-hand", tag=tag, **wrong)
    assert caught.value.response.status_code == httpx.codes.CONFLICT
    assert named in caught.value.response.json()["detail"]
    assert not crew.ask("flow_runs", flow_runs={"tags": {"all_": [tag]}})


def test_a_deployment_of_another_project_that_has_the_same_name_is_left_alone(crew: PrefectServer) -> None:
    flow = crew.post("flows/", {"name": "another"})
    other = {"name": "nightly", "flow_id": flow["id"], "entrypoint": "flows.another.work"}
    made = crew.post("deployments/", other)
    try:
        named, _ = in_this_folder()
        ours = asyncio.run(_deployed(named))
    finally:
        crew.request("DELETE", f"deployments/{made['id']}")
    assert sorted(each.entrypoint or "" for each in ours) == sorted(entrypoint for _, entrypoint in named)


@pytest.mark.soak
def test_a_parameter_in_prefect_yaml_that_its_flow_does_not_have_is_an_error(
    crew: PrefectServer, tmp_path: Path
) -> None:
    make_project(tmp_path / "project")
    tmp_path = tmp_path / "project"
    content = yaml.safe_load((tmp_path / "prefect.yaml").read_text())
    [quote] = [each for each in content["deployments"] if each["name"] == "quote"]
    wrong = quote | {"name": "wrong", "parameters": {"confg": "batch.yaml"}}
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump(content | {"deployments": [wrong]}))
    command = [sys.executable, "-m", "flows.deployments"]
    done = subprocess.run(
        command, cwd=tmp_path, env=crew.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "prefect.yaml: the parameters of wrong: Unevaluated properties" in done.stderr
    assert "'confg'" in done.stderr


async def save_block(made: Project, name: str = "tried", **values: str) -> None:
    await CallsheetService.aregister_type_and_schema()
    given = {"base_url": made.backlot.base_url, "api_key": made.backlot.api_key} | values
    await CallsheetService.model_construct(**given).asave(name, overwrite=True)  # as the UI does: unchecked


def bought(made: Project, **parameters: Any) -> State[Any]:
    """How a run of the flow in this process ends."""
    state = generate_batch(str(made.config), **parameters, return_state=True)
    return asyncio.run(state)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "parameters, message, named",
    [
        (
            {"service": {"block": "nope"}},
            "service.block: there is no CallsheetService block named 'nope'. Create it in the Prefect UI",
            ("test: failed", ["batch:test"]),
        ),
        (
            {"overrides": ["budget.wall=3"]},
            "budget.wall=3: unknown key `budget.wall`",  # in the words of the form, which has no --set
            ("batch: failed", []),  # of the batch only the name of the config's file is known
        ),
    ],
)
def test_what_the_server_cannot_check_ends_the_run_in_words(
    prefect: PrefectServer,
    project: Callable[..., Project],
    parameters: dict[str, Any],
    message: str,
    named: tuple[str, list[str]],
) -> None:
    made = project(ROWS)
    state = bought(made, **parameters)
    assert state.is_failed()
    assert str(state.message).startswith(message)
    run = prefect.get(f"flow_runs/{state.state_details.flow_run_id}")
    assert (run["name"], run["tags"]) == named
    assert made.charged == 0


def test_the_errors_of_steps_side_by_side_end_a_run_in_words(prefect: PrefectServer) -> None:
    async def fail(why: str) -> None:
        raise StorageError(why, hint="Mend it.")

    @flow
    @ends_in_a_state
    async def two_fail(config: str) -> Any:
        async with asyncio.TaskGroup() as group:
            for why in ("the bucket is gone", "the disk is full"):
                group.create_task(fail(why))

    state: Any = asyncio.run(two_fail("configs/example.yaml", return_state=True))
    assert (state.type, state.name) == (StateType.FAILED, "Failed")
    assert str(state.message).startswith("the bucket is gone")


def test_what_is_wrong_with_a_block_is_said_without_its_key(
    prefect: PrefectServer, project: Callable[..., Project]
) -> None:
    made = project(ROWS)

    async def quoted() -> list[str]:
        said = []
        for number, (values, _) in enumerate(WRONG_BLOCKS):
            await save_block(made, f"wrong-{number}", **values)
            service = {"block": f"wrong-{number}"}
            state = await quote_batch(str(made.config), service=service, return_state=True)
            assert state.is_failed()
            said.append(str(state.message))
        await Secret(value="'sk_hidden'").asave("quoting-key", overwrite=True)
        overrides = ["service.api_key_block=quoting-key"]
        state = await quote_batch(str(made.config), overrides=overrides, return_state=True)
        return [*said, str(state.message)]

    said = asyncio.run(quoted())
    expected = [message for _, message in WRONG_BLOCKS]
    expected += ["the API key in the Prefect Secret block 'quoting-key' is in quotes"]
    for message, words in zip(said, expected, strict=True):
        assert words in message
        assert "hidden" not in message


WRONG_BLOCKS = [
    (
        {"base_url": "ftp://host", "api_key": "sk_hidden"},
        "service.block: base_url of the CallsheetService block 'wrong-0' must begin with",
    ),
    ({"api_key": "'sk_hidden'"}, "the API key in the CallsheetService block 'wrong-1' is in quotes"),
    ({"api_key": "sk_hidden"}, "Check the API key in the CallsheetService block 'wrong-2'."),
]


@pytest.mark.parametrize("field", ["block", "api_key_block"])
def test_a_command_says_that_blocks_are_read_in_prefect_alone(
    project: Callable[..., Project], field: str
) -> None:
    made = project(ROWS)
    made.set(service={field: "studio"})
    refused(callsheet("quote", str(made.config)), f"service.{field} names a block of Prefect")
