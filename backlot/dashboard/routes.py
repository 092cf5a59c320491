"""The paths of the dashboard, none of which is in the OpenAPI document, and who may use them."""

from __future__ import annotations

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from starlette.staticfiles import StaticFiles

from backlot.dashboard import pages, rendering, sign_in
from backlot.dashboard.forms import add_forms
from backlot.dashboard.sign_in import SignIn
from backlot.files import File
from backlot.media.pictures import make_thumbnail
from backlot.media.recipe import Recipe
from backlot.service import Service

READ = {
    "/": pages.overview,
    "/live": pages.live,
    "/latest": pages.latest,
    "/generations": pages.generations,
    "/newer": pages.newer,
    "/costs": pages.costs,
    "/keys": pages.keys,
    "/models": pages.models,
    "/limits": pages.limits,
    "/faults": pages.faults,
}
NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}


def add_dashboard(app: FastAPI, service: Service, known: SignIn) -> None:
    """Adds the pages to the application, for those whom `known` knows; and the interface's page to try it."""

    async def at_its_name(request: Request) -> None:
        sign_in.check_name(request, known)
        sign_in.check_origin(request)

    async def signed_in(request: Request) -> None:
        sign_in.check_name(request, known)
        sign_in.check_session(request, known)
        sign_in.check_origin(request)
        service.finish_due(service.clock())  # as every request of the interface does first

    @app.exception_handler(sign_in.Problem)
    async def problem(request: Request, error: sign_in.Problem) -> Response:
        return rendering.page("problem.html", error.status, title=error.title, text=error.text)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> (
        Response
    ):  # without a session: it is about the interface, and shows nothing of an account
        answer = rendering.page("docs.html", title="API")
        policy = rendering.HEADERS["Content-Security-Policy"]
        icons = policy.replace("img-src 'self'", "img-src 'self' data:")  # Swagger UI has its own as data
        answer.headers["Content-Security-Policy"] = icons
        return answer

    door = APIRouter(include_in_schema=False, dependencies=[Depends(at_its_name)])
    add_sign_in(door, known)
    inside = APIRouter(include_in_schema=False, dependencies=[Depends(signed_in)])
    add_pages(inside, service, known)
    add_media(inside, service)
    add_forms(inside, service)
    app.include_router(door)
    app.include_router(inside)
    app.mount("/assets", StaticFiles(directory=rendering.STATIC))


def add_sign_in(router: APIRouter, known: SignIn) -> None:
    """The link with a token, which becomes a session."""

    @router.get("/sign-in")
    async def begin(request: Request) -> Response:
        session = known.exchange(request.query_params.get("token", ""))
        if session is None:
            raise sign_in.Problem(
                403,
                "This link does not work",
                "Each link works once, and until the server ends. A signed-in browser can make another one.",
            )
        # Not a redirect: after a link on a page of another site, that would be sent without a strict cookie.
        answer = rendering.page("signed_in.html", title="Signed in")
        answer.set_cookie(
            sign_in.cookie_name(request),
            session,
            max_age=sign_in.LASTS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer


def add_pages(router: APIRouter, service: Service, known: SignIn) -> None:
    """The pages that only show, and the end of a session."""

    def add(path: str, show: pages.Show) -> None:
        async def get(request: Request) -> Response:
            return show(request, service)

        router.add_api_route(path, get, methods=["GET"])

    for path, show in READ.items():
        add(path, show)

    @router.get("/generations/{generation_id}")
    async def one(request: Request, generation_id: str) -> Response:
        return pages.generation(request, service, generation_id)

    @router.post("/another-link")
    async def another_link(request: Request) -> Response:
        return pages.overview(request, service, link=known.link(str(request.base_url)))

    @router.post("/sign-out")
    async def end(request: Request) -> Response:
        known.end(sign_in.session_of(request))
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(sign_in.cookie_name(request), httponly=True, samesite="strict")
        return answer


def add_media(router: APIRouter, service: Service) -> None:
    """The files themselves. No faults, and no signed URL: these are not downloads of the interface."""

    def recipe(generation_id: str) -> Recipe:
        found = service.store.get(generation_id)
        if found is None or found.state != "completed" or service.clock() >= (found.deletes_at or 0):
            raise sign_in.unknown()
        return service.whole_recipe(found)

    @router.get("/media/{generation_id}")
    async def media(request: Request, generation_id: str) -> Response:
        what = recipe(generation_id)
        answer = File(await service.cache.get(what), what.mime_type, request)
        answer.headers.update(NO_SNIFFING)
        return answer

    @router.get("/media/{generation_id}/small")
    async def small(generation_id: str) -> Response:
        picture = await service.cache.get(recipe(generation_id), make_thumbnail)
        headers = NO_SNIFFING | {"Cache-Control": "private, max-age=3600, immutable"}
        return Response(picture, 200, headers, "image/jpeg")
