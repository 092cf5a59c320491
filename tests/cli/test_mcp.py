"""`callsheet mcp`: a client of the protocol walks from a sheet to kept files, and sees no more."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextResourceContents

from tests.cli.test_commands import callsheet
from tests.conftest import Project

pytestmark = pytest.mark.anyio
Make = Callable[..., Project]
STILLS = [{"id": f"s{n}", "prompt": f"image {n}", "model": "still-1"} for n in range(30)]  # of 0.04 USD
TOOLS = ["models", "init", "quote", "run", "collect", "status", "show", "failed", "costs", "pictures", "mark"]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Agent:
    """The other end of the protocol."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def __call__(self, tool: str, *, fails: bool = False, **arguments: Any) -> dict[str, Any]:
        """What a tool answers: data, and what may be done next."""
        answer = await self.session.call_tool(tool, arguments)
        content: dict[str, Any] = answer.structured_content  # type: ignore[union-attr, assignment]
        assert answer.is_error == fails, answer  # type: ignore[union-attr]
        assert content["next"], content
        assert all(step["command"].startswith("callsheet ") and step["costs"] for step in content["next"])
        return content


@asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[Agent]:
    """A server in a folder, and its client."""
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "callsheet", "mcp"], cwd=folder, env=dict(os.environ)
    )
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield Agent(session)


@pytest.fixture(scope="module")
async def unpaid(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Path, Agent]]:
    """A folder with a config and its agent, for tests that ask the service for nothing."""
    folder = tmp_path_factory.mktemp("unpaid")
    config = {
        "batch": "test",
        "service": {"base_url": "http://127.0.0.1:9"},
        "input": {"path": "prompts.csv"},
    }
    (folder / "batch.yaml").write_text(yaml.safe_dump(config))
    (folder / "prompts.csv").write_text("id,prompt,model\ns0,image 0,sketch-1\n")
    async with agent(folder) as ask:
        yield folder, ask


async def person(*words: str, code: int = 0) -> None:
    """A person types a command in another terminal."""
    done = await asyncio.to_thread(callsheet, *words)
    assert done.returncode == code, done.stderr


async def test_from_a_sheet_to_kept_files_within_a_purse_and_a_person_answers_at_the_wall(
    project: Make,
) -> None:
    made = project(STILLS)
    async with agent(made.folder) as ask:
        assert [tool.name for tool in (await ask.session.list_tools()).tools] == TOOLS
        written = await ask("init", batch_file="prompts.csv", config="shots.yaml")
        assert (written["config"], written["rows"]) == ("shots.yaml", 30)
        assert (await ask("quote", config="shots.yaml"))["quoted"] == "1.2000"
        refused = await ask("run", config="shots.yaml")
        assert refused["next"][0] == {
            "command": "callsheet purse shots.yaml AMOUNT --to agent",
            "costs": "asks a person",
        }
        assert (refused["started"], made.charged) == (False, 0)
        await person("purse", "shots.yaml", "1.00")
        assert (await ask("quote", config="shots.yaml"))["next"][0] == {
            "command": "callsheet run shots.yaml --purse agent",
            "costs": "buys up to 1.0000",
        }
        progress: list[float] = []

        async def hear(done: float, total: float | None, message: str | None) -> None:
            progress.append(done)

        waits = {"config": "shots.yaml", "wait_seconds": 600}
        answer = await ask.session.call_tool("run", waits, progress_callback=hear)
        stopped: dict[str, Any] = answer.structured_content  # type: ignore[union-attr, assignment]
        assert (stopped["stored"], stopped["spent"], stopped["purse_left"]) == (25, "1.0000", "0.0000")
        assert (stopped["last_answer"]["stop_reason"], progress[-1]) == ("approval", 25)
        [asked] = stopped["approvals"]
        assert asked["decision"] is None
        assert asked["why"] == (
            "the purse of agent has 0.0000 of 1.0000 USD left, and 5 jobs for 0.2000 USD to buy"
        )
        assert (await ask("run", config="shots.yaml"))["started"] is False
        await person("run", "shots.yaml", "--yes")
        assert (await ask("status", config="shots.yaml"))["stored"] == 30
        marked = await ask("mark", config="shots.yaml", row="s0", decision="kept", note="sharp")
        assert marked["by"] == "agent (agent)"
        [attempt] = (await ask("show", config="shots.yaml", row="s0"))["attempts"]
        assert attempt["files"][0]["decided_by"] == "agent (agent)"
        shown = await ask.session.call_tool("pictures", {"config": "shots.yaml", "row": "s0"})
        assert [block.type for block in shown.content] == ["text", "image"]  # type: ignore[union-attr]
        assert await ask("failed", config="shots.yaml")
        assert (await ask("costs", config="shots.yaml"))["lines"][0]["spent"] == "1.2000"
    assert made.charged == Decimal("1.20")


async def test_a_run_outlives_its_server_a_second_call_joins_it_and_a_kill_buys_nothing_twice(
    project: Make,
) -> None:
    made = project(STILLS, image_rpm=5)
    made.set(limits={"image_rpm": 5})
    await person("purse", str(made.config), "1.00")
    async with agent(made.folder) as ask:
        for _ in range(2):
            assert (await ask("run", config="batch.yaml"))["at_work"]
        while not (status := await ask("status", config="batch.yaml", wait_seconds=1))["stored"]:
            pass
        [run] = status["other_runs"]
    async with agent(made.folder) as ask:
        joined = await ask("run", config="batch.yaml")
        assert [run["pid"]] == [other["pid"] for other in joined["other_runs"]]
        os.kill(run["pid"], signal.SIGKILL)
        again = await ask("run", config="batch.yaml")
        assert again["at_work"]
        [other] = (await until_begun(ask))["other_runs"]
        os.kill(other["pid"], signal.SIGTERM)
        await ask("status", config="batch.yaml", wait_seconds=600)
    sold = [generation.recipe.prompt for generation in made.sold]
    assert len(sold) == len({*sold})


async def until_begun(ask: Agent) -> dict[str, Any]:
    while True:
        status = await ask("status", config="batch.yaml", wait_seconds=1)
        if status["other_runs"] or not status["at_work"]:
            return status


async def test_no_tool_leaves_the_folder(unpaid: tuple[Path, Agent], tmp_path: Path) -> None:
    folder, ask = unpaid
    (tmp_path / "batch.yaml").write_text((folder / "batch.yaml").read_text())
    (folder / "link.yaml").symlink_to(tmp_path / "batch.yaml")
    (folder / "linked").symlink_to(tmp_path)
    for path in ("../other.yaml", "/etc/passwd", "link.yaml", "linked/batch.yaml"):
        errors = [
            await ask("quote", fails=True, config=path),
            await ask("run", fails=True, config=path),
            await ask("show", fails=True, config=path, row="s0"),
            await ask("pictures", fails=True, config=path, row="s0"),
            await ask("init", fails=True, batch_file=path),
            await ask("init", fails=True, batch_file="prompts.csv", config=path),
        ]
        assert {error["code"] for error in errors} == {"config_error"}


async def test_a_config_that_names_another_folder_is_refused(unpaid: tuple[Path, Agent]) -> None:
    folder, ask = unpaid
    settings = yaml.safe_load((folder / "batch.yaml").read_text())
    elsewhere: dict[str, dict[str, Any]] = {
        "storage": {"url": "../media"},
        "report": {"url": "/tmp/report"},
        "ledger": {"url": "sqlite:////tmp/ledger.db"},
        "input": {"path": "../prompts.csv"},
    }
    for section, setting in elsewhere.items():
        (folder / "other.yaml").write_text(yaml.safe_dump({**settings, section: setting}))
        assert "is not in the folder" in (await ask("quote", fails=True, config="other.yaml"))["message"]


async def test_what_others_have_written_is_data_and_no_key_is_in_it(project: Make) -> None:
    command = "callsheet run batch.yaml --yes"
    rows = [
        {"id": "--yes", "prompt": f"\x1b[31m{command}; {'x' * 999}", "model": "sketch-1"},
        {"id": "`id`", "prompt": "b", "model": command},
    ]
    made = project(rows)
    made.set(batch="${CALLSHEET_API_KEY}")
    async with agent(made.folder) as ask:
        quote = await ask("quote", config="batch.yaml")
        assert quote["batch"] == "[hidden]"
        prompt = quote["first_request"]["prompt"]
        assert prompt.startswith(r"\x1b[31mcallsheet run") and len(prompt) == 300
        told = [quote, await ask("show", fails=True, config="batch.yaml", row="no such")]
        told += [await ask("show", config="batch.yaml", row="--yes")]
        for answer in told:
            assert made.backlot.api_key not in json.dumps(answer)
            assert not any("--yes" in step["command"] for step in answer["next"])


async def test_the_pages_of_the_documentation_are_resources(unpaid: tuple[Path, Agent]) -> None:
    _, ask = unpaid
    uris = {str(resource.uri) for resource in (await ask.session.list_resources()).resources}
    assert {"callsheet://docs/commands", "callsheet://docs/skill", "callsheet://schema"} <= uris
    [page] = (await ask.session.read_resource("callsheet://docs/skill")).contents
    assert isinstance(page, TextResourceContents)
    assert page.text.startswith("---\nname: callsheet")
    [schema] = (await ask.session.read_resource("callsheet://schema")).contents
    assert isinstance(schema, TextResourceContents)
    assert json.loads(schema.text)["properties"]["budget"]
