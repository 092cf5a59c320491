"""The deployments of `prefect.yaml`: for `callsheet up`, and as `python -m flows.deployments`.

Unlike `prefect deploy --all` it also makes their work pool, and the automations; leaves schedules, switches
and parameters as a person has set them in the UI; has the server refuse parameters that a flow does not have;
and makes the forms of the UI simpler.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
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
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectAlreadyExists, PrefectHTTPStatusError
from prefect.workers.process import ProcessWorker

from callsheet.cli.output import show_error
from callsheet.errors import CallsheetError, ConfigError
from flows import automations, server_errors
from tasks.service_block import CallsheetService

FILE = Path("prefect.yaml")
_NONE: dict[str, Any] = {"parameters": {}, "schedules": []}
_NOT_THERE = object()
_FILE_HAD = "x-callsheet-file-had"
"""In the schema of a deployment's parameters: what the file had when it was deployed. `prefect deploy`
takes it away."""
Named = Sequence[tuple[str, str]]
"""Deployments: the name of each, and its entrypoint. Another project may have some of the same names."""


def in_this_folder() -> tuple[Named, str]:
    """The deployments in `prefect.yaml`, and the work pool that they run in.

    Raises:
        ConfigError: there is no such file in this folder, or it has none.
    """
    try:
        content = yaml.safe_load(FILE.read_text("utf-8"))
        entrypoints = [
            (str(deployment["name"]), str(deployment["entrypoint"])) for deployment in content["deployments"]
        ]
        [pool] = {str(deployment["work_pool"]["name"]) for deployment in content["deployments"]}
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
    return entrypoints, pool


async def make_pool(name: str) -> None:
    """Makes a process pool, where there is no pool of the name."""
    template = ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=name, type="process", base_job_template=template)
    async with get_client() as client:
        with suppress(ObjectAlreadyExists):
            await client.create_work_pool(pool)


async def deploy(entrypoints: Named, environment: Mapping[str, str]) -> list[str]:
    """Makes or renews all deployments of `prefect.yaml` in the working directory, and the blocks' type.

    Schedules and parameters are set when a deployment is made. Later they stay as they are on the server, but
    for what has changed in the file since it was last deployed.

    Returns:
        What was changed on the server because the file has changed, and where the two differ, in lines.

    Raises:
        ConfigError: Prefect refuses the file, or the file has a parameter that its flow does not have.
    """
    await CallsheetService.aregister_type_and_schema()
    on_server = {
        (deployment.name, deployment.entrypoint): deployment for deployment in await _deployed(entrypoints)
    }
    content = yaml.safe_load(await asyncio.to_thread(FILE.read_text, "utf-8"))
    in_file = {
        deployment["name"]: {part: deployment.get(part) or _NONE[part] for part in _NONE}
        for deployment in content["deployments"]
    }
    changes: list[str] = []
    for deployment in content["deployments"]:
        if existing := on_server.get((str(deployment["name"]), str(deployment["entrypoint"]))):
            kept, lines = _kept(in_file[deployment["name"]], existing)
            deployment.update(kept)
            changes += [f"{deployment['name']}: {line}" for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        merged = Path(folder) / FILE
        merged.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
        prefect = (sys.executable, "-m", "prefect", "--no-prompt")
        done = await asyncio.to_thread(
            subprocess.run,
            [*prefect, "deploy", "--all", "--prefect-file", str(merged)],
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
    for deployed in await _deployed(entrypoints):
        await _set_schema(deployed, in_file[deployed.name])
    return changes


def _kept(file: Mapping[str, Any], existing: DeploymentResponse) -> tuple[dict[str, Any], list[str]]:
    """What the schedules and parameters become of a deployment on the server, and what is said of it.

    `file`: what `prefect.yaml` has of them now.
    """
    now = _on_server(existing)
    base: dict[str, Any] | None = (existing.parameter_openapi_schema or {}).get(_FILE_HAD)
    if base is None:  # made by `prefect deploy`, which keeps no record
        differ = [part for part in _NONE if _comparable(file[part]) != _comparable(now[part])]
        return now, [
            f"its {part} on the server are not those of {FILE}, and stay; `prefect deploy` would set them"
            for part in differ
        ]
    parameters, changes = dict(now["parameters"]), []
    for name in sorted({*file["parameters"], *base["parameters"]}):
        new, old = (source["parameters"].get(name, _NOT_THERE) for source in (file, base))
        if new == old:
            continue
        parameters.pop(name, None)
        if new is not _NOT_THERE:
            parameters[name] = new
        changes.append(f"parameter {name} is as {FILE} has it now: {'none' if new is _NOT_THERE else new}")
    schedules = now["schedules"]
    if file["schedules"] != base["schedules"]:
        schedules = file["schedules"]
        changes.append(f"schedules are as {FILE} has them now: {_in_words(schedules)}")
    return {"parameters": parameters, "schedules": schedules}, changes


def _on_server(deployment: DeploymentResponse) -> dict[str, Any]:
    """The parameters and schedules of a deployment, as `prefect.yaml` would say them."""
    schedules = []
    for schedule in deployment.schedules:
        timing = schedule.schedule.model_dump(mode="json", exclude_none=True)
        options = {
            "active": schedule.active,
            "parameters": schedule.parameters or None,
            "slug": schedule.slug,
        }
        schedules.append(timing | {name: value for name, value in options.items() if value is not None})
    return {"parameters": deployment.parameters or {}, "schedules": schedules}


def _comparable(part: Any) -> Any:
    """Schedules or parameters without what a file may leave out."""
    if isinstance(part, dict):
        return part
    left_out = {"day_or": True, "active": True, "timezone": "UTC", "anchor_date": None}
    return [left_out | schedule | {"anchor_date": None} for schedule in part]


def _in_words(schedules: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        f"{next((schedule[name] for name in ('cron', 'interval', 'rrule') if name in schedule), '')} "
        f"{schedule.get('timezone', 'UTC')}, switched {'on' if schedule.get('active', True) else 'off'}"
        for schedule in schedules
    ]
    return "; ".join(lines) or "none"


async def _deployed(entrypoints: Named) -> list[DeploymentResponse]:
    names = DeploymentFilterName(any_=[name for name, _ in entrypoints])
    async with get_client() as client:
        deployments = await client.read_deployments(deployment_filter=DeploymentFilter(name=names))
    return [
        deployment for deployment in deployments if (deployment.name, deployment.entrypoint) in entrypoints
    ]


def _last_words(output: str) -> str:
    """The error that Prefect has printed; after a stack trace, its last line but one."""
    lines = [line.strip(" │╭╰─╮╯") for line in output.splitlines()]
    return next((line for line in reversed(lines) if line not in ("", "An exception occurred.")), output)


async def _set_schema(deployment: DeploymentResponse, in_file: Mapping[str, Any]) -> None:
    """Has the server refuse a run with a parameter that is none: it would end as Crashed, without a word.

    And a parameter that may be left out is an empty field: the UI would ask for a choice between two types.
    One that is internal may be given, and has no field. All for Callsheet's own flows, none of which takes
    just any parameter. What the file has is kept with it, to see later what has changed there.
    """
    schema = (deployment.parameter_openapi_schema or {}) | {_FILE_HAD: in_file}
    if (deployment.entrypoint or "").startswith("flows."):
        fields = {name: _or_absent(field) for name, field in schema.get("properties", {}).items()}
        internal = {name: fields.pop(name) for name in [*fields] if fields[name].get("internal")}
        schema |= {"properties": fields, "unevaluatedProperties": False}
        schema["allOf"] = [{"properties": internal}]  # the UI draws none of these
    async with get_client() as client:
        try:
            await client.update_deployment(deployment.id, DeploymentUpdate(parameter_openapi_schema=schema))
        except PrefectHTTPStatusError as error:
            if error.response.status_code != httpx.codes.CONFLICT:
                raise
            reason = str(error.response.json()["detail"]).partition("Failure reason: ")[2]
            raise ConfigError(f"{FILE}: the parameters of {deployment.name}: {reason}") from None


def _or_absent(field: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a parameter, whose value may be absent where it might be null by default."""
    choices = [choice for choice in field.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1 or field.get("default", ...) is not None:
        return field
    attributes = {name: value for name, value in field.items() if name not in ("anyOf", "default")}
    return attributes | dict(choices[0])


async def _make() -> None:
    entrypoints, pool = in_this_folder()
    with server_errors.in_words():
        await make_pool(pool)
        changes = [*await deploy(entrypoints, os.environ), *await automations.make()]
    for line in changes:
        typer.echo(line)
    typer.echo(f"Deployments of the pool {pool}: {', '.join(name for name, _ in entrypoints)}")


if __name__ == "__main__":
    try:
        asyncio.run(_make())
    except CallsheetError as error:
        show_error(error)
        sys.exit(error.exit_code)
