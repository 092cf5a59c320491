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
from starlette.requests import ClientDisconnect

from backlot import wire
from backlot.accounts import ApiKey, ModelType, Window, Workspace
from backlot.dashboard.routes import add_dashboard
from backlot.dashboard.sign_in import SignIn
from backlot.errors import Refused, invalid
from backlot.faults import HTML, Dropped, Endpoint, Page, Truncate, WrongType
from backlot.files import Disconnect, File
from backlot.service import Service

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


def create_app(service: Service, sign_in: SignIn) -> FastAPI:
    """The whole service as an ASGI application, with the dashboard for those whom `sign_in` knows."""
    app = Document(
        title="Backlot",
        version="2.0.0",
        description=(
            "Images are made while you wait; videos are submitted, polled and then downloaded. Media is "
            "fetched from signed URLs that expire. Every finished generation reports its cost. All errors "
            "look the same. Answers carry `X-RateLimit-Limit`, `X-RateLimit-Remaining` (in this window) and "
            "`X-RateLimit-Reset` (Unix seconds at which the next one begins)."
        ),
        redoc_url=None,
        docs_url=None,  # the dashboard has it
        redirect_slashes=False,
    )
    app.state.service = service
    add_error_handlers(app)
    # As they are, and not included: FastAPI would build them anew for each application, for 0.1 s.
    app.router.routes += [*KEYED.routes, *SIGNED.routes]
    add_dashboard(app, service, sign_in)
    return app


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with a JSON body."""
    return Response(wire.to_json(body), status, headers, "application/json")


def service_of(request: Request) -> Service:
    """The service of the application that was asked."""
    service: Service = request.app.state.service
    return service


def counted(request: Request, response: Response, error: Refused | None = None) -> Response:
    """Counts an answer of the interface in the traffic of the workspace that asked."""
    if request.url.path.startswith("/v2/"):
        service = service_of(request)
        caller: ApiKey | None = getattr(request.state, "caller", None)
        traffic = caller.workspace.traffic if caller else service.keyless
        traffic.count(service.clock(), request.method, request.url.path, response.status_code, error)
    return response


def add_error_handlers(app: FastAPI) -> None:
    """Gives every error the interface's error body (INTERFACE 2.1, 7), and counts it."""

    def refusal(request: Request, error: Refused) -> Response:
        window: Window | None = getattr(request.state, "window", None)
        rates = window.headers(service_of(request).clock()) if window else {}
        body = {
            "message": error.detail,
            "type": "invalid_request_error",
            "param": error.param,
            "code": error.code,
        }
        answered = answer({"error": body}, error.status_code, rates | error.headers)
        return counted(request, answered, error)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if isinstance(error, Refused):
            return refusal(request, error)
        code, path = "invalid_parameter", request.url.path  # a wrong method, or a body that cannot be read
        if error.status_code == 404 or not path.startswith("/v2/"):  # to a program, there is no dashboard
            code, error = "not_found", HTTPException(404)
        message = f"{error.detail}: {request.method} {path}"
        return refusal(request, Refused(code, message, status=error.status_code, headers=error.headers))

    @app.exception_handler(RequestValidationError)
    async def not_as_its_schema(request: Request, error: RequestValidationError) -> Response:
        return refusal(request, as_refused(error))

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return refusal(request, Refused("server_error", "The server had an internal failure."))

    @app.exception_handler(Page)
    async def page(request: Request, error: Page) -> Response:
        return counted(request, Response(HTML, error.status, media_type="text/html"))

    @app.exception_handler(Dropped)
    async def dropped(request: Request, error: Dropped) -> Response:
        return counted(request, Disconnect(status_code=0))


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

        async def keyed(request: Request) -> Response:
            service = service_of(request)
            caller = request.state.caller = service.caller(request.headers.get("authorization"))
            window = caller.workspace.windows[makes] if makes else caller.workspace.reads
            request.state.window = window
            if makes is None:
                window.check(service.clock())
                window.used += 1
                check_query(request, parameters)
            await check_size(request)
            service.finish_due(service.clock())
            answered = await handle(request)
            answered.headers.update(window.headers(service.clock()))
            return counted(request, answered)

        return keyed


async def check_size(request: Request) -> None:
    """Refuses a body of more than 25 MiB; unread, where its length is said before it.

    Raises:
        Refused: 400.
    """
    length = int(request.headers.get("content-length", 0))
    try:
        is_too_large = length > MAX_BODY_BYTES or len(await request.body()) > MAX_BODY_BYTES
    except ClientDisconnect:
        raise invalid("The request was not sent to its end.") from None
    if is_too_large:
        close = {"Connection": "close"}
        raise Refused("invalid_parameter", "The request is larger than 25 MiB.", headers=close)


def check_query(request: Request, allowed: Container[str]) -> None:
    """Refuses a query parameter that is unknown or repeated. Raises `Refused`: 400."""
    checked = set()
    for name, _ in request.query_params.multi_items():
        if name not in allowed or name in checked:
            raise invalid(f"{'Repeated' if name in checked else 'Unknown'} query parameter: '{name}'.", name)
        checked.add(name)


def as_refused(error: RequestValidationError) -> Refused:
    """The 400 of a request that is not as its schema says; `param` names the first wrong field."""
    problem = error.errors()[0]
    _, *parts = problem["loc"]  # after "body", "query" or "path"
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
    match problem["type"]:
        case "json_invalid":
            return invalid(f"The body is not valid JSON: {problem['ctx']['error']}.")
        case _ if not param:
            return invalid("The body must be a JSON object, with the content type application/json.")
        case "missing":
            return Refused("parameter_missing", f"Missing required parameter: '{param}'.", param)
        case _:
            return invalid(f"'{param}': {problem['msg']}.", param)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the OpenAPI document says of errors with these statuses."""
    return {status: {"model": wire.Error, "description": ERRORS[status]} for status in statuses}


# Made once for all applications of a process: FastAPI takes 40 ms for it.
KEYED = APIRouter(
    route_class=Keyed,
    dependencies=[
        Depends(
            HTTPBearer(scheme_name="key", description="An API key, of the form `sk_...`.", auto_error=False)
        )
    ],
    responses=errors(400, 401, 429, 500),
)
"""The endpoints that ask for a key (INTERFACE 4.1-4.7)."""
SIGNED = APIRouter()
"""The signed URLs (INTERFACE 4.8)."""


# ---- generations, with rate limits (INTERFACE 4.1, 4.4)


@KEYED.post(
    "/v2/images/generations",
    tags=["Images"],
    responses=errors(402, 422),
    response_model=wire.ImageGeneration,
)
async def create_image(request: Request, generation: wire.ImageRequest) -> Response:
    """Makes an image, and answers when it is made (INTERFACE 4.1)."""
    service = service_of(request)
    return answer(await service.create_image(request.state.caller, generation, str(request.base_url)))


@KEYED.post(
    "/v2/videos/generations",
    tags=["Videos"],
    status_code=202,
    responses=errors(402, 422),
    response_model=wire.Pending,
)
async def create_video(request: Request, generation: wire.VideoRequest) -> Response:
    """Accepts a video, which is polled until it is made (INTERFACE 4.4)."""
    return answer(await service_of(request).create_video(request.state.caller, generation), 202)


# ---- what only has the generous limit on reads (INTERFACE 4.2, 4.3, 4.5-4.7, 8)


async def apply_faults(request: Request, endpoint: Endpoint, model: str = "") -> None:
    """Lets the faults of a free endpoint happen."""
    service = service_of(request)
    workspace: Workspace = request.state.caller.workspace
    faults = service.faults.match(endpoint, model)
    await faults.before(workspace.reads, workspace.concurrency, service.clock())
    faults.after({})


@KEYED.get("/v2/models", tags=["Models"], response_model=list[wire.Model])
async def list_models(
    request: Request, model_type: Annotated[ModelType | None, Query(alias="type")] = None
) -> Response:
    """Lists the models, with their prices (INTERFACE 4.2)."""
    await apply_faults(request, "models")
    models = service_of(request).models.values()
    return answer([model.as_wire() for model in models if model_type in {None, model.type}])


@KEYED.get("/v2/models/{model}", tags=["Models"], responses=errors(404), response_model=wire.Model)
async def get_model(request: Request, model: Annotated[str, Path(min_length=1)]) -> Response:
    """One model, with its prices (INTERFACE 4.3)."""
    await apply_faults(request, "model", model)
    models = service_of(request).models
    if model not in models:
        raise Refused("not_found", f"There is no model '{model}'.", "model")
    return answer(models[model].as_wire())


@KEYED.get(
    "/v2/videos/generations/{id}",
    tags=["Videos"],
    responses=errors(404),
    response_model=wire.VideoStatus,
)
async def get_video(
    request: Request, generation_id: Annotated[str, Path(alias="id", min_length=1)]
) -> Response:
    """How far a video is; its URL once it is made (INTERFACE 4.5)."""
    service = service_of(request)
    return answer(await service.status(request.state.caller, generation_id, str(request.base_url)))


@KEYED.get("/v2/billing/balance", tags=["Billing"], response_model=wire.Balance)
async def get_balance(request: Request) -> Response:
    """What the workspace has left (INTERFACE 4.6)."""
    await apply_faults(request, "balance")
    balance = f"{request.state.caller.workspace.balance:.4f}"
    return answer({"currency": "USD", "balance": balance}, headers=NO_STORE)


@KEYED.get("/v2/billing/costs", tags=["Billing"], response_model=wire.Costs)
async def get_costs(request: Request, start: wire.Moment, end: wire.Moment) -> Response:
    """A project's costs, day by day (INTERFACE 4.7)."""
    if end <= start:
        raise invalid("end must be after start.", "end")
    if end - start > timedelta(days=180):
        raise invalid("end must be within 180 days of start.", "end")
    await apply_faults(request, "costs")
    caller: ApiKey = request.state.caller
    costs = service_of(request).costs(caller.workspace, caller.project, start, end)
    return answer(costs, headers=NO_STORE)


# ---- downloads, without a key; with `Range` and `HEAD` (INTERFACE 4.8)

DOWNLOAD: dict[str, Any] = {
    "tags": ["Downloads"],
    "response_class": Response,
    "responses": errors(403, 404, 410, 416, 429, 500) | {ok: {"content": FILES} for ok in (200, 206)},
}


@SIGNED.head("/v2/downloads/{generation_id}/{index}", **DOWNLOAD)
@SIGNED.get("/v2/downloads/{generation_id}/{index}", **DOWNLOAD)
async def download(
    request: Request, generation_id: str, index: str, exp: str = "", sig: str = ""
) -> Response:
    """An image or a video, by its signed URL (INTERFACE 4.8)."""
    service = service_of(request)
    generation = service.media(generation_id, index, exp, sig)
    recipe = generation.recipe
    faults = service.faults.match("downloads", recipe.model, recipe.prompt)
    workspace = next(iter(service.workspaces.values()))
    await faults.before(workspace.reads, workspace.concurrency, service.clock())
    if faults.find(WrongType):
        raise Page(200)
    media = await service.file(generation)
    faults.after({})
    file = File(media, recipe.mime_type, request, truncated=bool(faults.find(Truncate)))
    return counted(request, file)
