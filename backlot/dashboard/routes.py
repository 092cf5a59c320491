"""The paths of the dashboard, none of which is in the OpenAPI document, and who may use them."""

from __future__ import annotations

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from backlot.dashboard import guard, pages, rendering
from backlot.dashboard.changes import add_changes
from backlot.dashboard.sign_in import SignIn
from backlot.files import File
from backlot.media.recipe import Recipe
from backlot.media.workers import make_thumbnail
from backlot.service import Service

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
READ = (
    ("/", pages.overview),
    ("/live", pages.live),
    ("/latest", pages.latest),
    ("/generations", pages.generations),
    ("/newer", pages.newer),
    ("/costs", pages.costs),
    ("/keys", pages.keys),
    ("/models", pages.models),
    ("/limits", pages.limits),
    ("/faults", pages.faults),
)


def add_dashboard(app: FastAPI, service: Service, sign_in: SignIn) -> None:
    """Adds the pages to the application, for those whom `sign_in` knows."""

    async def at_its_name(request: Request) -> None:
        guard.check_name(request, sign_in)
        guard.check_origin(request)

    async def signed_in(request: Request) -> None:
        guard.check_name(request, sign_in)
        guard.check_session(request, sign_in)
        guard.check_origin(request)
        service.finish_due(service.clock())  # as every request of the interface does first

    @app.exception_handler(guard.Problem)
    async def problem(request: Request, error: guard.Problem) -> Response:
        return rendering.page("problem.html", error.status, title=error.title, text=error.text)

    door = APIRouter(include_in_schema=False, dependencies=[Depends(at_its_name)])
    add_sign_in(door, sign_in)
    inside = APIRouter(include_in_schema=False, dependencies=[Depends(signed_in)])
    add_pages(inside, service, sign_in)
    add_media(inside, service)
    add_changes(inside, service)
    add_other_methods(inside)
    app.include_router(door)
    app.include_router(inside)
    app.mount("/assets", StaticFiles(directory=rendering.STATIC))


def add_sign_in(router: APIRouter, sign_in: SignIn) -> None:
    """The link with a token, which becomes a session."""

    @router.get("/sign-in")
    async def begin(request: Request) -> Response:
        session = sign_in.exchange(request.query_params.get("token", ""))
        if session is None:
            raise guard.Problem(
                403,
                "This link does not work",
                "Each link works once, and until the server ends. A signed-in browser can make another one.",
            )
        # Not a redirect: after a link on a page of another site, that would be sent without a strict cookie.
        answer = rendering.page("signed_in.html", title="Signed in")
        answer.set_cookie(
            guard.cookie_name(request),
            session,
            max_age=guard.LASTS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer


def add_pages(router: APIRouter, service: Service, sign_in: SignIn) -> None:
    """The pages that only show, and the end of a session."""

    def add(path: str, show: pages.Show) -> None:
        async def get(request: Request) -> Response:
            return show(request, service)

        router.add_api_route(path, get, methods=["GET"])

    for path, show in READ:
        add(path, show)

    @router.get("/generations/{generation_id}")
    async def one(request: Request, generation_id: str) -> Response:
        return pages.generation(request, service, generation_id)

    @router.post("/another-link")
    async def another_link(request: Request) -> Response:
        return pages.overview(request, service, link=sign_in.link(str(request.base_url)))

    @router.post("/sign-out")
    async def end(request: Request) -> Response:
        sign_in.end(guard.session_of(request))
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(guard.cookie_name(request), httponly=True, samesite="strict")
        return answer


def add_other_methods(router: APIRouter) -> None:
    """Asks for a session before a wrong method is said to be one: the path is unknown to a program."""
    methods: dict[str, set[str]] = {}
    for route in router.routes:
        if isinstance(route, APIRoute):
            methods.setdefault(route.path, set()).update(route.methods or ())

    async def wrong_method(request: Request) -> Response:
        raise HTTPException(405)

    for path, known in methods.items():
        router.add_api_route(path, wrong_method, methods=sorted(METHODS - known))


def add_media(router: APIRouter, service: Service) -> None:
    """The files themselves. No faults, and no signed URL: these are not downloads of the interface."""

    def recipe(generation_id: str) -> Recipe:
        found = service.store.get(generation_id)
        if found is None or found.state != "completed" or service.clock() >= (found.deletes_at or 0):
            raise guard.unknown()
        return service.whole_recipe(found)

    @router.get("/media/{generation_id}")
    async def media(request: Request, generation_id: str) -> Response:
        what = recipe(generation_id)
        answer = File(await service.cache.get(what), what.mime_type, request)
        answer.headers["X-Content-Type-Options"] = "nosniff"
        return answer

    @router.get("/media/{generation_id}/small")
    async def small(request: Request, generation_id: str) -> Response:
        picture = await service.cache.get(recipe(generation_id), make_thumbnail)
        headers = {"Cache-Control": "private, max-age=3600, immutable", "X-Content-Type-Options": "nosniff"}
        return Response(picture, 200, headers, "image/jpeg")
