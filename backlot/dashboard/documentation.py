"""`/docs`: the interface as a page to try, by the Swagger UI in this package: nothing from the internet."""

from __future__ import annotations

from fastapi import FastAPI, Response

from backlot.dashboard import rendering

# Swagger UI has its icons as data.
POLICY = rendering.HEADERS["Content-Security-Policy"].replace("img-src 'self'", "img-src 'self' data:")


def add_documentation(app: FastAPI) -> None:
    """Adds the page. It needs no session: it is about the interface, and shows nothing of an account."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        answer = rendering.page("docs.html", title="API")
        answer.headers["Content-Security-Policy"] = POLICY
        return answer
