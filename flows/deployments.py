"""The deployments of `prefect.yaml`: for `callsheet up`, and as `python -m flows.deployments`.

Unlike `prefect deploy --all` it also makes their work pool, leaves every schedule switched as it is, has the
server refuse parameters that a flow does not have, and makes the forms of the UI simpler.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import typer
import yaml
from prefect import get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectAlreadyExists, PrefectHTTPStatusError
from prefect.workers.process import ProcessWorker

from callsheet.cli.show import show_error
from callsheet.errors import CallsheetError, ConfigError
from flows import server_errors
from tasks.service_block import CallsheetService

FILE = Path("prefect.yaml")
Named = Sequence[tuple[str, str]]
"""Deployments: the name of each, and its entrypoint. Another project may have some of the same names."""


def in_this_folder() -> tuple[Named, str]:
    """The deployments in `prefect.yaml`, and the work pool that they run in.

    Raises:
        ConfigError: there is no such file in this folder, or it has none.
    """
    try:
        content = yaml.safe_load(FILE.read_text("utf-8"))
        named = [(str(each["name"]), str(each["entrypoint"])) for each in content["deployments"]]
        [pool] = {str(each["work_pool"]["name"]) for each in content["deployments"]}
    except OSError as error:
        raise ConfigError(
            f"{FILE}: cannot be read: {error.strerror}",
            hint="Go to the folder of your project, or make one: callsheet init --project FOLDER",
        ) from None
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{FILE}: there is no list of `deployments`, each with `name` and `entrypoint`, and all in one "
            "`work_pool`",
            hint=str(error),
        ) from None
    return named, pool


async def make_pool(name: str) -> None:
    """Makes a process pool, where there is no pool of the name."""
    template = ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=name, type="process", base_job_template=template)
    async with get_client() as client:
        with suppress(ObjectAlreadyExists):
            await client.create_work_pool(pool)


async def deploy(named: Named, environment: Mapping[str, str]) -> None:
    """Makes or renews all deployments of `prefect.yaml` in the working directory, and the blocks' type.

    A schedule that a person has switched on or off stays so; Prefect would set it as the file has it.

    Raises:
        ConfigError: Prefect refuses the file, or the file has a parameter that its flow does not have.
    """
    await CallsheetService.aregister_type_and_schema()
    before = {each.id: each for each in await _deployed(named)}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
        env={**environment, "PWD": str(Path.cwd()), "COLUMNS": "200"},  # PWD for prefect.yaml
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigError(
            f"{FILE}: {_last_words(done.stdout)}", hint="prefect --no-prompt deploy --all says more."
        )
    for each in await _deployed(named):
        await _set_schema(each)
        if each.id in before:
            await _switch(before[each.id], each)


async def _deployed(named: Named) -> list[DeploymentResponse]:
    names = DeploymentFilterName(any_=[name for name, _ in named])
    async with get_client() as client:
        found = await client.read_deployments(deployment_filter=DeploymentFilter(name=names))
    return [each for each in found if (each.name, each.entrypoint) in named]


def _last_words(said: str) -> str:
    """The error that Prefect has printed; after a stack trace, its last line but one."""
    lines = [line.strip(" │╭╰─╮╯") for line in said.splitlines()]
    return next((line for line in reversed(lines) if line not in ("", "An exception occurred.")), said)


async def _set_schema(deployment: DeploymentResponse) -> None:
    """Has the server refuse a run with a parameter that is none: it would end as Crashed, without a word.

    And a parameter that may be left out is an empty field: the UI would ask for a choice between two types.
    One that is internal may be given, and has no field. All for Callsheet's own flows, none of which takes
    just any parameter.
    """
    if not (deployment.entrypoint or "").startswith("flows."):
        return
    schema = deployment.parameter_openapi_schema or {}
    fields = {name: _or_absent(field) for name, field in schema.get("properties", {}).items()}
    internal = {name: fields.pop(name) for name in [*fields] if fields[name].get("internal")}
    schema = schema | {"properties": fields, "unevaluatedProperties": False}
    schema["allOf"] = [{"properties": internal}]  # the UI draws none of these
    async with get_client() as client:
        try:
            await client.update_deployment(deployment.id, DeploymentUpdate(parameter_openapi_schema=schema))
        except PrefectHTTPStatusError as error:
            if error.response.status_code != httpx.codes.CONFLICT:
                raise
            said = str(error.response.json()["detail"]).partition("Failure reason: ")[2]
            raise ConfigError(f"{FILE}: the parameters of {deployment.name}: {said}") from None


def _or_absent(field: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a parameter, whose value may be absent where it might be null by default."""
    choices = [choice for choice in field.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1 or field.get("default", ...) is not None:
        return field
    rest = {name: value for name, value in field.items() if name not in ("anyOf", "default")}
    return rest | dict(choices[0])


async def _switch(before: DeploymentResponse, now: DeploymentResponse) -> None:
    """Switches the schedules of a deployment as they were before."""
    was = {_when(each): each.active for each in before.schedules}
    async with get_client() as client:
        for each in now.schedules:
            if each.active != (active := was.get(_when(each), each.active)):
                await client.update_deployment_schedule(now.id, each.id, active)


def _when(schedule: DeploymentSchedule) -> str:
    return schedule.schedule.model_dump_json(exclude={"anchor_date"})  # of an interval: when it was deployed


async def _make() -> None:
    named, pool = in_this_folder()
    with server_errors.in_words():
        await make_pool(pool)
        await deploy(named, os.environ)
    typer.echo(f"Deployments of the pool {pool}: {', '.join(name for name, _ in named)}")


if __name__ == "__main__":
    try:
        asyncio.run(_make())
    except CallsheetError as error:
        show_error(error)
        sys.exit(error.exit_code)
