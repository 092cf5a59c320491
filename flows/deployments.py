"""The deployments of `prefect.yaml`: for `callsheet up`, and as `python -m flows.deployments`.

Unlike `prefect deploy --all` it also makes their work pool, leaves every schedule switched as it is, has the
server refuse parameters that a flow does not have, and makes the forms of the UI simpler.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import httpx
import yaml
from prefect import get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectAlreadyExists, PrefectHTTPStatusError
from prefect.workers.process import ProcessWorker

from callsheet.errors import CallsheetError, ConfigError
from flows.children import ending, start
from tasks import service_block

FILE = Path("prefect.yaml")
LOG = "deploy.log"


def in_this_folder() -> tuple[list[str], str]:
    """The names of the deployments in `prefect.yaml`, and the work pool that they run in.

    Raises:
        ConfigError: there is no such file in this folder, or it has none.
    """
    try:
        content = yaml.safe_load(FILE.read_text("utf-8"))
        names = [str(each["name"]) for each in content["deployments"]]
        pools = {str(each["work_pool"]["name"]) for each in content["deployments"]}
    except FileNotFoundError:
        raise ConfigError(
            f"there is no {FILE} in this folder, so there is nothing to run from the UI",
            hint="Go to the folder of your project, or make one: callsheet init --project FOLDER",
        ) from None
    except OSError as error:
        raise ConfigError(f"{FILE}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{FILE}: {error}") from None
    except (KeyError, TypeError):
        pools = set()
    if len(pools) != 1:
        raise ConfigError(
            f"{FILE}: there is no list of `deployments`, each with a `name` and all in one `work_pool`"
        )
    return names, pools.pop()


async def make_pool(name: str) -> None:
    """Makes a process pool, where there is no pool of the name."""
    async with get_client() as client:
        template = ProcessWorker.get_default_base_job_template()
        with suppress(ObjectAlreadyExists):
            await client.create_work_pool(
                WorkPoolCreate(name=name, type="process", base_job_template=template)
            )


async def deploy(names: Sequence[str], environment: Mapping[str, str], folder: Path) -> list[str]:
    """Makes or renews all deployments of `prefect.yaml` in the working directory, and the blocks' type.

    A schedule that a person has switched on or off stays so; Prefect would set it as the file has it.

    Returns:
        What a person should know: schedules that were switched on and are not in the file any more.

    Raises:
        ConfigError: Prefect refuses the file, or the file has a parameter that its flow does not have.
    """
    log = folder / LOG
    await service_block.register()
    before = await _deployed(names)
    command = ["prefect", "--no-prompt", "deploy", "--all"]
    process = await start(command, {**environment, "PWD": str(Path.cwd())}, log)  # for prefect.yaml
    async with ending(process):
        if await process.wait():
            raise ConfigError(f"prefect.yaml: {_last_words(log)}", hint=f"All that Prefect says is in {log}")
    after = await _deployed(names)
    await _set_schemas(after.values())
    return await _switch(before, after)


async def _set_schemas(deployments: Iterable[DeploymentResponse]) -> None:
    """Has the server refuse a run with a parameter that is none: it would end as Crashed, without a word.

    And a parameter that may be left out is an empty field: the UI would ask for a choice between two types.
    Both for Callsheet's own flows, none of which takes just any parameter.
    """
    async with get_client() as client:
        for each in deployments:
            if not (each.entrypoint or "").startswith("flows."):
                continue
            schema = each.parameter_openapi_schema or {}
            fields = {name: _or_absent(field) for name, field in schema.get("properties", {}).items()}
            schema = schema | {"properties": fields, "additionalProperties": False}
            try:
                await client.update_deployment(each.id, DeploymentUpdate(parameter_openapi_schema=schema))
            except PrefectHTTPStatusError as error:
                if error.response.status_code != httpx.codes.CONFLICT:
                    raise
                said = str(error.response.json()["detail"]).partition("Failure reason: ")[2]
                raise ConfigError(f"{FILE}: the parameters of {each.name}: {said}") from None


def _or_absent(field: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a parameter, whose value may be absent where it might be null by default."""
    choices = [choice for choice in field.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1 or field.get("default", ...) is not None:
        return field
    rest = {name: value for name, value in field.items() if name not in ("anyOf", "default")}
    return rest | dict(choices[0])


async def _deployed(names: Sequence[str]) -> dict[UUID, DeploymentResponse]:
    named = DeploymentFilter(name=DeploymentFilterName(any_=list(names)))
    async with get_client() as client:
        return {each.id: each for each in await client.read_deployments(deployment_filter=named)}


async def _switch(
    before: Mapping[UUID, DeploymentResponse], after: Mapping[UUID, DeploymentResponse]
) -> list[str]:
    """Switches schedules as they were before; returns a line for each that was on, and is gone."""
    gone = []
    async with get_client() as client:
        for key, deployment in before.items():
            now = {_when(each): each for each in after[key].schedules} if key in after else {}
            for schedule in deployment.schedules:
                same = now.get(_when(schedule))
                if same is None and schedule.active:
                    gone.append(f"a schedule of {deployment.name} was on, and is gone: not in prefect.yaml")
                elif same is not None and same.active != schedule.active:
                    await client.update_deployment_schedule(key, same.id, schedule.active)
    return gone


def _when(schedule: DeploymentSchedule) -> str:
    return schedule.schedule.model_dump_json(exclude={"anchor_date"})  # of an interval: when it was deployed


def _last_words(log: Path) -> str:
    """The error that Prefect has printed; after a stack trace, its last line but one."""
    lines = [line.strip(" │╭╰─╮╯") for line in log.read_text(errors="replace").splitlines()]
    said = [line for line in lines if line and line != "An exception occurred."]
    return said[-1] if said else "it cannot be deployed"


def main() -> int:
    """Makes the work pool and the deployments of this folder on the configured server."""

    async def make() -> None:
        names, pool = in_this_folder()
        await make_pool(pool)
        with TemporaryDirectory() as folder:
            lost = await deploy(names, os.environ, Path(folder))
        print(f"Deployments of the pool {pool}: {', '.join(names)}", *lost, sep="\n")  # noqa: T201 - a program

    try:
        asyncio.run(make())
    except CallsheetError as error:
        print(f"error: {error}\n  {error.hint}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
