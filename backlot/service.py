"""What the service does, without HTTP: check, accept, charge, finish, and answer.

A generation is checked in this order: model, parameters, images, safety; then, in one step, the rate window,
the concurrency and the balance. A refused request takes and charges nothing.

Videos that are drawn need no timer. Each has the time at which it is due, and every request first finishes
the videos that are due; the charge is dated when the video was due. So a restart changes nothing. A video
that a program makes is finished, and charged, when its file is there; after a restart it is made anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import secrets
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from backlot import checks, wire
from backlot.accounts import ApiKey, ModelType, Traffic, Window, Workspace
from backlot.catalogue import UNITS, read_catalogue
from backlot.errors import Refused, invalid
from backlot.faults import Endpoint, ExpireUrl, FailVideo, Matched, NeverFinish, read_faults
from backlot.media import make, make_thumbnail, thumbnail_of
from backlot.media.recipe import FPS, Recipe
from backlot.programs import Programs, remove
from backlot.settings import Settings, WorkspaceSettings
from backlot.store import WHEN_MADE, Generation, Store

Answer = dict[str, Any]  # of the shapes in `wire`
EPOCH, MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
SWEEP = 60.0  # seconds between two looks for files whose time has come
UNSAFE_VIDEO = ("content_policy_violation", "The finished video does not pass the safety check.")


class Service:
    """One running service. Its methods are called from one event loop; `clock` gives Unix seconds.

    Raises:
        SettingsError: a file named in the settings is wrong, or the state folder is in use.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.clock = clock
        self.models = read_catalogue(settings.catalogue)
        self.faults = read_faults(settings.faults)
        self.programs = Programs(self.models, settings.state, clock)
        self.store = Store(settings.state)
        self.making: set[asyncio.Task[None]] = set()
        self.workspaces: dict[str, Workspace] = {}
        self.keys: dict[str, ApiKey] = {}  # by their digest; revoked ones too
        self.keyless = Traffic()  # requests without a valid key, and downloads, which need none
        default = WorkspaceSettings(balance=settings.balance, projects={"default": (settings.api_key,)})
        for name, workspace in (settings.workspaces or {"default": default}).items():
            self.add_workspace(name, workspace)

    def add_workspace(self, name: str, workspace: WorkspaceSettings) -> None:
        """Opens a workspace with its projects and keys, and what the store has of it."""
        server = self.settings
        image_rpm, video_rpm, concurrency = (
            getattr(server if getattr(workspace, limit) is None else workspace, limit)
            for limit in ("image_rpm", "video_rpm", "concurrency")
        )
        opened = self.workspaces[name] = Workspace(
            name=name,
            opening=(workspace.balance or Decimal(0)) + self.store.top_ups(name),
            windows={"image": Window(image_rpm, server.window), "video": Window(video_rpm, server.window)},
            reads=Window(server.read_rpm, 60),
            concurrency=concurrency,
            spent=self.store.spent(name),
        )
        for video in self.store.pending(name):
            opened.take(video.cost)
        for project, keys in workspace.projects.items():
            self.keys |= {digest(key): new_key(key, opened, project) for key in keys}
        self.keys |= {kept.digest: kept for kept in self.store.created_keys(opened)}

    async def start(self) -> None:
        """Starts the programs; videos that were left pending are made anew, or fail without their program."""
        remove(self.programs.making)  # of a server that was killed
        for program in self.programs.by_model.values():
            await program.start()
        for video in self.store.waiting():
            self.begin(video)
        self.run(self.tick())

    async def stop(self) -> None:
        """Ends the programs. Videos that are not made stay pending."""
        for task in self.making:
            task.cancel()
        await asyncio.gather(*self.making, return_exceptions=True)
        await self.programs.stop()

    def close(self) -> None:
        """Closes the store; what is left of the programs is killed."""
        self.programs.close()
        self.store.close()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something beside the requests, until the server ends."""
        task = asyncio.create_task(work)
        self.making.add(task)
        task.add_done_callback(self.making.discard)

    async def tick(self) -> None:
        """Removes files of programs at their time."""
        while True:
            self.programs.sweep(self.store.get, self.clock())
            await asyncio.sleep(SWEEP)

    def caller(self, authorization: str | None) -> ApiKey:
        """The key of a request. Raises `Refused` 401 for a missing or wrong one (INTERFACE 5.2)."""
        scheme, _, text = (authorization or "").partition(" ")
        key = self.keys.get(digest(text.strip()))
        if scheme.lower() != "bearer" or key is None or key.revoked_at is not None:
            message = "Missing or incorrect API key. Send 'Authorization: Bearer sk_...'."
            raise Refused("invalid_api_key", message)
        return key

    def projects(self, workspace: Workspace) -> dict[str, list[ApiKey]]:
        """A workspace's keys by project, revoked ones too."""
        keys_by_project: dict[str, list[ApiKey]] = {}
        for key in self.keys.values():
            if key.workspace is workspace:
                keys_by_project.setdefault(key.project, []).append(key)
        return keys_by_project

    def create_key(self, workspace: Workspace, project: str) -> str:
        """A new key of a project, which may be new too. Nobody can read it here again."""
        key = f"sk_{secrets.token_urlsafe(24)}"
        api_key = self.keys[digest(key)] = new_key(key, workspace, project, int(self.clock() * 1000))
        self.store.add_key(api_key)
        return key

    def revoke_key(self, key_digest: str) -> None:
        """Ends a key, by its digest; from now on it gets 401. Revoking again changes nothing.

        A key of the settings is valid again at the next start.
        """
        key = self.keys[key_digest]
        if key.revoked_at is None:
            key.revoked_at = int(self.clock() * 1000)
            self.store.revoke_key(key_digest, key.revoked_at)

    def top_up(self, workspace: Workspace, amount: Decimal) -> None:
        """Adds dollars to a workspace's balance; it is kept with the state."""
        self.store.top_up(workspace.name, amount, int(self.clock() * 1000))
        workspace.opening += amount

    def finish_due(self, now: float) -> None:
        """Finishes and charges every video that is due."""
        for video in self.store.due(int(now * 1000)):
            self.finish(video, video.due_at or 0)

    def finish(self, video: Generation, finished_at: int) -> None:
        """Records a video's end at a time in Unix milliseconds, and charges it unless it has an error."""
        video.finished_at = finished_at
        video.state = "failed" if video.error_code else "completed"
        if video.state == "completed":
            video.deletes_at = self.deletion(finished_at)
        self.store.finish(video)
        if workspace := self.workspaces.get(video.workspace):
            workspace.finish(video.cost, video.price)

    def begin(self, video: Generation) -> None:
        """Has a video made by its program, beside the requests."""

        async def make() -> None:
            try:
                await self.programs.make(video)
            except Refused as error:
                video.error_code, video.error_message = error.code, error.detail
            self.finish(video, int(self.clock() * 1000))

        self.run(make())

    def deletion(self, finished_at: int) -> int:
        """When media is deleted, in whole Unix seconds as in its URL; `finished_at` is in milliseconds."""
        return math.ceil(finished_at / 1000 + self.settings.media_ttl)

    # Generations

    async def checked(
        self, caller: ApiKey, model_type: ModelType, request: wire.ImageRequest | wire.VideoRequest
    ) -> tuple[Generation, Matched]:
        """The generation of a request that passed every check except limits and balance, and its faults.

        Raises:
            Refused: 400 or 422; or what a fault answers.
        """
        model = self.models.get(request.model)
        if model is None:
            raise invalid(f"There is no model '{request.model}'.", "model")
        if model.type != model_type:
            message = f"Model '{model.id}' makes {model.type}s; this endpoint makes {model_type}s."
            raise invalid(message, "model")
        recipe, resolution = checks.check(model, request, self.settings.seed)
        program = self.programs.by_model.get(model.id)
        images = await checks.read_images(request.images, whole=program is not None)
        checks.check_safety(self.settings.safety, request.prompt, (sha256 for sha256, _ in images))
        workspace = caller.workspace
        endpoint: Endpoint = "images" if model_type == "image" else "videos"
        faults = self.faults.match(endpoint, model.id, request.prompt)
        await faults.before(workspace.windows[model_type], workspace.concurrency, self.clock())
        if program:
            program.check()
        self.finish_due(self.clock())
        price, quantity = model.unit_price(resolution, sound=recipe.sound), recipe.duration or 1
        references = tuple(reference for _, reference in images)
        recipe = faults.made(replace(recipe, references=references, program=program is not None))
        if recipe.blank or recipe.silent or recipe.still:
            recipe = replace(recipe, program=False)  # no program is asked for such a file
        generation = Generation(
            id=f"req-{uuid.uuid4().hex}",
            workspace=workspace.name,
            project=caller.project,
            type=model_type,
            state="pending",
            model=model.id,
            recipe=recipe,
            unit_price=price,
            quantity=quantity,
            cost=price * quantity + faults.surcharge,
        )
        return generation, faults

    async def create_image(self, caller: ApiKey, request: wire.ImageRequest, base: str) -> Answer:
        """POST image generation (INTERFACE 4.1). It is charged when it is answered."""
        image, faults = await self.checked(caller, "image", request)
        workspace, charged = caller.workspace, Decimal(0)
        workspace.admit("image", image.cost, self.clock())
        try:
            if image.recipe.program:
                image.recipe = replace(image.recipe, sample=self.store.next_sample(image))
                await self.programs.make(image)
            else:
                await asyncio.sleep(self.settings.image_seconds)
            image.finished_at = int(self.clock() * 1000)
            image.deletes_at = self.deletion(image.finished_at)
            image.state = "completed"
            image.recorded = image.finished_at * 1000
            self.store.add(image)
            charged = image.cost
        finally:
            workspace.finish(image.cost, charged)
        return faults.after(self.completed(image, base, faults))

    async def create_video(self, caller: ApiKey, request: wire.VideoRequest) -> Answer:
        """POST video generation (INTERFACE 4.4). The price is reserved now, and charged when it finishes."""
        video, faults = await self.checked(caller, "video", request)
        now = self.clock()
        if not faults.find(NeverFinish):
            video.due_at = int((now + self.settings.video_seconds) * 1000)
        if fault := faults.find(FailVideo):
            video.error_code, video.error_message = fault.code, fault.message
        elif checks.has_word(request.prompt, self.settings.safety.video_words):
            video.error_code, video.error_message = UNSAFE_VIDEO
        elif video.recipe.program and video.due_at:
            video.due_at = WHEN_MADE
        caller.workspace.admit("video", video.cost, now)
        video.recorded = int(now * 1_000_000)
        if video.recipe.program:
            video.recipe = replace(video.recipe, sample=self.store.next_sample(video))
        self.store.add(video)
        if video.due_at == WHEN_MADE:
            self.begin(video)
        return faults.after(status_answer(video))

    async def status(self, caller: ApiKey, generation_id: str, base: str) -> Answer:
        """GET video generation (INTERFACE 4.5). Raises `Refused`: 404 when the project has no such video."""
        video, asked = self.store.get(generation_id), (caller.workspace.name, caller.project, "video")
        if video is None or (video.workspace, video.project, video.type) != asked:
            raise Refused("not_found", f"No video generation with id '{generation_id}'.", "id")
        faults = self.faults.match("status", video.model, video.recipe.prompt)
        await faults.before(caller.workspace.reads, caller.workspace.concurrency, self.clock())
        if video.state == "completed":
            return faults.after(self.completed(video, base, faults))
        return faults.after(status_answer(video))

    def completed(self, generation: Generation, base: str, faults: Matched) -> Answer:
        """The answer with a file: of an image at once, of a video when it is finished (INTERFACE 2.8, 2.9).

        Its URL works until the file is deleted.
        """
        recipe, deletes_at = generation.recipe, generation.deletes_at or 0
        expires_at, expired = deletes_at, faults.find(ExpireUrl)
        if expired:
            expires_at = int(self.clock()) - 1
            deletes_at = expires_at if expired.deleted else deletes_at
        signature = self.signature(generation.id, "0", str(expires_at))
        item = {
            "url": f"{base}v2/downloads/{generation.id}/0?exp={expires_at}&sig={signature}",
            "width": recipe.width,
            "height": recipe.height,
            "mime_type": recipe.mime_type,
            "deletes_at": timestamp(datetime.fromtimestamp(deletes_at, UTC)),
        }
        if generation.type == "video":
            item |= {"duration": recipe.duration, "fps": FPS, "has_sound": recipe.sound}
        return {
            "id": generation.id,
            "status": "completed",
            "model": generation.model,
            "data": [item],
            "usage": {
                "total_cost": generation.cost,
                "billable_unit": UNITS[generation.type],
                "unit_price": generation.unit_price,
                "quantity": generation.quantity,
            },
        }

    # Money and media

    def costs(self, workspace: Workspace, project: str, start: datetime, end: datetime) -> Answer:
        """A project's costs by UTC date; `start` and `end` are inclusive (INTERFACE 4.7)."""
        first, last = -((EPOCH - start) // MILLISECOND), (end - EPOCH) // MILLISECOND  # up, and down
        known_until = int((self.clock() - self.settings.costs_lag) * 1000)
        spent = self.store.costs(workspace.name, project, first, min(last, known_until))
        count = (end.date() - start.date()).days + 1
        days = [(start.date() + timedelta(days=n)).isoformat() for n in range(count)]
        return {
            "currency": "USD",
            "data": [{"date": day, "cost": spent.get(day, Decimal(0))} for day in days],
            "total_cost": sum(spent.values(), Decimal(0)),
            "start": timestamp(start),
            "end": timestamp(end),
        }

    def media(self, generation_id: str, index: str, exp: str, sig: str) -> Generation:
        """The generation behind a signed URL (INTERFACE 4.8).

        Raises:
            Refused: 403 for an altered URL, 410 for an expired one, 404 when there is no such file.
        """
        if not hmac.compare_digest(self.signature(generation_id, index, exp).encode(), sig.encode()):
            raise Refused("invalid_parameter", "The URL's signature is wrong.", "sig", status=403)
        if self.clock() >= int(exp):
            raise Refused("not_found", "The URL has expired.", "exp", status=410)
        generation = self.store.get(generation_id)
        if generation is None or generation.state != "completed" or index != "0":
            raise Refused("not_found", "There is no such file.")
        return generation

    async def file(self, generation: Generation, *, small: bool = False) -> bytes:
        """The file of a generation, or a small JPEG of it. Raises `Refused`: 404 where it is gone."""
        recipe = self.whole_recipe(generation)
        if not recipe.program:
            return await asyncio.to_thread(make_thumbnail if small else make, recipe)
        path = self.programs.path(generation)
        try:
            return await asyncio.to_thread(thumbnail_of if small else Path.read_bytes, path)
        except OSError:
            raise Refused("not_found", "The file is no longer there.") from None

    def signature(self, generation_id: str, index: str, exp: str) -> str:
        """The signature of a download URL, which only this server's secret makes: 64 hex digits."""
        signed = f"{generation_id}/{index}?{exp}".encode()
        return hmac.new(self.store.secret, signed, hashlib.sha256).hexdigest()

    def whole_recipe(self, generation: Generation) -> Recipe:
        """The recipe of a generation's file, with its reference images."""
        return replace(generation.recipe, references=self.store.references(generation.id))


def status_answer(video: Generation) -> Answer:
    """The answer for a video without a file: it is pending, or it has failed (INTERFACE 2.9)."""
    answer: Answer = {"id": video.id, "status": video.state}
    if video.state == "failed":
        answer["error"] = {"message": video.error_message, "code": video.error_code}
    return answer


def timestamp(moment: datetime) -> str:
    """ISO 8601 with milliseconds; the moment is in UTC."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def digest(key: str) -> str:
    """What is kept of a key: its SHA-256, in hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def new_key(key: str, workspace: Workspace, project: str, created_at: int | None = None) -> ApiKey:
    """What is known of a key: of its text, `sk_...` and the last four characters may be shown."""
    hint = f"sk_\u2026{key[3:][-4:]}" if len(key) >= 10 else "sk_\u2026"
    return ApiKey(digest(key), hint, workspace, project, created_at)
