"""The connections: one for each request in flight, kept for the next request.

httpx's own pool searches all its connections for every request, which costs 2 to 12 ms of CPU each at 100 in
flight; with one pool per connection it is 0.6 ms. Faster HTTP clients do not distinguish a request that never
left from one that may have been carried out, and for a paid POST that difference is money.
Nothing here depends on the interface, and nothing limits the number of requests: `callsheet.limits` does.
"""

from __future__ import annotations

import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

import httpx

from callsheet.errors import ConfigError

KEEPALIVE = 2.0
"""Seconds for which an idle connection may be used again.

Common servers close idle connections after 5 s or more. A POST that is sent while the server closes the
connection fails as if it might have been carried out, so a connection is dropped well before that.
"""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Connections(httpx.AsyncBaseTransport):
    """Takes the free connection that was used last for each request, or opens another.

    A connection is free again when its response is closed; one that broke is never used again.
    TLS trusts httpx's defaults: certifi's authorities, or `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    """

    def __init__(self) -> None:
        self._tls = httpx.create_ssl_context()
        self._free: defaultdict[tuple[str, str, int | None], list[httpx.AsyncHTTPTransport]]
        self._free = defaultdict(list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends one request.

        Raises:
            httpx.TransportError: as httpx does.
            ConfigError: the environment names a proxy whose scheme is not supported.
        """
        url = request.url
        free = self._free[url.scheme, url.host, url.port]
        connection = free.pop() if free else self._open(url)
        # When this raises, httpcore has closed the connection, so it is not returned to the free ones.
        response = await connection.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - an async transport's always is
        response.stream = _Body(response.stream, lambda: free.append(connection))
        return response

    def _open(self, url: httpx.URL) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEPALIVE)
        return httpx.AsyncHTTPTransport(verify=self._tls, limits=limits, proxy=environment_proxy(url))

    async def aclose(self) -> None:
        """Closes the free connections; the others close with their responses."""
        while self._free:
            _, free = self._free.popitem()
            for connection in free:
                await connection.aclose()


class _Body(httpx.AsyncByteStream):
    """A response's body, which frees its connection when it is closed."""

    def __init__(self, body: httpx.AsyncByteStream, free_connection: Callable[[], None]) -> None:
        self._body = body
        self._free_connection = free_connection

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._body.__aiter__()

    async def aclose(self) -> None:
        await self._body.aclose()
        self._free_connection()


def environment_proxy(url: httpx.URL) -> str | None:
    """The proxy that the environment names for `url` (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, ...), if any.

    This machine's own addresses never go through a proxy.

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
            f"the environment names a proxy with {proxy.split(':')[0]}://, which is not supported",
            hint="Use an http:// or https:// proxy, or name the service's host in NO_PROXY.",
        )
    return proxy
