"""How requests travel: one connection for each request in flight, kept for the next one.

httpx's own pool looks through all its connections for every request: 2 to 12 ms of CPU each at 100 in flight,
against 0.6 ms with a pool of one connection per request. Faster clients cannot tell a request that never left
from one that may have been carried out, and for a paid POST that difference is money.
Knows nothing of the service; limits how many are in flight nowhere: that is `callsheet.limits`' work.
"""

from __future__ import annotations

import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

import httpx

from callsheet.errors import ConfigError

KEEPALIVE = 2.0
"""Seconds that an idle connection may be used again.

Common servers close idle connections after 5 s or more. A POST that crosses such a closing on its way fails
as if it might have been carried out, so connections are given up well before that.
"""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Connections(httpx.AsyncBaseTransport):
    """Takes a free connection for each request, the one used last first, or opens another.

    A connection is free again when its response is closed; one that broke is never used again.
    TLS trusts what httpx does by default: certifi's authorities, or `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    """

    def __init__(self) -> None:
        self._tls = httpx.create_ssl_context()
        self._free: defaultdict[tuple[str, str, int | None], list[httpx.AsyncHTTPTransport]]
        self._free = defaultdict(list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends one request.

        Raises:
            httpx.TransportError: as httpx does.
            ConfigError: the environment names a proxy of a kind that is not supported.
        """
        url = request.url
        free = self._free[url.scheme, url.host, url.port]
        connection = free.pop() if free else self._open(url)
        # When this raises, httpcore has closed the connection, and nobody gives it back.
        response = await connection.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - an async transport's always is
        response.stream = _Borrowed(response.stream, lambda: free.append(connection))
        return response

    def _open(self, url: httpx.URL) -> httpx.AsyncHTTPTransport:
        one = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEPALIVE)
        return httpx.AsyncHTTPTransport(verify=self._tls, limits=one, proxy=environment_proxy(url))

    async def aclose(self) -> None:
        """Closes the free connections; those in use close with their responses."""
        while self._free:
            _, free = self._free.popitem()
            for connection in free:
                await connection.aclose()


class _Borrowed(httpx.AsyncByteStream):
    """A response's body on a borrowed connection, given back when the body is closed."""

    def __init__(self, body: httpx.AsyncByteStream, give_back: Callable[[], None]) -> None:
        self._body = body
        self._give_back = give_back

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._body.__aiter__()

    async def aclose(self) -> None:
        await self._body.aclose()
        self._give_back()


def environment_proxy(url: httpx.URL) -> str | None:
    """The proxy that the environment names for `url` (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, ...), if any.

    This machine's own addresses are never asked for through a proxy.

    Raises:
        ConfigError: it is neither an `http://` nor an `https://` proxy.
    """
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or url.host in _LOOPBACK or urllib.request.proxy_bypass(url.host):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        raise ConfigError(
            f"the environment asks for a proxy of the kind {proxy.split(':')[0]}://, which is not supported",
            hint="Use an http:// or https:// proxy, or name the service's host in NO_PROXY.",
        )
    return proxy
