"""The tools of an agent (`callsheet mcp`): each is a command with `--json`, in a process of its own.

Nothing about money is decided here: an agent buys by a purse, and the gate says how far. It sees the folder
in which the server was started. What an answer holds is data: text is cut, and what is secret is left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from decimal import Decimal
from functools import wraps
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal

from fastmcp import Context, FastMCP
from fastmcp.resources import FileResource, TextResource
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image

from callsheet.batches.formats import is_glob
from callsheet.cli.output import SKILL, docs_folder, open_ledger
from callsheet.config.load import load, load_without_service
from callsheet.config.schema import schema_text
from callsheet.config.settings import BatchSettings
from callsheet.errors import CallsheetError, ConfigError, code_of
from callsheet.ledger import purses, queries
from callsheet.ledger.databases import file_of
from callsheet.ledger.marks import MediaDecision
from callsheet.ledger.purses import Purse
from callsheet.plain_text import cut, printable
from callsheet.present.allowances import of_purse
from callsheet.present.what_next import ASKS, Next, after, buys_up_to, command
from callsheet.processes import APART
from callsheet.records import OPEN, State, as_json
from callsheet.report.contact_sheet.thumbnails import Decoder
from callsheet.report.summary import read_status
from callsheet.reviewing.written_marks import LONGEST_NOTE, Said, enter_marks

# Not as `python -m` alone does: no module is imported from the folder that an agent may write.
_CALLSHEET = (sys.executable, "-P", "-m", "callsheet")
_LONGEST = 300  # characters of a text
_MOST = 50  # entries of a list
_LOOK = 1.0  # seconds between two looks at a run
_LONGEST_WAIT = 600
_PICTURES = 8
_LINK = re.compile(r"https?://[^\s\"'<>]*[?@][^\s\"'<>]*")
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET = 6


def serve(folder: Path, name: str) -> None:
    """Serves the tools on stdio until the client leaves. `folder`: all that an agent may see; `name`: in
    which it buys and marks.
    """
    tools = Tools(folder, name)
    server: FastMCP = FastMCP("callsheet", SKILL.read_text("utf-8"))
    for tool in (
        *(tools.models, tools.init, tools.quote, tools.run, tools.collect, tools.status, tools.show),
        *(tools.failed, tools.costs, tools.pictures, tools.mark),
    ):
        server.tool(_answered(tool))
    for page in (*sorted(docs_folder().glob("*.md")), SKILL):
        uri = f"callsheet://docs/{page.stem.lower()}"
        server.add_resource(
            FileResource(uri=uri, name=page.stem.lower(), path=page.resolve(), mime_type="text/markdown")
        )
    server.add_resource(TextResource(uri="callsheet://schema", name="schema", text=schema_text()))
    server.run("stdio", show_banner=False, log_level="WARNING")


def _answered(tool: Callable[..., Awaitable[ToolResult]]) -> Callable[..., Awaitable[ToolResult]]:
    """The tool, for which an error that Callsheet knows is an answer, too."""

    @wraps(tool)
    async def call(*arguments: Any, **options: Any) -> ToolResult:
        try:
            return await tool(*arguments, **options)
        except CallsheetError as error:
            return _failed(error)

    return call


class Tools:
    """What an agent may do in a folder. Each method is a tool, and its docstring what the agent is told."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder.resolve()
        self._name = name
        self._started: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        self._starting = asyncio.Lock()

    async def models(self, config: str | None = None) -> ToolResult:
        """List the service's models, what they take, and their prices. Free."""
        next_ = [command("init BATCH_FILE", None)]
        return await self._command("models", *([self._config(config)] if config else []), next_=next_)

    async def init(
        self,
        batch_file: str,
        config: str | None = None,
        *,
        prompt: str | None = None,
        media: Literal["images", "videos"] | None = None,
        model: str | None = None,
        images: str | None = None,
        explain: bool = False,
    ) -> ToolResult:
        """Write the config that reads a batch file (CSV, Excel, JSON, Parquet, text). Free.

        `guessed` has each doubt: what was taken, and the others, the likeliest first. Answer one by calling
        it for another config with `prompt`, `media`, `model` or `images`. `explain` writes nothing, and says
        what each column holds. A run asks a person about guesses that nobody has answered.
        """
        answers = {"prompt": prompt, "media": media, "model": model, "images": images}
        options = [f"--{option}={value}" for option, value in answers.items() if value is not None]
        written = self._inside(config or str(Path(batch_file).with_suffix(".yaml")))
        paths = [self._inside(batch_file), *([] if explain else [written])]
        options += ["--explain"] if explain else []
        return await self._command("init", *options, "--", *paths, next_=[command("quote {config}", written)])

    async def quote(self, config: str) -> ToolResult:
        """Price a batch exactly, and say what is wrong with which line. Free."""
        path = self._config(config)
        answer = await self._answer("quote", path)
        purse = await self._purse(path)
        return _result(answer | _left_in(purse), self._to_buy(path, purse))

    async def run(
        self,
        context: Context,
        config: str,
        *,
        first: int | None = None,
        only: list[str] | None = None,
        again: bool = False,
        wait_seconds: int = 0,
    ) -> ToolResult:
        """Buy what is not bought yet and store it, by the purse that a person has given. Never pays twice.

        It answers at once, and the run goes on in the background, also without this server; `status` follows
        it. A second call joins the run at work. Beyond the purse it stops, and a person must be asked: say so
        and give them the commands of `next`. `first`: so many jobs; `only`: these rows; `again`: one more
        sample of rows of which every file is rejected.
        """
        path = self._config(config)
        purse = await self._purse(path)
        if purse is None or not purse.left:
            reason = f"nothing is left of it: {of_purse(purse)}" if purse else "no person has given one"
            return _result(
                {"started": False, "why": f"{self._name} buys by a purse, and {reason}"},
                _asks(path, self._name),
            )
        options = [f"--purse={self._name}", *([f"--first={first}"] if first else [])]
        options += [f"--only={row}" for row in only or ()] + (["--again"] if again else [])
        return await self._in_background("run", path, options, wait_seconds, context)

    async def collect(self, context: Context, config: str, wait_seconds: int = 0) -> ToolResult:
        """Fetch what is paid for and not stored yet, in the background. Buys nothing; free."""
        return await self._in_background("collect", self._config(config), [], wait_seconds, context)

    async def status(self, context: Context, config: str, wait_seconds: int = 0) -> ToolResult:
        """Say how a batch stands. With `wait_seconds` it waits for the run at work, and tells its progress.

        `approvals` has the questions to persons; one without a decision waits for a person. Free.
        """
        return await self._state(self._config(config), wait_seconds, context)

    async def show(self, config: str, row: str) -> ToolResult:
        """Tell all that is known of a row: its request, attempts, costs, files and reasons. Free."""
        path = self._config(config)
        return await self._command("show", path, "--", row, next_=[command("status {config}", path)])

    async def failed(self, config: str) -> ToolResult:
        """List the jobs that failed, each with the service's reason. Free."""
        path = self._config(config)
        return await self._command("failed", path, next_=[command("quote {config}", path)])

    async def costs(self, config: str, since: str | None = None, by: str = "batch") -> ToolResult:
        """Say what the ledger of a config came to since a day; `by` day, month, batch or model. Free."""
        options = [f"--by={by}", *([f"--since={since}"] if since else [])]
        path = self._config(config)
        return await self._command("costs", *options, path, next_=[command("status {config}", path)])

    async def pictures(self, config: str, row: str) -> ToolResult:
        """Show small images of what is stored of a row (of a video its first frame). Free."""
        path = self._config(config)
        settings = load_without_service(Path(path))
        async with open_ledger(settings.ledger.url, settings.batch) as ledger:
            stories = await ledger.read(queries.stories, row)
        stored = [(story, file) for story in stories for file in story.files if file.stored_at][:_PICTURES]
        files, images = [], []
        async with aclosing(Decoder(settings.storage.endpoint_url)) as decoder:
            for story, file in stored:
                self._inside(file.url)
                _, jpeg = await decoder.decode(file.url, file.mime_type)
                decided = {"number": story.file_number, "index": file.index, "decision": file.decision}
                files.append(decided | {"file": file.url, "flags": file.flags, "is_shown": bool(jpeg)})
                images += [Image(data=jpeg, format="jpeg").to_image_content()] if jpeg else []
        result = _result({"row": row, "files": files}, [command("show {config} ROW", path)])
        return ToolResult([*result.content, *images], result.structured_content)

    async def mark(
        self,
        config: str,
        row: str,
        decision: Literal["kept", "rejected", "clear"],
        number: int | None = None,
        note: str | None = None,
    ) -> ToolResult:
        """Mark the files of a row, or that of a `number` of `pictures`. It is said to be an agent's. Free."""
        path = self._config(config)
        decided = None if decision == "clear" else MediaDecision(decision)
        by = f"{self._name} (agent)"
        short_note = cut(note, LONGEST_NOTE) if note else None
        mark = Said("mark", row, None, None, decided, short_note, number=number, by=by)
        marked, review = await enter_marks(load_without_service(Path(path)), [mark])
        next_ = self._to_buy(path, await self._purse(path), again=bool(review.rejected))
        return _result({"marked": marked, "by": by} | review.as_json(), next_)

    # ---- what lies in the folder

    def _inside(self, path: str) -> str:
        """A path as a command takes it, from the folder on.

        Raises:
            ConfigError: it leads out of the folder, also by a link.
        """
        try:
            place = (self._folder / path).resolve()
            name = str(place.relative_to(self._folder))
        except (ValueError, OSError, RuntimeError):
            message = f"{printable(path)}: is not in the folder in which callsheet mcp was started"
            hint = "Name a path from that folder on."
            raise ConfigError(message, hint=hint, where=printable(path)) from None
        return f"./{name}" if name.startswith(("-", "~")) else name

    def _config(self, path: str) -> str:
        """A config in the folder, whose files are all in it, too, and whose key will be hidden.

        Raises:
            ConfigError: one is not, or the config is wrong.
        """
        name = self._inside(path)
        settings = None
        with suppress(ConfigError):  # of the service, which some commands do not need
            settings = load(Path(name), reads_batch=False)
        if settings and not _SECRET.search(settings.service.api_key_env):
            message = f"{name}: service.api_key_env is a name by which nobody sees that its value is secret"
            raise ConfigError(message, hint="Choose one with KEY, SECRET or TOKEN.", where=name)
        for place in _places(load_without_service(Path(name))):
            if "://" not in place:
                pattern = self._inside(place)
                for file in self._folder.glob(pattern) if is_glob(pattern) else ():
                    self._inside(str(file))
        return name

    # ---- commands

    async def _command(self, *arguments: str, next_: Iterable[Next] = ()) -> ToolResult:
        answer = await self._answer(*arguments)
        return _result(answer, next_)

    async def _answer(self, name: str, *arguments: str) -> dict[str, Any]:
        """What a command answers with `--json`."""
        process = await asyncio.create_subprocess_exec(
            *(*_CALLSHEET, name, "--json", *arguments),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            content, _ = await process.communicate()
        finally:
            if process.returncode is None:  # the client has given it up
                process.kill()
        return _read(content, process.returncode)

    async def _in_background(
        self, name: str, path: str, options: list[str], wait: int, context: Context
    ) -> ToolResult:
        """Starts a command that outlives this server, unless a run of the batch is at work already."""
        async with self._starting:
            if not self._is_at_work(path) and not (await _read_status(path))["other_runs"]:
                self._started[path] = self._apart(name, "--json", "--quiet", *options, "--", path)
        return await self._state(path, wait, context)

    def _apart(self, *arguments: str) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        """A command that outlives this server, and what it prints."""
        output = TemporaryFile()  # noqa: SIM115 - it is read when the process has ended
        process = subprocess.Popen(  # noqa: S603 - our own program
            [*_CALLSHEET, *arguments],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            **APART,
        )
        return process, output

    def _is_at_work(self, path: str) -> bool:
        return path in self._started and self._started[path][0].poll() is None

    async def _state(self, path: str, wait: int, context: Context) -> ToolResult:
        """How a batch stands; after so many seconds, or as soon as no run is at work."""
        until = time.monotonic() + min(wait, _LONGEST_WAIT)
        while True:
            is_at_work, status = self._is_at_work(path), await _read_status(path)
            is_at_work |= bool(status["other_runs"])
            jobs = sum(status[state] for state in State)
            await context.report_progress(jobs - sum(status[state] for state in OPEN), jobs)
            if not is_at_work or time.monotonic() >= until:
                break
            await asyncio.sleep(_LOOK)
        answer = status | {"at_work": is_at_work}
        if not is_at_work and path in self._started:
            process, output = self._started[path]
            output.seek(0)
            answer |= {"last_answer": _read(output.read(), process.returncode)}
        purse = await self._purse(path)
        next_ = [command("status {config}", path)] if is_at_work else self._to_buy(path, purse)
        return _result(answer | _left_in(purse), next_)

    async def _purse(self, path: str) -> Purse | None:
        """The purse of the agent for a batch; None where there is none."""
        settings = load_without_service(Path(path))
        async with open_ledger(settings.ledger.url, settings.batch) as ledger:
            return await ledger.read(purses.newest, self._name)

    def _to_buy(self, path: str, purse: Purse | None, *, again: bool = False) -> list[Next]:
        looks = [command("status {config}", path), command("failed {config}", path)]
        if purse is None or not purse.left:
            return [*_asks(path, self._name), *looks]
        run = f"run {{config}} --purse {self._name}{' --again' if again else ''}"
        return [command(run, path, buys_up_to(purse.left)), *looks]


def _left_in(purse: Purse | None) -> dict[str, Decimal]:
    return {"purse_left": purse.left if purse else Decimal(0)}


def _asks(path: str, name: str) -> list[Next]:
    """What a person must type."""
    return [
        command(f"purse {{config}} AMOUNT --to {name}", path, ASKS),
        command("run {config}", path, ASKS),
    ]


async def _read_status(path: str) -> dict[str, Any]:
    settings = load_without_service(Path(path))
    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        return (await read_status(ledger, settings)).as_json()


def _places(settings: BatchSettings) -> Iterable[str]:
    """The paths and addresses of a config."""
    source = settings.input
    yield from filter(None, (source.path, source.kept, source.stored))
    yield from (settings.storage.url, settings.report.url)
    if (file := file_of(settings.ledger.url)) is not None:
        yield str(file)
    for config in filter(None, (source.kept, source.stored)):  # whose files are read
        yield load_without_service(Path(config)).storage.url


# ---- answers


def _read(content: bytes, exit_code: int | None) -> dict[str, Any]:
    """The JSON object that a command has printed."""
    with suppress(ValueError):
        answer = json.loads(content)
        if isinstance(answer, dict):
            return answer
    message = f"the command has ended without an answer, with {exit_code}"
    return {"error": message, "message": message, "code": "callsheet_error"}


def _failed(error: CallsheetError) -> ToolResult:
    answer = {"error": error.message, "hint": error.hint, "code": code_of(error), "message": error.message}
    return _result(answer | {"where": error.where or None}, after(error, None))


def _result(answer: dict[str, Any], next_: Iterable[Next]) -> ToolResult:
    """An answer as data, with the commands that come next; after an error those that help."""
    data = _as_data(as_json({name: value for name, value in answer.items() if name != "next"}))
    steps = answer.get("next") or as_json(list(next_))
    return ToolResult(structured_content=data | {"next": steps}, is_error="error" in answer)


def _as_data(value: Any) -> Any:
    """What others have written, as data: printable, cut, and without secrets and signed links."""
    match value:
        case str():
            return cut(printable(_LINK.sub("[a link]", _hidden(value))), _LONGEST)
        case dict():
            return {_as_data(name): _as_data(entry) for name, entry in value.items()}
        case list() | tuple():
            more = [f"and {len(value) - _MOST:,} more"] if len(value) > _MOST else []
            return [*map(_as_data, value[:_MOST]), *more]
    return value


def _hidden(text: str) -> str:
    """The text without the values of environment variables that hold a secret."""
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "[hidden]")
    return text
