"""Who may use the page that is served for marking: the browser that has opened the link, and the page itself.

Other programs of this machine, and pages of other sites, can reach the server too: by a name of their own
that points to this machine, or by a form. So each request must name this server, show the cookie that the
link has set, and a mark must come from the page itself. Nothing else is decided here.
"""

from __future__ import annotations

import hashlib
import secrets

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",  # otherwise a page of another port could load the scripts
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
# Not an answer 303: a browser that comes from another site would follow that without the cookie.
_GO_ON = (
    '<!doctype html><link rel="icon" href="data:,"><meta http-equiv="refresh" content="0;url=./">'
    '<a href="./">Review</a>'
)


LOOPBACK = "127.0.0.1"


class Guard:
    """Lets requests pass to `app` that may; all others are answered 403. `link` opens the first page.

    `token` signs a browser in, at any address that ends in a slash; None for a new one.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None) -> None:
        self._app = app
        self._token = token or secrets.token_urlsafe(16)
        # After a restart with the same token, a page that is open stays signed in.
        self._session = hashlib.sha256(self._token.encode()).hexdigest()
        self._cookie = f"callsheet-review-{port}"  # to browsers, all ports of a machine share their cookies
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._hosts = {address, f"localhost:{port}"} if host == LOOPBACK else {address}
        self.link = f"http://{address}/?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, as ASGI says."""
        request = Request(scope)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        refusal = self._refusal(request)
        if refusal:
            await Response(refusal, 403, media_type="text/plain")(scope, receive, with_headers)
        elif "token" in request.query_params:
            answer = HTMLResponse(_GO_ON, headers={"Cache-Control": "no-store"})
            answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
            await answer(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)

    def _refusal(self, request: Request) -> str:
        """Why a request is refused; empty where it may pass."""
        host = request.headers.get("host", "")
        if host not in self._hosts:
            return "This server has another name."
        is_read = request.method in {"GET", "HEAD"}
        if not is_read and request.headers.get("origin") != f"http://{host}":
            return "This was not sent from the page."
        if is_read and "token" in request.query_params:
            is_known = _equal(request.query_params["token"], self._token)
        else:
            is_known = _equal(request.cookies.get(self._cookie, ""), self._session)
        return "" if is_known else "Open the link that callsheet printed when it started."


def _equal(text: str, secret: str) -> bool:
    return secrets.compare_digest(text.encode(errors="replace"), secret.encode())
