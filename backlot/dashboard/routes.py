"""The paths of the dashboard, none of which is in the OpenAPI document, and who may use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from starlette.staticfiles import StaticFiles

from backlot.dashboard import pages, sign_in
from backlot.dashboard.sign_in import SignIn
from backlot.files import File
from backlot.service import Service
from backlot.settings import problems
from backlot.store import Generation


async def media(request: Request, service: Service) -> Response:
    """A file, without faults and without a signed URL: this is not a download of the interface."""
    generation = generation_of(request, service)
    answer = File(await service.file(generation), generation.recipe.mime_type, request)
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer


async def thumbnail(request: Request, service: Service) -> Response:
    """A small image of a file."""
    picture = await service.file(generation_of(request, service), small=True)
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "private, max-age=3600, immutable"}
    return Response(picture, 200, headers, "image/jpeg")


def generation_of(request: Request, service: Service) -> Generation:
    """The generation of a file. Raises `HTTPException`: 404 for one that is not there yet, or no longer."""
    generation = service.store.get(request.path_params["id"])
    if generation is None or not generation.has_media(service.clock()):
        raise sign_in.unknown()
    return generation


Page = Callable[[Request, Service], Awaitable[Response]]
PAGES: dict[str, Page] = {
    "/": pages.overview,
    "/live": pages.live,
    "/latest": pages.latest,
    "/generations": pages.generations,
    "/generations/{id}": pages.generation,
    "/newer": pages.newer,
    "/costs": pages.costs,
    "/keys": pages.keys,
    "/models": pages.models,
    "/limits": pages.limits,
    "/faults": pages.faults,
    "/media/{id}": media,
    "/media/{id}/small": thumbnail,
}
Form = Callable[[Request, Service, dict[str, str]], Awaitable[Response]]
FORMS: dict[str, tuple[Form, Page]] = {  # each with the page that is shown again where it is wrong
    "/top-up": (pages.top_up, pages.overview),
    "/keys": (pages.create_key, pages.keys),
    "/keys/revoke": (pages.revoke_key, pages.keys),
    "/limits": (pages.change_limits, pages.limits),
    "/faults": (pages.switch_on, pages.faults),
    "/faults/off": (pages.switch_off, pages.faults),
}


def add_dashboard(app: FastAPI, service: Service, access: SignIn) -> None:
    """Adds the pages, for those whom `access` lets in; and the interface's page to try it."""

    def add(path: str, method: str, page: Page) -> None:
        async def signed_in(request: Request) -> Response:
            access.check(request)
            service.finish_due(service.clock())  # as every request of the interface does first
            return await page(request, service)

        app.add_route(path, signed_in, [method])

    def add_form(path: str, carry_out: Form, again: Page) -> None:
        async def post(request: Request, service: Service) -> Response:
            body = (await request.body()).decode(errors="replace")
            fields = dict(parse_qsl(body, keep_blank_values=True))
            try:
                return await carry_out(request, service, fields)
            except ValidationError as error:
                reasons = {key.rpartition(".")[2]: reason for key, reason in problems(error)}
                request.state.failed = reasons, fields
                return await again(request, service)

        add(path, "POST", post)

    async def another_link(request: Request, service: Service) -> Response:
        return await pages.overview(request, service, link=access.link(str(request.base_url)))

    async def end(request: Request, service: Service) -> Response:
        access.sessions.discard(sign_in.session_of(request))
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(sign_in.cookie_name(request), httponly=True, samesite="strict")
        return answer

    _add_sign_in(app, access)
    app.add_route("/docs", _docs)
    for path, page in PAGES.items():
        add(path, "GET", page)
    for path, (carry_out, again) in FORMS.items():
        add_form(path, carry_out, again)
    add("/another-link", "POST", another_link)
    add("/sign-out", "POST", end)
    app.mount("/assets", StaticFiles(directory=pages.FOLDER / "static"))


def _add_sign_in(app: FastAPI, access: SignIn) -> None:
    """Adds the page that a link to sign in opens, and the one that says why somebody is not let in."""

    async def begin(request: Request) -> Response:
        access.check_name(request)
        if request.method == "HEAD":  # it would use the link up
            raise sign_in.unknown()
        session = access.exchange(request.query_params.get("token", ""))
        # Not a redirect: after a link on a page of another site, that would be sent without a strict cookie.
        answer = pages.page("signed_in.html", title="Signed in")
        answer.set_cookie(
            sign_in.cookie_name(request),
            session,
            max_age=sign_in.LASTS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    @app.exception_handler(sign_in.Problem)
    async def problem(request: Request, error: sign_in.Problem) -> Response:
        return pages.page("problem.html", error.status, title=error.title, text=error.text)

    app.add_route("/sign-in", begin)


async def _docs(request: Request) -> Response:
    """Without a session: it is about the interface, and shows nothing of an account."""
    answer = pages.page("docs.html", title="API")
    policy = pages.HEADERS["Content-Security-Policy"]
    icons = policy.replace("img-src 'self'", "img-src 'self' data:")  # Swagger UI has its own as data
    answer.headers["Content-Security-Policy"] = icons
    return answer
