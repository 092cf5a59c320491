"""HTTP: routes, headers, the error body, and the OpenAPI document (INTERFACE 4, 5, 7, 8).

It decides nothing about money or limits; `service` does.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Mapping
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backlot import wire
from backlot.accounts import ApiKey, ModelType, Workspace
from backlot.dashboard.routes import add_dashboard
from backlot.dashboard.sign_in import SignIn
from backlot.errors import Refused, invalid
from backlot.faults import Dropped, Endpoint, Page, Truncate, WrongType
from backlot.files import Disconnect, File
from backlot.service import Service
from backlot.traffic import Refusal, outcome_of

MAX_BODY_BYTES = 25 * 2**20
MAKES: dict[str, ModelType] = {"/v2/images/generations": "image", "/v2/videos/generations": "video"}
NO_STORE = {"Cache-Control": "no-store"}

ERRORS = {
    400: "A parameter is invalid or missing (`invalid_parameter`, `parameter_missing`).",
    401: "The API key is missing or wrong (`invalid_api_key`).",
    402: "The balance is smaller than the price (`quota_exceeded`).",
    403: "The URL has been altered (`invalid_parameter`).",
    404: "There is no such model, generation or file (`not_found`).",
    410: "The URL has expired (`not_found`).",
    416: "The range is outside the file (`invalid_parameter`).",
    422: "The prompt or a reference image does not pass the safety check (`content_policy_violation`).",
    429: "A rate window is full (with `Retry-After`), or there are too many generations at once (without).",
    500: "Internal failure (`server_error`).",
}
RATE_HEADERS = {
    name: {"description": about, "schema": {"type": "string", "pattern": r"^\d+$"}}
    for name, about in (
        ("X-RateLimit-Limit", "Requests in a window."),
        ("X-RateLimit-Remaining", "Requests left in this window."),
        ("X-RateLimit-Reset", "Unix seconds at which the next window begins."),
    )
}
FILES: dict[str, Any] = {
    mime_type: {"schema": {"type": "string", "format": "binary"}}
    for mime_type in ("image/png", "image/jpeg", "image/webp", "video/mp4")
}


class Document(FastAPI):
    """An application whose OpenAPI document has the interface's errors alone."""

    def openapi(self) -> dict[str, Any]:
        """The document, without the 422 that FastAPI itself would answer."""
        document = super().openapi()
        for operations in document["paths"].values():
            for operation in operations.values():
                if "HTTPValidationError" in str(operation["responses"].get("422")):
                    del operation["responses"]["422"]
        return document


def create_app(service: Service, sign_in: SignIn | None = None) -> FastAPI:
    """The whole service as an ASGI application; without `sign_in` nobody may open the dashboard."""
    app = Document(
        title="Backlot",
        version="2.0.0",
        summary="An image and video generation service on one machine.",
        description=(
            "Images are made while you wait; videos are submitted, polled and then downloaded. Media is "
            "fetched from signed URLs that expire. Every finished generation reports its cost. All errors "
            "look the same."
        ),
        redoc_url=None,
        docs_url=None,  # the dashboard has it
        redirect_slashes=False,
    )
    app.state.service = service
    app.add_middleware(CountAnswers, service=service)
    add_error_handlers(app)
    bearer = HTTPBearer(scheme_name="key", description="An API key, of the form `sk_...`.", auto_error=False)
    keyed = APIRouter(route_class=Keyed, dependencies=[Depends(bearer)])
    add_generations(keyed, service)
    add_reads(keyed, service)
    app.include_router(keyed)
    add_downloads(app, service)
    add_dashboard(app, service, sign_in or SignIn())
    return app


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with a JSON body."""
    return Response(wire.to_json(body), status, headers, "application/json")


def refusal(refused: Refused) -> Response:
    """The answer of an error, with the error body (INTERFACE 2.1)."""
    error = {
        "message": refused.detail,
        "type": "invalid_request_error",
        "param": refused.param,
        "code": refused.code,
    }
    return answer({"error": error}, refused.status_code, refused.headers)


def add_error_handlers(app: FastAPI) -> None:
    """Gives every error the interface's error body (INTERFACE 7)."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if not isinstance(error, Refused):  # an unknown path, a wrong method, a body that cannot be read
            if error.status_code == 405 and not request.url.path.startswith("/v2/"):
                error = HTTPException(404)  # to a program, the dashboard does not exist
            code = "not_found" if error.status_code == 404 else "invalid_parameter"
            message = f"{error.detail}: {request.method} {request.url.path}"
            error = Refused(code, message, status=error.status_code, headers=error.headers)
        request.state.refused = error
        return refusal(error)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return refusal(Refused("server_error", "The server had an internal failure."))

    @app.exception_handler(Page)
    async def page(request: Request, error: Page) -> Response:
        return Response(error.body, error.status, media_type="text/html")

    @app.exception_handler(Dropped)
    async def dropped(request: Request, error: Dropped) -> Response:
        return Disconnect()


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
        caller: ApiKey | None = state.get("caller")
        traffic = caller.workspace.traffic if caller else self.service.keyless
        traffic.count(outcome_of(scope["method"], status, retry_after=retry_after), now)
        if not 100 <= status < 400:
            error: Refused | None = state.get("refused")
            code, message = (error.code, error.detail) if error else ("", "")
            traffic.refusals.append(Refusal(now, scope["method"], scope["path"], status, code, message))


class LimitedRequest(Request):
    """A request whose body has at most 25 MiB."""

    async def body(self) -> bytes:
        """The body.

        Raises:
            Refused: 400 when it is too large; unread, where its length is said before it.
        """
        if not hasattr(self, "_body"):
            said, body = int(self.headers.get("content-length", 0)), bytearray()
            if said <= MAX_BODY_BYTES:
                async for chunk in self.stream():
                    body += chunk
                    if len(body) > MAX_BODY_BYTES:
                        break
            if max(said, len(body)) > MAX_BODY_BYTES:
                close = {"Connection": "close"}
                raise Refused("invalid_parameter", "The request is larger than 25 MiB.", headers=close)
            self._body = bytes(body)
        return self._body


class Keyed(APIRoute):
    """A route of INTERFACE 4.1 to 4.7: it asks for a key before anything else.

    Generation answers carry the headers of their rate window, all others those of the generous limit on reads
    (INTERFACE 8). The endpoint finds the caller in `request.state.caller`.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route as FastAPI calls it."""
        handle = super().get_route_handler()
        makes = MAKES.get(self.path)
        parameters = {field.alias for field in self.dependant.query_params}

        async def checked(request: Request, service: Service, caller: ApiKey) -> Response:
            if makes is None:
                caller.workspace.read(service.clock())
                check_query(request, parameters)
            service.finish_due(service.clock())
            try:
                return await handle(LimitedRequest(request.scope, request.receive))
            except RequestValidationError as error:
                raise as_refused(error) from None

        async def keyed(request: Request) -> Response:
            service: Service = request.app.state.service
            caller = request.state.caller = service.keys.caller(request.headers.get("authorization"))
            window = caller.workspace.windows[makes] if makes else caller.workspace.reads
            try:
                answered = await checked(request, service, caller)
            except HTTPException as error:
                error.headers = window.headers(service.clock()) | dict(error.headers or {})
                raise
            answered.headers.update(window.headers(service.clock()))
            return answered

        return keyed


def check_query(request: Request, known: Container[str]) -> None:
    """Refuses a query parameter that is unknown or repeated.

    Raises:
        Refused: 400.
    """
    seen = set()
    for name, _ in request.query_params.multi_items():
        if name not in known or name in seen:
            raise invalid(f"{'Repeated' if name in seen else 'Unknown'} query parameter: '{name}'.", name)
        seen.add(name)


def as_refused(error: RequestValidationError) -> Refused:
    """The 400 of a request that is not as its schema says; `param` names the first wrong field."""
    # Unknown fields last: a problem with a known field is more helpful.
    problem = min(error.errors(), key=lambda each: each["type"] == "extra_forbidden")
    _, *parts = problem["loc"]  # after "body", "query" or "path"
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
    match problem["type"]:
        case "json_invalid":
            return invalid(f"The body is not valid JSON: {problem['ctx']['error']}.")
        case _ if not param:
            return invalid("The body must be a JSON object, with the content type application/json.")
        case "missing":
            return Refused("parameter_missing", f"Missing required parameter: '{param}'.", param)
        case "extra_forbidden":
            return invalid(f"Unknown parameter: '{param}'.", param)
        case _:
            return invalid(f"Invalid value for '{param}': {problem['msg']}.", param)


def base_url(request: Request) -> str:
    """The address at which the caller reached the server; download URLs begin with it."""
    return f"{request.url.scheme}://{request.url.netloc}"


def documented(tag: str, summary: str, success: str, *errors: int, **more: Any) -> dict[str, Any]:
    """What the OpenAPI document says of a route: its answer and the errors of these statuses."""
    headers = {} if tag == "Downloads" else RATE_HEADERS
    responses: dict[int, Any] = {
        status: {
            "model": wire.Error,
            "description": ERRORS[status],
            "headers": headers if status != 401 else {},
        }
        for status in errors
    }
    ok = more.get("status_code", 200)
    responses[ok] = {"description": success, "headers": headers}
    return {"tags": [tag], "summary": summary, "responses": responses, **more}


def add_generations(router: APIRouter, service: Service) -> None:
    """The endpoints with rate limits (INTERFACE 4.1, 4.4)."""
    errors = (400, 401, 402, 422, 429, 500)

    @router.post(
        "/v2/images/generations",
        **documented("Images", "Generate an image", "The finished image, charged to the balance.", *errors),
        response_model=wire.ImageGeneration,
    )
    async def create_image(request: Request, generation: wire.ImageRequest) -> Response:
        return answer(await service.create_image(request.state.caller, generation, base_url(request)))

    @router.post(
        "/v2/videos/generations",
        **documented("Videos", "Submit a video", "Accepted; poll its id.", *errors, status_code=202),
        response_model=wire.Pending,
    )
    async def create_video(request: Request, generation: wire.VideoRequest) -> Response:
        return answer(await service.create_video(request.state.caller, generation), 202)


def add_reads(router: APIRouter, service: Service) -> None:
    """The endpoints that only have the generous limit on reads (INTERFACE 4.2, 4.3, 4.5-4.7, 8)."""

    async def apply_faults(request: Request, endpoint: Endpoint, model: str = "") -> None:
        workspace: Workspace = request.state.caller.workspace
        faults = service.faults.match(endpoint, model)
        await faults.before(workspace.reads, workspace.concurrency, service.clock)
        faults.after({})

    @router.get(
        "/v2/models",
        **documented("Models", "List the models and their prices", "The models.", 400, 401, 429, 500),
        response_model=list[wire.Model],
    )
    async def list_models(
        request: Request, model_type: Annotated[ModelType | None, Query(alias="type")] = None
    ) -> Response:
        await apply_faults(request, "models")
        return answer([m.as_wire() for m in service.models.values() if model_type in {None, m.type}])

    @router.get(
        "/v2/models/{model}",
        **documented("Models", "Read one model", "The model.", 400, 401, 404, 429, 500),
        response_model=wire.Model,
    )
    async def get_model(request: Request, model: Annotated[str, Path(min_length=1)]) -> Response:
        await apply_faults(request, "model", model)
        if model not in service.models:
            raise Refused("not_found", f"There is no model '{model}'.", "model")
        return answer(service.models[model].as_wire())

    @router.get(
        "/v2/videos/generations/{id}",
        **documented("Videos", "Read a video's status", "Its state.", 400, 401, 404, 429, 500),
        response_model=wire.Pending | wire.Failed | wire.Completed,
    )
    async def get_video(
        request: Request, generation_id: Annotated[str, Path(alias="id", min_length=1)]
    ) -> Response:
        return answer(await service.status(request.state.caller, generation_id, base_url(request)))

    @router.get(
        "/v2/billing/balance",
        **documented("Billing", "Read the workspace's balance", "After all charges.", 400, 401, 429, 500),
        response_model=wire.Balance,
    )
    async def get_balance(request: Request) -> Response:
        await apply_faults(request, "balance")
        balance = f"{request.state.caller.workspace.balance:.4f}"
        return answer({"currency": "USD", "balance": balance}, headers=NO_STORE)

    @router.get(
        "/v2/billing/costs",
        **documented("Billing", "Read the project's costs", "One for each UTC date.", 400, 401, 429, 500),
        response_model=wire.Costs,
    )
    async def get_costs(request: Request, start: wire.Moment, end: wire.Moment) -> Response:
        if end <= start:
            raise invalid("end must be after start.", "end")
        if end - start > timedelta(days=180):
            raise invalid("end must be within 180 days of start.", "end")
        await apply_faults(request, "costs")
        caller: ApiKey = request.state.caller
        return answer(service.costs(caller.workspace, caller.project, start, end), headers=NO_STORE)


def add_downloads(app: FastAPI, service: Service) -> None:
    """The signed URLs (INTERFACE 4.8): without a key; with `Range` and `HEAD`."""
    about = documented(
        "Downloads", "Fetch a file by its signed URL", "The file.", 403, 404, 410, 416, 429, 500
    )
    about["responses"] |= {status: {"content": FILES} for status in (200, 206)}

    @app.head("/v2/downloads/{generation_id}/{index}", **about, response_class=Response)
    @app.get("/v2/downloads/{generation_id}/{index}", **about, response_class=Response)
    async def download(
        request: Request, generation_id: str, index: str, exp: str = "", sig: str = ""
    ) -> Response:
        recipe = service.media(generation_id, index, exp, sig)
        faults = service.faults.match("downloads", recipe.model, recipe.prompt)
        workspace = next(iter(service.workspaces.values()))
        await faults.before(workspace.reads, workspace.concurrency, service.clock)
        if faults.find(WrongType):
            raise Page(200)
        media = await service.cache.get(recipe)
        faults.after({})
        return File(media, recipe.mime_type, request, truncated=bool(faults.find(Truncate)))
