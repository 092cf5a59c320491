"""Programs of a user's own that make the files of a model (`command` in the catalogue).

Each worker is a process that reads a line of JSON for each generation and answers with one
(docs/backlot.md, "Your own GPU"). After a death, a timeout, an odd line or a file that is not as asked for,
nobody knows what the worker is at: it is killed, and another one is started.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from PIL import Image
from pydantic import BaseModel, ConfigDict, ValidationError

from backlot.catalogue import Model
from backlot.errors import Refused, SettingsError
from backlot.media.recipe import FPS, Recipe
from backlot.store import Generation

IN_A_ROW = 3  # failures after which nothing is asked for a while
PAUSE = 60  # seconds of that
GRACE = 2.0  # seconds to end by itself when the backlot ends
LARGEST = 512 * 2**20  # bytes of a file: a download holds it in memory
SHOWN = 300  # characters of what it wrote

APART: dict[str, Any] = {"start_new_session": True}  # a terminal's Ctrl-C is not for it
if sys.platform == "win32":
    APART = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}


class Answer(BaseModel):
    """What a program says of a generation; a field that it has besides is not read."""

    model_config = ConfigDict(strict=True)

    error: str | None = None
    code: Literal["server_error", "content_policy_violation", "invalid_parameter"] = "server_error"


class Failed(Exception):
    """The program has not made what was asked for; the text says why, and follows "The program"."""


class Worker:
    """One process of a program; `said` is the last line that it wrote to stderr."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self.command = command
        self.process: Process | None = None
        self.said = ""
        self.is_over = False  # the backlot ends

    async def start(self) -> Process:
        """The process, which is started where there is none. Raises `Failed`."""
        if self.is_over:
            raise Failed("is not started again: the backlot ends")
        if self.process is None or self.process.returncode is not None:
            try:
                self.process = await asyncio.create_subprocess_exec(
                    *self.command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=1 << 20, **APART
                )
            except (OSError, ValueError) as error:
                raise Failed(f"cannot be started: {error}") from None
            self.said, self.hearing = "", asyncio.create_task(self.hear(self.process))
        return self.process

    async def hear(self, process: Process) -> None:
        """Passes its stderr on to that of the backlot, and keeps the last line."""
        assert process.stderr  # noqa: S101 - it is a pipe
        while text := (await process.stderr.read(1 << 16)).decode(errors="replace"):
            with suppress(OSError, ValueError):  # nobody reads it any more
                print(text, end="", file=sys.stderr, flush=True)  # noqa: T201
            self.said = next((line for line in reversed(text.splitlines()) if line.strip()), self.said)

    async def ask(self, order: dict[str, Any], patience: float) -> Answer:
        """What it answers, within `patience` seconds. Raises `Failed`."""
        process = await self.start()
        assert process.stdin and process.stdout  # noqa: S101 - both are pipes
        try:
            async with asyncio.timeout(patience):
                process.stdin.write(json.dumps(order).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            raise Failed(f"did not answer within {patience:g} s") from None
        except (OSError, ValueError):  # it reads no more; or a line without end
            line = b""
        if not line:
            await asyncio.wait([self.hearing, asyncio.create_task(process.wait())], timeout=1)
            suffix = f": {self.said[:SHOWN]}" if self.said else ""
            raise Failed(f"ended before it answered (exit code {process.returncode}){suffix}")
        try:
            return Answer.model_validate_json(line)
        except ValidationError:
            text = line[:SHOWN].decode(errors="replace").strip()
            raise Failed(f"wrote a line to stdout that is no answer: {text}") from None

    def kill(self) -> None:
        """Kills it at once, and what it has started."""
        if process := self.process:
            with suppress(ProcessLookupError, PermissionError):
                if sys.platform == "win32":
                    process.kill()
                else:
                    os.killpg(process.pid, signal.SIGKILL)

    async def end(self, grace: float = 0) -> None:
        """Ends it: its input ends, it is told to end, and killed where it does not within `grace` seconds."""
        if not (process := self.process) or not process.stdin:
            return
        process.stdin.close()
        with suppress(ProcessLookupError, TimeoutError):
            if grace:
                process.terminate()
            await asyncio.wait_for(process.wait(), grace)
        self.kill()
        await asyncio.wait([self.hearing, asyncio.create_task(process.wait())], timeout=1)
        self.process = None


class Program:
    """The program of a model. Generations wait for one of its workers in their order.

    `failures` counts those one after another, `reason` is that of the last one. `paused_until`, in Unix
    seconds of `clock`: until then the model answers 503.
    """

    def __init__(self, model: Model, clock: Callable[[], float]) -> None:
        self.model, self.clock = model, clock
        self.failures, self.reason, self.paused_until = 0, "", 0.0
        if not shutil.which(model.command[0]):
            raise SettingsError(f"the program of model {model.id} is not found: {model.command[0]}")
        self.workers = [Worker(model.command) for _ in range(model.workers)]
        self.idle: asyncio.Queue[Worker] = asyncio.Queue()

    async def start(self) -> None:
        """Starts every worker. One that cannot be started is tried again by the next generation."""
        for worker in self.workers:
            with suppress(Failed):
                await worker.start()
            self.idle.put_nowait(worker)

    def check(self) -> None:
        """Raises `Refused` 503 with `Retry-After` while nothing is asked, after three failures in a row."""
        if (wait := math.ceil(self.paused_until - self.clock())) > 0:
            message = f"The program of model '{self.model.id}' failed {self.failures} times in a row. "
            headers = {"Retry-After": str(wait)}
            raise Refused("server_error", message + self.reason, status=503, headers=headers)

    async def make(self, order: dict[str, Any], recipe: Recipe, *, patient: bool) -> None:
        """Has the file at `order["output"]` made, when a worker is free.

        Raises:
            Refused: what the program answered; 500 where it failed; 503 in a pause, whose end is awaited by
                those who are `patient`.
        """
        worker, is_at_rest = await self.idle.get(), True
        try:
            while patient and self.clock() < self.paused_until:  # noqa: ASYNC110 - of a clock
                await asyncio.sleep(0.2)
            self.check()
            is_at_rest = False
            answer = await worker.ask(order, self.model.timeout)
            if answer.error is None:
                await asyncio.to_thread(check_file, Path(order["output"]), recipe)
            is_at_rest, self.failures = True, 0
        except Failed as error:
            self.failures, self.reason = self.failures + 1, f"The program {error}"
            if self.failures >= IN_A_ROW:
                self.paused_until = self.clock() + PAUSE
            await worker.end()
            with suppress(Failed):
                await worker.start()
            is_at_rest = True
            raise Refused("server_error", self.reason) from None
        finally:
            if not is_at_rest:  # the backlot is ending
                await worker.end()
            self.idle.put_nowait(worker)
        if answer.error is not None:
            raise Refused(answer.code, answer.error[:SHOWN])


def check_file(path: Path, recipe: Recipe) -> None:
    """Checks that a file is there, whole, and what the answer to the client will say. Raises `Failed`."""
    if path.is_symlink() or not path.is_file():
        raise Failed("wrote no file to the path of `output`")
    if not 0 < (size := path.stat().st_size) <= LARGEST:
        raise Failed(f"wrote a file of {size} bytes; expected 1 to {LARGEST}")
    expected = {"width": recipe.width, "height": recipe.height}
    if recipe.format == "mp4":
        expected |= {"duration": recipe.duration, "fps": FPS, "sound": recipe.sound}
    try:
        actual = seen(path, recipe.format)
    except Exception as error:  # noqa: BLE001 - decoders raise all sorts of errors
        raise Failed(f"wrote a file that is no whole {recipe.format}: {error}") from None
    for name, value in expected.items():
        if abs(actual[name] - value) > 0.5:
            raise Failed(f"wrote a file with {name} {actual[name]:g}; it was asked for {value:g}")


def seen(path: Path, format_: str) -> dict[str, float]:
    """What a file is; all of it is read. Raises as Pillow and PyAV do."""
    if format_ != "mp4":
        with Image.open(path, formats=[format_.upper()]) as image:
            image.load()
            return {"width": image.width, "height": image.height}
    import av  # the codecs take a while to load

    with av.open(str(path), format="mp4") as container:
        video, sound = container.streams.video[0], bool(container.streams.audio)
        frame = next(container.decode(video))
        last = max([0, *(packet.pts for packet in container.demux(video) if packet.pts)])
        seconds, fps = float(last * (video.time_base or 0)), float(video.average_rate or 0)
        return {"width": frame.width, "height": frame.height, "duration": seconds, "fps": fps, "sound": sound}


class Programs:
    """The programs of a server by their model, and the files that they have made."""

    def __init__(self, models: dict[str, Model], state: Path | None, clock: Callable[[], float]) -> None:
        self.by_model = {name: Program(model, clock) for name, model in models.items() if model.command}
        self.temporary = None if state else Path(tempfile.mkdtemp(prefix="backlot-"))
        folder = (self.temporary or state or Path()).resolve()
        self.folder, self.making = folder / "backlot-files", folder / "backlot-making"

    def path(self, generation: Generation) -> Path:
        """Where the file of a generation is."""
        return self.folder / f"{generation.id}.{generation.recipe.format}"

    def sweep(self, get: Callable[[str], Generation | None], now: float) -> None:
        """Removes every file that no generation has, or whose `deletes_at` has come."""
        for path in self.folder.glob("req-*"):
            if not ((generation := get(path.stem)) and generation.has_media(now)):
                remove(path)

    async def make(self, generation: Generation) -> None:
        """Has the file of a generation made, and puts it where `path` says. Raises `Refused`."""
        recipe, folder = generation.recipe, self.making / generation.id
        output, is_video, images = folder / f"output.{recipe.format}", generation.type == "video", []
        order = {name: getattr(recipe, name) for name in ("model", "prompt", "width", "height", "format")}
        order |= {"duration": recipe.duration, "fps": FPS} if is_video else {"duration": None, "fps": None}
        order |= {"sound": recipe.sound, "seed": int(recipe.digest()[:8], 16)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            folder.mkdir(parents=True)
            for number, reference in enumerate(recipe.references):
                location = {"url": reference.url}
                if reference.data:
                    image = folder / f"image-{number}"
                    image.write_bytes(reference.data)
                    location = {"path": str(image)}
                images.append({"role": reference.role} | location)
            order |= {"images": images, "output": str(output)}
            if not (program := self.by_model.get(generation.model)):
                raise Refused("server_error", "The backlot was started again without the model's program.")
            await program.make(order, recipe, patient=is_video)
            output.replace(self.path(generation))
        except OSError as error:
            raise Refused("server_error", f"The file cannot be kept: {error}") from None
        finally:
            remove(folder)

    async def stop(self) -> None:
        """Ends every program, for good."""
        workers = [worker for program in self.by_model.values() for worker in program.workers]
        for worker in workers:
            worker.is_over = True
        await asyncio.gather(*(worker.end(GRACE) for worker in workers))

    def close(self) -> None:
        """Kills what is left of the programs, and removes what was being made."""
        for program in self.by_model.values():
            for worker in program.workers:
                worker.kill()
        remove(self.making)
        if self.temporary:
            remove(self.temporary)


def remove(path: Path) -> None:
    """Removes a file or a folder. What cannot be removed now is removed at the next start."""
    with suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
