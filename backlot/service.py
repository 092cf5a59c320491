"""What the service does, without HTTP: check, accept, charge, finish, and answer.

A generation is checked in this order: model, parameters, images, safety; then, in one step, the rate window,
the concurrency and the balance. A refused request takes and charges nothing.

Videos need no timer. Each has the time at which it is due, and every request first finishes the videos that
are due; the charge is dated when the video was due. So a restart changes nothing.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from backlot import checks, signing, wire
from backlot.accounts import ApiKey, ModelType, Window, Workspace
from backlot.catalogue import BUILT_IN, UNITS, read_catalogue
from backlot.errors import Refused, invalid
from backlot.faults import ExpireUrl, FailVideo, Matched, NeverFinish, read_faults
from backlot.keys import Keys
from backlot.media.cache import MediaCache
from backlot.media.recipe import FPS, Recipe
from backlot.settings import Settings, WorkspaceSettings
from backlot.store import Generation, Store
from backlot.traffic import Traffic

Answer = dict[str, Any]  # of the shapes in `wire`
UNSAFE_VIDEO = ("content_policy_violation", "The finished video does not pass the safety check.")


class Service:
    """One running service. Its methods are called from one event loop; `clock` gives Unix seconds.

    Raises:
        SettingsError: a file named in the settings is wrong, or the state folder is in use.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.clock = clock
        self.models = read_catalogue(settings.catalogue or BUILT_IN)
        self.faults = read_faults(settings.faults)
        self.safety = checks.SafetyCheck(settings.safety)
        self.cache = MediaCache()
        self.store = Store(settings.state)
        self.store.forget_references(clock())
        self.workspaces: dict[str, Workspace] = {}
        self.keys = Keys(self.store)
        self.keyless = Traffic()  # requests without a valid key, and downloads, which need none
        default = WorkspaceSettings(balance=settings.balance, projects={"default": (settings.api_key,)})
        spent = self.store.spent()
        for name, workspace in (settings.workspaces or {"default": default}).items():
            self.add_workspace(name, workspace, spent.get(name, Decimal(0)))
        for video in self.store.pending():
            if kept := self.workspaces.get(video.workspace):
                kept.take(video.cost)

    def add_workspace(self, name: str, workspace: WorkspaceSettings, spent: Decimal = Decimal(0)) -> None:
        """Opens a workspace with its projects and keys. A limit of None is the server's."""
        server = self.settings
        limits = {
            name: getattr(server if getattr(workspace, name) is None else workspace, name)
            for name in ("image_rpm", "video_rpm", "concurrency")
        }
        opened = self.workspaces[name] = Workspace(
            name=name,
            opening=workspace.balance or Decimal(0),
            windows={
                "image": Window(limits["image_rpm"], server.window),
                "video": Window(limits["video_rpm"], server.window),
            },
            reads=Window(server.read_rpm, 60),
            concurrency=limits["concurrency"],
            spent=spent,
        )
        opened.opening += self.store.top_ups().get(name, Decimal(0))
        self.keys.open(opened, workspace.projects.items())

    def top_up(self, workspace: Workspace, amount: Decimal) -> None:
        """Adds dollars to a workspace's balance; it is kept with the state."""
        self.store.top_up(workspace.name, amount, int(self.clock() * 1000))
        workspace.opening += amount

    def finish_due(self, now: float) -> None:
        """Finishes and charges every video that is due."""
        videos = self.store.due(int(now * 1000))
        for video in videos:
            video.finished_at = video.due_at or 0
            video.state = "failed" if video.error_code else "completed"
            if video.state == "completed":
                video.deletes_at = self.deletion(video.finished_at)
        self.store.finish(videos)
        for video in videos:
            if workspace := self.workspaces.get(video.workspace):
                workspace.finish(video.cost, video.cost if video.state == "completed" else Decimal(0))

    def deletion(self, finished_at: int) -> int:
        """When media is deleted, in whole Unix seconds as in its URL; `finished_at` is in milliseconds."""
        return math.ceil(finished_at / 1000 + self.settings.media_ttl)

    # Generations

    async def checked(
        self, caller: ApiKey, model_type: ModelType, request: wire.ImageRequest | wire.VideoRequest
    ) -> Generation:
        """The generation of a request that passed every check except limits and balance; not accepted yet.

        Raises:
            Refused: 400 or 422.
        """
        model = self.models.get(request.model)
        if model is None:
            raise invalid(f"There is no model '{request.model}'.", "model")
        if model.type != model_type:
            raise invalid(
                f"Model '{model.id}' makes {model.type}s; this endpoint makes {model_type}s.", "model"
            )
        recipe, resolution = checks.check(model, request, self.settings.seed)
        images = await checks.read_images(request.images)
        self.safety.request(request.prompt, (sha256 for sha256, _ in images))
        price, quantity = model.unit_price(resolution, sound=recipe.sound), recipe.duration or 1
        return Generation(
            id=f"req-{uuid.uuid4().hex}",
            workspace=caller.workspace.name,
            project=caller.project,
            type=model_type,
            state="pending",
            model=model.id,
            recipe=replace(recipe, references=tuple(reference for _, reference in images)),
            unit_price=price,
            quantity=quantity,
            cost=price * quantity,
        )

    async def create_image(self, caller: ApiKey, request: wire.ImageRequest, base: str) -> Answer:
        """POST image generation (INTERFACE 4.1). It is charged when it is answered."""
        workspace = caller.workspace
        image = await self.checked(caller, "image", request)
        faults = self.faults.match("images", image.model, request.prompt)
        await faults.before(workspace.windows["image"], workspace.concurrency, self.clock)
        image.cost += faults.surcharge
        charged = Decimal(0)
        self.finish_due(self.clock())
        workspace.admit("image", image.cost, self.clock())
        try:
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
        workspace = caller.workspace
        video = await self.checked(caller, "video", request)
        faults = self.faults.match("videos", video.model, request.prompt)
        await faults.before(workspace.windows["video"], workspace.concurrency, self.clock)
        video.cost += faults.surcharge
        now = self.clock()
        self.finish_due(now)
        if not faults.find(NeverFinish):
            video.due_at = int((now + self.settings.video_seconds) * 1000)
        if fault := faults.find(FailVideo):
            video.error_code, video.error_message = fault.code, fault.message
        elif self.safety.video_words.search(request.prompt):
            video.error_code, video.error_message = UNSAFE_VIDEO
        workspace.admit("video", video.cost, now)
        video.recorded = int(now * 1_000_000)
        self.store.add(video)
        return faults.after(status_answer(video))

    async def status(self, caller: ApiKey, generation_id: str, base: str) -> Answer:
        """GET video generation (INTERFACE 4.5).

        Raises:
            Refused: 404 when the project has no such video.
        """
        video = self.store.get(generation_id)
        if video is None or (video.workspace, video.project, video.type) != (
            caller.workspace.name,
            caller.project,
            "video",
        ):
            raise Refused("not_found", f"No video generation with id '{generation_id}'.", "id")
        faults = self.faults.match("status", video.model, video.recipe.prompt)
        await faults.before(caller.workspace.reads, caller.workspace.concurrency, self.clock)
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
        item = {
            "url": base + signing.signed_path(self.store.secret, generation.id, 0, expires_at),
            "width": recipe.width,
            "height": recipe.height,
            "mime_type": recipe.mime_type,
            "deletes_at": timestamp(deletes_at * 1000),
        }
        if generation.type == "video":
            item |= {"duration": recipe.duration, "fps": FPS, "has_sound": recipe.sound}
        usage = {
            "total_cost": generation.cost,
            "billable_unit": UNITS[generation.type],
            "unit_price": generation.unit_price,
            "quantity": generation.quantity,
        }
        return {
            "id": generation.id,
            "status": "completed",
            "model": generation.model,
            "data": [item],
            "usage": usage,
        }

    # Money and media

    def costs(self, workspace: Workspace, project: str, start: datetime, end: datetime) -> wire.Costs:
        """A project's costs by UTC date; `start` and `end` are inclusive (INTERFACE 4.7)."""
        first_ms, last_ms = milliseconds(start, math.ceil), milliseconds(end, math.floor)
        known_ms = int((self.clock() - self.settings.costs_lag) * 1000)
        spent = self.store.costs(workspace.name, project, first_ms, min(last_ms, known_ms))
        days = (end.date() - start.date()).days + 1
        data: list[wire.Bucket] = []
        for n in range(days):
            day = (start.date() + timedelta(days=n)).isoformat()
            data.append({"date": day, "cost": spent.get(day, Decimal(0))})
        return {
            "currency": "USD",
            "data": data,
            "total_cost": sum(spent.values(), Decimal(0)),
            "start": timestamp(milliseconds(start, math.floor)),
            "end": timestamp(last_ms),
        }

    def media(self, generation_id: str, index: str, exp: str, sig: str) -> Recipe:
        """The recipe behind a signed URL, with its reference images.

        Raises:
            Refused: 403 for an altered URL, 410 for an expired one, 404 when there is no such file.
        """
        signing.check(self.store.secret, generation_id, index, exp=exp, sig=sig, now=self.clock())
        generation = self.store.get(generation_id)
        if generation is None or generation.state != "completed" or index != "0":
            raise Refused("not_found", "There is no such file.")
        return self.whole_recipe(generation)

    def whole_recipe(self, generation: Generation) -> Recipe:
        """The recipe of a generation's file, with its reference images."""
        return replace(generation.recipe, references=self.store.references(generation.id))


def status_answer(video: Generation) -> Answer:
    """The answer for a video without a file: it is pending, or it has failed (INTERFACE 2.9)."""
    found: Answer = {"id": video.id, "status": video.state}
    if video.state == "failed":
        found["error"] = {"message": video.error_message, "code": video.error_code}
    return found


def timestamp(unix_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds."""
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=unix_ms)  # noqa: DTZ001 - the Z is added below
    return moment.isoformat(timespec="milliseconds") + "Z"


def milliseconds(moment: datetime, rounding: Callable[[float], int]) -> int:
    """A moment in Unix milliseconds, rounded by `math.ceil` or `math.floor`."""
    micro = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return -(-micro // 1000) if rounding is math.ceil else micro // 1000
