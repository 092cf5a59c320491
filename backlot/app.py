"""HTTP: routes, headers, the error body, and the OpenAPI document (INTERFACE 4, 5, 7, 8).

It decides nothing about money or limits; `service` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backlot import openapi, wire
from backlot.accounts import Caller, Window
from backlot.dashboard.documentation import add_documentation
from backlot.dashboard.routes import add_dashboard
from backlot.dashboard.sign_in import SignIn
from backlot.errors import Refused, invalid
from backlot.faults import Dropped, Endpoint, Page, Truncate, WrongType
from backlot.files import Disconnect, File
from backlot.service import Service
from backlot.traffic import Refusal, outcome_of

MAX_BODY_BYTES = 25 * 2**20
NO_STORE = {"Cache-Control": "no-store"}
DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.IGNORECASE | re.ASCII)


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with a JSON body."""
    return Response(wire.to_json(body), status, headers, "application/json")


def refusal(refused: Refused) -> Response:
    """The answer of an error, with the error body (INTERFACE 2.1)."""
    body = {
        "error": {
            "message": refused.message,
            "type": "invalid_request_error",
            "param": refused.param,
            "code": refused.code,
        }
    }
    return answer(body, refused.status, refused.headers)


def create_app(service: Service, sign_in: SignIn | None = None) -> FastAPI:
    """The whole service as an ASGI application; without `sign_in` nobody may open the dashboard."""
    app = FastAPI(**openapi.ABOUT)
    app.add_middleware(CountAnswers, service=service)
    add_error_handlers(app)
    add_generations(app, service)
    add_reads(app, service)
    add_downloads(app, service)
    add_dashboard(app, service, sign_in or SignIn())
    add_documentation(app)
    openapi.complete(app)
    return app


def add_error_handlers(app: FastAPI) -> None:
    """Gives every error the interface's error body (INTERFACE 7)."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        request.state.refused = error
        return refusal(error)

    @app.exception_handler(HTTPException)
    async def unknown_path_or_method(request: Request, error: HTTPException) -> Response:
        code = "not_found" if error.status_code == 404 else "invalid_parameter"
        message = f"{error.detail}: {request.method} {request.url.path}"
        request.state.refused = Refused(code, message, status=error.status_code, headers=error.headers)
        return refusal(request.state.refused)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return refusal(Refused("server_error", "The server had an internal failure."))

    @app.exception_handler(Page)
    async def page(request: Request, error: Page) -> Response:
        return Response(error.body, error.status, media_type="text/html")

    @app.exception_handler(Dropped)
    async def dropped(request: Request, error: Dropped) -> Response:
        return Disconnect()

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody reads it


class CountAnswers:
    """Counts every answer of the interface in the traffic of the workspace that asked."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Counts an answer just before it is sent; a closed connection when it is closed."""
        if scope["type"] != "http" or not scope["path"].startswith("/v2/"):
            await self.app(scope, receive, send)
            return
        answered = failed = False

        async def counted(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                retry_after = any(name.lower() == b"retry-after" for name, _ in message["headers"])
                self.count(scope, message["status"], retry_after=retry_after)
            await send(message)

        try:
            await self.app(scope, receive, counted)
        except Exception:
            failed = True  # the application answers it with 500, outside of this
            raise
        finally:
            if not answered:
                self.count(scope, 500 if failed else 0, retry_after=False)

    def count(self, scope: Scope, status: int, *, retry_after: bool) -> None:
        """Counts one answer, and remembers a refusal."""
        state, now = scope["state"], self.service.clock()
        caller: Caller | None = state.get("caller")
        traffic = caller.workspace.traffic if caller else self.service.keyless
        traffic.count(outcome_of(scope["method"], status, retry_after=retry_after), now)
        if not 100 <= status < 400:
            error: Refused | None = state.get("refused")
            code, message = (error.code, error.message) if error else ("", "")
            path = scope["path"]
            traffic.refusals.append(Refusal(now, scope["method"], path, status, code, message))


def identify(request: Request, service: Service) -> Caller:
    """The project and workspace of a request's key, which are remembered for `CountAnswers`.

    Raises:
        Refused: 401 for a missing or wrong key (INTERFACE 5.2).
    """
    caller: Caller = service.keys.caller(request.headers.get("authorization"))
    request.state.caller = caller
    return caller


@contextmanager
def metered(window: Window, service: Service) -> Iterator[dict[str, str]]:
    """Adds the rate headers to an error; fills the dictionary with them for a success."""
    headers: dict[str, str] = {}
    try:
        yield headers
    except Refused as refused:
        refused.headers = window.headers(service.clock()) | refused.headers
        raise
    headers |= window.headers(service.clock())


async def read_body(request: Request) -> bytes:
    """The body of a request, of at most 25 MiB.

    Raises:
        Refused: 400 for another content type, or a body that is too large.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise invalid(f"The content type must be application/json, not '{content_type}'.")
    too_large = Refused(
        "invalid_parameter", "The request is larger than 25 MiB.", headers={"Connection": "close"}
    )
    if int(request.headers.get("content-length", 0)) > MAX_BODY_BYTES:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise too_large
    return bytes(body)


def base_url(request: Request) -> str:
    """The address at which the caller reached the server; download URLs begin with it."""
    return f"{request.url.scheme}://{request.url.netloc}"


def add_generations(app: FastAPI, service: Service) -> None:
    """The endpoints with rate limits (INTERFACE 4.1, 4.4)."""

    @app.post("/v2/images/generations", **openapi.CREATE_IMAGE)
    async def create_image(request: Request) -> Response:
        caller = identify(request, service)
        with metered(caller.workspace.windows["image"], service) as headers:
            generation = wire.read_request(wire.ImageRequest, await read_body(request))
            body = await service.create_image(caller, generation, base_url(request))
        return answer(body, 200, headers)

    @app.post("/v2/videos/generations", **openapi.CREATE_VIDEO)
    async def create_video(request: Request) -> Response:
        caller = identify(request, service)
        with metered(caller.workspace.windows["video"], service) as headers:
            generation = wire.read_request(wire.VideoRequest, await read_body(request))
            body = await service.create_video(caller, generation)
        return answer(body, 202, headers)


def add_reads(app: FastAPI, service: Service) -> None:
    """The endpoints that only have the generous limit on reads (INTERFACE 4.2, 4.3, 4.5-4.7, 8)."""

    def enter(request: Request) -> Caller:
        caller = identify(request, service)
        now = service.clock()
        try:
            caller.workspace.read(now)
        except Refused as refused:
            refused.headers = caller.workspace.reads.headers(now) | refused.headers
            raise
        service.finish_due(now)
        return caller

    async def apply_faults(endpoint: Endpoint, caller: Caller, model: str = "") -> None:
        faults = service.faults.match(endpoint, model)
        await faults.before(caller.workspace.reads, caller.workspace.concurrency, service.clock)
        faults.after({})

    @app.get("/v2/models", **openapi.LIST_MODELS)
    async def list_models(request: Request) -> Response:
        caller = enter(request)
        with metered(caller.workspace.reads, service) as headers:
            model_type = query(request, "type").get("type")
            if model_type not in {None, "image", "video"}:
                raise invalid("type is image or video.", "type")
            await apply_faults("models", caller)
            models = [m.as_wire() for m in service.models.values() if model_type in {None, m.type}]
        return answer(models, 200, headers)

    @app.get("/v2/models/{model}", **openapi.GET_MODEL)
    async def get_model(request: Request, model: str) -> Response:
        caller = enter(request)
        with metered(caller.workspace.reads, service) as headers:
            query(request)
            await apply_faults("model", caller, model)
            entry = service.models.get(model)
            if entry is None:
                raise Refused("not_found", f"There is no model '{model}'.", "model")
        return answer(entry.as_wire(), 200, headers)

    @app.get("/v2/videos/generations/{id}", **openapi.GET_VIDEO)
    async def get_video(request: Request, id: str) -> Response:  # noqa: A002 - the interface's name
        caller = enter(request)
        with metered(caller.workspace.reads, service) as headers:
            query(request)
            body = await service.status(caller, id, base_url(request))
        return answer(body, 200, headers)

    @app.get("/v2/billing/balance", **openapi.GET_BALANCE)
    async def get_balance(request: Request) -> Response:
        caller = enter(request)
        query(request)
        await apply_faults("balance", caller)
        body: wire.Balance = {"currency": "USD", "balance": f"{caller.workspace.balance:.4f}"}
        return answer(body, 200, NO_STORE)

    @app.get("/v2/billing/costs", **openapi.GET_COSTS)
    async def get_costs(request: Request) -> Response:
        caller = enter(request)
        values = query(request, "start", "end")
        start, end = moment(values, "start"), moment(values, "end")
        if end <= start:
            raise invalid("end must be after start.", "end")
        if end - start > timedelta(days=180):
            raise invalid("end must be within 180 days of start.", "end")
        await apply_faults("costs", caller)
        return answer(service.costs(caller, start, end), 200, NO_STORE)


def query(request: Request, *known: str) -> dict[str, str]:
    """The query's parameters by name.

    Raises:
        Refused: 400 for an unknown or repeated one.
    """
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known or name in values:
            raise invalid(f"{'Repeated' if name in values else 'Unknown'} query parameter: '{name}'.", name)
        values[name] = value
    return values


def moment(values: Mapping[str, str], name: str) -> datetime:
    """A required query parameter: an ISO 8601 date-time with time zone, in UTC.

    Raises:
        Refused: 400.
    """
    if name not in values:
        raise Refused("parameter_missing", f"Missing required parameter: '{name}'.", name)
    try:
        if DATE_TIME.fullmatch(values[name]):
            return datetime.fromisoformat(values[name].upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise invalid(f"{name} must be an ISO 8601 date-time with time zone, such as 2026-01-31T00:00:00Z.", name)


def add_downloads(app: FastAPI, service: Service) -> None:
    """The signed URLs (INTERFACE 4.8): without a key; with `Range` and `HEAD`."""

    @app.head("/v2/downloads/{generation_id}/{index}", **openapi.DOWNLOAD)
    @app.get("/v2/downloads/{generation_id}/{index}", **openapi.DOWNLOAD)
    async def download(request: Request, generation_id: str, index: str) -> Response:
        signed = request.query_params
        recipe = service.media(generation_id, index, signed.get("exp", ""), signed.get("sig", ""))
        faults = service.faults.match("downloads", recipe.model, recipe.prompt)
        workspace = next(iter(service.workspaces.values()))
        await faults.before(workspace.reads, workspace.concurrency, service.clock)
        if faults.find(WrongType):
            raise Page(200)
        media = await service.cache.get(recipe)
        faults.after({})
        return File(media, recipe.mime_type, request, truncated=bool(faults.find(Truncate)))
